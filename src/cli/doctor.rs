//! `interlock doctor`: this machine, one line a check, each with what to do.
//!
//! It looks and changes nothing: of devices only the nodes of an accelerator are opened (opening a watchdog starts its
//! countdown), nothing is written into the state directory. What cannot be checked on this machine is said by name; silence would read as "fine".
//! [`examine`] gathers, [`lines`] judges: the judgement is a table of cases.

mod bring_up;
mod npu;
mod sandbox;
mod updates;

use std::env;
use std::fmt;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::args::{DoctorArgs, Lang};
use super::doctor_model::{self, ModelFacts};
use super::error::{CliError, Exit};
use super::out::Out;
use super::places;
use crate::boot::Places as Daemon;
use crate::store;
use crate::sys::clock::{self, TimeQuality};
use crate::sys::sandbox::{Support, support};
use crate::sys::{machine, open, pidfd};
pub use npu::Npus;
pub use updates::Updates;

/// Below this the evidence log has no room for a day of a busy box.
const FREE_WANTED: u64 = 512 << 20;

/// File systems that forget everything when the power goes.
const FORGETFUL: &[&str] = &["tmpfs", "ramfs", "overlay"];

/// File systems on which SQLite's write-ahead log does not work: it needs shared memory with locks.
const REMOTE: &[&str] = &["nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph"];

/// What a CPU line of `/proc/cpuinfo` says on a Phytium core.
const PHYTIUM_IMPLEMENTER: &str = "0x70";

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// As it should be.
    Good,
    /// It works, and somebody should know this.
    Note,
    /// Something will not work.
    Bad,
}

/// One check: what was found and what to do, each in English and in Chinese.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// A short stable word for scripts.
    pub check: &'static str,
    /// How it ended.
    pub verdict: Verdict,
    /// What was found.
    pub found: [String; 2],
    /// What to do; none where there is nothing to do.
    pub advice: Option<[String; 2]>,
}

impl Line {
    /// For a person.
    #[must_use]
    pub fn text(&self, lang: Lang) -> String {
        let at = at(lang);
        let sign = match self.verdict {
            Verdict::Good => "ok  ",
            Verdict::Note => "note",
            Verdict::Bad => "BAD ",
        };
        let advice = self.advice.as_ref().map(|advice| format!(" -> {}", advice[at])).unwrap_or_default();
        format!("{sign} {:<12} {}{advice}", self.check, self.found[at])
    }

    /// For a script: `{"check", "verdict": "good"|"note"|"bad", "found", "advice"}`.
    #[must_use]
    pub fn json(&self, lang: Lang) -> Value {
        let at = at(lang);
        let verdict = match self.verdict {
            Verdict::Good => "good",
            Verdict::Note => "note",
            Verdict::Bad => "bad",
        };
        let advice = self.advice.as_ref().map(|advice| advice[at].as_str());
        json!({ "check": self.check, "verdict": verdict, "found": self.found[at], "advice": advice })
    }
}

/// The place of a language in a pair of texts.
fn at(lang: Lang) -> usize {
    match lang {
        Lang::En => 0,
        Lang::Zh => 1,
    }
}

/// The verb.
pub(super) fn doctor(args: &DoctorArgs, socket: Option<&Path>, out: &Out) -> Result<(), CliError> {
    let state = places::state(args.state.as_deref()).ok_or_else(|| {
        CliError::new(Exit::Usage, "no state directory: neither --state nor HOME is set").hint("name one with --state")
    })?;
    let lines = match args.npu {
        true => bring_up::lines(&bring_up::examine()),
        false => {
            let config = places::config(args.config.as_deref());
            lines(&examine(&state, &places::client_socket(socket), config.as_deref(), store::sqlite_version()))
        }
    };
    for line in &lines {
        if args.json {
            out.json(&line.json(out.lang()))?;
        } else {
            out.line(&line.text(out.lang()))?;
        }
    }
    match lines.iter().any(|line| line.verdict == Verdict::Bad) {
        true => Err(CliError::silent(Exit::NotSo)),
        false => Ok(()),
    }
}

