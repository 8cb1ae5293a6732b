//! The root file system of a slot: Debian's smallest system, a kernel with the drivers that a box may need, Interlock,
//! and the starter. It is one squashfs, so that a slot is one thing that is whole or is not.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Recipe, content};
use crate::machine::{self, must};
use crate::package::emptied;

const RELEASE: &str = "bookworm";

/// Drivers for what a cabinet does not have: two thirds of the kernel's size.
const LEFT_OUT: [&str; 15] = [
    "sound",
    "drivers/gpu",
    "drivers/media",
    "drivers/infiniband",
    "drivers/net/wireless",
    "drivers/bluetooth",
    "drivers/staging",
    "drivers/iio",
    "drivers/isdn",
    "drivers/comedi",
    "drivers/target",
    "drivers/video",
    "net/bluetooth",
    "net/mac80211",
    "net/wireless",
];

/// What the starter may need to reach the slot: file systems, and drivers of disks. Each brings what it depends on.
const STARTER: [&str; 24] = [
    "squashfs",
    "ext4",
    "overlay",
    "crc32c_generic",
    "virtio_pci",
    "virtio_mmio",
    "virtio_blk",
    "virtio_scsi",
    "sd_mod",
    "ahci",
    "ahci_platform",
    "nvme",
    "mmc_block",
    "sdhci_pci",
    "sdhci_acpi",
    "dw_mmc_platform",
    "xhci_pci",
    "xhci_plat_hcd",
    "ehci_pci",
    "usb_storage",
    "uas",
    "nbd",
    "loop",
    "phytium_sdci",
];

/// The units that are on, besides those that Debian switches on.
const UNITS: [&str; 5] = [
    "interlock.service",
    "interlock-provision.service",
    "interlock-slots.service",
    "interlock-data.service",
    "systemd-networkd.service",
];

/// The image, without its label.
pub(super) fn made(recipe: &Recipe<'_>, image: &Path) -> Result<(), String> {
    let base = base(recipe)?;
    let root = recipe.place.join("root");
    emptied(&root)?;
    let by_hand = "see the words above";
    must(Command::new("tar").arg("-xf").arg(&base).arg("-C").arg(&root).args(["--exclude=./dev/*"]), by_hand)?;
    let version = kernel(recipe, &root)?;
    must(Command::new("cp").args(["-r", "--no-preserve=ownership"]).arg(recipe.source("root/.")).arg(&root), by_hand)?;
    content::put(recipe, &root)?;
    must(Command::new("systemd-sysusers").arg(format!("--root={}", root.display())), by_hand)?;
    content::own(&root)?;
    settle(recipe, &root)?;
    starter(recipe, &root, &version)?;
    packed(&root, image)?;
    let length = fs::metadata(image).map_err(|e| format!("{}: {e}", image.display()))?.len();
    println!("{}: {:.1} MiB, kernel {version}", image.display(), length as f64 / f64::from(1 << 20));
    Ok(())
}

/// A root as one file.
pub(super) fn packed(root: &Path, image: &Path) -> Result<(), String> {
    let _ = fs::remove_file(image);
    let mut squash = Command::new("mksquashfs");
    // gzip: the loader reads kernel and starter out of it, and knows no newer compression.
    squash.arg(root).arg(image).args([
        "-comp",
        "gzip",
        "-b",
        "128K",
        "-noappend",
        "-no-progress",
        "-quiet",
        "-no-xattrs",
    ]);
    must(&mut squash, "see the words above")
}

/// Debian's system, as an archive; made anew when the list of packages changes.
fn base(recipe: &Recipe<'_>) -> Result<PathBuf, String> {
    let list = recipe.source("packages.txt");
    let text = fs::read_to_string(&list).map_err(|e| format!("{}: {e}", list.display()))?;
    let packages: Vec<&str> = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
    let (tar, stamp) = (recipe.place.join("base.tar"), recipe.place.join("base-from.txt"));
    if fs::read_to_string(&stamp).is_ok_and(|made_from| made_from == text) && tar.exists() {
        return Ok(tar);
    }
    let _ = fs::remove_file(&stamp);
    let mut mmdebstrap = Command::new("mmdebstrap");
    mmdebstrap
        .args(["--quiet", "--variant=minbase"])
        .arg(format!("--architectures={}", recipe.board.debian()))
        .arg(format!("--include={}", packages.join(",")))
        .args(["--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-include=/usr/share/doc/*/copyright"])
        .args(["--dpkgopt=path-exclude=/usr/share/locale/*", "--dpkgopt=path-exclude=/usr/share/man/*"])
        .args(["--aptopt=Acquire::Languages \"none\"", RELEASE])
        .arg(&tar);
    must(&mut mmdebstrap, "Debian's packages are needed once; later images use what is there")?;
    fs::write(&stamp, text).map_err(|e| format!("{}: {e}", stamp.display()))?;
    Ok(tar)
}

