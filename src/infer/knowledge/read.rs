//! Manuals as they lie in folders, into passages: Markdown by its headings, JSON Lines line by line.
//!
//! It reads what it is shown and nothing else: links are not followed out of a folder, files have a bound, and a file
//! that is not text is named.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use thiserror::Error;

use super::changed;

/// The longest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Files in one source.
const FILES_MAX: usize = 10_000;
/// How deep folders are looked into.
const DEPTH_MAX: usize = 16;
/// A paragraph that would make a passage longer than this, in characters, begins a new one: an answer is read aloud.
const PASSAGE_LEN: usize = 500;
/// A passage is cut here, in characters, whatever it is.
const PASSAGE_LEN_MAX: usize = 4000;

/// How the state of a folder begins; a source that was added by hand has none.
pub(super) const OF_FOLDER: &str = "files:";

/// One passage of a manual.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passage {
    /// The `id` of its line, or its file and place.
    pub id: String,
    /// Its heading.
    pub title: String,
    /// What it says.
    pub text: String,
}

/// Why a source was not read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// A file or folder cannot be read.
    #[error("{path}: {source}")]
    Io {
        /// Which one.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// It is neither a folder nor a file that we read.
    #[error("{path} is no folder, .md, .txt or .jsonl file")]
    Kind {
        /// Which one.
        path: PathBuf,
    },
    /// A file is too long.
    #[error("{path}: {bytes} bytes; {FILE_BYTES_MAX} are read at most")]
    TooLong {
        /// Which one.
        path: PathBuf,
        /// Its length.
        bytes: u64,
    },
    /// A file is not text, or a line of it is not what it should be.
    #[error("{path}:{line}: {fact}")]
    Line {
        /// Which one.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        fact: String,
    },
    /// More files than one source may have.
    #[error("{path}: more than {FILES_MAX} files")]
    TooMany {
        /// The folder.
        path: PathBuf,
    },
}

/// Reads a file, or all files of a folder.
///
/// # Errors
/// The first mistake: what a person adds by hand is taken whole or not at all.
pub fn read(path: &Path) -> Result<Vec<Passage>, ReadError> {
    let (passages, mut faults) = read_all(path)?;
    if faults.is_empty() { Ok(passages) } else { Err(faults.remove(0)) }
}

/// The same, with the faults of single files beside the passages of the others.
pub(super) fn read_all(path: &Path) -> Result<(Vec<Passage>, Vec<ReadError>), ReadError> {
    let (mut passages, mut faults) = (Vec::new(), Vec::new());
    for file in files(path)? {
        // Passages are named by the file's place in its source, so that two `index.md` are two.
        let name = file.strip_prefix(path).ok().filter(|rest| !rest.as_os_str().is_empty());
        let name = name.map_or_else(|| file.file_name().unwrap_or_default().into(), Path::to_path_buf);
        match read_file(&file, &name.display().to_string()) {
            Ok(more) => passages.extend(more),
            Err(error) => faults.push(error),
        }
    }
    Ok((passages, faults))
}

/// The state of a source, to see whether it changed: each file with its length and its time.
pub(super) fn state(path: &Path) -> String {
    let mut state = String::from(OF_FOLDER);
    for file in files(path).unwrap_or_default() {
        if let Ok(metadata) = fs::metadata(&file) {
            // Writing into a string cannot fail.
            let _ = write!(state, "\n{} {} {}", file.display(), metadata.len(), changed(&metadata));
        }
    }
    state
}

