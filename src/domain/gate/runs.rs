//! Commands that run what their arguments say, or what they are fed: a rule with a `*` for the program would allow
//! anything, so it covers them only as far as it names what they run.

use crate::request::paths::base;
use crate::surface::shell::{Command, Word};

use super::argv::{Argv, FIND_RUNS, letters};
use super::peel::{SHELLS, WRAPPED_MAX, after, wrapper};
use super::{carry, reach};

/// Where in a command the one begins that it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inner {
    /// At this word, and what comes after it are its arguments.
    At(usize),
    /// Nobody here can tell.
    Somewhere,
}

/// Wrappers which pass on the words behind their options as they stand.
const PASSES_ON: &[&str] =
    &["builtin", "busybox", "chroot", "command", "doas", "nice", "nohup", "stdbuf", "sudo", "time", "timeout"];

/// Programs that run what stands right behind their verb; others want to know where, first.
const RUNS_THE_NEXT: &[&str] = &[
    "asdf",
    "bundle",
    "conda",
    "foreman",
    "hatch",
    "mamba",
    "micromamba",
    "nodenv",
    "pdm",
    "pipenv",
    "pixi",
    "poetry",
    "pyenv",
    "rbenv",
    "rye",
];

/// A rule with a `*` may cover the command: it runs none of its arguments, or `fixes` says of each text, from the first
/// word to the name of a program that is run, that the rule has it before its first `*`.
pub(super) fn is_bounded(command: &Command, fixes: impl Fn(&str) -> bool) -> bool {
    let mut at = 0;
    for _ in 0..WRAPPED_MAX {
        let left = Command { fed: command.fed, ..Command::of_words(&command.words[at..]) };
        match inner(&left) {
            None => return true,
            Some(Inner::Somewhere) => return false,
            Some(Inner::At(further)) => at += further,
        }
        let head = Command::of_words(&command.words[..=at]);
        if !command.words[at].is_fixed() || !fixes(&head.quoted()) {
            return false;
        }
    }
    false
}

/// Where the command begins that this one runs; `None` when it runs none of its arguments.
fn inner(command: &Command) -> Option<Inner> {
    let argv = Argv::of(command)?;
    let Argv { name, rest } = argv;
    if PASSES_ON.contains(&name) {
        // `command -v` only looks.
        let mut options = rest.iter().map_while(|word| letters(&word.text));
        if name == "command" && options.any(|letters| letters.contains(['v', 'V'])) {
            return None;
        }
        let passed = wrapper(name).map_or(rest, |wrapper| after(rest, wrapper));
        if passed.is_empty() {
            // `sudo -s` runs what it is fed.
            return command.fed.then_some(Inner::Somewhere);
        }
        return Some(Inner::At(command.words.len() - passed.len()));
    }
    if runs_some_argument(command) {
        return Some(Inner::Somewhere);
    }
    let from = if judges_its_verbs(name) { None } else { reach::runs_from(name, rest) }?;
    let first = rest.get(from)?;
    if RUNS_THE_NEXT.contains(&name) && !first.text.starts_with('-') {
        return Some(Inner::At(from + 1));
    }
    rest[from..].iter().any(|word| !word.text.starts_with('-')).then_some(Inner::Somewhere)
}

/// Programs some of whose verbs that run others are judged by [`runs_some_argument`] alone: `docker compose up` and
/// `yarn run build` run what a file says.
fn judges_its_verbs(name: &str) -> bool {
    matches!(name, "docker" | "podman" | "nerdctl" | "kubectl" | "npm" | "pnpm" | "yarn" | "uv" | "pipx")
}

/// It runs what one of its arguments says, or what it is fed, and no rule could say where that begins.
fn runs_some_argument(command: &Command) -> bool {
    let Some(Argv { name, rest: words }) = Argv::of(command) else { return false };
    if carry::runs_by_option(command) || runs_what_it_is_fed(command) || runs_a_script(name, words) {
        return true;
    }
    let rest: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
    match name {
        "find" => rest
            .iter()
            .any(|word| FIND_RUNS.contains(word) || matches!(*word, "-delete" | "-fls") || word.starts_with("-fprint")),
        "git" => rest.first().is_some_and(|word| word.starts_with('-') && *word != "--version" && *word != "--help"),
        "npx" | "bunx" | "pnpx" | "uvx" | "tsx" => true,
        "watch" | "setsid" | "ionice" | "flock" | "xargs" | "parallel" | "eval" | "exec" | "entr" => true,
        // What they are fed may tell them to run a command.
        "sqlite3" | "psql" | "mysql" | "mariadb" | "at" | "batch" | "su" => command.fed,
        "alias" | "trap" => !rest.is_empty(),
        "adb" => has_verb(&rest, &["shell"]),
        "direnv" | "mise" | "devbox" => has_verb(&rest, &["exec", "x", "run"]),
        "nix" => has_verb(&rest, &["run", "develop", "shell"]),
        "nix-shell" => true,
        "npm" => has_verb(&rest, &["exec", "x", "init", "create"]),
        "pnpm" | "yarn" => has_verb(&rest, &["dlx", "exec", "create", "init"]),
        "bun" => has_verb(&rest, &["x", "create"]),
        "deno" => has_verb(&rest, &["run"]) && rest.iter().any(|word| word.contains("://") || word.starts_with("npm:")),
        "pipx" => has_verb(&rest, &["run"]),
        "uv" => has_verb(&rest, &["run", "tool"]),
        "docker" | "podman" | "nerdctl" | "kubectl" => {
            has_verb(&rest, &["exec", "run", "debug"])
                || (has_verb(&rest, &["compose"]) && rest.iter().any(|word| matches!(*word, "exec" | "run")))
        }
        _ => false,
    }
}

