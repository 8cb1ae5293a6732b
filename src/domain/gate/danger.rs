//! Shell commands that no rule with a `*` was meant for: removals that take everything, and what breaks a machine.

use crate::request::paths::{PathFacts, within};
use crate::surface::shell::{Command, Word};

use super::peel::{SHELLS, base};
use super::reach;

/// A removal of the root, a top-level directory, the home directory, the working directory or one above it, or of
/// whatever an unset variable leaves; `None` when it removes something else.
pub(super) fn critical_removal(command: &Command, facts: &PathFacts) -> Option<String> {
    let (name, rest) = command.words.split_first()?;
    let targets: Vec<&Word> = match base(&name.text) {
        "rm" | "rmdir" | "shred" | "unlink" => rest.iter().filter(|word| !word.text.starts_with('-')).collect(),
        // Moving a directory away takes it from where it was.
        "mv" => {
            let operands: Vec<&Word> = rest.iter().filter(|word| !word.text.starts_with('-')).collect();
            let kept = usize::from(!rest.iter().any(|word| word.text == "-t"));
            operands[..operands.len().saturating_sub(kept)].to_vec()
        }
        "find" if removes_what_it_finds(rest) => {
            // What stands before the first expression; nothing there is the working directory.
            let roots: Vec<&Word> = rest.iter().take_while(|word| !word.text.starts_with(['-', '(', '!'])).collect();
            if roots.is_empty() {
                return Some(".".to_owned());
            }
            roots
        }
        _ => return None,
    };
    targets.into_iter().find(|word| is_critical(word, facts)).map(|word| word.text.clone())
}

fn removes_what_it_finds(rest: &[Word]) -> bool {
    let runs = |word: &Word| matches!(word.text.as_str(), "-exec" | "-execdir" | "-ok" | "-okdir");
    let removes = |word: &Word| matches!(base(&word.text), "rm" | "rmdir" | "shred" | "unlink");
    rest.iter().any(|word| word.text == "-delete")
        || rest.iter().position(runs).is_some_and(|at| rest[at + 1..].iter().any(removes))
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
    // The home directory of somebody, whoever it is.
    if word.tilde && !word.text.trim_end_matches('/').contains('/') {
        return true;
    }
    let mut text = word.text.as_str();
    // Removing all that is in a directory is removing the directory.
    while let Some(less) =
        text.strip_suffix("/*").or_else(|| text.strip_suffix("/.*")).or_else(|| text.strip_suffix("/."))
    {
        text = less;
    }
    if matches!(text, "*" | ".*" | "./*" | "{,.}*") && word.globs {
        return true;
    }
    let all_below = text.len() < word.text.len();
    if word.expands {
        let home = facts.home.as_deref().unwrap_or("");
        let text = text
            .replace("${HOME}", home)
            .replace("$HOME", home)
            .replace("${PWD}", &facts.cwd)
            .replace("$PWD", &facts.cwd)
            .replace("$(pwd)", &facts.cwd);
        let Some(at) = text.find('$') else { return is_critical_path(&text, all_below, facts) };
        // `${X:?}` fails when it is not set; with anything else, what is left of the path counts.
        if text[at..].contains(":?") {
            return false;
        }
        let rest = text[at..].trim_start_matches(['$', '{', '"']);
        let end = rest.find(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_')).unwrap_or(rest.len());
        let tail = rest[end..].trim_start_matches(['}', '"', ':', '-']);
        return text[..at].trim_matches('/').is_empty()
            && tail.trim_matches('/').is_empty()
            && (all_below || tail.contains('/') || at > 0);
    }
    is_critical_path(if text.is_empty() { "/" } else { text }, all_below, facts)
}

fn is_critical_path(text: &str, _all_below: bool, facts: &PathFacts) -> bool {
    let text = if text.is_empty() { "/" } else { text };
    let Some(path) = facts.resolve(text) else { return false };
    let home = facts.home.as_deref().and_then(|home| facts.resolve(home));
    let cwd = facts.resolve(&facts.cwd);
    path.matches('/').count() <= 1
        || home.is_some_and(|home| within(&home, &path))
        || cwd.is_some_and(|cwd| within(&cwd, &path))
}

/// A command that writes, without naming it, a file that is run or obeyed later: the timetable, units, git's settings.
pub(super) fn sets_what_runs_later(command: &Command) -> Option<&'static str> {
    let words: Vec<&str> = command.words.iter().map(|word| word.text.as_str()).collect();
    let (name, rest) = words.split_first()?;
    let verb = rest.iter().copied().find(|word| !word.starts_with('-')).unwrap_or("");
    let operands = rest.iter().filter(|word| !word.starts_with('-')).count();
    let has = |options: &[&str]| rest.iter().any(|word| options.contains(word));
    match base(name) {
        "crontab" if !has(&["-l"]) => Some("the timetable of cron"),
        "systemctl"
            if matches!(
                verb,
                "enable" | "link" | "edit" | "mask" | "unmask" | "disable" | "revert" | "set-property"
            ) =>
        {
            Some("the units of systemd")
        }
        "git" if verb == "config" => {
            let shows = has(&["-l", "--list", "--get", "--get-all", "--get-regexp", "--get-urlmatch", "--show-origin"])
                || rest
                    .iter()
                    .skip_while(|word| **word != "config")
                    .nth(1)
                    .is_some_and(|next| matches!(*next, "get" | "list"));
            (!shows && operands > 2 || has(&["--unset", "--unset-all", "-e", "--edit", "--add", "--replace-all"]))
                .then_some("the settings of git, which name programs")
        }
        _ => None,
    }
}

