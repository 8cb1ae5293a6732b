//! What servers list, brought into the shape that the protocol fixes for it.
//!
//! Our clients get one list of everything, and strict ones refuse a whole list for one member of the wrong type. So one
//! server that writes a number for a description would take the tools of all others away. What is known and has another
//! type is left out; what cannot do without is left out whole. Everything else stays as it came, known or not.

use serde_json::{Map, Value, json};

/// What is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `tools/list`.
    Tool,
    /// `prompts/list`.
    Prompt,
    /// `resources/list`.
    Resource,
    /// `resources/templates/list`.
    Template,
}

/// The type of a member.
#[derive(Clone, Copy)]
enum Type {
    Text,
    Bool,
    Number,
    Object,
    List,
}

impl Type {
    fn fits(self, value: &Value) -> bool {
        match self {
            Type::Text => value.is_string(),
            Type::Bool => value.is_boolean(),
            Type::Number => value.is_number(),
            Type::Object => value.is_object(),
            Type::List => value.is_array(),
        }
    }
}

/// Members that every item may have.
const COMMON: [(&str, Type); 4] =
    [("title", Type::Text), ("description", Type::Text), ("icons", Type::List), ("_meta", Type::Object)];

const TOOL: [(&str, Type); 3] =
    [("annotations", Type::Object), ("outputSchema", Type::Object), ("execution", Type::Object)];

const HINTS: [(&str, Type); 5] = [
    ("title", Type::Text),
    ("readOnlyHint", Type::Bool),
    ("destructiveHint", Type::Bool),
    ("idempotentHint", Type::Bool),
    ("openWorldHint", Type::Bool),
];

const RESOURCE: [(&str, Type); 3] = [("mimeType", Type::Text), ("size", Type::Number), ("annotations", Type::Object)];

/// Brings an item into shape; false when it is left out.
#[must_use]
pub fn mend(kind: Kind, item: &mut Value) -> bool {
    let Some(members) = item.as_object_mut() else { return false };
    keep(members, &COMMON);
    let has = |members: &Map<String, Value>, name: &str| {
        members.get(name).is_some_and(|text| text.as_str() != Some("") && text.is_string())
    };
    match kind {
        Kind::Tool => {
            keep(members, &TOOL);
            if let Some(Value::Object(hints)) = members.get_mut("annotations") {
                keep(hints, &HINTS);
            }
            // One that says nothing of its input takes any.
            let schema = members.entry("inputSchema").or_insert_with(|| json!({"type": "object"}));
            let takes_objects = schema["type"] == "object";
            has(members, "name") && takes_objects
        }
        Kind::Prompt => {
            keep(members, &[("arguments", Type::List)]);
            if let Some(Value::Array(arguments)) = members.get_mut("arguments") {
                arguments.retain(|argument| argument["name"].is_string());
                for argument in arguments.iter_mut().filter_map(Value::as_object_mut) {
                    keep(argument, &[("title", Type::Text), ("description", Type::Text), ("required", Type::Bool)]);
                }
            }
            has(members, "name")
        }
        Kind::Resource => is_named(members, "uri"),
        Kind::Template => is_named(members, "uriTemplate"),
    }
}

/// A member of what somebody else wrote, to be written. What is no object becomes one: it meant nothing.
pub fn member<'v>(of: &'v mut Value, name: &str) -> &'v mut Value {
    if !of.is_object() {
        *of = json!({});
    }
    &mut of[name]
}

/// Brings the result of a `tools/call` into shape; false when what it says cannot be told apart from nonsense.
#[must_use]
pub fn mend_result(members: &mut Map<String, Value>) -> bool {
    keep(members, &[("_meta", Type::Object)]);
    let is_error_clear = members.get("isError").is_none_or(Value::is_boolean);
    let content = members.entry("content").or_insert_with(|| json!([]));
    is_error_clear && content.as_array().is_some_and(|blocks| blocks.iter().all(is_block))
}

/// A block of a kind that is known has what that kind has to have; of others nothing is known.
fn is_block(block: &Value) -> bool {
    let has = |names: &[&str]| names.iter().all(|name| block[name].is_string());
    match block["type"].as_str() {
        Some("text") => has(&["text"]),
        Some("image" | "audio") => has(&["data", "mimeType"]),
        Some("resource_link") => has(&["uri", "name"]),
        Some("resource") => block["resource"]["uri"].is_string(),
        Some(_) => true,
        None => false,
    }
}

fn is_named(members: &mut Map<String, Value>, by: &str) -> bool {
    keep(members, &RESOURCE);
    let Some(address) = members.get(by).filter(|address| address.is_string()).cloned() else { return false };
    if !members.get("name").is_some_and(Value::is_string) {
        members.insert("name".to_owned(), address);
    }
    true
}