fn files(path: &Path) -> Result<Vec<PathBuf>, ReadError> {
    let io = |path: &Path, source| ReadError::Io { path: path.to_owned(), source };
    let metadata = fs::metadata(path).map_err(|source| io(path, source))?;
    if metadata.is_file() {
        return if is_ours(path) { Ok(vec![path.to_owned()]) } else { Err(ReadError::Kind { path: path.to_owned() }) };
    }
    if !metadata.is_dir() {
        return Err(ReadError::Kind { path: path.to_owned() });
    }
    let (mut found, mut open) = (Vec::new(), vec![(path.to_owned(), 0)]);
    while let Some((folder, depth)) = open.pop() {
        for entry in fs::read_dir(&folder).map_err(|source| io(&folder, source))? {
            let entry = entry.map_err(|source| io(&folder, source))?;
            // Of the entry itself: a link is neither.
            let kind = entry.file_type().map_err(|source| io(&entry.path(), source))?;
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            if kind.is_dir() && depth < DEPTH_MAX && !hidden {
                open.push((entry.path(), depth + 1));
            } else if kind.is_file() && is_ours(&entry.path()) && !hidden {
                found.push(entry.path());
            }
            if found.len() > FILES_MAX {
                return Err(ReadError::TooMany { path: path.to_owned() });
            }
        }
    }
    found.sort();
    Ok(found)
}

fn is_ours(path: &Path) -> bool {
    matches!(path.extension().and_then(|ending| ending.to_str()), Some("md" | "markdown" | "txt" | "jsonl"))
}

fn read_file(path: &Path, name: &str) -> Result<Vec<Passage>, ReadError> {
    let io = |source| ReadError::Io { path: path.to_owned(), source };
    let bytes = fs::metadata(path).map_err(io)?.len();
    if bytes > FILE_BYTES_MAX {
        return Err(ReadError::TooLong { path: path.to_owned(), bytes });
    }
    let text = String::from_utf8(fs::read(path).map_err(io)?).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
        ReadError::Line { path: path.to_owned(), line, fact: "not UTF-8 (save it as UTF-8, not GBK)".to_owned() }
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    if path.extension().is_some_and(|ending| ending == "jsonl") {
        json_lines(path, text)
    } else {
        Ok(markdown(text, name))
    }
}

/// Lines of `{"id", "title", "text"}`; other keys are left alone. `path` is for messages.
///
/// # Errors
/// The first bad line.
pub fn json_lines(path: &Path, text: &str) -> Result<Vec<Passage>, ReadError> {
    let mut passages: Vec<Passage> = Vec::new();
    let mut ids = std::collections::BTreeSet::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let bad = |fact: String| ReadError::Line { path: path.to_owned(), line: at + 1, fact };
        let value: Value = serde_json::from_str(line).map_err(|error| bad(format!("not JSON: {error}")))?;
        let field = |key: &str| match value.get(key) {
            Some(Value::String(text)) => Ok(Some(cut(text))),
            Some(Value::Number(number)) if key == "id" => Ok(Some(number.to_string())),
            None | Some(Value::Null) => Ok(None),
            Some(_) => Err(bad(format!("{key} is not a text"))),
        };
        let text = field("text")?.filter(|text| !text.trim().is_empty());
        let text = text.ok_or_else(|| bad("text is missing".to_owned()))?;
        let id = field("id")?.ok_or_else(|| bad("id is missing".to_owned()))?;
        if !ids.insert(id.clone()) {
            return Err(bad(format!("id {id:?} is there twice")));
        }
        passages.push(Passage { id, title: field("title")?.unwrap_or_default(), text });
    }
    Ok(passages)
}

/// The text under each heading, in pieces of a few paragraphs. The title is the path of headings.
fn markdown(text: &str, name: &str) -> Vec<Passage> {
    let mut passages: Vec<Passage> = Vec::new();
    let mut headings: Vec<(usize, String)> = Vec::new();
    let (mut body, mut paragraph, mut code) = (String::new(), String::new(), false);
    let mut close = |headings: &[(usize, String)], body: &mut String| {
        let said = body.trim();
        if !said.is_empty() {
            let title: Vec<&str> = headings.iter().map(|(_, title)| title.as_str()).collect();
            let id = format!("{name}#{}", passages.len() + 1);
            passages.push(Passage { id, title: cut(&title.join(" / ")), text: cut(said) });
        }
        body.clear();
    };
    for line in text.lines().chain(["", "# "]) {
        code ^= line.trim_start().starts_with("```");
        let level = line.bytes().take_while(|byte| *byte == b'#').count();
        let heading = !code && (1..=6).contains(&level) && line[level..].starts_with(' ');
        if heading || line.trim().is_empty() {
            if body.chars().count() + paragraph.chars().count() > PASSAGE_LEN {
                close(&headings, &mut body);
            }
            body.push_str(&paragraph);
            body.push('\n');
            paragraph.clear();
        }
        if heading {
            close(&headings, &mut body);
            headings.retain(|(above, _)| *above < level);
            headings.push((level, line[level..].trim().trim_end_matches('#').trim().to_owned()));
        } else {
            paragraph.push_str(line);
            paragraph.push('\n');
        }
    }
    passages
}

