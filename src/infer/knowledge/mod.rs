//! Passages of manuals, found by what they say and by how it sounds.
//!
//! BM25 over characters and folded syllable pairs, in one FTS5 table. A question that a recogniser wrote wrongly still
//! has its syllables, and pairs of them hold words together without a dictionary: on this project's noisy questions the
//! syllables find every right passage first, words of a segmenter two in three, so no segmenter is loaded. An answer
//! is always a passage as it stands in its source, never a sentence made up; a question that no passage is about gets
//! none, and nothing here ever leads to an action.

mod read;
mod tokens;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rusqlite::{Connection, OpenFlags, OptionalExtension as _, params};
use thiserror::Error;

pub use read::{Passage, ReadError, json_lines, read};

/// The layout of the tables.
const LAYOUT: i32 = 1;
/// Passages that one library holds: a hundred thick manuals.
const PASSAGES_MAX: usize = 200_000;
/// Passages that are looked at closely for one question.
const LOOKED_AT: usize = 12;
/// How long a statement waits for another process that adds or removes.
const BUSY: Duration = Duration::from_secs(5);
/// How much of a question's own words, by weight, a passage must have. Set on the development questions and on
/// sentences about other things, by the experiment `understanding`.
const SHARE_MIN: f64 = 0.12;
/// A passage that shares fewer pairs of syllables than this must share one written the same.
const PAIRS_MIN: usize = 2;
/// Turns the weight of a match into a score below 1.
const HALF_SCORE: f64 = 20.0;

/// Why the library did not do it.
#[derive(Debug, Error)]
pub enum KnowledgeError {
    /// The file of the library cannot be used.
    #[error("knowledge {path}: {source}")]
    Store {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        source: rusqlite::Error,
    },
    /// The library has another layout.
    #[error("knowledge {path} has layout {found}; this build reads {LAYOUT}")]
    Layout {
        /// The file.
        path: PathBuf,
        /// Its layout.
        found: i32,
    },
    /// A source cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It would hold too much.
    #[error("{name}: {count} passages would be {PASSAGES_MAX} or more in all")]
    TooMany {
        /// The source.
        name: String,
        /// Its passages.
        count: usize,
    },
}

/// A passage that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// Its id: the one of its file, or its place there.
    pub id: String,
    /// Its title.
    pub title: String,
    /// What it says.
    pub text: String,
    /// Where it is from.
    pub source: String,
    /// 0 to 1, higher is nearer.
    pub score: f32,
}

/// A source in the library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Its name: the path that was added.
    pub name: String,
    /// How many passages it has.
    pub passages: usize,
}

/// The passages, in a file of SQLite or in memory.
pub struct Library {
    connection: Connection,
    path: PathBuf,
}

impl Library {
    /// Its file in a state directory.
    pub const FILE: &'static str = "knowledge.db";

    /// Opens the library in this file, and makes it if it is not there.
    ///
    /// # Errors
    /// When the file cannot be used.
    pub fn open(path: &Path) -> Result<Library, KnowledgeError> {
        let bad = |source| KnowledgeError::Store { path: path.to_owned(), source };
        Library::of(Connection::open(path).map_err(bad)?, path)
    }

    /// Opens a library that is there already, only to search in it; none when there is none.
    ///
    /// # Errors
    /// When the file cannot be used.
    pub fn open_to_read(path: &Path) -> Result<Option<Library>, KnowledgeError> {
        if !path.exists() {
            return Ok(None);
        }
        let bad = |source| KnowledgeError::Store { path: path.to_owned(), source };
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(bad)?;
        connection.busy_timeout(BUSY).map_err(bad)?;
        let library = Library { connection, path: path.to_owned() };
        library.layout()?;
        Ok(Some(library))
    }

    /// An empty library that is gone with the process.
    ///
    /// # Errors
    /// When SQLite cannot make it.
    pub fn in_memory() -> Result<Library, KnowledgeError> {
        let path = Path::new(":memory:");
        let bad = |source| KnowledgeError::Store { path: path.to_owned(), source };
        Library::of(Connection::open_in_memory().map_err(bad)?, path)
    }

