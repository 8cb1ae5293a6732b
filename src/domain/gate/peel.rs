//! What a command runs that runs another one: wrappers peeled off, shells and `find -exec` looked into.
//!
//! For an allow only wrappers that change nothing about what is run are peeled; for a deny everything that can be seen
//! through.

use crate::request::paths::base;
use crate::surface::shell::{Command, Script, Word};

use super::argv::{FD_RUNS, FIND_RUNS};
use super::{carry, reach};

/// How many commands one command may turn out to run, and how deep they may be wrapped. What is beyond is not seen, and
/// the gate says so: padding must not hide what comes after it.
const VIEWS_MAX: usize = 64;
pub(super) const WRAPPED_MAX: usize = 8;

/// Variables that change only how output looks.
const HARMLESS_VARIABLES: &[&str] = &[
    "CI",
    "CLICOLOR",
    "COLUMNS",
    "FORCE_COLOR",
    "LANG",
    "LANGUAGE",
    "LINES",
    "NO_COLOR",
    "RUST_BACKTRACE",
    "TERM",
    "TZ",
];

/// A wrapper: the options that take a value in the next word, and how many operands come before the command.
pub(super) struct Wrapper {
    name: &'static str,
    valued: &'static [&'static str],
    operands: usize,
}

/// They change nothing about what is run.
const TRANSPARENT: &[Wrapper] = &[
    Wrapper { name: "timeout", valued: &["-k", "-s", "--kill-after", "--signal"], operands: 1 },
    Wrapper { name: "time", valued: &[], operands: 0 },
    Wrapper { name: "nice", valued: &["-n", "--adjustment"], operands: 0 },
    Wrapper { name: "nohup", valued: &[], operands: 0 },
    Wrapper { name: "stdbuf", valued: &["-i", "-o", "-e", "--input", "--output", "--error"], operands: 0 },
    Wrapper { name: "command", valued: &[], operands: 0 },
    Wrapper { name: "builtin", valued: &[], operands: 0 },
];

/// They run another command in other circumstances.
const WRAPPERS: &[Wrapper] = &[
    Wrapper { name: "busybox", valued: &[], operands: 0 },
    Wrapper { name: "chroot", valued: &[], operands: 1 },
    Wrapper { name: "doas", valued: &["-u", "-C"], operands: 0 },
    Wrapper { name: "env", valued: &["-u", "-C", "--unset", "--chdir"], operands: 0 },
    Wrapper { name: "exec", valued: &["-a"], operands: 0 },
    Wrapper { name: "flock", valued: &["-w", "-E", "--timeout", "--conflict-exit-code"], operands: 1 },
    Wrapper { name: "ionice", valued: &["-c", "-n", "-p", "--class", "--classdata"], operands: 0 },
    Wrapper { name: "setsid", valued: &[], operands: 0 },
    Wrapper {
        name: "sudo",
        valued: &["-u", "-g", "-h", "-p", "-C", "-r", "-t", "-U", "-D", "-T", "-R", "--user", "--group", "--chdir"],
        operands: 0,
    },
    Wrapper { name: "watch", valued: &["-n", "--interval"], operands: 0 },
    Wrapper {
        name: "xargs",
        valued: &[
            "-I",
            "-n",
            "-P",
            "-L",
            "-s",
            "-d",
            "-E",
            "-a",
            "--max-args",
            "--max-procs",
            "--delimiter",
            "--arg-file",
        ],
        operands: 0,
    },
];

/// Shells, whose `-c` takes a script.
pub(super) const SHELLS: &[&str] =
    &["ash", "bash", "csh", "dash", "elvish", "fish", "ksh", "mksh", "nu", "rbash", "sh", "tcsh", "xonsh", "zsh"];

