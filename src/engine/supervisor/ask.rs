//! An answer that is on its way: to be awaited, or waited for with a limit.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use thiserror::Error;
use tokio::sync::oneshot;

/// Nobody answered: the supervisor is gone, or it was asked more than it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the supervisor does not answer")]
pub struct NoAnswer;

/// A question to the supervisor. Dropping it takes nothing back.
#[derive(Debug)]
#[must_use = "await it, or wait for it"]
pub struct Ask<T> {
    answer: oneshot::Receiver<T>,
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl<T> Ask<T> {
    pub(super) fn new(answer: oneshot::Receiver<T>) -> Ask<T> {
        Ask { answer }
    }

    /// Waits on this thread, at most `limit`. Not inside the async runtime.
    ///
    /// # Errors
    /// When nobody answers, or not in time.
    pub fn wait(self, limit: Duration) -> Result<T, NoAnswer> {
        let until = Instant::now() + limit;
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        let mut this = pin!(self);
        loop {
            if let Poll::Ready(answer) = this.as_mut().poll(&mut context) {
                return answer;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(NoAnswer);
            }
            std::thread::park_timeout(left);
        }
    }
}

impl<T> Future for Ask<T> {
    type Output = Result<T, NoAnswer>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.answer).poll(context).map_err(|_| NoAnswer)
    }
}
