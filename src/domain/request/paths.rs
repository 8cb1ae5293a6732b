//! What is known about paths: facts from outside, resolved in here by one algorithm.
//!
//! `sys` walks the paths that an input names and writes down each symlink that it meets; `policy check` takes the same
//! facts from its input. Resolving them is pure, so that the daemon, the offline verb and the tests agree. A path that
//! cannot be resolved (a loop, `..` above the root) has no canonical form, and whoever needs one must refuse.

use std::collections::BTreeMap;

use super::args::Digest;

/// How many symlinks one path may go through (Linux: `MAXSYMLINKS`).
const LINKS_MAX: usize = 40;

/// The longest path (Linux: `PATH_MAX`).
pub const PATH_BYTES_MAX: usize = 4096;

/// Facts about the file system, as of the moment when the wish was made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PathFacts {
    /// The working directory: absolute.
    pub cwd: String,
    /// The home directory of the person for whom the tool runs; `None` where there is none.
    pub home: Option<String>,
    /// The directories that the run may work in, besides [`PathFacts::cwd`]: absolute.
    pub work_dirs: Vec<String>,
    /// Each symlink met on the way: its absolute path (as met, earlier links already followed), and its text.
    pub links: BTreeMap<String, String>,
}

impl PathFacts {
    /// For binding an answer to the facts that it was given for.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let mut text = Vec::new();
        let mut put = |part: &str| {
            text.extend_from_slice(&(part.len() as u64).to_le_bytes());
            text.extend_from_slice(part.as_bytes());
        };
        put(&self.cwd);
        put(self.home.as_deref().unwrap_or("\0"));
        self.work_dirs.iter().for_each(|dir| put(dir));
        put("\0links");
        self.links.iter().for_each(|(link, target)| {
            put(link);
            put(target);
        });
        Digest::of(&text)
    }

    /// The path with every `.`, `..` and known symlink resolved, from the working directory. A leading `~/` is the
    /// home directory. A leaf that does not exist is kept, a leaf that is a dangling link is followed: creating it
    /// would create the target.
    ///
    /// `None` when there is no canonical form: no name at all, too many links, too long, a NUL, no working directory to start from, or
    /// `~` of somebody else.
    #[must_use]
    pub fn resolve(&self, path: &str) -> Option<String> {
        self.walk(path, &self.links)
    }

    fn walk(&self, path: &str, links: &BTreeMap<String, String>) -> Option<String> {
        if path.is_empty() || path.contains('\0') || path.len() > PATH_BYTES_MAX {
            return None;
        }
        let (start, path) = if path == "~" || path.starts_with("~/") {
            (self.home.as_deref()?, path.get(2..).unwrap_or(""))
        } else if path.starts_with('/') {
            ("", path)
        } else if path.starts_with('~') || !self.cwd.starts_with('/') {
            return None;
        } else {
            (self.cwd.as_str(), path)
        };
        let mut at = String::with_capacity(path.len() + start.len() + 1);
        // Nearly no path meets a link, and without one nothing has to be put aside.
        for part in parts(start).chain(parts(path)) {
            step(&mut at, part);
            if !links.is_empty() && links.contains_key(&at) {
                return walk_linked(start, path, links);
            }
            if at.len() > PATH_BYTES_MAX {
                return None;
            }
        }
        if at.is_empty() {
            at.push('/');
        }
        Some(at)
    }

    /// The path as it was written, absolute and without dots, links not followed.
    #[must_use]
    pub fn written(&self, path: &str) -> Option<String> {
        self.walk(path, &BTreeMap::new())
    }

    /// The canonical path lies in the working directory or in an added one.
    #[must_use]
    pub fn in_scope(&self, canonical: &str) -> bool {
        std::iter::once(&self.cwd)
            .chain(&self.work_dirs)
            .filter(|dir| dir.starts_with('/'))
            .filter_map(|dir| self.resolve(dir))
            .any(|dir| within(canonical, &dir))
    }
}

