//! Which of its arguments a command writes: those of well-known commands, and options that name a file to write.
//!
//! A command that is not known here is judged by its rules and its mode alone; what it writes is not told from its name.

use crate::surface::shell::{Command, Word};

use super::peel::base;

/// Options that name the file to write, for any command.
const OUTPUTS: &[&str] = &["--output", "--output-file", "--output-document", "--outfile", "--out-file"];

/// Words of code that writes or removes files, in the languages of interpreters.
const WRITING_CODE: &[&str] = &[
    "'w",
    "\"w",
    "'a'",
    "\"a\"",
    "write",
    "Write",
    "unlink",
    "remove",
    "rename",
    "rmtree",
    "copy",
    "move",
    "chmod",
    "truncate",
    "mkdir",
    "append",
    "dump(",
    ">",
    "File.open",
    "rmSync",
    "symlink",
    "link(",
];

/// The arguments of well-known commands that they write or remove.
pub(super) fn targets(command: &Command) -> Vec<Word> {
    let Some((name, rest)) = command.words.split_first() else { return Vec::new() };
    let operands: Vec<&Word> = rest.iter().filter(|word| !word.text.starts_with('-')).collect();
    let all = || operands.iter().copied().cloned().collect::<Vec<_>>();
    let last = || operands.last().copied().cloned().into_iter().collect::<Vec<_>>();
    let first = || operands.first().copied().cloned().into_iter().collect::<Vec<_>>();
    match base(&name.text) {
        "mv" => {
            let mut found = all();
            found.extend(into_directory(rest, &operands));
            found
        }
        "rm" | "rmdir" | "unlink" | "shred" | "srm" | "trash" | "trash-put" | "truncate" | "touch" | "mkdir"
        | "mknod" | "mkfifo" | "tee" | "sponge" | "chmod" | "chown" | "chgrp" | "chattr" | "setfacl" | "setfattr"
        | "patch" | "ed" | "ex" | "vi" | "vim" | "nvim" | "gvim" | "nano" | "emacs" | "pico" | "micro" | "sqlite3"
        | "mount" => all(),
        "split" => operands.get(1).copied().cloned().into_iter().collect(),
        "cp" | "install" | "ln" | "rsync" | "scp" => into_directory(rest, &operands),
        "uniq" | "xxd" => operands.get(1).copied().cloned().into_iter().collect(),
        "sed" | "perl" | "ruby" if rest.iter().any(|word| in_place(&word.text)) => all(),
        "awk" | "gawk" if rest.iter().any(|word| word.text == "inplace") => all(),
        "wget" => valued(rest, &["-P", "--directory-prefix"]),
        "curl" => valued(rest, &["--output-dir"]),
        "tar" | "bsdtar" | "gtar" if creates(rest) => archive(rest),
        "tar" | "bsdtar" | "gtar" if !rest.iter().any(|word| lists_or_creates(&word.text)) => {
            valued(rest, &["-C", "--directory"])
        }
        "zip" => first(),
        "unzip" => valued(rest, &["-d"]),
        "7z" | "7za" | "7zr" => glued(rest, "-o"),
        "cpio" => valued(rest, &["-D", "--directory"]),
        "csplit" => valued(rest, &["-f", "--prefix"]),
        "openssl" => valued(rest, &["-out"]),
        "iconv" | "tic" => valued(rest, &["-o"]),
        "find" => {
            let mut found = valued(rest, &["-fprint", "-fprint0", "-fprintf", "-fls"]);
            if finds_to_remove(rest) {
                found.extend(rest.iter().take_while(|word| !word.text.starts_with(['-', '(', '!'])).cloned());
            }
            found
        }
        "dd" => rest.iter().filter(|word| word.text.starts_with("of=")).cloned().collect(),
        "git" => match operands.first().map(|verb| verb.text.as_str()) {
            Some("init" | "clone" | "worktree") => last(),
            Some("mv" | "rm" | "restore" | "checkout") => all().split_off(1),
            Some(_) | None => Vec::new(),
        },
        "docker" | "podman" | "nerdctl" => {
            mounted(rest).into_iter().filter(|(_, writes)| *writes).map(|(word, _)| word).collect()
        }
        _ => Vec::new(),
    }
}

