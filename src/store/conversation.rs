//! What a run with a language model keeps on the disk: its history, and the texts that were too long for it.
//!
//! One directory for each run, `<state>/spill/<run>`. The history is a file of lines, each written whole and brought to
//! the disk before the run goes on, so that a crash leaves it as it was before a line or after it: a compaction is one
//! line that holds all of the new history. The last line may be torn; it was never acknowledged and is left out. The
//! evidence log stays as it was: this is what a model is told, not what happened.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use interlock_domain::id::RunId;
use serde_json::{Value, json};
use thiserror::Error;

/// What one run may spill, in bytes.
pub const SPILL_BYTES_MAX: u64 = 64 << 20;

/// What all runs together may keep; the oldest go first.
const ALL_BYTES_MAX: u64 = 512 << 20;

/// How many runs are kept at most.
const RUNS_MAX: usize = 200;

/// The longest history that is read back.
const HISTORY_BYTES_MAX: u64 = 256 << 20;

/// Nobody but the service reads what a model was told.
const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// Why a conversation cannot be kept or read.
#[derive(Debug, Error)]
pub enum NotKept {
    /// The system refused a file.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is no history of this run.
    #[error("there is no conversation {run}")]
    NoSuchRun {
        /// The run.
        run: RunId,
    },
    /// A line that this build did not write.
    #[error("{}:{line}: not a line of a history", path.display())]
    NotALine {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
    },
    /// The file is beyond what is read.
    #[error("{} has {bytes} bytes; {HISTORY_BYTES_MAX} are read at most", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
    },
}

/// One record of a history.
#[derive(Debug, Clone, PartialEq)]
pub enum Line {
    /// A message that was said.
    Said(Value),
    /// The whole history from here on: what a compaction left.
    Whole(Vec<Value>),
    /// These calls of the message before (places, from 0) are about to be handed in, in this order. Written before they
    /// are, so that a call without this line never was.
    Handing(Vec<usize>),
    /// They were handed in as this batch.
    Batch(u64),
    /// Whose run it is: the first line.
    Opened(Opened),
}

/// What a later life, or a child, has to know of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Opened {
    /// How many runs stand above it.
    pub depth: u32,
    /// Where it works, when that is not where the daemon works.
    pub cwd: Option<PathBuf>,
    /// The runs whose spilled texts its history points to.
    pub before: Vec<RunId>,
}

impl Opened {
    fn to_json(&self) -> Value {
        let before: Vec<String> = self.before.iter().map(RunId::to_string).collect();
        json!({ "depth": self.depth, "cwd": self.cwd.as_deref().and_then(Path::to_str), "before": before })
    }

    fn read(value: &Value) -> Option<Opened> {
        let before = value.get("before")?.as_array()?.iter();
        Some(Opened {
            depth: value.get("depth").and_then(Value::as_u64).and_then(|depth| u32::try_from(depth).ok())?,
            cwd: value.get("cwd").and_then(Value::as_str).map(PathBuf::from),
            before: before.map(|run| run.as_str()?.parse().ok()).collect::<Option<Vec<RunId>>>()?,
        })
    }
}

impl Line {
    fn to_json(&self) -> Value {
        match self {
            Line::Said(message) => json!({ "said": message }),
            Line::Whole(messages) => json!({ "history": messages }),
            Line::Handing(places) => json!({ "handing": places }),
            Line::Batch(batch) => json!({ "batch": batch }),
            Line::Opened(opened) => json!({ "opened": opened.to_json() }),
        }
    }

    fn read(text: &str) -> Option<Line> {
        let mut value: Value = serde_json::from_str(text).ok()?;
        let members = value.as_object_mut()?;
        if let Some(said) = members.remove("said") {
            return Some(Line::Said(said));
        }
        if let Some(opened) = members.get("opened") {
            return Opened::read(opened).map(Line::Opened);
        }
        if let Some(places) = members.get("handing") {
            let place = |place: &Value| place.as_u64().and_then(|place| usize::try_from(place).ok());
            return places.as_array()?.iter().map(place).collect::<Option<Vec<usize>>>().map(Line::Handing);
        }
        match members.remove("history") {
            Some(Value::Array(messages)) => Some(Line::Whole(messages)),
            Some(_) => None,
            None => members.get("batch").and_then(Value::as_u64).map(Line::Batch),
        }
    }
}

