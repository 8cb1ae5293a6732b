//! What a child run is left of its parent's tools: `T_child = (T_parent ∩ T_profile ∩ T_callsite) \ D_profile`
//! (mediation, "Loop and subagents").
//!
//! A narrowing is a filter that is kept with the run and applied again whenever the parent's tools change, so that a
//! tool which is registered later passes the same lists; nothing is ever merged in behind it. It can only take away.

use std::collections::BTreeSet;

use super::tool::{Kind, Tool};

/// The most names in one list. A profile that needs more describes its tools by what it denies.
pub const NAMES_MAX: usize = 256;

/// The tools that a list names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Allow {
    /// There is no list, or it says `*`: all that the parent has.
    #[default]
    All,
    /// These only: names of tools, or `mcp__server` for every tool of one MCP server. An empty list is none at all.
    Only(BTreeSet<String>),
}

impl Allow {
    /// Reads a list; a missing one is the full set, and so is one with a `*` in it.
    #[must_use]
    pub fn of(names: Option<impl IntoIterator<Item = String>>) -> Allow {
        let Some(names) = names else { return Allow::All };
        let names: BTreeSet<String> = names.into_iter().take(NAMES_MAX).collect();
        if names.contains("*") { Allow::All } else { Allow::Only(names) }
    }

    fn keeps(&self, tool: &Tool) -> bool {
        match self {
            Allow::All => true,
            Allow::Only(names) => names.iter().any(|name| exactly(name, tool)),
        }
    }
}

/// The lists of one child.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Narrowing {
    /// What the profile allows.
    pub profile: Allow,
    /// What the place that makes the child allows.
    pub call_site: Allow,
    /// What the profile takes away, whatever the lists above say.
    pub deny: BTreeSet<String>,
}

impl Narrowing {
    /// The child is left this tool of its parent's.
    #[must_use]
    pub fn keeps(&self, tool: &Tool) -> bool {
        self.profile.keeps(tool)
            && self.call_site.keeps(tool)
            && !self.deny.iter().any(|name| name == "*" || generously(name, tool))
    }

    /// This narrowing, and the names of another list besides: for a child that gets no more than these.
    #[must_use]
    pub fn only(names: impl IntoIterator<Item = String>) -> Narrowing {
        Narrowing { call_site: Allow::of(Some(names)), ..Narrowing::default() }
    }
}

/// An allow goes by the tool's own name or its server's raw one.
fn exactly(name: &str, tool: &Tool) -> bool {
    if name == tool.name().as_str() {
        return true;
    }
    let Some((server, raw)) = of_server(tool) else { return false };
    // With a `__` inside, the text does not tell where the server ends.
    let told = !server.contains("__") && !raw.contains("__");
    told && name.strip_prefix("mcp__").is_some_and(|rest| {
        rest == server || rest.strip_prefix(server).and_then(|rest| rest.strip_prefix("__")) == Some(raw)
    })
}

/// A deny also goes by the names as models see them, in which other characters are `_` and case does not count: two
/// tools that look alike are both taken away.
fn generously(name: &str, tool: &Tool) -> bool {
    let flat = |text: &str| -> String {
        text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect()
    };
    let named = flat(name);
    let by_server = of_server(tool).is_some_and(|(server, raw)| {
        named == flat(&format!("mcp__{server}")) || named == flat(&format!("mcp__{server}__{raw}"))
    });
    named == flat(tool.name().as_str()) || by_server
}

fn of_server(tool: &Tool) -> Option<(&str, &str)> {
    match tool.kind() {
        Kind::Declared(declared) => declared.mcp.as_ref().map(|(server, tool)| (server.as_str(), tool.as_str())),
        Kind::Device(_) | Kind::ReadFile | Kind::WriteFile | Kind::Shell | Kind::Http | Kind::Monitor(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::id::ToolName;
    use crate::sample;
    use crate::surface::Surface;
    use crate::surface::tool::{Declared, Definition};

    /// A tool of this name; `server/tool` is one of an MCP server.
    fn tool(name: &str) -> Arc<Tool> {
        let like = sample::tool();
        let Kind::Declared(declared) = like.kind().clone() else { panic!("declared") };
        let mcp = name.split_once('/').map(|(server, tool)| (server.to_owned(), tool.to_owned()));
        let wire = name.replace('/', "__").replace(['.', ' '], "_");
        let wire = if mcp.is_some() { format!("mcp__{wire}") } else { wire };
        let kind = Kind::Declared(Declared { mcp, ..declared });
        let name = ToolName::new(&wire).unwrap();
        Arc::new(Tool::new(Definition { name, kind, ..like.definition().clone() }).unwrap())
    }

    fn names(list: Option<&[&str]>) -> Option<Vec<String>> {
        list.map(|names| names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn a_child_has_what_all_lists_leave_it() {
        let parent = ["read", "write", "mail/send", "mailer/send", "a.b/x"];
        let surface = Surface::new(parent.map(tool));
        let check = |profile: Option<&[&str]>, site: Option<&[&str]>, deny: &[&str], want: &[&str]| {
            let narrowing = Narrowing {
                profile: Allow::of(names(profile)),
                call_site: Allow::of(names(site)),
                deny: names(Some(deny)).unwrap().into_iter().collect(),
            };
            let child = surface.narrowed(&narrowing);
            let left: Vec<&str> = child.tools().map(|tool| tool.name().as_str()).collect();
            assert_eq!(left, want, "{narrowing:?}");
            // Filtering again changes nothing, and a child never has what its parent has not.
            assert_eq!(child.narrowed(&narrowing).tools().count(), left.len());
        };
        let all = ["mcp__a_b__x", "mcp__mail__send", "mcp__mailer__send", "read", "write"];
        check(None, None, &[], &all);
        check(Some(&["*"]), Some(&["*"]), &[], &all);
        check(Some(&[]), None, &[], &[]);
        check(None, Some(&[]), &[], &[]);
        check(Some(&["read", "write"]), Some(&["write", "shell"]), &[], &["write"]);
        check(Some(&["read", "write"]), None, &["write"], &["read"]);
        check(None, None, &["*"], &[]);
        // A server's name is not the beginning of a longer one.
        check(Some(&["mcp__mail"]), None, &[], &["mcp__mail__send"]);
        check(None, None, &["mcp__mail"], &["mcp__a_b__x", "mcp__mailer__send", "read", "write"]);
        // The name as models see it widens a deny, never an allow.
        check(Some(&["mcp__a_b"]), None, &[], &[]);
        check(Some(&["mcp__a.b"]), None, &[], &["mcp__a_b__x"]);
        check(Some(&["mcp__a_b__x"]), None, &[], &["mcp__a_b__x"]);
        check(None, None, &["MCP__A_B", "READ"], &["mcp__mail__send", "mcp__mailer__send", "write"]);
    }
}
