//! `cargo xtask build --board NAME`: a release for a board, from one small file in `cross/boards/`.
//!
//! The binary must run on the oldest C library that the board may have, so it is linked with a compiler that knows old
//! ones (zig) and held against the floor afterwards: what a linker was asked for is not yet what it did.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::machine::must;
use crate::{Places, machine, room, runtime};

/// The tools that PyPI has, pinned.
const TOOLS: &str = include_str!("../../board-tools.txt");

/// The largest stripped binary, in bytes: the boxes have small flash.
const BINARY_MAX: u64 = 15 << 20;

/// Where the list of crates lies in the binary.
const AUDITABLE: &str = ".dep-v0";

/// A board as its file says it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Board {
    pub(crate) name: String,
    /// Rust's name of the target.
    pub(crate) target: String,
    /// The newest version of glibc's symbols that may be asked for.
    pub(crate) glibc: (u32, u32),
    /// What the compiler may use beyond the base of the target.
    pub(crate) cpu_features: Vec<String>,
    /// The file with the pins of the ONNX Runtime wheel.
    pub(crate) onnxruntime: String,
}

impl Board {
    /// The board of that name.
    pub(crate) fn read(root: &Path, name: &str) -> Result<Board, String> {
        let folder = root.join("cross/boards");
        let file = folder.join(name).with_extension("toml");
        match fs::read_to_string(&file) {
            Ok(text) if is_a_name(name) => {
                Board::parse(name, &text).map_err(|why| format!("{}: {why}", file.display()))
            }
            Ok(_) | Err(_) => Err(format!("no board is called {name}\nhint: the boards are {}", names(&folder))),
        }
    }

    fn parse(name: &str, text: &str) -> Result<Board, String> {
        let mut keys: BTreeMap<String, toml::Value> =
            text.parse::<toml::Table>().map_err(|e| e.to_string())?.into_iter().collect();
        let mut word = |key: &str| match keys.remove(key) {
            Some(toml::Value::String(word)) => Ok(word),
            _ => Err(format!("{key}: a string is wanted")),
        };
        let target = word("target")?;
        let glibc = word("glibc")?;
        let onnxruntime = word("onnxruntime")?;
        let cpu_features = match keys.remove("cpu-features") {
            Some(toml::Value::Array(all)) => all.iter().filter_map(|one| one.as_str().map(str::to_owned)).collect(),
            _ => return Err("cpu-features: a list of strings is wanted".to_owned()),
        };
        if let Some(unknown) = keys.keys().next() {
            return Err(format!("{unknown}: no such key"));
        }
        let glibc = version(&glibc).ok_or_else(|| format!("glibc = {glibc:?}: a version like 2.28 is wanted"))?;
        Ok(Board { name: name.to_owned(), target, glibc, cpu_features, onnxruntime })
    }

    /// As `uname -m` says it.
    pub(crate) fn machine(&self) -> &str {
        self.target.split('-').next().unwrap_or(&self.target)
    }

    /// As Debian says it.
    pub(crate) fn debian(&self) -> &str {
        match self.machine() {
            "aarch64" => "arm64",
            "x86_64" => "amd64",
            other => other,
        }
    }

    /// Whether this machine has another processor.
    pub(crate) fn foreign(&self) -> bool {
        self.machine() != std::env::consts::ARCH
    }

    /// Everything of this board: products, the library, packages.
    pub(crate) fn place(&self, places: &Places) -> PathBuf {
        places.target.join("boards").join(&self.name)
    }

    /// The program of a release build.
    pub(crate) fn binary(&self, places: &Places) -> PathBuf {
        self.place(places).join(&self.target).join("release/interlock")
    }

    /// How a program of this board is run here: by itself, or under an emulator.
    pub(crate) fn runs(&self, program: &Path) -> Command {
        if !self.foreign() {
            return Command::new(program);
        }
        let mut emulated = Command::new(format!("qemu-{}-static", self.machine()));
        emulated.arg(program);
        emulated
    }
}

fn names(folder: &Path) -> String {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        files.filter_map(|file| file.path().file_stem().map(|stem| stem.to_string_lossy().into_owned())).collect();
    names.sort();
    names.join(", ")
}

fn is_a_name(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
}

