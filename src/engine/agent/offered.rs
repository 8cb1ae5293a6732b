//! The tools as a model is told of them, under names that every provider takes.

use std::collections::BTreeMap;

use interlock_domain::gate::rule::Rules;
use interlock_domain::id::ToolName;
use interlock_domain::surface::Surface;

use crate::provider::request::Tool;

/// The longest name that all providers take (OpenAI: 64 of letters, digits, `_`, `-`).
const NAME_LEN_MAX: usize = 64;

/// The tools of a run, and which of ours each name means.
#[derive(Debug, Default)]
pub(super) struct Offered {
    /// As the model is told of them.
    pub(super) tools: Vec<Tool>,
    /// With whole descriptions and schemas.
    pub(super) all: Vec<Tool>,
    names: BTreeMap<String, ToolName>,
}

impl Offered {
    /// What a surface shows. A tool that a rule denies whole is not offered; a call of it is refused all the same.
    pub(super) fn of(surface: &Surface, rules: &Rules) -> Offered {
        let mut offered = Offered::default();
        for tool in surface.tools().filter(|tool| !rules.all().iter().any(|rule| rule.hides(tool))) {
            let name = free(&wire(tool.name().as_str()), &offered.names);
            offered.names.insert(name.clone(), tool.name().clone());
            offered.tools.push(Tool {
                name,
                description: tool.definition().description.en.clone(),
                schema: tool.definition().input_schema.clone(),
            });
        }
        offered.all.clone_from(&offered.tools);
        offered
    }

    /// The tool that a model means. A name that was not offered goes on as it is, to be refused where every name is.
    pub(super) fn named(&self, name: &str) -> Option<ToolName> {
        self.names.get(name).cloned().or_else(|| ToolName::new(name).ok())
    }
}

fn wire(name: &str) -> String {
    name.replace('.', "_").chars().take(NAME_LEN_MAX).collect()
}

/// A name that no other tool has.
fn free(name: &str, taken: &BTreeMap<String, ToolName>) -> String {
    if !taken.contains_key(name) {
        return name.to_owned();
    }
    let mut number = 2_u32;
    loop {
        let mark = format!("_{number}");
        let head: String = name.chars().take(NAME_LEN_MAX - mark.len()).collect();
        let other = head + &mark;
        if !taken.contains_key(&other) {
            return other;
        }
        number += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_every_provider_and_stay_apart() {
        let tool = |name: &str| ToolName::new(name).unwrap();
        let long = "x".repeat(100);
        let mut taken = BTreeMap::new();
        for (name, expected) in [
            ("a.b", "a_b".to_owned()),
            ("a_b", "a_b_2".to_owned()),
            (&long, "x".repeat(64)),
            (&format!("{long}y"), format!("{}_2", "x".repeat(62))),
        ] {
            let given = free(&wire(name), &taken);
            assert_eq!(given, expected, "{name}");
            taken.insert(given, tool(name));
        }
    }
}
