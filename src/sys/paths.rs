//! What the disk says about the paths that an input names: each symlink on the way, written down.
//!
//! Only looks, never opens. What was seen here may have changed when the tool opens the path, so the tool opens the
//! canonical path without following links, and that is where the race ends.

use std::collections::BTreeMap;
use std::path::Path;

use interlock_domain::request::paths::PathFacts;

/// How many symlinks one path may go through (Linux: `MAXSYMLINKS`).
const LINKS_MAX: usize = 40;

/// How many components are looked at for one path; a path of `PATH_MAX` bytes has at most half as many.
const PARTS_MAX: usize = 2048;

/// The facts about `paths`, seen from `cwd`.
#[must_use]
pub fn facts(paths: &[String], cwd: &Path, home: Option<&Path>, work_dirs: &[String]) -> PathFacts {
    let mut facts = unseen(cwd, home, work_dirs);
    let own = std::iter::once(facts.cwd.clone()).chain(facts.work_dirs.clone()).chain(facts.home.clone());
    for path in own.chain(paths.iter().cloned()) {
        look(&path, &mut facts);
    }
    facts
}

/// The same for a call that nothing on the disk says anything about: five looks a call are saved.
#[must_use]
pub fn unseen(cwd: &Path, home: Option<&Path>, work_dirs: &[String]) -> PathFacts {
    let text = |path: &Path| path.to_str().unwrap_or_default().to_owned();
    PathFacts { cwd: text(cwd), home: home.map(text), work_dirs: work_dirs.to_vec(), links: BTreeMap::new() }
}

fn look(path: &str, facts: &mut PathFacts) {
    let whole = match (path.strip_prefix("~/"), &facts.home) {
        (Some(rest), Some(home)) => format!("{home}/{rest}"),
        _ if path.starts_with('/') => path.to_owned(),
        _ => format!("{}/{path}", facts.cwd),
    };
    let mut todo: Vec<String> = whole.split('/').rev().map(str::to_owned).collect();
    let mut at = String::new();
    let (mut links, mut parts) = (0, 0);
    while let Some(part) = todo.pop() {
        parts += 1;
        if parts > PARTS_MAX {
            return;
        }
        match part.as_str() {
            "" | "." => continue,
            ".." => {
                at.truncate(at.rfind('/').unwrap_or(0));
                continue;
            }
            _ => {}
        }
        let parent = at.len();
        at.push('/');
        at.push_str(&part);
        // A name with a NUL, a path that is too long, or a directory that may not be searched ends the walk for this
        // component: it is then taken as it is written, and opening it fails.
        let Ok(target) = std::fs::read_link(&at) else { continue };
        let Some(target) = target.to_str() else { continue };
        facts.links.insert(at.clone(), target.to_owned());
        links += 1;
        if links > LINKS_MAX {
            return;
        }
        at.truncate(if target.starts_with('/') { 0 } else { parent });
        todo.extend(target.split('/').rev().map(str::to_owned));
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn every_link_on_the_way_is_written_down_and_resolves() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().canonicalize().unwrap().join(name);
        std::fs::create_dir_all(at("real/deep")).unwrap();
        symlink(at("real"), at("absolute")).unwrap();
        symlink("absolute/deep", at("relative")).unwrap();
        symlink("nowhere/at/all", at("dangling")).unwrap();
        symlink("loop", at("loop")).unwrap();
        let facts = facts(&["relative/file".into(), "dangling".into(), "loop/x".into()], &at(""), None, &[]);
        let canonical = |path: &str| facts.resolve(path);
        assert_eq!(canonical("relative/file"), Some(at("real/deep/file").to_str().unwrap().to_owned()));
        assert_eq!(canonical("dangling"), Some(at("nowhere/at/all").to_str().unwrap().to_owned()));
        assert_eq!(canonical("loop/x"), None);
    }
}
