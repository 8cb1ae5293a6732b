//! `cargo xtask package-trial`: what the packages promise, tried out in a Debian that is made for it.
//!
//! Nothing of the machine that it runs on is installed into or touched beside the target directory. What systemd would
//! do is done by a stand-in that starts and stops the real daemon: process 1 of a build machine is seldom systemd.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use super::{Asked, Packages, Stage, copied, emptied, written};
use crate::machine::{must, said};
use crate::{Places, machine};

/// The Debian that packages are tried out in; its C library is newer than the floor of the boards.
const SUITE: &str = "bookworm";

/// The version that is upgraded from.
const OLDER: &str = "0.0.9";

/// How long the trial may take, in tenths of a second.
const PATIENCE: u32 = 3_000;

/// The version of the schema in state.db: read, or set.
const SCHEMA: &str = "\
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=10)
if len(sys.argv) > 2:
    db.execute('PRAGMA user_version = ' + str(int(sys.argv[2])))
    db.commit()
print(db.execute('PRAGMA user_version').fetchone()[0])
";

/// The verb.
pub(crate) fn trial(places: &Places, arguments: &[String]) -> Result<ExitCode, String> {
    machine::for_packages()?;
    let (board, binary) = Asked::read(arguments)?.made(places)?;
    if board.foreign() {
        return Err(format!(
            "{} has another processor: its packages are tried out on a machine of its kind\nhint: \
             `cargo xtask package --board {}` makes them, and the lists below are those of every board",
            board.name, board.name
        ));
    }
    let stage = Stage::fill(places, &board, &binary)?;
    let (old, new) = (stage.packages(Some(OLDER))?, stage.packages(None)?);
    let place = board.place(places).join("trial");
    emptied(&place)?;
    lintian(places, &new.deb)?;
    rpm_says(&new)?;
    let root = Root::make(places, &place.join("root"))?;
    root.bring(places, &old, &new, &foreign(&new.deb, &place)?)?;
    root.deb()?;
    root.rpm(&old, &new)?;
    println!("the packages are as promised");
    Ok(ExitCode::SUCCESS)
}

/// Debian's own judge; the tags that are not mended are listed, each with its reason.
fn lintian(places: &Places, deb: &Path) -> Result<(), String> {
    let listed = places.root.join("cross/package/lintian-tags.txt");
    let mut lintian = Command::new("lintian");
    lintian.args(["--allow-root", "--fail-on", "error,warning", "--suppress-tags-from-file"]).arg(listed).arg(deb);
    must(&mut lintian, "mend it, or list the tag with its reason in cross/package/lintian-tags.txt")
}

/// The same package under the name of another processor.
fn foreign(deb: &Path, place: &Path) -> Result<(PathBuf, &'static str), String> {
    let other = if std::env::consts::ARCH == "aarch64" { "amd64" } else { "arm64" };
    let unpacked = place.join("foreign");
    must(Command::new("dpkg-deb").arg("-R").args([deb, &unpacked]), "dpkg-deb is part of Debian")?;
    let control = unpacked.join("DEBIAN/control");
    let text = fs::read_to_string(&control).map_err(|e| format!("{}: {e}", control.display()))?;
    let mine = text.lines().find(|line| line.starts_with("Architecture: ")).ok_or("no architecture")?;
    written(&control, text.replace(mine, &format!("Architecture: {other}")))?;
    let file = place.join("foreign.deb");
    must(
        Command::new("dpkg-deb").args(["-Zgzip", "-z1", "-b"]).args([&unpacked, &file]),
        "dpkg-deb is part of Debian",
    )?;
    Ok((file, other))
}

