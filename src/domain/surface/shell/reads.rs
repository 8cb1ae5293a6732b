//! Which commands are proven to read only.
//!
//! A short list, and for each command the options that are known to be harmless or those that are not. What is not
//! proven is not called dangerous, it is only asked about. `sed` and `awk` are missing on purpose: their scripts can
//! write files and run commands.

use super::{Command, Script, Understood, Word};

/// Commands that write nothing and run nothing, whatever their options.
const HARMLESS: &[&str] = &[
    "[",
    "arch",
    "basename",
    "cat",
    "cksum",
    "cmp",
    "comm",
    "cut",
    "df",
    "dirname",
    "du",
    "echo",
    "egrep",
    "expr",
    "false",
    "fgrep",
    "fold",
    "free",
    "grep",
    "groups",
    "head",
    "id",
    "join",
    "ls",
    "lsblk",
    "md5sum",
    "nl",
    "nproc",
    "od",
    "paste",
    "pgrep",
    "ps",
    "pwd",
    "readlink",
    "realpath",
    "rev",
    "seq",
    "sha1sum",
    "sha224sum",
    "sha256sum",
    "sha384sum",
    "sha512sum",
    "stat",
    "strings",
    "sum",
    "tac",
    "tail",
    "test",
    "tr",
    "true",
    "type",
    "uname",
    "uptime",
    "wc",
    "which",
    "whoami",
];

/// Options of `find` that run something or write something.
const FIND_ACTS: &[&str] =
    &["-delete", "-exec", "-execdir", "-fls", "-fprint", "-fprint0", "-fprintf", "-ok", "-okdir"];

/// Verbs of `git` that only show.
const GIT_SHOWS: &[&str] = &[
    "blame",
    "cat-file",
    "describe",
    "diff",
    "log",
    "ls-files",
    "ls-tree",
    "merge-base",
    "rev-list",
    "rev-parse",
    "shortlog",
    "show",
    "status",
];

/// Options of those verbs that write a file or run a program.
const GIT_ACTS: &[&str] = &["--ext-diff", "--open-files-in-pager", "--output", "--paginate", "--textconv"];

/// Everything that the script runs is proven to read only.
#[must_use]
pub fn proven(script: &Script) -> bool {
    script.understood() == Understood::Whole
        && !script.commands().is_empty()
        && script.commands().iter().all(command_reads)
}

/// The words of the commands that may be paths which are read.
pub fn read_paths(script: &Script) -> impl Iterator<Item = &Word> {
    let arguments = script.commands().iter().filter(|command| !prints_its_words(command));
    arguments.flat_map(|command| command.words.iter().skip(1)).filter(|word| !word.text.starts_with('-'))
}

/// The command prints its arguments and opens none of them.
#[must_use]
pub fn prints_its_words(command: &Command) -> bool {
    matches!(
        command.name(),
        Some("echo" | "printf" | "test" | "[" | "expr" | "seq" | "true" | "false" | "type" | "which")
    )
}

fn command_reads(command: &Command) -> bool {
    if !command.assignments.is_empty() || command.redirects.iter().any(|redirect| redirect.writes && !sink(redirect)) {
        return false;
    }
    // What a variable holds, or a file name that a pattern finds, may be an option.
    let plain = |word: &Word| {
        word.is_fixed() || (word.globs && !word.expands && !word.braces && !word.text.starts_with(['*', '?', '[', '-']))
    };
    let Some((name, arguments)) = command.words.split_first() else { return false };
    if !name.is_fixed() || !arguments.iter().all(plain) {
        return false;
    }
    let option = |word: &Word, options: &[&str]| {
        options.iter().any(|option| {
            let rest = word.text.strip_prefix(option);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
        })
    };
    let abbreviates =
        |word: &Word, whole: &str| word.text.len() > 2 && whole.starts_with(word.text.split('=').next().unwrap_or(""));
    match name.text.as_str() {
        "date" => arguments.iter().all(|word| word.text.starts_with('+') || word.text == "-u"),
        "hostname" => arguments.is_empty(),
        "printf" => arguments.first().is_none_or(|word| !word.text.starts_with("-v")),
        "find" => !arguments.iter().any(|word| FIND_ACTS.contains(&word.text.as_str())),
        // The second operand of `uniq` is a file that it writes.
        "uniq" => arguments.iter().filter(|word| !word.text.starts_with('-')).count() <= 1,
        "sort" => arguments.iter().all(|word| {
            let letters = word.text.strip_prefix('-').unwrap_or("");
            !word.text.starts_with("--") && !letters.contains(['o', 'T', 'S'])
        }),
        "diff" => !arguments.iter().any(|word| option(word, &["--output"]) || abbreviates(word, "--output")),
        "file" => !arguments.iter().any(|word| word.text.starts_with("-C") || word.text.starts_with("--c")),
        "rg" => !arguments.iter().any(|word| {
            word.text.starts_with("--pre")
                || word.text.starts_with("--hostname-bin")
                || word.text.starts_with("-z")
                || word.text.starts_with("--search-zip")
        }),
        "tree" => !arguments
            .iter()
            .any(|word| word.text.starts_with("-o") || word.text == "-R" || word.text.starts_with("--output")),
        "git" => match arguments.split_first() {
            Some((verb, rest)) if GIT_SHOWS.contains(&verb.text.as_str()) => !rest.iter().any(|word| {
                option(word, GIT_ACTS)
                    || GIT_ACTS.iter().any(|act| abbreviates(word, act))
                    || word.text.starts_with("-O")
                    || (word.text.starts_with("--filters"))
            }),
            Some(_) | None => false,
        },
        name => HARMLESS.contains(&name),
    }
}

fn sink(redirect: &super::Redirect) -> bool {
    redirect.target.is_fixed() && redirect.target.text == "/dev/null"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_proven_reads() {
        let table = [
            ("ls -l /ws", true),
            ("cat a | grep b | wc -l", true),
            ("git status", true),
            ("git log --oneline -5", true),
            ("git diff HEAD 2>/dev/null", true),
            ("find . -name '*.rs'", true),
            ("echo \"$HOME\"", false),
            ("ls src/*.rs", true),
            ("ls *", false),
            ("git diff --output=canary HEAD", false),
            ("git diff --outpu=canary HEAD", false),
            ("git log --ext-diff", false),
            ("git -c a=b status", false),
            ("git branch x", false),
            ("sed '1e touch canary' f", false),
            ("sort -o a b", false),
            ("sort --compress-program=sh a", false),
            ("sort -k2 a", true),
            ("find . -delete", false),
            ("date -s 1", false),
            ("date +%s", true),
            ("uniq a b", false),
            ("cat a > b", false),
            ("X=1 ls", false),
            ("ls; rm a", false),
            ("ls $(rm a)", false),
            ("", false),
            ("env ls", false),
            ("printf -v x y", false),
            ("tee a", false),
        ];
        for (source, want) in table {
            assert_eq!(proven(&Script::parse(source)), want, "{source}");
        }
    }
}
