//! What an earlier command of a line does to the paths of the later ones: another directory, a link that is laid.
//!
//! After `cd .git` a bare `config` is a protected file, and after `ln -s .git g` so is `g/config`. The facts about the
//! disk were gathered before any of it runs, so the gate follows both itself, as far as their words are fixed. It only
//! ever adds findings; what it cannot follow stays as it was judged.

use std::rc::Rc;

use crate::request::paths::{PathFacts, base};
use crate::surface::shell::Command;

use super::meant::with_places;

/// Commands beyond these are not followed: a line of so many moves is no line of a person, and the first ones count.
const SHIFTS_MAX: usize = 8;

/// The commands that come after a change, each with the facts as they are then.
pub(super) fn after<'a>(
    commands: impl IntoIterator<Item = &'a Command>,
    facts: &PathFacts,
) -> Vec<(usize, Rc<PathFacts>)> {
    let mut now: Option<Rc<PathFacts>> = None;
    let mut shifts = 0;
    let mut found = Vec::new();
    for (at, command) in commands.into_iter().enumerate() {
        let here = now.as_deref().unwrap_or(facts);
        // An option may name the directory for its own command.
        let own = directory_option(command).and_then(|dir| here.resolve(&dir)).map(|dir| moved(here, dir));
        let next = if shifts < SHIFTS_MAX { shifted(command, here) } else { None };
        found.extend(own.map(Rc::new).or_else(|| now.clone()).map(|then| (at, then)));
        if let Some(next) = next {
            now = Some(Rc::new(next));
            shifts += 1;
        }
    }
    found
}

fn moved(facts: &PathFacts, dir: String) -> PathFacts {
    let mut there = facts.clone();
    // Where it was before is still somebody's work.
    there.work_dirs.push(std::mem::replace(&mut there.cwd, dir));
    there
}

/// The facts after this command; `None` when it changes none that can be told.
fn shifted(command: &Command, facts: &PathFacts) -> Option<PathFacts> {
    let (name, rest) = command.words.split_first()?;
    let operands = || {
        let operands = rest.iter().filter(|word| !word.text.starts_with('-'));
        operands.map(|word| with_places(word.path().into_owned(), facts))
    };
    match base(&name.text) {
        "cd" | "pushd" => {
            let dir = operands().next().or_else(|| facts.home.clone())?;
            facts.resolve(&dir).map(|dir| moved(facts, dir))
        }
        "ln" if rest.iter().any(|word| {
            word.text == "--symbolic"
                || (word.text.starts_with('-') && !word.text.starts_with("--") && word.text.contains('s'))
        }) =>
        {
            let operands: Vec<String> = operands().collect();
            let [target, link] = operands.as_slice() else { return None };
            let link = facts.written(link)?;
            let mut laid = facts.clone();
            laid.links.insert(link, target.clone());
            Some(laid)
        }
        _ => None,
    }
}

/// `git -C DIR`, `make -C DIR`, `env -C DIR`: the directory that one command runs in.
fn directory_option(command: &Command) -> Option<String> {
    let (name, rest) = command.words.split_first()?;
    let options: &[&str] = match base(&name.text) {
        "git" | "make" => &["-C", "--directory"],
        "env" => &["-C", "--chdir"],
        "sudo" => &["-D", "--chdir"],
        _ => return None,
    };
    let at = rest.iter().position(|word| options.contains(&word.text.as_str()));
    let glued = rest.iter().find_map(|word| {
        options.iter().find_map(|option| word.text.strip_prefix(option)?.strip_prefix('=').map(str::to_owned))
    });
    at.and_then(|at| rest.get(at + 1)).filter(|word| word.is_fixed()).map(|word| word.path().into_owned()).or(glued)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::surface::shell::Script;

    #[test]
    fn directories_and_links_of_earlier_commands_are_followed() {
        let facts = PathFacts { cwd: "/ws".into(), home: Some("/home/u".into()), ..PathFacts::default() };
        // script, which command, a path, where it leads then
        let table = [
            ("cd .git && cat config", 1, "config", "/ws/.git/config"),
            ("cd a; cd b; cat x", 2, "x", "/ws/a/b/x"),
            ("cd; cat x", 1, "x", "/home/u/x"),
            ("cd .. && rm x", 1, "x", "/x"),
            ("pushd $HOME/.ssh; cat x", 1, "x", "/home/u/.ssh/x"),
            ("ln -s .git g && cat g/config", 1, "g/config", "/ws/.git/config"),
            ("ln -sfn /etc e; cat e/passwd", 1, "e/passwd", "/etc/passwd"),
            ("git -C sub status", 0, "x", "/ws/sub/x"),
        ];
        for (source, which, path, want) in table {
            let found = after(Script::parse(source).commands(), &facts);
            let (_, then) = found.iter().find(|(at, _)| *at == which).unwrap();
            assert_eq!(then.resolve(path).as_deref(), Some(want), "{source}");
        }
        assert!(after(Script::parse("cat a; cat b").commands(), &facts).is_empty());
        assert!(after(Script::parse(&"cd a;".repeat(200)).commands(), &facts).len() <= 200);
    }
}
