//! Updates, good and bad, and what else a box meets: each fault names itself, and the box still supervises.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::trial::{self, Trial};
use super::vm::Vm;
use super::{Recipe, disk, root, sealed};

const SLOTS: &str = "/usr/lib/interlock/interlock-slots";

/// A bad slot is tried as often as it may, each time until the gate's patience is over.
const FALL_BACK_PATIENCE: Duration = Duration::from_secs(1500);

/// An update file beside the shipped one.
struct Files<'a> {
    recipe: &'a Recipe<'a>,
    folder: PathBuf,
}

impl Files<'_> {
    /// The shipped content under another version.
    fn good(&self, name: &str, version: &str) -> Result<PathBuf, String> {
        let file = self.folder.join(name);
        fs::copy(self.recipe.slot_file(), &file).map_err(|e| format!("{}: {e}", file.display()))?;
        self.seal(&file, version, None)
    }

    /// A daemon that ends at once.
    fn bad(&self) -> Result<PathBuf, String> {
        let file = self.folder.join("bad.slot");
        let binary = self.recipe.place.join("root/usr/bin/interlock");
        let whole = fs::read(&binary).map_err(|e| format!("{}: {e}", binary.display()))?;
        // A program of nobody's processor: the kernel refuses it as it refuses one of another processor.
        fs::write(&binary, b"\x7fELF of nowhere").map_err(|e| format!("{}: {e}", binary.display()))?;
        let packed = root::packed(&self.recipe.place.join("root"), &file);
        fs::write(&binary, whole).map_err(|e| format!("{}: {e}", binary.display()))?;
        packed?;
        self.seal(&file, "bad", None)
    }

    fn seal(&self, file: &Path, version: &str, key: Option<PathBuf>) -> Result<PathBuf, String> {
        let mut recipe = Recipe { version: version.to_owned(), ..self.recipe.clone() };
        if let Some(key) = key {
            recipe.key = key;
        }
        sealed(&recipe, file)?;
        Ok(file.to_path_buf())
    }
}

/// A box whose second disk is an update file.
fn with_update(trial: &Trial<'_>, file: &Path) -> Result<Vm, String> {
    let drive = format!("if=none,id=update,format=raw,file={}", file.display());
    let more = ["-drive", &drive, "-device", "virtio-blk-pci,drive=update,serial=update"].map(str::to_owned).to_vec();
    let mut vm = trial.on_with(trial.disk.display().to_string(), "writeback", more)?;
    vm.answers()?;
    trial::active(&mut vm)?;
    Ok(vm)
}

const UPDATE: &str = "/usr/lib/interlock/interlock-slots update /dev/disk/by-id/virtio-update";

pub(super) fn update(trial: &Trial<'_>) -> Result<(), String> {
    let files = Files { recipe: trial.recipe, folder: trial.folder.clone() };
    refused(trial, &files)?;

    let good = files.good("good.slot", "next")?;
    let mut vm = with_update(trial, &good)?;
    let said = vm.run(UPDATE)?;
    println!("  {said}");
    again(&mut vm)?;
    vm.console_says("slot b is well", FALL_BACK_PATIENCE)?;
    vm.answers()?;
    trial::active(&mut vm)?;
    runs(&mut vm, "b", "next")?;
    println!("  a good update runs from slot b and is kept");
    drop(vm);

    let bad = files.bad()?;
    let mut vm = with_update(trial, &bad)?;
    vm.run(UPDATE)?;
    again(&mut vm)?;
    vm.console_says("slot a is on trial", FALL_BACK_PATIENCE)?;
    vm.console_says("slot a was given up", FALL_BACK_PATIENCE)?;
    vm.answers()?;
    trial::active(&mut vm)?;
    runs(&mut vm, "b", "next")?;
    println!("  a bad update in slot a was given up by itself; slot b runs");
    Ok(())
}

/// Something that is done to an update file.
type Fault<'a> = &'a dyn Fn() -> Result<(), String>;

