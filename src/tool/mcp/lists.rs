//! What a server lists: tools, prompts, resources, as raw as they came and bounded.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::Links;
use super::link::{Link, NoAnswer, Patience, Wire, With};
use crate::mcp::era::Era;
use crate::mcp::header;
use crate::mcp::shape::{self, Kind};

/// Things of one kind that one server may list: language models lose their way long before. What comes after is left
/// out, and said so.
pub(super) const ITEMS_MAX: usize = 1000;

/// Bytes of one list, as JSON: what a server could make us hold by its lists alone.
const BYTES_MAX: usize = 8 << 20;

/// Pages of one list that are asked for: a server that always has another page would be asked for ever.
const PAGES_MAX: usize = 200;

/// What a server lists.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Lists {
    /// Tools by their raw names.
    pub tools: BTreeMap<String, Listed>,
    /// Prompts.
    pub prompts: Vec<Value>,
    /// Resources.
    pub resources: Vec<Value>,
    /// Templates of resources.
    pub templates: Vec<Value>,
    /// It answers `prompts/*`.
    pub offers_prompts: bool,
    /// It answers `resources/*`.
    pub offers_resources: bool,
    /// It answers `completion/complete`.
    pub offers_completions: bool,
    /// How many things were left out.
    pub left_out: usize,
}

/// One tool as its server defines it, in each protocol that it speaks with us.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Listed {
    /// As 2025-11-25 has it.
    pub legacy: Option<Value>,
    /// As 2026-07-28 has it.
    pub modern: Option<Value>,
}

impl Listed {
    /// As it is in that era, or in the other one where that is all there is.
    #[must_use]
    pub fn of(&self, era: Era) -> &Value {
        let (one, other) = match era {
            Era::Legacy => (&self.legacy, &self.modern),
            Era::Modern => (&self.modern, &self.legacy),
        };
        one.as_ref().or(other.as_ref()).unwrap_or(&Value::Null)
    }

    /// Whether the older era has to call it as a task.
    pub(super) fn needs_task(&self) -> bool {
        self.legacy.as_ref().is_some_and(|tool| tool["execution"]["taskSupport"] == "required")
    }
}

/// Asks a server for everything that it lists.
pub(super) async fn all(links: &Links, patience: Patience) -> Result<Lists, NoAnswer> {
    let mut lists = Lists::default();
    let primary = &links.primary;
    for link in links.all() {
        if !link.offers("tools") {
            continue;
        }
        for tool in paged(link, TOOLS, patience, &mut lists.left_out).await? {
            let Some(name) = tool["name"].as_str().map(str::to_owned) else { continue };
            // Its headers could not say what its body says (2026-07-28, "Streamable HTTP").
            if link.era == Era::Modern
                && matches!(link.wire, Wire::Http(_))
                && let Some(bad) = header::bad_mark(&tool["inputSchema"])
            {
                tracing::warn!(tool = name, "a tool is left out: {bad} breaks the rules");
                continue;
            }
            if lists.tools.len() >= ITEMS_MAX && !lists.tools.contains_key(&name) {
                lists.left_out += 1;
                continue;
            }
            let listed = lists.tools.entry(name).or_default();
            match link.era {
                Era::Legacy => listed.legacy = Some(tool),
                Era::Modern => listed.modern = Some(tool),
            }
        }
    }
    lists.offers_prompts = primary.offers("prompts");
    lists.offers_resources = primary.offers("resources");
    lists.offers_completions = primary.offers("completions");
    if lists.offers_prompts {
        lists.prompts = paged(primary, PROMPTS, patience, &mut lists.left_out).await?;
    }
    if lists.offers_resources {
        lists.resources = paged(primary, RESOURCES, patience, &mut lists.left_out).await?;
        let templates = paged(primary, TEMPLATES, patience, &mut lists.left_out).await;
        lists.templates = match templates {
            // A server with resources and no templates may not know the method.
            Err(NoAnswer::Rpc(_)) => Vec::new(),
            other => other?,
        };
    }
    Ok(lists)
}

/// A list: the method that asks for it, its member of the result, and the shape of its items.
type List = (&'static str, &'static str, Kind);

const TOOLS: List = ("tools/list", "tools", Kind::Tool);
const PROMPTS: List = ("prompts/list", "prompts", Kind::Prompt);
const RESOURCES: List = ("resources/list", "resources", Kind::Resource);
const TEMPLATES: List = ("resources/templates/list", "resourceTemplates", Kind::Template);

async fn paged(
    link: &Link,
    (method, member, kind): List,
    patience: Patience,
    left_out: &mut usize,
) -> Result<Vec<Value>, NoAnswer> {
    let (mut items, mut cursor, mut room_bytes) = (Vec::new(), None::<String>, BYTES_MAX);
    for _ in 0..PAGES_MAX {
        let mut params = Map::new();
        if let Some(cursor) = cursor.take() {
            params.insert("cursor".to_owned(), cursor.into());
        }
        let mut page = link.request(method, params, With::patience(patience)).await?;
        let listed = match page[member].take() {
            Value::Array(listed) => listed,
            // Nothing is an empty list; anything else is a mistake that must not look like one.
            Value::Null => Vec::new(),
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
                let why = format!("what it lists as {member} is no list");
                return Err(NoAnswer::Lost { killed: false, why });
            }
        };
        for mut item in listed {
            if !shape::mend(kind, &mut item) {
                *left_out += 1;
                continue;
            }
            let bytes = item.to_string().len();
            if items.len() == ITEMS_MAX || bytes > room_bytes {
                *left_out += 1;
                continue;
            }
            room_bytes -= bytes;
            items.push(item);
        }
        match page["nextCursor"].as_str() {
            Some(next) if items.len() < ITEMS_MAX => cursor = Some(next.to_owned()),
            Some(_) => {
                *left_out += 1;
                break;
            }
            None => break,
        }
    }
    Ok(items)
}

/// The parameters of `initialize`. What a client behind a call lacks is refused when it is asked for.
pub(super) fn initialize() -> Map<String, Value> {
    let params = json!({
        "protocolVersion": crate::mcp::era::LEGACY[0],
        "capabilities": {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {"listChanged": false}},
        "clientInfo": super::link::us(),
    });
    match params {
        Value::Object(params) => params,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}
