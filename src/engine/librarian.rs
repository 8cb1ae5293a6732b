//! Owns the library of passages: one thread, because a search reads the disk and a folder may be a slow one.
//!
//! The folders of the configuration are looked at again before a search, at most every few seconds: what is added or
//! taken away counts without a restart. What it finds is an answer to read; nothing of it is ever carried out.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::infer::knowledge::{Found, KnowledgeError, Library, Passage};

/// Questions that may wait; more are answered with nothing.
const INBOX_LEN_MAX: usize = 32;
/// How long whoever asks waits.
const PATIENCE: Duration = Duration::from_secs(3);
/// Passages of one answer.
const PASSAGES_MAX: usize = 3;
/// How often folders are looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

enum Message {
    Answer { question: String, back: oneshot::Sender<Vec<Found>> },
    Follow { folders: Vec<PathBuf>, shipped: Shipped },
}

/// Passages that come with the program, and whether they are wanted.
#[derive(Debug, Clone)]
pub struct Shipped {
    /// Their name in the library.
    pub name: &'static str,
    /// The passages; none to take them out.
    pub passages: Option<Vec<Passage>>,
}

/// The way to the library. Cheap to clone.
#[derive(Clone)]
pub struct Librarian {
    inbox: SyncSender<Message>,
}

impl Librarian {
    /// Starts the thread. The library is opened when a folder fills it or somebody asks; a file that cannot be used is
    /// told of each time, and questions have no answer then.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(path: PathBuf) -> std::io::Result<Librarian> {
        let (inbox, outlet) = sync_channel(INBOX_LEN_MAX);
        std::thread::Builder::new().name("library".to_owned()).spawn(move || serve(&path, &outlet))?;
        Ok(Librarian { inbox })
    }

    /// Follows these folders from now on, in place of those before.
    pub fn follow(&self, folders: Vec<PathBuf>, shipped: Shipped) {
        if self.inbox.try_send(Message::Follow { folders, shipped }).is_err() {
            tracing::error!("the library is busy; the knowledge folders stay as they were");
        }
    }

    /// The passages that answer a question, best first; none when there are none, or the library is busy or slow.
    pub async fn answer(&self, question: String) -> Vec<Found> {
        let (back, answer) = oneshot::channel();
        if self.inbox.try_send(Message::Answer { question, back }).is_err() {
            tracing::warn!("the library is busy; a question has no answer");
            return Vec::new();
        }
        match tokio::time::timeout(PATIENCE, answer).await {
            Ok(Ok(found)) => found,
            Ok(Err(_)) | Err(_) => Vec::new(),
        }
    }
}

fn serve(path: &Path, outlet: &Receiver<Message>) {
    let mut library: Option<Library> = None;
    let mut folders: Vec<PathBuf> = Vec::new();
    let mut shipped: Option<Shipped> = None;
    let mut looked: Option<Instant> = None;
    while let Ok(message) = outlet.recv() {
        let answer = match message {
            Message::Follow { folders: now, shipped: with } => {
                (folders, shipped, looked) = (now, Some(with), None);
                None
            }
            Message::Answer { question, back } => Some((question, back)),
        };
        // Nobody pays for a library that nobody asks and no folder fills.
        if library.is_none() && (answer.is_some() || !folders.is_empty()) {
            library = opened(path);
        }
        if let Some(library) = &mut library {
            if let Some(shipped) = shipped.take() {
                told(put_shipped(library, &shipped));
            }
            if looked.is_none_or(|at| at.elapsed() >= LOOK_AGAIN) {
                told(library.sync(&folders));
                looked = Some(Instant::now());
            }
        }
        let Some((question, back)) = answer else { continue };
        let found = library.as_ref().map(|library| library.answer(&question, PASSAGES_MAX));
        let found = found.transpose().unwrap_or_else(|error| {
            tracing::error!(%error, "a question has no answer");
            None
        });
        let _ = back.send(found.unwrap_or_default());
    }
}

fn opened(path: &Path) -> Option<Library> {
    match Library::open(path) {
        Ok(library) => Some(library),
        Err(error) => {
            tracing::error!(%error, "the knowledge stage is off");
            None
        }
    }
}

fn put_shipped(library: &mut Library, shipped: &Shipped) -> Result<Vec<String>, KnowledgeError> {
    match &shipped.passages {
        Some(passages) => library
            .put_if_new(shipped.name, passages, concat!("version ", env!("CARGO_PKG_VERSION")))
            .map(|_| Vec::new()),
        None => library.remove(shipped.name).map(|_| Vec::new()),
    }
}

fn told(said: Result<Vec<String>, KnowledgeError>) {
    match said {
        Ok(lines) => lines.iter().for_each(|line| tracing::info!("{line}")),
        Err(error) => tracing::error!(%error, "the library was not changed"),
    }
}