/// The lines for whoever is not at the command line; true for Chinese.
pub(super) fn health(daemon: &Daemon, zh: bool) -> Vec<Value> {
    let lang = if zh { Lang::Zh } else { Lang::En };
    let facts = examine(&daemon.state, &daemon.socket, daemon.config.as_deref(), store::sqlite_version());
    lines(&facts).iter().map(|line| line.json(lang)).collect()
}

/// What was seen on this machine.
#[derive(Debug, Clone)]
pub struct Facts {
    /// `Linux 6.1.0`.
    pub kernel: String,
    /// `aarch64`.
    pub machine: String,
    /// The death of a thread is an event (`PIDFD_THREAD`).
    pub thread_deaths_are_events: bool,
    /// Paths are opened without links by the kernel (`openat2`).
    pub has_openat2: bool,
    /// How good the wall clock is.
    pub time: TimeQuality,
    /// The wall clock, milliseconds after 1970.
    pub wall_ms: i64,
    /// What the kernel counts time with.
    pub clock_source: Option<String>,
    /// The state directory.
    pub state: StateFacts,
    /// `identity` and `state` of the hardware watchdog.
    pub watchdog: Option<(String, String)>,
    /// We run under a service watchdog.
    pub service_watchdog: bool,
    /// The version of SQLite in this build.
    pub sqlite: String,
    /// The model and what runs it.
    pub model: ModelFacts,
    /// Where the daemon's socket is or would be.
    pub socket: PathBuf,
    /// The socket is there.
    pub socket_exists: bool,
    /// We run as root.
    pub is_root: bool,
    /// Whether we are in the group `interlock`; none where there is no such group.
    pub in_group: Option<bool>,
    /// Why no port on loopback could be had.
    pub loopback: Result<(), String>,
    /// A Phytium core.
    pub is_phytium: bool,
    /// The CPU has the atomics of ARMv8.1.
    pub has_lse: bool,
    /// Ascend devices.
    pub npus: Npus,
    /// What there is for the sandbox of commands.
    pub sandbox: Support,
    /// Which updates count.
    pub updates: Updates,
}

/// What was seen of the state directory.
#[derive(Debug, Clone)]
pub struct StateFacts {
    /// Where it is, or would be made.
    pub path: PathBuf,
    /// It is there.
    pub exists: bool,
    /// It, or the directory that it would be made in, may be written to.
    pub writable: bool,
    /// Bytes that may still be written.
    pub free: Option<u64>,
    /// `ext4`.
    pub file_system: Option<String>,
}

