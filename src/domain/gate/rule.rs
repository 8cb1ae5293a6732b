//! The rules that people write: `Bash(git status:*)`, `Edit(docs/**)`, `Device(risk:dangerous)`.
//!
//! The grammar is the one that users of coding agents know. A rule is read once and compiled; one that cannot be read
//! refuses the file that it stands in, because a deny that is skipped is a hole. Deny and ask match generously (they
//! fold case, and look at a path as written and as resolved), allow matches exactly.

use thiserror::Error;

use crate::risk::Risk;
use crate::surface::shell::Command;
use crate::surface::tool::{Kind, Tool};

use super::address::{self, Url};
use super::pattern::{Anchors, PathPattern, ShellPattern, Spelled, TextPattern};

/// The longest rule; a person writes shorter ones, and a longer one only costs.
const RULE_CHARS_MAX: usize = 1000;

/// Who stands behind a rule, from weak to strong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Authority {
    /// Kept from an earlier "always".
    Persistent,
    /// The configuration file.
    Config,
    /// This session.
    Session,
    /// The command line.
    Cli,
    /// The fleet's owner.
    Managed,
}

impl Authority {
    /// Reads the word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Authority> {
        match word {
            "persistent" => Some(Authority::Persistent),
            "config" => Some(Authority::Config),
            "session" => Some(Authority::Session),
            "cli" => Some(Authority::Cli),
            "managed" => Some(Authority::Managed),
            _ => None,
        }
    }
}

/// What a rule says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// Goes on.
    Allow,
    /// A person has to say so.
    Ask,
    /// Does not go on.
    Deny,
}

/// A rule that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("rule {rule:?}: {fact}")]
pub struct BadRule {
    /// As it was written, cut to what a message needs.
    pub rule: String,
    /// What is wrong, and what would be right.
    pub fact: String,
}

/// One rule.
#[derive(Debug, Clone)]
pub struct Rule {
    text: String,
    verb: Verb,
    authority: Authority,
    matcher: Matcher,
    warning: Option<String>,
}

/// What a rule is about.
#[derive(Debug, Clone)]
pub(crate) enum Matcher {
    /// Every tool.
    Everything,
    /// Shell commands; without a pattern all of them.
    Bash(Option<TextPattern>),
    /// Reading; without a pattern all of it.
    Read(Option<PathPattern>),
    /// Writing; without a pattern all of it.
    Edit(Option<PathPattern>),
    /// Fetching; without a pattern all of it.
    Fetch(Option<FetchPattern>),
    /// Devices.
    Device(DevicePattern),
    /// Tools of MCP servers, by a name as rules write it.
    Mcp {
        /// Without a `__*` at the end.
        name: String,
        /// As models see it.
        flat: String,
    },
    /// One tool of one MCP server, by its raw pair: what a grant says.
    McpPair {
        /// The server.
        server: String,
        /// The tool.
        tool: String,
    },
    /// A tool of the daemon, and its verb.
    Own {
        /// The tool.
        tool: String,
        /// Its verb; without a pattern all of them.
        verb: Option<TextPattern>,
    },
}

/// What a `WebFetch` rule is about.
#[derive(Debug, Clone)]
pub(crate) enum FetchPattern {
    /// A host, or `*.` and what its name ends with.
    Domain(String),
    /// The address as text.
    Address(TextPattern),
}

/// What a `Device` rule is about; every selector that is given must fit.
#[derive(Debug, Clone, Default)]
pub(crate) struct DevicePattern {
    device: Option<TextPattern>,
    action: Option<TextPattern>,
    risk: Option<Risk>,
    zone: Option<TextPattern>,
}

impl DevicePattern {
    fn is_all(&self) -> bool {
        self.device.is_none() && self.action.is_none() && self.risk.is_none() && self.zone.is_none()
    }
}

