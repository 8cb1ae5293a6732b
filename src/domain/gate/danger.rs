//! Shell commands that no rule with a `*` was meant for: what breaks a machine, what runs later, what gives secrets away.

use crate::surface::shell::{Command, Script, Word};

use super::argv::Argv;
use super::carry::{is_standard_input, makes_what_it_is_fed};
use super::peel::{SHELLS, is_substituted};
use super::reach;
use super::runs::runs_what_it_is_fed;

/// A command that writes, without naming it, a file that is run or obeyed later: the timetable, units, git's settings.
pub(super) fn sets_what_runs_later(command: &Command) -> Option<&'static str> {
    let argv = Argv::of(command)?;
    match argv.name {
        "crontab" if !argv.says(&["-l"]) => Some("the timetable of cron"),
        "systemctl"
            if matches!(
                argv.verb(),
                "enable" | "link" | "edit" | "mask" | "unmask" | "disable" | "revert" | "set-property"
            ) =>
        {
            Some("the units of systemd")
        }
        "git" if argv.verb() == "config" => {
            const SHOWS: &[&str] =
                &["-l", "--list", "--get", "--get-all", "--get-regexp", "--get-urlmatch", "--show-origin"];
            let next = argv.rest.iter().skip_while(|word| word.text != "config").nth(1);
            let shows = argv.says(SHOWS) || next.is_some_and(|next| matches!(next.text.as_str(), "get" | "list"));
            (!shows && argv.operands().nth(2).is_some()
                || argv.says(&["--unset", "--unset-all", "-e", "--edit", "--add", "--replace-all"]))
            .then_some("the settings of git, which name programs")
        }
        _ => None,
    }
}

/// A command that breaks a machine or takes it over: asked about even where the mode asks for nothing.
pub(super) fn dangerous(command: &Command) -> Option<&'static str> {
    let argv = Argv::of(command)?;
    let has = |word: &str| argv.says(&[word]);
    match argv.name {
        "dd" if argv.begins("of=/dev/") => Some("it writes to a device"),
        "fdisk" | "sfdisk" | "parted" | "wipefs" | "blkdiscard" | "mkswap" => Some("it changes disks"),
        mkfs if mkfs.starts_with("mkfs") => Some("it changes disks"),
        "shutdown" | "reboot" | "halt" | "poweroff" | "init" | "telinit" => Some("it stops the machine"),
        "systemctl" if argv.says(&["stop", "disable", "mask", "kill", "reboot", "poweroff", "isolate"]) => {
            Some("it stops a service or the machine")
        }
        "kill" if has("1") || has("-1") => Some("it kills everything"),
        "chmod" | "chown" | "chgrp" if (argv.begins("-R") || has("--recursive")) && has("/") => {
            Some("it changes the rights of everything")
        }
        "iptables" | "nft" | "ufw" if has("-F") || has("flush") || has("disable") => Some("it takes down the firewall"),
        "insmod" | "modprobe" | "rmmod" | "kexec" => Some("it changes the kernel"),
        "useradd" | "usermod" | "userdel" | "passwd" | "chpasswd" | "visudo" => Some("it changes who may log in"),
        "crontab" if has("-r") || has("-") => Some("it changes what runs by itself"),
        "sudo" | "su" | "doas" | "pkexec" => Some("it takes other rights"),
        "docker" | "podman" | "nerdctl" if argv.begins("--privileged") => Some("its container may do everything"),
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
                && (argv.operands().next().is_none()
                    || has("-s")
                    || argv.rest.iter().any(|word| is_standard_input(&word.text))) =>
        {
            Some("a shell runs what it is fed")
        }
        name if reach::is_interpreter(name)
            && (command.fed && runs_what_it_is_fed(command) || makes_what_it_is_fed(command) || argv.begins("<(")) =>
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
    let argv = Argv::of(command)?;
    let verbs = || argv.operands().map(|word| word.text.as_str());
    let says = |wanted: &[&str]| argv.names_all(wanted);
    match argv.name {
        "gpg" | "gpg2" if argv.begins("--export-secret") => Some("private keys"),
        "pass" | "gopass" if !says(&["ls"]) && !says(&["list"]) && verbs().next().is_some() => Some("a password"),
        "security" if verbs().any(|verb| verb.starts_with("find-") || verb == "dump-keychain") => {
            Some("a password of the keychain")
        }
        "secret-tool" if says(&["lookup"]) || says(&["search"]) => Some("a password of the keyring"),
        "keyctl" if says(&["print"]) || says(&["pipe"]) => Some("a key of the kernel's keyring"),
        "kubectl" | "oc"
            if (says(&["get"]) || says(&["describe"])) && verbs().any(|verb| verb.starts_with("secret")) =>
        {
            Some("secrets of the cluster")
        }
        "gh" | "glab" if says(&["auth", "token"]) => Some("a token"),
        "npm" if says(&["token"]) => Some("a token"),
        "gcloud" if verbs().any(|verb| verb.starts_with("print-") && verb.ends_with("token")) => Some("a token"),
        "az" if says(&["get-access-token"]) => Some("a token"),
        "aws"
            if verbs().any(|verb| {
                matches!(verb, "get-secret-value" | "get-session-token" | "export-credentials")
                    || verb.contains("secret_access_key")
            }) =>
        {
            Some("credentials of a cloud")
        }
        "vault" if says(&["read"]) || says(&["kv", "get"]) || says(&["token"]) => Some("secrets of the vault"),
        "op" if says(&["read"]) || says(&["item", "get"]) => Some("a password"),
        "bw" if says(&["get"]) => Some("a password"),
        "doppler" if says(&["secrets"]) => Some("secrets"),
        "sops" if argv.says(&["-d", "--decrypt", "decrypt"]) => Some("decrypted secrets"),
        "ansible-vault" if says(&["view"]) || says(&["decrypt"]) => Some("decrypted secrets"),
        "git" if says(&["credential", "fill"]) => Some("a password"),
        "ssh-keygen" if argv.says(&["-y"]) => Some("a key"),
        _ => None,
    }
}

/// The files that a patch names which the script itself holds; `None` when the patch comes from somewhere else.
pub(super) fn patched(command: &Command, fed: &[String]) -> Option<Option<Vec<Word>>> {
    let argv = Argv::of(command)?;
    let rest = argv.rest;
    let applies = match argv.name {
        // A file that is named is the one that is changed.
        "patch" => {
            const VALUED: &[&str] = &["-i", "--input", "-d", "--directory", "-p", "-F", "-r", "-D", "-B", "-z"];
            let valued = |at: usize| at > 0 && VALUED.contains(&rest[at - 1].text.as_str());
            !rest.iter().enumerate().any(|(at, word)| !word.text.starts_with('-') && !valued(at))
        }
        "git" => rest.first().is_some_and(|verb| verb.text == "apply"),
        _ => return None,
    };
    let reads = !argv.says(&["--check", "--dry-run", "--stat", "--version"]);
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