fn cut(text: &str) -> String {
    text.chars().take(PASSAGE_LEN_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_is_cut_at_headings_and_long_texts_at_paragraphs() {
        let text =
            "前言。\n\n# 水泵\n\n总说。\n\n## 启动前检查\n\n油位。\n盘车。\n\n```\n# 不是标题\n```\n# 风机\n喘振。\n";
        let found: Vec<(String, String, String)> =
            markdown(text, "a.md").into_iter().map(|p| (p.id, p.title, p.text)).collect();
        let expected = [
            ("a.md#1", "", "前言。"),
            ("a.md#2", "水泵", "总说。"),
            ("a.md#3", "水泵 / 启动前检查", "油位。\n盘车。\n\n\n```\n# 不是标题\n```"),
            ("a.md#4", "风机", "喘振。"),
        ];
        let expected = expected.map(|(id, title, text)| (id.to_owned(), title.to_owned(), text.to_owned()));
        assert_eq!(found, expected);
        let long = format!("# 长\n\n{}\n\n{}\n", "一".repeat(400), "二".repeat(400));
        let lengths: Vec<usize> = markdown(&long, "b.md").iter().map(|p| p.text.chars().count()).collect();
        assert_eq!(lengths, [400, 400]);
    }

    fn bad_line(text: &str, (line, fact): (usize, &str)) {
        let error = json_lines(Path::new("k.jsonl"), text).expect_err("refused").to_string();
        assert_eq!(error, format!("k.jsonl:{line}: {fact}"), "{text}");
    }

    #[test]
    fn a_bad_line_of_json_is_named() {
        let good = json_lines(
            Path::new("k.jsonl"),
            "{\"id\": \"k1\", \"title\": \"甲\", \"text\": \"乙\", \"category\": 1}\n\n{\"id\": 2, \"text\": \"丙\"}\n",
        );
        let good = good.expect("read");
        assert_eq!((good.len(), good[1].id.as_str(), good[1].title.as_str()), (2, "2", ""));
        bad_line("{\"id\": \"a\"}", (1, "text is missing"));
        bad_line("{\"text\": \"x\"}", (1, "id is missing"));
        bad_line("{\"id\": \"a\", \"text\": \"x\"}\n{\"id\": \"a\", \"text\": \"y\"}", (2, "id \"a\" is there twice"));
        bad_line("{\"id\": \"a\", \"text\": 3}", (1, "text is not a text"));
    }

    #[test]
    fn a_folder_is_read_without_its_links_and_a_file_that_is_no_text_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("sub")).expect("made");
        fs::write(at("sub/a.md"), "# 甲\n乙\n").expect("written");
        fs::write(at("note.pdf"), "%PDF").expect("written");
        std::os::unix::fs::symlink("/etc", at("link")).expect("linked");
        let names: Vec<String> = read(folder.path()).expect("read").into_iter().map(|p| p.id).collect();
        assert_eq!(names, ["sub/a.md#1"]);
        fs::write(at("gbk.txt"), [b'a', b'\n', 0xcb, 0xae, 0xff]).expect("written");
        let error = read(folder.path()).expect_err("refused").to_string();
        assert_eq!(error, format!("{}:2: not UTF-8 (save it as UTF-8, not GBK)", at("gbk.txt").display()));
        assert!(matches!(read(&at("note.pdf")), Err(ReadError::Kind { .. })));
    }
}
