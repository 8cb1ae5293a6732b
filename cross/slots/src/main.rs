//! `interlock-slots`: what the person at the box, and the box itself, do with its two slots.
//!
//! It runs as root on the image, and `seal` on the machine that makes it. The gate restarts the box only when a slot is
//! on trial: a slot that was well before is never left because of a site's configuration.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use ed25519_dalek::{SigningKey, VerifyingKey};
use interlock_slots::counters::{Counters, Slot};
use interlock_slots::label::{BLOCK, Label, hash, hex, unhex};
use interlock_slots::update::{Here, update};

const COUNTERS: &str = "/efi/grub/grubenv";
const KEYS: &str = "/usr/lib/interlock/update-keys";

/// How long a slot on trial may take until it is well.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long the daemon must stay up, the same process all the time.
const STEADY: Duration = Duration::from_secs(15);

/// As the `interlock` command line has them.
const USAGE: u8 = 64;

const HELP: &str = "\
interlock-slots status         which slot runs, which comes first, what each holds
interlock-slots update FILE    a signed slot file into the other slot; it is tried at the next start
interlock-slots use a|b        the next start is with that slot, on trial
interlock-slots gate           says that the running slot is well, or starts the box again if it is on trial (a unit)
interlock-slots seal IMAGE --board B --machine M --version V --key FILE
                               label and signature behind a squashfs image; the key is made if it is not there";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let ended = match words.as_slice() {
        ["status"] => status(),
        ["update", file] => take(Path::new(file)),
        ["use", name] => choose(name),
        ["gate"] => gate(),
        ["seal", image, "--board", board, "--machine", machine, "--version", version, "--key", key] => {
            seal(Path::new(image), board, machine, version, Path::new(key))
        }
        ["help" | "--help" | "-h"] => {
            println!("{HELP}");
            Ok(())
        }
        _ => {
            eprintln!("{HELP}");
            return ExitCode::from(USAGE);
        }
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

fn running() -> Result<Slot, String> {
    let line = fs::read_to_string("/proc/cmdline").map_err(|e| format!("/proc/cmdline: {e}"))?;
    let name = line.split_whitespace().find_map(|word| word.strip_prefix("interlock.slot="));
    name.and_then(Slot::named).ok_or_else(|| "this system was not started from a slot of the image".to_owned())
}

fn counters() -> Result<Counters, String> {
    Counters::read(Path::new(COUNTERS)).map_err(|e| format!("{COUNTERS}: {e}"))
}

fn write(counters: &Counters) -> Result<(), String> {
    counters.write(Path::new(COUNTERS)).map_err(|e| format!("{COUNTERS}: {e}"))
}

fn partition(slot: Slot) -> PathBuf {
    PathBuf::from(format!("/dev/disk/by-partlabel/interlock-{}", slot.letter()))
}

fn label(slot: Slot) -> Result<Label, String> {
    let place = partition(slot);
    let mut file = File::open(&place).map_err(|e| format!("{}: {e}", place.display()))?;
    Label::read(&mut file).map(|(label, _)| label).map_err(|why| format!("slot {}: {why}", slot.letter()))
}

fn status() -> Result<(), String> {
    let running = running()?;
    let counters = counters()?;
    for slot in [Slot::A, Slot::B] {
        let mut notes = Vec::new();
        notes.extend((slot == running).then_some("runs"));
        notes.extend((slot == counters.first).then_some("first"));
        notes.extend((Some(slot) == counters.trial).then_some("on trial"));
        notes.extend((Some(slot) == counters.failed).then_some("given up: it did not become well"));
        let left = counters.left(slot);
        let holds = match label(slot) {
            Ok(label) => format!("{} {}", label.board, label.version),
            Err(why) => why,
        };
        println!("{}  {left} starts left  {holds}  {}", slot.letter(), notes.join(", "));
    }
    Ok(())
}

fn keys() -> Result<Vec<VerifyingKey>, String> {
    let text = fs::read_to_string(KEYS).map_err(|e| format!("{KEYS}: {e}"))?;
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let key = |line: &str| VerifyingKey::from_bytes(&unhex(line)?.try_into().ok()?).ok();
    lines.map(|line| key(line).ok_or_else(|| format!("{KEYS}: {line:?} is no key"))).collect()
}

fn take(file: &Path) -> Result<(), String> {
    let running = running()?;
    let ours = label(running)?;
    let keys = keys()?;
    let (counters, other) = (Path::new(COUNTERS), partition(running.other()));
    let here = Here { running, board: &ours.board, machine: &ours.machine, keys: &keys, counters, other: &other };
    let label = update(&here, file).map_err(|why| why.to_string())?;
    let letter = running.other().letter();
    println!("slot {letter} holds {} {}; it is tried at the next start (systemctl reboot)", label.board, label.version);
    Ok(())
}

