//! Which of its arguments a command writes: those of well-known commands, and options that name a file to write.
//!
//! A command that is not known here is judged by its rules and its mode alone; what it writes is not told from its name.

use crate::surface::shell::{Command, Word};

use super::argv::{Argv, letters};
use super::removal::REMOVES;

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
    let Some(argv) = Argv::of(command) else { return Vec::new() };
    let all = || argv.operands().cloned().collect::<Vec<_>>();
    let nth = |at: usize| argv.operands().nth(at).cloned().into_iter().collect::<Vec<_>>();
    match argv.name {
        "mv" => {
            let mut found = all();
            found.extend(into_directory(argv));
            found
        }
        name if REMOVES.contains(&name) => all(),
        "truncate" | "touch" | "mkdir" | "mknod" | "mkfifo" | "tee" | "sponge" | "chmod" | "chown" | "chgrp"
        | "chattr" | "setfacl" | "setfattr" | "patch" | "ed" | "ex" | "vi" | "vim" | "nvim" | "gvim" | "nano"
        | "emacs" | "pico" | "micro" | "sqlite3" | "mount" | "gzip" | "gunzip" | "bzip2" | "bunzip2" | "xz"
        | "unxz" | "zstd" | "unzstd" | "dos2unix" | "unix2dos" | "black" | "rustfmt" | "gofmt" | "isort"
        | "autopep8" | "rename" | "sftp" => all(),
        "ln" if !argv.has_letter(&['s']) && !argv.says(&["--symbolic"]) => {
            // Another name of a file: what is written to one is written to the other.
            let mut found = all();
            found.extend(into_directory(argv));
            found
        }
        "yq" | "clang-format" | "shfmt" if argv.says(&["-i", "--inplace", "-w"]) => all(),
        "prettier" | "eslint" | "ruff" | "biome" if argv.says(&["-w", "--write", "--fix", "format"]) => all(),
        "ffmpeg" | "convert" | "magick" | "script" => argv.operands().next_back().cloned().into_iter().collect(),
        "cargo" => argv.valued(&["--root", "--target-dir"]),
        "npm" => argv.valued(&["--prefix"]),
        "pip" | "pip3" => argv.valued(&["-t", "--target", "--root", "--prefix", "-d", "--dest"]),
        "socat" => argv.rest.iter().filter_map(opened).collect(),
        "split" => nth(1),
        "cp" | "install" | "ln" | "rsync" | "scp" => into_directory(argv),
        "uniq" | "xxd" => nth(1),
        "sed" | "perl" | "ruby" if edits_in_place(argv) => all(),
        "sed" => argv.rest.iter().filter_map(|word| Some(word.part(word.text.rsplit_once("w ")?.1))).collect(),
        "awk" | "gawk" if argv.says(&["inplace"]) => all(),
        "wget" => argv.valued(&["-P", "--directory-prefix"]),
        "curl" => argv.valued(&["--output-dir"]),
        "tar" | "bsdtar" | "gtar" if creates(argv) => archive(argv),
        "tar" | "bsdtar" | "gtar" if !argv.rest.iter().any(|word| lists_or_creates(&word.text)) => {
            argv.valued(&["-C", "--directory", "--one-top-level"])
        }
        "zip" => nth(0),
        "unzip" => argv.valued(&["-d"]),
        "7z" | "7za" | "7zr" => argv.glued("-o"),
        "cpio" => argv.valued(&["-D", "--directory"]),
        "csplit" => argv.valued(&["-f", "--prefix"]),
        "openssl" => argv.valued(&["-out"]),
        "gpg" | "gpg2" | "pandoc" => argv.valued(&["-o"]),
        "iconv" | "tic" => argv.valued(&["-o"]),
        "find" => {
            let mut found = argv.valued(&["-fprint", "-fprint0", "-fprintf", "-fls"]);
            if finds_to_change(argv) {
                found.extend(argv.find_roots().cloned());
            }
            found
        }
        "dd" => argv.rest.iter().filter(|word| word.text.starts_with("of=")).cloned().collect(),
        "git" => match argv.verb() {
            "init" | "clone" | "worktree" => argv.operands().next_back().cloned().into_iter().collect(),
            "mv" | "rm" | "restore" | "checkout" => argv.operands().skip(1).cloned().collect(),
            _ => Vec::new(),
        },
        "docker" | "podman" | "nerdctl" => {
            mounted(argv).into_iter().filter(|(_, writes)| *writes).map(|(word, _)| word).collect()
        }
        _ => Vec::new(),
    }
}

/// What goes with it goes with everything below: a removal, a move, a change of rights of a whole tree.
pub(super) fn takes_all_below(command: &Command) -> bool {
    let Some(argv) = Argv::of(command) else { return false };
    let deep = |letters: &[char]| argv.says(&["--recursive"]) || argv.has_letter(letters);
    match argv.name {
        "mv" | "trash" | "trash-put" | "srm" | "rimraf" => true,
        "rm" => deep(&['r', 'R']),
        "chmod" | "chown" | "chgrp" | "setfacl" | "chattr" => deep(&['R']),
        "rsync" => argv.begins("--del"),
        "find" => finds_to_change(argv),
        _ => false,
    }
}

/// `find -delete`, or with a command that removes or moves, or changes rights.
fn finds_to_change(argv: Argv<'_>) -> bool {
    argv.finds_for(REMOVES) || argv.finds_for(&["mv", "chmod", "chown", "chgrp"])
}

