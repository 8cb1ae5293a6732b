//! A shell command at the gate: taken apart, each part judged by itself, the strictest finding wins.
//!
//! An allow needs every part, a deny or an ask needs one. Files that are written by a redirection, or by an option like
//! `--output`, are judged as edits whatever rule matched the command. What is not understood matches no allow rule.

use crate::request::why::Step;
use crate::surface::nature::{Deed, Nature};
use crate::surface::shell::{Command, Script, Understood, Word, reads};

use super::danger::{critical_removal, dangerous, sets_what_runs_later};
use super::decide::{Case, Finding, Verdict, classified, judge as judge_deed};
use super::matches::{Matched, choose};
use super::pattern::Anchors;
use super::peel::{View, base, core, fed_texts, is_harmlessly_set, runs_its_arguments, views};
use super::policy::{Mode, Policy};
use super::protected::{is_sink, protected, secret};
use super::reach;
use super::rule::{Line, Rule, Seen, Verb};

/// The strictest of all findings: a deny before an ask before an allow, of two asks the one of the earlier step.
pub(crate) fn judge(policy: &Policy, case: Case<'_>, script: &Script, cwd: Option<&str>) -> Finding {
    let Some(cwd) = cwd else { return judge_here(policy, case, script) };
    let Some(there) = case.facts.resolve(cwd) else {
        return Finding::new(Verdict::Deny, Step::Precondition, "the directory to run in cannot be resolved");
    };
    let outside = !case.facts.in_scope(&there) && policy.mode != Mode::BypassPermissions;
    let mut facts = case.facts.clone();
    facts.work_dirs.push(std::mem::replace(&mut facts.cwd, there.clone()));
    let found = judge_here(policy, Case { facts: &facts, ..case }, script);
    let reason = format!("it runs in {there}, which is outside the working directories");
    let elsewhere = outside.then(|| Finding::new(Verdict::Ask, Step::Scope, reason).at(Some(there)));
    strictest([Some(found), elsewhere].into_iter().flatten().collect()).unwrap_or_else(nothing)
}

/// The rule is about this command: all of it for an allow, any part of it for the others.
pub(super) fn covers(rule: &Rule, case: Case<'_>, script: &Script) -> bool {
    let understood = script.understood() == Understood::Whole;
    let fed = Fed::of(script);
    let mut parts = script.commands().iter().map(|command| Part::of(command, case, &fed));
    match rule.verb() {
        Verb::Allow => !script.commands().is_empty() && parts.all(|part| part.covered_by(rule, understood)),
        Verb::Ask | Verb::Deny => parts.any(|part| part.covered_by(rule, understood)),
    }
}

fn nothing() -> Finding {
    Finding::new(Verdict::Ask, Step::Mode, "there is nothing that could be judged")
}

fn judge_here(policy: &Policy, case: Case<'_>, script: &Script) -> Finding {
    let proven = reads::proven(script);
    if policy.mode == Mode::Plan && !proven {
        return Finding::new(Verdict::Deny, Step::Plan, "in plan mode only what is proven to read goes on");
    }
    let fed = Fed::of(script);
    let parts: Vec<Part<'_>> = script.commands().iter().map(|command| Part::of(command, case, &fed)).collect();
    let mut findings = Vec::new();
    for part in &parts {
        findings.push(part_finding(policy, case, script, part, proven));
        findings.extend(immune(policy, case, part));
        findings.extend(written_files(policy, case, part.command));
        findings.extend(path_rules(policy, case, part));
    }
    findings.extend(moves(policy, &parts));
    findings.extend(not_understood(policy, script));
    if parts.is_empty() {
        findings.push(empty(policy));
    }
    strictest(findings)
        .unwrap_or_else(|| Finding::new(Verdict::Ask, Step::Mode, "there is nothing that could be judged"))
}

fn strictest(findings: Vec<Finding>) -> Option<Finding> {
    let rank = |finding: &Finding| {
        let verdict = match finding.verdict {
            Verdict::Deny => 0,
            Verdict::Ask => 1,
            Verdict::Allow => 2,
        };
        (verdict, finding.step)
    };
    findings.into_iter().min_by_key(rank)
}

/// One command, what it can be seen to run, and what it is once harmless wrappers are peeled off.
struct Part<'a> {
    command: &'a Command,
    views: Vec<View>,
    core: Command,
    lines: Vec<Line>,
    core_line: Line,
    /// The paths that its arguments may stand for; none for a command that prints its words.
    paths: Vec<String>,
}

