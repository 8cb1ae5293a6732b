//! What must be on the machine, and how it gets there.
//!
//! Each thing is looked for first and fetched only when it is missing, by the machine's own package tools, at the
//! versions that are pinned in the tree. Nothing here touches a file outside the target directory, except what
//! Debian's package manager installs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::board::Board;
use crate::{Places, runtime};

/// The independent clients that the tests talk to us with, pinned.
const CLIENTS: &str = include_str!("../../python-clients.txt");

/// The cargo commands that the crate registry has, pinned.
const CARGO_TOOLS: &str = include_str!("../../cargo-tools.txt");

/// A program, the Debian packages that bring it, and what it is for.
struct Need {
    program: &'static str,
    probe: &'static [&'static str],
    packages: &'static [&'static str],
    reason: &'static str,
}

/// No question to the program: it is enough that the file is there.
const PRESENT: &[&str] = &[];

const COMPILER: Need = Need {
    program: "cc",
    probe: &["--version"],
    packages: &["gcc", "libc6-dev"],
    reason: "compiles the bundled SQLite and the TLS primitives",
};

const PYTHON: Need = Need {
    program: "python3",
    probe: &["-c", "import venv, ensurepip"],
    packages: &["python3", "python3-venv"],
    reason: "runs the independent Modbus and MCP clients of the tests",
};

const BROWSER: Need = Need {
    program: "chromedriver",
    probe: &["--version"],
    packages: &["chromium", "chromium-driver"],
    reason: "opens the console as a person does",
};

const NPM: Need = Need {
    program: "npm",
    probe: &["--version"],
    packages: &["npm"],
    reason: "brings Node and the MCP suites and clients, at the versions that are pinned in tests/clients",
};

const GIT: Need =
    Need { program: "git", probe: &["--version"], packages: &["git"], reason: "mcp-server-git needs a repository" };

const READELF: Need =
    Need { program: "readelf", probe: &["--version"], packages: &["binutils"], reason: "says what a binary asks for" };

/// Debian's compiler brings the library for a foreign processor; the crate registry has none.
const FOREIGN_COMPILER: Need = Need {
    program: "/usr/bin/rustc",
    probe: &["--print", "target-libdir", "--target", "aarch64-unknown-linux-gnu"],
    packages: &["rustc-web", "cargo-web", "libstd-rust-web-dev:arm64"],
    reason: "compiles for aarch64",
};

const EMULATOR: Need = Need {
    program: "qemu-aarch64-static",
    probe: &["--version"],
    packages: &["qemu-user-static", "libc6:arm64", "libgcc-s1:arm64"],
    reason: "runs what was built for aarch64",
};

const IMAGE: &[Need] = &[
    need("mmdebstrap", &["--version"], &["mmdebstrap", "arch-test"], "makes a Debian root"),
    need("mksquashfs", &["-version"], &["squashfs-tools"], "makes the slots"),
    need("mkfs.vfat", &["--help"], &["dosfstools"], "makes the loader's partition"),
    need("mcopy", &["--version"], &["mtools"], "fills the loader's partition"),
    need("mke2fs", &["-V"], &["e2fsprogs"], "makes the partitions for state and data"),
    need("sfdisk", &["--version"], &["fdisk"], "makes the partition table"),
    need("grub-mkimage", &["--version"], &["grub-common"], "makes the loader"),
    need("cpio", &["--version"], &["cpio"], "packs the starter"),
    need("depmod", &["--version"], &["kmod"], "lists the drivers"),
    need("zstd", &["--version"], &["zstd"], "packs the image"),
    UNIT_CHECKER,
];

/// The broker that the export is tried against, and its clients. Whatever they are asked, they end with an error.
const BROKER: &[Need] = &[
    need("/usr/sbin/mosquitto", PRESENT, &["mosquitto"], "is the broker that the export is tried against"),
    need("/usr/bin/mosquitto_sub", PRESENT, &["mosquitto-clients"], "commands and listens on that broker"),
];

const EMULATED_ARM: &[Need] =
    &[need("qemu-system-aarch64", &["--version"], &["qemu-system-arm", "qemu-efi-aarch64"], "is the box")];

const EMULATED_PC: &[Need] = &[need("qemu-system-x86_64", &["--version"], &["qemu-system-x86", "ovmf"], "is the box")];

const fn need(
    program: &'static str,
    probe: &'static [&'static str],
    packages: &'static [&'static str],
    reason: &'static str,
) -> Need {
    Need { program, probe, packages, reason }
}

const UNIT_CHECKER: Need =
    Need { program: "systemd-analyze", probe: &["--version"], packages: &["systemd"], reason: "checks the unit file" };

const LINTIAN: Need =
    Need { program: "lintian", probe: &["--version"], packages: &["lintian"], reason: "judges a Debian package" };

const BOOTSTRAP: Need = Need {
    program: "mmdebstrap",
    probe: &["--version"],
    packages: &["mmdebstrap"],
    reason: "makes a Debian to install a package into",
};

const RPM: Need =
    Need { program: "rpm", probe: &["--version"], packages: &["rpm"], reason: "reads and installs an .rpm" };

