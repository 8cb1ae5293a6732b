//! `cargo xtask package --board NAME`: a .deb and an .rpm of a release, with what it needs and what it owes.
//!
//! The list of what goes where stands once, in the root manifest (`[package.metadata.deb]`); the .rpm has the same with
//! the few other places that its distributions want, and an image (`Stage::items`) the same as the .deb. All are made out
//! of the one staged folder.

pub(crate) mod notices;
mod trial;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use crate::board::{Board, is_for};
use crate::machine::{must, said};
use crate::{Places, board, machine};

pub(crate) use trial::trial;

/// Where Debian's packages and those of the .rpm's distributions disagree.
const OTHER_PLACES: [(&str, &str); 1] = [("usr/share/zsh/vendor-completions/", "usr/share/zsh/site-functions/")];

/// Where the .rpm's distributions want the licence, and Debian has it already.
const RPM_ALSO: (&str, &str) = ("LICENSE", "/usr/share/licenses/interlock/LICENSE");

/// What was made.
pub(crate) struct Packages {
    pub(crate) deb: PathBuf,
    pub(crate) rpm: PathBuf,
}

/// What is asked for on the command line.
pub(crate) struct Asked {
    board: String,
    /// A program that is there already, in place of a build.
    binary: Option<PathBuf>,
}

impl Asked {
    pub(crate) fn read(arguments: &[String]) -> Result<Asked, String> {
        match arguments {
            [rest @ .., flag, path] if flag == "--binary" => {
                Ok(Asked { board: board::named(rest)?.to_owned(), binary: Some(PathBuf::from(path)) })
            }
            all => Ok(Asked { board: board::named(all)?.to_owned(), binary: None }),
        }
    }

    /// The board, and its program.
    fn made(&self, places: &Places) -> Result<(Board, PathBuf), String> {
        let board = Board::read(&places.root, &self.board)?;
        let binary = match &self.binary {
            Some(binary) => {
                machine::for_board(&board)?;
                binary.clone()
            }
            None => board::made(places, &board)?,
        };
        is_for(&board, &binary)?;
        Ok((board, binary))
    }
}

/// The verb.
pub(crate) fn package(places: &Places, arguments: &[String]) -> Result<ExitCode, String> {
    let (board, binary) = Asked::read(arguments)?.made(places)?;
    let packages = Stage::fill(places, &board, &binary)?.packages(None)?;
    for file in [&packages.deb, &packages.rpm] {
        let length = fs::metadata(file).map_err(|e| format!("{}: {e}", file.display()))?.len();
        println!("{}: {length} bytes ({:.1} MiB)", file.display(), length as f64 / f64::from(1 << 20));
    }
    Ok(ExitCode::SUCCESS)
}

/// A file as it is put onto a box.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) from: PathBuf,
    /// From the root of the box, without a slash before it.
    pub(crate) to: String,
    pub(crate) mode: u32,
}

/// A folder that looks like a target directory to the packagers.
pub(crate) struct Stage<'p> {
    places: &'p Places,
    board: &'p Board,
    folder: PathBuf,
    /// Seconds after 1970 that stand in place of every time: those of the last commit.
    epoch: String,
}

