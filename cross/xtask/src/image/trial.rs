//! `cargo xtask image trial`: a box under emulation is started, spoken to, unplugged and damaged.
//!
//! The host keeps what the box has acknowledged, so that a box cannot forget it together with the proof. Each part prints
//! what it measured; nothing is judged by a figure that was not measured in that very run.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use super::vm::{self, Setting, Vm};
use super::{Recipe, disk};
use crate::machine::must;

/// The daemon may take that long from its start to READY, on the slow processor of an emulator.
const READY_MAX: Duration = Duration::from_secs(2);

/// Resident memory of the idle daemon, in KiB.
const RSS_MAX: u64 = 30 << 10;

/// The trial's configuration: a shell command that is at work while the plug is pulled.
pub(super) const CONFIG: &str = "version = 1\n[policy]\nallow = [\"Bash(sleep:*)\"]\n";

/// The names of all parts.
pub(super) const PARTS: [&str; 5] = ["start", "cuts", "control", "update", "faults"];

/// A disk of the trial, and what it was made with.
pub(super) struct Trial<'a> {
    pub(super) recipe: &'a Recipe<'a>,
    pub(super) folder: PathBuf,
    pub(super) disk: PathBuf,
}

impl Trial<'_> {
    /// The box as it comes from the factory, with the trial's site.
    pub(super) fn fresh<'a>(recipe: &'a Recipe<'a>, part: &str) -> Result<Trial<'a>, String> {
        let folder = recipe.place.join("trial").join(part);
        fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let trial = Trial { recipe, disk: folder.join("disk.img"), folder };
        trial.remade()?;
        Ok(trial)
    }

    /// The disk made anew.
    pub(super) fn remade(&self) -> Result<(), String> {
        let site = self.folder.join("site");
        vm::site(&site, CONFIG)?;
        disk::made(self.recipe, &self.recipe.slot_file(), Some(&site), &self.disk)
    }

    /// Switched on from the disk.
    pub(super) fn on(&self) -> Result<Vm, String> {
        self.on_with(self.disk.display().to_string(), "writeback", Vec::new())
    }

    pub(super) fn on_with(&self, disk: String, cache: &str, more: Vec<String>) -> Result<Vm, String> {
        Vm::start(&Setting { board: self.recipe.board, disk, cache, more, folder: &self.folder })
    }
}

/// The daemon answers; its state as systemd says it.
pub(super) fn active(vm: &mut Vm) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        let (_, state) = vm.ends("systemctl is-active interlock")?;
        if state == "active" {
            return Ok(());
        }
        if begun.elapsed() > vm::START_PATIENCE {
            let (_, said) =
                vm.ends("systemctl status interlock --no-pager -l; journalctl -b -u interlock -n 30 --no-pager")?;
            return Err(format!("interlock is {state}\n{said}"));
        }
        vm::pause(Duration::from_millis(500));
    }
}

/// The first start of a box: who it is, how long it took, what it needs, and that it obeys.
pub(super) fn start(trial: &Trial<'_>) -> Result<(), String> {
    let mut vm = trial.on()?;
    let answered = vm.answers()?;
    active(&mut vm)?;
    println!(
        "  power to the first shell: {:.0} s; to interlock active: {:.0} s",
        answered.as_secs_f64(),
        vm.begun.elapsed().as_secs_f64()
    );
    let said = vm.run("interlock say --json 启动二号水泵")?;
    if !said.contains("\"result\":\"done\"") {
        return Err(format!("启动二号水泵: {said}"));
    }
    provisioned(&mut vm)?;
    vm.console_says("is well", Duration::from_secs(120))?;
    // The numbers of a first start are those of a box that also makes its keys; those of the second one count.
    vm.run("sync")?;
    vm.cut();
    let mut vm = trial.on()?;
    vm.answers()?;
    active(&mut vm)?;
    measured(&mut vm)
}

