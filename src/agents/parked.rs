//! Calls of the modern era that were answered with `input_required`, and wait for their client to come back.
//!
//! Whoever comes back has to be the same owner with the same call, and has to name a state that nobody can guess. A
//! state is used up by its use.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;

use crate::agents::ctx::{Ctx, Out, Owner};
use crate::agents::session::Cancel;
use crate::mcp::rpc::{self, Id, RpcError};

/// Calls that may be parked at once.
const PARKED_MAX: usize = 256;

/// A request that takes a parked call up again.
#[derive(Debug)]
pub struct Resume {
    /// Its id.
    pub id: Id,
    /// Its `_meta`.
    pub meta: Map<String, Value>,
    /// The answers that it brings.
    pub answers: Map<String, Value>,
    /// Where messages go from now on.
    pub out: Out,
}

/// The exact call that a parked state belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call([u8; 32]);

impl Call {
    /// Of a request's method and parameters, without what differs between the request and its retry.
    #[must_use]
    pub fn of(method: &str, params: &Map<String, Value>) -> Call {
        let mut hash = Sha256::new();
        feed(&mut hash, method.as_bytes());
        let mut members: Vec<_> = params
            .iter()
            .filter(|(name, _)| !matches!(name.as_str(), "_meta" | "inputResponses" | "requestState"))
            .collect();
        members.sort_by_key(|(name, _)| name.as_str());
        for (name, value) in members {
            feed(&mut hash, name.as_bytes());
            feed_value(&mut hash, value);
        }
        Call(hash.finalize().into())
    }
}

/// Length before bytes, so that no two sequences of texts are the same bytes.
fn feed(hash: &mut Sha256, bytes: &[u8]) {
    hash.update((bytes.len() as u64).to_le_bytes());
    hash.update(bytes);
}

/// A value with the members of its objects in one order, whatever order they came in.
fn feed_value(hash: &mut Sha256, value: &Value) {
    match value {
        Value::Array(items) => {
            feed(hash, b"[");
            items.iter().for_each(|item| feed_value(hash, item));
            feed(hash, b"]");
        }
        Value::Object(members) => {
            feed(hash, b"{");
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_by_key(|(name, _)| name.as_str());
            for (name, member) in sorted {
                feed(hash, name.as_bytes());
                feed_value(hash, member);
            }
            feed(hash, b"}");
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            feed(hash, value.to_string().as_bytes());
        }
    }
}

/// The calls that wait for their client to come back.
#[derive(Debug, Default)]
pub struct Parked(
    // The task that parks and the task that resumes meet here for one table operation.
    Mutex<HashMap<String, Waiting>>,
);

#[derive(Debug)]
struct Waiting {
    owner: Owner,
    call: Call,
    cancel: Cancel,
    resume: oneshot::Sender<Resume>,
}

impl Parked {
    fn table(&self) -> MutexGuard<'_, HashMap<String, Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Parks a call. Gives its state, and where its client comes back; none when there is no room.
    #[must_use]
    pub fn add(&self, ctx: &Ctx, call: &Call) -> Option<(String, oneshot::Receiver<Resume>)> {
        let state = token()?;
        let (resume, resumed) = oneshot::channel();
        let mut table = self.table();
        // Whoever waited has gone: its receiver says so.
        table.retain(|_, waiting| !waiting.resume.is_closed());
        if table.len() >= PARKED_MAX {
            return None;
        }
        let waiting = Waiting { owner: ctx.owner.clone(), call: call.clone(), cancel: ctx.cancel.clone(), resume };
        table.insert(state.clone(), waiting);
        Some((state, resumed))
    }

    /// Nobody waits for this client any more.
    pub fn forget(&self, state: &str) {
        self.table().remove(state);
    }

    /// Takes a parked call up again. Gives back what cancels it.
    ///
    /// # Errors
    /// When there is no such call, or it is not this owner's, or not this call.
    pub fn resume(&self, state: &str, owner: &Owner, call: &Call, resume: Resume) -> Result<Cancel, RpcError> {
        let none = || {
            let message = "\"requestState\" is unknown, expired, used up, or of another call: send the call anew";
            RpcError::new(rpc::INVALID_PARAMS, message)
        };
        let mut table = self.table();
        let fits = table.get(state).is_some_and(|waiting| waiting.owner == *owner && waiting.call == *call);
        if !fits {
            return Err(none());
        }
        let waiting = table.remove(state).ok_or_else(none)?;
        drop(table);
        waiting.resume.send(resume).map_err(|_| none())?;
        Ok(waiting.cancel)
    }
}

/// 128 random bits as text: whoever names one was given it. None when the system has no randomness to give.
#[must_use]
pub fn token() -> Option<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).ok()?;
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(params: Value) -> Call {
        Call::of("tools/call", params.as_object().expect("an object"))
    }

    #[test]
    fn a_call_is_known_by_its_arguments_and_not_by_their_order() {
        let call = of(json!({"name": "a", "arguments": {"x": 1, "y": [2, 3]}}));
        let retry = json!({"arguments": {"y": [2, 3], "x": 1}, "name": "a", "requestState": "s",
            "inputResponses": {"k": 1}, "_meta": {"z": 1}});
        assert_eq!(of(retry), call);
        for other in [
            json!({"name": "b", "arguments": {"x": 1, "y": [2, 3]}}),
            json!({"name": "a", "arguments": {"x": 1, "y": [3, 2]}}),
            json!({"name": "a", "arguments": {"x": "1", "y": [2, 3]}}),
            json!({"name": "a", "arguments": {"x": 1, "y": [[2], 3]}}),
            json!({"name": "a", "arguments": {"x": 1, "y": [2, 3], "z": null}}),
            json!({"name": "a"}),
        ] {
            assert_ne!(of(other.clone()), call, "{other}");
        }
    }
}