/// Where `cp`, `mv` and their like write: the last operand, or the directory of `-t`, and in it the names of what goes
/// there.
fn into_directory(argv: Argv<'_>) -> Vec<Word> {
    let named = argv.target_directory();
    let operands: Vec<&Word> = argv.operands().collect();
    let (directory, sources) = match (&named, operands.split_last()) {
        (Some(directory), _) => (directory.clone(), operands.as_slice()),
        (None, Some((last, sources))) => ((*last).clone(), sources),
        (None, None) => return Vec::new(),
    };
    let sources = sources.iter().filter(|source| named.is_none() || source.text != directory.text);
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
pub(super) fn mounted(argv: Argv<'_>) -> Vec<(Word, bool)> {
    let volumes = argv.valued(&["-v", "--volume"]).into_iter().chain(argv.glued("-v"));
    let volumes = volumes.filter(|word| word.text.starts_with(['/', '~', '.', '$'])).map(|word| {
        let (source, to) = word.text.split_once(':').unwrap_or((word.text.as_str(), ""));
        (word.part(source), !to.ends_with(":ro"))
    });
    let mounts = argv.valued(&["--mount"]).into_iter().filter_map(|word| {
        let mut parts = word.text.split(',');
        let source = parts.find_map(|part| part.strip_prefix("source=").or_else(|| part.strip_prefix("src=")))?;
        Some((word.part(source), !word.text.contains("readonly")))
    });
    volumes.chain(mounts).collect()
}

/// `-i`, `-pi`, `-i.bak`, `--in-place`: the files are written where they are.
fn edits_in_place(argv: Argv<'_>) -> bool {
    let flags = |letters: &str| letters.split('.').next().is_some_and(|flags| flags.contains('i'));
    argv.begins("--in-place") || argv.letters().any(flags)
}

/// `tar t…` and `tar c…`: nothing is unpacked.
fn lists_or_creates(option: &str) -> bool {
    // What follows the `f` of an option is the archive.
    let letters =
        option.strip_prefix('-').map_or(option, |letters| letters.split_inclusive('f').next().unwrap_or(letters));
    matches!(option, "--list" | "--create")
        || (letters.len() < 6
            && letters.starts_with(['t', 'c'])
            && letters.bytes().all(|byte| byte.is_ascii_lowercase()))
}

/// `tar c…`: an archive is made.
pub(super) fn creates(argv: Argv<'_>) -> bool {
    argv.rest.iter().any(|word| word.text == "--create" || (lists_or_creates(&word.text) && word.text.contains('c')))
}

/// The file that an address of `socat` opens.
fn opened(word: &Word) -> Option<Word> {
    let (kind, path) = word.text.split_once(':')?;
    let opens = ["open", "create", "creat", "file", "gopen"].iter().any(|known| kind.eq_ignore_ascii_case(known));
    opens.then(|| word.part(path.split(',').next().unwrap_or(path)))
}

/// The archive that `tar` makes: the word behind the letters that end with `f`.
fn archive(argv: Argv<'_>) -> Vec<Word> {
    let behind = argv.rest.iter().position(|word| lists_or_creates(&word.text) && word.text.ends_with('f'));
    let glued = argv.rest.iter().filter_map(|word| {
        let (before, name) = letters(&word.text)?.split_once('f')?;
        (before.contains('c') && !name.is_empty()).then(|| word.part(name))
    });
    let named = argv.valued(&["-f", "--file"]).into_iter().chain(glued);
    behind
        .and_then(|at| argv.rest.get(at + 1))
        .cloned()
        .into_iter()
        .chain(named)
        .filter(|word| word.text != "-")
        .collect()
}

/// What `--output FILE`, `--output=FILE` and, for some commands, `-o FILE` name; the files that are edited in place.
pub(super) fn output_options(command: &Command) -> Vec<Word> {
    let Some(argv) = Argv::of(command) else { return Vec::new() };
    let Argv { name, rest } = argv;
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
            outputs.extend(value.map(|value| word.part(value)).or_else(|| rest.get(at + 1).cloned()));
            continue;
        }
        let Some(letters) = letters(&word.text) else { continue };
        // `-sSLo FILE`: letters that take nothing before the one that takes a name. Compilers write words with one dash.
        let cluster = matches!(name, "curl" | "wget");
        let found = letters.find(short).filter(|at| *at == 0 || (cluster && is_switches(&letters[..*at])));
        if let Some(found) = found {
            match &letters[found + 1..] {
                "" => outputs.extend(rest.get(at + 1).cloned()),
                value => outputs.push(word.part(value.strip_prefix('=').unwrap_or(value))),
            }
        }
    }
    outputs.extend(fetched(argv));
    if matches!(name, "sed" | "perl" | "ruby") && edits_in_place(argv) {
        // The first operand is the script, where no option brought one.
        let scripted = argv.says(&["-e", "-f", "--expression", "--file"]);
        let files = argv.operands();
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
fn fetched(argv: Argv<'_>) -> Vec<Word> {
    let writes = match argv.name {
        "curl" => argv.says(&["--remote-name", "--remote-name-all", "-J"]) || argv.has_letter(&['O']),
        "wget" => {
            !argv.has_letter(&['O'])
                && !argv.says(&["--spider", "--version", "--help"])
                && !argv.begins("--output-document")
        }
        _ => false,
    };
    let addresses = argv.operands().filter(|_| writes).take(1);
    addresses
        .map(|word| {
            let path = word.text.split(['?', '#']).next().unwrap_or("");
            let name = path.trim_end_matches('/').rsplit('/').next().filter(|name| !name.is_empty());
            word.part(&format!("./{}", name.unwrap_or("index.html")))
        })
        .collect()
}

/// Code of an interpreter that may write files.
pub(super) fn is_writing_code(code: &str) -> bool {
    WRITING_CODE.iter().any(|word| code.contains(word))
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