impl Rule {
    /// Reads a rule. `anchor` is the directory of the file that it stands in, for paths that begin with `/`; without
    /// it they begin at the working directory.
    ///
    /// # Errors
    /// When the text is no rule.
    pub fn parse(verb: Verb, text: &str, authority: Authority, anchor: Option<&str>) -> Result<Rule, BadRule> {
        let bad = |fact: String| BadRule { rule: text.chars().take(100).collect(), fact };
        if text.chars().count() > RULE_CHARS_MAX {
            return Err(bad(format!("it has more than {RULE_CHARS_MAX} characters")));
        }
        let trimmed = text.trim();
        let (family, spec) = match trimmed.split_once('(') {
            None => (trimmed, None),
            Some((family, rest)) => match rest.strip_suffix(')') {
                Some(spec) => (family.trim_end(), Some(spec)),
                None => {
                    return Err(bad("it opens a bracket and does not end with `)`; write Tool or Tool(spec)".into()));
                }
            },
        };
        let name = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.' | '*');
        if family.is_empty() || !family.chars().all(name) {
            return Err(bad("it does not begin with the name of a tool; write Tool or Tool(spec)".into()));
        }
        let spec = match spec.map(str::trim) {
            Some("") => return Err(bad("there is nothing between its brackets; write Tool for all of it".into())),
            Some("*") | None => None,
            Some(spec) => Some(spec),
        };
        let mut warning = None;
        let path = |spec: &str| PathPattern::parse(spec, anchor).map_err(&bad);
        let matcher = match family {
            "*" if spec.is_none() => Matcher::Everything,
            "Bash" | "shell" => Matcher::Bash(spec.map(TextPattern::command)),
            "Read" | "read_file" | "Glob" | "Grep" | "LS" => Matcher::Read(spec.map(path).transpose()?),
            "Edit" | "write_file" | "MultiEdit" | "NotebookEdit" => Matcher::Edit(spec.map(path).transpose()?),
            "Write" => {
                warning = Some(format!("{trimmed} is read as a rule for Edit, which covers every write"));
                Matcher::Edit(spec.map(path).transpose()?)
            }
            "WebFetch" | "http" => Matcher::Fetch(spec.map(fetch)),
            "Device" | "device" => Matcher::Device(spec.map_or(Ok(DevicePattern::default()), device).map_err(bad)?),
            mcp if mcp.starts_with("mcp__") => {
                if spec.is_some() {
                    return Err(bad("a rule for an MCP tool has no brackets; write mcp__server__tool".into()));
                }
                let name = mcp.strip_suffix("__*").unwrap_or(mcp);
                match name.get("mcp__".len()..) {
                    None | Some("") => {
                        return Err(bad("it names no MCP server; write mcp__server or mcp__server__tool".into()));
                    }
                    Some(named) if named.contains('*') => {
                        return Err(bad("a `*` in an MCP name stands for all tools: mcp__server__*".into()));
                    }
                    Some(_) => {
                        Matcher::Mcp { name: name.to_owned(), flat: name.bytes().map(flat).map(char::from).collect() }
                    }
                }
            }
            other if other.contains('*') => {
                return Err(bad("a `*` in the name of a tool is not known; write * alone for every tool".into()));
            }
            tool => Matcher::Own { tool: tool.to_owned(), verb: spec.map(TextPattern::plain) },
        };
        Ok(Rule { text: trimmed.to_owned(), verb, authority, matcher, warning })
    }

    /// A grant for one tool of one MCP server, by its raw pair.
    #[must_use]
    pub fn grant(server: &str, tool: &str, authority: Authority) -> Rule {
        Rule {
            text: format!("mcp__{server}__{tool}"),
            verb: Verb::Allow,
            authority,
            matcher: Matcher::McpPair { server: server.to_owned(), tool: tool.to_owned() },
            warning: None,
        }
    }

    /// As it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What it says.
    #[must_use]
    pub fn verb(&self) -> Verb {
        self.verb
    }

    /// Who stands behind it.
    #[must_use]
    pub fn authority(&self) -> Authority {
        self.authority
    }

    /// Somebody allowed it while a run went on, or once for always: it holds for the run that they said it to.
    #[must_use]
    pub fn is_grant(&self) -> bool {
        self.verb == Verb::Allow
            && match self.authority {
                Authority::Session | Authority::Persistent => true,
                Authority::Config | Authority::Cli | Authority::Managed => false,
            }
    }

