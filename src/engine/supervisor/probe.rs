//! A worker that asks the async runtime, again and again, whether it still runs anything.
//!
//! Tasks of a runtime move between its threads, so that none of them can hold a heart; a thread of ours can, and waits
//! for the runtime on its behalf. A runtime whose threads are all blocked leaves the probe in its phase beyond the
//! limit: a ZOMBIE, cause BLOCKED_EXTERNAL (omicron 9619).

use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use serde_json::Value;
use tokio::runtime::Handle;

use super::heart::{Finished, Heart};

/// Between two questions.
const EVERY: Duration = Duration::from_secs(1);
/// How often a probe that waits looks whether it shall stop.
const LOOK: Duration = Duration::from_secs(1);

/// The work of such a probe: a round of one small task each second, due within `limit`.
pub fn runtime_probe(runtime: Handle, limit: Duration) -> impl FnOnce(Heart) -> Finished + Send {
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
