//! The sandbox of what tools start: what this kernel has of it.

use super::{Line, Verdict, line};
use crate::sys::sandbox::Support;

/// The version from which on a command cannot signal what is outside of its sandbox.
const WITH_SIGNALS: u32 = 6;

pub(super) fn judge(support: Support) -> Line {
    let missing = |en: &str, zh: &str| line("sandbox", Verdict::Note, en, zh);
    match support {
        Support { landlock: None, seccomp: false } => missing(
            "neither Landlock nor filters of system calls on this kernel: a command may do what the daemon may",
            "内核既没有 Landlock 也不支持系统调用过滤：命令可做守护进程可做的一切",
        )
        .advise(
            "allow fewer commands without a question; use a kernel (Linux 5.13 or later) with CONFIG_SECCOMP_FILTER and \
             CONFIG_SECURITY_LANDLOCK",
            "请减少免确认的命令；请使用启用 CONFIG_SECCOMP_FILTER 和 CONFIG_SECURITY_LANDLOCK 的内核（Linux 5.13 起）",
        ),
        Support { seccomp: false, .. } => missing(
            "no filters of system calls on this kernel: a command has all of the daemon's",
            "内核不支持系统调用过滤：命令可使用守护进程的全部系统调用",
        )
        .advise("use a kernel with CONFIG_SECCOMP_FILTER", "请使用启用 CONFIG_SECCOMP_FILTER 的内核"),
        Support { landlock: None, .. } => missing(
            "no Landlock on this kernel: a command may write and read what the daemon may",
            "内核没有 Landlock：命令可读写守护进程可读写的一切",
        )
        .advise(
            "allow fewer commands without a question; Landlock is there from Linux 5.13 on",
            "请减少免确认的命令；Linux 5.13 起才有 Landlock",
        ),
        Support { landlock: Some(version @ ..WITH_SIGNALS), .. } => missing(
            &format!("Landlock {version}: files are confined; a command may signal the daemon (not from 6 on)"),
            &format!("Landlock {version}：文件访问受限；命令仍可向守护进程发信号（版本 6 起不可）"),
        ),
        Support { landlock: Some(version), .. } => line(
            "sandbox",
            Verdict::Good,
            format_args!("commands of tools are confined: Landlock {version}, system calls filtered"),
            format_args!("工具执行的命令受限：Landlock {version}，系统调用受过滤"),
        ),
    }
}
