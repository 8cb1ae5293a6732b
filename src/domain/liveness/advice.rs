//! What a person may do next about a task that is not simply running: one sentence for each cause.

use super::lifecycle::Cause;

/// One sentence in the two languages of the product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Advice {
    /// Chinese.
    pub zh: &'static str,
    /// English.
    pub en: &'static str,
}

/// What to do about it; none where nothing is to be done.
#[must_use]
pub fn advice(cause: Cause) -> Option<Advice> {
    let (zh, en) = match cause {
        Cause::Paused => {
            ("由人暂停；用 `interlock task resume` 继续", "paused by a person; go on with `interlock task resume`")
        }
        Cause::Starved => (
            "机器没有给它足够的 CPU 时间，重启只会更糟；减少负载",
            "the machine gives it no time, and a restart makes that worse; take load away",
        ),
        Cause::Slow => ("进度在推进，只是慢；不必处理", "it is slow and makes progress; leave it"),
        Cause::Suspicious | Cause::HalfTau => {
            ("沉默超过它平常的间隔；先观察", "it is silent for longer than it usually is; watch it")
        }
        Cause::NoBeat => (
            "没有心跳，原因未明；查看计数器，或用 `interlock task stop` 停止",
            "silent, and the counters do not tell why; look at them, or `interlock task stop`",
        ),
        Cause::Deadlock => (
            "它在等待一把无人释放的锁；只能放弃并更换，请保留此记录供开发者查看",
            "it waits for a lock that nobody gives back; give it up and replace it, and keep this record for its makers",
        ),
        Cause::BlockedIo => (
            "它在等待设备、管道或网络；检查对端，恢复后它会继续",
            "it waits for a device, a pipe or the network; look at the other end, then it goes on",
        ),
        Cause::BlockedInKernel => (
            "它停在内核中（D 状态），无法结束；检查磁盘、挂载点或驱动",
            "it is in the kernel's hands (state D) and cannot be ended; look at the disk, the mount or the driver",
        ),
        Cause::BlockedExternal => (
            "外部设备（如 NPU）没有按时返回；检查设备或其驱动",
            "what it called outside (an NPU, a library) did not return in time; look at the device or its driver",
        ),
        Cause::Livelock => (
            "它占用 CPU 却没有进展；停止它，并保留此记录供开发者查看",
            "it uses the CPU and gets nowhere; stop it, and keep this record for its makers",
        ),
        Cause::PhaseOverrun => {
            ("它声明的阶段超过了时限；等待，或停止它", "a phase that it declared is beyond its limit; wait, or stop it")
        }
        Cause::Abandoned => (
            "已放弃：它不能再动作；线程结束前仍会占用资源",
            "given up: it cannot act any more, and holds its memory until its thread ends",
        ),
        Cause::Panic | Cause::Vanished | Cause::Killed => (
            "它已异常结束；查看原因，之后用 `interlock task clean` 清理",
            "it ended abnormally; read why, then `interlock task clean`",
        ),
        Cause::Error => ("它报告了错误；查看原因", "it reports an error; read it"),
        Cause::RestartHeld => (
            "重启次数过多，已停住；排除原因后再启动",
            "restarted too often, and held; take the reason away, then start it again",
        ),
        Cause::DependencyPoisoned => (
            "它依赖的任务崩溃了，共享的数据可能不完整；考虑重启它",
            "a task that it needs died, and what they share may be half done; consider starting it again",
        ),
        Cause::WrongThreadHeartbeat
        | Cause::ProgressBackwards
        | Cause::PhaseLimitCut
        | Cause::CheckpointOrder
        | Cause::BeatRate => {
            ("它对自己的状态说法有误；请告知开发者", "what it says of itself is not so; tell its makers")
        }
        Cause::Spawned
        | Cause::Resumed
        | Cause::RecoveredProgress
        | Cause::RecoveredBeat
        | Cause::StopAsked
        | Cause::Success
        | Cause::StoppedOnRequest
        | Cause::CleanedOnRequest
        | Cause::Expired
        | Cause::SupervisorStarted
        | Cause::SupervisorGap
        | Cause::SpawnRefused
        | Cause::Escalated
        | Cause::ClockStep
        | Cause::NoticesLost
        | Cause::WatchdogHeld => return None,
    };
    Some(Advice { zh, en })
}