fn keep(members: &mut Map<String, Value>, types: &[(&str, Type)]) {
    members.retain(|name, value| types.iter().all(|(known, of)| known != name || of.fits(value)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kind: Kind, item: Value, mended: Option<Value>) {
        let mut got = item.clone();
        let stays = mend(kind, &mut got);
        assert_eq!(stays.then_some(got), mended, "{item}");
    }

    #[test]
    fn what_is_no_object_can_be_written_to() {
        for foreign in [json!("x"), json!(5), json!([1]), json!(null), json!({"b": 1})] {
            let mut value = foreign.clone();
            *member(member(&mut value, "a"), "c") = json!(2);
            assert_eq!(value["a"]["c"], 2, "{foreign}");
            assert_eq!(value.get("b").is_some(), foreign.get("b").is_some(), "what was there stays");
        }
    }

    #[test]
    fn a_result_is_a_list_of_blocks() {
        for (result, is_right) in [
            (json!({"content": [{"type": "text", "text": "a"}, {"type": "future"}], "isError": false}), true),
            (json!({"structuredContent": {"a": 1}}), true),
            (json!({"content": [], "_meta": "x"}), true),
            (json!({"content": "a"}), false),
            (json!({"content": null}), false),
            (json!({"content": ["a"]}), false),
            (json!({"content": [{"text": "a"}]}), false),
            (json!({"content": [{"type": "text", "text": 5}]}), false),
            (json!({"content": [{"type": "image", "data": "a"}]}), false),
            (json!({"content": [{"type": "resource", "resource": "a"}]}), false),
            (json!({"content": [], "isError": "yes"}), false),
        ] {
            let mut members = result.as_object().unwrap().clone();
            assert_eq!(mend_result(&mut members), is_right, "{result}");
            assert!(members["content"].is_array() || !is_right);
            assert!(members.get("_meta").is_none_or(Value::is_object));
        }
    }

    #[test]
    fn a_tool_that_is_well_formed_stays_as_it_came() {
        let tool = json!({"name": "a", "title": "A", "description": "d", "future": 7, "icons": [{"src": "x"}],
            "inputSchema": {"type": "object", "$defs": {"x": true}}, "outputSchema": {"type": "object"},
            "annotations": {"title": "t", "readOnlyHint": true, "more": 1}, "_meta": {"m": [1]},
            "execution": {"taskSupport": "optional"}});
        check(Kind::Tool, tool.clone(), Some(tool));
    }

    #[test]
    fn one_bad_member_does_not_cost_the_list() {
        let schema = json!({"type": "object"});
        check(
            Kind::Tool,
            json!({"name": "a", "title": 3, "description": ["d"], "icons": {}, "_meta": "m", "outputSchema": null,
                "annotations": {"readOnlyHint": "yes", "destructiveHint": false, "title": 1}, "execution": true,
                "inputSchema": schema}),
            Some(json!({"name": "a", "annotations": {"destructiveHint": false}, "inputSchema": schema})),
        );
        check(Kind::Tool, json!({"name": "a"}), Some(json!({"name": "a", "inputSchema": schema})));
        check(Kind::Tool, json!({"name": "a", "annotations": "x"}), Some(json!({"name": "a", "inputSchema": schema})));
        for bad in [
            json!(3),
            json!({"inputSchema": schema}),
            json!({"name": "", "inputSchema": schema}),
            json!({"name": 7, "inputSchema": schema}),
            json!({"name": "a", "inputSchema": {"type": "array"}}),
            json!({"name": "a", "inputSchema": {}}),
            json!({"name": "a", "inputSchema": null}),
            json!({"name": "a", "inputSchema": true}),
        ] {
            check(Kind::Tool, bad, None);
        }
    }

    #[test]
    fn prompts_and_resources_have_their_names() {
        check(
            Kind::Prompt,
            json!({"name": "p", "arguments": [{"name": "a", "required": "yes"}, {}, 3], "title": null}),
            Some(json!({"name": "p", "arguments": [{"name": "a"}]})),
        );
        check(Kind::Prompt, json!({"name": "p", "arguments": {}}), Some(json!({"name": "p"})));
        check(Kind::Prompt, json!({"title": "p"}), None);
        check(
            Kind::Resource,
            json!({"uri": "x:y", "size": "big", "mimeType": 1}),
            Some(json!({"uri": "x:y", "name": "x:y"})),
        );
        check(Kind::Resource, json!({"name": "r"}), None);
        check(
            Kind::Template,
            json!({"uriTemplate": "x:{y}", "name": "t"}),
            Some(json!({"uriTemplate": "x:{y}", "name": "t"})),
        );
        check(Kind::Template, json!({"uri": "x:y"}), None);
    }
}