/// What goes with it goes with everything below: a removal, a move, a change of rights of a whole tree.
pub(super) fn takes_all_below(command: &Command) -> bool {
    let Some((name, rest)) = command.words.split_first() else { return false };
    let deep = |letters: &[char]| {
        rest.iter().any(|word| {
            let short = word.text.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
            word.text == "--recursive" || short.is_some_and(|short| short.contains(letters))
        })
    };
    match base(&name.text) {
        "mv" | "trash" | "trash-put" | "srm" => true,
        "rm" => deep(&['r', 'R']),
        "chmod" | "chown" | "chgrp" | "setfacl" | "chattr" => deep(&['R']),
        "rsync" => rest.iter().any(|word| word.text.starts_with("--del")),
        "find" => finds_to_remove(rest),
        _ => false,
    }
}

/// `find -delete`, or with a command that removes or moves.
fn finds_to_remove(rest: &[Word]) -> bool {
    let runs = |word: &Word| matches!(word.text.as_str(), "-exec" | "-execdir" | "-ok" | "-okdir");
    let acts = |word: &Word| matches!(base(&word.text), "rm" | "mv" | "rmdir" | "shred" | "unlink" | "chmod" | "chown");
    rest.iter().any(|word| word.text == "-delete")
        || rest.iter().position(runs).is_some_and(|at| rest[at + 1..].iter().any(acts))
}

/// Where `cp`, `mv` and their like write: the last operand, or the directory of `-t`, and in it the names of what goes
/// there.
fn into_directory(rest: &[Word], operands: &[&Word]) -> Vec<Word> {
    let named = valued(rest, &["-t", "--target-directory"]);
    let (directory, sources) = match (named.first(), operands.split_last()) {
        (Some(directory), _) => (directory.clone(), operands),
        (None, Some((last, sources))) => ((*last).clone(), sources),
        (None, None) => return Vec::new(),
    };
    let sources = sources.iter().filter(|source| named.is_empty() || source.text != directory.text);
    let inside = sources.filter_map(|source| {
        let name = source.text.trim_end_matches('/').rsplit('/').next().filter(|name| !name.is_empty())?;
        let mut inside = directory.clone();
        inside.text = format!("{}/{name}", directory.text.trim_end_matches('/'));
        inside.expands |= source.expands;
        (!source.globs && directory.text != "/").then_some(inside)
    });
    let found: Vec<Word> = inside.collect();
    [directory].into_iter().chain(found).collect()
}

/// The host's paths that a container is given, and whether it may write there.
pub(super) fn mounted(rest: &[Word]) -> Vec<(Word, bool)> {
    let volumes = valued(rest, &["-v", "--volume"]).into_iter().chain(glued(rest, "-v"));
    let volumes = volumes.filter(|word| word.text.starts_with(['/', '~', '.', '$'])).map(|word| {
        let (source, to) = word.text.split_once(':').unwrap_or((word.text.as_str(), ""));
        (renamed(&word, source), !to.ends_with(":ro"))
    });
    let mounts = valued(rest, &["--mount"]).into_iter().filter_map(|word| {
        let mut parts = word.text.split(',');
        let source = parts.find_map(|part| part.strip_prefix("source=").or_else(|| part.strip_prefix("src=")))?;
        Some((renamed(&word, source), !word.text.contains("readonly")))
    });
    volumes.chain(mounts).collect()
}

/// `-i`, `-pi`, `-i.bak`, `--in-place`: the files are written where they are.
pub(super) fn in_place(option: &str) -> bool {
    let letters = option.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
    option.starts_with("--in-place")
        || letters.is_some_and(|letters| letters.split('.').next().is_some_and(|flags| flags.contains('i')))
}

/// `tar t…` and `tar c…`: nothing is unpacked.
fn lists_or_creates(option: &str) -> bool {
    let letters = option.strip_prefix('-').unwrap_or(option);
    matches!(option, "--list" | "--create")
        || (letters.len() < 6
            && letters.starts_with(['t', 'c'])
            && letters.bytes().all(|byte| byte.is_ascii_lowercase()))
}