/// Programs whose verb may stand behind options: for a deny `git -C x push` is `git push`.
const VERBED: &[&str] = &[
    "apk",
    "apt",
    "apt-get",
    "aws",
    "az",
    "brew",
    "cargo",
    "conda",
    "dnf",
    "docker",
    "gcloud",
    "gh",
    "git",
    "go",
    "helm",
    "kubectl",
    "nerdctl",
    "nix",
    "npm",
    "pip",
    "pip3",
    "pnpm",
    "podman",
    "poetry",
    "snap",
    "svn",
    "systemctl",
    "terraform",
    "uv",
    "yarn",
    "yum",
];

/// How many options before a verb are looked behind; a person writes two or three.
const VERB_OPTIONS_MAX: usize = 8;

/// The assignments in front change at most how output looks.
pub(super) fn is_harmlessly_set(command: &Command) -> bool {
    command.assignments.iter().all(|one| {
        one.value.is_fixed() && (HARMLESS_VARIABLES.contains(&one.name.as_str()) || one.name.starts_with("LC_"))
    })
}

/// The command behind wrappers that change nothing, without its assignments.
pub(super) fn core(command: &Command) -> Command {
    let mut words = command.words.as_slice();
    for _ in 0..WRAPPED_MAX {
        let Some(inner) = transparent(words) else { break };
        words = inner;
    }
    Command { fed: command.fed, ..Command::of_words(words) }
}

fn transparent(words: &[Word]) -> Option<&[Word]> {
    let name = name_of(words)?;
    let wrapper = TRANSPARENT.iter().find(|wrapper| wrapper.name == name)?;
    let rest = words.get(1..)?;
    // `time -o FILE` writes, `command -v` only looks: they are what they are.
    if matches!(name, "time" | "command")
        && rest.first().is_some_and(|word| word.text.starts_with('-') && word.text != "-p")
    {
        return None;
    }
    let inner = after(rest, wrapper);
    (!inner.is_empty()).then_some(inner)
}

/// The wrapper of this name, whether or not it changes what is run.
pub(super) fn wrapper(name: &str) -> Option<&'static Wrapper> {
    TRANSPARENT.iter().chain(WRAPPERS).find(|wrapper| wrapper.name == name)
}

/// What comes after the options and the operands of a wrapper.
pub(super) fn after<'a>(words: &'a [Word], wrapper: &Wrapper) -> &'a [Word] {
    let mut left = words;
    let mut operands = wrapper.operands;
    while let Some((word, rest)) = left.split_first() {
        let text = word.text.as_str();
        let sets = matches!(wrapper.name, "env" | "sudo") && text.contains('=') && !text.starts_with('-');
        if text == "--" {
            left = rest;
            if operands == 0 {
                break;
            }
        } else if text.len() > 1 && text.starts_with('-') {
            left = if wrapper.valued.contains(&text) { rest.get(1..).unwrap_or(&[]) } else { rest };
        } else if sets || text == "-" {
            left = rest;
        } else if operands > 0 {
            operands -= 1;
            left = rest;
        } else {
            break;
        }
    }
    left
}

fn name_of(words: &[Word]) -> Option<&str> {
    words.first().filter(|word| word.is_fixed()).map(|word| base(&word.text))
}

/// A command that another one can be seen to run.
#[derive(Debug, Clone)]
pub(super) struct View {
    pub(super) command: Command,
    /// It was read out of a script inside of a word, so that its words are not those of the outer command.
    pub(super) nested: bool,
}

/// All that was seen.
#[derive(Debug, Default)]
pub(super) struct Views {
    found: Vec<View>,
    /// There was more than is looked at.
    pub(super) cut: bool,
}

impl std::ops::Deref for Views {
    type Target = [View];

    fn deref(&self) -> &[View] {
        &self.found
    }
}

impl Views {
    fn push(&mut self, view: View) {
        if self.found.len() < VIEWS_MAX {
            self.found.push(view);
        } else {
            self.cut = true;
        }
    }
}

