//! Owns `state.db`: one thread, so that a slow disk holds up nobody else.
//!
//! What changes is kept here (counters, alarms); what happened is in the evidence log. Nothing is decided.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use thiserror::Error;
use tokio::sync::oneshot;

use crate::store::error::StoreError;
use crate::store::state::State;
pub use crate::store::state::alarm::Alarm;
pub use crate::store::state::export::Position;
pub use crate::store::state::notice::KeptNotice;

/// Changes that may wait. Each is a small transaction; more than this means that the disk has stopped.
const WAITING_MAX: usize = 256;

type Change = Box<dyn FnOnce(&mut State) + Send>;

/// The way to the state. Cheap to clone.
#[derive(Clone)]
pub struct Keeper {
    changes: SyncSender<Change>,
}

/// Why a change was not made.
#[derive(Debug, Error)]
pub enum NotKept {
    /// Too many changes wait.
    #[error("the state is busy: {WAITING_MAX} changes wait for the disk")]
    Busy,
    /// The daemon is stopping.
    #[error("the daemon is stopping")]
    Stopping,
    /// What the store says.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Starts the thread.
///
/// # Errors
/// When the system gives no thread.
pub fn start(mut state: State) -> std::io::Result<(Keeper, JoinHandle<()>)> {
    let (changes, inbox): (SyncSender<Change>, Receiver<Change>) = sync_channel(WAITING_MAX);
    let thread = std::thread::Builder::new().name("state".to_owned()).spawn(move || {
        while let Ok(change) = inbox.recv() {
            change(&mut state);
        }
    })?;
    Ok((Keeper { changes }, thread))
}

impl Keeper {
    /// Runs `change` on the state and gives back what it says.
    ///
    /// # Errors
    /// [`NotKept`].
    pub async fn with<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut State) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, NotKept> {
        let (back, done) = oneshot::channel();
        self.offer(Box::new(move |state| {
            // Whoever asked may have gone; the change is made all the same.
            let _ = back.send(change(state));
        }))?;
        Ok(done.await.map_err(|_| NotKept::Stopping)??)
    }

    /// Runs `change` some time soon. What it says goes to the journal if it is an error.
    ///
    /// # Errors
    /// [`NotKept::Busy`] and [`NotKept::Stopping`].
    pub fn later(
        &self,
        change: impl FnOnce(&mut State) -> Result<(), StoreError> + Send + 'static,
    ) -> Result<(), NotKept> {
        self.offer(Box::new(move |state| {
            if let Err(error) = change(state) {
                tracing::error!(%error, "the state was not kept");
            }
        }))
    }

    fn offer(&self, change: Change) -> Result<(), NotKept> {
        self.changes.try_send(change).map_err(|error| match error {
            TrySendError::Full(_) => NotKept::Busy,
            TrySendError::Disconnected(_) => NotKept::Stopping,
        })
    }
}