/// Looks at this machine. `config` is the daemon's configuration, `sqlite` the version that the store is built with.
#[must_use]
pub fn examine(state: &Path, socket: &Path, config: Option<&Path>, sqlite: &str) -> Facts {
    let uname = machine::uname();
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let implementer = format!("CPU implementer\t: {PHYTIUM_IMPLEMENTER}");
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    Facts {
        kernel: uname.kernel,
        machine: uname.machine,
        thread_deaths_are_events: pidfd::has_threads(),
        has_openat2: open::has_openat2(),
        time: clock::time_quality(),
        wall_ms: clock::wall().0,
        clock_source: read_word("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        state: state_facts(state),
        watchdog: hardware_watchdog(),
        service_watchdog: env::var_os("WATCHDOG_USEC").is_some(),
        sqlite: sqlite.to_owned(),
        model: doctor_model::examine(),
        socket: socket.to_owned(),
        socket_exists: socket.exists(),
        is_root: numbers(&status, "Uid:").get(1) == Some(&0),
        in_group: group_of_daemon()
            .map(|group| numbers(&status, "Gid:").contains(&group) || numbers(&status, "Groups:").contains(&group)),
        loopback: TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map(drop).map_err(|error| error.to_string()),
        is_phytium: cpu.contains(&implementer),
        has_lse: cpu.lines().any(|line| line.starts_with("Features") && line.split(' ').any(|flag| flag == "atomics")),
        npus: npu::examine(),
        sandbox: support(),
        updates: updates::examine(state, config),
    }
}

fn read_word(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn numbers(status: &str, key: &str) -> Vec<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
    line.split_ascii_whitespace().filter_map(|number| number.parse().ok()).collect()
}

fn group_of_daemon() -> Option<u32> {
    let groups = fs::read_to_string("/etc/group").ok()?;
    let line = groups.lines().find_map(|line| line.strip_prefix("interlock:"))?;
    line.split(':').nth(1)?.parse().ok()
}

fn state_facts(path: &Path) -> StateFacts {
    let exists = path.is_dir();
    // A directory that is not there is judged by the nearest one that is.
    let nearest = path.ancestors().find(|at| at.is_dir()).unwrap_or(Path::new("/"));
    StateFacts {
        path: path.to_owned(),
        exists,
        writable: open::may_write(nearest),
        free: machine::room(nearest).ok().map(|room| if room.read_only { 0 } else { room.free }),
        file_system: nearest.canonicalize().ok().and_then(|at| {
            file_system(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default(), &at).map(str::to_owned)
        }),
    }
}

/// The type of the mount that holds `path`: the longest mount point above it, the last one of these in the list.
fn file_system<'m>(mountinfo: &'m str, path: &Path) -> Option<&'m str> {
    let mounts = mountinfo.lines().filter_map(|line| {
        let (fields, kind) = line.split_once(" - ")?;
        // Blanks in a mount point are written `\040`; such a mount is not ours.
        let point = Path::new(fields.split(' ').nth(4)?);
        path.starts_with(point).then_some((point.components().count(), kind.split(' ').next()?))
    });
    mounts.max_by_key(|(depth, _)| *depth).map(|(_, kind)| kind)
}

fn hardware_watchdog() -> Option<(String, String)> {
    let place = "/sys/class/watchdog/watchdog0";
    Path::new(place).exists().then(|| {
        let read = |file: &str| read_word(&format!("{place}/{file}")).unwrap_or_else(|| "unknown".to_owned());
        (read("identity"), read("state"))
    })
}

/// Judges what was seen, a line for each check.
#[must_use]
pub fn lines(facts: &Facts) -> Vec<Line> {
    vec![
        kernel(facts),
        cpu(facts),
        clock_line(facts),
        disk(&facts.state),
        sqlite(&facts.sqlite),
        watchdog(facts),
        user(facts),
        socket(facts),
        network(&facts.loopback),
        doctor_model::model_line(&facts.model),
        npu::judge(&facts.npus),
        sandbox::judge(facts.sandbox),
        updates::judge(&facts.updates),
    ]
}

pub(super) fn line(check: &'static str, verdict: Verdict, en: impl fmt::Display, zh: impl fmt::Display) -> Line {
    Line { check, verdict, found: [en.to_string(), zh.to_string()], advice: None }
}

impl Line {
    pub(super) fn advise(mut self, en: impl fmt::Display, zh: impl fmt::Display) -> Line {
        self.advice = Some([en.to_string(), zh.to_string()]);
        self
    }
}

fn kernel(facts: &Facts) -> Line {
    let (events, scans) = if facts.thread_deaths_are_events {
        ("the death of a thread is an event", "线程终止会立即得知")
    } else {
        (
            "the death of a thread is seen by the next scan (events from Linux 6.9 on)",
            "线程终止在下一次扫描时得知（Linux 6.9 起可立即得知）",
        )
    };
    let (opens, walks) = if facts.has_openat2 {
        ("openat2", "openat2 可用")
    } else {
        ("no openat2, paths are walked step by step", "无 openat2，逐级打开路径")
    };
    let (kernel, machine) = (&facts.kernel, &facts.machine);
    line(
        "kernel",
        Verdict::Good,
        format_args!("{kernel} {machine}: {events}; {opens}"),
        format_args!("{kernel} {machine}：{scans}；{walks}"),
    )
}