    /// It denies every call of this tool: whoever lists tools leaves it out, and a call of it is refused all the same.
    #[must_use]
    pub fn hides(&self, tool: &Tool) -> bool {
        let whole = match (&self.matcher, tool.kind()) {
            (Matcher::Everything, _)
            | (Matcher::Bash(None), Kind::Shell)
            | (Matcher::Read(None), Kind::ReadFile)
            | (Matcher::Edit(None), Kind::WriteFile)
            | (Matcher::Fetch(None), Kind::Http) => true,
            (Matcher::Device(pattern), Kind::Device(_)) => pattern.is_all(),
            (Matcher::Own { tool: name, verb: None }, Kind::Declared(_) | Kind::Monitor(_)) => {
                name == tool.name().as_str()
            }
            (Matcher::Mcp { .. } | Matcher::McpPair { .. }, Kind::Declared(declared)) => {
                declared.mcp.as_ref().is_some_and(|(server, tool)| self.covers_mcp(server, tool))
            }
            (
                Matcher::Bash(_)
                | Matcher::Read(_)
                | Matcher::Edit(_)
                | Matcher::Fetch(_)
                | Matcher::Device(_)
                | Matcher::Own { .. }
                | Matcher::Mcp { .. }
                | Matcher::McpPair { .. },
                _,
            ) => false,
        };
        self.verb == Verb::Deny && whole
    }

    /// Something that its writer should know.
    #[must_use]
    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    pub(crate) fn matcher(&self) -> &Matcher {
        &self.matcher
    }

    /// Deny and ask match generously.
    fn generous(&self) -> bool {
        match self.verb {
            Verb::Allow => false,
            Verb::Ask | Verb::Deny => true,
        }
    }

    fn is_everything(&self) -> bool {
        matches!(self.matcher, Matcher::Everything)
    }

    fn fits(&self, pattern: &TextPattern, text: &str) -> bool {
        if self.generous() { pattern.matches_folded(text) } else { pattern.matches(text) }
    }

    /// The rule is about reading (or writing) this path: its canonical form, or, for a generous rule, its form as
    /// written. A deny for reading stops edits too: who may not see a file cannot change it with care.
    pub(crate) fn covers_path(&self, write: bool, path: &Seen<'_>, anchors: &Anchors<'_>) -> bool {
        let pattern = match (&self.matcher, write) {
            (Matcher::Read(pattern), false) | (Matcher::Edit(pattern), true) => pattern,
            (Matcher::Read(pattern), true) if self.verb == Verb::Deny => pattern,
            _ => return self.is_everything(),
        };
        let Some(pattern) = pattern else { return true };
        pattern.matches(&path.canonical, anchors, self.generous())
            || (self.generous() && path.written.as_ref().is_some_and(|path| pattern.matches(path, anchors, true)))
    }

    /// The rule is about this command.
    pub(crate) fn covers_command(&self, command: &Line) -> bool {
        let Matcher::Bash(pattern) = &self.matcher else { return self.is_everything() };
        pattern.as_ref().is_none_or(|pattern| {
            pattern.matches_spelled(&command.quoted, self.generous())
                || (self.generous()
                    && command.joined.as_ref().is_some_and(|joined| pattern.matches_spelled(joined, true)))
        })
    }

    /// The rule is for shell commands and holds for more than one text.
    pub(crate) fn has_wildcard(&self) -> bool {
        matches!(&self.matcher, Matcher::Bash(Some(pattern)) if pattern.varies())
    }

    /// The rule says this text, at the end of a word, before anything in it varies.
    pub(crate) fn fixes(&self, head: &str) -> bool {
        matches!(&self.matcher, Matcher::Bash(Some(pattern)) if pattern.fixes(head))
    }