/// What a build needs.
pub(crate) fn for_building() -> Result<(), String> {
    bring(&[COMPILER])
}

/// What the training of a model needs: its script brings the rest.
pub(crate) fn for_training() -> Result<(), String> {
    bring(&[PYTHON])
}

/// What the tests need besides; gives back the Python interpreter that has the clients.
pub(crate) fn for_testing(places: &Places) -> Result<PathBuf, String> {
    bring(&[PYTHON, UNIT_CHECKER])?;
    // The tests that want these are skipped by name without them.
    for (what, needs) in [("browser", std::slice::from_ref(&BROWSER)), ("broker", BROKER)] {
        if let Err(why) = bring(needs) {
            println!("set-up: no {what}: {why}");
        }
    }
    let python = interpreter(places)?;
    model_runtime(places, &python);
    Ok(python)
}

/// The Python interpreter that has the clients, and pip.
pub(crate) fn interpreter(places: &Places) -> Result<PathBuf, String> {
    environment(&places.target.join("clients"), CLIENTS, "the test clients")
}

/// What the daemon has the model stage from. It runs without, so that this is said and nothing more.
pub(crate) fn for_running(places: &Places) {
    let python = bring(&[PYTHON]).and_then(|()| interpreter(places));
    match python {
        Ok(python) => model_runtime(places, &python),
        Err(why) => println!("set-up: no ONNX Runtime, the model stage is off: {why}"),
    }
}

fn model_runtime(places: &Places, python: &Path) {
    let place = places.target.join("onnxruntime");
    if let Err(why) = runtime::bring(&places.root, runtime::PLAIN, std::env::consts::ARCH, &place, python) {
        println!("set-up: no ONNX Runtime, the model stage is off: {why}");
    }
}

/// What a build for that board needs.
pub(crate) fn for_board(board: &Board) -> Result<(), String> {
    bring(&[COMPILER, PYTHON, READELF])?;
    if board.foreign() {
        if !said("dpkg", &["--print-foreign-architectures"])?.lines().any(|one| one == board.debian()) && we_are_root()
        {
            must(Command::new("dpkg").args(["--add-architecture", board.debian()]), "a Debian-like machine is needed")?;
        }
        bring(&[FOREIGN_COMPILER, EMULATOR])?;
    }
    Ok(())
}

/// What an image needs besides: makers of file systems, and Debian's packages for the board.
pub(crate) fn for_image(board: &Board) -> Result<(), String> {
    if !we_are_root() {
        return Err(
            "an image is made as root: it has files of several users, and Debian's scripts run in it".to_owned()
        );
    }
    for_board(board)?;
    bring(IMAGE)?;
    if board.foreign() { emulated(board) } else { Ok(()) }
}

/// What a trial of an image needs besides: the board as a whole under emulation.
pub(crate) fn for_trial(board: &Board) -> Result<(), String> {
    let needs = if board.machine() == "aarch64" { EMULATED_ARM } else { EMULATED_PC };
    let has_tools = said("dpkg-query", &["--show", "--showformat=${db:Status-Status}", "qemu-utils"]);
    if we_are_root()
        && has_tools.is_ok_and(|status| status == "installed")
        && !answers(needs[0].program, &["--version"])
    {
        // A newer qemu-utils would be taken away by the emulator: both in the emulator's version.
        must(apt().arg("update"), "a package index is needed once")?;
        let policy = said("apt-cache", &["policy", needs[0].packages[0]])?;
        let version = policy.lines().find_map(|line| line.trim().strip_prefix("Candidate: ")).unwrap_or_default();
        let tools = format!("qemu-utils={version}");
        let arguments = ["install", "-y", "--no-install-recommends", "--allow-downgrades", &tools];
        must(apt().args(arguments).args(needs[0].packages), "as root: apt-get install the same")?;
    }
    bring(needs)
}

/// Lets this kernel start programs of the board's processor by itself: Debian's scripts in the root need it.
fn emulated(board: &Board) -> Result<(), String> {
    let place = Path::new("/proc/sys/fs/binfmt_misc");
    let name = format!("qemu-{}", board.machine());
    if place.join(&name).exists() {
        return Ok(());
    }
    let by_hand = "the kernel must have binfmt_misc";
    if !place.join("register").exists() {
        must(Command::new("mount").args(["-t", "binfmt_misc", "binfmt_misc"]).arg(place), by_hand)?;
    }
    if place.join(&name).exists() {
        return Ok(());
    }
    let rule = format!("/usr/lib/binfmt.d/{name}.conf");
    println!("set-up: this kernel now starts programs for {} with {name}", board.machine());
    fs::read(&rule)
        .and_then(|rule| fs::write(place.join("register"), rule))
        .map_err(|e| format!("{rule}: {e}\nhint: {by_hand}"))
}

/// What trying a package out needs.
pub(crate) fn for_packages() -> Result<(), String> {
    bring(&[LINTIAN, BOOTSTRAP, RPM, PYTHON])
}

/// What the suites and clients of others need.
pub(crate) fn for_conformance() -> Result<(), String> {
    bring(&[PYTHON, NPM, GIT])
}

