//! From a server's definition of a tool to the tool that the chain sees.
//!
//! What a server says of its own tool is a claim: a hint makes a call count as reading or as repeatable, and never
//! opens the gate. A contract in `_meta["interlock/contract"]` is taken as declared, whoever it says that it is from.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use interlock_domain::command::instead::{Instead, Of};
use interlock_domain::id::ToolName;
use interlock_domain::learn::retold;
use interlock_domain::request::args::{Args, Digest};
use interlock_domain::risk::Risk;
use interlock_domain::surface::contract::{Contract, Effect, Provenance, Visibility};
use interlock_domain::surface::nature::{Class, Keys};
use interlock_domain::surface::tool::{Annotations, BadTool, Declaration, Declared, Definition, Kind, Text, Tool};
use serde_json::{Value, json};

use crate::mcp::era::Era;
use crate::record::contract;
use crate::tool::mcp::Listed;

/// `_meta` of a tool: its contract.
pub const META_CONTRACT: &str = "interlock/contract";

/// How long a call may run before the machine gives it up: above every time limit that the adapter keeps itself, the
/// longest of which is that of a task.
const PATIENCE: Duration = Duration::from_secs(25 * 3600);

/// The members of a definition that a person approves. A new icon is no new tool.
const APPROVED: [&str; 7] = ["name", "title", "description", "inputSchema", "outputSchema", "annotations", "_meta"];

/// The digest of what a person approves; none when the definition is beyond a bound (deeper or larger than an input
/// may be).
#[must_use]
pub fn digest(definition: &Value) -> Option<Digest> {
    Args::new(approved(definition)).ok().map(|args| args.hash())
}

/// The same of all that a server says of a tool: where it says another thing in each era, both are approved.
#[must_use]
pub fn digest_of(listed: &Listed) -> Option<Digest> {
    let one = digest(listed.of(Era::Modern))?;
    match (&listed.legacy, &listed.modern) {
        (Some(legacy), Some(modern)) if digest(legacy)? != one => {
            Args::new(json!({"legacy": approved(legacy), "modern": approved(modern)})).ok().map(|args| args.hash())
        }
        (Some(_), Some(_)) | (Some(_), None) | (None, _) => Some(one),
    }
}

fn approved(definition: &Value) -> Value {
    let member = |name: &&str| Some(((*name).to_owned(), definition.get(*name)?.clone()));
    Value::Object(APPROVED.iter().filter_map(member).collect())
}

/// The definitions with the description that is told instead, where a person approved one for this very description.
#[must_use]
pub fn retold<'a>(listed: &'a Listed, told: &[Instead], name: &ToolName) -> Cow<'a, Listed> {
    let instead = |definition: &Option<Value>| {
        let said = definition.as_ref()?["description"].as_str()?;
        retold::retold(told, Of::Tool, name.as_str(), said).map(str::to_owned)
    };
    let (legacy, modern) = (instead(&listed.legacy), instead(&listed.modern));
    if legacy.is_none() && modern.is_none() {
        return Cow::Borrowed(listed);
    }
    let mut listed = listed.clone();
    for (definition, text) in [(&mut listed.legacy, legacy), (&mut listed.modern, modern)] {
        if let (Some(definition), Some(text)) = (definition, text) {
            definition["description"] = text.into();
        }
    }
    Cow::Owned(listed)
}

/// The tool.
///
/// # Errors
/// When a schema is not a schema.
pub fn tool(name: ToolName, server: &str, raw: &str, definition: &Value) -> Result<Tool, BadTool> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let annotations = annotations(&definition["annotations"]);
    let title = text(&definition["title"]).or_else(|| text(&definition["annotations"]["title"]));
    let both = |text: String| Text { en: text.clone(), zh: text };
    let prefix = name.as_str().strip_suffix(raw).unwrap_or_default();
    let contract = contract(server, raw, prefix, annotations, &definition["_meta"][META_CONTRACT]);
    let reads = !contract.changes();
    let declaration = Declaration {
        // What else it touches is not known: among the calls of one batch, one that changes something keeps its place.
        class: if reads { Class::Safe } else { Class::Exclusive },
        keys: Keys::default(),
        risk: if reads { Risk::Read } else { Risk::Operate },
        protective: false,
        contract: Arc::new(contract),
        patience: PATIENCE,
    };
    Tool::new(Definition {
        name,
        title: both(title.unwrap_or_else(|| raw.to_owned())),
        description: both(text(&definition["description"]).unwrap_or_default()),
        input_schema: definition.get("inputSchema").cloned().unwrap_or_else(|| json!({"type": "object"})),
        output_schema: definition.get("outputSchema").filter(|schema| schema.is_object()).cloned(),
        annotations,
        kind: Kind::Declared(Declared {
            mcp: Some((server.to_owned(), raw.to_owned())),
            verb_in: None,
            verbs: Default::default(),
            otherwise: declaration,
        }),
    })
}

/// The four hints, as far as they are given.
#[must_use]
pub fn annotations(hints: &Value) -> Annotations {
    let hint = |name: &str| hints[name].as_bool();
    Annotations {
        read_only: hint("readOnlyHint"),
        destructive: hint("destructiveHint"),
        idempotent: hint("idempotentHint"),
        open_world: hint("openWorldHint"),
    }
}

