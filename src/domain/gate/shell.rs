//! A shell command at the gate: taken apart, each part judged by itself, the strictest finding wins.
//!
//! An allow needs every part, a deny or an ask needs one. Files that are written by a redirection, or by an option like
//! `--output`, are judged as edits whatever rule matched the command. What is not understood matches no allow rule.

use crate::request::why::Step;
use crate::surface::nature::{Deed, Nature};
use crate::surface::shell::{Command, Script, Understood, Word, reads};

use super::danger::{dangerous, gives_secrets, is_fork_bomb, patched, sets_what_runs_later};
use super::decide::{Case, Finding, Verdict, classified, judge as judge_deed};
use super::matches::{Matched, choose};
use super::pattern::Anchors;
use super::peel::{View, Views, base, core, fed_texts, is_harmlessly_set, runs_its_arguments, views};
use super::policy::{Mode, Policy};
use super::protected::{is_sink, protected, secret, secret_below};
use super::reach;
use super::removal::critical_removal;
use super::rule::{Line, Rule, Seen, Verb};
use super::shift;
use super::tree;
use super::written::{is_writing_code, output_options, renamed, takes_all_below, targets};

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
        findings.extend(immune(policy, case, part, &fed));
        findings.extend(written_files(policy, case, case, part));
        findings.extend(path_rules(policy, case, case, part));
    }
    // What a command means once an earlier one has changed the directory, or has laid a link.
    for (at, facts) in shift::after(script, case.facts) {
        let there = Case { facts: &facts, ..case };
        let part = Part::of(&script.commands()[at], there, &fed);
        findings.extend(immune(policy, there, &part, &fed));
        findings.extend(path_rules(policy, case, there, &part));
        let written = written_files(policy, case, there, &part);
        findings.extend(written.into_iter().filter(|found| found.verdict != Verdict::Allow));
    }
    if policy.mode == Mode::BypassPermissions && is_fork_bomb(script) {
        findings.push(Finding::new(Verdict::Ask, Step::Mode, "it is a dangerous command: it takes the machine down"));
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
    views: Views,
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
        for view in views.iter() {
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
    // What cannot be resolved (the home of somebody else, a circle of links) leads nobody knows where.
    let mut paths = arguments.map(|piece| case.facts.resolve(&piece).ok_or(piece));
    paths.find_map(|path| match path {
        Ok(path) => (!case.facts.in_scope(&path)).then_some(path),
        Err(piece) => (piece.starts_with('~') || piece.contains('/') || !case.facts.links.is_empty()).then_some(piece),
    })
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
fn immune(policy: &Policy, case: Case<'_>, part: &Part<'_>, fed: &Fed) -> Vec<Finding> {
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
    if part.views.cut {
        findings.push(ask("it runs more commands, or deeper wrapped ones, than are looked at".to_owned(), None));
    }
    let own = |path: &str| protected(path, &policy.own_paths);
    for view in part.views.iter() {
        let command = &view.command;
        if let Some(target) = critical_removal(command, case.facts) {
            findings.push(ask(format!("it removes {target}, which is more than a part of the work"), None));
        }
        if let Some(why) = sets_what_runs_later(command) {
            findings.push(ask(format!("it changes what is run or obeyed later: {why}"), None));
        }
        if let Some(what) = gives_secrets(command) {
            findings.push(ask(format!("it gives away {what}"), None));
        }
        let patched = patched(command, &fed.texts);
        if patched == Some(None) {
            findings.push(ask("it writes files that are named inside of a patch".to_owned(), None));
        }
        let mut written = targets(command);
        written.extend(output_options(command));
        written.extend(patched.flatten().into_iter().flatten());
        written.extend(redirected(view).filter(|(writes, _)| *writes).map(|(_, word)| word.clone()));
        for path in written.iter().flat_map(|word| candidates(case, word)) {
            if let Some(why) = own(&path) {
                findings.push(ask(format!("writing {path} is protected: {why}"), Some(path)));
            }
        }
        for path in written_in_code(case, command) {
            if let Some(why) = own(&path) {
                findings.push(ask(format!("its code names {path}, which is protected: {why}"), Some(path)));
            }
        }
        let home = case.facts.home.as_deref();
        for path in tree_roots(case, command) {
            if let Some(why) = secret_below(&path, home, &policy.own_secrets) {
                findings.push(ask(format!("it reads all of {path}: {why}"), Some(path)));
            }
        }
    }
    let inside = part.views.iter().filter(|view| view.nested).flat_map(redirected);
    let own_redirects = part.command.redirects.iter().map(|redirect| (redirect.writes, &redirect.target));
    for (_, target) in own_redirects.chain(inside).filter(|(writes, _)| !writes) {
        for path in candidates(case, target) {
            if let Some(why) = secret(&path, &policy.own_secrets) {
                findings.push(ask(format!("it reads {path}: {why}"), Some(path)));
            }
        }
    }
    findings
}

/// The files that a command inside of a text is connected to.
fn redirected(view: &View) -> impl Iterator<Item = (bool, &Word)> {
    view.command.redirects.iter().map(|redirect| (redirect.writes, &redirect.target))
}

/// The directories that it reads with all that is below, resolved; a pattern directly in one counts as the directory.
fn tree_roots(case: Case<'_>, command: &Command) -> Vec<String> {
    let named = tree::roots(command).into_iter().flat_map(|word| candidates(case, &word));
    let globbed = command.words.iter().skip(1).filter(|word| word.globs && !reads::prints_its_words(command));
    let listed = globbed.filter_map(|word| {
        let text = word.path();
        let (dir, name) = text.rsplit_once('/')?;
        let bare = !name.chars().any(char::is_alphanumeric) && !dir.contains(['*', '?', '[', '$']);
        let dir = bare.then(|| candidates(case, &dir_word(word, dir)).into_iter().next()).flatten()?;
        // `~/*` leaves out what begins with a dot; a directory of keys has nothing else.
        secret_below(&dir, None, &[]).filter(|_| dir.contains("/.")).map(|_| dir)
    });
    named.chain(listed).collect()
}

fn dir_word(word: &Word, dir: &str) -> Word {
    let mut dir = renamed(word, dir);
    dir.globs = false;
    dir
}

/// Paths between quotes in the code of an interpreter, where the code writes something.
fn written_in_code(case: Case<'_>, command: &Command) -> Vec<String> {
    let Some((name, rest)) = command.words.split_first() else { return Vec::new() };
    let name = base(&name.text);
    if !reach::is_interpreter(name) || !rest.iter().any(|word| is_writing_code(&word.text)) {
        return Vec::new();
    }
    let named = |text: &String| text.contains('/') || text.starts_with('.');
    reach::quoted_texts(name, rest)
        .iter()
        .filter(|text| named(text))
        .filter_map(|text| case.facts.resolve(text))
        .collect()
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
    text = in_directory(case, text, word.tilde);
    // The home of somebody else is where homes are.
    if word.tilde
        && let Some((name, rest)) = text.strip_prefix('~').map(|rest| rest.split_once('/').unwrap_or((rest, "")))
        && !name.is_empty()
    {
        text = if name == "root" { format!("/root/{rest}") } else { format!("/home/{name}/{rest}") };
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

/// Redirections and `--output` options, judged as edits (and as reads), of the command and of what it has inside.
/// Words are resolved from `there`, where the command runs; rules begin where they always do.
fn written_files(policy: &Policy, case: Case<'_>, there: Case<'_>, part: &Part<'_>) -> Vec<Finding> {
    let redirects = part.command.redirects.iter().map(|redirect| (redirect.writes, redirect.target.clone()));
    let inside = part.views.iter().filter(|view| view.nested).flat_map(redirected);
    let inside = inside.map(|(writes, word)| (writes, word.clone()));
    let outputs = output_options(&part.core).into_iter().map(|word| (true, word));
    redirects
        .chain(inside)
        .chain(outputs)
        .filter(|(_, target)| !(target.is_fixed() && is_sink(&target.text)))
        .map(|(writes, target)| {
            if !target.is_fixed() {
                let reason = "it opens a file whose name is only known when it runs";
                return Finding::new(Verdict::Ask, Step::Scope, reason);
            }
            let path = in_directory(there, target.path(), target.tilde);
            let path = if std::ptr::eq(case.facts, there.facts) { Some(path) } else { there.facts.resolve(&path) };
            let Some(path) = path else {
                return Finding::new(Verdict::Deny, Step::Precondition, "the path cannot be resolved");
            };
            let deed = if writes { Deed::Write { path } } else { Deed::Read { path, below: false } };
            let nature = Nature { deed, ..case.nature.clone() };
            judge_deed(policy, Case { nature: &nature, ..case })
        })
        .collect()
}

/// `~+` is the working directory.
fn in_directory(case: Case<'_>, path: String, tilde: bool) -> String {
    match path.strip_prefix("~+").filter(|rest| tilde && (rest.is_empty() || rest.starts_with('/'))) {
        Some(rest) => format!("{}{rest}", case.facts.cwd),
        None => path,
    }
}

/// Deny and ask rules for paths hold for the words of a command too. Words are
/// resolved from `there`.
fn path_rules(policy: &Policy, case: Case<'_>, there: Case<'_>, part: &Part<'_>) -> Vec<Finding> {
    let forbids = policy.rules.all().iter().any(|rule| rule.verb() != Verb::Allow && rule.is_about_paths());
    if !forbids {
        return Vec::new();
    }
    let nested = part.views.iter().filter(|view| view.nested && !reads::prints_its_words(&view.command));
    let inside = nested.flat_map(|view| view.command.words.iter().skip(1)).flat_map(|word| candidates(there, word));
    let patterns: Vec<String> = part
        .command
        .words
        .iter()
        .skip(1)
        .filter(|word| word.globs && !word.expands)
        .filter_map(|word| there.facts.written(&word.path()))
        .collect();
    let mut named: Vec<String> = part.paths.iter().cloned().chain(inside).collect();
    let written_by = |command: &Command| {
        let words = targets(command).into_iter().chain(output_options(command));
        words.flat_map(|word| candidates(there, &word)).collect::<Vec<_>>()
    };
    let mut written: Vec<String> = part.views.iter().flat_map(|view| written_by(&view.command)).collect();
    let redirects = part.views.iter().flat_map(redirected).filter(|(writes, _)| *writes);
    written.extend(redirects.flat_map(|(_, word)| candidates(there, word)));
    let anchors = Anchors::new(case.facts);
    named.extend(written.iter().filter(|path| !part.paths.contains(path)).cloned().collect::<Vec<_>>());
    // What is below goes with it, and nobody here knows what is.
    let deep = part.views.iter().filter(|view| takes_all_below(&view.command));
    let deep = deep.flat_map(|view| written_by(&view.command)).map(|path| (true, path));
    let read = part.views.iter().flat_map(|view| tree_roots(there, &view.command)).map(|path| (false, path));
    let below: Vec<Finding> = deep
        .chain(read)
        .filter_map(|(writes, path)| {
            let found = choose(policy, |rule| rule.may_lie_below(writes, &path, &anchors));
            found.deny.or(found.ask).map(|finding| below_finding(finding, path))
        })
        .collect();
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
        .chain(below)
        .collect()
}

/// A rule is about something below a directory that is read or taken as a whole. Whether it is there nobody here knows,
/// so a person has to say so; where nobody can be asked, it is a no.
pub(super) fn below_finding(rule: Finding, dir: String) -> Finding {
    let reason = format!("it takes all of {dir}, and a rule is about something below it");
    Finding { verdict: Verdict::Ask, reason, resolved: Some(dir), ..rule }
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