fn version(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The name after `--board`.
pub(crate) fn named(arguments: &[String]) -> Result<&str, String> {
    match arguments {
        [flag, name] if flag == "--board" => Ok(name),
        _ => Err("which board?\nhint: --board NAME".to_owned()),
    }
}

/// Sets up, builds, and judges what came out.
pub(crate) fn build(places: &Places, name: &str) -> Result<ExitCode, String> {
    let board = Board::read(&places.root, name)?;
    made(places, &board)?;
    Ok(ExitCode::SUCCESS)
}

/// The program of this board, built and judged.
pub(crate) fn made(places: &Places, board: &Board) -> Result<PathBuf, String> {
    made_with(places, board, &[])
}

/// The same, with settings of the profile that are not those of a release.
pub(crate) fn made_with(places: &Places, board: &Board, profile: &[&str]) -> Result<PathBuf, String> {
    let binary = compiled(places, board, &[&["--bin", "interlock"], profile].concat())?;
    runtime(places, board)?;
    for line in judged(board, &binary)? {
        println!("{line}");
    }
    Ok(binary)
}

/// Sets up and compiles what cargo is asked for; gives back where the program `interlock` of this board lies.
pub(crate) fn compiled(places: &Places, board: &Board, what: &[&str]) -> Result<PathBuf, String> {
    room::wanted(&board.place(places), room::RELEASE, "a release for a board")?;
    let mut cargo = compiler(places, board, &["auditable", "zigbuild", "--locked", "--release"])?;
    cargo.args(what);
    must(&mut cargo, "see the compiler's words above")?;
    Ok(board.binary(places))
}

/// Sets up what compiles for this board; it is yet to be told what.
pub(crate) fn compiler(places: &Places, board: &Board, verb: &[&str]) -> Result<Command, String> {
    machine::for_board(board)?;
    let tools =
        machine::environment(&places.target.join("board-tools"), TOOLS, "tools that link against an old glibc")?;
    let tools = tools.parent().ok_or("the tools have no folder")?;
    // It puts the list of all crates into the binary, where scanners for weaknesses look for it.
    let program = match verb.first() {
        Some(&"auditable") => machine::cargo_tools(places, &["cargo-auditable"])?.join("cargo-auditable"),
        _ => tools.join("cargo-zigbuild"),
    };
    let (major, minor) = board.glibc;
    let mut cargo = Command::new(program);
    cargo
        .current_dir(&places.root)
        .args(verb)
        .args(["--target", &format!("{}.{major}.{minor}", board.target)])
        .env("CARGO_TARGET_DIR", board.place(places))
        // zig and its wrapper stand in the folder of the tools.
        .env("PATH", prefixed(tools)?);
    let elsewhere = elsewhere(places, board)?;
    let mut rust: Vec<String> = elsewhere.iter().map(|(from, to)| format!("--remap-path-prefix={from}={to}")).collect();
    if !board.cpu_features.is_empty() {
        let features: Vec<String> = board.cpu_features.iter().map(|feature| format!("+{feature}")).collect();
        rust.push(format!("-Ctarget-feature={}", features.join(",")));
    }
    cargo.env("CARGO_ENCODED_RUSTFLAGS", rust.join("\u{1f}"));
    let c: Vec<String> = elsewhere.iter().map(|(from, to)| format!("-ffile-prefix-map={from}={to}")).collect();
    cargo.env("CFLAGS", c.join(" ")).env("SOURCE_DATE_EPOCH", "0");
    if board.foreign() {
        // rustup has no library for another processor where only a crate registry is reachable; Debian's compiler has.
        cargo.envs([("CARGO", "/usr/bin/cargo"), ("RUSTC", "/usr/bin/rustc"), ("RUSTDOC", "/usr/bin/rustdoc")]);
        println!("compiler: {}", machine::said("/usr/bin/rustc", &["--version"])?);
    }
    Ok(cargo)
}

/// The folder with the board's ONNX Runtime.
pub(crate) fn runtime(places: &Places, board: &Board) -> Result<PathBuf, String> {
    let python = machine::interpreter(places)?;
    let place = board.place(places).join("onnxruntime");
    runtime::bring(&places.root, &board.onnxruntime, board.machine(), &place, &python)?;
    Ok(place)
}

/// The folders whose names must not get into the binary, and what stands in their place: it shall be the same wherever it
/// is built.
fn elsewhere(places: &Places, board: &Board) -> Result<Vec<(String, &'static str)>, String> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let home = home.ok_or("neither CARGO_HOME nor HOME is set")?;
    let text = |path: PathBuf| path.into_os_string().into_string().map_err(|path| format!("{path:?} is not UTF-8"));
    // The last that fits counts: the target directory may lie in the tree.
    Ok(vec![
        (text(home)?, "/cargo"),
        (text(places.root.clone())?, "/interlock"),
        (text(board.place(places))?, "/target"),
    ])
}

/// What the binary is, held against what the board allows.
fn judged(board: &Board, binary: &Path) -> Result<Vec<String>, String> {
    let length = fs::metadata(binary).map_err(|e| format!("{}: {e}", binary.display()))?.len();
    let symbols = machine::said("readelf", &["--version-info", "--wide", &binary.to_string_lossy()])?;
    let newest = newest_glibc(&symbols).ok_or("the binary names no version of glibc")?;
    if newest > board.glibc {
        return Err(format!(
            "the binary asks for GLIBC_{}.{}; {} has {}.{}",
            newest.0, newest.1, board.name, board.glibc.0, board.glibc.1
        ));
    }
    let sections = machine::said("readelf", &["--sections", "--wide", &binary.to_string_lossy()])?;
    if !sections.contains(AUDITABLE) {
        return Err(format!("{} has no section {AUDITABLE} with the list of its crates", binary.display()));
    }
    let mut said = vec![
        format!("{}: {} bytes ({:.1} MiB)", binary.display(), length, length as f64 / f64::from(1 << 20)),
        format!("newest symbol: GLIBC_{}.{}", newest.0, newest.1),
    ];
    if length > BINARY_MAX {
        said.push(format!("larger than the {} MiB that the boards are promised", BINARY_MAX >> 20));
    }
    let version = board.runs(binary).arg("--version").output().map_err(|e| format!("running the binary: {e}"))?;
    if !version.status.success() {
        return Err(format!("{} --version: {}", binary.display(), version.status));
    }
    said.push(format!("runs here: {}", String::from_utf8_lossy(&version.stdout).trim()));
    Ok(said)
}

/// A binary for another processor would install and never start.
pub(crate) fn is_for(board: &Board, binary: &Path) -> Result<(), String> {
    let header = machine::said("readelf", &["--file-header", "--wide", &binary.to_string_lossy()])?;
    let wanted = match board.machine() {
        "aarch64" => "AArch64",
        "x86_64" => "X86-64",
        other => return Err(format!("{other}: readelf's name of this processor is not known")),
    };
    let found = header.lines().find_map(|line| line.trim().strip_prefix("Machine:")).unwrap_or("nothing").trim();
    match found.contains(wanted) {
        true => Ok(()),
        false => Err(format!("{} is for {found}; {} is {wanted}", binary.display(), board.name)),
    }
}

/// The newest `GLIBC_a.b` in what readelf says of the versions that are needed.
pub(crate) fn newest_glibc(symbols: &str) -> Option<(u32, u32)> {
    let words = symbols.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '.');
    words.filter_map(|word| version(word.strip_prefix("GLIBC_")?.trim_end_matches('.'))).max()
}