/// `tar c…`: an archive is made.
pub(super) fn creates(rest: &[Word]) -> bool {
    rest.iter().any(|word| word.text == "--create" || (lists_or_creates(&word.text) && word.text.contains('c')))
}

/// The archive that `tar` makes: the word behind the letters that end with `f`.
fn archive(rest: &[Word]) -> Vec<Word> {
    let behind = rest.iter().position(|word| lists_or_creates(&word.text) && word.text.ends_with('f'));
    let named = valued(rest, &["-f", "--file"]);
    behind.and_then(|at| rest.get(at + 1)).cloned().into_iter().chain(named).filter(|word| word.text != "-").collect()
}

/// The words after these options, or behind their `=`.
fn valued(rest: &[Word], options: &[&str]) -> Vec<Word> {
    let mut found = Vec::new();
    for (at, word) in rest.iter().enumerate() {
        if options.contains(&word.text.as_str()) {
            found.extend(rest.get(at + 1).cloned());
        } else if let Some((option, value)) = word.text.split_once('=')
            && option.starts_with("--")
            && options.contains(&option)
        {
            found.push(renamed(word, value));
        }
    }
    found
}

/// What stands right behind an option of one letter.
fn glued(rest: &[Word], option: &str) -> Vec<Word> {
    let value = |word: &Word| word.text.strip_prefix(option).filter(|value| !value.is_empty()).map(str::to_owned);
    rest.iter()
        .filter(|word| !word.text.starts_with("--"))
        .filter_map(|word| Some(renamed(word, &value(word)?)))
        .collect()
}

/// What `--output FILE`, `--output=FILE` and, for some commands, `-o FILE` name; the files that are edited in place.
pub(super) fn output_options(command: &Command) -> Vec<Word> {
    let Some((name, rest)) = command.words.split_first() else { return Vec::new() };
    let name = base(&name.text);
    let short: &[char] = match name {
        "curl" | "sort" | "cc" | "gcc" | "g++" | "clang" | "ld" | "go" | "rustc" | "tree" | "time" => &['o'],
        "wget" => &['O', 'o'],
        _ => &[],
    };
    let mut outputs = Vec::new();
    for (at, word) in rest.iter().enumerate() {
        let (option, value) = match word.text.split_once('=') {
            Some((option, value)) => (option, Some(value)),
            None => (word.text.as_str(), None),
        };
        if OUTPUTS.contains(&option) {
            outputs.extend(value.map(|value| renamed(word, value)).or_else(|| rest.get(at + 1).cloned()));
            continue;
        }
        let Some(letters) = word.text.strip_prefix('-').filter(|rest| !rest.starts_with('-')) else { continue };
        // `-sSLo FILE`: letters that take nothing before the one that takes a name. Compilers write words with one dash.
        let cluster = matches!(name, "curl" | "wget");
        let found = letters.find(short).filter(|at| *at == 0 || (cluster && is_switches(&letters[..*at])));
        if let Some(found) = found {
            match &letters[found + 1..] {
                "" => outputs.extend(rest.get(at + 1).cloned()),
                value => outputs.push(renamed(word, value.strip_prefix('=').unwrap_or(value))),
            }
        }
    }
    outputs.extend(fetched(name, rest));
    if matches!(name, "sed" | "perl" | "ruby") && rest.iter().any(|word| in_place(&word.text)) {
        // The first operand is the script, where no option brought one.
        let scripted = rest.iter().any(|word| matches!(word.text.as_str(), "-e" | "-f" | "--expression" | "--file"));
        let files = rest.iter().filter(|word| !word.text.starts_with('-'));
        let bundled = rest.iter().any(|word| word.text.starts_with('-') && word.text.ends_with('e'));
        outputs.extend(files.skip(usize::from(!scripted || bundled || name != "sed")).cloned());
    }
    outputs.retain(|word| word.text != "-");
    outputs
}

