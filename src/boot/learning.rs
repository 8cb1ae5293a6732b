//! Tools of MCP servers that appear: what could be said to call them is proposed, and what they say wrongly is told.

use std::collections::BTreeSet;

use interlock_domain::learn::describe::{self, Described};
use interlock_domain::surface::Surface;
use interlock_domain::surface::tool::Kind;
use tokio::sync::watch;

use crate::engine::learner::{Appeared, Learner};

/// Tools that are remembered as told of; a server with more lists its first ones again.
const TOLD_MAX: usize = 4096;

/// Runs until the surface has no owner any more.
pub(super) async fn watch_tools(mut surface: watch::Receiver<Surface>, learner: Learner) {
    let mut told: BTreeSet<(String, String)> = BTreeSet::new();
    loop {
        let now = surface.borrow_and_update().clone();
        for tool in now.tools() {
            let Kind::Declared(declared) = tool.kind() else { continue };
            let Some((server, _)) = &declared.mcp else { continue };
            let definition = tool.definition();
            let key = (tool.name().to_string(), definition.description.en.clone());
            if told.len() >= TOLD_MAX || !told.insert(key) {
                continue;
            }
            let required = definition.input_schema["required"].as_array();
            let described = Described {
                name: tool.name().to_string(),
                description: definition.description.en.clone(),
                schema: definition.input_schema.clone(),
                read_only: definition.annotations.read_only,
                destructive: definition.annotations.destructive,
                seen: Vec::new(),
            };
            for fault in describe::faults(&described) {
                tracing::warn!(server = %server, tool = %tool.name(), "its description is not what its schema says: {fault}");
            }
            learner.appeared(Appeared {
                server: server.clone(),
                tool: tool.name().to_string(),
                title: definition.title.zh.clone(),
                read_only: definition.annotations.read_only == Some(true),
                without_arguments: required.is_none_or(Vec::is_empty),
                described,
            });
        }
        if surface.changed().await.is_err() {
            return;
        }
    }
}
