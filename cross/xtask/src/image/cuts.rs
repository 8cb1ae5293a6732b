//! The pulled plug: under load, at a moment by chance, with a disk that forgets what was not flushed.
//!
//! After each cut the box must come back by itself, its evidence must verify, each row that was acknowledged to the host
//! must be there with what was acknowledged, and a call that was at work must be `unknown`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::chance::Chance;
use super::disk;
use super::plug::{Flushes, Lost, Plug};
use super::trial::{self, Trial};
use super::vm::Vm;

/// The longest load before a cut.
const LOAD_MAX: Duration = Duration::from_secs(12);

/// Cuts of a disk that lies, of which one must be noticed.
const CONTROL_CUTS: u32 = 4;

/// A call that is at work for all of a load, by an MCP client; the rest are commands, each acknowledged.
const LOAD: &str = concat!(
    "(printf '%s\\n' '{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-06-18\",",
    "\"capabilities\":{},\"clientInfo\":{\"name\":\"trial\",\"version\":\"1\"}}}' ",
    "'{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}' ",
    "'{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"tools/call\",\"params\":{\"name\":\"shell\",\"arguments\":{\"command\":\"sleep 600\"}}}'; ",
    "sleep 900) | interlock mcp >/dev/null 2>&1 & ",
    // Written and never flushed by itself, so that a cut always has something to forget.
    "while :; do dd if=/dev/zero of=/var/lib/interlock/noise bs=64k count=4 oflag=direct conv=notrunc 2>/dev/null; ",
    "sleep 0.1; done & ",
    "while :; do interlock say --json 启动二号水泵; interlock say --json 停止二号水泵; done"
);

/// Rows as `RUN SEQ WORD` lines.
const AS_WORDS: &str =
    "sed -n 's/.*\"run\":\"\\([^\"]*\\)\",\"seq\":\\([0-9]*\\),.*\"to\":\"\\([a-z_]*\\)\".*/\\1 \\2 \\3/p'";

/// Rows that were acknowledged: number and run.
type Acknowledged = BTreeMap<u64, String>;

pub(super) fn run(trial: &Trial<'_>, cuts: u32) -> Result<(), String> {
    pulled(trial, cuts, Flushes::Kept)
}

/// The same on a disk that lies: what this test is for must be noticed, or it proves nothing.
pub(super) fn control(trial: &Trial<'_>) -> Result<(), String> {
    let (start, _) = disk::place_of("data").ok_or("no data partition")?;
    // In sectors of 512 bytes. The rest of the disk is honest, so that it is the evidence that is missing, not the box.
    match pulled(trial, CONTROL_CUTS, Flushes::LiedFrom(start << 11)) {
        Ok(()) => Err(format!("{CONTROL_CUTS} cuts on a disk that keeps no flush, and nothing was noticed")),
        Err(why) => {
            println!("  noticed, as it must be: {}", why.lines().next().unwrap_or_default());
            Ok(())
        }
    }
}

fn pulled(trial: &Trial<'_>, cuts: u32, flushes: Flushes) -> Result<(), String> {
    let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |time| time.as_secs());
    println!("  seed {seed}, {cuts} cuts");
    let mut chance = Chance::of(seed);
    let mut all = Acknowledged::new();
    let (mut slowest, mut at_work, mut lost) = (Duration::ZERO, 0, Lost::default());
    for cut in 0..=cuts {
        let plug = Plug::of(&trial.disk, &trial.folder.join("disk.sock"), flushes, chance.split())?;
        let mut vm = trial.on_with(plug.address(), "writeback", Vec::new())?;
        let told = |why: String| format!("after {cut} cuts (seed {seed}): {why}");
        vm.answers().map_err(told)?;
        trial::active(&mut vm).map_err(told)?;
        slowest = slowest.max(vm.begun.elapsed());
        at_work = checked(&mut vm, &all).map_err(told)?;
        if cut == cuts {
            break;
        }
        let fresh = loaded(&mut vm, &mut chance).map_err(told)?;
        vm.cut();
        let now = plug.pulled()?;
        println!(
            "  cut {}: {} acknowledged, {} of {} unflushed sectors forgotten",
            cut + 1,
            fresh.len(),
            now.forgotten,
            now.pending
        );
        lost = Lost { pending: lost.pending + now.pending, forgotten: lost.forgotten + now.forgotten };
        all.extend(fresh);
    }
    println!(
        "  {cuts} cuts: {} rows acknowledged, none lost; {at_work} calls at work became unknown; {} of {} unflushed \
         sectors forgotten; slowest start to interlock active {:.0} s",
        all.len(),
        lost.forgotten,
        lost.pending,
        slowest.as_secs_f64()
    );
    trial::whole(trial, "state")?;
    trial::whole(trial, "data")
}