fn provisioned(vm: &mut Vm) -> Result<(), String> {
    let checks = [
        ("a machine id", "grep -Eqx '[0-9a-f]{32}' /etc/machine-id"),
        ("a name of its own", "grep -q '^interlock-' /etc/hostname"),
        (
            "a token",
            "test $(wc -c </etc/interlock/mcp.token) = 64 && test $(stat -c %G:%a /etc/interlock/mcp.token) = interlock:640",
        ),
        ("a key", "test -s /var/lib/interlock/keys/evidence.key"),
        ("a read-only root", "! touch /usr/x 2>/dev/null && grep -q ' / squashfs ro' /proc/mounts"),
        ("data of its own", "grep -q ' /var/lib/interlock ext4 rw' /proc/mounts"),
        ("both slots", "test $(/usr/lib/interlock/interlock-slots status | grep -c 'starts left  ') = 2"),
        ("no failed unit", "test -z \"$(systemctl list-units --failed --plain --no-legend)\""),
    ];
    for (what, command) in checks {
        if let (code, said) = vm.ends(command)?
            && code != 0
        {
            let (_, state) = vm.ends("systemctl list-units --failed --plain --no-legend; /usr/lib/interlock/interlock-slots status; cat /proc/mounts")?;
            return Err(format!("the box has not {what}: {said}\n{state}"));
        }
    }
    Ok(())
}

fn measured(vm: &mut Vm) -> Result<(), String> {
    println!("  the boot: {}", vm.run("systemd-analyze time | head -n 1")?);
    let booting = ready(vm)?;
    // Idle: what the start has brought in is done.
    vm.run("sleep 20")?;
    let rss = vm.run(
        "sed -n 's/^VmRSS:[^0-9]*\\([0-9]*\\) kB/\\1/p' /proc/$(systemctl show -p MainPID --value interlock)/status",
    )?;
    let rss: u64 = rss.trim().parse().map_err(|_| format!("VmRSS says {rss:?}"))?;
    vm.run("systemctl restart interlock")?;
    let alone = ready(vm)?;
    println!(
        "  interlock: READY {:.2} s after its start while the box boots, {:.2} s when nothing else starts; {:.1} MiB resident",
        booting.as_secs_f64(),
        alone.as_secs_f64(),
        rss as f64 / 1024.0
    );
    if alone > READY_MAX {
        println!("  slower than the {READY_MAX:?} that a box is promised; this processor is emulated");
    }
    if rss > RSS_MAX {
        return Err(format!("{rss} KiB resident; {RSS_MAX} are promised"));
    }
    Ok(())
}

/// From the start of the daemon's process to READY.
fn ready(vm: &mut Vm) -> Result<Duration, String> {
    let times = vm.run(
        "systemctl show --property=ExecMainStartTimestampMonotonic,ActiveEnterTimestampMonotonic --value interlock",
    )?;
    let micros: Vec<u64> = times.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [one, other] = micros[..] else { return Err(format!("systemd says {times:?}")) };
    Ok(Duration::from_micros(one.abs_diff(other)))
}

/// A named part of the trial.
pub(super) fn part(trial: &Trial<'_>, name: &str, cuts: u32) -> Result<(), String> {
    match name {
        "start" => start(trial),
        "cuts" => super::cuts::run(trial, cuts),
        "control" => super::cuts::control(trial),
        "update" => super::faults::update(trial),
        _ => super::faults::faults(trial),
    }
}

/// Whether the state partition's file system is whole, seen from outside.
pub(super) fn whole(trial: &Trial<'_>, name: &str) -> Result<(), String> {
    let (start, mib) = disk::place_of(name).ok_or("no such partition")?;
    let copy = trial.folder.join("fsck.ext4");
    let mut dd = Command::new("dd");
    dd.arg(format!("if={}", trial.disk.display())).arg(format!("of={}", copy.display()));
    must(
        dd.args(["bs=1M", "status=none", "conv=sparse"]).arg(format!("skip={start}")).arg(format!("count={mib}")),
        "a bug",
    )?;
    // The journal is replayed first, as the box does it; what is then still wrong is damage.
    let _replayed = Command::new("e2fsck").args(["-p", "-E", "journal_only"]).arg(&copy).output();
    let output = Command::new("e2fsck").args(["-f", "-n"]).arg(&copy).output().map_err(|e| format!("e2fsck: {e}"))?;
    if output.status.success() { Ok(()) } else { Err(format!("{name}: {}", String::from_utf8_lossy(&output.stdout))) }
}
