//! What others notice that could be learned: a correction, a miss that was resolved, a tool that appeared.
//!
//! These are guesses. None of them teaches anything by itself: each becomes a proposal that the gate reviews, and what
//! a machine guessed waits for a person.

use std::sync::Arc;

use interlock_domain::command::bind;
use interlock_domain::command::definition::Definition;
use interlock_domain::command::number;
use interlock_domain::learn::describe::Described;
use interlock_domain::learn::gate::Proposal;
use interlock_domain::learn::retold::{Repair, Subject};
use interlock_domain::risk::Risk;
use serde_json::json;

use super::Source;

/// Longest text that is proposed, in characters: a sentence, and not a story.
const TEXT_LEN_MAX: usize = 24;

/// A sentence that came to nothing, or to the wrong thing, and the command that its speaker meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Noticed {
    /// What was heard.
    pub heard: String,
    /// What was meant.
    pub command: String,
    /// How that is known: a correction or a miss.
    pub source: Source,
    /// Who spoke.
    pub by: String,
}

impl Noticed {
    /// What could be learned of it, the likelier first: a mishearing; and, where the speaker said so, a word of the
    /// floor. A miss that was resolved is only taken for a mishearing: two sentences in a row need have nothing else
    /// in common.
    pub(super) fn proposals(&self) -> Vec<Proposal> {
        let text = without_numbers(&self.heard);
        if text.is_empty() || text.chars().count() > TEXT_LEN_MAX {
            return Vec::new();
        }
        let heard = Proposal::Correction { heard: text.clone(), command: self.command.clone() };
        match self.source {
            Source::Correction => vec![heard, Proposal::Slang { phrase: text, command: self.command.clone() }],
            Source::Miss => vec![heard],
            Source::Operator | Source::Mcp => Vec::new(),
        }
    }
}

/// What was heard without punctuation and without its numbers: 启动二号水蹦 teaches nothing about number two.
fn without_numbers(heard: &str) -> String {
    let chars: Vec<char> = heard.chars().filter(|ch| ch.is_alphanumeric()).take(TEXT_LEN_MAX * 2).collect();
    let amounts = number::amounts(&chars);
    let inside = |at: usize| amounts.iter().any(|one| (usize::from(one.start)..usize::from(one.end)).contains(&at));
    chars.iter().enumerate().filter(|(at, _)| !inside(*at)).map(|(_, ch)| ch).collect()
}

/// A tool of an MCP server.
#[derive(Debug, Clone, PartialEq)]
pub struct Appeared {
    /// The server's name.
    pub server: String,
    /// The tool's name, as the surface has it.
    pub tool: String,
    /// What the server calls it for people.
    pub title: String,
    /// The server says that it changes nothing. Nobody has checked that.
    pub read_only: bool,
    /// It can be called with nothing: what needs arguments cannot be spoken without slots.
    pub without_arguments: bool,
    /// What it says of itself.
    pub described: Described,
}

impl Appeared {
    /// A better description, where its own is not what its schema says and words can mend it.
    pub(super) fn repair(&self) -> Option<Proposal> {
        Some(Proposal::Repair(Box::new(Repair::of(Subject::Tool(self.described.clone()))?)))
    }

    /// A command for it: only where its title can be spoken, and never as harmless as the server claims.
    pub(super) fn proposal(&self) -> Option<Proposal> {
        let text = self.title.trim();
        let spoken = !text.is_empty() && text.chars().all(|ch| ('\u{4e00}'..='\u{9fff}').contains(&ch));
        if !spoken || !self.without_arguments || text.chars().count() > TEXT_LEN_MAX {
            return None;
        }
        let bind = bind::parse(&json!({ "tool": self.tool, "input": {} })).ok()?;
        Some(Proposal::New(Arc::new(Definition {
            id: format!("mcp_{}", self.tool),
            text: text.to_owned(),
            aliases: Vec::new(),
            patterns: Vec::new(),
            fallback: Vec::new(),
            slots: Vec::new(),
            category: self.server.clone(),
            risk: if self.read_only { Risk::Operate } else { Risk::Dangerous },
            protective: false,
            bind,
        })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(heard: &str, source: Source, expected: &[&str]) {
        let noticed =
            Noticed { heard: heard.to_owned(), command: "pump_start".to_owned(), source, by: "li".to_owned() };
        let found: Vec<String> = noticed
            .proposals()
            .iter()
            .map(|proposal| {
                let (channel, text, _) = crate::record::learned::parts(proposal);
                format!("{channel} {text}")
            })
            .collect();
        assert_eq!(found, expected, "{heard}");
    }

    #[test]
    fn a_number_is_not_part_of_what_was_misheard() {
        check("启动二号水蹦。", Source::Correction, &["A 启动水蹦", "B 启动水蹦"]);
        check("启动2号水蹦", Source::Miss, &["A 启动水蹦"]);
        check("二号", Source::Miss, &[]);
        check(&"长".repeat(25), Source::Miss, &[]);
        check("启动水蹦", Source::Mcp, &[]);
    }

    #[test]
    fn a_tool_is_proposed_when_it_can_be_spoken_and_is_never_taken_for_harmless() {
        let tool = |title: &str, read_only, without_arguments| Appeared {
            server: "mes".to_owned(),
            tool: "mes_report".to_owned(),
            title: title.to_owned(),
            read_only,
            without_arguments,
            described: Described {
                name: "mes_report".to_owned(),
                description: "Prints the report of an order. The parameter `pages` is an integer.".to_owned(),
                schema: json!({"type": "object", "properties": {"order": {"type": "string"}}}),
                read_only: None,
                destructive: None,
                seen: Vec::new(),
            },
        };
        let repair = tool("", true, true).repair();
        assert!(matches!(&repair, Some(Proposal::Repair(one)) if !one.text.contains("pages")), "{repair:?}");
        let risk = |appeared: Appeared| match appeared.proposal() {
            Some(Proposal::New(new)) => Some((new.id.clone(), new.risk)),
            Some(Proposal::Correction { .. } | Proposal::Slang { .. } | Proposal::Repair(_)) | None => None,
        };
        assert_eq!(risk(tool("查询工单", true, true)), Some(("mcp_mes_report".to_owned(), Risk::Operate)));
        assert_eq!(risk(tool("下发工单", false, true)), Some(("mcp_mes_report".to_owned(), Risk::Dangerous)));
        for other in [tool("Report", true, true), tool("查询工单", true, false), tool("", true, true)] {
            assert_eq!(risk(other), None);
        }
    }
}