fn cpu(facts: &Facts) -> Line {
    if !facts.is_phytium {
        return line(
            "cpu",
            Verdict::Note,
            format_args!("{}: no Phytium core, so the checks for Phytium boards cannot run here", facts.machine),
            format_args!("{}：不是飞腾处理器，飞腾主板的检查无法在此运行", facts.machine),
        );
    }
    let (en, zh) = if facts.has_lse {
        ("with LSE atomics", "支持 LSE 原子指令")
    } else {
        ("ARMv8.0, without LSE atomics", "ARMv8.0，不支持 LSE 原子指令")
    };
    line("cpu", Verdict::Good, format_args!("Phytium, {en}"), format_args!("飞腾，{zh}"))
}

fn clock_line(facts: &Facts) -> Line {
    let source = facts.clock_source.as_deref().unwrap_or("?");
    // A clock without a battery starts in 1970; before 2024 this program did not exist.
    let year = 1970 + facts.wall_ms / (365 * 86_400_000 + 21_600_000);
    let stamped = ("evidence rows are marked UNSYNCED", "证据行标记为 UNSYNCED");
    match facts.time {
        TimeQuality::Synced => line(
            "clock",
            Verdict::Good,
            format_args!("wall clock is kept right; monotonic clock by {source}"),
            format_args!("系统时间已同步；单调时钟来源 {source}"),
        ),
        TimeQuality::Unsynced if year < 2024 => line(
            "clock",
            Verdict::Bad,
            format_args!("wall clock says {year}: it was never set; {}", stamped.0),
            format_args!("系统时间为 {year} 年：从未校准；{}", stamped.1),
        )
        .advise(
            "set it: timedatectl set-time, then give the box an NTP server or a clock battery",
            "请校准：timedatectl set-time，并配置 NTP 服务器或更换时钟电池",
        ),
        TimeQuality::Unsynced => line(
            "clock",
            Verdict::Note,
            format_args!("nothing keeps the wall clock right; {}", stamped.0),
            format_args!("系统时间无人校准；{}", stamped.1),
        )
        .advise("start chrony or systemd-timesyncd", "请启用 chrony 或 systemd-timesyncd"),
        TimeQuality::Unknown => line(
            "clock",
            Verdict::Note,
            "whether the wall clock is kept right may not be asked here",
            "此处无权查询系统时间是否同步",
        )
        .advise(
            "run it outside of the unit, or set ProtectClock=no in it",
            "请在服务单元之外运行，或在单元中设置 ProtectClock=no",
        ),
    }
}

fn disk(state: &StateFacts) -> Line {
    let path = state.path.display();
    let kind = state.file_system.as_deref().unwrap_or("?");
    let free = state.free.unwrap_or(0) >> 20;
    let bad = |en: String, zh: String| line("disk", Verdict::Bad, en, zh);
    let there = if state.exists { ("", "") } else { (" (to be made)", "（尚未创建）") };
    if !state.writable {
        return bad(format!("{path}{} may not be written to", there.0), format!("{path}{} 不可写", there.1)).advise(
            "run it as the daemon's user, or name another with --state",
            "请以守护进程的用户运行，或用 --state 指定其他目录",
        );
    }
    if REMOTE.contains(&kind) {
        return bad(
            format!("{path} is on {kind}, where SQLite's log is not safe"),
            format!("{path} 位于 {kind}，SQLite 日志在其上不安全"),
        )
        .advise("use a local disk", "请使用本地磁盘");
    }
    if state.free.is_none_or(|free| free < FREE_WANTED) {
        return bad(format!("{path} on {kind} has {free} MiB left"), format!("{path}（{kind}）仅剩 {free} MiB"))
            .advise(
                format_args!("free some: {} MiB are wanted for the evidence log", FREE_WANTED >> 20),
                format_args!("请清理磁盘：证据日志至少需要 {} MiB", FREE_WANTED >> 20),
            );
    }
    let (en, zh) = (
        format!("{path}{} on {kind}, {free} MiB free, writable", there.0),
        format!("{path}{}（{kind}），剩余 {free} MiB，可写", there.1),
    );
    if FORGETFUL.contains(&kind) {
        return line("disk", Verdict::Note, en, zh).advise(
            "evidence may not survive a restart of the box on it: use a disk",
            "设备重启后证据可能丢失：请使用磁盘",
        );
    }
    line("disk", Verdict::Good, en, zh)
}

