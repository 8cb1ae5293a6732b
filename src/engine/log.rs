//! Reads the evidence log for the surfaces, beside the writer and without holding it up.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::record::Recorded;
pub use crate::store::error::StoreError as Error;
pub use crate::store::queue::{Acks, Health};
pub use crate::store::read::{Query, Stats};
pub use crate::store::search::{Found, Search};
use crate::store::{checkpoint, head, keys, read, search, verify};
pub use interlock_domain::id::Seq;
use serde_json::Value;

/// Readings at once: each holds a connection and a thread for up to two seconds.
const READERS_MAX: usize = 4;

/// How long a search for a person looks back: with what else a page costs, it is there within 300 ms.
const LOOK: Duration = Duration::from_millis(150);

/// The way to the log. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Log {
    state: PathBuf,
    places: Arc<Semaphore>,
}

impl Log {
    /// Of a state directory.
    #[must_use]
    pub fn new(state: PathBuf) -> Log {
        Log { state, places: Arc::new(Semaphore::new(READERS_MAX)) }
    }

    /// The rows that fit.
    ///
    /// # Errors
    /// What the store says; a reading that takes longer than two seconds is cut.
    pub async fn query(&self, query: Query) -> Result<Vec<Recorded>, Error> {
        self.with(move |state| read::query(state, &query)).await
    }

    /// The rows that fit, the newest first, as far back as one sees in a moment.
    ///
    /// # Errors
    /// As [`Log::query`].
    pub async fn search(&self, search: Search) -> Result<Found, Error> {
        self.with(move |state| search::search(state, &search, LOOK)).await
    }

    /// One row.
    ///
    /// # Errors
    /// As [`Log::query`].
    pub async fn show(&self, seq: Seq) -> Result<Option<Recorded>, Error> {
        self.with(move |state| read::show(state, seq)).await
    }

    /// How much there is.
    ///
    /// # Errors
    /// As [`Log::query`].
    pub async fn stats(&self) -> Result<Stats, Error> {
        self.with(read::stats).await
    }

    /// How many bytes its files have.
    ///
    /// # Errors
    /// As [`Log::query`].
    pub async fn bytes(&self) -> Result<u64, Error> {
        self.with(|state| Ok(crate::store::log_len(state))).await
    }

    /// The newest signed checkpoint, as it stands in its file; `None` before there is one.
    ///
    /// # Errors
    /// As [`Log::query`].
    pub async fn checkpoint(&self) -> Result<Option<String>, Error> {
        let newest = |state: &std::path::Path| {
            let evidence = state.join("evidence");
            checkpoint::newest(&evidence).map_err(|source| Error::Io { path: checkpoint::path(&evidence), source })
        };
        self.with(newest).await
    }

    /// The newest signed head, as it was signed; `None` before there is one.
    ///
    /// # Errors
    /// As [`Log::query`].
    pub async fn head(&self) -> Result<Option<String>, Error> {
        let newest = |state: &std::path::Path| {
            let evidence = state.join("evidence");
            let Some(key) = keys::public_of_state(state)? else { return Ok(None) };
            head::text(&evidence, &key).map_err(|source| Error::Io { path: head::path(&evidence), source })
        };
        self.with(newest).await
    }

    /// Holds the whole log against its hashes; takes as long as that takes, beside everything else.
    ///
    /// # Errors
    /// When it cannot be opened at all. Damage is a verdict.
    pub async fn verify(&self) -> Result<Value, Error> {
        self.with(|state| verify::verify(state).map(|found| found.to_json())).await
    }

    async fn with<T: Send + 'static>(
        &self,
        read: impl FnOnce(&std::path::Path) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let state = self.state.clone();
        // Never closed.
        let place = Arc::clone(&self.places).acquire_owned().await.ok();
        let read = tokio::task::spawn_blocking(move || {
            let found = read(&state);
            drop(place);
            found
        });
        read.await
            .unwrap_or_else(|error| Err(Error::Io { path: self.state.clone(), source: std::io::Error::other(error) }))
    }
}