/// Load, until a moment by chance; gives back what was acknowledged until then.
fn loaded(vm: &mut Vm, chance: &mut Chance) -> Result<Acknowledged, String> {
    vm.send(LOAD)?;
    let mut fresh = Acknowledged::new();
    // The moment counts from the first acknowledgement: a load that never began tests nothing.
    let first = vm.line(Instant::now() + Duration::from_secs(120))?;
    note(&first, &mut fresh);
    let millis = u64::try_from(LOAD_MAX.as_millis()).unwrap_or(u64::MAX);
    let until = Instant::now() + Duration::from_millis(chance.below(millis));
    while let Ok(line) = vm.line(until) {
        note(&line, &mut fresh);
    }
    Ok(fresh)
}

/// A whole line of JSON that says `done` acknowledges the row that it names.
fn note(line: &str, acknowledged: &mut Acknowledged) {
    let line = line.trim();
    if !line.starts_with('{') || !line.ends_with('}') || !line.contains("\"result\":\"done\"") {
        return;
    }
    let number = after(line, "\"evidence\":").and_then(|rest| rest.split([',', '}']).next()?.parse().ok());
    let run = after(line, "\"run\":\"").and_then(|rest| rest.split('"').next());
    if let (Some(number), Some(run)) = (number, run) {
        acknowledged.insert(number, run.to_owned());
    }
}

fn after<'a>(line: &'a str, words: &str) -> Option<&'a str> {
    line.split_once(words).map(|(_, rest)| rest)
}

/// Gives back how many calls that were at work are unknown.
fn checked(vm: &mut Vm, all: &Acknowledged) -> Result<usize, String> {
    let (code, said) = vm.ends("interlock evidence verify --state /var/lib/interlock --json")?;
    if code != 0 || !said.contains("\"verdict\":\"INTACT\"") {
        return Err(format!("evidence verify: exit code {code}: {said}"));
    }
    let said = vm.run(&format!("interlock evidence query --kind settled --limit 1000000 --json | {AS_WORDS}"))?;
    let settled: BTreeMap<u64, (&str, &str)> = said.lines().filter_map(row).collect();
    for (number, run) in all {
        match settled.get(number) {
            Some((found, "done")) if found == run => {}
            other => return Err(format!("row {number} of run {run} was acknowledged as done; the log has {other:?}")),
        }
    }
    let said = vm.run(&format!(
        "interlock evidence query --kind intent --text 'sleep 600' --limit 1000000 --json | sed 's/\"to\":null/\"to\":\"x\"/' | {AS_WORDS}"
    ))?;
    let begun: BTreeSet<&str> = said.lines().filter_map(row).map(|(_, (run, _))| run).collect();
    for run in &begun {
        let endings: Vec<&str> = settled.values().filter(|(of, _)| of == run).map(|(_, to)| *to).collect();
        if endings != ["unknown"] {
            return Err(format!("the call of run {run} was at work when the plug was pulled; it ended as {endings:?}"));
        }
    }
    Ok(begun.len())
}

fn row(line: &str) -> Option<(u64, (&str, &str))> {
    let mut words = line.split_whitespace();
    let (run, number, to) = (words.next()?, words.next()?, words.next()?);
    Some((number.parse().ok()?, (run, to)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_line_that_says_done_acknowledges() {
        let check = |line: &str, expected: &[(u64, &str)]| {
            let mut found = Acknowledged::new();
            note(line, &mut found);
            let expected: Acknowledged = expected.iter().map(|(number, run)| (*number, (*run).to_owned())).collect();
            assert_eq!(found, expected, "{line}");
        };
        let whole = "{\"evidence\":17,\"result\":\"done\",\"run\":\"01M\",\"slots\":{}}\n";
        check(whole, &[(17, "01M")]);
        check(&whole[..whole.len() - 4], &[]);
        check(&whole.replace("done", "unknown"), &[]);
        check("error: no daemon", &[]);
        assert_eq!(row("01M 17 done"), Some((17, ("01M", "done"))));
    }
}