    /// The rule may be about a path below this directory, which somebody reads (or writes) with all that is in it. A
    /// bare name may lie in any directory: that counts for reading only, or every removal would be asked about.
    pub(crate) fn may_lie_below(&self, write: bool, dir: &Spelled<'_>, anchors: &Anchors<'_>) -> bool {
        let pattern = match (&self.matcher, write) {
            (Matcher::Read(pattern), false) | (Matcher::Edit(pattern), true) => pattern,
            (Matcher::Read(pattern), true) if self.verb == Verb::Deny => pattern,
            _ => return false,
        };
        self.verb != Verb::Allow && pattern.as_ref().is_some_and(|path| path.may_lie_below(dir, anchors, !write))
    }

    /// The rule may be about a path that this shell pattern stands for.
    pub(crate) fn may_be_meant_by(&self, pattern: &ShellPattern, anchors: &Anchors<'_>) -> bool {
        let path = match &self.matcher {
            Matcher::Read(path) | Matcher::Edit(path) => path.as_ref(),
            Matcher::Everything
            | Matcher::Bash(_)
            | Matcher::Fetch(_)
            | Matcher::Device(_)
            | Matcher::Mcp { .. }
            | Matcher::McpPair { .. }
            | Matcher::Own { .. } => None,
        };
        path.is_some_and(|path| path.may_be_meant_by(pattern, anchors))
    }

    /// The rule is about every command.
    pub(crate) fn covers_all_commands(&self) -> bool {
        matches!(self.matcher, Matcher::Everything | Matcher::Bash(None))
    }

    /// The rule is about fetching from this address.
    pub(crate) fn covers_address(&self, address: &str, url: Option<&Url>) -> bool {
        let Matcher::Fetch(pattern) = &self.matcher else { return self.is_everything() };
        match pattern {
            None => true,
            Some(FetchPattern::Address(pattern)) => {
                self.fits(pattern, address) && (self.generous() || url.is_none_or(|url| !url.is_odd))
            }
            Some(FetchPattern::Domain(domain)) => {
                let Some(url) = url else { return false };
                let host = url.host.as_str();
                let below = |name: &str| host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.'));
                match domain.strip_prefix("*.") {
                    Some(name) if self.generous() => below(name),
                    None if self.generous() => host == domain || below(domain),
                    // `http://good.example@evil.example/` shows one host and goes to another.
                    Some(_) | None if url.has_userinfo || url.is_odd => false,
                    Some(name) => below(name),
                    None => host == domain,
                }
            }
        }
    }

    /// The rule is about this action of this device.
    pub(crate) fn covers_device(&self, device: &str, action: &str, zone: Option<&str>, risk: Risk) -> bool {
        let Matcher::Device(pattern) = &self.matcher else { return self.is_everything() };
        let fits =
            |wanted: &Option<TextPattern>, text: &str| wanted.as_ref().is_none_or(|pattern| self.fits(pattern, text));
        fits(&pattern.device, device)
            && fits(&pattern.action, action)
            && pattern.risk.is_none_or(|wanted| wanted == risk)
            && (pattern.zone.is_none() || zone.is_some_and(|zone| fits(&pattern.zone, zone)))
    }

    /// The rule is about this tool of this MCP server. An allow goes by the raw pair; a flattened name, which two
    /// tools may share, only ever widens a deny or an ask.
    pub(crate) fn covers_mcp(&self, server: &str, tool: &str) -> bool {
        if let Matcher::McpPair { server: one, tool: two } = &self.matcher {
            return one == server && two == tool;
        }
        let Matcher::Mcp { name, flat: flattened } = &self.matcher else { return self.is_everything() };
        let whole = [b"mcp__", server.as_bytes(), b"__", tool.as_bytes()];
        let bytes = |parts: usize| whole[..parts].iter().copied().flatten().copied();
        if self.generous() {
            flattened.bytes().eq(bytes(4).map(flat)) || flattened.bytes().eq(bytes(2).map(flat))
        } else {
            // With a `__` inside, the text does not tell where the server ends.
            let told = !server.contains("__") && !tool.contains("__");
            told && (name.bytes().eq(bytes(4)) || name.bytes().eq(bytes(2)))
        }
    }

