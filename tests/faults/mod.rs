//! Faults at every point of a call, on real tools behind a real daemon: a Modbus device behind a proxy that drops, an HTTP
//! service with and without keys, files, an MCP server that is killed in mid-call, a shell whose child is killed; and the
//! daemon itself, killed at any moment. By a client without a guarantee, which guesses, and under each profile.
//!
//! What happened in the world is written down by the tools themselves, in the order in which it did, and is judged in the
//! view of the world. Two test binaries use this: a small seeded count in every run of the tests, the whole as an
//! experiment.

pub(crate) mod drive;
pub(crate) mod servers;
pub(crate) mod stand;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use interlock_domain::effect::anomaly::Kind;
use interlock_domain::effect::profile::Profile;

use drive::Ran;
use stand::Stand;

/// A kind of tool, as it is used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tool {
    Modbus,
    HttpKeyed,
    HttpAsked,
    HttpPlain,
    File,
    Mcp,
    Shell,
}

impl Tool {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Tool::Modbus => "modbus",
            Tool::HttpKeyed => "http, keyed",
            Tool::HttpAsked => "http, query",
            Tool::HttpPlain => "http, plain",
            Tool::File => "file",
            Tool::Mcp => "mcp server",
            Tool::Shell => "shell",
        }
    }

    /// The tool of a run. A server that is killed again and again is started later each time, so that it gets fewer.
    fn of(seed: u64) -> Tool {
        match seed * 37 % 100 {
            0..20 => Tool::Modbus,
            20..40 => Tool::HttpKeyed,
            40..60 => Tool::HttpAsked,
            60..75 => Tool::HttpPlain,
            75..84 => Tool::File,
            84..87 => Tool::Mcp,
            _ => Tool::Shell,
        }
    }
}

/// None, and each profile.
pub(crate) fn profile(seed: u64) -> Option<Profile> {
    let at = usize::try_from((seed + seed / 100) % 5).unwrap();
    at.checked_sub(1).map(|at| Profile::ALL[at])
}

fn excluded(profile: Option<Profile>) -> &'static [Kind] {
    match profile {
        None => &[],
        Some(Profile::UnknownSafe) => &[Kind::A1, Kind::A2, Kind::A3],
        Some(Profile::CompensationSafe) => &[Kind::A4],
        Some(Profile::SpeculationSafe) => &[Kind::A5, Kind::A6],
        Some(Profile::ExternallyMediated) => &[Kind::A7, Kind::A8],
    }
}

/// A cell of the table.
#[derive(Debug, Default)]
pub(crate) struct Cell {
    pub(crate) ends: BTreeMap<&'static str, u64>,
    pub(crate) found: BTreeMap<Kind, u64>,
}

pub(crate) type Table = BTreeMap<(Tool, Option<Profile>), Cell>;

/// Runs of one life of a stand: what nobody can settle stays open in it, and a box that is never looked at starts nothing
/// new at last.
const RUNS_OF_A_STAND: u64 = 300;

/// Runs the seeds below `count` on so many daemons with so many lanes each. `kills` says after how many runs a daemon is
/// killed. Gives the table, and the runs that had what their profile excludes.
pub(crate) fn run(count: u64, daemons: usize, lanes: usize, kills: u64) -> (Table, Vec<String>) {
    let (table, bad) = (Mutex::new(Table::new()), Mutex::new(Vec::new()));
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..daemons {
            let (table, bad, next) = (&table, &bad, &next);
            scope.spawn(move || {
                loop {
                    let first = next.fetch_add(RUNS_OF_A_STAND, Ordering::Relaxed);
                    if first >= count {
                        return;
                    }
                    let stand = Stand::start(lanes);
                    let (seeds, end) = (AtomicU64::new(first), count.min(first + RUNS_OF_A_STAND));
                    std::thread::scope(|scope| {
                        for lane in 0..lanes {
                            let (stand, seeds) = (&stand, &seeds);
                            scope.spawn(move || {
                                loop {
                                    let seed = seeds.fetch_add(1, Ordering::Relaxed);
                                    if seed >= end {
                                        return;
                                    }
                                    if seed % kills == kills - 1 {
                                        stand.kill_soon(seed);
                                    }
                                    let ran = drive::one(stand, lane, seed, Tool::of(seed), profile(seed));
                                    note(seed, ran, table, bad);
                                }
                            });
                        }
                    });
                }
            });
        }
    });
    (table.into_inner().unwrap(), bad.into_inner().unwrap())
}

fn note(seed: u64, ran: Ran, table: &Mutex<Table>, bad: &Mutex<Vec<String>>) {
    let (tool, profile) = (Tool::of(seed), profile(seed));
    let mut table = table.lock().unwrap();
    let cell = table.entry((tool, profile)).or_default();
    *cell.ends.entry(ran.end).or_default() += 1;
    for kind in &ran.found {
        *cell.found.entry(*kind).or_default() += 1;
    }
    // What nobody called settled may end well: what counts is what was called a success.
    let settled = matches!(ran.end, "committed" | "aborted");
    let broken: Vec<&Kind> = ran.found.iter().filter(|kind| settled && excluded(profile).contains(kind)).collect();
    if !broken.is_empty() {
        let name = profile.map_or("none", Profile::word);
        bad.lock().unwrap().push(format!("seed {seed}: {} under {name}: {broken:?}\n{}", tool.word(), ran.story));
    }
}

/// The table, a line for each cell.
pub(crate) fn lines(table: &Table) -> Vec<String> {
    let row = |((tool, profile), cell): (&(Tool, Option<Profile>), &Cell)| {
        let found: Vec<String> = cell.found.iter().map(|(kind, count)| format!("{} {count}", kind.word())).collect();
        let ends: Vec<String> = cell.ends.iter().map(|(end, count)| format!("{end} {count}")).collect();
        let name = profile.map_or("none", Profile::word);
        format!("{:<12} {name:<20} {:<58} {}", tool.word(), ends.join(", "), found.join(", "))
    };
    table.iter().map(row).collect()
}
