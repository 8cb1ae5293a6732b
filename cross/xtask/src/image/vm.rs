//! A box under emulation: started from the raw disk as its firmware would, spoken to over a console of its own, and cut
//! off like a box whose plug is pulled.
//!
//! The slot that runs is the one that is shipped: what a trial needs (a shell at a console) comes in with the
//! site's files, which lie on the state partition. The processor is emulated in full, so that no virtualization is needed
//! and times are an upper bound.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::board::Board;

/// How long one start may take, until the shell answers: the slowest that was seen is a third of it.
pub(super) const START_PATIENCE: Duration = Duration::from_secs(420);

/// How long one command may be silent.
const COMMAND_PATIENCE: Duration = Duration::from_secs(180);

/// The shell at the console: one line is one command, its code follows its words.
const SHELL: &str = "\
#!/bin/sh
stty raw -echo
echo interlock-trial-shell
while read -r line; do
  sh -c \"$line\" 2>&1 </dev/null
  printf '\\n\\004%s\\n' $?
done
";

const SHELL_UNIT: &str = "\
[Unit]
Description=Shell of the trial
DefaultDependencies=no
After=dev-hvc0.device
BindsTo=dev-hvc0.device
[Service]
ExecStart=/bin/sh /etc/trial-shell
StandardInput=tty
StandardOutput=tty
TTYPath=/dev/hvc0
Restart=always
";

/// The site's files with the shell, and this configuration besides the one that is shipped.
pub(super) fn site(folder: &Path, config: &str) -> Result<(), String> {
    let told = |e: std::io::Error| format!("{}: {e}", folder.display());
    let _ = fs::remove_dir_all(folder);
    let wants = folder.join("systemd/system/basic.target.wants");
    fs::create_dir_all(&wants).map_err(told)?;
    fs::create_dir_all(folder.join("interlock")).map_err(told)?;
    fs::write(folder.join("trial-shell"), SHELL).map_err(told)?;
    fs::write(folder.join("systemd/system/trial-shell.service"), SHELL_UNIT).map_err(told)?;
    std::os::unix::fs::symlink("../trial-shell.service", wants.join("trial-shell.service")).map_err(told)?;
    fs::write(folder.join("interlock/interlock.toml"), config).map_err(told)
}

/// How the box is started.
pub(super) struct Setting<'a> {
    pub(super) board: &'a Board,
    /// A raw disk, or an address of one as qemu writes it.
    pub(super) disk: String,
    /// How qemu treats what the guest writes.
    pub(super) cache: &'a str,
    /// More of qemu's words: a clock, another disk.
    pub(super) more: Vec<String>,
    /// Sockets and logs.
    pub(super) folder: &'a Path,
}

/// A box that runs; it is cut off when it is dropped.
pub(super) struct Vm {
    child: Child,
    shell: BufReader<UnixStream>,
    serial: PathBuf,
    /// When it was switched on.
    pub(super) begun: Instant,
}

impl Drop for Vm {
    fn drop(&mut self) {
        self.cut();
    }
}