/// What rpm reads in the package: that of the .deb, and what must be so.
fn rpm_says(packages: &Packages) -> Result<(), String> {
    let rpm = packages.rpm.to_string_lossy().into_owned();
    let about = said("rpm", &["-qip", &rpm])?;
    for line in ["Name        : interlock", "License     : Apache-2.0", "Vendor      : The Interlock authors"] {
        if !about.contains(line) {
            return Err(format!("{rpm} does not say `{line}`:\n{about}"));
        }
    }
    let files = |list: &str| -> Vec<String> {
        let ours = list.lines().map(|line| line.trim_start_matches('.').to_owned());
        let comparable = ours.filter(|file| !file.ends_with('/') && !file.contains("/doc/") && !file.contains("/man/"));
        let mut comparable: Vec<String> = comparable.map(|file| as_in_rpm(&file)).collect();
        comparable.sort();
        comparable
    };
    let deb = said("sh", &["-c", "dpkg-deb --fsys-tarfile \"$0\" | tar -t", &packages.deb.to_string_lossy()])?;
    let mut expected = files(&deb);
    expected.push(super::RPM_ALSO.1.to_owned());
    expected.sort();
    let found = files(&said("rpm", &["-qlp", &rpm])?);
    if found != expected {
        return Err(format!("the .rpm has other files than the .deb:\n{found:#?}\n{expected:#?}"));
    }
    let kept = said("rpm", &["-qcp", &rpm])?;
    if kept != "/etc/interlock/interlock.toml" {
        return Err(format!("the configuration of the .rpm is {kept:?}"));
    }
    Ok(())
}

fn as_in_rpm(file: &str) -> String {
    super::OTHER_PLACES.iter().fold(file.to_owned(), |file, (debian, other)| file.replace(debian, other))
}

/// A Debian in a folder.
struct Root {
    folder: PathBuf,
}

impl Root {
    /// Unpacks one; the archive is made once.
    fn make(places: &Places, folder: &Path) -> Result<Root, String> {
        let archive = places.target.join(format!("debian-{SUITE}.tar"));
        if !archive.exists() {
            let part = archive.with_extension("part.tar");
            let mut bootstrap = Command::new("mmdebstrap");
            bootstrap.args(["--variant=minbase", "--include=systemd,init-system-helpers,libstdc++6,util-linux,procps"]);
            bootstrap.arg(SUITE).arg(&part);
            must(&mut bootstrap, "Debian's archive is needed once; later runs use what is there")?;
            fs::rename(&part, &archive).map_err(|e| format!("{}: {e}", archive.display()))?;
        }
        emptied(folder)?;
        must(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(folder), "root is needed")?;
        Ok(Root { folder: folder.to_path_buf() })
    }

    /// Puts the packages, the trial and the stand-in for systemd there.
    fn bring(
        &self,
        places: &Places,
        old: &Packages,
        new: &Packages,
        foreign: &(PathBuf, &'static str),
    ) -> Result<(), String> {
        let packages = self.folder.join("packages");
        emptied(&packages)?;
        emptied(&self.folder.join("run/systemd/system"))?;
        for (from, name) in [
            (&old.deb, "old.deb"),
            (&new.deb, "new.deb"),
            (&foreign.0, "foreign.deb"),
            (&old.rpm, "old.rpm"),
            (&new.rpm, "new.rpm"),
        ] {
            copied(from, &packages.join(name))?;
        }
        written(&packages.join("foreign.txt"), foreign.1)?;
        let ours = places.root.join("cross/package");
        copied(&ours.join("trial.sh"), &self.folder.join("trial.sh"))?;
        let stand_in = self.folder.join("usr/bin/systemctl");
        let real = stand_in.with_extension("real");
        fs::rename(&stand_in, &real).map_err(|e| format!("{}: {e}", stand_in.display()))?;
        copied(&ours.join("systemctl-stand-in"), &stand_in)?;
        must(Command::new("chmod").arg("755").arg(stand_in), "root is needed")
    }

    /// A command inside, in name spaces of its own: what it leaves running ends with it, and what it mounts is gone.
    fn inside(&self, script: &str) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c"]);
        command.arg(format!(
            "mount -t proc proc {root}/proc && mount --rbind /dev {root}/dev && exec chroot {root} {script}",
            root = self.folder.display()
        ));
        // Its programs lie in the same places as everywhere.
        command.env_clear().env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("LANG", "C.UTF-8").stdin(Stdio::null());
        command
    }

