//! A shell command at the gate: taken apart, each part judged by itself, the strictest finding wins.
//!
//! An allow needs every part, a deny or an ask needs one. Files that are written by a redirection, or by an option like
//! `--output`, are judged as edits whatever rule matched the command. What is not understood matches no allow rule.

use std::collections::BTreeSet;

use crate::request::paths::{PathFacts, base};
use crate::request::why::Step;
use crate::surface::nature::{Deed, Nature};
use crate::surface::shell::{Command, Script, Understood, Word, reads};

use super::danger::{dangerous, gives_secrets, is_fork_bomb, patched, sets_what_runs_later};
use super::decide::{Case, Finding, Verdict, classified, judge as judge_deed};
use super::matches::{Matched, choose_of};
use super::meant::{candidates, find, in_directory, pieces};
use super::pattern::{Anchors, ShellPattern, Spelled};
use super::peel::{View, Views, core, fed_texts, is_harmlessly_set, views};
use super::policy::{Mode, Policy};
use super::protected::{is_sink, protected, secret, secret_below};
use super::reach;
use super::removal::critical_removal;
use super::rule::{Line, Rule, Seen, Verb};
use super::runs::is_bounded;
use super::shift;
use super::told::told;
use super::tree;
use super::written::{is_writing_code, output_options, takes_all_below, targets};

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
pub(super) fn covers(rule: &Rule, script: &Script) -> bool {
    let understood = script.understood() == Understood::Whole;
    let fed = Fed::of(script);
    let mut opened = script.commands().iter().map(|command| Opened::of(command, &fed));
    match rule.verb() {
        Verb::Allow => !script.commands().is_empty() && opened.all(|opened| opened.covered_by(rule, understood)),
        Verb::Ask | Verb::Deny => opened.any(|opened| opened.covered_by(rule, understood)),
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
    let opened: Vec<Opened<'_>> = script.commands().iter().map(|command| Opened::of(command, &fed)).collect();
    let anchors = Anchors::new(case.facts);
    let mut findings = Vec::new();
    for opened in &opened {
        let part = Part::of(opened, case.facts);
        findings.push(part_finding(policy, case, script, opened, proven));
        findings.extend(immune(policy, &part, &fed));
        findings.extend(written_files(policy, case, case, opened));
        findings.extend(path_rules(policy, &anchors, &part));
    }
    // What a command means once the line has set the variables in it, has changed the directory, or has laid a link.
    let told = told(script, &fed.texts);
    let told: Vec<(usize, Opened<'_>)> = told.iter().map(|(at, command)| (*at, Opened::of(command, &fed))).collect();
    let further = |opened: &Opened<'_>, facts: &PathFacts| {
        let part = Part::of(opened, facts);
        let mut findings = immune(policy, &part, &fed);
        findings.extend(path_rules(policy, &anchors, &part));
        let written = written_files(policy, case, Case { facts, ..case }, opened);
        findings.extend(written.into_iter().filter(|found| found.verdict != Verdict::Allow));
        findings
    };
    let mut lasting: Vec<&Opened<'_>> = opened.iter().collect();
    for (at, told) in &told {
        findings.extend(forbidden(policy, told));
        findings.extend(further(told, case.facts));
        lasting[*at] = told;
    }
    for (at, facts) in shift::after(lasting.iter().map(|opened| opened.command), case.facts) {
        findings.extend(further(lasting[at], &facts));
    }
    if policy.mode == Mode::BypassPermissions && is_fork_bomb(script) {
        findings.push(Finding::new(Verdict::Ask, Step::Mode, "it is a dangerous command: it takes the machine down"));
    }
    findings.extend(moves(policy, &opened));
    findings.extend(not_understood(policy, script));
    if opened.is_empty() {
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
struct Opened<'a> {
    command: &'a Command,
    views: Views,
    core: Command,
    lines: Vec<Line>,
    core_line: Line,
    /// The command with its assignments, when it has any.
    set_line: Option<Line>,
    /// Its words are printed, and nothing else comes of them.
    only_printed: bool,
    /// Names of files that it is fed.
    fed_names: Vec<Word>,
}

/// What it touches where it runs: a command may run elsewhere than it was written.
struct Part<'a> {
    opened: &'a Opened<'a>,
    facts: &'a PathFacts,
    /// The paths that its arguments may stand for; none for a command that prints its words.
    paths: Vec<String>,
    /// Those of the commands that stand inside of a text of its.
    inside: Vec<String>,
    /// What each of its views touches.
    touched: Vec<Touched>,
}

/// The paths that one view reads and writes by its arguments.
struct Touched {
    written: Vec<String>,
    /// Files that it is connected to, and writes.
    connected: Vec<String>,
    /// Directories that it reads with all that is below.
    roots: Vec<String>,
    /// What it writes goes with all that is below.
    deep: bool,
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

/// Programs that read names of files from their standard input.
const TAKES_NAMES: &[&str] = &["cpio", "parallel", "pax", "xargs"];
/// How many such names are looked at.
const FED_NAMES_MAX: usize = 128;

impl<'a> Opened<'a> {
    fn of(command: &'a Command, fed: &Fed) -> Opened<'a> {
        let (views, core) = (views(command, &fed.texts), core(command));
        let lines = views.iter().map(|view| Line::of(&view.command)).collect();
        let named = |view: &View| view.command.name().is_some_and(|name| TAKES_NAMES.contains(&base(name)));
        let words = fed.texts.iter().flat_map(|text| text.split_whitespace());
        let takes = command.fed && views.iter().any(named);
        Opened {
            command,
            lines,
            fed_names: words.filter(|_| takes).take(FED_NAMES_MAX).map(Word::literal).collect(),
            core_line: Line::of(&core),
            set_line: (!command.assignments.is_empty()).then(|| with_assignments(command)),
            only_printed: reads::prints_its_words(command) && !fed.prints_arguments,
            views,
            core,
        }
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
                let exact = !rule.has_wildcard();
                // What is cheap comes first: nearly no rule is about this command.
                (rule.covers_command(&self.core_line)
                    && is_harmlessly_set(self.command)
                    && (exact || is_bounded(&self.core, |head| rule.fixes(head))))
                    || (exact && self.set_line.as_ref().is_some_and(|line| rule.covers_command(line)))
            }
        }
    }
}

impl<'a> Part<'a> {
    fn of(opened: &'a Opened<'a>, facts: &'a PathFacts) -> Part<'a> {
        let mut paths = Vec::with_capacity(opened.command.words.len());
        if !opened.only_printed {
            opened.command.words.iter().skip(1).for_each(|word| find(facts, word, &mut paths));
        }
        opened.fed_names.iter().for_each(|word| find(facts, word, &mut paths));
        let mut inside = Vec::new();
        for View { command, nested } in opened.views.iter() {
            // What an interpreter's code has between quotes may be a path.
            let name = command.name().map(base);
            let code = name.map_or_else(Vec::new, |name| reach::quoted_texts(name, &command.words[1..]));
            paths.extend(code.iter().filter_map(|text| facts.resolve(text)));
            // What a wrapper runs has words of the command itself; only a script inside has words of its own.
            if *nested && !reads::prints_its_words(command) {
                command.words.iter().skip(1).for_each(|word| find(facts, word, &mut inside));
            }
        }
        let touched = opened.views.iter().map(|view| Touched::of(view, facts)).collect();
        Part { opened, facts, paths, inside, touched }
    }
}

impl Touched {
    fn of(view: &View, facts: &PathFacts) -> Touched {
        let command = &view.command;
        let written = targets(command).into_iter().chain(output_options(command));
        let connected = redirected(view).filter(|(writes, _)| *writes);
        Touched {
            written: written.flat_map(|word| candidates(facts, &word)).collect(),
            connected: connected.flat_map(|(_, word)| candidates(facts, word)).collect(),
            roots: tree_roots(facts, command),
            deep: takes_all_below(command),
        }
    }
}

/// The assignments as words in front: what an exact rule for them looks like.
fn with_assignments(command: &Command) -> Line {
    let set = command.assignments.iter().map(|one| Word::literal(&format!("{}={}", one.name, one.value.text)));
    Line::of(&Command { words: set.chain(command.words.iter().cloned()).collect(), ..Command::default() })
}

/// Rules, then scope and mode, for one command.
fn part_finding(policy: &Policy, case: Case<'_>, script: &Script, part: &Opened<'_>, proven: bool) -> Finding {
    let understood = script.understood() == Understood::Whole;
    let about = policy.rules.about_commands().filter(|rule| part.covered_by(rule, understood));
    let Matched { deny, ask, allow } = choose_of(policy.order, about);
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

/// What forbids a command or asks about it, once the words in it are what the line made of them.
fn forbidden(policy: &Policy, told: &Opened<'_>) -> Option<Finding> {
    let about = policy.rules.about_commands().filter(|rule| rule.verb() != Verb::Allow);
    let Matched { deny, ask, .. } = choose_of(policy.order, about.filter(|rule| told.covered_by(rule, false)));
    let dangerous = || {
        let bypass = policy.mode == Mode::BypassPermissions;
        let why = told.views.iter().find_map(|view| dangerous(&view.command)).filter(|_| bypass)?;
        Some(Finding::new(Verdict::Ask, Step::Mode, format!("it is a dangerous command: {why}")))
    };
    deny.or(ask).or_else(dangerous)
}

/// A path argument of a command that reads, outside of where the run may work.
fn read_outside(case: Case<'_>, command: &Command) -> Option<String> {
    if reads::prints_its_words(command) {
        return None;
    }
    let leads_outside = |piece: &str| match case.facts.resolve(piece) {
        Some(path) => (!case.facts.in_scope(&path)).then_some(path),
        // What cannot be resolved (the home of somebody else, a circle of links) leads nobody knows where.
        None => {
            let path = piece.starts_with('~') || piece.contains('/') || !case.facts.links.is_empty();
            path.then(|| piece.to_owned())
        }
    };
    command.words.iter().skip(1).find_map(|word| pieces(&word.path()).find_map(leads_outside))
}

/// Secrets that it names, protected files that it writes, removals that take everything.
fn immune(policy: &Policy, part: &Part<'_>, fed: &Fed) -> Vec<Finding> {
    let Part { opened, facts, .. } = part;
    let ask = |reason: String, path: Option<String>| Finding::new(Verdict::Ask, Step::Immune, reason).at(path);
    let mut findings = Vec::new();
    for path in part.paths.iter().chain(&part.inside) {
        if let Some(why) = secret(path, &policy.own_secrets) {
            findings.push(ask(format!("it names {path}: {why}"), Some(path.clone())));
        }
    }
    if opened.views.cut {
        findings.push(ask("it runs more commands, or deeper wrapped ones, than are looked at".to_owned(), None));
    }
    let own = |path: &str| protected(path, &policy.own_paths);
    for (view, touched) in opened.views.iter().zip(&part.touched) {
        let command = &view.command;
        if let Some(target) = critical_removal(command, facts) {
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
        let patched: Vec<String> =
            patched.flatten().into_iter().flatten().flat_map(|word| candidates(facts, &word)).collect();
        for path in touched.written.iter().chain(&patched).chain(&touched.connected) {
            if let Some(why) = own(path) {
                findings.push(ask(format!("writing {path} is protected: {why}"), Some(path.clone())));
            }
        }
        for path in written_in_code(facts, command) {
            if let Some(why) = own(&path) {
                findings.push(ask(format!("its code names {path}, which is protected: {why}"), Some(path)));
            }
        }
        for path in &touched.roots {
            if let Some(why) = secret_below(path, facts.home.as_deref(), &policy.own_secrets) {
                findings.push(ask(format!("it reads all of {path}: {why}"), Some(path.clone())));
            }
        }
    }
    let inside = opened.views.iter().filter(|view| view.nested).flat_map(redirected);
    let own_redirects = opened.command.redirects.iter().map(|redirect| (redirect.writes, &redirect.target));
    for (_, target) in own_redirects.chain(inside).filter(|(writes, _)| !writes) {
        for path in candidates(facts, target) {
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
fn tree_roots(facts: &PathFacts, command: &Command) -> Vec<String> {
    let named = tree::roots(command).into_iter().flat_map(|word| candidates(facts, &word));
    let globbed = command.words.iter().skip(1).filter(|word| word.globs && !reads::prints_its_words(command));
    let listed = globbed.filter_map(|word| {
        let text = word.path();
        let (dir, name) = text.rsplit_once('/').unwrap_or((".", &text));
        let bare = !name.chars().any(char::is_alphanumeric) && !dir.contains(['*', '?', '[', '$']);
        let dir = bare.then(|| candidates(facts, &dir_word(word, dir)).into_iter().next()).flatten()?;
        // `~/*` leaves out what begins with a dot; a directory of keys has nothing else.
        secret_below(&dir, None, &[]).filter(|_| dir.contains("/.")).map(|_| dir)
    });
    named.chain(listed).collect()
}

fn dir_word(word: &Word, dir: &str) -> Word {
    let mut dir = word.part(dir);
    dir.globs = false;
    dir
}

/// Paths between quotes in the code of an interpreter, where the code writes something.
fn written_in_code(facts: &PathFacts, command: &Command) -> Vec<String> {
    let Some((name, rest)) = command.words.split_first() else { return Vec::new() };
    let name = base(&name.text);
    if !reach::is_interpreter(name) || !rest.iter().any(|word| is_writing_code(&word.text)) {
        return Vec::new();
    }
    let named = |text: &String| text.contains('/') || text.starts_with('.');
    reach::quoted_texts(name, rest).iter().filter(|text| named(text)).filter_map(|text| facts.resolve(text)).collect()
}

/// Redirections and `--output` options, judged as edits (and as reads), of the command and of what it has inside.
/// Words are resolved from `there`, where the command runs; rules begin where they always do.
fn written_files(policy: &Policy, case: Case<'_>, there: Case<'_>, part: &Opened<'_>) -> Vec<Finding> {
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
            let path = in_directory(there.facts, target.path().into_owned(), target.tilde);
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

/// Deny and ask rules for paths hold for the words of a command too. Rules begin where they always do, wherever the
/// command runs.
fn path_rules(policy: &Policy, anchors: &Anchors<'_>, part: &Part<'_>) -> Vec<Finding> {
    let rules = || policy.rules.against_paths();
    if rules().next().is_none() {
        return Vec::new();
    }
    let Part { opened, facts, paths, inside, touched } = part;
    let written = touched.iter().flat_map(|touched| &touched.written);
    let written: Vec<&String> = written.chain(touched.iter().flat_map(|touched| &touched.connected)).collect();
    let writes: BTreeSet<&str> = written.iter().map(|path| path.as_str()).collect();
    let mut met = BTreeSet::new();
    let all = paths.iter().chain(inside).chain(written.iter().copied());
    let named: Vec<&String> = all.filter(|path| met.insert(path.as_str())).collect();
    let mut findings = Vec::new();
    for path in named {
        let writes = writes.contains(path.as_str());
        let seen = Seen::new(path, None);
        let covers = |rule: &&Rule| {
            rule.covers_path(false, &seen, anchors) || (writes && rule.covers_path(true, &seen, anchors))
        };
        let found = choose_of(policy.order, rules().filter(covers));
        findings.extend(found.deny.or(found.ask).map(|finding| finding.at(Some(path.clone()))));
    }
    let patterns = opened.command.words.iter().skip(1).filter(|word| word.globs && !word.expands);
    for pattern in patterns.filter_map(|word| facts.written(&word.path())) {
        let meant = ShellPattern::new(pattern);
        let found = choose_of(policy.order, rules().filter(|rule| rule.may_be_meant_by(&meant, anchors)));
        findings.extend(found.deny.or(found.ask).map(|finding| finding.at(Some(meant.text.clone()))));
    }
    // What is below goes with it, and nobody here knows what is.
    let deep = touched.iter().filter(|touched| touched.deep).flat_map(|touched| &touched.written);
    let read = touched.iter().flat_map(|touched| &touched.roots);
    for (writes, path) in deep.map(|path| (true, path)).chain(read.map(|path| (false, path))) {
        let dir = Spelled::new(path.as_str());
        let found = choose_of(policy.order, rules().filter(|rule| rule.may_lie_below(writes, &dir, anchors)));
        findings.extend(found.deny.or(found.ask).map(|finding| below_finding(finding, path.clone())));
    }
    findings
}

/// A rule is about something below a directory that is read or taken as a whole. Whether it is there nobody here knows,
/// so a person has to say so; where nobody can be asked, it is a no.
pub(super) fn below_finding(rule: Finding, dir: String) -> Finding {
    let reason = format!("it takes all of {dir}, and a rule is about something below it");
    Finding { verdict: Verdict::Ask, reason, resolved: Some(dir), ..rule }
}

/// After a `cd`, nobody here knows where a relative path leads, or whose repository `git` obeys.
fn moves(policy: &Policy, parts: &[Opened<'_>]) -> Option<Finding> {
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
    let about = policy.rules.about_commands().filter(|rule| rule.covers_all_commands());
    let Matched { deny, ask, .. } = choose_of(policy.order, about);
    deny.or(ask).unwrap_or_else(|| Finding::new(Verdict::Ask, Step::Mode, "it has no command that could be judged"))
}
