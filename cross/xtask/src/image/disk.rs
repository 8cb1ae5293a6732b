//! The disk: a loader, two slots, what a site changes, and Interlock's state, each in a partition of its own.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Recipe, root};
use crate::machine::must;

const MIB: u64 = 1 << 20;

/// A partition: its name after `interlock-`, its length in MiB, its kind as the partition table says it.
struct Part {
    name: &'static str,
    mib: u64,
    kind: &'static str,
}

const LINUX: &str = "0FC63DAF-8483-4772-8E79-3D69D8477DE4";

/// In the order on the disk; `cross/image/grub.cfg` counts on it. The data are last, so that a larger disk can make them
/// larger. Evidence wants 512 MiB, the rest of the data is knowledge, models and work.
const PARTS: [Part; 5] = [
    Part { name: "esp", mib: 64, kind: "C12A7328-F81F-11D2-BA4B-00A0C93EC93B" },
    Part { name: "a", mib: 384, kind: LINUX },
    Part { name: "b", mib: 384, kind: LINUX },
    Part { name: "state", mib: 192, kind: LINUX },
    Part { name: "data", mib: 1536, kind: LINUX },
];

/// The first partition begins here; the last sectors of the disk hold the table's copy.
const EDGE_MIB: u64 = 1;

/// Of GRUB, what the script and the slots need.
const LOADER: [&str; 17] = [
    "part_gpt",
    "fat",
    "squash4",
    "gzio",
    "loadenv",
    "regexp",
    "test",
    "echo",
    "sleep",
    "reboot",
    "normal",
    "configfile",
    "linux",
    "boot",
    "search",
    "efi_gop",
    "minicmd",
];

/// Where a partition lies, in MiB from the start of the disk.
pub(super) fn place_of(name: &str) -> Option<(u64, u64)> {
    let mut start = EDGE_MIB;
    for part in PARTS {
        if part.name == name {
            return Some((start, part.mib));
        }
        start += part.mib;
    }
    None
}

/// The disk with the same content in both slots.
pub(super) fn made(recipe: &Recipe<'_>, slot: &Path, site: Option<&Path>, disk: &Path) -> Result<(), String> {
    let _ = fs::remove_file(disk);
    let length = (PARTS.iter().map(|part| part.mib).sum::<u64>() + 2 * EDGE_MIB) * MIB;
    let told = |e: io::Error| format!("{}: {e}", disk.display());
    File::create(disk).and_then(|file| file.set_len(length)).map_err(told)?;
    table(disk)?;
    let esp = esp(recipe)?;
    let state = file_system(recipe, "state", site)?;
    let data = file_system(recipe, "data", None)?;
    for (name, content) in [("esp", esp.as_path()), ("a", slot), ("b", slot), ("state", &state), ("data", &data)] {
        put(content, disk, name)?;
    }
    Ok(())
}

/// Writes a file into a partition of a raw disk; runs of zeros stay holes.
pub(super) fn put(content: &Path, disk: &Path, name: &str) -> Result<(), String> {
    let (start, mib) = place_of(name).ok_or_else(|| format!("{name}: no such partition"))?;
    let told = |e: io::Error| format!("{} into {name} of {}: {e}", content.display(), disk.display());
    let mut from = File::open(content).map_err(told)?;
    let length = from.metadata().map_err(told)?.len();
    if length > mib * MIB {
        return Err(format!("{}: {} MiB, the partition {name} has {mib}", content.display(), length.div_ceil(MIB)));
    }
    let mut to = File::options().write(true).open(disk).map_err(told)?;
    let mut chunk = vec![0_u8; MIB as usize];
    let mut at = start * MIB;
    loop {
        let read = from.read(&mut chunk).map_err(told)?;
        if read == 0 {
            return Ok(());
        }
        if chunk[..read].iter().any(|byte| *byte != 0) {
            to.seek(SeekFrom::Start(at)).and_then(|_| to.write_all(&chunk[..read])).map_err(told)?;
        }
        at += read as u64;
    }
}

fn table(disk: &Path) -> Result<(), String> {
    let mut script = "label: gpt\n".to_owned();
    for part in PARTS {
        let (start, mib) = place_of(part.name).unwrap_or_default();
        script += &format!("start={start}MiB, size={mib}MiB, type={}, name=interlock-{}\n", part.kind, part.name);
    }
    let file = disk.with_extension("table");
    fs::write(&file, script).map_err(|e| format!("{}: {e}", file.display()))?;
    let mut sfdisk = Command::new("sh");
    sfdisk.args(["-ec", "exec sfdisk --quiet \"$1\" < \"$0\""]).arg(&file).arg(disk);
    must(&mut sfdisk, "see sfdisk's words above")
}

