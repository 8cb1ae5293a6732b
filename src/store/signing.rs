//! Signs what belongs to a commit while the disk is busy with it.
//!
//! A signature takes tens of microseconds, and the sync of a fast disk a few hundred, in which the writer only waits.
//! So a thread of its own signs the head, and the checkpoint that is due, meanwhile. Two things it must never do. It
//! holds no commit up: what it has not begun when the rows are durable is taken back, what it does not finish in
//! [`PATIENCE`] is not waited for, and the writer signs by itself; a signature is the same whoever makes it (Ed25519,
//! RFC 8032). And nothing that it made leaves it before the rows are durable: what belongs to a failed commit is thrown
//! away.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::chain::{Algorithm, Tree};
use super::checkpoint::Checkpoint;
use super::head::{Head, Slot};
use super::keys::Key;

/// How long a signature that is under way is waited for: some ten times what it takes. On a machine that starves its
/// threads the writer is quicker alone.
const PATIENCE: Duration = Duration::from_millis(1);

/// What is to be signed.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) head: Head,
    /// The tree under the head, when a checkpoint is due.
    pub(super) tree: Option<(Algorithm, Tree)>,
}

/// The signatures.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Signs {
    pub(super) head: Slot,
    /// A checkpoint, and over how many rows it is.
    pub(super) checkpoint: Option<(u64, String)>,
}

impl Wanted {
    fn signed(&self, key: &Key) -> Signs {
        let note = |(algorithm, tree): &(Algorithm, Tree)| {
            let checkpoint = Checkpoint { size: tree.size(), root: tree.root(*algorithm), seq: self.head.seq };
            (checkpoint.size, checkpoint.sign(key))
        };
        Signs { head: Slot::signed(key, &self.head), checkpoint: self.tree.as_ref().map(note) }
    }
}

/// Where writer and signer meet. There is one piece of work at a time, the newest.
#[derive(Default)]
struct Desk {
    /// Which piece of work it is: an older one that is finished late is nobody's.
    number: u64,
    /// Not begun yet.
    waiting: Option<Arc<Wanted>>,
    done: Option<Signs>,
    over: bool,
}

/// A mutex and not a channel, because work that was not begun can be taken back.
#[derive(Default)]
struct Shared {
    desk: Mutex<Desk>,
    changed: Condvar,
}

impl Shared {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        // Whoever panicked left no half of anything: each field is whole at any time.
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The signer's thread.
    fn work(&self, key: &Key) {
        loop {
            let (number, wanted) = {
                let wait = self.changed.wait_while(self.desk(), |desk| desk.waiting.is_none() && !desk.over);
                let mut desk = wait.unwrap_or_else(PoisonError::into_inner);
                match (desk.over, desk.waiting.take()) {
                    (false, Some(wanted)) => (desk.number, wanted),
                    (true, _) | (false, None) => return,
                }
            };
            let signs = wanted.signed(key);
            let mut desk = self.desk();
            if desk.number == number {
                desk.done = Some(signs);
                self.changed.notify_one();
            }
        }
    }
}

/// The writer's side.
pub(super) struct Signer {
    key: Arc<Key>,
    shared: Arc<Shared>,
    wanted: Option<Arc<Wanted>>,
    /// Without one, everything is taken back and signed by the writer.
    thread: Option<JoinHandle<()>>,
}

impl Signer {
    pub(super) fn start(key: Arc<Key>) -> Signer {
        let shared = Arc::new(Shared::default());
        let (its, its_key) = (Arc::clone(&shared), Arc::clone(&key));
        let thread = std::thread::Builder::new().name("signer".to_owned()).stack_size(STACK);
        let thread = thread.spawn(move || its.work(&its_key)).ok();
        Signer { key, shared, wanted: None, thread }
    }

    /// Begins; what was asked for before is forgotten.
    pub(super) fn ask(&mut self, wanted: Wanted) {
        let wanted = Arc::new(wanted);
        self.wanted = Some(Arc::clone(&wanted));
        let mut desk = self.shared.desk();
        desk.number += 1;
        desk.done = None;
        desk.waiting = Some(wanted);
        drop(desk);
        self.shared.changed.notify_one();
    }

    /// What was asked for, signed. Nothing when nothing was asked for.
    pub(super) fn take(&mut self) -> Option<Signs> {
        let wanted = self.wanted.take()?;
        let mut desk = self.shared.desk();
        if desk.waiting.take().is_none() {
            let wait = self.shared.changed.wait_timeout_while(desk, PATIENCE, |desk| desk.done.is_none());
            desk = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
        let done = desk.done.take();
        // Whatever is still under way is nobody's.
        desk.number += 1;
        drop(desk);
        Some(done.unwrap_or_else(|| wanted.signed(&self.key)))
    }

    /// The commit failed: nothing of it is signed.
    pub(super) fn forget(&mut self) {
        self.wanted = None;
        let mut desk = self.shared.desk();
        desk.number += 1;
        (desk.waiting, desk.done) = (None, None);
    }
}

/// Signing takes a few kilobytes.
const STACK: usize = 128 * 1024;

impl Drop for Signer {
    fn drop(&mut self) {
        self.shared.desk().over = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // It waits for nobody, so this is over in a signature's time.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use interlock_domain::id::Seq;
    use interlock_domain::time::Wall;

    fn wanted(seq: u64, due: bool) -> Wanted {
        let mut tree = Tree::default();
        (0..seq).for_each(|n| tree.push(Algorithm::Sha256, [u8::try_from(n).unwrap(); 32]));
        let head = Head { seq: Seq(seq), hash: [7; 32], wall: Wall(1_764_500_000_000) };
        Wanted { head, tree: due.then_some((Algorithm::Sha256, tree)) }
    }

    fn signer() -> (tempfile::TempDir, Arc<Key>, Signer) {
        let dir = tempfile::tempdir().unwrap();
        let key = Arc::new(Key::of_state(dir.path()).unwrap());
        (dir, Arc::clone(&key), Signer::start(key))
    }

    #[test]
    fn whoever_signs_the_signatures_are_those_of_the_newest_work() {
        let (_dir, key, mut signer) = signer();
        for seq in 1..200_u64 {
            signer.ask(wanted(seq % 7, seq % 3 == 0));
            if seq % 5 == 0 {
                // By now it is surely begun, or done.
                while signer.shared.desk().waiting.is_some() {
                    std::thread::yield_now();
                }
            }
            if seq % 11 == 0 {
                signer.forget();
                assert_eq!(signer.take(), None);
                continue;
            }
            assert_eq!(signer.take(), Some(wanted(seq % 7, seq % 3 == 0).signed(&key)), "{seq}");
        }
        assert_eq!(signer.take(), None);
    }

    #[test]
    fn without_its_thread_the_writer_signs() {
        let (_dir, key, mut signer) = signer();
        signer.shared.desk().over = true;
        signer.shared.changed.notify_one();
        signer.thread.take().unwrap().join().unwrap();
        signer.ask(wanted(3, true));
        assert_eq!(signer.take(), Some(wanted(3, true).signed(&key)));
    }
}