/// What must not get in: each says why, and the slots stay as they were.
fn refused(trial: &Trial<'_>, files: &Files<'_>) -> Result<(), String> {
    let whole = files.good("refused.slot", "refused")?;
    let length = fs::metadata(&whole).map_err(|e| e.to_string())?.len();
    let flip = |at: u64| {
        let file = File::options().read(true).write(true).open(&whole).map_err(|e| e.to_string())?;
        let mut byte = [0_u8];
        file.read_exact_at(&mut byte, at)
            .and_then(|()| file.write_all_at(&[byte[0] ^ 1], at))
            .map_err(|e| e.to_string())
    };
    let unsigned = || -> Result<(), String> {
        let file = File::options().read(true).write(true).open(&whole).map_err(|e| e.to_string())?;
        let mut label = vec![0_u8; 4096];
        file.read_exact_at(&mut label, length - 4096).map_err(|e| e.to_string())?;
        let text = String::from_utf8_lossy(&label).into_owned();
        let at = text.find("signature").ok_or("a label without a signature")?;
        label[at..].fill(0);
        file.write_all_at(&label, length - 4096).map_err(|e| e.to_string())
    };
    let stranger = || files.seal(&whole, "refused", Some(trial.folder.join("stranger.key"))).map(drop);
    let elsewhere = || {
        let board = crate::board::Board::read(&trial.recipe.places.root, "phytium")?;
        sealed(&Recipe { board: &board, ..trial.recipe.clone() }, &whole).map(drop)
    };
    let faults: [(&str, Fault<'_>); 4] = [
        ("damaged", &|| flip(length / 2)),
        ("signature is not of this box", &stranger),
        ("made for phytium", &elsewhere),
        ("not signed", &unsigned),
    ];
    for (said, fault) in faults {
        fault()?;
        let mut vm = with_update(trial, &whole)?;
        let before = vm.run(&format!("{SLOTS} status"))?;
        let (code, words) = vm.ends(UPDATE)?;
        if code == 0 || !words.contains(said) || !words.contains("nothing was changed") {
            return Err(format!("an update that is {said:?}: exit code {code}: {words}"));
        }
        let after = vm.run(&format!("{SLOTS} status"))?;
        if before != after {
            return Err(format!("a refused update changed the slots:\n{before}\n{after}"));
        }
        println!("  refused: {words}");
        // The next fault begins with a whole file.
        drop(vm);
        files.good("refused.slot", "refused")?;
    }
    Ok(())
}

/// Starts the box again, by its own means.
fn again(vm: &mut Vm) -> Result<(), String> {
    vm.send("systemctl reboot")
}

/// Which slot runs, and what it holds.
fn runs(vm: &mut Vm, slot: &str, version: &str) -> Result<(), String> {
    let said = vm.run(&format!("{SLOTS} status"))?;
    let line = said.lines().find(|line| line.starts_with(slot)).unwrap_or_default();
    if line.contains("runs, first") && line.contains(version) { Ok(()) } else { Err(format!("slot {slot}: {said}")) }
}

/// What the daemon tells about itself, after it was started again.
fn restarted(vm: &mut Vm, said: &str) -> Result<(), String> {
    vm.run("systemctl restart interlock")?;
    trial::active(vm)?;
    let (_, status) = vm.ends(
        "systemctl show --property=StatusText --value interlock; interlock doctor --state /var/lib/interlock 2>&1",
    )?;
    if !status.contains(said) {
        return Err(format!("{said:?} is not said:\n{status}"));
    }
    // It still supervises, and answers.
    vm.run("interlock status && interlock task list")?;
    Ok(())
}

pub(super) fn faults(trial: &Trial<'_>) -> Result<(), String> {
    in_the_box(trial)?;
    clock(trial)?;
    no_data(trial)?;
    damaged_slot(trial)
}

/// What can be brought about while the box runs.
fn in_the_box(trial: &Trial<'_>) -> Result<(), String> {
    let mut vm = trial.on()?;
    vm.answers()?;
    trial::active(&mut vm)?;

    vm.ends("dd if=/dev/zero of=/var/lib/interlock/full bs=1M 2>/dev/null")?;
    restarted(&mut vm, "DEGRADED")?;
    vm.run("echo x >/etc/still-writable && echo x >/var/still-writable && journalctl --flush")?;
    println!("  full data partition: DEGRADED, it supervises; /etc and /var still take what is written");
    vm.run("rm /var/lib/interlock/full")?;

    vm.run("systemctl stop interlock && mount -o remount,ro /var/lib/interlock")?;
    restarted(&mut vm, "DEGRADED")?;
    println!("  read-only data partition: DEGRADED, it supervises");
    vm.run("systemctl stop interlock && mount -o remount,rw /var/lib/interlock && systemctl start interlock")?;

    vm.run("mount -t tmpfs tmpfs /usr/lib/interlock")?;
    restarted(&mut vm, "onnxruntime  not found")?;
    println!("  without ONNX Runtime: doctor says so, it supervises");
    Ok(())
}

fn clock(trial: &Trial<'_>) -> Result<(), String> {
    let more = ["-rtc", "base=1970-01-01T00:00:00"].map(str::to_owned).to_vec();
    let mut vm = trial.on_with(trial.disk.display().to_string(), "writeback", more)?;
    vm.answers()?;
    trial::active(&mut vm)?;
    vm.run("interlock say --json 启动二号水泵 | grep -q done")?;
    let row = vm.run("interlock evidence query --kind settled --json | tail -n 1")?;
    if row.contains("\"time_quality\":\"synced\"") {
        return Err(format!("a box whose clock is lost says that it knows the time: {row}"));
    }
    vm.run("interlock evidence verify --state /var/lib/interlock")?;
    println!(
        "  clock at 1970: it obeys, the evidence verifies and does not claim to know the time ({})",
        vm.run("date +%F")?
    );
    Ok(())
}

fn no_data(trial: &Trial<'_>) -> Result<(), String> {
    // All copies of the file system's head: the first of each group and all between.
    let (start, mib) = disk::place_of("data").ok_or("no data partition")?;
    let raw = File::options().write(true).open(&trial.disk).map_err(|e| e.to_string())?;
    let noise = vec![0xA5_u8; 1 << 20];
    for at in start..start + mib {
        raw.write_all_at(&noise[..64 << 10], at << 20).map_err(|e| e.to_string())?;
    }
    let mut vm = trial.on()?;
    vm.answers()?;
    trial::active(&mut vm)?;
    let (_, status) = vm.ends("systemctl show --property=StatusText --value interlock; grep ' /var/lib/interlock ' /proc/mounts; dmesg | grep interlock:")?;
    if !status.contains("DEGRADED") || !status.contains("the data partition cannot be mounted") {
        return Err(format!("a lost data partition is not said:\n{status}"));
    }
    println!("  data partition destroyed: DEGRADED, it supervises, nothing is written elsewhere");
    drop(vm);
    trial.remade()
}

fn damaged_slot(trial: &Trial<'_>) -> Result<(), String> {
    let (start, _) = disk::place_of("a").ok_or("no slot a")?;
    let raw = File::options().read(true).write(true).open(&trial.disk).map_err(|e| e.to_string())?;
    // One bit in the middle; the loader still finds kernel and starter, or does not: either way it is the other slot.
    let at = (start << 20) + fs::metadata(trial.recipe.slot_file()).map_err(|e| e.to_string())?.len() / 2;
    let mut byte = [0_u8];
    raw.read_exact_at(&mut byte, at).and_then(|()| raw.write_all_at(&[byte[0] ^ 4], at)).map_err(|e| e.to_string())?;
    let mut vm = trial.on()?;
    vm.console_says("slot a was given up", FALL_BACK_PATIENCE)?;
    vm.answers()?;
    trial::active(&mut vm)?;
    runs(&mut vm, "b", &trial.recipe.version)?;
    if !vm.console().contains("damaged") {
        return Err(format!("the damage is not named at the console:\n{}", vm.console()));
    }
    println!("  one bit flipped in slot a: the starter names it, slot b runs");
    Ok(())
}
