//! What the server says of itself: `initialize`, `server/discover`, and the list of tools in pages.
//!
//! The list is the same for every connection and comes in the same order each time: clients cache it, and a prompt
//! that is built from it should not change for nothing.

use interlock_domain::id::ToolName;
use serde_json::{Map, Value, json};

use crate::agents::engine::{Offers, RawView, TaskSupport, ToolView};
use crate::mcp::era::{self, Era};
use crate::mcp::rpc::{self, RpcError};

/// What models should know before they call anything.
const INSTRUCTIONS: &str = "Interlock stands between you and real machines. Every call passes a gate: it may be \
    allowed, refused, or wait for a person. A result marked isError says in its text and in \
    _meta[\"interlock/outcome\"] whether the call failed, was refused, or has an unknown outcome. Never repeat a call \
    whose outcome is unknown. Nothing you can call approves anything.";

/// Who we are, for `serverInfo`.
#[must_use]
pub fn server() -> Value {
    json!({"name": "interlock", "title": "Interlock 联锁", "version": env!("CARGO_PKG_VERSION")})
}

/// What we can do.
fn capabilities(offers: Offers) -> Value {
    let mut capabilities = json!({"tools": {"listChanged": true}, "logging": {}});
    if offers.prompts {
        capabilities["prompts"] = json!({"listChanged": true});
    }
    if offers.resources {
        capabilities["resources"] = json!({"listChanged": true, "subscribe": true});
    }
    if offers.completions {
        capabilities["completions"] = json!({});
    }
    capabilities
}

/// The result of `initialize`.
#[must_use]
pub fn initialize(version: &str, offers: Offers) -> Value {
    let mut legacy = capabilities(offers);
    legacy["tasks"] = json!({"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}});
    json!({
        "protocolVersion": version,
        "capabilities": legacy,
        "serverInfo": server(),
        "instructions": INSTRUCTIONS,
    })
}

/// The result of `server/discover`.
#[must_use]
pub fn discover(offers: Offers) -> Value {
    let mut modern = capabilities(offers);
    modern["extensions"] = json!({era::TASKS: {}});
    json!({
        "supportedVersions": [era::MODERN],
        "capabilities": modern,
        "instructions": INSTRUCTIONS,
    })
}

/// The tool of that name in a list that is sorted by name.
#[must_use]
pub fn find<'a>(sorted: &'a [ToolView], name: &str) -> Option<&'a ToolView> {
    sorted.binary_search_by(|tool| tool.name.as_str().cmp(name)).ok().and_then(|at| sorted.get(at))
}

/// One page of the tools after the cursor.
///
/// # Errors
/// When the cursor is none of ours. A tool that went away since is no mistake: the page begins after its place.
pub fn tools(all: &[ToolView], params: &Map<String, Value>, page_len: usize, era: Era) -> Result<Value, RpcError> {
    let bad = || RpcError::new(rpc::INVALID_PARAMS, "\"cursor\" is not one that this server gave out");
    let after = match params.get("cursor") {
        None | Some(Value::Null) => None,
        Some(Value::String(cursor)) => {
            let name = cursor.strip_prefix(CURSOR_PREFIX).ok_or_else(bad)?;
            Some(ToolName::new(name).map_err(|_| bad())?)
        }
        Some(_) => return Err(bad()),
    };
    let mut sorted: Vec<&ToolView> =
        all.iter().filter(|tool| after.as_ref().is_none_or(|after| tool.name > *after)).collect();
    sorted.sort_by(|a, b| a.name.cmp(&b.name));
    let page = &sorted[..sorted.len().min(page_len)];
    let mut result = json!({"tools": page.iter().map(|tool| tool_value(tool, era)).collect::<Vec<_>>()});
    if let (Some(last), true) = (page.last(), page.len() < sorted.len()) {
        result["nextCursor"] = format!("{CURSOR_PREFIX}{}", last.name).into();
    }
    Ok(result)
}

/// Marks a cursor as ours. Clients must not read it.
const CURSOR_PREFIX: &str = "after:";

fn tool_value(tool: &ToolView, era: Era) -> Value {
    if let Some(raw) = &tool.raw {
        return passed_on(tool, raw, era);
    }
    let mut value = json!({
        "name": tool.name.as_str(),
        "title": tool.title,
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "annotations": tool.annotations,
        "_meta": {"interlock/contract": tool.contract},
    });
    if let Some(schema) = &tool.output_schema {
        value["outputSchema"] = schema.clone();
    }
    match (era, tool.tasks) {
        (Era::Legacy, TaskSupport::Optional) => value["execution"] = json!({"taskSupport": "optional"}),
        (Era::Legacy, TaskSupport::Required) => value["execution"] = json!({"taskSupport": "required"}),
        (Era::Legacy, TaskSupport::Forbidden) | (Era::Modern, _) => {}
    }
    value
}