/// A command that breaks a machine or takes it over: asked about even where the mode asks for nothing.
pub(super) fn dangerous(command: &Command) -> Option<&'static str> {
    let words: Vec<&str> = command.words.iter().map(|word| word.text.as_str()).collect();
    let (name, rest) = words.split_first()?;
    let has = |word: &str| rest.contains(&word);
    let name = base(name);
    match name {
        "dd" if rest.iter().any(|word| word.starts_with("of=/dev/")) => Some("it writes to a device"),
        "fdisk" | "sfdisk" | "parted" | "wipefs" | "blkdiscard" | "mkswap" => Some("it changes disks"),
        mkfs if mkfs.starts_with("mkfs") => Some("it changes disks"),
        "shutdown" | "reboot" | "halt" | "poweroff" | "init" | "telinit" => Some("it stops the machine"),
        "systemctl"
            if ["stop", "disable", "mask", "kill", "reboot", "poweroff", "isolate"].iter().any(|verb| has(verb)) =>
        {
            Some("it stops a service or the machine")
        }
        "kill" if has("1") || has("-1") => Some("it kills everything"),
        "chmod" | "chown" | "chgrp"
            if rest.iter().any(|word| word.starts_with("-R") || *word == "--recursive") && has("/") =>
        {
            Some("it changes the rights of everything")
        }
        "iptables" | "nft" | "ufw" if has("-F") || has("flush") || has("disable") => Some("it takes down the firewall"),
        "insmod" | "modprobe" | "rmmod" | "kexec" => Some("it changes the kernel"),
        "useradd" | "usermod" | "userdel" | "passwd" | "chpasswd" | "visudo" => Some("it changes who may log in"),
        "crontab" if has("-r") || has("-") => Some("it changes what runs by itself"),
        "sudo" | "su" | "doas" | "pkexec" => Some("it takes other rights"),
        shell if SHELLS.contains(&shell) && command.fed && rest.iter().all(|word| word.starts_with('-')) => {
            Some("a shell runs what it is fed")
        }
        "python" | "python3" | "perl" | "node" | "ruby" if command.fed && rest.is_empty() => {
            Some("an interpreter runs what it is fed")
        }
        _ => None,
    }
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
        ];
        for (source, want) in table {
            let script = Script::parse(source);
            let found = script.commands().iter().any(|command| critical_removal(command, &facts).is_some());
            assert_eq!(found, want, "{source}");
        }
    }
}
