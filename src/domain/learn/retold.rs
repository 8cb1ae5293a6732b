//! What agents are told instead: an approved repair of a tool's description or of a skill.
//!
//! A repair is an overlay. The server's definition and the skill's file stay as their makers wrote them, and a repair
//! counts only as long as they are word for word what it was made for: whoever changes them takes it out of force. What
//! an agent is told steers it, so no policy takes a repair without a person, whatever passes here.

use crate::command::instead::{Instead, Of};

use super::describe::{self, DESCRIPTION_LEN_MAX, Described};
use super::skill::{self, Skill};

/// Repairs that are in force at most: each is read with every list of tools.
pub const TOLD_MAX: usize = 200;
/// Longest skill that is repaired, in bytes; agents read no longer one.
const SKILL_LEN_MAX: usize = 64 * 1024;

/// What is described.
#[derive(Debug, Clone, PartialEq)]
pub enum Subject {
    /// A tool of an MCP server.
    Tool(Described),
    /// A skill.
    Skill(Skill),
}

/// A better text for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Repair {
    /// What is described, as it is.
    pub subject: Subject,
    /// What agents would be told instead.
    pub text: String,
}

impl Repair {
    /// The repair that can be made of what is wrong, without a person's words; none when nothing is wrong, or only a
    /// person can mend it.
    #[must_use]
    pub fn of(subject: Subject) -> Option<Repair> {
        let text = match &subject {
            Subject::Tool(tool) if !describe::faults(tool).is_empty() => describe::repaired(tool)?,
            Subject::Skill(skill) if !skill::faults(skill).is_empty() => skill::repaired(skill)?,
            Subject::Tool(_) | Subject::Skill(_) => return None,
        };
        let repair = Repair { subject, text };
        repair.judged().is_ok().then_some(repair)
    }

    /// Of what it is, and its name.
    #[must_use]
    pub fn names(&self) -> (Of, &str) {
        match &self.subject {
            Subject::Tool(tool) => (Of::Tool, &tool.name),
            Subject::Skill(skill) => (Of::Skill, &skill.folder),
        }
    }

    /// What is wrong with what it repairs, for a person.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        match &self.subject {
            Subject::Tool(tool) => describe::faults(tool).iter().map(ToString::to_string).collect(),
            Subject::Skill(skill) => skill::faults(skill).iter().map(ToString::to_string).collect(),
        }
    }

    /// What it would put in force.
    ///
    /// # Errors
    /// Why it is none, for a person.
    pub fn judged(&self) -> Result<Instead, String> {
        let (of, name) = self.names();
        if self.faults().is_empty() {
            return Err(format!("nothing is wrong with the {} {name}", of.word()));
        }
        if self.text.trim().is_empty() {
            return Err("the text is empty".to_owned());
        }
        let (instead_of, longest) = match &self.subject {
            Subject::Tool(tool) => (&tool.description, DESCRIPTION_LEN_MAX),
            Subject::Skill(skill) => (&skill.text, SKILL_LEN_MAX),
        };
        if self.text.len() > longest || instead_of.len() > longest {
            return Err(format!("the text has {} bytes; {longest} are read", self.text.len().max(instead_of.len())));
        }
        if let Some(lost) = describe::warnings(instead_of).into_iter().find(|warning| !self.text.contains(warning)) {
            return Err(format!("it leaves out a warning: {lost}"));
        }
        let left: Vec<String> = match &self.subject {
            Subject::Tool(tool) => {
                let retold = Described { description: self.text.clone(), ..tool.clone() };
                let left = describe::faults(&retold);
                left.iter().filter(|fault| !fault.is_of_the_tool()).map(ToString::to_string).collect()
            }
            Subject::Skill(skill) => {
                let retold = Skill { text: self.text.clone(), ..skill.clone() };
                skill::faults(&retold).iter().map(ToString::to_string).collect()
            }
        };
        if let Some(fault) = left.first() {
            return Err(format!("it is still wrong: {fault}"));
        }
        Ok(Instead { of, name: name.to_owned(), instead_of: instead_of.clone(), text: self.text.clone() })
    }
}