fn choose(name: &str) -> Result<(), String> {
    let slot = Slot::named(name).ok_or("a or b?")?;
    let place = partition(slot);
    let mut file = File::open(&place).map_err(|e| format!("{}: {e}", place.display()))?;
    let (label, _) = Label::read(&mut file).map_err(|why| format!("slot {name}: {why}"))?;
    label.hold_against(&mut file).map_err(|why| format!("slot {name}: {why}"))?;
    let mut counters = counters()?;
    counters.try_out(slot);
    write(&counters)?;
    println!("slot {name} ({} {}) is tried at the next start", label.board, label.version);
    Ok(())
}

fn gate() -> Result<(), String> {
    let running = running()?;
    let mut now = counters().unwrap_or_default();
    let letter = running.letter();
    if now.trial == Some(running) {
        println!("slot {letter} is on trial");
        if let Err(why) = steady() {
            println!("slot {letter} is not well: {why}; starting again, {} starts left", now.left(running));
            return match Command::new("systemctl").arg("reboot").status() {
                Ok(status) if status.success() => Ok(()),
                Ok(status) => Err(format!("systemctl reboot: {status}")),
                Err(e) => Err(format!("systemctl reboot: {e}")),
            };
        }
    }
    if let Some(other) = now.well(running) {
        println!("slot {} was given up: it did not become well; slot {letter} is the first now", other.letter());
    }
    write(&now)?;
    println!("slot {letter} is well");
    Ok(())
}

/// The daemon is up, and the same process for a while.
fn steady() -> Result<(), String> {
    let begun = Instant::now();
    let mut since: Option<(String, Instant)> = None;
    loop {
        let (state, process) = daemon();
        let same = since.take().filter(|(before, _)| *before == process);
        match (state.as_str(), same) {
            ("active", Some((_, start))) if start.elapsed() >= STEADY => return Ok(()),
            ("active", Some(same)) => since = Some(same),
            ("active", None) => since = Some((process, Instant::now())),
            _ if begun.elapsed() >= PATIENCE => return Err(format!("interlock.service is {state}")),
            _ => {}
        }
        if begun.elapsed() >= PATIENCE + STEADY {
            return Err("interlock.service does not stay up".to_owned());
        }
        pause();
    }
}

#[expect(clippy::disallowed_methods, reason = "another process is watched from outside; systemd offers no event here")]
fn pause() {
    std::thread::sleep(Duration::from_secs(1));
}

/// Its state and its process.
fn daemon() -> (String, String) {
    let output =
        Command::new("systemctl").args(["show", "--property=ActiveState,MainPID", "interlock.service"]).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        line.unwrap_or("unknown").to_owned()
    };
    (value("ActiveState"), value("MainPID"))
}

fn seal(image: &Path, board: &str, machine: &str, version: &str, key: &Path) -> Result<(), String> {
    let told = |e: std::io::Error| format!("{}: {e}", image.display());
    let key = signing_key(key)?;
    let mut file = File::options().read(true).write(true).open(image).map_err(told)?;
    let mut head = [0_u8; 48];
    file.read_exact(&mut head).map_err(told)?;
    if !head.starts_with(b"hsqs") {
        return Err(format!("{}: no squashfs image", image.display()));
    }
    let mut length = [0_u8; 8];
    length.copy_from_slice(&head[40..48]);
    let bytes = u64::from_le_bytes(length);
    file.seek(SeekFrom::Start(0)).map_err(told)?;
    let sha256 = hash(&mut (&file).take(bytes)).map_err(told)?;
    let words = [board, machine, version].map(str::to_owned);
    let [board, machine, version] = words;
    let label = Label { board, machine, version, bytes, sha256 };
    let end = bytes.next_multiple_of(BLOCK);
    file.set_len(end).map_err(told)?;
    file.seek(SeekFrom::Start(end)).map_err(told)?;
    file.write_all(&label.block(&key)).map_err(told)?;
    println!("{}", hex(key.verifying_key().as_bytes()));
    Ok(())
}

/// The maker's key; a new one where there is none.
fn signing_key(file: &Path) -> Result<SigningKey, String> {
    use std::os::unix::fs::OpenOptionsExt;
    let told = |e: std::io::Error| format!("{}: {e}", file.display());
    if let Ok(text) = fs::read_to_string(file) {
        let bytes = unhex(&text).and_then(|bytes| bytes.try_into().ok());
        return bytes.map(|bytes| SigningKey::from_bytes(&bytes)).ok_or(format!("{}: no key", file.display()));
    }
    let mut bytes = [0_u8; 32];
    File::open("/dev/urandom").and_then(|mut from| from.read_exact(&mut bytes)).map_err(told)?;
    let mut open = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file).map_err(told)?;
    writeln!(open, "{}", hex(&bytes)).map_err(told)?;
    Ok(SigningKey::from_bytes(&bytes))
}
