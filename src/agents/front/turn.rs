//! One task for what would be several, without the price of waking itself.
//!
//! A task that wakes itself is put behind everything else that is ready, and on another core if one is idle. Where one
//! half of a connection only tells the other half of a line, that costs more than the line.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// Looks in one turn: reading, work and writing follow each other, and what comes of that, once more. Then others have
/// theirs.
const LOOKS_MAX: usize = 8;

/// Nobody looks: a wake goes on to the task.
const IDLE: u8 = 0;
/// The future is looked at.
const LOOKING: u8 = 1;
/// The same, and it was woken meanwhile.
const AGAIN: u8 = 2;

#[derive(Debug)]
struct Own {
    state: AtomicU8,
    // Read by whoever wakes, and written where the task has changed.
    task: Mutex<Option<Waker>>,
}

impl Wake for Own {
    fn wake(self: Arc<Own>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Own>) {
        let noted = self.state.compare_exchange(LOOKING, AGAIN, Ordering::SeqCst, Ordering::SeqCst);
        if noted == Err(IDLE) {
            let task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
            task.iter().for_each(Waker::wake_by_ref);
        }
    }
}

/// Drives a future. Where it is woken while it is looked at, it is looked at again at once, within a bound.
pub(super) async fn in_one_turn<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let own = Arc::new(Own { state: AtomicU8::new(IDLE), task: Mutex::new(None) });
    let waker = Waker::from(Arc::clone(&own));
    poll_fn(|cx| {
        {
            let mut task = own.task.lock().unwrap_or_else(PoisonError::into_inner);
            if !task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
                *task = Some(cx.waker().clone());
            }
        }
        for _ in 0..LOOKS_MAX {
            own.state.store(LOOKING, Ordering::SeqCst);
            if let Poll::Ready(out) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return Poll::Ready(out);
            }
            if own.state.compare_exchange(LOOKING, IDLE, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                return Poll::Pending;
            }
        }
        own.state.store(IDLE, Ordering::SeqCst);
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use tokio::sync::mpsc;
    use tokio::time::timeout;

    use super::*;

    #[derive(Default)]
    struct Counted(AtomicUsize);

    impl Wake for Counted {
        fn wake(self: Arc<Counted>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Wakes itself at each look, that many times.
    fn restless(times: usize) -> (impl Future<Output = ()>, Arc<AtomicUsize>) {
        let looks = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&looks);
        let future = poll_fn(move |cx| {
            if counted.fetch_add(1, Ordering::Relaxed) == times {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        });
        (future, looks)
    }

    #[test]
    fn what_wakes_itself_is_looked_at_again_within_a_bound() {
        let counted = Arc::new(Counted::default());
        let waker = Waker::from(Arc::clone(&counted));
        let woken = || counted.0.load(Ordering::Relaxed);
        let mut cx = Context::from_waker(&waker);
        let (future, looks) = restless(3);
        assert_eq!(pin!(in_one_turn(future)).poll(&mut cx), Poll::Ready(()));
        assert_eq!((looks.load(Ordering::Relaxed), woken()), (4, 0));
        let (future, looks) = restless(LOOKS_MAX);
        let mut turns = pin!(in_one_turn(future));
        assert_eq!(turns.as_mut().poll(&mut cx), Poll::Pending);
        assert_eq!((looks.load(Ordering::Relaxed), woken()), (LOOKS_MAX, 1), "others have their turn");
        assert_eq!(turns.as_mut().poll(&mut cx), Poll::Ready(()));
    }

    #[test]
    fn one_that_waits_wakes_its_task() {
        let counted = Arc::new(Counted::default());
        let waker = Waker::from(Arc::clone(&counted));
        let (sender, mut receiver) = mpsc::channel(1);
        let mut turn = pin!(in_one_turn(receiver.recv()));
        assert_eq!(turn.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Pending);
        sender.try_send(1).expect("room");
        assert_eq!(counted.0.load(Ordering::Relaxed), 1);
        assert_eq!(turn.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Ready(Some(1)));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_wake_of_another_thread_is_lost() {
        const WORDS: usize = 50_000;
        let (sender, mut receiver) = mpsc::channel(4);
        let teller = tokio::spawn(async move {
            for word in 0..WORDS {
                sender.send(word).await.expect("it listens");
            }
        });
        let heard = in_one_turn(async {
            let mut heard = 0;
            while receiver.recv().await.is_some() {
                heard += 1;
            }
            heard
        });
        assert_eq!(timeout(Duration::from_secs(60), heard).await, Ok(WORDS));
        teller.await.expect("the teller");
    }
}