    fn of(connection: Connection, path: &Path) -> Result<Library, KnowledgeError> {
        let library = Library { connection, path: path.to_owned() };
        let bad = |source| library.store(source);
        library.connection.busy_timeout(BUSY).map_err(bad)?;
        library.connection.pragma_update(None, "journal_mode", "WAL").map_err(bad)?;
        library.connection.pragma_update(None, "synchronous", "NORMAL").map_err(bad)?;
        if library.version()? == 0 {
            library
                .connection
                .execute_batch(&format!(
                    "BEGIN IMMEDIATE;
                     CREATE TABLE IF NOT EXISTS source (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, seen TEXT NOT NULL);
                     CREATE TABLE IF NOT EXISTS passage (
                         id INTEGER PRIMARY KEY, source INTEGER NOT NULL REFERENCES source (id),
                         key TEXT NOT NULL, title TEXT NOT NULL, text TEXT NOT NULL);
                     CREATE INDEX IF NOT EXISTS passage_source ON passage (source);
                     CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5 (
                         chars, sounds, content = '', contentless_delete = 1, tokenize = \"unicode61 tokenchars '_'\");
                     CREATE VIRTUAL TABLE IF NOT EXISTS vocabulary USING fts5vocab (words, col);
                     PRAGMA user_version = {LAYOUT};
                     COMMIT;"
                ))
                .map_err(bad)?;
        }
        library.layout()?;
        Ok(library)
    }

    fn version(&self) -> Result<i32, KnowledgeError> {
        self.connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(|source| self.store(source))
    }

    fn layout(&self) -> Result<(), KnowledgeError> {
        match self.version()? {
            LAYOUT => Ok(()),
            found => Err(KnowledgeError::Layout { path: self.path.clone(), found }),
        }
    }

    fn store(&self, source: rusqlite::Error) -> KnowledgeError {
        KnowledgeError::Store { path: self.path.clone(), source }
    }

    /// Puts a source in, in place of what it was before; how many passages it has.
    ///
    /// # Errors
    /// When the library would hold too much, or cannot be written; it is as it was then.
    pub fn put(&mut self, name: &str, passages: &[Passage]) -> Result<usize, KnowledgeError> {
        self.put_seen(name, passages, "")
    }

    /// The same, unless what is there was put with the same stamp; whether it was put.
    ///
    /// # Errors
    /// See [`Library::put`].
    pub fn put_if_new(&mut self, name: &str, passages: &[Passage], stamp: &str) -> Result<bool, KnowledgeError> {
        if self.seen()?.iter().any(|(kept, seen)| kept == name && seen == stamp) {
            return Ok(false);
        }
        self.put_seen(name, passages, stamp).map(|_| true)
    }

    fn put_seen(&mut self, name: &str, passages: &[Passage], seen: &str) -> Result<usize, KnowledgeError> {
        let path = self.path.clone();
        let bad = |source| KnowledgeError::Store { path: path.clone(), source };
        let change = self.connection.transaction().map_err(bad)?;
        delete(&change, name).map_err(bad)?;
        let others: i64 = change.query_row("SELECT count(*) FROM passage", [], |row| row.get(0)).map_err(bad)?;
        if usize::try_from(others).unwrap_or(usize::MAX).saturating_add(passages.len()) > PASSAGES_MAX {
            return Err(KnowledgeError::TooMany { name: name.to_owned(), count: passages.len() });
        }
        change.execute("INSERT INTO source (name, seen) VALUES (?1, ?2)", params![name, seen]).map_err(bad)?;
        let source = change.last_insert_rowid();
        for passage in passages {
            change
                .prepare_cached("INSERT INTO passage (source, key, title, text) VALUES (?1, ?2, ?3, ?4)")
                .and_then(|mut row| row.execute(params![source, passage.id, passage.title, passage.text]))
                .map_err(bad)?;
            let chars = tokens::symbols(&format!("{} {}", passage.title, passage.text));
            change
                .prepare_cached("INSERT INTO words (rowid, chars, sounds) VALUES (?1, ?2, ?3)")
                .and_then(|mut row| {
                    let (written, heard) = (tokens::written(&chars).join(" "), tokens::heard(&chars).join(" "));
                    row.execute(params![change.last_insert_rowid(), written, heard])
                })
                .map_err(bad)?;
        }
        change.commit().map_err(bad)?;
        Ok(passages.len())
    }

    /// Takes a source out; whether it was there.
    ///
    /// # Errors
    /// When the library cannot be written.
    pub fn remove(&mut self, name: &str) -> Result<bool, KnowledgeError> {
        let path = self.path.clone();
        let bad = |source| KnowledgeError::Store { path: path.clone(), source };
        let change = self.connection.transaction().map_err(bad)?;
        let was_there = delete(&change, name).map_err(bad)?;
        change.commit().map_err(bad)?;
        Ok(was_there)
    }

    /// The sources, by name.
    ///
    /// # Errors
    /// When the library cannot be read.
    pub fn sources(&self) -> Result<Vec<Source>, KnowledgeError> {
        let read = || -> rusqlite::Result<Vec<Source>> {
            let mut rows = self.connection.prepare_cached(
                "SELECT name, (SELECT count(*) FROM passage WHERE passage.source = source.id) FROM source ORDER BY name",
            )?;
            rows.query_map([], |row| {
                Ok(Source { name: row.get(0)?, passages: usize::try_from(row.get::<_, i64>(1)?).unwrap_or(0) })
            })?
            .collect()
        };
        read().map_err(|source| self.store(source))
    }

    /// Makes the sources that are folders of the configuration what those folders are now: what is new or changed is
    /// read, what is gone is taken out. Gives what a person should know, a line each; one bad file spoils no other.
    ///
    /// # Errors
    /// When the library cannot be read or written.
    pub fn sync(&mut self, folders: &[PathBuf]) -> Result<Vec<String>, KnowledgeError> {
        let mut said = Vec::new();
        let kept: Vec<(String, String)> = self.seen()?;
        let wanted: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
        for (name, _) in kept.iter().filter(|(name, seen)| seen.starts_with(read::OF_FOLDER) && !wanted.contains(name))
        {
            self.remove(name)?;
            said.push(format!("{name} is no knowledge folder any more; its passages are out"));
        }
        for (folder, name) in folders.iter().zip(&wanted) {
            let now = read::state(folder);
            if kept.iter().any(|(kept, seen)| kept == name && *seen == now) {
                continue;
            }
            let (passages, faults) = match read::read_all(folder) {
                Ok(all) => all,
                Err(error) => {
                    said.push(error.to_string());
                    continue;
                }
            };
            said.extend(faults.iter().map(ToString::to_string));
            let count = self.put_seen(name, &passages, &now)?;
            said.push(format!("{name}: {count} passages"));
        }
        Ok(said)
    }

    fn seen(&self) -> Result<Vec<(String, String)>, KnowledgeError> {
        let read = || -> rusqlite::Result<Vec<(String, String)>> {
            let mut rows = self.connection.prepare_cached("SELECT name, seen FROM source")?;
            rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        };
        read().map_err(|source| self.store(source))
    }

    /// The nearest passages to a text, best first, whatever it is about.
    ///
    /// # Errors
    /// When the library cannot be read.
    pub fn nearest(&self, text: &str, most: usize) -> Result<Vec<Found>, KnowledgeError> {
        let query = tokens::query(&tokens::symbols(text));
        if query.is_empty() {
            return Ok(Vec::new());
        }
        let read = || -> rusqlite::Result<Vec<Found>> {
            let mut rows = self.connection.prepare_cached(
                "SELECT passage.key, passage.title, passage.text, source.name, hits.weight
                 FROM (SELECT rowid, -bm25(words) AS weight FROM words WHERE words MATCH ?1 ORDER BY weight DESC LIMIT ?2)
                     AS hits
                 JOIN passage ON passage.id = hits.rowid JOIN source ON source.id = passage.source
                 ORDER BY hits.weight DESC, passage.id",
            )?;
            let most = i64::try_from(most).unwrap_or(i64::MAX);
            rows.query_map(params![query, most], |row| {
                let weight: f64 = row.get(4)?;
                #[expect(clippy::cast_possible_truncation, reason = "a score from 0 to 1 for a person")]
                let score = (weight / (weight + HALF_SCORE)).clamp(0.0, 1.0) as f32;
                Ok(Found { id: row.get(0)?, title: row.get(1)?, text: row.get(2)?, source: row.get(3)?, score })
            })?
            .collect()
        };
        read().map_err(|source| self.store(source))
    }

    /// The passages that answer a question, best first; none when the question is not of what they are about.
    ///
    /// # Errors
    /// When the library cannot be read.
    pub fn answer(&self, question: &str, most: usize) -> Result<Vec<Found>, KnowledgeError> {
        let mut found = self.nearest(question, LOOKED_AT)?;
        let about = match found.first() {
            Some(best) => self.is_about(question, best)?,
            None => false,
        };
        found.truncate(if about { most } else { 0 });
        Ok(found)
    }

    /// Whether the words of the question that are no question words are, by weight, those of the passage.
    fn is_about(&self, question: &str, passage: &Found) -> Result<bool, KnowledgeError> {
        let total: i64 = self
            .connection
            .query_row("SELECT count(*) FROM passage", [], |row| row.get(0))
            .map_err(|source| self.store(source))?;
        let passage = tokens::symbols(&format!("{} {}", passage.title, passage.text));
        let has: std::collections::BTreeSet<String> = tokens::heard(&passage).into_iter().collect();
        let asked = tokens::subject(&tokens::symbols(question));
        let (mut all, mut shared, mut pairs, mut same) = (0.0, 0.0, 0, false);
        for pair in &asked {
            let weight = self.weight(&pair.heard, total)?;
            all += weight;
            if has.contains(&pair.heard) {
                shared += weight;
                pairs += 1;
                same |= passage.windows(2).any(|two| two == pair.written);
            }
        }
        Ok(all > 0.0 && shared / all >= SHARE_MIN && (same || pairs >= PAIRS_MIN))
    }

    /// How much a pair of syllables tells: much when few passages have it.
    fn weight(&self, pair: &str, total: i64) -> Result<f64, KnowledgeError> {
        let count: Option<i64> = self
            .connection
            .prepare_cached("SELECT doc FROM vocabulary WHERE term = ?1 AND col = 'sounds'")
            .and_then(|mut row| row.query_row([pair], |row| row.get(0)).optional())
            .map_err(|source| self.store(source))?;
        #[expect(clippy::cast_precision_loss, reason = "at most PASSAGES_MAX")]
        let (with, without) = (count.unwrap_or(0) as f64, (total - count.unwrap_or(0)).max(0) as f64);
        Ok((1.0 + (without + 0.5) / (with + 0.5)).ln())
    }
}

/// Takes a source out of the tables; whether it was there.
fn delete(change: &Connection, name: &str) -> rusqlite::Result<bool> {
    let source: Option<i64> =
        change.query_row("SELECT id FROM source WHERE name = ?1", [name], |row| row.get(0)).optional()?;
    let Some(source) = source else { return Ok(false) };
    change.execute("DELETE FROM words WHERE rowid IN (SELECT id FROM passage WHERE source = ?1)", [source])?;
    change.execute("DELETE FROM passage WHERE source = ?1", [source])?;
    change.execute("DELETE FROM source WHERE id = ?1", [source])?;
    Ok(true)
}

/// When a file last changed, in nanoseconds; 0 where the file system does not say.
fn changed(metadata: &std::fs::Metadata) -> u128 {
    let since = metadata.modified().ok().and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
    since.map_or(0, |since| since.as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passage(id: &str, title: &str, text: &str) -> Passage {
        Passage { id: id.to_owned(), title: title.to_owned(), text: text.to_owned() }
    }

    fn library() -> Library {
        let mut library = Library::in_memory().expect("in memory");
        let passages = [
            passage("p1", "离心泵启动前检查", "联轴器防护罩齐全，盘车转动灵活；轴承箱油位在视镜二分之一至三分之二。"),
            passage("p2", "皮带跑偏的调整", "皮带向哪侧跑偏，就调紧哪侧的托辊；调整时一次不超过五毫米。"),
            passage("p3", "储气罐排水", "储气罐每班排水一次，防止冷凝水带入管网。"),
        ];
        library.put("manual", &passages).expect("put");
        library
    }

    fn check(question: &str, expected: Option<&str>) {
        let found = library().answer(question, 3).expect("searched");
        assert_eq!(found.first().map(|found| found.id.as_str()), expected, "{question}");
    }

    #[test]
    fn a_question_finds_its_passage_also_when_it_was_heard_wrongly() {
        check("离心泵启动前要检查什么", Some("p1"));
        check("皮带跑偏怎么调", Some("p2"));
        check("皮代泡片怎么挑", Some("p2"));
        check("儲氣罐多久排水", Some("p3"));
    }

    #[test]
    fn a_question_about_something_else_finds_nothing() {
        check("晚饭吃什么", None);
        check("这个月工资发了没", None);
        check("多少", None);
        check("", None);
        check("\"*) OR chars:(", None);
    }

    #[test]
    fn a_source_is_put_in_place_of_itself_and_taken_out_whole() {
        let mut library = library();
        library.put("manual", &[passage("p9", "新版", "风机喘振时先开大出口门。")]).expect("put");
        assert_eq!(library.sources().expect("listed"), [Source { name: "manual".to_owned(), passages: 1 }]);
        assert_eq!(library.answer("皮带跑偏怎么调", 3).expect("searched"), []);
        assert!(library.remove("manual").expect("removed"));
        assert!(!library.remove("manual").expect("was out already"));
        assert_eq!(library.answer("风机喘振怎么办", 3).expect("searched"), []);
        assert_eq!(library.weight("hen_zi", 1).expect("weighed"), library.weight("no_such", 1).expect("weighed"));
    }

    #[test]
    fn folders_are_followed_without_a_restart() {
        let folder = tempfile::tempdir().expect("a folder");
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        std::fs::create_dir(&one).expect("made");
        std::fs::write(one.join("a.md"), "# 风机喘振\n\n先开大出口门。\n").expect("written");
        let mut library = Library::in_memory().expect("in memory");
        library.put("by hand", &[passage("h", "手工", "阀门内漏时检查阀座。")]).expect("put");
        let asked = |library: &Library| library.answer("风机喘振怎么办", 1).expect("searched").len();
        assert_eq!(
            library.sync(std::slice::from_ref(&one)).expect("synced"),
            [format!("{}: 1 passages", one.display())]
        );
        assert_eq!(asked(&library), 1);
        assert_eq!(library.sync(std::slice::from_ref(&one)).expect("nothing new"), Vec::<String>::new());
        std::fs::remove_file(one.join("a.md")).expect("removed");
        library.sync(std::slice::from_ref(&one)).expect("synced");
        assert_eq!(asked(&library), 0);
        let said = library.sync(std::slice::from_ref(&other)).expect("synced");
        assert!(said.iter().any(|line| line.starts_with(&other.display().to_string())), "{said:?}");
        // What a person added stays.
        assert_eq!(library.answer("阀门内漏怎么判断", 1).expect("searched").len(), 1);
    }

    #[test]
    fn a_file_is_a_library_for_two_and_survives_a_restart() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("knowledge.db");
        assert!(Library::open_to_read(&path).expect("not there").is_none());
        let mut writer = Library::open(&path).expect("made");
        let reader = Library::open_to_read(&path).expect("opened").expect("there");
        writer.put("m", &[passage("h", "阀门内漏", "检查阀座。")]).expect("put");
        assert_eq!(reader.answer("阀门内漏怎么判断", 1).expect("searched").len(), 1);
        drop((writer, reader));
        let other = folder.path().join("other.db");
        std::fs::write(&other, "no database at all, and long enough to be read as one".repeat(20)).expect("spoiled");
        let path = other;
        let error = Library::open(&path).err().expect("refused").to_string();
        assert!(error.starts_with(&format!("knowledge {}: ", path.display())), "{error}");
    }
}