fn prefixed(tools: &Path) -> Result<std::ffi::OsString, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = std::iter::once(tools.to_path_buf()).chain(std::env::split_paths(&path));
    std::env::join_paths(all).map_err(|e| format!("PATH: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_board_of_the_tree_can_be_read() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("a root");
        let all = names(&root.join("cross/boards"));
        assert_eq!(all, "generic-arm64, phytium, x86_64");
        for name in all.split(", ") {
            let board = Board::read(root, name).expect(name);
            assert!(root.join("cross").join(&board.onnxruntime).is_file(), "{name}");
        }
    }

    #[test]
    fn a_wrong_board_is_told_apart() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("a root");
        for (name, said) in [("mips", "the boards are"), ("../boards/phytium", "the boards are")] {
            let why = Board::read(root, name).expect_err(name);
            assert!(why.contains(said), "{why}");
        }
        let whole = "target = \"a-b\"\nglibc = \"2.28\"\ncpu-features = []\nonnxruntime = \"x\"\n";
        assert_eq!(Board::parse("a", whole).map(|board| board.glibc), Ok((2, 28)));
        for (text, said) in [
            (whole.replace("2.28", "new"), "glibc"),
            (whole.replace("[]", "1"), "cpu-features"),
            (format!("{whole}more = 1\n"), "more: no such key"),
            (whole.replace("target", "aim"), "target"),
        ] {
            let why = Board::parse("a", &text).expect_err(&text);
            assert!(why.contains(said), "{why}");
        }
    }

    #[test]
    fn the_newest_symbol_is_found() {
        let symbols = "0x0010: Name: GLIBC_2.17 Flags: none\n 0x0020: Name: GLIBC_2.28  Flags\n GLIBC_2.4. GCC_3.0";
        assert_eq!(newest_glibc(symbols), Some((2, 28)));
        assert_eq!(newest_glibc("none"), None);
    }
}