/// What is promised about a tool: its own contract where it has one, else what the hints come to. The calls that a
/// contract names are tools of the same server, as it names them: `prefix` makes them ours.
#[must_use]
pub fn contract(server: &str, raw: &str, prefix: &str, hints: Annotations, declared: &Value) -> Contract {
    let op_kind = format!("mcp.{server}.{raw}");
    if declared.is_object() {
        let mut read = contract::from_json(declared);
        for call in read.with.all_mut() {
            call.tool = format!("{prefix}{}", call.tool);
        }
        // Only the maker's word: that our adapter sees to it, or that it was seen to be so, a server cannot know.
        let read = Contract { op_kind: op_kind.clone(), provenance: Provenance::Declared, ..read };
        match read.check() {
            Ok(()) => return read,
            Err(wrong) => tracing::warn!(server, tool = raw, %wrong, "a contract that contradicts itself is not taken"),
        }
        return Contract { provenance: Provenance::Declared, ..Contract::weakest(&op_kind) };
    }
    let weakest = Contract { provenance: Provenance::Declared, ..Contract::weakest(&op_kind) };
    if hints.read_only != Some(true) {
        return weakest;
    }
    let visibility = match hints.open_world {
        Some(true) => Visibility::Open,
        Some(false) | None => Visibility::None,
    };
    Contract { effect: Effect::None, visibility, ..weakest }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_told_otherwise_only_as_long_as_it_is_the_one_that_was_looked_at() {
        let name = ToolName::new("s__t").unwrap();
        let told = [Instead {
            of: Of::Tool,
            name: "s__t".to_owned(),
            instead_of: "wrong".to_owned(),
            text: "right".to_owned(),
        }];
        let said = |said: &str, name: &ToolName| {
            let listed = Listed { legacy: None, modern: Some(json!({"name": "t", "description": said})) };
            retold(&listed, &told, name).of(crate::mcp::era::Era::Modern)["description"].clone()
        };
        assert_eq!(said("wrong", &name), "right");
        assert_eq!(said("wrong again", &name), "wrong again");
        assert_eq!(said("wrong", &ToolName::new("s__u").unwrap()), "wrong");
    }

    #[test]
    fn what_a_server_says_in_one_era_alone_is_approved_too() {
        let said = |text: &str| Some(json!({"name": "t", "description": text, "execution": {"taskSupport": text}}));
        let of = |legacy: Option<&str>, modern: Option<&str>| {
            digest_of(&Listed { legacy: legacy.and_then(said), modern: modern.and_then(said) }).unwrap()
        };
        let same = of(None, Some("a"));
        assert_eq!(of(Some("a"), None), same);
        assert_eq!(of(Some("a"), Some("a")), same);
        assert_ne!(of(Some("b"), Some("a")), same, "only its older self changed");
        assert_ne!(of(Some("b"), Some("a")), of(Some("a"), Some("b")));
        assert_ne!(of(Some("b"), Some("a")), of(Some("c"), Some("a")));
    }

    fn check(definition: Value, effect: Effect, visibility: Visibility, class: Class) {
        let shown = definition.to_string();
        let name = ToolName::new("s__t").unwrap();
        let tool = tool(name, "s", "t", &definition).unwrap();
        let Kind::Declared(declared) = tool.kind() else { panic!("{shown}") };
        let found = &declared.otherwise;
        assert_eq!((&found.contract.effect, &found.contract.visibility), (&effect, &visibility), "{shown}");
        assert_eq!((&found.class, found.contract.provenance), (&class, Provenance::Declared), "{shown}");
        assert_eq!(found.contract.op_kind, "mcp.s.t");
    }

    #[test]
    fn hints_and_contracts_are_claims_of_their_maker() {
        let (none, open) = (Visibility::None, Visibility::Open);
        check(json!({"name": "t"}), Effect::Irreversible, open.clone(), Class::Exclusive);
        check(json!({"annotations": {"readOnlyHint": true}}), Effect::None, none.clone(), Class::Safe);
        check(
            json!({"annotations": {"readOnlyHint": true, "openWorldHint": true}}),
            Effect::None,
            open.clone(),
            Class::Safe,
        );
        check(json!({"annotations": {"readOnlyHint": "yes"}}), Effect::Irreversible, open.clone(), Class::Exclusive);
        check(json!({"annotations": {"destructiveHint": false}}), Effect::Irreversible, open, Class::Exclusive);
        let declared = json!({"op_kind": "x", "effect": "none", "visibility": "none", "provenance": "observed"});
        check(json!({"_meta": {META_CONTRACT: declared}}), Effect::None, none, Class::Safe);
    }

    #[test]
    fn the_digest_is_of_what_a_person_approves() {
        let one = json!({"name": "t", "description": "reads", "inputSchema": {"type": "object", "a": 1}, "icons": []});
        let same = json!({"inputSchema": {"a": 1, "type": "object"}, "description": "reads", "name": "t"});
        let other = json!({"name": "t", "description": "reads all", "inputSchema": {"type": "object", "a": 1}});
        assert_eq!(digest(&one), digest(&same));
        assert_ne!(digest(&one), digest(&other));
        let deep = (0..100).fold(json!({}), |inner, _| json!({ "x": inner }));
        assert_eq!(digest(&json!({"name": "t", "inputSchema": deep})), None);
    }
}
