//! Ordinary programs that run another program which one of their options, or a script of theirs, names.
//!
//! `tar --checkpoint-action`, `rsync -e`, `git rebase --exec`, `vim -c '!…'`, `sed '1e …'`: the command line shows one
//! program and runs two. A deny looks at the second one; an allow with a `*` never covers it. What is not on these lists
//! is not seen, and a rule for the program itself is what remains.

use crate::request::paths::base;
use crate::surface::shell::{Command, Word};

use super::argv::FD_RUNS;
use super::reach::quoted_in;
use super::script;

/// Programs, and their options that name a program or hold a command. A long option may have its value behind a `=`, a
/// short one right behind its letter.
const CARRIERS: &[(&[&str], &[&str])] = &[
    (
        &["tar", "bsdtar", "gtar"],
        &[
            "--checkpoint-action",
            "--to-command",
            "-I",
            "--use-compress-program",
            "-F",
            "--info-script",
            "--new-volume-script",
            "--rsh-command",
            "--rmt-command",
        ],
    ),
    (&["rsync"], &["-e", "--rsh", "--rsync-path"]),
    (&["scp", "sftp"], &["-S", "-o"]),
    (&["zip"], &["-TT", "--unzip-command"]),
    (&["man"], &["-P", "--pager", "-H", "--html"]),
    (&["vi", "vim", "view", "nvim", "ex", "gvim"], &["-c", "--cmd", "-S", "+"]),
    (&["emacs"], &["--eval", "-eval", "-f", "--funcall", "-l", "--load"]),
    (&["less", "more"], &["+"]),
    (&["split"], &["--filter"]),
    (&["sort"], &["--compress-program"]),
    (&["make", "gmake"], &["--eval", "SHELL", "--SHELL"]),
    (&["rg"], &["--pre", "--hostname-bin"]),
    (&["nc", "ncat", "netcat"], &["-e", "-c", "--exec", "--sh-exec"]),
    (&["cc", "gcc", "g++", "clang"], &["-wrapper"]),
    (&["ansible"], &["-a", "--args"]),
    (&["osascript"], &["-e"]),
    (&["pwsh", "powershell"], &["-c", "-Command", "-command", "-EncodedCommand"]),
    (&["fzf"], &["--preview", "--bind"]),
    (&["salt"], &["cmd.run"]),
    (&["go"], &["-exec", "-toolexec", "-vettool"]),
    (&["gdb"], &["-ex", "-iex", "--eval-command"]),
    (&["lldb"], &["-o", "--one-line"]),
];

/// Programs in whose arguments a command stands behind a mark of their own.
const MARKED: &[&str] = &["sqlite3", "psql", "mysql", "mariadb", "socat", "ed", "sed", "expect", "tclsh"];

/// What stands before a command in such a text.
const MARKS: &[&str] = &[
    "!", "exec=", "Command=", "Command ", ".shell ", ".system ", "\\! ", "EXEC:", "SYSTEM:", "SHELL:", "|", ";", "e ",
];

/// Options of `git` whose value is a command, whatever the verb.
const GIT_OPTIONS: &[&str] = &[
    "--exec",
    "--extcmd",
    "--upload-pack",
    "--receive-pack",
    "--open-files-in-pager",
    "--tree-filter",
    "--index-filter",
    "--msg-filter",
    "--env-filter",
    "--commit-filter",
    "--parent-filter",
    "--tag-name-filter",
];

/// Variables whose value is a command that programs run.
const COMMAND_VARIABLES: &[&str] =
    &["COMMAND", "PAGER", "EDITOR", "VISUAL", "SHELL", "BROWSER", "LESSOPEN", "LESSCLOSE", "ASKPASS", "RSH", "SSH"];

/// The values of these options, wherever they stand.
fn values(rest: &[Word], options: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for (at, word) in rest.iter().enumerate() {
        for option in options {
            let Some(value) = word.text.strip_prefix(option) else { continue };
            if value.is_empty() {
                found.extend(rest.get(at + 1).map(|next| next.text.clone()));
            } else if let Some(value) = value.strip_prefix('=') {
                found.push(value.to_owned());
            } else if option.len() <= 2 {
                found.push(value.to_owned());
            }
        }
    }
    found
}

/// Texts that may be command lines: the text, what stands behind a mark in it, what it has between quotes.
pub(super) fn commands_in(text: &str) -> Vec<String> {
    let mut found = vec![text.replace(',', " ")];
    if found.first().is_none_or(|first| first != text) {
        found.push(text.to_owned());
    }
    for mark in MARKS {
        found.extend(text.split_once(mark).map(|(_, after)| after.to_owned()));
    }
    found.extend(quoted_in(text));
    found.retain(|text| !text.trim().is_empty());
    found
}

/// Texts among the arguments that another program may be run by.
pub(super) fn carried(name: &str, rest: &[Word]) -> Vec<String> {
    if let Some((_, options)) = CARRIERS.iter().find(|(names, _)| names.contains(&name)) {
        return values(rest, options).iter().flat_map(|value| commands_in(value)).collect();
    }
    if MARKED.contains(&name) {
        return rest.iter().filter(|word| word.text.contains(' ')).flat_map(|word| commands_in(&word.text)).collect();
    }
    match name {
        "git" => {
            let set = values(rest, &["-c", "--config"]);
            let set = set.iter().filter_map(|one| one.split_once('=')).map(|(_, value)| value.to_owned());
            let run = values(rest, GIT_OPTIONS).into_iter().chain(values(rest, git_short(rest)));
            let url = rest.iter().filter_map(|word| word.text.strip_prefix("ext::")).map(|url| url.replace("% ", " "));
            set.chain(run).chain(url).flat_map(|value| commands_in(&value)).collect()
        }
        "export" | "declare" | "typeset" | "env" => {
            let set = rest.iter().filter_map(|word| word.text.split_once('='));
            set.filter(|(name, _)| is_run(name)).flat_map(|(_, value)| commands_in(value)).collect()
        }
        _ => Vec::new(),
    }
}

