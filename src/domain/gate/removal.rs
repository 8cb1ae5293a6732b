//! Removals that take everything: no rule with a `*` was meant for them, and no mode waives the question.
//!
//! What a word will be is worked out as far as it can be told: the home and working directory, `$(pwd)` in its
//! spellings, defaults of variables. A variable that nobody set leaves nothing; what then remains of the path counts.

use crate::request::paths::{PathFacts, base, within};
use crate::surface::shell::{Command, Word};

use super::argv::{Argv, FD_RUNS};
use super::protected::is_a_home;
use super::reach;

/// Commands that remove what they are given.
pub(super) const REMOVES: &[&str] =
    &["rm", "rmdir", "shred", "unlink", "srm", "wipe", "trash", "trash-put", "rimraf", "del", "Remove-Item"];

/// Words of code that removes, in the languages of interpreters.
const REMOVING_CODE: &[&str] = &["rmtree", "rmSync", "rm_rf", "rm_r", "remove_tree", "rmdir", "unlink", "rimraf"];

/// A removal of the root, a top-level directory, the home directory, the working directory or one above it, or of
/// whatever an unset variable leaves; `None` when it removes something else.
pub(super) fn critical_removal(command: &Command, facts: &PathFacts) -> Option<String> {
    let argv = Argv::of(command)?;
    let Argv { name, rest } = argv;
    let targets: Vec<&Word> = match name {
        name if REMOVES.contains(&name) => argv.operands().collect(),
        "gio" if argv.says(&["trash", "remove"]) => argv.operands().skip(1).collect(),
        // Moving a directory away takes it from where it was.
        "mv" => {
            let mut operands: Vec<&Word> = argv.operands().collect();
            if argv.target_directory().is_none() {
                operands.pop();
            }
            operands
        }
        "rsync" if argv.begins("--del") => argv.operands().next_back().into_iter().collect(),
        "tar" if argv.says(&["--remove-files"]) => argv.operands().collect(),
        // Who takes the rights of a directory and all below it from everybody has removed it for them. The working
        // directory itself is somebody's own to do this with.
        "chmod" | "chown" | "chgrp" if argv.says(&["--recursive"]) || argv.has_letter(&['R']) => {
            let own = facts.resolve(&facts.cwd);
            let found = argv.operands().find(|word| {
                is_critical(word, facts) && own.as_deref() != facts.resolve(word.text.trim_end_matches("/*")).as_deref()
            });
            return found.filter(|word| !matches!(word.text.as_str(), "*" | "./*")).map(|word| word.text.clone());
        }
        "find" if argv.finds_for(REMOVES) => {
            let roots: Vec<&Word> = argv.find_roots().collect();
            // Without any it is the working directory.
            if roots.is_empty() {
                return Some(".".to_owned());
            }
            roots
        }
        // What follows the pattern; all that is found in the working directory, where nothing does.
        "fd" | "fdfind" if argv.says(FD_RUNS) && argv.rest.iter().any(|word| REMOVES.contains(&base(&word.text))) => {
            let roots: Vec<&Word> = argv.fd_roots().collect();
            if roots.is_empty() {
                return Some(".".to_owned());
            }
            roots
        }
        // What another command prints is removed, whatever it is.
        "xargs" | "parallel" if rest.iter().any(|word| REMOVES.contains(&base(&word.text))) => {
            return Some("what it is fed".to_owned());
        }
        name if reach::is_interpreter(name) && rest.iter().any(|word| removes_in_code(&word.text)) => {
            let paths = reach::quoted_texts(name, rest);
            return paths.into_iter().find(|path| is_critical(&Word::literal(path), facts));
        }
        _ => return None,
    };
    targets.into_iter().find(|word| is_critical(word, facts)).map(|word| word.text.clone())
}

fn removes_in_code(code: &str) -> bool {
    REMOVING_CODE.iter().any(|word| code.contains(word))
}

fn is_critical(word: &Word, facts: &PathFacts) -> bool {
    if word.braces {
        let plain = |text: String| {
            let mut plain = word.clone();
            (plain.text, plain.braces) = (text, false);
            plain
        };
        return reach::spellings(&word.text).into_iter().any(|text| is_critical(&plain(text), facts));
    }
    let mut text = word.text.as_str();
    // Removing all that is in a directory is removing the directory.
    while let Some(less) =
        text.strip_suffix("/*").or_else(|| text.strip_suffix("/.*")).or_else(|| text.strip_suffix("/."))
    {
        text = less;
    }
    // The home directory of somebody, whoever it is.
    if word.tilde && !text.trim_end_matches('/').contains('/') {
        return true;
    }
    if matches!(text, "*" | ".*" | "./*" | "{,.}*") && word.globs {
        return true;
    }
    if word.tilde
        && let Some((name, rest)) = text.strip_prefix('~').and_then(|rest| rest.split_once('/'))
        && !name.is_empty()
    {
        return is_critical_path(&format!("/home/{name}/{rest}"), facts);
    }
    if word.expands {
        return is_critical_when_expanded(text, text.len() < word.text.len(), facts);
    }
    // A pattern in the first part of a path stands for top-level directories.
    if word.globs && text.starts_with('/') && !text[1..].contains('/') {
        return true;
    }
    is_critical_path(text, facts)
}

