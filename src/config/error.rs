//! What is wrong with a file that a person wrote: the place, the key, the fact and what to do.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// One mistake in a configuration file. The whole file is refused for it (exit code 78): half a configuration is
/// one that nobody wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The file as the person named it.
    pub file: PathBuf,
    /// From 1; 0 when the file as a whole is meant.
    pub line: usize,
    /// From 1, in characters; 0 when the file as a whole is meant.
    pub column: usize,
    /// The key with its tables, `device.points.address`; empty when no key is meant.
    pub key: String,
    /// The fact, without a full stop.
    pub message: String,
    /// What to do about it, when there is something to do.
    pub hint: Option<String>,
}

impl ConfigError {
    /// A mistake of the file as a whole.
    #[must_use]
    pub fn of_file(file: &Path, message: impl Into<String>) -> ConfigError {
        ConfigError {
            file: file.to_owned(),
            line: 0,
            column: 0,
            key: String::new(),
            message: message.into(),
            hint: None,
        }
    }

    /// A mistake at the bytes `span` of `text`, which is what `file` holds.
    #[must_use]
    pub fn at(file: &Path, text: &str, span: Range<usize>, message: impl Into<String>) -> ConfigError {
        let (line, column) = line_and_column(text, span.start);
        ConfigError {
            file: file.to_owned(),
            line,
            column,
            key: key_at(text, span.start),
            message: message.into(),
            hint: None,
        }
    }

    /// What the TOML reader says of `text`.
    #[must_use]
    pub fn from_toml(file: &Path, text: &str, error: &toml::de::Error) -> ConfigError {
        let message = error.message().lines().next().unwrap_or_default().to_owned();
        match error.span() {
            Some(span) => ConfigError::at(file, text, span, message),
            None => ConfigError::of_file(file, message),
        }
    }

    /// The same with a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> ConfigError {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.message)
    }
}

impl std::error::Error for ConfigError {}

fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

/// The key that holds the byte `offset`, with its tables: the last table header above it and the key of its line.
fn key_at(text: &str, offset: usize) -> String {
    let line_start = text.get(..offset).unwrap_or(text).rfind('\n').map_or(0, |at| at + 1);
    let mut table = "";
    let mut key = "";
    // How many brackets of a value are open at the beginning of a line: inside of one, the key stands further up.
    let mut open = 0_usize;
    let mut at = 0;
    for line in text.split_inclusive('\n').take_while(|line| {
        let before = at;
        at += line.len();
        before <= line_start
    }) {
        let value = match (open, header(line)) {
            (0, Some(name)) => {
                (table, key) = (name, "");
                ""
            }
            (0, None) => {
                key = line.split_once('=').map_or("", |(key, _)| key.trim());
                line.split_once('=').map_or("", |(_, value)| value)
            }
            (_, _) => line,
        };
        open = still_open(value, open);
    }
    if key.starts_with('#') {
        key = "";
    }
    match (table.is_empty(), key.is_empty()) {
        (true, _) => key.to_owned(),
        (false, true) => table.to_owned(),
        (false, false) => format!("{table}.{key}"),
    }
}

/// How many brackets are open behind this piece of a value; those in quotes and in a comment do not count.
fn still_open(piece: &str, mut open: usize) -> usize {
    let mut quote = None;
    let mut escaped = false;
    for letter in piece.chars() {
        match (quote, letter) {
            (Some('"'), '\\') if !escaped => {
                escaped = true;
                continue;
            }
            (Some(mark), letter) if mark == letter && !escaped => quote = None,
            (None, '"' | '\'') => quote = Some(letter),
            (None, '#') => break,
            (None, '[' | '{') => open += 1,
            (None, ']' | '}') => open = open.saturating_sub(1),
            (Some(_) | None, _) => {}
        }
        escaped = false;
    }
    open
}

fn header(line: &str) -> Option<&str> {
    let line = line.trim();
    let name = line.strip_prefix('[')?.split(']').next()?;
    Some(name.trim_start_matches('[').trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, needle: &str, expected: &str) {
        let at = text.find(needle).expect("the needle is in the text");
        let error = ConfigError::at(Path::new("a.toml"), text, at..at + 1, "is wrong");
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn the_place_is_line_column_and_the_key_with_its_tables() {
        check("version = 2\n", "2", "a.toml:1:11: version: is wrong");
        check("version = 1\n[[device]]\nname = \"x\"\n", "\"x\"", "a.toml:3:8: device.name: is wrong");
        check("# 注释\n[a]\nb = [\n 1,\n \"日\", 9 ]\n", "9", "a.toml:5:7: a.b: is wrong");
        check("[a]\nb = [\n { c = \"x]\", d = 9 },\n]\n", "9", "a.toml:3:18: a.b: is wrong");
        check("[a]\nb = [ 1 ] # [\nc = 9\n", "9", "a.toml:3:5: a.c: is wrong");
        check("[mcp]\n", "mcp", "a.toml:1:2: mcp: is wrong");
    }
}