/// Everything that a command can be seen to run: itself, without assignments, and all behind wrappers, shells and
/// `find -exec`; each also by the bare name of its program.
/// `fed` are the texts that the script feeds to a command which reads its standard input.
pub(super) fn views(command: &Command, fed: &[String]) -> Views {
    let mut views = Views::default();
    look(&command.words, command.fed, WRAPPED_MAX, false, &mut views);
    for text in carry::assigned(command) {
        look_into(&text, WRAPPED_MAX, &mut views);
    }
    // What a substitution prints may be the code.
    let substituted = command.words.iter().any(is_substituted);
    if !(command.fed || substituted) {
        return views;
    }
    let mut names: Vec<String> = views.iter().filter_map(|view| view.command.name()).map(str::to_owned).collect();
    names.dedup();
    for name in names.iter().map(|name| base(name)) {
        if obeys_its_input(name) {
            fed.iter().for_each(|text| look_into(text, WRAPPED_MAX, &mut views));
        }
        // What an interpreter is fed is code, and a command stands in it as it stands in what `-c` is given.
        if reach::is_interpreter(name) {
            let lines = fed.iter().flat_map(|text| text.lines());
            let inner = lines.flat_map(carry::commands_in);
            inner.for_each(|text| look_into(&text, WRAPPED_MAX, &mut views));
        }
        // A line of the timetable: five fields, or one that begins with `@`, before the command.
        if name == "crontab" {
            for line in fed.iter().flat_map(|text| text.lines()) {
                let fields = if line.trim_start().starts_with('@') { 1 } else { 5 };
                let words: Vec<&str> = line.split_whitespace().skip(fields).collect();
                look_into(&words.join(" "), WRAPPED_MAX, &mut views);
            }
        }
    }
    views
}

/// What it holds is only known when another command has run.
pub(super) fn is_substituted(word: &Word) -> bool {
    word.expands && (word.text.contains("$(") || word.text.contains('`') || word.text.contains("<("))
}

/// Looks at the commands of a text of its own, with the files that they are connected to.
fn look_into(text: &str, depth: usize, views: &mut Views) {
    if depth == 0 || views.len() >= VIEWS_MAX {
        views.cut |= !text.trim().is_empty();
        return;
    }
    for command in Script::parse(text).commands() {
        look(&command.words, command.fed, depth, true, views);
        if !command.redirects.is_empty() {
            let redirects = command.redirects.clone();
            views.push(View { command: Command { redirects, ..Command::default() }, nested: true });
        }
    }
}

/// It runs what comes in by its standard input.
fn obeys_its_input(name: &str) -> bool {
    SHELLS.contains(&name)
        || matches!(name, "." | "source" | "eval" | "at" | "batch" | "ssh" | "xargs" | "parallel" | "su" | "make")
}

/// The texts that a script feeds to its commands: here-documents, here-strings, and what it prints.
pub(super) fn fed_texts(script: &Script) -> Vec<String> {
    let printed = script.commands().iter().filter(|command| {
        command.words.first().is_some_and(|name| matches!(base(&name.text), "echo" | "printf" | "cat"))
    });
    let printed = printed.map(|command| {
        let words = command.words.iter().skip(1).filter(|word| !word.text.starts_with('-'));
        words.map(|word| word.text.replace("\\n", "\n")).collect::<Vec<_>>().join(" ")
    });
    script.fed().iter().cloned().chain(printed).collect()
}