impl<'p> Stage<'p> {
    pub(crate) fn fill(places: &'p Places, board: &'p Board, binary: &Path) -> Result<Stage<'p>, String> {
        let folder = board.place(places).join("package");
        let release = released(&folder, board);
        let package = release.join("package");
        emptied(&package)?;
        copied(binary, &release.join("interlock"))?;
        let root = places.root.to_string_lossy();
        let epoch = said("git", &["-C", &root, "log", "-1", "--format=%ct"])?;
        let stage = Stage { places, board, folder, epoch };
        stage.library(&package)?;
        stage.generated(&release.join("interlock"), &package)?;
        stage.owed(&package)?;
        Ok(stage)
    }

    /// ONNX Runtime and its licences.
    fn library(&self, package: &Path) -> Result<(), String> {
        let brought = board::runtime(self.places, self.board)?;
        let place = package.join("runtime");
        emptied(&place)?;
        for file in listed(&brought)? {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            match name.as_str() {
                "made-from.txt" => {}
                "LICENSE" | "ThirdPartyNotices.txt" => copied(&file, &place.join(format!("onnxruntime-{name}")))?,
                _ => copied(&file, &place.join(name))?,
            }
        }
        Ok(())
    }

    /// What the program says of itself: completions and the manual page.
    fn generated(&self, binary: &Path, package: &Path) -> Result<(), String> {
        for (arguments, file) in [
            (&["completions", "bash"][..], "interlock.bash"),
            (&["completions", "zsh"], "_interlock"),
            (&["completions", "fish"], "interlock.fish"),
            (&["man"], "interlock.1"),
        ] {
            let made = self.board.runs(binary).args(arguments).stdin(Stdio::null()).output();
            let made = made.map_err(|e| format!("{}: {e}", binary.display()))?;
            if !made.status.success() || made.stdout.is_empty() {
                return Err(format!("{} {}: {}", binary.display(), arguments.join(" "), made.status));
            }
            let file = package.join(file);
            match file.extension().is_some_and(|end| end == "1") {
                true => zipped(&file, made.stdout)?,
                false => written(&file, made.stdout)?,
            }
        }
        Ok(())
    }

    /// Licences, the list of parts, what has changed.
    fn owed(&self, package: &Path) -> Result<(), String> {
        let parts = notices::parts(self.places, &self.board.target)?;
        written(&package.join("sbom.cdx.json"), notices::sbom(&parts, &self.runtime_pin()?))?;
        written(&package.join("copyright"), notices::copyright(&parts))?;
        zipped(&package.join("third-party.txt"), notices::third_party(&parts)?)?;
        let changes = self.places.root.join("CHANGELOG.md");
        zipped(&package.join("changelog"), fs::read(&changes).map_err(|e| format!("{}: {e}", changes.display()))?)?;
        let at = said("date", &["--utc", "--rfc-email", "--date", &format!("@{}", self.epoch)])?;
        let version = notices::version(&parts);
        let entry = format!(
            "interlock ({version}-1) stable; urgency=medium\n\n  * Release {version}; see changelog.gz.\n\n \
             -- Interlock maintainers <maintainers@interlock.example>  {at}\n"
        );
        zipped(&package.join("changelog.Debian"), entry)
    }

    /// `onnxruntime==1.32.0` out of its pins.
    fn runtime_pin(&self) -> Result<String, String> {
        let pins = self.places.root.join("cross").join(&self.board.onnxruntime);
        let text = fs::read_to_string(&pins).map_err(|e| format!("{}: {e}", pins.display()))?;
        let pin = text.lines().find(|line| line.contains("==")).and_then(|line| line.split_whitespace().next());
        pin.map(str::to_owned).ok_or_else(|| format!("{}: it pins nothing", pins.display()))
    }

    /// The list of the packages, file by file.
    pub(crate) fn items(&self) -> Result<Vec<Item>, String> {
        items(&assets(&self.places.root)?, &self.places.root, &released(&self.folder, self.board))
    }

    /// Both packages, of that version or of the manifest's.
    fn packages(&self, version: Option<&str>) -> Result<Packages, String> {
        let tools = machine::cargo_tools(self.places, &["cargo-deb", "cargo-generate-rpm"])?;
        let out = self.board.place(self.places).join("packages").join(version.unwrap_or("release"));
        emptied(&out)?;
        let mut deb = self.packager(&tools.join("cargo-deb"));
        deb.args(["--no-build", "--no-strip", "--no-dbgsym", "--locked", "--offline", "--package", "interlock"]);
        // Its own compressor takes a minute, in the cheap build that we make of it.
        deb.arg("--compress-system");
        deb.args(["--target", &self.board.target, "--output"]).arg(&out);
        let mut rpm = self.packager(&tools.join("cargo-generate-rpm"));
        let overwrite = self.folder.join("rpm.toml");
        written(&overwrite, rpm_assets(&self.places.root)?)?;
        rpm.args(["--target", &self.board.target, "--source-date", &self.epoch]);
        rpm.arg("--metadata-overwrite").arg(&overwrite).arg("--output").arg(&out);
        // Tight for what is carried about, fast for what a trial upgrades from.
        rpm.args(["--payload-compress", if version.is_some() { "gzip" } else { "zstd" }]);
        if let Some(version) = version {
            deb.args(["--deb-version", &format!("{version}-1"), "--fast", "--compress-type", "gz"]);
            rpm.args(["--set-metadata", &format!("version = \"{version}\"")]);
        }
        must(&mut deb, "see the packager's words above")?;
        must(&mut rpm, "see the packager's words above")?;
        let one = |end: &str| {
            let all = listed(&out)?;
            all.into_iter().find(|file| file.extension().is_some_and(|e| e == end)).ok_or(format!("no .{end} was made"))
        };
        Ok(Packages { deb: one("deb")?, rpm: one("rpm")? })
    }

    fn packager(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.places.root).env("CARGO_TARGET_DIR", &self.folder);
        command.env("SOURCE_DATE_EPOCH", &self.epoch).env_remove("CARGO");
        command
    }
}