/// A shell with `-c`, in whatever cluster of letters.
fn runs_a_script(name: &str, rest: &[Word]) -> bool {
    let script = |word: &Word| {
        let letters = word.text.strip_prefix(['-', '+']).filter(|letters| !letters.starts_with('-'));
        word.text == "--command" || letters.is_some_and(|letters| letters.contains('c'))
    };
    SHELLS.contains(&name) && rest.iter().take_while(|word| word.text.starts_with(['-', '+'])).any(script)
}

/// The verb of a command, behind its options and what they may take.
fn has_verb(rest: &[&str], verbs: &[&str]) -> bool {
    let is_option = |at: usize| rest.get(at).is_some_and(|word| word.starts_with('-'));
    let first = rest.iter().position(|word| !word.starts_with('-'));
    first.is_some_and(|first| {
        let value = first > 0 && !rest[first - 1].contains('=');
        verbs.contains(&rest[first])
            || (value && rest.get(first + 1).is_some_and(|word| verbs.contains(word)))
            || (value && is_option(first + 1) && rest[first + 1..].iter().any(|word| verbs.contains(word)))
    })
}

/// A shell or an interpreter whose code comes in by its standard input, or out of another command.
pub(super) fn runs_what_it_is_fed(command: &Command) -> bool {
    let Some((name, rest)) = command.words.split_first() else { return false };
    let name = base(&name.text);
    let says = |options: &[&str]| rest.iter().any(|word| options.contains(&word.text.as_str()));
    let stdin = rest.iter().any(|word| carry::is_standard_input(&word.text));
    if matches!(name, "." | "source") {
        return stdin;
    }
    if SHELLS.contains(&name) {
        // Without a file to run, or with `-s`, it runs what it is fed.
        return rest.iter().all(|word| word.text.starts_with('-')) || says(&["-s"]) || command.fed || stdin;
    }
    if !reach::is_interpreter(name) || matches!(name, "make" | "gmake" | "awk" | "gawk" | "mawk") {
        return false;
    }
    let asks = says(&["--version", "-V", "-v", "--help", "-h"]);
    let has_code = says(&["-c", "-e", "-m", "-r", "--eval", "--command"]) || rest.iter().any(|w| w.text.contains('.'));
    stdin || (!asks && !has_code && rest.iter().all(|word| word.text.starts_with('-')))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::surface::shell::Script;

    #[test]
    fn what_is_run_by_another_command_is_named_by_the_rule() {
        // the command, what of it a rule has before its `*`, may the rule cover it
        let table = [
            ("git status", "git", true),
            ("poetry run rm -rf x", "poetry", false),
            ("poetry run rm -rf x", "poetry run", false),
            ("poetry run pytest -x", "poetry run pytest", true),
            ("poetry install", "poetry", true),
            ("pipenv run rm x", "pipenv", false),
            ("bundle exec rm x", "bundle exec", false),
            ("bundle exec rspec x", "bundle exec rspec", true),
            ("conda run -n a rm x", "conda run", false),
            ("sudo rm x", "sudo", false),
            ("sudo -u root rm x", "sudo -u root", false),
            ("sudo systemctl status x", "sudo systemctl status", true),
            ("sudo nice rm x", "sudo nice", false),
            ("sudo bash -c 'rm x'", "sudo bash", false),
            ("busybox rm x", "busybox", false),
            ("chroot /a rm x", "chroot /a", false),
            ("ssh host rm x", "ssh host rm", false),
            ("ssh", "ssh", true),
            ("strace -o l rm x", "strace", false),
            ("bash -c 'rm x'", "bash", false),
            ("bash -ec 'rm x'", "bash", false),
            ("bash x.sh -c", "bash", true),
            ("sh -e x.sh", "sh", true),
            ("command -- rm x", "command", false),
            ("command -v rm", "command", true),
            ("time -o f rm x", "time", false),
            ("trap 'rm x' EXIT", "trap", false),
            ("adb shell rm x", "adb shell rm", false),
            ("docker compose up", "docker compose", true),
            ("yarn run build", "yarn run", true),
            ("op run -- rm x", "op", false),
            ("ip netns exec a rm x", "ip netns exec a", false),
            ("ip addr", "ip", true),
            ("rustup run nightly rm x", "rustup run nightly", false),
            ("docker exec a rm x", "docker exec a rm", false),
        ];
        for (source, head, want) in table {
            let script = Script::parse(source);
            let fixes = |text: &str| head == text || head.strip_prefix(text).is_some_and(|rest| rest.starts_with(' '));
            assert_eq!(is_bounded(&script.commands()[0], fixes), want, "{source} by {head}");
        }
    }
}
