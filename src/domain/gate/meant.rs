//! The paths that the words of a command may stand for, as far as they can be told before it runs.

use std::borrow::Cow;

use crate::request::paths::PathFacts;
use crate::surface::shell::Word;

use super::protected::{PROTECTED_DIRS, PROTECTED_FILES};
use super::reach;

/// What in a word may be a path: the word, and what comes after `=`, `@`, `:` or a flag's letter.
pub(super) fn pieces(word: &str) -> impl Iterator<Item = &str> {
    let flag = word.starts_with('-');
    let whole = (!flag).then_some(word);
    let marks = word.bytes().enumerate().filter(|(_, byte)| matches!(byte, b'=' | b'@' | b':'));
    let marked = marks.map(|(at, _)| &word[at + 1..]);
    let glued = flag.then(|| word.find(['/', '~', '.']).map(|at| &word[at..])).flatten();
    whole.into_iter().chain(marked).chain(glued).filter(|piece| !piece.is_empty())
}

/// The paths that a word may stand for, resolved; of a pattern, the one that it most looks like.
pub(super) fn candidates(facts: &PathFacts, word: &Word) -> Vec<String> {
    let mut found = Vec::new();
    find(facts, word, &mut found);
    found
}

/// As [`candidates`], put to those that were found already.
pub(super) fn find(facts: &PathFacts, word: &Word, found: &mut Vec<String>) {
    let mut resolve = |text: &str| found.extend(pieces(text).filter_map(|piece| facts.resolve(piece)));
    let text = spelled_out(facts, word);
    let texts = if word.braces { reach::spellings(&text) } else { vec![text.into_owned()] };
    for text in &texts {
        if !word.globs {
            resolve(text);
            continue;
        }
        resolve(&text.replace(['*', '?', '[', ']'], ""));
        let like = secrets_like(text).into_iter().chain(protected_like(text));
        like.for_each(|path| resolve(&path));
    }
}

/// The word as a path, with the directories put in that it names by a variable or a tilde.
fn spelled_out<'a>(facts: &PathFacts, word: &'a Word) -> Cow<'a, str> {
    let mut text = word.path();
    if word.expands {
        text = Cow::Owned(with_places(text.into_owned(), facts));
    }
    if !word.tilde {
        return text;
    }
    let text = in_directory(facts, text.into_owned(), true);
    // The home of somebody else is where homes are.
    let named = text.strip_prefix('~').map(|rest| rest.split_once('/').unwrap_or((rest, "")));
    Cow::Owned(match named {
        Some(("root", rest)) => format!("/root/{rest}"),
        Some((name, rest)) if !name.is_empty() => format!("/home/{name}/{rest}"),
        Some(_) | None => text,
    })
}

/// With the home and the working directory in the place of their variables.
pub(super) fn with_places(mut text: String, facts: &PathFacts) -> String {
    let home = facts.home.as_deref().unwrap_or("~");
    let cwd = facts.cwd.as_str();
    for (variable, value) in [("${HOME}", home), ("$HOME", home), ("${PWD}", cwd), ("$PWD", cwd)] {
        if text.contains(variable) {
            text = text.replace(variable, value);
        }
    }
    text
}

/// `~+` is the working directory.
pub(super) fn in_directory(facts: &PathFacts, path: String, tilde: bool) -> String {
    match path.strip_prefix("~+").filter(|rest| tilde && (rest.is_empty() || rest.starts_with('/'))) {
        Some(rest) => format!("{}{rest}", facts.cwd),
        None => path,
    }
}

/// The pattern with the names in it of protected directories and files that its parts may stand for.
fn protected_like(pattern: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut begin = 0;
    for part in pattern.split('/') {
        let end = begin + part.len();
        let names = match end == pattern.len() {
            true => [PROTECTED_DIRS, PROTECTED_FILES],
            false => [PROTECTED_DIRS, &[]],
        };
        for name in likes(part, names.into_iter().flatten()) {
            found.push(format!("{}{name}{}", &pattern[..begin], &pattern[end..]));
        }
        begin = end + 1;
    }
    found
}

/// Which of these names a part of a pattern stands for. One of hardly more than a star stands for anything, and is not
/// taken for one that looks for any of them.
fn likes<'a>(part: &str, names: impl Iterator<Item = &'a &'a str>) -> Vec<&'a str> {
    if !part.contains(['*', '?', '[']) || !part.chars().any(char::is_alphanumeric) {
        return Vec::new();
    }
    let dotted = |known: &&&str| known.starts_with('.') == part.starts_with('.');
    // A pattern that begins with a letter stands for no name that begins with another one.
    let first = part.chars().next().filter(|first| first.is_alphanumeric());
    let begins = |known: &&&str| first.is_none_or(|first| known.starts_with(first));
    let known: Vec<&str> = names.filter(dotted).filter(begins).copied().collect();
    let Some(glob) = (!known.is_empty()).then(|| globset::Glob::new(part).ok()).flatten() else { return Vec::new() };
    let glob = glob.compile_matcher();
    known.into_iter().filter(|known| glob.is_match(known)).collect()
}

/// Well-known names of secrets that a pattern may stand for.
const SECRET_NAMES: &[&str] =
    &[".env", ".env.local", ".netrc", ".pgpass", ".git-credentials", "id_rsa", "id_ed25519", "credentials", "shadow"];

/// Those of them that a pattern may stand for, in the pattern's directory.
fn secrets_like(pattern: &str) -> Vec<String> {
    let (dir, name) = pattern.rsplit_once('/').map_or(("", pattern), |(dir, name)| (dir, name));
    let path = |known: &str| if dir.is_empty() { known.to_owned() } else { format!("{dir}/{known}") };
    likes(name, SECRET_NAMES.iter()).into_iter().map(path).collect()
}