/// What the script's commands may be fed with.
struct Fed {
    texts: Vec<String>,
    /// What it prints may become the words of another command: by a substitution, or by one that reads its arguments.
    prints_arguments: bool,
}

impl Fed {
    fn of(script: &Script) -> Fed {
        let takes = |command: &Command| {
            command.fed && command.words.iter().any(|word| matches!(base(&word.text), "xargs" | "parallel"))
        };
        let prints_arguments = script.understood() != Understood::Whole || script.commands().iter().any(takes);
        Fed { texts: fed_texts(script), prints_arguments }
    }
}

impl<'a> Part<'a> {
    fn of(command: &'a Command, case: Case<'_>, fed: &Fed) -> Part<'a> {
        let (views, core) = (views(command, &fed.texts), core(command));
        let only_printed = reads::prints_its_words(command) && !fed.prints_arguments;
        let arguments = command.words.iter().skip(1).filter(|_| !only_printed);
        let mut paths: Vec<String> = arguments.flat_map(|word| candidates(case, word)).collect();
        // What an interpreter's code has between quotes may be a path.
        for view in &views {
            let code = view
                .command
                .name()
                .map_or_else(Vec::new, |name| reach::quoted_texts(base(name), &view.command.words[1..]));
            paths.extend(code.iter().filter_map(|text| case.facts.resolve(text)));
        }
        let lines = views.iter().map(|view| Line::of(&view.command)).collect();
        Part { command, lines, core_line: Line::of(&core), views, core, paths }
    }

    fn is_named(&self, names: &[&str]) -> bool {
        self.views.iter().any(|view| view.command.name().is_some_and(|name| names.contains(&base(name))))
    }

    fn covered_by(&self, rule: &Rule, understood: bool) -> bool {
        match rule.verb() {
            Verb::Deny | Verb::Ask => {
                rule.covers_all_commands() || self.lines.iter().any(|line| rule.covers_command(line))
            }
            Verb::Allow if !understood => false,
            Verb::Allow if rule.covers_all_commands() => true,
            Verb::Allow => {
                let harmless = is_harmlessly_set(self.command);
                let exact = !rule.has_wildcard();
                (harmless && (exact || !runs_its_arguments(&self.core)) && rule.covers_command(&self.core_line))
                    || (exact
                        && !self.command.assignments.is_empty()
                        && rule.covers_command(&with_assignments(self.command)))
            }
        }
    }
}

/// The assignments as words in front: what an exact rule for them looks like.
fn with_assignments(command: &Command) -> Line {
    let set = command.assignments.iter().map(|one| Word::literal(&format!("{}={}", one.name, one.value.text)));
    Line::of(&Command { words: set.chain(command.words.iter().cloned()).collect(), ..Command::default() })
}

/// Rules, then scope and mode, for one command.
fn part_finding(policy: &Policy, case: Case<'_>, script: &Script, part: &Part<'_>, proven: bool) -> Finding {
    let understood = script.understood() == Understood::Whole;
    let Matched { deny, ask, allow } = choose(policy, |rule| part.covered_by(rule, understood));
    if let Some(found) = deny.or(ask).or(allow) {
        return found;
    }
    let say = |verdict, reason: &str| Finding::new(verdict, Step::Mode, reason);
    if policy.mode == Mode::BypassPermissions {
        if let Some(why) = part.views.iter().find_map(|view| dangerous(&view.command)) {
            return say(Verdict::Ask, &format!("it is a dangerous command: {why}"));
        }
        return classified(policy, case).unwrap_or_else(|| say(Verdict::Allow, "the mode asks for nothing"));
    }
    if !proven {
        let named = part.core.name().map_or_else(String::new, |name| format!(" {name:?}"));
        return say(Verdict::Ask, &format!("no rule allows the command{named}"));
    }
    match read_outside(case, part.command) {
        Some(path) => {
            Finding::new(Verdict::Ask, Step::Scope, format!("{path} is outside the working directories")).at(Some(path))
        }
        None => say(Verdict::Allow, "it only reads"),
    }
}

/// A path argument of a command that reads, outside of where the run may work.
fn read_outside(case: Case<'_>, command: &Command) -> Option<String> {
    if reads::prints_its_words(command) {
        return None;
    }
    let arguments = command.words.iter().skip(1).flat_map(|word| pieces(&word.path()));
    let mut paths = arguments.filter_map(|piece| case.facts.resolve(&piece));
    paths.find(|path| !case.facts.in_scope(path))
}