    /// The rule is about every tool of this MCP server.
    fn covers_server(&self, server: &str) -> bool {
        let Matcher::Mcp { flat: flattened, .. } = &self.matcher else { return self.is_everything() };
        flattened.bytes().eq(b"mcp__".iter().chain(server.as_bytes()).copied().map(flat))
    }

    /// The rule is about this tool of the daemon.
    pub(crate) fn covers_own(&self, name: &str, verb: Option<&str>) -> bool {
        let Matcher::Own { tool, verb: wanted } = &self.matcher else { return self.is_everything() };
        let fits = |pattern: &TextPattern| verb.is_some_and(|verb| self.fits(pattern, verb));
        tool == name && wanted.as_ref().is_none_or(fits)
    }
}

/// In the name that models see, every byte that is no letter or digit is `_`, and case does not count.
fn flat(byte: u8) -> u8 {
    if byte.is_ascii_alphanumeric() { byte.to_ascii_lowercase() } else { b'_' }
}

/// A path as rules look at it, made once for all rules.
#[derive(Debug)]
pub(crate) struct Seen<'a> {
    canonical: Spelled<'a>,
    /// As it was written, when that is another path.
    written: Option<Spelled<'static>>,
}

impl<'a> Seen<'a> {
    pub(crate) fn new(canonical: &'a str, written: Option<String>) -> Seen<'a> {
        let written = written.filter(|written| written != canonical).map(Spelled::new);
        Seen { canonical: Spelled::new(canonical), written }
    }
}

/// A command as rules look at it, made once for all rules.
#[derive(Debug)]
pub(crate) struct Line {
    quoted: Spelled<'static>,
    /// Without quotes, when that is another text.
    joined: Option<Spelled<'static>>,
}

impl Line {
    pub(crate) fn of(command: &Command) -> Line {
        let quoted = command.quoted();
        let joined = quoted.contains('\'').then(|| Spelled::new(command.joined()));
        Line { quoted: Spelled::new(quoted), joined }
    }
}

fn fetch(spec: &str) -> FetchPattern {
    match spec.strip_prefix("domain:") {
        Some(domain) => FetchPattern::Domain(match domain.trim().strip_prefix("*.") {
            Some(name) => format!("*.{}", address::host(name)),
            None => address::host(domain.trim()),
        }),
        None => FetchPattern::Address(TextPattern::plain(spec)),
    }
}

fn device(spec: &str) -> Result<DevicePattern, String> {
    let mut pattern = DevicePattern::default();
    for part in spec.split([' ', ',']).filter(|part| !part.is_empty()) {
        if let Some(risk) = part.strip_prefix("risk:") {
            let known = Risk::from_word(risk);
            pattern.risk =
                Some(known.ok_or_else(|| format!("{risk:?} is no risk; there are read, operate, dangerous"))?);
        } else if let Some(zone) = part.strip_prefix("zone:") {
            pattern.zone = Some(TextPattern::plain(zone));
        } else if pattern.device.is_some() {
            return Err("it names two devices; write one rule for each".to_owned());
        } else {
            let (device, action) = part.split_once(':').unwrap_or((part, "*"));
            pattern.device = Some(TextPattern::plain(device));
            pattern.action = Some(TextPattern::plain(action));
        }
    }
    Ok(pattern)
}

/// All rules of a policy; later ones are newer.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    rules: Vec<Rule>,
    /// Where those stand that can be about a shell command.
    about_commands: Vec<usize>,
    /// Where those stand that ask about paths, or forbid them.
    against_paths: Vec<usize>,
}

