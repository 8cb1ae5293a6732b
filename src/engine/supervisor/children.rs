//! Workers that are child processes: launched on a thread of their own, heard through the socket, killed by group.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Duration;

use interlock_domain::id::{TaskId, WorkerKey};
use interlock_domain::liveness::lifecycle::{Outcome, Said};
use interlock_domain::time::Tick;

use super::patrol::{Body, EAR, Patrol};
use super::slot::{Deaths, Slot};
use super::spec::{ChildSpec, SpawnRefused, TaskSpec};
use super::{Reply, Request};
use crate::sys::child::{self, Exit, Process};
use crate::sys::notified::{Told, group_of};
use crate::sys::thread;
use crate::sys::wake::Bell;

/// Messages taken in one round: a program that talks without end must not put off a scan.
const HEARD_MAX: usize = 256;
/// Bytes of a program's status that are kept.
const STATUS_MAX: usize = 256;
/// The stack of a launching thread.
const LAUNCH_STACK: usize = 256 * 1024;

/// A program on its way to become a process.
pub(super) struct Launch {
    pub(super) spec: TaskSpec,
    pub(super) child: ChildSpec,
    pub(super) tau: Duration,
    pub(super) again_for: Option<TaskId>,
    pub(super) reply: Option<Reply<Result<WorkerKey, SpawnRefused>>>,
    pub(super) requests: SyncSender<Box<Request>>,
    pub(super) bell: Bell,
    pub(super) ear: Arc<str>,
}

/// What became of it.
pub(super) struct Launched {
    pub(super) spec: TaskSpec,
    pub(super) child: ChildSpec,
    pub(super) again_for: Option<TaskId>,
    pub(super) reply: Option<Reply<Result<WorkerKey, SpawnRefused>>>,
    pub(super) process: std::io::Result<Process>,
}

impl Launch {
    /// On a thread of its own: loading a program can take as long as its disk does.
    pub(super) fn start(self) -> std::io::Result<()> {
        thread::spawn("launch", LAUNCH_STACK, Box::new(move || self.run())).map(drop)
    }

    fn run(self) {
        let mut command = Command::new(&self.child.program);
        child::forget_private(&mut command);
        command.args(&self.child.args).envs(self.child.envs.iter().map(|(key, value)| (key, value)));
        command.env("NOTIFY_SOCKET", &*self.ear).env("WATCHDOG_USEC", self.tau.as_micros().to_string());
        command.stdin(Stdio::null());
        if let Some(folder) = &self.child.folder {
            command.current_dir(folder);
        }
        let process = Process::start(&mut command);
        let Launch { spec, child, again_for, reply, requests, bell, .. } = self;
        let launched = Launched { spec, child, again_for, reply, process };
        match requests.try_send(Box::new(Request::Launched(Box::new(launched)))) {
            Ok(()) => bell.ring(),
            Err(TrySendError::Full(request) | TrySendError::Disconnected(request)) => {
                // Nobody supervises: then it must not run.
                if let Request::Launched(launched) = *request
                    && let Ok(process) = launched.process
                {
                    process.kill_group();
                }
            }
        }
    }
}

impl Patrol {
    /// A program has become a process, or has not.
    pub(super) fn launched(&mut self, launched: Launched, now: Tick) {
        let Launched { spec, child, again_for, reply, process } = launched;
        let program = child.program.to_string_lossy().into_owned();
        let born = match process {
            Ok(process) => self.take_in(spec, child, again_for, process, now),
            Err(error) => {
                let refused = self.refused(SpawnRefused::NoProgram { program, error: error.to_string() }, now);
                if let Some(task) = again_for {
                    self.not_replaced(task, now);
                }
                Err(refused)
            }
        };
        if let Some(reply) = reply {
            // Whoever asked may be gone; the process is supervised all the same.
            let _ = reply.send(born);
        }
    }

    fn take_in(
        &mut self,
        spec: TaskSpec,
        child: ChildSpec,
        again_for: Option<TaskId>,
        process: Process,
        now: Tick,
    ) -> Result<WorkerKey, SpawnRefused> {
        let key = match self.birth(&spec, again_for, now) {
            Ok(key) => key,
            Err(refused) => {
                process.kill_group();
                return Err(refused);
            }
        };
        let slot = self.slot(&spec, key);
        slot.told_idle();
        let pid = process.pid();
        let told = self.bell().add(&process, slot.token).is_ok();
        slot.watched(pid, if told { Deaths::Told } else { Deaths::NotKnown });
        self.by_pid.insert(pid, key);
        self.settle_in(key, spec, slot, Body::Process(process), None, Some(super::ladder::Anew::Child(child)), now);
        Ok(key)
    }

    /// Programs have told something.
    pub(super) fn hear(&mut self) {
        for _ in 0..HEARD_MAX {
            let Some(told) = self.ear.hear() else { break };
            self.told(&told);
        }
        // What is left rings again at once. A socket that cannot be armed is deaf: then beats stop, and that is seen.
        let _ = self.bell().rearm(&self.ear, EAR);
    }

    fn told(&mut self, told: &Told) {
        // What a child runs speaks for it: its group is its own.
        let known = self.by_pid.get(&told.pid).or_else(|| self.by_pid.get(&group_of(told.pid)?));
        let Some(at) = known.and_then(|key| self.places.get(key)).copied() else { return };
        let slot = Arc::clone(&self.rows[at].slot);
        for (key, value) in &told.fields {
            match (key.as_str(), value.as_str()) {
                ("WATCHDOG", "1") => slot.told_beat(),
                ("X_PROGRESS", number) => {
                    if let Ok(done) = number.parse() {
                        slot.told_progress(done);
                    }
                }
                ("STATUS", text) => {
                    self.rows[at].status = text.chars().take(STATUS_MAX).collect();
                }
                // The rest of the protocol is about services, not about life.
                (_, _) => {}
            }
        }
    }

    /// The last word of a process, from how it ended.
    pub(super) fn last_word(slot: &Slot, exit: Exit) {
        let asked = slot.stop_asked();
        slot.leave(match exit {
            Exit::Code(0) if !asked => Said::Finished { outcome: Outcome::Success, text: String::new() },
            Exit::Code(0) | Exit::Signal(child::SIGTERM) if asked => {
                Said::Finished { outcome: Outcome::Stopped, text: String::new() }
            }
            Exit::Code(code) => Said::Finished { outcome: Outcome::Error, text: format!("exit code {code}") },
            Exit::Signal(signal) => Said::Killed { text: format!("signal {signal}") },
        });
    }
}
