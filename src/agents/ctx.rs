//! All that is known of one request beside its method and parameters, and its way out.
//!
//! A request is answered once. Its context sees to that even when the work on it panics or is aborted: a client must not
//! wait for ever for an answer that nobody will give.

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use crate::agents::engine::Asker;
use crate::agents::front::stream::Stream;
use crate::agents::session::{Cancel, Session};
use crate::agents::tasks::record::Record;
use crate::mcp::era::{self, Era};
use crate::mcp::rpc::{self, Id, RpcError};

/// Whom a parked call or a task belongs to. Whoever else names it is told that there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner(pub Arc<str>);

/// Where the messages of a request go.
#[derive(Debug, Clone)]
pub enum Out {
    /// Into its buffer, which an HTTP response reads.
    Stream(Arc<Stream>),
    /// As lines to the one writer of a connection.
    Lines(mpsc::Sender<String>),
}

/// All that is known of a request beside its method and parameters.
#[derive(Debug)]
pub struct Ctx {
    /// Its era.
    pub era: Era,
    /// Its id. Changes when a parked call is taken up again by another request.
    pub id: Id,
    /// Its `_meta`.
    pub meta: Map<String, Value>,
    /// Answers that it brought along before anything was asked. A tool may have them; the gate never looks here.
    pub answers: Map<String, Value>,
    /// What its client can do.
    pub capabilities: Value,
    /// Which program its client is.
    pub client: Asker,
    /// Whose it is.
    pub owner: Owner,
    /// The session or connection that it came by.
    pub place: Arc<str>,
    /// The task that the call has become.
    pub task: Option<Arc<Record>>,
    /// What has to happen when its client has its answer.
    pub after: After,
    /// Its session, in the older era.
    pub session: Option<Arc<Session>>,
    /// Says that nobody wants the answer any more.
    pub cancel: Cancel,
    /// Where its messages go. None while the call is parked: there is nobody to send to.
    pub out: Option<Out>,
}

/// Why a request has no result.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// It is answered with an error.
    Rpc(RpcError),
    /// It was cancelled: nothing more is sent for it.
    Cancelled,
    /// Its task has a worker now, and ends with that.
    Later,
}

impl From<RpcError> for Fault {
    fn from(error: RpcError) -> Fault {
        Fault::Rpc(error)
    }
}

/// What has to happen when a request is answered: it happens once, at the latest when this is dropped, even when the
/// work on the request panics or is aborted.
#[derive(Default)]
pub struct After(Option<Box<dyn FnOnce() + Send + Sync>>);

impl After {
    /// That.
    pub fn new(run: impl FnOnce() + Send + Sync + 'static) -> After {
        After(Some(Box::new(run)))
    }
}

impl fmt::Debug for After {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("After")
    }
}

impl Drop for After {
    fn drop(&mut self) {
        if let Some(run) = self.0.take() {
            run();
        }
    }
}

impl Ctx {
    /// Sends a notification, if there is anybody to send to and room for it.
    pub fn notify(&self, method: &str, params: &Value) {
        match &self.out {
            Some(Out::Stream(stream)) => {
                stream.may(rpc::notification(method, params));
            }
            Some(Out::Lines(lines)) => {
                // Full means that the client does not read: it loses news, not answers.
                let _full = lines.try_send(rpc::notification(method, params));
            }
            None => {}
        }
    }

    /// Sends a log message, if its client wants messages of that severity.
    pub fn log(&self, level: &str, logger: Option<&str>, data: &Value) {
        let least = match &self.session {
            Some(session) => session.log_level(),
            None => match self.meta.get(era::META_LOG_LEVEL) {
                Some(Value::String(least)) => least.clone(),
                _ => return,
            },
        };
        if era::is_logged(level, &least) {
            let mut params = json!({"level": level, "data": data});
            if let Some(logger) = logger {
                params["logger"] = logger.into();
            }
            self.notify("notifications/message", &params);
        }
    }

    /// Sends how far the request is, if its client asked for that.
    pub fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        if let Some(token @ (Value::String(_) | Value::Number(_))) = self.meta.get("progressToken") {
            let mut params = json!({"progressToken": token, "progress": progress});
            if let Some(total) = total {
                params["total"] = total.into();
            }
            if let Some(message) = message {
                params["message"] = message.into();
            }
            self.notify("notifications/progress", &params);
        }
    }

    /// Sends the answer. Nothing follows it.
    pub async fn finish(&mut self, answer: Result<Value, RpcError>) {
        match self.out.take() {
            Some(Out::Stream(stream)) => stream.answer(rpc::response(&self.id, &answer), status(self.era, &answer)),
            Some(Out::Lines(lines)) => {
                // Fails when the connection is gone, and the answer with it.
                let _gone = lines.send(rpc::response(&self.id, &answer)).await;
            }
            None => {}
        }
    }

    fn finish_now(&mut self, answer: Result<Value, RpcError>) {
        match self.out.take() {
            Some(Out::Stream(stream)) => stream.answer(rpc::response(&self.id, &answer), status(self.era, &answer)),
            Some(Out::Lines(lines)) => {
                let _full = lines.try_send(rpc::response(&self.id, &answer));
            }
            None => {}
        }
    }

    /// Ends without an answer.
    pub fn end(&mut self) {
        match self.out.take() {
            Some(Out::Stream(stream)) => stream.end(),
            Some(Out::Lines(_)) | None => {}
        }
    }
}

impl Drop for Ctx {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            let message = "the work on this task was dropped; its outcome is not known";
            task.finish(Err(RpcError::new(rpc::INTERNAL_ERROR, message)));
        }
        // Still there only if the work on it panicked or was aborted: a client must not wait for ever.
        self.finish_now(Err(RpcError::new(rpc::INTERNAL_ERROR, "the request was dropped; its outcome is not known")));
    }
}

/// The HTTP status of an answer. The modern era fixes it by the error; the older one sends its errors with 200.
#[must_use]
pub fn status(era: Era, answer: &Result<Value, RpcError>) -> u16 {
    match (era, answer) {
        (Era::Modern, Err(error)) => match error.code {
            rpc::METHOD_NOT_FOUND => 404,
            rpc::PARSE_ERROR
            | rpc::INVALID_REQUEST
            | rpc::INVALID_PARAMS
            | rpc::HEADER_MISMATCH
            | rpc::MISSING_CLIENT_CAPABILITY
            | rpc::UNSUPPORTED_VERSION => 400,
            rpc::BUSY => 503,
            _ => 200,
        },
        (Era::Modern, Ok(_)) | (Era::Legacy, _) => 200,
    }
}