    /// The life of the .deb. In the middle of it the state becomes that of an older version.
    fn deb(&self) -> Result<(), String> {
        let mut running =
            self.inside("sh /trial.sh").spawn().map_err(|e| format!("unshare: {e}\nhint: root is needed"))?;
        let older = self.folder.join("run/older");
        if !waited(&mut running, || older.exists())? {
            return Err("the trial ended before there was a state".to_owned());
        }
        let file = self.folder.join("var/lib/interlock/state.db").to_string_lossy().into_owned();
        let now: u32 = said("python3", &["-c", SCHEMA, &file])?.parse().map_err(|e| format!("schema: {e}"))?;
        let before = (now - 1).to_string();
        said("python3", &["-c", SCHEMA, &file, &before])?;
        fs::remove_file(&older).map_err(|e| format!("{}: {e}", older.display()))?;
        let upgraded = self.folder.join("run/upgraded");
        if !waited(&mut running, || upgraded.exists())? {
            return Err("the trial ended before the upgrade".to_owned());
        }
        let after = said("python3", &["-c", SCHEMA, &file])?;
        if after != now.to_string() {
            return Err(format!("after the upgrade the schema is {after}, not {now}"));
        }
        println!("trial: the schema went from {before} to {after}");
        waited(&mut running, || false)?;
        match running.wait() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("the trial of the .deb: {status}")),
            Err(e) => Err(format!("unshare: {e}")),
        }
    }

    /// The .rpm, by rpm itself: install, upgrade, erase. Its dependencies are those of other distributions.
    fn rpm(&self, old: &Packages, new: &Packages) -> Result<(), String> {
        let asked = self.folder.join("run/asked");
        written(&asked, "")?;
        let rpm = |arguments: &[&str], file: Option<&Path>| {
            let root = self.folder.display();
            let mut command = Command::new("unshare");
            command.args(["--mount", "sh", "-c", "mount -t proc proc \"$1/proc\" && exec rpm --root \"$@\"", "rpm"]);
            command.arg(root.to_string()).args(arguments).args(file);
            must(&mut command, "root is needed")
        };
        rpm(&["--initdb"], None)?;
        rpm(&["--nodeps", "-i"], Some(&old.rpm))?;
        let config = self.folder.join("etc/interlock/interlock.toml");
        let text = fs::read_to_string(&config).map_err(|e| format!("{}: {e}", config.display()))?;
        written(&config, text + "# changed here\n")?;
        rpm(&["--nodeps", "-U"], Some(&new.rpm))?;
        if !fs::read_to_string(&config).is_ok_and(|text| text.ends_with("# changed here\n")) {
            return Err("the .rpm's upgrade lost the changed configuration".to_owned());
        }
        let calls = fs::read_to_string(&asked).map_err(|e| format!("{}: {e}", asked.display()))?;
        for wanted in ["preset interlock.service", "try-restart interlock.service"] {
            if !calls.contains(wanted) {
                return Err(format!("the .rpm did not ask systemd for {wanted}; it asked\n{calls}"));
            }
        }
        let binary = self.folder.join("usr/bin/interlock");
        if !binary.exists() {
            return Err("the .rpm's upgrade lost the program".to_owned());
        }
        let owner = self.inside("stat -c %U:%G:%a /etc/interlock/interlock.toml").output();
        let owner = owner.map_err(|e| format!("unshare: {e}"))?;
        if String::from_utf8_lossy(&owner.stdout).trim() != "root:interlock:640" {
            return Err(format!("the configuration of the .rpm belongs to {owner:?}"));
        }
        rpm(&["-e", "interlock"], None)?;
        match binary.exists() {
            false => Ok(()),
            true => Err("the program is still there after rpm -e".to_owned()),
        }
    }
}

/// Waits until something is there (true) or the process has ended (false).
#[expect(clippy::disallowed_methods, reason = "a file inside the other root is the only sign that the trial can give")]
fn waited(running: &mut Child, there: impl Fn() -> bool) -> Result<bool, String> {
    for _ in 0..PATIENCE {
        if there() {
            return Ok(true);
        }
        if running.try_wait().map_err(|e| e.to_string())?.is_some() {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let _ = running.kill();
    Err(format!("the trial took longer than {} s", PATIENCE / 10))
}