/// Options of one letter that mean a command with some verbs only.
fn git_short(rest: &[Word]) -> &'static [&'static str] {
    let has = |verb: &str| rest.iter().any(|word| word.text == verb);
    if has("rebase") || has("difftool") || has("mergetool") {
        &["-x"]
    } else if has("grep") {
        &["-O"]
    } else {
        &[]
    }
}

/// What assignments in front of a command let programs run.
pub(super) fn assigned(command: &Command) -> Vec<String> {
    let run = command.assignments.iter().filter(|one| is_run(&one.name));
    run.flat_map(|one| commands_in(&one.value.text)).collect()
}

fn is_run(variable: &str) -> bool {
    COMMAND_VARIABLES.iter().any(|known| variable.ends_with(known))
}

/// Where the words of another command begin, among the arguments of `git`.
pub(super) fn git_runs(rest: &[Word]) -> Option<usize> {
    let at = |verb: &str| rest.iter().position(|word| word.text == verb);
    let next = |verb: &str, then: &str| {
        let verb = at(verb)?;
        (rest.get(verb + 1)?.text == then).then_some(verb + 2)
    };
    next("bisect", "run").or_else(|| next("submodule", "foreach"))
}

/// The command runs what an option or a script of it says, so that a rule with a `*` would allow anything.
pub(super) fn runs_by_option(command: &Command) -> bool {
    let Some((name, rest)) = command.words.split_first() else { return false };
    let name = base(&name.text);
    let has = |options: &[&str]| rest.iter().any(|word| options.contains(&word.text.as_str()));
    if let Some((_, options)) = CARRIERS.iter().find(|(names, _)| names.contains(&name)) {
        return makes_what_it_is_fed(command) || !values(rest, options).is_empty();
    }
    match name {
        "git" => {
            !values(rest, GIT_OPTIONS).is_empty()
                || !values(rest, git_short(rest)).is_empty()
                || has(&["--ext-diff", "--textconv", "filter-branch"])
                || git_runs(rest).is_some()
                || (has(&["clone", "init"]) && !values(rest, &["-c", "--config", "--template"]).is_empty())
                || rest.iter().any(|word| word.text.starts_with("ext::"))
        }
        "fd" | "fdfind" => has(FD_RUNS),
        "env" => rest.iter().any(|word| !word.text.starts_with('-') && !word.text.contains('=')),
        "ssh" => !values(rest, &["-o"]).is_empty(),
        // A file of options may name others to write.
        "curl" => has(&["-K", "--config"]),
        "sqlite3" | "psql" | "mysql" | "mariadb" => runs_by_mark(rest),
        "socat" => rest.iter().any(|word| ["EXEC:", "SYSTEM:", "SHELL:"].iter().any(|mark| word.text.contains(mark))),
        "sed" => !script::sed_is_plain(rest),
        "awk" | "gawk" | "mawk" | "nawk" => !script::awk_is_plain(rest),
        _ => false,
    }
}

/// A shell of a database is told to run a command, or to load a library.
fn runs_by_mark(rest: &[Word]) -> bool {
    const ACTS: &[&str] = &[".shell", ".system", ".load", "\\!", "|", "program", "load_extension"];
    let acts = |text: &str| ACTS.iter().any(|act| text.contains(act));
    rest.iter().any(|word| acts(&word.text.to_lowercase()))
}

/// `make -f -`: the rules come in by the standard input.
pub(super) fn makes_what_it_is_fed(command: &Command) -> bool {
    let Some((name, rest)) = command.words.split_first() else { return false };
    matches!(base(&name.text), "make" | "gmake")
        && values(rest, &["-f", "--file", "--makefile"]).iter().any(|file| is_standard_input(file))
}

/// It names the standard input as a file.
pub(super) fn is_standard_input(path: &str) -> bool {
    matches!(path, "-" | "/dev/stdin" | "/dev/fd/0" | "/proc/self/fd/0")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::surface::shell::Script;

    #[test]
    fn a_program_that_runs_another_one_by_an_option_is_known() {
        let table = [
            ("tar cf x --checkpoint-action=exec='touch y' .", true),
            ("tar cf x -I 'xz -9' .", true),
            ("tar cf x .", false),
            ("rsync -e ssh a b:c", true),
            ("rsync -a b c", false),
            ("git rebase -x 'make' main", true),
            ("git cherry-pick -x abc", false),
            ("git grep -Oless y", true),
            ("git grep y", false),
            ("git bisect run make", true),
            ("git submodule update", false),
            ("git clone 'ext::sh -c touch% x' b", true),
            ("git diff --ext-diff", true),
            ("fd -x touch", true),
            ("env", false),
            ("env A=1", false),
            ("env A=1 make", true),
            ("make -f - all", true),
            ("make -f other.mk all", false),
            ("make SHELL=/tmp/x all", true),
            ("vim +3 x", true),
            ("sort -k2 x", false),
        ];
        for (source, want) in table {
            let script = Script::parse(source);
            assert_eq!(runs_by_option(&script.commands()[0]), want, "{source}");
        }
    }
}