fn sqlite(version: &str) -> Line {
    // Earlier ones can lose committed rows when a write-ahead log is reset (liveness-evidence, "Evidence").
    let numbers: Vec<u32> = version.split('.').filter_map(|number| number.parse().ok()).collect();
    if numbers.as_slice() >= [3, 51, 3].as_slice() {
        return line("sqlite", Verdict::Good, format_args!("{version}, built in"), format_args!("{version}，内置"));
    }
    line(
        "sqlite",
        Verdict::Bad,
        format_args!("{version} has the WAL-reset bug"),
        format_args!("{version} 存在 WAL 重置缺陷"),
    )
    .advise("use a build with 3.51.3 or later", "请使用 3.51.3 或更高版本构建")
}

fn watchdog(facts: &Facts) -> Line {
    let (service, by) = if facts.service_watchdog {
        ("systemd watches this process", "systemd 正在监视本进程")
    } else {
        ("the unit's WatchdogSec is seen only from inside it", "服务看门狗仅在服务单元内可见")
    };
    match &facts.watchdog {
        Some((identity, state)) if state == "active" => line(
            "watchdog",
            Verdict::Good,
            format_args!("{identity} is active; {service}"),
            format_args!("{identity} 已启用；{by}"),
        ),
        Some((identity, state)) => line(
            "watchdog",
            Verdict::Note,
            format_args!("{identity} is {state}; {service}"),
            format_args!("{identity} 状态为 {state}；{by}"),
        )
        .advise(
            "set RuntimeWatchdogSec=30 in /etc/systemd/system.conf",
            "请在 /etc/systemd/system.conf 中设置 RuntimeWatchdogSec=30",
        ),
        None => line(
            "watchdog",
            Verdict::Note,
            format_args!("no hardware watchdog: a kernel that hangs is restarted by nobody; {service}"),
            format_args!("没有硬件看门狗：内核挂起时无法自动重启；{by}"),
        )
        .advise("load the board's watchdog driver, if it has one", "如主板支持，请加载看门狗驱动"),
    }
}

fn user(facts: &Facts) -> Line {
    match (facts.is_root, facts.in_group) {
        (true, _) => line("user", Verdict::Note, "root", "root 用户").advise(
            "the daemon needs no root: the unit runs it as the user interlock",
            "守护进程不需要 root：服务单元以 interlock 用户运行",
        ),
        (false, Some(true)) => line("user", Verdict::Good, "in the group interlock", "属于 interlock 组"),
        (false, Some(false)) => line("user", Verdict::Note, "not in the group interlock", "不属于 interlock 组")
            .advise(
                "to speak to the system's daemon: usermod -aG interlock NAME",
                "如需访问系统守护进程：usermod -aG interlock 用户名",
            ),
        (false, None) => line("user", Verdict::Note, "there is no group interlock", "系统中没有 interlock 组").advise(
            "install the package, or systemd-sysusers with its sysusers.conf",
            "请安装软件包，或用 systemd-sysusers 加载 sysusers.conf",
        ),
    }
}

fn socket(facts: &Facts) -> Line {
    let path = facts.socket.display();
    if facts.socket_exists {
        return line("socket", Verdict::Good, format_args!("{path} is there"), format_args!("{path} 存在"));
    }
    let directory = facts.socket.parent().unwrap_or(Path::new("/"));
    if directory.is_dir() && !open::may_write(directory) {
        return line(
            "socket",
            Verdict::Note,
            format_args!("{} may not be written to", directory.display()),
            format_args!("{} 不可写", directory.display()),
        )
        .advise("a daemon that you start yourself needs --socket", "自行启动守护进程时需指定 --socket");
    }
    line("socket", Verdict::Note, format_args!("{path}: no daemon has made it"), format_args!("{path}：守护进程未创建"))
        .advise(
            "start it: interlock run, or systemctl start interlock",
            "请启动：interlock run 或 systemctl start interlock",
        )
}