/// The directory of one run.
#[derive(Debug)]
pub struct Conversation {
    directory: PathBuf,
    history: File,
    spilled: u64,
}

fn io_of(path: &Path) -> impl FnOnce(io::Error) -> NotKept + '_ {
    move |source| NotKept::Io { path: path.to_owned(), source }
}

/// Where a run keeps its texts.
#[must_use]
pub fn directory(state: &Path, run: RunId) -> PathBuf {
    state.join("spill").join(run.to_string())
}

impl Conversation {
    /// Opens the directory of a run, makes it if it is not there, and lets the oldest others go.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(state: &Path, run: RunId) -> Result<Conversation, NotKept> {
        let directory = directory(state, run);
        sweep(&state.join("spill"), &directory);
        let made = std::fs::DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(&directory);
        made.map_err(io_of(&directory))?;
        let path = directory.join("history.jsonl");
        let opened = OpenOptions::new().create(true).append(true).mode(FILE_MODE).open(&path);
        let history = opened.map_err(io_of(&path))?;
        // The name too must survive a power cut, not only what is in the file.
        File::open(&directory).and_then(|directory| directory.sync_all()).map_err(io_of(&directory))?;
        let spilled = size(&directory).saturating_sub(size_of_file(&path));
        Ok(Conversation { directory, history, spilled })
    }

    /// Where its spilled texts lie.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Writes lines and waits until they are on the disk.
    ///
    /// # Errors
    /// What the system says. What was half written is a torn line, which is not read.
    pub fn write(&mut self, lines: &[Line]) -> Result<(), NotKept> {
        let mut text = String::new();
        for line in lines {
            text.push_str(&line.to_json().to_string());
            text.push('\n');
        }
        let path = self.directory.join("history.jsonl");
        self.history.write_all(text.as_bytes()).and_then(|()| self.history.sync_data()).map_err(io_of(&path))
    }

    /// Keeps a text; `None` when there is no room for it. One text is kept once.
    ///
    /// # Errors
    /// What the system says.
    pub fn spill(&mut self, name: &str, text: &str) -> Result<Option<PathBuf>, NotKept> {
        let path = self.directory.join(name);
        let length = text.len() as u64;
        if path.exists() {
            return Ok(Some(path));
        }
        if self.spilled + length > SPILL_BYTES_MAX {
            return Ok(None);
        }
        let part = self.directory.join(format!("{name}.part"));
        let write = || {
            let options = OpenOptions::new().create(true).write(true).truncate(true).mode(FILE_MODE).open(&part);
            let mut file = options?;
            file.write_all(text.as_bytes())?;
            file.sync_data()?;
            std::fs::rename(&part, &path)
        };
        match write() {
            Ok(()) => {
                self.spilled += length;
                Ok(Some(path))
            }
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                // The history is worth more than what it points at.
                let _ = std::fs::remove_file(&part);
                Ok(None)
            }
            Err(error) => Err(io_of(&path)(error)),
        }
    }
}

/// Reads the history of a run back.
///
/// # Errors
/// When there is none, or it cannot be read.
pub fn read(state: &Path, run: RunId) -> Result<Vec<Line>, NotKept> {
    let path = directory(state, run).join("history.jsonl");
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(NotKept::NoSuchRun { run }),
        Err(error) => return Err(io_of(&path)(error)),
    };
    let bytes = size_of_file(&path);
    if bytes > HISTORY_BYTES_MAX {
        return Err(NotKept::TooLong { path, bytes });
    }
    let mut lines = Vec::new();
    let mut reader = BufReader::new(file);
    let mut text = Vec::new();
    loop {
        text.clear();
        reader.read_until(b'\n', &mut text).map_err(io_of(&path))?;
        if text.last() != Some(&b'\n') {
            // The end, or a line that the power did not let be finished: nobody was told of it.
            return Ok(lines);
        }
        let line = std::str::from_utf8(&text).ok().and_then(Line::read);
        lines.push(line.ok_or_else(|| NotKept::NotALine { path: path.clone(), line: lines.len() + 1 })?);
    }
}

