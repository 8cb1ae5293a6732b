//! What else a command may be seen to run: by runners whose options are not known here, in the code that an interpreter
//! is given, behind braces and separators that the shell puts in.
//!
//! Only deny and ask rules, and the checks that no mode waives, look this far: seeing a command that is none costs a
//! question, missing one costs what the rule was written for.

use crate::surface::shell::Word;

use super::argv::letters;

/// Commands that run another one which stands somewhere in their arguments. Their options are many and differ between
/// versions, so every argument may be where the command begins. In the order of their names.
const RUNNERS: &[&str] = &[
    "apptainer",
    "at",
    "batch",
    "bwrap",
    "caffeinate",
    "capsh",
    "catchsegv",
    "chpst",
    "chronic",
    "chrt",
    "cmd",
    "cmd.exe",
    "concurrently",
    "cpulimit",
    "daemonize",
    "dbus-launch",
    "dbus-run-session",
    "dotenv",
    "dumb-init",
    "eatmydata",
    "entr",
    "fakechroot",
    "fakeroot",
    "faketime",
    "firejail",
    "gdb",
    "gnome-terminal",
    "gosu",
    "hash",
    "hyperfine",
    "i386",
    "konsole",
    "ld.so",
    "linux32",
    "linux64",
    "lldb",
    "ltrace",
    "mosh",
    "mpiexec",
    "mpirun",
    "newgrp",
    "nix-shell",
    "nocache",
    "nodemon",
    "nsenter",
    "numactl",
    "parallel",
    "parallel-ssh",
    "pdsh",
    "perf",
    "pkexec",
    "prlimit",
    "proot",
    "proxychains",
    "proxychains4",
    "pssh",
    "rlwrap",
    "run-parts",
    "runcon",
    "runuser",
    "s6-setuidgid",
    "screen",
    "script",
    "sem",
    "setarch",
    "setpriv",
    "setuidgid",
    "sg",
    "softlimit",
    "spawn",
    "srun",
    "ssh",
    "sshpass",
    "start-stop-daemon",
    "strace",
    "su",
    "su-exec",
    "systemd-inhibit",
    "systemd-nspawn",
    "systemd-run",
    "taskset",
    "tini",
    "tmux",
    "torify",
    "torsocks",
    "toybox",
    "ts",
    "tsocks",
    "unbuffer",
    "unshare",
    "valgrind",
    "watchexec",
    "wine",
    "with-contenv",
    "wsl",
    "x86_64",
    "xterm",
    "xvfb-run",
    "zellij",
];

/// Programs that run another one with some verbs only; it stands somewhere behind the verb. In the order of their
/// names.
const RUNNERS_BY_VERB: &[(&str, &[&str])] = &[
    ("adb", &["shell"]),
    ("asdf", &["exec"]),
    ("aws-vault", &["exec"]),
    ("bundle", &["exec"]),
    ("chamber", &["exec"]),
    ("conda", &["run"]),
    ("devbox", &["run"]),
    ("direnv", &["exec"]),
    ("distrobox", &["enter"]),
    ("docker", &["exec", "run", "compose"]),
    ("doppler", &["run"]),
    ("foreman", &["run"]),
    ("hatch", &["run"]),
    ("heroku", &["run"]),
    ("ip", &["exec"]),
    ("kubectl", &["exec", "run", "debug"]),
    ("lxc", &["exec"]),
    ("machinectl", &["shell"]),
    ("mamba", &["run"]),
    ("micromamba", &["run"]),
    ("mise", &["exec", "x"]),
    ("multipass", &["exec"]),
    ("nerdctl", &["exec", "run", "compose"]),
    ("nix", &["run", "develop", "shell"]),
    ("nodenv", &["exec"]),
    ("npm", &["exec", "x"]),
    ("oc", &["exec", "run", "debug", "rsh"]),
    ("op", &["run"]),
    ("pdm", &["run"]),
    ("pipenv", &["run"]),
    ("pixi", &["run"]),
    ("pnpm", &["exec", "dlx"]),
    ("podman", &["exec", "run", "compose"]),
    ("poetry", &["run"]),
    ("pyenv", &["exec"]),
    ("rbenv", &["exec"]),
    ("rr", &["record"]),
    ("rustup", &["run"]),
    ("rye", &["run"]),
    ("toolbox", &["run"]),
    ("uv", &["run", "tool"]),
    ("vagrant", &["ssh"]),
    ("yarn", &["exec", "dlx", "run"]),
];

/// Runners of packages: what they are given is the name of a program, from wherever it comes.
const PACKAGE_RUNNERS: &[&str] = &["bunx", "npx", "pipx", "pnpx", "tsx", "uvx"];

/// Interpreters whose code may hold the text of a command.
const INTERPRETERS: &[&str] = &[
    "awk",
    "bun",
    "deno",
    "ed",
    "ex",
    "expect",
    "gawk",
    "gdb",
    "gmake",
    "irb",
    "ipython",
    "lua",
    "make",
    "mariadb",
    "mawk",
    "mysql",
    "node",
    "osascript",
    "perl",
    "php",
    "psql",
    "pwsh",
    "pypy",
    "python",
    "Rscript",
    "ruby",
    "sqlite",
    "tclsh",
    "wish",
];

/// How many spellings of one command line are looked at: what braces make of more words is not a command line of a
/// person.
const SPELLINGS_MAX: usize = 32;

/// Any of its arguments may be where another command begins.
fn runs_from_anywhere(name: &str) -> bool {
    RUNNERS.binary_search(&name).is_ok()
        || PACKAGE_RUNNERS.contains(&name)
        || (name.starts_with("ld-") && name.contains(".so"))
}