/// A package of the board's Debian, unpacked beside the root; it is fetched when there is none yet.
pub(super) fn unpacked(recipe: &Recipe<'_>, package: &str) -> Result<PathBuf, String> {
    let folder = recipe.place.join("packages").join(package);
    let mark = folder.join("unpacked");
    if mark.exists() {
        return Ok(folder);
    }
    emptied(&folder)?;
    let qualified = format!("{package}:{}", recipe.board.debian());
    let mut apt = Command::new("apt-get");
    apt.current_dir(&folder).args(["-o", "APT::Sandbox::User=root", "download", "--quiet", &qualified]);
    must(&mut apt, "as root: apt-get update")?;
    let files = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let deb = files.flatten().map(|entry| entry.path()).find(|path| path.extension().is_some_and(|e| e == "deb"));
    let deb = deb.ok_or_else(|| format!("{qualified}: nothing was fetched"))?;
    must(Command::new("dpkg").arg("-x").arg(&deb).arg(folder.join("files")), "see dpkg's words above")?;
    let _ = fs::remove_file(deb);
    fs::write(&mark, "").map_err(|e| format!("{}: {e}", mark.display()))?;
    Ok(folder)
}

/// Kernel and drivers; gives back the version.
fn kernel(recipe: &Recipe<'_>, root: &Path) -> Result<String, String> {
    let meta = format!("linux-image-{}", recipe.board.debian());
    let depends = machine::said("apt-cache", &["depends", &format!("{meta}:{}", recipe.board.debian())])?;
    let package = depends
        .lines()
        .find_map(|line| line.trim().strip_prefix("Depends: "))
        .and_then(|name| name.split(':').next())
        .ok_or_else(|| format!("{meta}: depends on no kernel"))?;
    let files = unpacked(recipe, package)?.join("files");
    let version = package.trim_start_matches("linux-image-").to_owned();
    let by_hand = "see the words above";
    let boot = root.join("boot");
    fs::create_dir_all(&boot).map_err(|e| format!("{}: {e}", boot.display()))?;
    let vmlinuz = files.join("boot").join(format!("vmlinuz-{version}"));
    fs::copy(&vmlinuz, boot.join("vmlinuz")).map_err(|e| format!("{}: {e}", vmlinuz.display()))?;
    let modules = root.join("usr/lib/modules");
    fs::create_dir_all(&modules).map_err(|e| format!("{}: {e}", modules.display()))?;
    must(Command::new("cp").arg("-r").arg(files.join("lib/modules").join(&version)).arg(&modules), by_hand)?;
    for part in LEFT_OUT {
        let _ = fs::remove_dir_all(modules.join(&version).join("kernel").join(part));
    }
    must(Command::new("depmod").arg("--basedir").arg(root).arg(&version), by_hand)?;
    Ok(version)
}

/// What makes a system of many boxes out of the system of one.
fn settle(recipe: &Recipe<'_>, root: &Path) -> Result<(), String> {
    let write = |name: &str, text: &str| {
        let file = root.join(name);
        fs::create_dir_all(file.parent().unwrap_or(&file))
            .and_then(|()| fs::write(&file, text))
            .map_err(|e| format!("{name}: {e}"))
    };
    // Empty: systemd makes one at the first start and keeps it.
    write("etc/machine-id", "")?;
    write("etc/hostname", "localhost\n")?;
    let key = machine_key(recipe)?;
    write(
        "usr/lib/interlock/update-keys",
        &format!("# Who may make updates for this box: ed25519, one a line.\n{key}\n"),
    )?;
    for name in ["efi", "var/lib/interlock"] {
        fs::create_dir_all(root.join(name)).map_err(|e| format!("{name}: {e}"))?;
    }
    let _ = fs::remove_file(root.join("var/lib/dbus/machine-id"));
    for name in ["var/cache/apt", "var/lib/apt/lists", "var/log"] {
        emptied(&root.join(name))?;
    }
    let resolv = root.join("etc/resolv.conf");
    let _ = fs::remove_file(&resolv);
    symlink("/run/systemd/resolve/resolv.conf", &resolv).map_err(|e| format!("{}: {e}", resolv.display()))?;
    let mut systemctl = Command::new("systemctl");
    systemctl.arg(format!("--root={}", root.display())).arg("enable").args(UNITS).stderr(Stdio::null());
    must(&mut systemctl, "a unit of cross/image/root or systemd/ is missing")
}