fn network(loopback: &Result<(), String>) -> Line {
    match loopback {
        Ok(()) => line("network", Verdict::Good, "a port on loopback can be had", "可绑定回环端口"),
        Err(why) => line(
            "network",
            Verdict::Bad,
            format_args!("no port on loopback: {why}"),
            format_args!("无法绑定回环端口：{why}"),
        )
        .advise("bring it up: ip link set lo up", "请启用回环接口：ip link set lo up"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::update::{InForce, Of, Refused};
    use crate::store::update::Part;

    fn good() -> Facts {
        Facts {
            kernel: "Linux 6.12.0".to_owned(),
            machine: "aarch64".to_owned(),
            thread_deaths_are_events: true,
            has_openat2: true,
            time: TimeQuality::Synced,
            wall_ms: 1_780_000_000_000,
            clock_source: Some("arch_sys_counter".to_owned()),
            state: StateFacts {
                path: "/var/lib/interlock".into(),
                exists: true,
                writable: true,
                free: Some(8 << 30),
                file_system: Some("ext4".to_owned()),
            },
            watchdog: Some(("SP805".to_owned(), "active".to_owned())),
            service_watchdog: true,
            sqlite: "3.53.0".to_owned(),
            model: ModelFacts::NoRuntime,
            socket: "/run/interlock/interlock.sock".into(),
            socket_exists: true,
            is_root: false,
            in_group: Some(true),
            loopback: Ok(()),
            is_phytium: true,
            has_lse: true,
            npus: Npus::default(),
            sandbox: Support { landlock: Some(6), seccomp: true },
            updates: Updates::Seen(InForce::default()),
        }
    }

    /// The line of one check after one fact was changed, in English.
    fn check(check: &str, change: impl FnOnce(&mut Facts), expected: &str) {
        let mut facts = good();
        change(&mut facts);
        let line = lines(&facts).into_iter().find(|line| line.check == check).unwrap();
        assert_eq!(line.text(Lang::En), expected);
    }

    #[test]
    fn each_finding_has_its_words_and_its_advice() {
        check("kernel", |_| {}, "ok   kernel       Linux 6.12.0 aarch64: the death of a thread is an event; openat2");
        check("clock", |_| {}, "ok   clock        wall clock is kept right; monotonic clock by arch_sys_counter");
        check(
            "clock",
            |facts| (facts.time, facts.wall_ms) = (TimeQuality::Unsynced, 86_400_000),
            "BAD  clock        wall clock says 1970: it was never set; evidence rows are marked UNSYNCED -> set it: \
             timedatectl set-time, then give the box an NTP server or a clock battery",
        );
        check("disk", |_| {}, "ok   disk         /var/lib/interlock on ext4, 8192 MiB free, writable");
        check(
            "disk",
            |facts| facts.state.free = Some(FREE_WANTED - 1),
            "BAD  disk         /var/lib/interlock on ext4 has 511 MiB left -> free some: 512 MiB are wanted for the \
             evidence log",
        );
        check(
            "disk",
            |facts| facts.state.file_system = Some("nfs4".to_owned()),
            "BAD  disk         /var/lib/interlock is on nfs4, where SQLite's log is not safe -> use a local disk",
        );
        check(
            "disk",
            |facts| facts.state.writable = false,
            "BAD  disk         /var/lib/interlock may not be written to -> run it as the daemon's user, or name another \
             with --state",
        );
        check("sqlite", |facts| facts.sqlite = "3.51.3".to_owned(), "ok   sqlite       3.51.3, built in");
        check(
            "sqlite",
            |facts| facts.sqlite = "3.51.2".to_owned(),
            "BAD  sqlite       3.51.2 has the WAL-reset bug -> use a build with 3.51.3 or later",
        );
        check("npu", |_| {}, "note npu          no /dev/davinci*: the checks for Ascend cannot run here");
        check(
            "npu",
            |facts| facts.npus = Npus { cards: 1, refused: vec!["/dev/hisi_hdc".to_owned()] },
            "BAD  npu          /dev/hisi_hdc may not be opened -> as a service, list each in a drop-in \
             (interlock-npu.conf): DeviceAllow=/dev/hisi_hdc rw",
        );
        check("sandbox", |_| {}, "ok   sandbox      commands of tools are confined: Landlock 6, system calls filtered");
        check(
            "sandbox",
            |facts| facts.sandbox.landlock = None,
            "note sandbox      no Landlock on this kernel: a command may write and read what the daemon may -> allow \
             fewer commands without a question; Landlock is there from Linux 5.13 on",
        );
        check(
            "sandbox",
            |facts| facts.sandbox = Support { landlock: None, seccomp: false },
            "note sandbox      neither Landlock nor filters of system calls on this kernel: a command may do what the \
             daemon may -> allow fewer commands without a question; use a kernel (Linux 5.13 or later) with \
             CONFIG_SECCOMP_FILTER and CONFIG_SECURITY_LANDLOCK",
        );
        check("update", |_| {}, "ok   update       commands as shipped, model as shipped");
        let of = Of { version: "2026.12".to_owned(), id: "1f".repeat(32), signer: "2e".repeat(32) };
        let active = InForce { commands: Some(of), ..InForce::default() };
        check(
            "update",
            |facts| facts.updates = Updates::Seen(active.clone()),
            "ok   update       commands 2026.12, model as shipped",
        );
        let refused = Refused { part: Part::Model, id: "3d".repeat(32), why: "it is not what was signed".to_owned() };
        check(
            "update",
            |facts| facts.updates = Updates::Seen(InForce { refused: vec![refused], ..active.clone() }),
            "BAD  update       commands 2026.12, model as shipped, model 3d3d3d3d3d3d does not count: it is not what was \
             signed -> apply it again, or interlock update none",
        );
        check(
            "update",
            |facts| facts.updates = Updates::Seen(InForce { overridden: vec![Part::Commands], ..InForce::default() }),
            "note update       commands of the configuration, model as shipped -> an update is active and does not \
             count: take [commands] files or [model] manifest out, or interlock update none",
        );
        check(
            "network",
            |facts| facts.loopback = Err("no such device".to_owned()),
            "BAD  network      no port on loopback: no such device -> bring it up: ip link set lo up",
        );
    }

    #[test]
    fn a_box_as_it_should_be_has_nothing_bad_and_each_line_speaks_both_languages() {
        let lines = lines(&good());
        assert!(lines.iter().all(|line| line.verdict != Verdict::Bad));
        for line in lines.iter().filter(|line| line.check != "sqlite") {
            assert_ne!(line.text(Lang::En), line.text(Lang::Zh), "{}", line.check);
        }
        let json = lines[3].json(Lang::Zh);
        assert_eq!(
            json,
            json!({
                "check": "disk", "verdict": "good", "advice": null,
                "found": "/var/lib/interlock（ext4），剩余 8192 MiB，可写",
            })
        );
    }

    #[test]
    fn the_nearest_mount_says_what_file_system_it_is() {
        let mounts = "22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n\
                      30 22 0:25 / /run rw - tmpfs tmpfs rw\n\
                      31 22 0:26 / /var/lib rw shared:9 master:1 - xfs /dev/sdb rw\n";
        let check = |path: &str, expected| assert_eq!(file_system(mounts, Path::new(path)), Some(expected), "{path}");
        check("/var/lib/interlock", "xfs");
        check("/var/library", "ext4");
        check("/run", "tmpfs");
        check("/", "ext4");
        assert_eq!(file_system("", Path::new("/")), None);
    }

    #[test]
    fn this_machine_is_looked_at_without_a_trace() {
        let place = tempfile::tempdir().unwrap();
        let state = place.path().join("state/interlock");
        let facts = examine(&state, &place.path().join("interlock.sock"), None, "3.53.0");
        assert!(facts.kernel.starts_with("Linux") && facts.state.writable && !facts.state.exists);
        assert_eq!((facts.loopback.clone(), facts.socket_exists), (Ok(()), false));
        assert_eq!(lines(&facts).len(), 13);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }
}