/// What in a word may be a path: the word, and what comes after `=`, `@` or a flag's letter.
fn pieces(word: &str) -> Vec<String> {
    let mut pieces = Vec::new();
    if !word.starts_with('-') {
        pieces.push(word.to_owned());
    }
    for (at, _) in word.match_indices(['=', '@', ':']) {
        pieces.push(word[at + 1..].to_owned());
    }
    if word.starts_with('-')
        && let Some(at) = word.find(['/', '~', '.'])
    {
        pieces.push(word[at..].to_owned());
    }
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

/// Secrets that it names, protected files that it writes, removals that take everything.
fn immune(policy: &Policy, case: Case<'_>, part: &Part<'_>) -> Vec<Finding> {
    let ask = |reason: String, path: Option<String>| Finding::new(Verdict::Ask, Step::Immune, reason).at(path);
    let mut findings = Vec::new();
    let mut secrets = |path: &String| {
        if let Some(why) = secret(path, &policy.own_secrets) {
            findings.push(ask(format!("it names {path}: {why}"), Some(path.clone())));
        }
    };
    part.paths.iter().for_each(&mut secrets);
    // What a wrapper runs has words of the command itself; only a script inside has words of its own.
    for view in part.views.iter().filter(|view| view.nested && !reads::prints_its_words(&view.command)) {
        view.command.words.iter().skip(1).flat_map(|word| candidates(case, word)).for_each(|path| secrets(&path));
    }
    for view in &part.views {
        if let Some(target) = critical_removal(&view.command, case.facts) {
            findings.push(ask(format!("it removes {target}, which is more than a part of the work"), None));
        }
        if let Some(why) = sets_what_runs_later(&view.command) {
            findings.push(ask(format!("it changes what is run or obeyed later: {why}"), None));
        }
        for path in targets(&view.command).into_iter().flat_map(|word| candidates(case, word)) {
            if let Some(why) = protected(&path, &policy.own_paths) {
                findings.push(ask(format!("writing {path} is protected: {why}"), Some(path)));
            }
        }
    }
    for redirect in part.command.redirects.iter().filter(|redirect| !redirect.writes) {
        for path in candidates(case, &redirect.target) {
            if let Some(why) = secret(&path, &policy.own_secrets) {
                findings.push(ask(format!("it reads {path}: {why}"), Some(path)));
            }
        }
    }
    findings
}

/// The paths that a word may stand for, resolved; of a pattern, the one that it most looks like.
fn candidates(case: Case<'_>, word: &Word) -> Vec<String> {
    let mut text = word.path();
    if word.expands {
        let home = case.facts.home.as_deref().unwrap_or("~");
        let cwd = case.facts.cwd.as_str();
        for (variable, value) in [("${HOME}", home), ("$HOME", home), ("${PWD}", cwd), ("$PWD", cwd)] {
            text = text.replace(variable, value);
        }
    }
    if word.tilde
        && let Some(rest) = text.strip_prefix("~+")
    {
        text = format!("{}{rest}", case.facts.cwd);
    }
    if word.braces {
        return reach::spellings(&text)
            .iter()
            .flat_map(|text| pieces(text))
            .filter_map(|piece| case.facts.resolve(&piece))
            .collect();
    }
    let mut meant = Vec::new();
    if word.globs {
        meant = secrets_like(&text);
        text = text.replace(['*', '?', '[', ']'], "");
    }
    pieces(&text).iter().chain(&meant).filter_map(|piece| case.facts.resolve(piece)).collect()
}

/// The arguments of well-known commands that they write or remove.
fn targets(command: &Command) -> Vec<&Word> {
    let Some((name, rest)) = command.words.split_first() else { return Vec::new() };
    let operands: Vec<&Word> = rest.iter().filter(|word| !word.text.starts_with('-')).collect();
    match base(&name.text) {
        "mv" | "rm" | "rmdir" | "unlink" | "shred" | "truncate" | "touch" | "mkdir" | "mknod" | "mkfifo" | "tee"
        | "chmod" | "chown" | "chgrp" | "patch" | "ed" | "ex" | "vi" | "vim" | "nvim" | "nano" | "emacs" => operands,
        "cp" | "install" | "ln" | "rsync" | "scp" => {
            let directory = rest.iter().position(|word| word.text == "-t").and_then(|at| rest.get(at + 1));
            directory.or(operands.last().copied()).into_iter().collect()
        }
        "sed" if rest.iter().any(|word| in_place(&word.text)) => operands,
        "perl" | "ruby" if rest.iter().any(|word| in_place(&word.text)) => operands,
        "wget" => valued(rest, &["-P", "--directory-prefix"]),
        "curl" => valued(rest, &["--output-dir"]),
        "tar" if !rest.iter().any(|word| lists_or_creates(&word.text)) => valued(rest, &["-C", "--directory"]),
        "unzip" | "7z" => valued(rest, &["-d"]),
        "dd" => rest.iter().filter(|word| word.text.starts_with("of=")).collect(),
        _ => Vec::new(),
    }
}

/// `-i`, `-pi`, `-i.bak`, `--in-place`: the files are written where they are.
fn in_place(option: &str) -> bool {
    let letters = option.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
    option.starts_with("--in-place")
        || letters.is_some_and(|letters| letters.split('.').next().is_some_and(|flags| flags.contains('i')))
}

/// `tar t…` and `tar c…`: nothing is unpacked.
fn lists_or_creates(option: &str) -> bool {
    let letters = option.strip_prefix('-').unwrap_or(option);
    letters.len() < 6 && letters.starts_with(['t', 'c']) && letters.bytes().all(|byte| byte.is_ascii_lowercase())
}

/// The words after these options.
fn valued<'a>(rest: &'a [Word], options: &[&str]) -> Vec<&'a Word> {
    let at = |(at, word): (usize, &Word)| options.contains(&word.text.as_str()).then(|| rest.get(at + 1)).flatten();
    rest.iter().enumerate().filter_map(at).collect()
}