/// The loader's partition: GRUB where firmware looks for it, its script, and the counters.
fn esp(recipe: &Recipe<'_>) -> Result<PathBuf, String> {
    let (format, name, consoles) = match recipe.board.machine() {
        "aarch64" => ("arm64-efi", "BOOTAA64.EFI", "console=tty0 console=ttyAMA0"),
        "x86_64" => ("x86_64-efi", "BOOTX64.EFI", "console=tty0 console=ttyS0"),
        other => return Err(format!("{other}: no loader is known for this processor")),
    };
    let of_debian = if format == "arm64-efi" { "grub-efi-arm64-bin" } else { "grub-efi-amd64-bin" };
    let modules = root::unpacked(recipe, of_debian)?.join("files/usr/lib/grub").join(format);
    let loader = recipe.place.join(name);
    let mut mkimage = Command::new("grub-mkimage");
    mkimage.args(["--format", format, "--prefix", "/grub", "--directory"]).arg(&modules).arg("--output").arg(&loader);
    must(mkimage.args(LOADER), "see GRUB's words above")?;
    let script = recipe.source("grub.cfg");
    let text = fs::read_to_string(&script).map_err(|e| format!("{}: {e}", script.display()))?;
    let (config, counters) = (recipe.place.join("grub.cfg"), recipe.place.join("grubenv"));
    fs::write(&config, text.replace("@CONSOLES@", consoles)).map_err(|e| format!("{}: {e}", config.display()))?;
    let mut block = b"# GRUB Environment Block\nfirst=a\na_left=3\nb_left=3\n".to_vec();
    block.resize(1024, b'#');
    fs::write(&counters, block).map_err(|e| format!("{}: {e}", counters.display()))?;

    let image = recipe.place.join("esp.fat");
    let _ = fs::remove_file(&image);
    let (_, mib) = place_of("esp").unwrap_or_default();
    File::create(&image).and_then(|file| file.set_len(mib * MIB)).map_err(|e| format!("{}: {e}", image.display()))?;
    let by_hand = "see the words above";
    must(Command::new("mkfs.vfat").args(["-n", "INTERLOCK"]).arg(&image), by_hand)?;
    must(Command::new("mmd").arg("-i").arg(&image).args(["::/EFI", "::/EFI/BOOT", "::/grub"]), by_hand)?;
    let boot = format!("::/EFI/BOOT/{name}");
    for (from, to) in [(&loader, boot.as_str()), (&config, "::/grub/grub.cfg"), (&counters, "::/grub/grubenv")] {
        must(Command::new("mcopy").arg("-i").arg(&image).arg(from).arg(to), by_hand)?;
    }
    Ok(image)
}

/// An ext4 file system; what a site brings lies where the starter lays it over `/etc`.
fn file_system(recipe: &Recipe<'_>, name: &str, site: Option<&Path>) -> Result<PathBuf, String> {
    let content = recipe.place.join(format!("{name}.files"));
    let _ = fs::remove_dir_all(&content);
    let upper = content.join(if name == "state" { "etc/upper" } else { "" });
    fs::create_dir_all(&upper).map_err(|e| format!("{}: {e}", upper.display()))?;
    if let Some(site) = site {
        let mut copy = Command::new("cp");
        must(copy.args(["-r", "--no-preserve=ownership"]).arg(site.join(".")).arg(&upper), "is it a folder?")?;
    }
    let (_, mib) = place_of(name).unwrap_or_default();
    let image = recipe.place.join(format!("{name}.ext4"));
    let _ = fs::remove_file(&image);
    let mut mke2fs = Command::new("mke2fs");
    mke2fs.args(["-q", "-t", "ext4", "-m", "1", "-L", name, "-E", "root_owner=0:0", "-d"]).arg(&content).arg(&image);
    must(mke2fs.arg(format!("{mib}M")), "see mke2fs's words above")?;
    Ok(image)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_follow_each_other() {
        assert_eq!(place_of("esp"), Some((1, 64)));
        assert_eq!(place_of("a"), Some((65, 384)));
        assert_eq!(place_of("data"), Some((1025, 1536)));
        assert_eq!(place_of("c"), None);
    }
}