/// Another server's definition under our name for it, with the contract that we go by. Everything else is as it came.
fn passed_on(tool: &ToolView, raw: &RawView, era: Era) -> Value {
    let mut value = match era {
        Era::Legacy => raw.legacy.clone(),
        Era::Modern => raw.modern.clone(),
    };
    if let Some(members) = value.as_object_mut() {
        members.insert("name".to_owned(), tool.name.as_str().into());
        if era == Era::Modern {
            members.remove("execution");
        }
        let meta = members.entry("_meta").or_insert_with(|| json!({}));
        if let Some(meta) = meta.as_object_mut() {
            meta.entry("interlock/contract").or_insert_with(|| tool.contract.clone());
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn tool(name: &str) -> ToolView {
        ToolView {
            name: ToolName::new(name).expect("a name"),
            title: name.to_uppercase(),
            description: "does it".into(),
            input_schema: json!({"type": "object", "$defs": {"a": {"type": "string"}}}),
            output_schema: Some(json!({"type": "object"})),
            annotations: json!({"readOnlyHint": true}),
            contract: json!({"effect": "none"}),
            tasks: TaskSupport::Optional,
            raw: None,
        }
    }

    /// The names of one page and the cursor after it.
    fn page(cursor: &Value) -> Result<(Vec<String>, Value), i64> {
        let all: Vec<ToolView> = ["d", "b", "a", "c", "e"].map(tool).into();
        let params = json!({"cursor": cursor}).as_object().expect("an object").clone();
        let result = tools(&all, &params, 2, Era::Modern).map_err(|error| error.code)?;
        let names =
            result["tools"].as_array().expect("a list").iter().map(|tool| tool["name"].as_str().unwrap().into());
        Ok((names.collect(), result.get("nextCursor").cloned().unwrap_or(Value::Null)))
    }

    #[test]
    fn pages_follow_each_other_in_one_order() {
        assert_eq!(page(&Value::Null), Ok((vec!["a".into(), "b".into()], json!("after:b"))));
        assert_eq!(page(&json!("after:b")), Ok((vec!["c".into(), "d".into()], json!("after:d"))));
        assert_eq!(page(&json!("after:d")), Ok((vec!["e".into()], Value::Null)));
        assert_eq!(page(&json!("after:bb")), Ok((vec!["c".into(), "d".into()], json!("after:d"))));
        assert_eq!(page(&json!("after:zz")), Ok((vec![], Value::Null)));
    }

    #[test]
    fn a_cursor_of_somebody_else_is_refused() {
        for cursor in [json!("b"), json!(""), json!("after:"), json!("after:a b"), json!(3)] {
            assert_eq!(page(&cursor), Err(rpc::INVALID_PARAMS), "{cursor}");
        }
    }

    #[test]
    fn a_tool_of_another_server_is_passed_on_as_it_came() {
        let theirs = json!({
            "name": "echo", "future": {"x": [1, 2.5]}, "execution": {"taskSupport": "optional"},
            "inputSchema": {"type": "object", "$defs": {"a": {"$ref": "#/$defs/a"}}}, "_meta": {"mark": 1},
        });
        let raw = Some(Arc::new(RawView { legacy: theirs.clone(), modern: theirs.clone() }));
        let tool = ToolView { raw, ..tool("s__echo") };
        let mut expected = theirs;
        expected["name"] = "s__echo".into();
        expected["_meta"] = json!({"mark": 1, "interlock/contract": {"effect": "none"}});
        assert_eq!(tool_value(&tool, Era::Legacy), expected);
        expected.as_object_mut().unwrap().remove("execution");
        assert_eq!(tool_value(&tool, Era::Modern), expected);
    }

    #[test]
    fn a_tool_is_written_with_all_that_is_known_of_it() {
        let modern = json!({
            "name": "pump", "title": "PUMP", "description": "does it",
            "inputSchema": {"type": "object", "$defs": {"a": {"type": "string"}}},
            "outputSchema": {"type": "object"},
            "annotations": {"readOnlyHint": true},
            "_meta": {"interlock/contract": {"effect": "none"}},
        });
        assert_eq!(tool_value(&tool("pump"), Era::Modern), modern);
        let mut legacy = modern;
        legacy["execution"] = json!({"taskSupport": "optional"});
        assert_eq!(tool_value(&tool("pump"), Era::Legacy), legacy);
    }
}