/// Well-known names of secrets that a pattern may stand for, in the pattern's directory. A pattern of hardly more than
/// a star stands for anything, and is not taken for one that looks for secrets.
fn secrets_like(pattern: &str) -> Vec<String> {
    const NAMES: &[&str] = &[
        ".env",
        ".env.local",
        ".netrc",
        ".pgpass",
        ".git-credentials",
        "id_rsa",
        "id_ed25519",
        "credentials",
        "shadow",
    ];
    let (dir, name) = pattern.rsplit_once('/').map_or(("", pattern), |(dir, name)| (dir, name));
    let literal = name.chars().filter(|letter| letter.is_alphanumeric()).count();
    let Ok(glob) = globset::Glob::new(name) else { return Vec::new() };
    let glob = glob.compile_matcher();
    let fits = |known: &&&str| known.starts_with('.') == name.starts_with('.') && glob.is_match(known);
    if literal == 0 {
        return Vec::new();
    }
    let path = |known: &&str| if dir.is_empty() { (*known).to_owned() } else { format!("{dir}/{known}") };
    NAMES.iter().filter(fits).map(path).collect()
}

/// Redirections and `--output` options, judged as edits (and as reads).
fn written_files(policy: &Policy, case: Case<'_>, command: &Command) -> Vec<Finding> {
    let redirects = command.redirects.iter().map(|redirect| (redirect.writes, redirect.target.clone()));
    let outputs = output_options(command).into_iter().map(|word| (true, word));
    redirects
        .chain(outputs)
        .filter(|(_, target)| !(target.is_fixed() && is_sink(&target.text)))
        .map(|(writes, target)| {
            if !target.is_fixed() {
                let reason = "it opens a file whose name is only known when it runs";
                return Finding::new(Verdict::Ask, Step::Scope, reason);
            }
            let path = target.path();
            let deed = if writes { Deed::Write { path } } else { Deed::Read { path } };
            let nature = Nature { deed, ..case.nature.clone() };
            judge_deed(policy, Case { nature: &nature, ..case })
        })
        .collect()
}

/// What `--output FILE`, `--output=FILE` and, for some commands, `-o FILE` name.
fn output_options(command: &Command) -> Vec<Word> {
    const LONG: &[&str] = &["--output", "--output-file", "--output-document", "--outfile", "--out-file"];
    let Some((name, rest)) = command.words.split_first() else { return Vec::new() };
    let short: &[&str] = match base(&name.text) {
        "curl" | "sort" | "cc" | "gcc" | "g++" | "clang" | "ld" | "go" | "rustc" | "tree" | "time" => &["-o"],
        "wget" => &["-O", "-o"],
        _ => &[],
    };
    let mut outputs = Vec::new();
    for (at, word) in rest.iter().enumerate() {
        let (option, value) = match word.text.split_once('=') {
            Some((option, value)) => (option, Some(value)),
            None => (word.text.as_str(), None),
        };
        let glued = short.iter().find_map(|letter| word.text.strip_prefix(letter)).filter(|value| !value.is_empty());
        if LONG.contains(&option) || short.contains(&option) {
            outputs.extend(value.map(|value| renamed(word, value)).or_else(|| rest.get(at + 1).cloned()));
        } else if let Some(value) = glued
            && !word.text.starts_with("--")
        {
            outputs.push(renamed(word, value));
        }
    }
    outputs.retain(|word| word.text != "-");
    outputs
}