/// What stands for `target/release` of the list.
fn released(folder: &Path, board: &Board) -> PathBuf {
    folder.join(&board.target).join("release")
}

/// A row of the list: a file or all files of a folder (`*`), a place or a folder (`/` at its end), a mode.
struct Asset {
    source: String,
    place: String,
    mode: String,
}

/// The list as the manifest has it.
fn assets(root: &Path) -> Result<Vec<Asset>, String> {
    let manifest = root.join("Cargo.toml");
    let text = fs::read_to_string(&manifest).map_err(|e| format!("{}: {e}", manifest.display()))?;
    let table: toml::Table = text.parse().map_err(|e| format!("{}: {e}", manifest.display()))?;
    let deb = table.get("package").and_then(|t| t.get("metadata")).and_then(|t| t.get("deb"));
    let assets =
        deb.and_then(|t| t.get("assets")).and_then(toml::Value::as_array).ok_or("no [package.metadata.deb]")?;
    let asset = |row: &toml::Value| {
        let words: Vec<&str> = row.as_array().into_iter().flatten().filter_map(toml::Value::as_str).collect();
        let [source, place, mode] = words[..] else {
            return Err(format!("{row:?}: source, place and mode are wanted"));
        };
        Ok(Asset { source: source.to_owned(), place: place.to_owned(), mode: mode.to_owned() })
    };
    assets.iter().map(asset).collect()
}

/// The list with the files that it names: in the tree, or below what was made for the packages.
fn items(assets: &[Asset], root: &Path, release: &Path) -> Result<Vec<Item>, String> {
    let mut items = Vec::new();
    for Asset { source, place, mode } in assets {
        let mode = u32::from_str_radix(mode, 8).map_err(|e| format!("{source}: mode {mode}: {e}"))?;
        let from = source.strip_prefix("target/release/").map_or_else(|| root.join(source), |made| release.join(made));
        let files = match from.parent() {
            Some(folder) if from.ends_with("*") => listed(folder)?,
            _ => vec![from],
        };
        for from in files {
            let name = from.file_name().unwrap_or_default().to_string_lossy();
            let to = if place.ends_with('/') { format!("{place}{name}") } else { place.clone() };
            items.push(Item { from, to, mode });
        }
    }
    Ok(items)
}

/// The table of the .rpm's files, made of that of the .deb.
fn rpm_assets(root: &Path) -> Result<String, String> {
    let mut rows: Vec<String> =
        assets(root)?.iter().map(|Asset { source, place, mode }| rpm_row(source, place, mode)).collect();
    rows.push(rpm_row(RPM_ALSO.0, RPM_ALSO.1.trim_start_matches('/'), "644"));
    Ok(format!("assets = [\n{}]\n", rows.concat()))
}

fn rpm_row(source: &str, place: &str, mode: &str) -> String {
    let other = OTHER_PLACES.iter().find(|(debian, _)| *debian == place).map(|(_, other)| *other);
    let mut place = other.unwrap_or(place).to_owned();
    let name = source.rsplit('/').next().unwrap_or(source);
    if place.ends_with('/') && name != "*" {
        place.push_str(name);
    }
    let kind = match () {
        () if place.starts_with("etc/") => ", config = \"noreplace\"",
        () if place.starts_with("usr/share/doc/") || place.starts_with("usr/share/man/") => ", doc = true",
        () => "",
    };
    format!("  {{ source = \"{source}\", dest = \"/{place}\", mode = \"{mode}\"{kind} }},\n")
}

