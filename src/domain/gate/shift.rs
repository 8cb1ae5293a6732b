//! What an earlier command of a line does to the paths of the later ones: another directory, a link that is laid.
//!
//! After `cd .git` a bare `config` is a protected file, and after `ln -s .git g` so is `g/config`. The facts about the
//! disk were gathered before any of it runs, so the gate follows both itself, as far as their words are fixed. It only
//! ever adds findings; what it cannot follow stays as it was judged.

use crate::request::paths::PathFacts;
use crate::surface::shell::{Command, Script};

use super::peel::base;

/// Commands beyond these are not followed: a line of so many moves is no line of a person, and the first ones count.
const SHIFTS_MAX: usize = 8;

/// The commands that come after a change, each with the facts as they are then.
pub(super) fn after(script: &Script, facts: &PathFacts) -> Vec<(usize, PathFacts)> {
    let mut now = facts.clone();
    let mut shifts = 0;
    let mut found = Vec::new();
    for (at, command) in script.commands().iter().enumerate() {
        // An option may name the directory for its own command.
        let own = directory_option(command).and_then(|dir| now.resolve(&dir)).map(|dir| moved(&now, dir));
        match own {
            Some(facts) => found.push((at, facts)),
            None if shifts > 0 => found.push((at, now.clone())),
            None => {}
        }
        if shifts < SHIFTS_MAX
            && let Some(next) = shifted(command, &now)
        {
            now = next;
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
    let operands: Vec<String> =
        rest.iter().filter(|word| !word.text.starts_with('-')).map(|word| known(word.path(), facts)).collect();
    match base(&name.text) {
        "cd" | "pushd" => {
            let dir = operands.first().cloned().or_else(|| facts.home.clone())?;
            facts.resolve(&dir).map(|dir| moved(facts, dir))
        }
        "ln" if rest.iter().any(|word| {
            word.text == "--symbolic"
                || (word.text.starts_with('-') && !word.text.starts_with("--") && word.text.contains('s'))
        }) =>
        {
            let [target, link] = operands.as_slice() else { return None };
            let link = facts.written(link)?;
            let mut laid = facts.clone();
            laid.links.insert(link, target.clone());
            Some(laid)
        }
        _ => None,
    }
}

fn known(text: String, facts: &PathFacts) -> String {
    let home = facts.home.as_deref().unwrap_or("~");
    text.replace("${HOME}", home).replace("$HOME", home).replace("${PWD}", &facts.cwd).replace("$PWD", &facts.cwd)
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
    at.and_then(|at| rest.get(at + 1)).filter(|word| word.is_fixed()).map(|word| word.path()).or(glued)
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let found = after(&Script::parse(source), &facts);
            let (_, then) = found.iter().find(|(at, _)| *at == which).unwrap();
            assert_eq!(then.resolve(path).as_deref(), Some(want), "{source}");
        }
        assert!(after(&Script::parse("cat a; cat b"), &facts).is_empty());
        assert!(after(&Script::parse(&"cd a;".repeat(200)), &facts).len() <= 200);
    }
}
