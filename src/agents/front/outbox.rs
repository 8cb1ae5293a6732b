//! What goes out on one connection of lines, until its one writer takes it.
//!
//! The work on a request and the writing of its answer are done by one task, and a task that tells itself of a line is
//! put behind everything else that is ready, on another core if there is one. So the writer is told only of what others
//! put here: while its own task is at work it holds back the word ([`Outbox::hold`]), and looks for itself afterwards.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use tokio::sync::Notify;

/// Lines that may wait for a client that reads slowly. Then its requests wait, too; what may be lost is.
const LINES_MAX: usize = 64;

/// Bytes that are written at once.
const BATCH_LEN_MAX: usize = 64 << 10;

/// The lines of one connection on their way out.
#[derive(Debug, Default)]
pub struct Outbox {
    // Locked for a push or for the length of a copy, by the writer and by those who work beside it.
    kept: Mutex<Kept>,
    /// There may be room again, or it was closed.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Kept {
    lines: VecDeque<String>,
    /// The writer, while it waits.
    writer: Option<Waker>,
    is_closed: bool,
}

impl Outbox {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts in what may be lost: progress, logs, news. Full means that the client does not read.
    pub fn may(&self, line: String) -> bool {
        let kept = self.kept();
        if kept.lines.len() >= LINES_MAX {
            return false;
        }
        put(kept, line)
    }

    /// Puts in what must not be lost: an answer, or a request to the client. Each request in flight has one of either at
    /// a time, and those are bounded; only a closed connection refuses it.
    pub fn must(&self, line: String) -> bool {
        put(self.kept(), line)
    }

    /// Nothing more is taken in. What is in here still goes out.
    pub fn close(&self) {
        let mut kept = self.kept();
        kept.is_closed = true;
        let writer = kept.writer.take();
        drop(kept);
        writer.into_iter().for_each(Waker::wake);
        self.changed.notify_waiters();
    }

    /// Waits until it is closed.
    pub async fn closed(&self) {
        self.until(|kept| kept.is_closed).await;
    }

    /// From now on the writer is not told of lines, until it has looked for itself.
    pub fn hold(&self) {
        self.kept().writer = None;
    }

    /// Waits until there is room for another request's answer.
    pub async fn room(&self) {
        self.until(|kept| kept.lines.len() < LINES_MAX).await;
    }

    async fn until(&self, is_so: impl Fn(&Kept) -> bool) {
        loop {
            let changed = self.changed.notified();
            if is_so(&self.kept()) {
                return;
            }
            changed.await;
        }
    }

    /// What goes out next, as it is written: as many lines as are there and fit, each with its end. None when the
    /// connection is closed and everything is out. A call to the kernel costs more than a copy.
    pub async fn batch(&self) -> Option<String> {
        poll_fn(|cx| {
            let mut kept = self.kept();
            let Some(mut batch) = kept.lines.pop_front() else {
                if kept.is_closed {
                    return Poll::Ready(None);
                }
                kept.writer = Some(cx.waker().clone());
                return Poll::Pending;
            };
            let was_full = kept.lines.len() + 1 >= LINES_MAX;
            batch.push('\n');
            while batch.len() < BATCH_LEN_MAX
                && let Some(more) = kept.lines.pop_front()
            {
                batch.push_str(&more);
                batch.push('\n');
            }
            if was_full && kept.lines.len() < LINES_MAX {
                self.changed.notify_waiters();
            }
            Poll::Ready(Some(batch))
        })
        .await
    }
}

fn put(mut kept: MutexGuard<'_, Kept>, line: String) -> bool {
    if kept.is_closed {
        return false;
    }
    kept.lines.push_back(line);
    let writer = kept.writer.take();
    drop(kept);
    writer.into_iter().for_each(Waker::wake);
    true
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake};

    use futures_util::FutureExt;

    use super::*;

    #[derive(Default)]
    struct Counted(AtomicUsize);

    impl Wake for Counted {
        fn wake(self: Arc<Counted>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn lines_go_out_together_and_in_order() {
        let outbox = Outbox::default();
        assert!(outbox.must("one".into()));
        assert!(outbox.may("two".into()));
        assert_eq!(outbox.batch().await.as_deref(), Some("one\ntwo\n"));
        outbox.must("three".into());
        outbox.close();
        assert!(!outbox.must("late".into()) && !outbox.may("late".into()));
        assert_eq!(outbox.batch().await.as_deref(), Some("three\n"));
        assert_eq!(outbox.batch().await, None);
    }

    #[tokio::test]
    async fn a_full_one_loses_news_and_no_answer_and_says_when_there_is_room() {
        let outbox = Outbox::default();
        for _ in 0..LINES_MAX {
            assert!(outbox.may("news".into()));
        }
        assert!(!outbox.may("news".into()));
        assert!(outbox.must("answer".into()));
        let mut room = std::pin::pin!(outbox.room());
        assert!(room.as_mut().now_or_never().is_none());
        let batch = outbox.batch().await.expect("what waits");
        assert_eq!(batch.lines().count(), LINES_MAX + 1);
        room.await;
    }

    #[test]
    fn a_writer_that_holds_is_not_woken_and_finds_the_line_when_it_looks() {
        let (outbox, counted) = (Outbox::default(), Arc::new(Counted::default()));
        let waker = Waker::from(Arc::clone(&counted));
        let mut cx = Context::from_waker(&waker);
        let mut batch = Box::pin(outbox.batch());
        let woken = || counted.0.load(Ordering::Relaxed);
        assert!(batch.as_mut().poll(&mut cx).is_pending());
        outbox.hold();
        outbox.must("own".into());
        assert_eq!(woken(), 0);
        assert_eq!(batch.as_mut().poll(&mut cx), Poll::Ready(Some("own\n".into())));
        let mut batch = Box::pin(outbox.batch());
        assert!(batch.as_mut().poll(&mut cx).is_pending());
        outbox.must("another's".into());
        assert_eq!(woken(), 1);
    }
}