/// What agents are told instead of `original`, if there is a repair of just this text.
#[must_use]
pub fn retold<'a>(all: &'a [Instead], of: Of, name: &str, original: &str) -> Option<&'a str> {
    let fits = |told: &&Instead| told.of == of && told.name == name && told.instead_of == original;
    all.iter().find(fits).map(|told| told.text.as_str())
}

/// The set with one more; the one that it replaces is not in it any more.
#[must_use]
pub fn with(all: &[Instead], new: Instead) -> Vec<Instead> {
    let mut all: Vec<Instead> =
        all.iter().filter(|told| (told.of, &told.name) != (new.of, &new.name)).cloned().collect();
    all.push(new);
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    fn tool(description: &str) -> Subject {
        Subject::Tool(Described {
            name: "mes__report".to_owned(),
            description: description.to_owned(),
            schema: json!({
                "type": "object", "required": ["order"],
                "properties": {"order": {"type": "string", "description": "The order"}, "copies": {"type": "integer"}},
            }),
            read_only: None,
            destructive: None,
            seen: Vec::new(),
        })
    }

    fn check(subject: Subject, text: &str, expected: Result<(), &str>) {
        let repair = Repair { subject, text: text.to_owned() };
        assert_eq!(repair.judged().map(|_| ()), expected.map_err(str::to_owned), "{text}");
    }

    #[test]
    fn a_repair_mends_and_takes_no_warning_out() {
        let wrong = "Prints the report of an order. The parameter `pages` is an integer. Warning: it cannot be undone.";
        check(
            tool(wrong),
            "Prints the report of an order. Warning: it cannot be undone.\nParameters:\n- order (string): The order",
            Ok(()),
        );
        check(
            tool(wrong),
            "Prints the report of an order.",
            Err("it leaves out a warning: Warning: it cannot be undone."),
        );
        check(tool(wrong), " ", Err("the text is empty"));
        check(
            tool("Prints the report of an order."),
            "Prints it all.",
            Err("nothing is wrong with the tool mes__report"),
        );
        let long = "a".repeat(DESCRIPTION_LEN_MAX + 1);
        check(tool(wrong), &long, Err("the text has 16385 bytes; 16384 are read"));
    }

    #[test]
    fn what_can_be_mended_without_a_person_is_proposed_and_counts_only_for_that_very_text() {
        let wrong = "Prints the report of an order. The parameter `pages` is an integer.";
        let repair = Repair::of(tool(wrong)).expect("it can be mended");
        let told = repair.judged().expect("and passes");
        let all = with(&[], told.clone());
        assert_eq!(retold(&all, Of::Tool, "mes__report", wrong), Some(told.text.as_str()));
        assert_eq!(retold(&all, Of::Tool, "mes__report", "Prints the report of an order, now in colour."), None);
        assert_eq!(retold(&all, Of::Skill, "mes__report", wrong), None);
        assert_eq!(with(&all, told).len(), 1);
        assert_eq!(Repair::of(tool("Prints the report of an order.")), None);
    }

    #[test]
    fn a_skill_is_mended_too() {
        let skill = Skill {
            folder: "restart-pump".to_owned(),
            text: "---\nname: restart_pumps\ndescription: How a pump is restarted\n---\nSee `steps.md`.\n".to_owned(),
            files: BTreeSet::from(["steps.md".to_owned(), "SKILL.md".to_owned()]),
            tools: BTreeSet::new(),
        };
        let repair = Repair::of(Subject::Skill(skill)).expect("it can be mended");
        assert!(repair.text.contains("name: restart-pump\n"), "{}", repair.text);
        assert_eq!(repair.names(), (Of::Skill, "restart-pump"));
        assert!(!repair.faults().is_empty());
    }
}