/// What a word may become.
struct Expanded {
    /// With what is known put in, and nothing for what is not.
    text: String,
    /// Something in it is not known.
    unknown: bool,
    /// All of it that is not a slash is unknown.
    only_unknown: bool,
    /// It begins with what is not known.
    begins_unknown: bool,
    /// It is the output of another command, and nothing else.
    substituted: bool,
    /// `${X:?}`: it fails when it is not set.
    guarded: bool,
}

fn is_critical_when_expanded(text: &str, all_below: bool, facts: &PathFacts) -> bool {
    let found = expand(text, facts);
    if found.guarded {
        return false;
    }
    if !found.unknown {
        return is_critical_path(&found.text, facts);
    }
    if found.only_unknown {
        // Alone it is what somebody put in; with a slash beside it, unset it is the root. What a command prints is not
        // known at all.
        return found.substituted || all_below || found.text.contains('/');
    }
    // What is left of it, unset, may climb to the root all the same.
    let climbs = || facts.resolve(&found.text).as_deref() == Some("/");
    if found.begins_unknown { climbs() } else { is_critical_path(&found.text, facts) }
}

fn expand(text: &str, facts: &PathFacts) -> Expanded {
    let mut found = Expanded {
        text: String::new(),
        unknown: false,
        only_unknown: true,
        begins_unknown: false,
        substituted: false,
        guarded: false,
    };
    let mut left = text;
    while let Some(first) = left.chars().next() {
        let Some((part, rest)) = part(left) else {
            found.text.push(first);
            found.only_unknown &= matches!(first, '/' | '"');
            left = &left[first.len_utf8()..];
            continue;
        };
        left = rest;
        match value(part, facts) {
            Value::Known(known) => {
                found.text.push_str(&known);
                found.only_unknown = false;
            }
            Value::Guarded => found.guarded = true,
            Value::Unset => {
                found.begins_unknown |= found.text.is_empty();
                found.unknown = true;
            }
            Value::Printed => {
                found.begins_unknown |= found.text.is_empty();
                (found.unknown, found.substituted) = (true, true);
            }
        }
    }
    found
}

/// What an expansion stands for.
enum Value {
    Known(String),
    /// A variable that nobody may have set.
    Unset,
    /// What a command prints.
    Printed,
    Guarded,
}