/// A part of a word; what of the word expands may stand in any part of it.
fn renamed(word: &Word, text: &str) -> Word {
    let mut part = word.clone();
    text.clone_into(&mut part.text);
    part
}

/// Deny and ask rules for paths hold for the words of a command too.
fn path_rules(policy: &Policy, case: Case<'_>, part: &Part<'_>) -> Vec<Finding> {
    let forbids = policy.rules.all().iter().any(|rule| rule.verb() != Verb::Allow && rule.is_about_paths());
    if !forbids || (part.paths.is_empty() && part.views.len() < 2) {
        return Vec::new();
    }
    let nested = part.views.iter().filter(|view| view.nested && !reads::prints_its_words(&view.command));
    let inside = nested.flat_map(|view| view.command.words.iter().skip(1)).flat_map(|word| candidates(case, word));
    let patterns: Vec<String> = part
        .command
        .words
        .iter()
        .skip(1)
        .filter(|word| word.globs && !word.expands)
        .filter_map(|word| case.facts.written(&word.path()))
        .collect();
    let named: Vec<String> = part.paths.iter().cloned().chain(inside).collect();
    let targets = part.views.iter().flat_map(|view| targets(&view.command));
    let written: Vec<String> = targets.flat_map(|word| candidates(case, word)).collect();
    let anchors = Anchors::new(case.facts);
    let meant = patterns.into_iter().filter_map(|pattern| {
        let found = choose(policy, |rule| rule.verb() != Verb::Allow && rule.may_be_meant_by(&pattern, &anchors));
        found.deny.or(found.ask).map(|finding| finding.at(Some(pattern)))
    });
    named
        .into_iter()
        .filter_map(|path| {
            let writes = written.contains(&path);
            let seen = Seen::new(path.clone(), None);
            let found = choose(policy, |rule| {
                let forbids = rule.verb() != Verb::Allow && rule.is_about_paths();
                forbids
                    && (rule.covers_path(false, &seen, &anchors) || (writes && rule.covers_path(true, &seen, &anchors)))
            });
            found.deny.or(found.ask).map(|finding| finding.at(Some(path)))
        })
        .chain(meant)
        .collect()
}

/// After a `cd`, nobody here knows where a relative path leads, or whose repository `git` obeys.
fn moves(policy: &Policy, parts: &[Part<'_>]) -> Option<Finding> {
    let moved = parts.iter().any(|part| part.is_named(&["cd", "pushd", "popd"]));
    if !moved || policy.mode == Mode::BypassPermissions {
        return None;
    }
    let git = parts.iter().any(|part| part.is_named(&["git"]));
    let writes = parts.iter().any(|part| part.command.redirects.iter().any(|redirect| redirect.writes));
    let reason = match (git, writes) {
        (true, _) => "it goes to another directory and runs git there",
        (false, true) => "it goes to another directory and writes there",
        (false, false) => return None,
    };
    Some(Finding::new(Verdict::Ask, Step::Scope, reason))
}

/// What could not be told beforehand is asked about; where the mode asks for nothing, only what is no command at all.
fn not_understood(policy: &Policy, script: &Script) -> Option<Finding> {
    let bypass = policy.mode == Mode::BypassPermissions;
    let too_long = script.source().chars().nth(crate::surface::shell::SCRIPT_CHARS_MAX).is_some();
    let why = match script.understood() {
        Understood::Whole => return None,
        Understood::Opaque(_) if bypass && !too_long => return None,
        Understood::Opaque(why) | Understood::Unparseable(why) => why,
    };
    Some(Finding::new(Verdict::Ask, Step::Mode, format!("it cannot be told beforehand what it runs: {why}")))
}

/// Nothing to run, or nothing that was found: rules for every command still hold.
fn empty(policy: &Policy) -> Finding {
    let Matched { deny, ask, .. } = choose(policy, Rule::covers_all_commands);
    deny.or(ask).unwrap_or_else(|| Finding::new(Verdict::Ask, Step::Mode, "it has no command that could be judged"))
}