/// From which of its arguments on another command may begin; `None` for a command that runs none.
pub(super) fn runs_from(name: &str, rest: &[Word]) -> Option<usize> {
    if runs_from_anywhere(name) {
        return Some(0);
    }
    let found = RUNNERS_BY_VERB.binary_search_by(|(runner, _)| (*runner).cmp(name)).ok()?;
    let (_, verbs) = RUNNERS_BY_VERB.get(found)?;
    rest.iter().position(|word| verbs.contains(&word.text.as_str())).map(|at| at + 1)
}

/// Its code may hold commands, and it may come in by its standard input.
pub(super) fn is_interpreter(name: &str) -> bool {
    INTERPRETERS.contains(&name.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '.'))
}

/// Texts among the arguments that are command lines themselves, or may hold one.
pub(super) fn inner_texts(name: &str, rest: &[Word]) -> Vec<String> {
    let after = |text: &str, mark: &str| text.split_once(mark).map(|(_, inner)| inner.to_owned());
    let mut texts = Vec::new();
    let runs = runs_from(name, rest).is_some();
    for word in rest {
        match name {
            "alias" => texts.extend(after(&word.text, "=")),
            "git" => texts.extend(after(&word.text, "=!")),
            "env" => {
                let glued = letters(&word.text).and_then(|letters| letters.split_once('S')).map(|(_, text)| text);
                let glued = glued.filter(|text| !text.is_empty());
                texts.extend(glued.or_else(|| word.text.strip_prefix("--split-string=")).map(str::to_owned));
            }
            _ if runs && word.text.contains(char::is_whitespace) => {
                texts.push(word.text.clone());
                texts.extend(after(&word.text, "="));
            }
            _ => {}
        }
    }
    texts.extend(quoted_texts(name, rest));
    texts
}

/// What an interpreter's code has between quotes: none for a command that is no interpreter.
pub(super) fn quoted_texts(name: &str, rest: &[Word]) -> Vec<String> {
    if !is_interpreter(name) {
        return Vec::new();
    }
    rest.iter().flat_map(|word| quoted_in(&word.text)).collect()
}

/// What stands between quotes in a piece of code.
pub(super) fn quoted_in(code: &str) -> Vec<String> {
    let mut texts = Vec::new();
    for quote in ['"', '\'', '`'] {
        texts.extend(code.split(quote).skip(1).step_by(2).filter(|text| !text.is_empty()).map(str::to_owned));
    }
    texts
}

/// The words as the shell would pass them on: braces made into several words, `$IFS` into blanks. `None` when there is
/// nothing of the kind.
pub(super) fn expanded(words: &[Word]) -> Option<Vec<Word>> {
    let separates = |word: &Word| word.expands && (word.text.contains("$IFS") || word.text.contains("${IFS}"));
    if !words.iter().any(|word| word.braces || separates(word)) {
        return None;
    }
    let mut out = Vec::new();
    for word in words {
        let texts = if separates(word) {
            let spaced = word.text.replace("${IFS}", " ").replace("$IFS", " ");
            spaced.split(' ').filter(|part| !part.is_empty()).map(str::to_owned).collect()
        } else if word.braces {
            spellings(&word.text)
        } else {
            out.push(word.clone());
            continue;
        };
        for text in texts.into_iter().filter(|text: &String| !text.is_empty()) {
            let mut part = word.clone();
            (part.expands, part.braces) = (text.contains(['$', '`']), false);
            part.text = text;
            out.push(part);
        }
        out.truncate(SPELLINGS_MAX * 2);
    }
    Some(out)
}

/// `a{b,c}d` as `abd` and `acd`; a range or a brace without a comma stays as it is.
pub(super) fn spellings(text: &str) -> Vec<String> {
    let mut done = Vec::new();
    let mut open = vec![text.to_owned()];
    while let Some(text) = open.pop() {
        match inner_braces(&text) {
            Some((start, end)) if done.len() + open.len() < SPELLINGS_MAX => {
                for part in text[start + 1..end].split(',').rev() {
                    open.push(format!("{}{part}{}", &text[..start], &text[end + 1..]));
                }
            }
            Some(_) | None => done.push(text),
        }
    }
    done
}

/// Where the first innermost brace with a comma begins and ends.
fn inner_braces(text: &str) -> Option<(usize, usize)> {
    let mut start = None;
    let mut comma = false;
    for (at, letter) in text.char_indices() {
        match letter {
            '{' => (start, comma) = (Some(at), false),
            ',' => comma = true,
            '}' => {
                if let Some(start) = start.take()
                    && comma
                {
                    return Some((start, at));
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_searched_by_halves_is_in_order() {
        assert!(RUNNERS.is_sorted());
        assert!(RUNNERS_BY_VERB.is_sorted_by_key(|(name, _)| *name));
    }

    #[test]
    fn braces_become_words() {
        let table: [(&str, &[&str]); 6] = [
            ("{rm,x}", &["rm", "x"]),
            ("{r,}m", &["rm", "m"]),
            ("a{b,c{d,e}}", &["ab", "acd", "ab", "ace"]),
            ("a{1..3}", &["a{1..3}"]),
            ("{}", &["{}"]),
            ("a", &["a"]),
        ];
        for (text, want) in table {
            assert_eq!(spellings(text), want, "{text}");
        }
        assert!(spellings(&"{a,b}".repeat(40)).len() <= SPELLINGS_MAX * 2);
    }
}