fn listed(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let told = |e: std::io::Error| format!("{}: {e}", folder.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(told)? {
        files.push(entry.map_err(told)?.path());
    }
    files.sort();
    Ok(files)
}

pub(crate) fn emptied(folder: &Path) -> Result<(), String> {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))
}

fn copied(from: &Path, to: &Path) -> Result<(), String> {
    fs::copy(from, to).map(drop).map_err(|e| format!("{} to {}: {e}", from.display(), to.display()))
}

fn written(file: &Path, text: impl AsRef<[u8]>) -> Result<(), String> {
    fs::write(file, text).map_err(|e| format!("{}: {e}", file.display()))
}

/// Writes it compressed, without name and time: the same bytes each time.
fn zipped(file: &Path, text: impl AsRef<[u8]>) -> Result<(), String> {
    written(file, text)?;
    must(Command::new("gzip").args(["--best", "--no-name", "--force"]).arg(file), "gzip is part of Debian")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_the_rpm_is_that_of_the_deb() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("a root");
        let list = rpm_assets(root).expect("the manifest has a list");
        for row in [
            r#"{ source = "target/release/interlock", dest = "/usr/bin/interlock", mode = "755" }"#,
            r#"{ source = "target/release/package/runtime/*", dest = "/usr/lib/interlock/", mode = "644" }"#,
            r#"dest = "/usr/share/zsh/site-functions/_interlock", mode = "644" }"#,
            r#"dest = "/etc/interlock/interlock.toml", mode = "640", config = "noreplace" }"#,
            r#"dest = "/usr/share/man/man1/interlock.1.gz", mode = "644", doc = true }"#,
            r#"dest = "/usr/share/licenses/interlock/LICENSE", mode = "644" }"#,
        ] {
            assert!(list.contains(row), "{row}\n{list}");
        }
        assert!(list.parse::<toml::Table>().is_ok());
    }

    #[test]
    fn an_image_gets_each_file_of_the_list() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("a root");
        let release = std::env::temp_dir().join(format!("interlock-items-{}", std::process::id()));
        let runtime = release.join("package/runtime");
        emptied(&runtime).expect("a folder");
        for name in ["libonnxruntime.so.1", "onnxruntime-LICENSE"] {
            written(&runtime.join(name), "").expect("a file");
        }
        let rows = assets(root).expect("the manifest has a list");
        let items = items(&rows, root, &release).expect("each has a mode");
        assert_eq!(items.len(), rows.len() + 1, "one row names two files");
        for (from, to, mode) in [
            (release.join("interlock"), "usr/bin/interlock", 0o755),
            (root.join("systemd/sysusers.conf"), "usr/lib/sysusers.d/interlock.conf", 0o644),
            (root.join("systemd/interlock.toml"), "etc/interlock/interlock.toml", 0o640),
            (runtime.join("libonnxruntime.so.1"), "usr/lib/interlock/libonnxruntime.so.1", 0o644),
            (runtime.join("onnxruntime-LICENSE"), "usr/lib/interlock/onnxruntime-LICENSE", 0o644),
            (release.join("package/third-party.txt.gz"), "usr/share/doc/interlock/third-party.txt.gz", 0o644),
        ] {
            let item = Item { from, to: to.to_owned(), mode };
            assert!(items.contains(&item), "{item:?}\n{items:#?}");
        }
        fs::remove_dir_all(&release).expect("it was there");
    }

    #[test]
    fn every_file_of_the_tree_that_is_packed_is_there() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("a root");
        let list = rpm_assets(root).expect("the manifest has a list");
        let sources = list.split("source = \"").skip(1).filter_map(|rest| rest.split('"').next());
        let ours: Vec<&str> = sources.filter(|source| !source.starts_with("target/")).collect();
        assert!(ours.len() > 8, "{ours:?}");
        for source in ours {
            assert!(root.join(source).is_file(), "{source}");
        }
    }

    #[test]
    fn a_binary_may_stand_in_for_a_build() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let asked = Asked::read(&words("--board x86_64 --binary /b")).expect("it is read");
        assert_eq!((asked.board.as_str(), asked.binary), ("x86_64", Some(PathBuf::from("/b"))));
        assert!(Asked::read(&words("--binary /b")).is_err());
        assert!(Asked::read(&words("--board x86_64 --more")).is_err());
    }
}