fn look(words: &[Word], fed: bool, depth: usize, nested: bool, views: &mut Views) {
    let Some(first) = words.first() else { return };
    if views.len() >= VIEWS_MAX || depth == 0 {
        views.cut = true;
        return;
    }
    if let Some(expanded) = reach::expanded(words) {
        look(&expanded, fed, depth - 1, nested, views);
    }
    let itself = Command { fed, ..Command::of_words(words) };
    if first.text.contains('/') {
        let mut bare = itself.clone();
        if let Some(first) = bare.words.first_mut() {
            first.text = base(&first.text).to_owned();
        }
        views.push(View { command: bare, nested });
    }
    views.push(View { command: itself, nested });
    let Some(name) = name_of(words) else { return };
    let rest = &words[1..];
    if let Some(wrapper) = wrapper(name) {
        look(after(rest, wrapper), fed, depth - 1, nested, views);
    }
    let script = |text: &str, views: &mut Views| look_into(text, depth - 1, views);
    if let Some(from) = reach::runs_from(name, rest) {
        for (at, _) in rest.iter().enumerate().skip(from).filter(|(_, word)| !word.text.starts_with('-')) {
            if views.cut {
                break;
            }
            look(&rest[at..], fed, depth - 1, nested, views);
        }
    }
    for text in reach::inner_texts(name, rest).into_iter().chain(carry::carried(name, rest)) {
        script(&text, views);
    }
    if VERBED.contains(&name) {
        for at in verbs_behind_options(rest) {
            let named = [Word::literal(name)];
            let words = named.iter().chain(&rest[at..]).cloned().collect::<Vec<_>>();
            views.push(View { command: Command::of_words(&words), nested });
        }
    }
    if name == "git"
        && let Some(at) = carry::git_runs(rest)
    {
        look(&rest[at..], false, depth - 1, nested, views);
    }
    let joined = |words: &[Word]| words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ");
    match name {
        "find" | "fd" | "fdfind" => {
            for (at, word) in rest.iter().enumerate() {
                if views.cut {
                    break;
                }
                if [FIND_RUNS, FD_RUNS].iter().any(|runs| runs.contains(&word.text.as_str())) {
                    let inner = &rest[at + 1..];
                    let end = inner.iter().position(|word| matches!(word.text.as_str(), ";" | "+"));
                    look(&inner[..end.unwrap_or(inner.len())], false, depth - 1, nested, views);
                }
            }
        }
        "eval" => script(&joined(rest), views),
        "trap" => script(rest.iter().find(|word| word.text != "--").map_or("", |word| word.text.as_str()), views),
        "watch" => {
            let watched = wrapper(name).map_or(rest, |wrapper| after(rest, wrapper));
            script(&joined(watched), views);
        }
        "env" => {
            if let Some(at) = rest.iter().position(|word| matches!(word.text.as_str(), "-S" | "--split-string")) {
                script(&joined(&rest[at + 1..]), views);
            }
        }
        _ => {}
    }
    if SHELLS.contains(&name) || matches!(name, "su" | "flock" | "script" | "nix" | "nix-shell" | "npm" | "npx") {
        let takes_script = |word: &Word| {
            word.text.starts_with('-') && !word.text.starts_with("--") && word.text.contains('c')
                || word.text == "--command"
        };
        // More options may stand between it and its script.
        if let Some(at) = rest.iter().position(takes_script)
            && let Some(text) = rest[at + 1..].iter().find(|word| !word.text.starts_with(['-', '+']))
        {
            script(&text.text, views);
        }
    }
}

