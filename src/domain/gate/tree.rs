//! Commands that read, or take along, everything below a directory.
//!
//! A search of a folder reads what is denied or secret below it, without naming it. Which files there are nobody here
//! knows, so such a command is asked about, not denied.

use crate::surface::shell::{Command, Word};

use super::argv::{Argv, FD_RUNS, FIND_RUNS};
use super::written::{creates, mounted};

/// The directories that the command reads with all that is below; a literal `.` where it names none.
pub(super) fn roots(command: &Command) -> Vec<Word> {
    let Some(argv) = Argv::of(command) else { return Vec::new() };
    let says = |options: &[&str]| argv.says(options);
    let letters = |wanted: &[char]| argv.has_letter(wanted);
    let all = || argv.operands().cloned().collect::<Vec<_>>();
    let or_here = |found: Vec<Word>| if found.is_empty() { vec![Word::literal(".")] } else { found };
    let below = |skipped: usize| or_here(argv.operands().skip(skipped).cloned().collect());
    let all_but_last = || {
        let mut found = all();
        if argv.target_directory().is_none() {
            found.pop();
        }
        found
    };
    // The first operand is the pattern, also behind `-e`, unless an option has it glued on.
    let glued = |word: &Word| {
        let short = word.text.strip_prefix("-e").is_some_and(|rest| !rest.is_empty());
        short || word.text.starts_with("--regexp=") || word.text.starts_with("--file=")
    };
    let pattern = || usize::from(!argv.rest.iter().any(glued));
    match argv.name {
        "grep" | "egrep" | "fgrep" | "zgrep"
            if letters(&['r', 'R']) || says(&["--recursive", "--dereference-recursive", "--directories=recurse"]) =>
        {
            below(pattern())
        }
        "rgrep" | "ag" | "ack" | "ugrep" | "rg" if !says(&["--files", "--version", "--help", "--type-list"]) => {
            below(pattern())
        }
        "git" if argv.verb() == "grep" => vec![Word::literal(".")],
        "find" if says(FIND_RUNS) => or_here(argv.find_roots().cloned().collect()),
        "fd" | "fdfind" if says(FD_RUNS) => or_here(argv.fd_roots().cloned().collect()),
        "tar" | "bsdtar" | "gtar" if creates(argv) => all(),
        "zip" if letters(&['r', 'R']) || says(&["--recurse-paths"]) => below(1),
        "7z" | "7za" | "rar" if argv.verb() == "a" => below(2),
        "cp" if letters(&['r', 'R', 'a']) || says(&["--recursive", "--archive"]) => all_but_last(),
        "scp" if letters(&['r']) => all_but_last(),
        "rsync" if letters(&['r', 'a']) || says(&["--recursive", "--archive"]) => all_but_last(),
        "mv" => all_but_last(),
        "diff" if letters(&['r']) || says(&["--recursive"]) => all(),
        "docker" | "podman" | "nerdctl" => mounted(argv).into_iter().map(|(word, _)| word).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::surface::shell::Script;

    #[test]
    fn what_is_read_with_all_below() {
        let table: [(&str, &[&str]); 16] = [
            ("grep -rn x a b", &["a", "b"]),
            ("grep -r x", &["."]),
            ("grep -r -e x a", &["a"]),
            ("grep x a", &[]),
            ("rg x", &["."]),
            ("rg --files a", &[]),
            ("git grep x", &["."]),
            ("git log", &[]),
            ("find a -name x", &[]),
            ("find a -exec cat {} +", &["a"]),
            ("tar czf x.tgz a", &["x.tgz", "a"]),
            ("tar xzf x.tgz", &[]),
            ("cp -r a b", &["a"]),
            ("cp a b", &[]),
            ("rsync -a a/ h:", &["a/"]),
            ("docker run -v /a:/b img", &["/a"]),
        ];
        for (source, want) in table {
            let script = Script::parse(source);
            // `tar czf` has its letters in the first operand.
            let found: Vec<String> = roots(&script.commands()[0]).into_iter().map(|word| word.text).collect();
            let found: Vec<&str> = found.iter().map(String::as_str).filter(|word| *word != "czf").collect();
            assert_eq!(found, want, "{source}");
        }
    }
}