/// Letters of `curl` and `wget` that take nothing.
fn is_switches(letters: &str) -> bool {
    letters.chars().all(|letter| "0123456789#BfgGiIjkLlMnNOpqRsSvZacSNrx".contains(letter))
}

/// The file that a download is named by its address, in the working directory.
fn fetched(name: &str, rest: &[Word]) -> Vec<Word> {
    let says = |options: &[&str]| rest.iter().any(|word| options.contains(&word.text.as_str()));
    let clustered = |letter: char| {
        let letters =
            |word: &Word| word.text.strip_prefix('-').filter(|rest| !rest.starts_with('-')).map(str::to_owned);
        rest.iter().filter_map(letters).any(|letters| letters.contains(letter))
    };
    let writes = match name {
        "curl" => says(&["--remote-name", "--remote-name-all", "-J"]) || clustered('O'),
        "wget" => {
            !clustered('O')
                && !says(&["--spider", "--version", "--help"])
                && !rest.iter().any(|word| word.text.starts_with("--output-document"))
        }
        _ => false,
    };
    let addresses = rest.iter().filter(|word| writes && !word.text.starts_with('-')).take(1);
    addresses
        .map(|word| {
            let path = word.text.split(['?', '#']).next().unwrap_or("");
            let name = path.trim_end_matches('/').rsplit('/').next().filter(|name| !name.is_empty());
            renamed(word, &format!("./{}", name.unwrap_or("index.html")))
        })
        .collect()
}

/// Code of an interpreter that may write files.
pub(super) fn is_writing_code(code: &str) -> bool {
    WRITING_CODE.iter().any(|word| code.contains(word))
}

/// A part of a word; what of the word expands may stand in any part of it.
pub(super) fn renamed(word: &Word, text: &str) -> Word {
    let mut part = word.clone();
    text.clone_into(&mut part.text);
    part.tilde = text.starts_with('~') && (word.tilde || !word.quoted);
    part
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::surface::shell::Script;

    #[test]
    fn what_a_command_writes() {
        // command, targets, outputs
        let table: [(&str, &[&str], &[&str]); 24] = [
            ("cp a b", &["b", "b/a"], &[]),
            ("cp -t d a", &["d", "d/a"], &[]),
            ("cp --target-directory=d x/a", &["d", "d/a"], &[]),
            ("mv a d", &["a", "d", "d", "d/a"], &[]),
            ("tee a b", &["a", "b"], &[]),
            ("dd if=a of=b", &["of=b"], &[]),
            ("sed -i s/a/b/ f", &["s/a/b/", "f"], &["f"]),
            ("sed s/a/b/ f", &[], &[]),
            ("perl -pi -e x f", &["x", "f"], &["f"]),
            ("tar cf a.tar x", &["a.tar"], &[]),
            ("tar xf a.tar --directory=/etc", &["/etc"], &[]),
            ("7z x a -oout", &["out"], &[]),
            ("uniq a b", &["b"], &[]),
            ("curl -sSLo a http://x.y/z", &[], &["a"]),
            ("curl -O http://x.y/z?q", &[], &["./z"]),
            ("curl http://x.y/z", &[], &[]),
            ("wget -qO a http://x.y/z", &[], &["a"]),
            ("wget -qO- http://x.y/z", &[], &[]),
            ("wget http://x.y/z", &[], &["./z"]),
            ("gcc -O2 -o a x.c", &[], &["a"]),
            ("sort -oa b", &[], &["a"]),
            ("docker run -v ~/.ssh:/x img", &["~/.ssh"], &[]),
            ("docker run -v /a:/x:ro img", &[], &[]),
            ("git diff --output=a", &[], &["a"]),
        ];
        for (source, written, outputs) in table {
            let script = Script::parse(source);
            let texts = |words: Vec<Word>| words.into_iter().map(|word| word.text).collect::<Vec<_>>();
            assert_eq!(texts(targets(&script.commands()[0])), written, "{source}");
            assert_eq!(texts(output_options(&script.commands()[0])), outputs, "outputs of {source}");
        }
    }
}