/// Lets the oldest runs go when there are too many, or they are too large. Runs sort by the time at which they began.
fn sweep(spill: &Path, keep: &Path) {
    let Ok(entries) = std::fs::read_dir(spill) else { return };
    let mut runs: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(|path| path != keep).collect();
    runs.sort();
    let mut bytes: u64 = runs.iter().map(|run| size(run)).sum();
    while runs.len() >= RUNS_MAX || bytes > ALL_BYTES_MAX {
        if runs.is_empty() {
            return;
        }
        let oldest = runs.remove(0);
        bytes = bytes.saturating_sub(size(&oldest));
        if let Err(error) = std::fs::remove_dir_all(&oldest) {
            tracing::warn!(path = %oldest.display(), %error, "an old conversation cannot be removed");
        }
    }
}

fn size(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|of| of.len()).sum()
}

fn size_of_file(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |of| of.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(number: u128) -> RunId {
        RunId::new(1, number)
    }

    #[test]
    fn a_crash_leaves_the_history_before_a_line_or_after_it() {
        let state = tempfile::tempdir().unwrap();
        let opened = Opened { depth: 1, cwd: Some("/w".into()), before: vec![run(7)] };
        let lines = [
            Line::Opened(opened),
            Line::Said(json!({ "a": "联锁\n" })),
            Line::Handing(vec![0, 2]),
            Line::Batch(7),
            Line::Said(json!({ "b": 2 })),
            Line::Whole(vec![json!({ "c": 3 })]),
            Line::Said(json!({ "d": 4 })),
        ];
        let mut kept = Conversation::open(state.path(), run(1)).unwrap();
        kept.write(&lines[..2]).unwrap();
        kept.write(&lines[2..]).unwrap();
        drop(kept);
        assert_eq!(read(state.path(), run(1)).unwrap(), lines);
        // The power may fail at every byte.
        let path = state.path().join("spill").join(run(1).to_string()).join("history.jsonl");
        let whole = std::fs::read(&path).unwrap();
        let mut seen = 0;
        for cut in 0..=whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let left = read(state.path(), run(1)).unwrap();
            assert_eq!(left, lines[..left.len()], "{cut}");
            assert!(left.len() >= seen);
            seen = left.len();
        }
        assert_eq!(seen, lines.len());
    }

    #[test]
    fn what_is_not_a_history_is_named() {
        let state = tempfile::tempdir().unwrap();
        assert!(matches!(read(state.path(), run(1)), Err(NotKept::NoSuchRun { .. })));
        drop(Conversation::open(state.path(), run(1)).unwrap());
        let path = state.path().join("spill").join(run(1).to_string()).join("history.jsonl");
        for wrong in ["{}\n", "{\"history\": 1}\n", "not json\n", "\u{0}\n"] {
            std::fs::write(&path, format!("{{\"batch\": 1}}\n{wrong}")).unwrap();
            assert!(matches!(read(state.path(), run(1)), Err(NotKept::NotALine { line: 2, .. })), "{wrong}");
        }
    }

    #[test]
    fn spilled_texts_are_kept_once_and_within_a_bound() {
        let state = tempfile::tempdir().unwrap();
        let mut kept = Conversation::open(state.path(), run(1)).unwrap();
        let path = kept.spill("a.txt", "abc").unwrap().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "abc");
        assert_eq!(kept.spill("a.txt", "abc").unwrap(), Some(path));
        assert_eq!(kept.spilled, 3);
        kept.spilled = SPILL_BYTES_MAX - 1;
        assert_eq!(kept.spill("b.txt", "xy").unwrap(), None);
        assert!(kept.spill("c.txt", "z").unwrap().is_some());
        // A second life counts what is there.
        assert_eq!(Conversation::open(state.path(), run(1)).unwrap().spilled, 4);
    }

    #[test]
    fn the_oldest_runs_go_first() {
        let state = tempfile::tempdir().unwrap();
        for number in 0..RUNS_MAX as u128 + 3 {
            drop(Conversation::open(state.path(), run(number)).unwrap());
        }
        let mut left: Vec<_> =
            std::fs::read_dir(state.path().join("spill")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left.len(), RUNS_MAX);
        assert_eq!(left[0].to_str(), Some(run(3).to_string().as_str()));
    }
}