/// `path` is `dir` or lies below it; both canonical.
#[must_use]
pub fn within(path: &str, dir: &str) -> bool {
    dir == "/" || path.strip_prefix(dir).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// What stands between the slashes.
pub(crate) fn parts(path: &str) -> impl Iterator<Item = &str> {
    let mut left = Some(path);
    std::iter::from_fn(move || {
        let text = left?;
        let end = text.bytes().position(|byte| byte == b'/');
        left = end.map(|end| &text[end + 1..]);
        Some(&text[..end.unwrap_or(text.len())])
    })
}

/// What stands behind the last slash.
pub(crate) fn base(path: &str) -> &str {
    path.bytes().rposition(|byte| byte == b'/').map_or(path, |at| &path[at + 1..])
}

/// Goes on by one part, which is taken for a directory.
fn step(at: &mut String, part: &str) {
    match part {
        "" | "." => {}
        ".." => at.truncate(at.bytes().rposition(|byte| byte == b'/').unwrap_or(0)),
        _ => {
            at.push('/');
            at.push_str(part);
        }
    }
}

/// The walk over a path on which a link lies: what comes after the link waits until its target is walked.
fn walk_linked(start: &str, path: &str, links: &BTreeMap<String, String>) -> Option<String> {
    let mut at = String::with_capacity(path.len() + start.len() + 1);
    let mut todo: Vec<&str> = Vec::new();
    push(&mut todo, path);
    push(&mut todo, start);
    let mut followed = 0;
    while let Some(part) = todo.pop() {
        let parent = at.len();
        step(&mut at, part);
        if at.len() > parent
            && let Some(target) = links.get(&at)
        {
            followed += 1;
            if followed > LINKS_MAX || target.len() > PATH_BYTES_MAX {
                return None;
            }
            at.truncate(if target.starts_with('/') { 0 } else { parent });
            push(&mut todo, target);
        }
        if at.len() > PATH_BYTES_MAX {
            return None;
        }
    }
    if at.is_empty() {
        at.push('/');
    }
    Some(at)
}

/// Pushes the parts so that the first is popped first.
fn push<'a>(todo: &mut Vec<&'a str>, path: &'a str) {
    todo.extend(path.rsplit('/'));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(links: &[(&str, &str)]) -> PathFacts {
        PathFacts {
            cwd: "/ws".into(),
            home: Some("/home/u".into()),
            work_dirs: vec!["/extra".into()],
            links: links.iter().map(|(link, target)| ((*link).into(), (*target).into())).collect(),
        }
    }

    #[test]
    fn dots_and_links_are_resolved_before_anyone_looks() {
        let links = [("/ws/note", "/out/evil"), ("/ws/l", "src"), ("/ws/up", "../etc"), ("/ws/loop", "loop")];
        let table = [
            ("a", Some("/ws/a")),
            ("/", Some("/")),
            ("/..", Some("/")),
            ("docs/../src/a.rs", Some("/ws/src/a.rs")),
            ("/ws/note", Some("/out/evil")),
            ("/ws/note/x", Some("/out/evil/x")),
            ("./l/../src/./a", Some("/ws/src/a")),
            ("l/a", Some("/ws/src/a")),
            ("up/passwd", Some("/etc/passwd")),
            ("~/x", Some("/home/u/x")),
            ("~", Some("/home/u")),
            ("~root/x", None),
            ("loop", None),
            ("a\0b", None),
            ("..", Some("/")),
        ];
        for (path, want) in table {
            assert_eq!(facts(&links).resolve(path).as_deref(), want, "{path:?}");
        }
        assert_eq!(facts(&[]).resolve(&"a/".repeat(3000)), None);
    }

    #[test]
    fn scope_is_a_directory_and_not_a_prefix_of_text() {
        let facts = facts(&[]);
        for (path, want) in [("/ws", true), ("/ws/a", true), ("/wsx", false), ("/extra/b", true), ("/", false)] {
            assert_eq!(facts.in_scope(path), want, "{path}");
        }
    }

    #[test]
    fn scope_follows_a_working_directory_that_is_a_link() {
        assert!(facts(&[("/ws", "/data/ws")]).in_scope("/data/ws/a"));
    }

    #[test]
    fn another_fact_is_another_digest() {
        assert_ne!(facts(&[]).digest(), facts(&[("/ws/a", "/b")]).digest());
        assert_eq!(facts(&[]).digest(), facts(&[]).digest());
    }
}