/// The public half of the key that updates are signed with, by sealing something with it.
fn machine_key(recipe: &Recipe<'_>) -> Result<String, String> {
    let probe = recipe.place.join("probe");
    let mut image = vec![0_u8; 4096];
    image[..4].copy_from_slice(b"hsqs");
    image[40..48].copy_from_slice(&4096_u64.to_le_bytes());
    fs::write(&probe, image).map_err(|e| format!("{}: {e}", probe.display()))?;
    super::sealed(recipe, &probe)
}

/// The first program that runs: a shell script with busybox and the drivers of disks, as the kernel's own archive.
fn starter(recipe: &Recipe<'_>, root: &Path, version: &str) -> Result<(), String> {
    let place = recipe.place.join("starter");
    emptied(&place)?;
    let told = |e: std::io::Error| format!("{}: {e}", place.display());
    for folder in ["bin", "proc", "sys", "dev", "run", "root", "lib/modules", "tmp"] {
        fs::create_dir_all(place.join(folder)).map_err(told)?;
    }
    let busybox = unpacked(recipe, "busybox-static")?.join("files/bin/busybox");
    fs::copy(&busybox, place.join("bin/busybox")).map_err(|e| format!("{}: {e}", busybox.display()))?;
    fs::copy(recipe.source("init"), place.join("init")).map_err(told)?;
    let applets = [
        "sh",
        "mount",
        "umount",
        "cat",
        "cut",
        "dd",
        "echo",
        "find",
        "grep",
        "head",
        "mkdir",
        "modprobe",
        "od",
        "reboot",
        "sed",
        "seq",
        "sha256sum",
        "sleep",
        "sort",
        "switch_root",
        "tr",
        "uname",
        "xargs",
    ];
    for applet in applets {
        symlink("busybox", place.join("bin").join(applet)).map_err(told)?;
    }
    drivers(root, version, &place)?;
    let archive = "find . | LC_ALL=C sort | cpio --quiet -o -H newc -R 0:0 | gzip -9n > \"$0\"";
    let mut cpio = Command::new("sh");
    cpio.current_dir(&place).args(["-ec", archive]).arg(root.join("boot/initrd.img"));
    must(&mut cpio, "see cpio's words above")
}

/// The drivers with all that they depend on, and the index of them.
fn drivers(root: &Path, version: &str, place: &Path) -> Result<(), String> {
    let modules = root.join("usr/lib/modules").join(version);
    let index = modules.join("modules.dep");
    let text = fs::read_to_string(&index).map_err(|e| format!("{}: {e}", index.display()))?;
    let name = |path: &str| path.rsplit('/').next().unwrap_or(path).trim_end_matches(".ko").replace('-', "_");
    let to = place.join("lib/modules").join(version);
    let wanted =
        text.lines().filter_map(|line| line.split_once(':')).filter(|(path, _)| STARTER.contains(&&*name(path)));
    for (path, needs) in wanted {
        for file in std::iter::once(path).chain(needs.split_whitespace()) {
            let target = to.join(file);
            let told = |e: std::io::Error| format!("{file}: {e}");
            fs::create_dir_all(target.parent().unwrap_or(&target)).map_err(told)?;
            fs::copy(modules.join(file), &target).map_err(told)?;
        }
    }
    for list in ["modules.order", "modules.builtin", "modules.builtin.modinfo"] {
        fs::copy(modules.join(list), to.join(list)).map_err(|e| format!("{list}: {e}"))?;
    }
    must(Command::new("depmod").arg("--basedir").arg(place).arg(version), "see depmod's words above")
}
