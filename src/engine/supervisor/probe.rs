//! A worker that asks the async runtime, again and again, whether it still runs anything.
//!
//! Tasks of a runtime move between its threads, so that none of them can hold a heart; a thread of ours can, and waits
//! for the runtime on its behalf. A runtime whose threads are all blocked leaves the probe in its phase beyond the
//! limit: a ZOMBIE, cause BLOCKED_EXTERNAL (omicron 9619).

use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use interlock_domain::liveness::remedy::{Policy, Then};
use serde_json::Value;
use tokio::runtime::Handle;

use super::heart::{Finished, Heart};
use super::spec::TaskSpec;

/// Between two questions.
const EVERY: Duration = Duration::from_secs(1);
/// How often a probe that waits looks whether it shall stop.
const LOOK: Duration = Duration::from_secs(1);

/// The probe of the daemon's own runtime. A runtime that does not come back ends the process in the end, since nothing
/// that people ask for happens without it; the watchdog goes on meanwhile, so that it speaks of scanner and log only.
#[must_use]
pub fn runtime_spec(tau: Duration) -> TaskSpec {
    let policy = Policy { window: tau * 2, grace: tau, most: 0, then: Then::EndProcess, ..Policy::RESTART };
    TaskSpec { own: true, policy, ..TaskSpec::new("runtime", "asks whether the async runtime still runs anything") }
}

/// The work of such a probe: a round of one small task each second, due within `limit`.
pub fn runtime_probe(runtime: Handle, limit: Duration) -> impl Fn(Heart) -> Finished + Send + Sync {
    move |heart| {
        while heart.rest(EVERY) {
            let (answer, answered) = sync_channel(1);
            heart.external_phase("the async runtime answers", limit);
            runtime.spawn(async move {
                // The probe may have given up waiting.
                let _ = answer.try_send(());
            });
            loop {
                match answered.recv_timeout(LOOK) {
                    Ok(()) => break,
                    Err(RecvTimeoutError::Timeout) if heart.should_stop() => return Finished::Stopped(Value::Null),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => {
                        return Finished::Failed("the async runtime has ended".to_owned());
                    }
                }
            }
            heart.phase_over();
        }
        Finished::Stopped(Value::Null)
    }
}