/// Where the verb may begin, when options stand before it; each of them may or may not take the next word.
fn verbs_behind_options(rest: &[Word]) -> Vec<usize> {
    let is_option = |at: usize| rest.get(at).is_some_and(|word| word.text.starts_with(['-', '+']));
    let mut found = Vec::new();
    let mut at = 0;
    for _ in 0..VERB_OPTIONS_MAX {
        let begin = at;
        while is_option(at) {
            at += 1;
        }
        if at == begin || at >= rest.len() {
            break;
        }
        found.push(at);
        // The word behind an option without `=` may be its value.
        if rest[at - 1].text.contains('=') {
            break;
        }
        at += 1;
        if !is_option(at) && at < rest.len() {
            found.push(at);
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(source: &str) -> Vec<String> {
        let script = Script::parse(source);
        let fed = fed_texts(&script);
        let views = script.commands().iter().map(|command| views(command, &fed));
        views.flat_map(|views| views.iter().map(|view| view.command.joined()).collect::<Vec<_>>()).collect()
    }

    #[test]
    fn a_deny_sees_through_what_runs_something_else() {
        let table = [
            "timeout 5 rm x",
            "timeout -k 1 -s KILL 5 nice -n 3 rm x",
            "env -i A=b rm x",
            "sudo -u root rm x",
            "sudo -- rm x",
            "ls | xargs -n 1 rm x",
            "find . -name y -exec rm x \\;",
            "sh -c 'rm x'",
            "bash -lc \"true; rm x\"",
            "eval rm x",
            "/bin/rm x",
            "watch -n 1 'rm x'",
            "flock /tmp/lock rm x",
            "flock /tmp/lock -c 'rm x'",
            "env -S 'rm x'",
            "busybox rm x",
            "nohup setsid ionice -c2 rm x",
            "command rm x",
            "trap 'rm x' EXIT",
            "\\rm x",
            "strace -f -o log rm x",
            "ssh -p 22 host rm x",
            "ssh host 'cd /; rm x'",
            "docker exec -it box rm x",
            "parallel -j 2 rm x",
            "tmux new -d 'rm x'",
            "/lib64/ld-linux-x86-64.so.2 /bin/rm x",
            "npx rm x",
            "env -S'rm x'",
            "env --split-string='rm x'",
            "alias l='rm x'",
            "git -c alias.x='!rm x' x",
            "python3 -c 'import os; os.system(\"rm x\")'",
            "awk 'BEGIN{system(\"rm x\")}'",
            "bash <<< 'rm x'",
            "bash <<E\nrm x\nE",
            "bash <<'E'\nrm x\nE",
            "echo 'rm x' | sh -s",
            "printf 'rm x\\n' | sudo bash",
            ". /dev/stdin <<< 'rm x'",
            "{rm,x}",
            "rm$IFS'x'",
            "rm${IFS}x",
            "tar cf y --checkpoint-action=exec='rm x' .",
            "rsync -e 'rm x' a b:",
            "git -c core.pager='rm x' log",
            "git rebase -x 'rm x' main",
            "git submodule foreach rm x",
            "vim -c ':!rm x' y",
            "sed '1e rm x' y",
            "socat TCP-L:1 EXEC:'rm x'",
            "sqlite3 a <<< '.shell rm x'",
            "python3 - <<'E'\nos.system('rm x')\nE",
            "make -f - <<'E'\na:\n\trm x\nE",
            "expect <<< 'spawn rm x'",
            "bash <(echo rm x)",
            "sh -c \"$(echo rm x)\"",
            "PAGER='rm x' man ls",
            "crontab - <<< '* * * * * rm x'",
            "docker --context y exec box rm x",
            "npm exec -- rm x",
        ];
        for source in table {
            assert!(seen(source).contains(&"rm x".to_owned()), "{source}: {:?}", seen(source));
        }
        for source in [
            "echo rm x",
            "timeout 5 echo rm x",
            "grep rm x",
            "git rm x",
            "echo 'rm x' | wc -c",
            "cat <<E\nrm x\nE",
            "docker rm x",
            "npm rm x",
            "git commit -m 'rm x'",
            "vim rm x",
            "tar cf y rm x",
        ] {
            assert!(!seen(source).contains(&"rm x".to_owned()), "{source}: {:?}", seen(source));
        }
    }

    #[test]
    fn an_allow_sees_through_what_changes_nothing() {
        let table = [
            ("timeout 5 git status", "git status"),
            ("timeout -k 1 5 nice git status", "git status"),
            ("time git status", "git status"),
            ("time -o f git status", "time -o f git status"),
            ("command -v git", "command -v git"),
            ("env git status", "env git status"),
            ("sudo git status", "sudo git status"),
        ];
        for (source, want) in table {
            let commands = Script::parse(source);
            assert_eq!(core(&commands.commands()[0]).joined(), want, "{source}");
        }
    }
}