impl Rules {
    /// In the order of their age, oldest first.
    #[must_use]
    pub fn new(rules: Vec<Rule>) -> Rules {
        let those = |wanted: fn(&Rule) -> bool| {
            rules.iter().enumerate().filter(|(_, rule)| wanted(rule)).map(|(at, _)| at).collect()
        };
        let about_commands = those(|rule| matches!(rule.matcher, Matcher::Everything | Matcher::Bash(_)));
        let against_paths =
            those(|rule| rule.verb != Verb::Allow && matches!(rule.matcher, Matcher::Read(_) | Matcher::Edit(_)));
        Rules { rules, about_commands, against_paths }
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[Rule] {
        &self.rules
    }

    /// Those that can be about a shell command.
    pub(crate) fn about_commands(&self) -> impl Iterator<Item = &Rule> {
        self.about_commands.iter().filter_map(|at| self.rules.get(*at))
    }

    /// Those that ask about paths, or forbid them.
    pub(crate) fn against_paths(&self) -> impl Iterator<Item = &Rule> {
        self.against_paths.iter().filter_map(|at| self.rules.get(*at))
    }

    /// A deny is about this tool of this MCP server, or, with no tool, about all that the server has: such tools are in
    /// no list either.
    #[must_use]
    pub fn hides_mcp(&self, server: &str, tool: Option<&str>) -> bool {
        let denies = self.rules.iter().filter(|rule| rule.verb == Verb::Deny);
        denies.into_iter().any(|rule| match tool {
            Some(tool) => rule.covers_mcp(server, tool),
            None => rule.covers_server(server),
        })
    }

    /// Without the newest rule of this text and verb, if `by` may remove it: a rule is removed by its own authority or
    /// a higher one.
    #[must_use]
    pub fn without(&self, verb: Verb, text: &str, by: Authority) -> Option<Rules> {
        let at = self.rules.iter().rposition(|rule| rule.verb == verb && rule.text == text && rule.authority <= by)?;
        let mut rules = self.rules.clone();
        rules.remove(at);
        Some(Rules::new(rules))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ToolName;
    use crate::sample;
    use crate::surface::device::DeviceTable;
    use crate::surface::tool::{Declared, Definition};

    #[test]
    fn a_deny_of_a_whole_tool_hides_it_and_a_narrower_one_does_not() {
        let tool = |name: &str, kind: Kind| {
            let name = ToolName::new(name).unwrap();
            Tool::new(Definition { name, kind, ..sample::tool().definition().clone() }).unwrap()
        };
        let of_mail = |server: &str| {
            let Kind::Declared(declared) = sample::tool().kind().clone() else { panic!("declared") };
            let mcp = Some((server.to_owned(), "send".to_owned()));
            tool(&format!("mcp__{server}__send"), Kind::Declared(Declared { mcp, ..declared }))
        };
        let tools = [
            tool("shell", Kind::Shell),
            tool("read_file", Kind::ReadFile),
            tool("write_file", Kind::WriteFile),
            tool("http", Kind::Http),
            tool("device", Kind::Device(std::sync::Arc::new(DeviceTable::default()))),
            tool("task", sample::tool().kind().clone()),
            of_mail("mail"),
            of_mail("mailer"),
        ];
        let check = |verb: Verb, text: &str, hidden: &[&str]| {
            let rule = Rule::parse(verb, text, Authority::Config, None).unwrap();
            let found: Vec<&str> =
                tools.iter().filter(|tool| rule.hides(tool)).map(|tool| tool.name().as_str()).collect();
            assert_eq!(found, hidden, "{text}");
        };
        let deny = Verb::Deny;
        check(deny, "Bash", &["shell"]);
        check(deny, "Bash(*)", &["shell"]);
        check(deny, "Bash(rm:*)", &[]);
        check(deny, "Read", &["read_file"]);
        check(deny, "Edit", &["write_file"]);
        check(deny, "WebFetch", &["http"]);
        check(deny, "Device", &["device"]);
        check(deny, "Device(pump-1:*)", &[]);
        check(deny, "task", &["task"]);
        check(deny, "task(cancel)", &[]);
        check(deny, "mcp__mail", &["mcp__mail__send"]);
        check(deny, "mcp__mailer__send", &["mcp__mailer__send"]);
        check(Verb::Ask, "Bash", &[]);
        check(Verb::Allow, "mcp__mail", &[]);
    }

    #[test]
    fn a_rule_for_mcp_names_a_server() {
        for text in ["mcp__*", "mcp__", "mcp____*", "mcp__*__x", "mcp__a*"] {
            let read = Rule::parse(Verb::Allow, text, Authority::Config, None);
            assert!(read.is_err(), "{text}");
        }
    }
}
