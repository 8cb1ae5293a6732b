//! The maintenance hook: each observed change of declared paths runs the declared check once, and its bounded output goes
//! into the context of the same run (the Metis paper, 5.5).
//!
//! It looks after each batch, when every call of it has ended. Looking costs a walk over names and times; no file is
//! read. The check is the configuration's own command, like a hook: it is no tool of the model and asks nobody.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use interlock_domain::effect::report::Report;
use interlock_domain::request::args::Digest;
use serde_json::{Value, json};

use crate::sys::sandbox::Reach;
use crate::tool::shell::{self, Limits};

/// The most entries that one look walks over: a tenth of a second on a slow disk. What lies beyond is not looked at, and
/// the run is told so.
const ENTRIES_MAX: usize = 20_000;

/// The most of an output that goes into a context, bytes: the beginning and the end of it.
const OUTPUT_BYTES_MAX: usize = 4 * 1024;

/// A declared check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Its name.
    pub name: String,
    /// What it is about: absolute.
    pub paths: Vec<PathBuf>,
    /// The command line.
    pub command: String,
    /// How long it may take.
    pub timeout: Duration,
    /// What it may reach: it runs what an agent wrote.
    pub reach: Arc<Reach>,
}

/// What a check said, or what there is to say about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The check.
    pub name: String,
    /// Why there is a note.
    pub kind: Kind,
    /// What the model reads.
    pub text: String,
}

/// Why there is a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The check ran, and ended with this code.
    Exited(i64),
    /// The check ran, and has no exit code.
    NotEnded,
    /// Its paths hold more than a look walks over: changes beyond this many entries are not observed.
    TooMuch(usize),
}

/// The checks of one run, with what their paths looked like when they were looked at last.
#[derive(Debug, Default)]
pub struct Upkeep {
    checks: Vec<(Check, Look)>,
    entries_max: usize,
    /// The checks of which the run was told that they do not see everything.
    told: Vec<String>,
}

/// What one look saw.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Look {
    digest: Digest,
    /// There was more than it walked over.
    cut: bool,
}

impl Upkeep {
    /// Looks at the paths as they are before the run has done anything.
    pub async fn begin(checks: &[Check]) -> Upkeep {
        Upkeep::looking_at(checks, ENTRIES_MAX).await
    }

    async fn looking_at(checks: &[Check], entries_max: usize) -> Upkeep {
        let mut seen = Vec::with_capacity(checks.len());
        for check in checks {
            let look = look(check.paths.clone(), entries_max).await;
            seen.push((check.clone(), look));
        }
        Upkeep { checks: seen, entries_max, told: Vec::new() }
    }

    /// Looks again, and runs the check of everything that has changed: once for each change that is observed.
    pub async fn pending(&mut self, cwd: &Path) -> Vec<Note> {
        let mut notes = Vec::new();
        let most = self.entries_max;
        for (check, seen) in &mut self.checks {
            let now = look(check.paths.clone(), most).await;
            // Once for a run: it is a fact about the configuration, not about this batch.
            if now.cut && !self.told.contains(&check.name) {
                self.told.push(check.name.clone());
                notes.push(Note::too_much(check, most));
            }
            if now == *seen {
                continue;
            }
            notes.push(run(check, cwd).await);
            // After the check: what it makes itself is no change that it is to look at again.
            *seen = look(check.paths.clone(), most).await;
        }
        notes
    }
}

async fn run(check: &Check, cwd: &Path) -> Note {
    let input = json!({ "command": check.command, "timeout_s": check.timeout.as_secs() });
    let limits = Limits { output_max: OUTPUT_BYTES_MAX, ..Limits::default() };
    let (exit, said) = match shell::run(&input, cwd, limits, &check.reach).await {
        Report::Done(output) => {
            let stream = |name: &str| output[name]["text"].as_str().unwrap_or_default().trim().to_owned();
            let (out, err) = (stream("stdout"), stream("stderr"));
            let both = [out, err].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n");
            (output["exit_code"].as_i64(), both)
        }
        Report::Failed(failure) => (None, failure.message),
        Report::Lost(loss) => (None, interlock_domain::closure::loss_code(&loss).to_owned()),
    };
    let head = match exit {
        Some(0) => format!("[maintenance] {}: passed", check.name),
        Some(code) => format!("[maintenance] {}: exit {code}", check.name),
        None => format!("[maintenance] {}: did not end", check.name),
    };
    let text = if said.is_empty() { head } else { format!("{head}\n{said}") };
    let kind = exit.map_or(Kind::NotEnded, Kind::Exited);
    Note { name: check.name.clone(), kind, text: text[..text.floor_char_boundary(OUTPUT_BYTES_MAX * 2)].to_owned() }
}

impl Note {
    /// For the log.
    #[must_use]
    pub fn detail(&self) -> Value {
        match self.kind {
            Kind::Exited(code) => json!({ "check": self.name, "exit": code, "text": self.text }),
            Kind::NotEnded => json!({ "check": self.name, "exit": null, "text": self.text }),
            Kind::TooMuch(entries) => json!({ "check": self.name, "looked_at": entries, "text": self.text }),
        }
    }

