//! Shell commands that no rule with a `*` was meant for: what breaks a machine, what runs later, what gives secrets away.

use crate::surface::shell::{Command, Script, Word};

use super::carry::{is_standard_input, makes_what_it_is_fed};
use super::peel::{SHELLS, base, is_substituted, runs_what_it_is_fed};
use super::reach;

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
        "docker" | "podman" | "nerdctl" if rest.iter().any(|word| word.starts_with("--privileged")) => {
            Some("its container may do everything")
        }
        "nsenter" if has("1") => Some("it leaves its container"),
        "chsh" => Some("it changes who may log in"),
        shell
            if (SHELLS.contains(&shell) || matches!(shell, "." | "source" | "eval"))
                && command.words.iter().skip(1).any(is_substituted) =>
        {
            Some("a shell runs what another command prints")
        }
        shell
            if SHELLS.contains(&shell)
                && command.fed
                && (rest.iter().all(|word| word.starts_with('-'))
                    || has("-s")
                    || rest.iter().any(|word| is_standard_input(word))) =>
        {
            Some("a shell runs what it is fed")
        }
        name if reach::is_interpreter(name)
            && (command.fed && runs_what_it_is_fed(command)
                || makes_what_it_is_fed(command)
                || rest.iter().any(|word| word.starts_with("<("))) =>
        {
            Some("an interpreter runs what it is fed")
        }
        _ => None,
    }
}

/// A function that calls itself twice, beside itself: it takes the machine down (`:(){ :|:& };:`).
pub(super) fn is_fork_bomb(script: &Script) -> bool {
    let dense: String = script.source().split_whitespace().collect();
    let Some((before, after)) = dense.split_once("(){") else { return false };
    let name = before.rsplit([';', '&', '|']).next().unwrap_or("").trim_start_matches("function");
    !name.is_empty() && after.starts_with(&format!("{name}|{name}&"))
}

/// A command that prints keys, passwords or tokens out of where they are kept.
pub(super) fn gives_secrets(command: &Command) -> Option<&'static str> {
    let words: Vec<&str> = command.words.iter().map(|word| word.text.as_str()).collect();
    let (name, rest) = words.split_first()?;
    let verbs: Vec<&str> = rest.iter().copied().filter(|word| !word.starts_with('-')).collect();
    let says = |wanted: &[&str]| wanted.iter().all(|word| verbs.contains(word));
    match base(name) {
        "gpg" | "gpg2" if rest.iter().any(|word| word.starts_with("--export-secret")) => Some("private keys"),
        "pass" | "gopass" if !says(&["ls"]) && !says(&["list"]) && !verbs.is_empty() => Some("a password"),
        "security" if verbs.iter().any(|verb| verb.starts_with("find-") || *verb == "dump-keychain") => {
            Some("a password of the keychain")
        }
        "secret-tool" if says(&["lookup"]) || says(&["search"]) => Some("a password of the keyring"),
        "keyctl" if says(&["print"]) || says(&["pipe"]) => Some("a key of the kernel's keyring"),
        "kubectl" | "oc"
            if (says(&["get"]) || says(&["describe"])) && verbs.iter().any(|verb| verb.starts_with("secret")) =>
        {
            Some("secrets of the cluster")
        }
        "gh" | "glab" if says(&["auth", "token"]) => Some("a token"),
        "npm" if says(&["token"]) => Some("a token"),
        "gcloud" if verbs.iter().any(|verb| verb.starts_with("print-") && verb.ends_with("token")) => Some("a token"),
        "az" if says(&["get-access-token"]) => Some("a token"),
        "aws"
            if verbs.iter().any(|verb| {
                matches!(*verb, "get-secret-value" | "get-session-token" | "export-credentials")
                    || verb.contains("secret_access_key")
            }) =>
        {
            Some("credentials of a cloud")
        }
        "vault" if says(&["read"]) || says(&["kv", "get"]) || says(&["token"]) => Some("secrets of the vault"),
        "op" if says(&["read"]) || says(&["item", "get"]) => Some("a password"),
        "bw" if says(&["get"]) => Some("a password"),
        "doppler" if says(&["secrets"]) => Some("secrets"),
        "sops" if rest.iter().any(|word| matches!(*word, "-d" | "--decrypt" | "decrypt")) => Some("decrypted secrets"),
        "ansible-vault" if says(&["view"]) || says(&["decrypt"]) => Some("decrypted secrets"),
        "git" if says(&["credential", "fill"]) => Some("a password"),
        "ssh-keygen" if rest.contains(&"-y") => Some("a key"),
        _ => None,
    }
}

/// The files that a patch names which the script itself holds; `None` when the patch comes from somewhere else.
pub(super) fn patched(command: &Command, fed: &[String]) -> Option<Option<Vec<Word>>> {
    let (name, rest) = command.words.split_first()?;
    let applies = match base(&name.text) {
        // A file that is named is the one that is changed.
        "patch" => {
            const VALUED: &[&str] = &["-i", "--input", "-d", "--directory", "-p", "-F", "-r", "-D", "-B", "-z"];
            let valued = |at: usize| at > 0 && VALUED.contains(&rest[at - 1].text.as_str());
            !rest.iter().enumerate().any(|(at, word)| !word.text.starts_with('-') && !valued(at))
        }
        "git" => rest.first().is_some_and(|verb| verb.text == "apply"),
        _ => return None,
    };
    let reads = !rest.iter().any(|word| matches!(word.text.as_str(), "--check" | "--dry-run" | "--stat" | "--version"));
    if !applies || !reads {
        return None;
    }
    let named: Vec<Word> = fed
        .iter()
        .flat_map(|text| text.lines())
        .filter_map(|line| line.strip_prefix("+++ ").or_else(|| line.strip_prefix("--- ")))
        .filter_map(|file| file.split_whitespace().next())
        .flat_map(|file| [file, file.split_once('/').map_or(file, |(_, rest)| rest)])
        .map(Word::literal)
        .collect();
    Some((!named.is_empty()).then_some(named))
}