fn bring(needs: &[Need]) -> Result<(), String> {
    let missing: Vec<&Need> = needs.iter().filter(|need| !is_there(need)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    for need in &missing {
        println!("set-up: {} is missing ({}); installing {}", need.program, need.reason, need.packages.join(" "));
    }
    let packages: Vec<&str> = missing.iter().flat_map(|need| need.packages.iter().copied()).collect();
    let by_hand = format!("as root: apt-get update && apt-get install -y {}", packages.join(" "));
    if !we_are_root() {
        return Err(format!("not root, so nothing was installed\nhint: {by_hand}"));
    }
    must(apt().arg("update"), &by_hand)?;
    must(apt().args(["install", "-y", "--no-install-recommends"]).args(&packages), &by_hand)?;
    match missing.iter().find(|need| !is_there(need)) {
        None => Ok(()),
        Some(need) => Err(format!("{} is still missing after its packages were installed", need.program)),
    }
}

fn apt() -> Command {
    let mut apt = Command::new("apt-get");
    apt.env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
    apt
}

/// A virtual environment with what is pinned; gives back its interpreter. The stamp is written last: a half-made one is
/// made again.
pub(crate) fn environment(place: &Path, pinned: &str, what: &str) -> Result<PathBuf, String> {
    let python = place.join("bin/python");
    let stamp = place.join("made-from.txt");
    if fs::read_to_string(&stamp).is_ok_and(|made_from| made_from == pinned) && python.exists() {
        return Ok(python);
    }
    println!("set-up: making a Python environment with {what} in {}", place.display());
    let hint = "a package index is needed once; later runs use what is there";
    must(Command::new("python3").args(["-m", "venv", "--clear"]).arg(place), hint)?;
    let pins: Vec<&str> = pinned.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]).args(pins);
    must(&mut pip, hint)?;
    fs::write(&stamp, pinned).map_err(|e| format!("{}: {e}", stamp.display()))?;
    Ok(python)
}

/// The folder that has these cargo commands, at the versions that are pinned.
pub(crate) fn cargo_tools(places: &Places, names: &[&str]) -> Result<PathBuf, String> {
    let root = places.target.join("cargo-tools");
    for name in names {
        let version = pinned(CARGO_TOOLS, name).ok_or_else(|| format!("cross/cargo-tools.txt does not pin {name}"))?;
        let stamp = root.join(name).with_extension("version");
        if fs::read_to_string(&stamp).is_ok_and(|installed| installed == version)
            && root.join("bin").join(name).exists()
        {
            continue;
        }
        println!("set-up: {name} {version} is missing; installing it in {}", root.display());
        let mut install = Command::new("cargo");
        install.args(["install", "--quiet", "--locked", "--force", "--root"]).arg(&root);
        install.arg(format!("{name}@{version}")).env("CARGO_TARGET_DIR", places.target.join("cargo-tools-build"));
        // They run for seconds: what counts is how long they take to build.
        install.envs([("CARGO_PROFILE_RELEASE_LTO", "false"), ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")]);
        must(&mut install, "a crate registry is needed once; later runs use what is there")?;
        fs::write(&stamp, version).map_err(|e| format!("{}: {e}", stamp.display()))?;
    }
    Ok(root.join("bin"))
}

/// The version in a line `name version`.
fn pinned<'t>(pins: &'t str, name: &str) -> Option<&'t str> {
    pins.lines().filter_map(|line| line.split_once(' ')).find(|(pinned, _)| *pinned == name).map(|(_, version)| version)
}

/// What a program says on its standard output.
pub(crate) fn said(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    match output {
        Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        Ok(output) => Err(format!("{program} {}: {}", arguments.join(" "), output.status)),
        Err(e) => Err(format!("{program}: {e}")),
    }
}

fn is_there(need: &Need) -> bool {
    if need.probe == PRESENT { Path::new(need.program).is_file() } else { answers(need.program, need.probe) }
}

fn answers(program: &str, arguments: &[&str]) -> bool {
    let quiet =
        Command::new(program).args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet.is_ok_and(|status| status.success())
}

pub(crate) fn must(command: &mut Command, hint: &str) -> Result<(), String> {
    let shown = format!("{command:?}").replace('"', "");
    println!("set-up: {shown}");
    match command.stdin(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{shown}: {status}\nhint: {hint}")),
        Err(e) => Err(format!("{shown}: {e}\nhint: {hint}")),
    }
}

fn we_are_root() -> bool {
    // The second number is the effective user.
    fs::read_to_string("/proc/self/status").is_ok_and(|status| {
        let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        line.and_then(|ids| ids.split_whitespace().nth(1)) == Some("0")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_pinned_by_its_whole_name() {
        let pins = "# a comment\ncargo-deb 1.2\ncargo-debug 3\n";
        assert_eq!(
            (pinned(pins, "cargo-deb"), pinned(pins, "cargo-de"), pinned(pins, "#")),
            (Some("1.2"), None, Some("a comment"))
        );
        for name in ["cargo-deb", "cargo-generate-rpm", "cargo-auditable", "cargo-deny"] {
            assert!(pinned(CARGO_TOOLS, name).is_some(), "{name}");
        }
    }
}