impl Vm {
    /// Switched on; the shell may not answer yet.
    pub(super) fn start(setting: &Setting<'_>) -> Result<Vm, String> {
        let folder = setting.folder;
        fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let (socket, serial) = (folder.join("shell.sock"), folder.join("serial.log"));
        for old in [&socket, &serial] {
            let _ = fs::remove_file(old);
        }
        let mut qemu = machine_of(setting.board, folder)?;
        qemu.args(["-smp", "2", "-m", "1024", "-display", "none", "-monitor", "none", "-no-user-config"])
            .args(["-serial", &format!("file:{}", serial.display())])
            .args(["-drive", &format!("if=none,id=disk,format=raw,cache={},file={}", setting.cache, setting.disk)])
            .args(["-device", "virtio-blk-pci,drive=disk,bootindex=0"])
            .args(["-netdev", "user,id=net,restrict=on", "-device", "virtio-net-pci,netdev=net,romfile="])
            .args(["-device", "virtio-serial-pci", "-device", "virtconsole,chardev=shell"])
            .args(["-chardev", &format!("socket,id=shell,server=on,wait=off,path={}", socket.display())])
            .args(&setting.more)
            .stdin(Stdio::null());
        let log = fs::File::create(folder.join("qemu.log")).map_err(|e| format!("qemu.log: {e}"))?;
        let mut child = qemu.stderr(log).spawn().map_err(|e| format!("{qemu:?}: {e}"))?;
        let begun = Instant::now();
        let stream = loop {
            match UnixStream::connect(&socket) {
                Ok(stream) => break stream,
                Err(e) if begun.elapsed() > Duration::from_secs(30) => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(format!("qemu does not answer ({e}); see {}", folder.join("qemu.log").display()));
                }
                Err(_) => pause(Duration::from_millis(50)),
            }
        };
        Ok(Vm { child, shell: BufReader::new(stream), serial, begun })
    }

    /// Waits until the shell answers for the first time in a start; gives back how long it took since the power came.
    pub(super) fn answers(&mut self) -> Result<Duration, String> {
        let until = Instant::now() + START_PATIENCE;
        loop {
            let line = self.line(until)?;
            if line.contains("interlock-trial-shell") {
                return Ok(self.begun.elapsed());
            }
        }
    }

    /// Runs a command; gives back its words, and an error unless its code is 0.
    pub(super) fn run(&mut self, command: &str) -> Result<String, String> {
        match self.ends(command)? {
            (0, said) => Ok(said),
            (code, said) => Err(format!("in the box: {command}: exit code {code}\n{said}")),
        }
    }

    /// Runs a command; gives back its code and its words.
    pub(super) fn ends(&mut self, command: &str) -> Result<(i32, String), String> {
        self.send(command)?;
        let mut said = String::new();
        loop {
            let line = self.line(Instant::now() + COMMAND_PATIENCE)?;
            match line.strip_prefix('\u{4}') {
                Some(code) => {
                    let code = code.trim().parse().map_err(|_| format!("the shell says {line:?}"))?;
                    return Ok((code, said.trim().to_owned()));
                }
                None => said += &line,
            }
        }
    }

    /// Starts a command whose words are read line by line.
    pub(super) fn send(&mut self, command: &str) -> Result<(), String> {
        debug_assert!(!command.contains('\n'), "one line is one command");
        self.shell.get_mut().write_all(format!("{command}\n").as_bytes()).map_err(|e| format!("shell of the box: {e}"))
    }

    /// One line of what the shell says.
    pub(super) fn line(&mut self, until: Instant) -> Result<String, String> {
        let mut bytes = Vec::new();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(format!("the box says nothing more; its console ends with\n{}", self.console_end()));
            }
            let slice = left.min(Duration::from_millis(500)).max(Duration::from_millis(1));
            self.shell.get_ref().set_read_timeout(Some(slice)).map_err(|e| format!("shell of the box: {e}"))?;
            match self.shell.read_until(b'\n', &mut bytes) {
                Ok(0) => return Err(format!("the box has stopped; its console ends with\n{}", self.console_end())),
                Ok(_) => return Ok(String::from_utf8_lossy(&bytes).into_owned()),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(e) => return Err(format!("shell of the box: {e}")),
            }
        }
    }

    /// The plug is pulled.
    pub(super) fn cut(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }

    /// What the box has said at its console.
    pub(super) fn console(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.serial).unwrap_or_default()).into_owned()
    }

    fn console_end(&self) -> String {
        let console = self.console();
        let lines: Vec<&str> = console.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }

    /// Waits for words at the console.
    pub(super) fn console_says(&self, words: &str, patience: Duration) -> Result<(), String> {
        let begun = Instant::now();
        while !self.console().contains(words) {
            if begun.elapsed() > patience {
                return Err(format!("{words:?} was not said at the console; it ends with\n{}", self.console_end()));
            }
            pause(Duration::from_millis(200));
        }
        Ok(())
    }
}

/// The emulated machine with its firmware, whose variables are new each time: a box must start without them.
fn machine_of(board: &Board, folder: &Path) -> Result<Command, String> {
    let mut qemu = Command::new(format!("qemu-system-{}", board.machine()));
    let accel = ["-accel", "tcg,thread=multi,tb-size=512"];
    match board.machine() {
        "aarch64" => {
            qemu.args(["-machine", "virt,gic-version=3", "-cpu", "cortex-a72"]).args(accel);
            qemu.args(["-bios", "/usr/share/qemu-efi-aarch64/QEMU_EFI.fd"]);
        }
        _ => {
            let variables = folder.join("variables.fd");
            fs::copy("/usr/share/OVMF/OVMF_VARS_4M.fd", &variables).map_err(|e| format!("firmware: {e}"))?;
            qemu.args(["-machine", "q35", "-cpu", "max"]).args(accel);
            qemu.args(["-drive", "if=pflash,format=raw,readonly=on,file=/usr/share/OVMF/OVMF_CODE_4M.fd"]);
            qemu.args(["-drive", &format!("if=pflash,format=raw,file={}", variables.display())]);
        }
    }
    Ok(qemu)
}

#[expect(clippy::disallowed_methods, reason = "what is waited for is another machine, which sends no event")]
pub(super) fn pause(time: Duration) {
    std::thread::sleep(time);
}