    fn too_much(check: &Check, entries: usize) -> Note {
        let text = format!(
            "[maintenance] {}: its paths hold more than {entries} entries; changes beyond them are not seen, and this \
             check does not run for them",
            check.name
        );
        Note { name: check.name.clone(), kind: Kind::TooMuch(entries), text }
    }
}

/// Names, lengths and times of all that lies under the paths, as one digest, up to a bound.
async fn look(paths: Vec<PathBuf>, entries_max: usize) -> Look {
    let walked = tokio::task::spawn_blocking(move || {
        let mut text = Vec::new();
        let mut left = entries_max;
        let mut cut = false;
        let mut todo = paths;
        todo.reverse();
        while let Some(path) = todo.pop() {
            if left == 0 {
                cut = true;
                break;
            }
            left -= 1;
            text.extend_from_slice(path.as_os_str().as_encoded_bytes());
            // Not followed: a link is what it says, and no way out of the declared paths.
            let Ok(meta) = std::fs::symlink_metadata(&path) else {
                text.push(0);
                continue;
            };
            let changed = meta.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
            text.extend_from_slice(&meta.len().to_le_bytes());
            text.extend_from_slice(&changed.as_nanos().to_le_bytes());
            if meta.is_dir()
                && path.file_name().is_none_or(|name| name != ".git")
                && let Ok(entries) = std::fs::read_dir(&path)
            {
                let mut below: Vec<PathBuf> = entries.filter_map(Result::ok).map(|entry| entry.path()).collect();
                below.sort_unstable_by(|one, two| two.cmp(one));
                todo.extend(below);
            }
        }
        Look { digest: Digest::of(&text), cut }
    });
    walked.await.unwrap_or_else(|_| Look { digest: Digest::of(b""), cut: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_observed_change_of_declared_paths_runs_the_check_once() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("src");
        std::fs::create_dir_all(source.join("deep")).unwrap();
        std::fs::write(dir.path().join("other"), "x").unwrap();
        let check = |name: &str, command: &str| Check {
            name: name.to_owned(),
            paths: vec![source.clone()],
            command: command.to_owned(),
            timeout: Duration::from_secs(20),
            reach: Arc::default(),
        };
        let checks =
            [check("wrong", "echo seen; echo bad >&2; touch src/made; exit 3"), check("long", "yes | head -c 100000")];
        let mut upkeep = Upkeep::begin(&checks).await;
        assert_eq!(upkeep.pending(dir.path()).await, []);
        std::fs::write(dir.path().join("other"), "another").unwrap();
        assert_eq!(upkeep.pending(dir.path()).await, []);
        std::fs::write(source.join("deep/a"), "1").unwrap();
        let notes = upkeep.pending(dir.path()).await;
        assert_eq!(notes.len(), 2);
        let said = "[maintenance] wrong: exit 3\nseen\nbad";
        assert_eq!((notes[0].kind, notes[0].text.as_str()), (Kind::Exited(3), said));
        assert!(
            notes[1].kind == Kind::Exited(0) && notes[1].text.len() <= 2 * OUTPUT_BYTES_MAX,
            "{}",
            notes[1].text.len()
        );
        // What the first check made is a change for the second one, which was looked at after it; then there is none.
        assert_eq!(upkeep.pending(dir.path()).await, []);
        std::fs::remove_file(source.join("deep/a")).unwrap();
        assert_eq!(upkeep.pending(dir.path()).await.len(), 2);
    }

    #[tokio::test]
    async fn a_look_that_ends_early_is_said_once_and_what_it_saw_still_counts() {
        let dir = tempfile::tempdir().unwrap();
        for at in 0..20 {
            std::fs::write(dir.path().join(format!("f{at:02}")), "x").unwrap();
        }
        let check = Check {
            name: "many".to_owned(),
            paths: vec![dir.path().to_owned()],
            command: "true".to_owned(),
            timeout: Duration::from_secs(20),
            reach: Arc::default(),
        };
        let kinds = |notes: Vec<Note>| notes.into_iter().map(|note| note.kind).collect::<Vec<_>>();
        // 21 entries with the directory: one too many, or just enough.
        let mut narrow = Upkeep::looking_at(std::slice::from_ref(&check), 20).await;
        let notes = narrow.pending(dir.path()).await;
        assert_eq!(notes[0].detail()["looked_at"], 20);
        assert_eq!(kinds(notes), [Kind::TooMuch(20)]);
        std::fs::write(dir.path().join("f01"), "changed").unwrap();
        assert_eq!(kinds(narrow.pending(dir.path()).await), [Kind::Exited(0)]);
        std::fs::write(dir.path().join("f19"), "changed, and not seen").unwrap();
        assert_eq!(kinds(narrow.pending(dir.path()).await), []);
        let mut wide = Upkeep::looking_at(&[check], 21).await;
        assert_eq!(kinds(wide.pending(dir.path()).await), []);
    }
}