/// The expansion that the text begins with, and what follows it.
pub(super) fn part(text: &str) -> Option<(&str, &str)> {
    let closed = |open: &str, closing: char| {
        let mut depth = 0_usize;
        for (at, letter) in text.char_indices().skip(open.len() - 1) {
            match letter {
                '(' | '{' => depth += 1,
                ')' | '}' if letter == closing && depth <= 1 => {
                    return text.get(at + 1..).map(|rest| (&text[..=at], rest));
                }
                ')' | '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        Some((text, ""))
    };
    if text.starts_with("$(") {
        return closed("$(", ')');
    }
    if text.starts_with("${") {
        return closed("${", '}');
    }
    if let Some(inner) = text.strip_prefix('`') {
        let end = inner.find('`').map_or(text.len(), |at| at + 2);
        return Some(text.split_at(end));
    }
    let name = text.strip_prefix('$')?;
    let end = name.find(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_')).unwrap_or(name.len());
    let end = if end == 0 { name.chars().next().map_or(0, char::len_utf8) } else { end };
    Some(text.split_at(end + 1))
}

fn value(part: &str, facts: &PathFacts) -> Value {
    let command = part.strip_prefix("$(").and_then(|inner| inner.strip_suffix(')'));
    let command = command.or_else(|| part.strip_prefix('`').and_then(|inner| inner.strip_suffix('`')));
    if let Some(command) = command {
        let words: Vec<&str> = command.split_whitespace().map(|word| word.trim_matches(['"', '\''])).collect();
        return match words.as_slice() {
            ["pwd", ..] | ["realpath" | "readlink" | "git", .., "." | "--show-toplevel"] => {
                Value::Known(facts.cwd.clone())
            }
            ["dirname", ..] => Value::Known(format!("{}/..", facts.cwd)),
            ["echo", path] if !path.contains(['$', '`']) => Value::Known((*path).to_owned()),
            _ => Value::Printed,
        };
    }
    let inner = part.strip_prefix("${").and_then(|inner| inner.strip_suffix('}'));
    let inner = inner.or_else(|| part.strip_prefix('$')).unwrap_or("");
    let end = inner.find(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_')).unwrap_or(inner.len());
    let (name, operator) = inner.split_at(end);
    if operator.starts_with(":?") {
        return Value::Guarded;
    }
    match name {
        "HOME" => return facts.home.clone().map_or(Value::Unset, Value::Known),
        "PWD" | "OLDPWD" => return Value::Known(facts.cwd.clone()),
        _ => {}
    }
    let default = [":-", "-", ":=", "="].iter().find_map(|sign| operator.strip_prefix(sign));
    match default {
        Some(default) if !default.is_empty() && !default.contains('$') => Value::Known(default.to_owned()),
        Some(_) | None => Value::Unset,
    }
}

fn is_critical_path(text: &str, facts: &PathFacts) -> bool {
    let text = if text.is_empty() { "/" } else { text };
    let Some(path) = facts.resolve(text) else { return false };
    let holds = |dir: Option<String>| dir.is_some_and(|dir| within(&dir, &path));
    path.matches('/').count() <= 1
        || is_a_home(&path)
        || holds(facts.home.as_deref().and_then(|home| facts.resolve(home)))
        || holds(facts.resolve(&facts.cwd))
        || facts.work_dirs.iter().any(|dir| holds(facts.resolve(dir)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::surface::shell::Script;

    #[test]
    fn removals_that_take_everything_are_known() {
        let facts = PathFacts { cwd: "/srv/ws".into(), home: Some("/home/u".into()), ..PathFacts::default() };
        let table = [
            ("rm -rf /", true),
            ("rm -rf /*", true),
            ("rm -rf /etc", true),
            ("rm -rf ~", true),
            ("rm -rf ~/", true),
            ("rm -rf ~/*", true),
            ("rm -rf $HOME", true),
            ("rm -rf \"$HOME\"/*", true),
            ("rm -rf .", true),
            ("rm -rf ..", true),
            ("rm -rf *", true),
            ("rm -rf /work", true),
            ("rm -rf \"$X\"/*", true),
            ("rm -rf $X/", true),
            ("rm -rf /$X", true),
            ("rm -rf \"${X:?}\"/*", false),
            ("rm -rf ${X}/build", false),
            ("rm -rf build", false),
            ("rm -rf /srv/ws/build", false),
            ("rm -rf ~/tmp", false),
            ("rm *.o", false),
            ("find / -delete", true),
            ("find build -delete", false),
            ("ls /", false),
            ("rm -rf ~other", true),
            ("rm -rf {/,x}", true),
            ("rm -rf {a,b}", false),
            ("rm -rf $(pwd)", true),
            ("mv ~ /x", true),
            ("mv -t /x .", true),
            ("mv a ..", false),
            ("find . -exec rm -rf {} +", true),
            ("find -name '*.o' -delete", true),
            ("find build -exec rm {} +", false),
            ("rm -rf `pwd`", true),
            ("rm -rf \"$( pwd )\"/*", true),
            ("rm -rf `pwd`/build", false),
            ("rm -rf $(git rev-parse --show-toplevel)", true),
            ("rm -rf $(some command)", true),
            ("rm -rf $X", false),
            ("rm -rf $X/$Y", true),
            ("rm -rf $X/..", true),
            ("rm -rf $X/a/../..", true),
            ("fd -X rm", true),
            ("fd o build -x rm", false),
            ("rm -rf \"$@\"/*", true),
            ("rm -rf ${X%/}/*", true),
            ("rm -rf ${X:-/}", true),
            ("rm -rf ${X:-build}", false),
            ("rm -rf /srv/ws/$X", true),
            ("rm -rf ~u/*", true),
            ("rm -rf /e*", true),
            ("ls | xargs rm -rf", true),
            ("ls | xargs echo", false),
            ("rsync -a --delete x/ ~/", true),
            ("rsync -a --delete x/ y/", false),
            ("python3 -c 'import shutil; shutil.rmtree(\"/\")'", true),
            ("python3 -c 'import shutil; shutil.rmtree(\"build\")'", false),
            ("gio trash ~", true),
            ("chmod -R 777 /", true),
            ("chown -R x ~", true),
            ("chmod -R 755 .", false),
            ("chmod -R 755 build", false),
        ];
        for (source, want) in table {
            let script = Script::parse(source);
            let found = script.commands().iter().any(|command| critical_removal(command, &facts).is_some());
            assert_eq!(found, want, "{source}");
        }
    }
}
