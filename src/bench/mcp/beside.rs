//! Programs of others, measured in the same run and in turn with ours, because a machine's figures move by half from one
//! run to the next.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Map, Value, json};

use super::{Direct, Ours, percentile, piped};

/// Tools that are called, by their names: the first that a program has. Proxies put something before them.
const TOOLS: [&str; 2] = ["version", "echo"];

/// What stands for the server that the daemon has behind it.
const SERVER: &str = "{server}";

/// One of them.
pub(super) struct Other {
    name: String,
    tool: String,
    peer: Direct,
    figures: Vec<f64>,
    _process: Ours,
}

/// Starts them all.
pub(super) fn start(beside: &[String], binary: &Path) -> io::Result<Vec<Other>> {
    beside.iter().map(|one| Other::start(one, binary)).collect()
}

impl Other {
    fn start(written: &str, binary: &Path) -> io::Result<Other> {
        let wrong = |fact: &str| io::Error::new(io::ErrorKind::InvalidInput, format!("--beside {written}: {fact}"));
        let (name, command) = written.split_once('=').ok_or_else(|| wrong("it is NAME=COMMAND"))?;
        let server = format!("{} bench mcp-server", binary.display());
        let command = command.replace(SERVER, &server);
        let mut words = command.split_whitespace();
        let program = words.next().ok_or_else(|| wrong("it has no command"))?;
        let mut started = Command::new(program);
        started.args(words).stderr(Stdio::null());
        let (mut peer, process) = piped(&mut started).map_err(|error| wrong(&error.to_string()))?;
        let list = peer.ask("tools/list", &json!({}))?;
        let names: Vec<&str> =
            list["result"]["tools"].as_array().into_iter().flatten().filter_map(|tool| tool["name"].as_str()).collect();
        let tool = TOOLS.iter().find_map(|wanted| names.iter().find(|name| name.ends_with(wanted)));
        let tool = (*tool.ok_or_else(|| wrong("it has neither a tool version nor a tool echo"))?).to_owned();
        Ok(Other { name: name.to_owned(), tool, peer, figures: Vec::new(), _process: process })
    }

    /// One call, which counts or does not.
    pub(super) fn call(&mut self, counts: bool) -> io::Result<()> {
        let took = self.peer.call(&self.tool, &json!({}))?;
        if counts {
            self.figures.push(took);
        }
        Ok(())
    }
}

/// The figures of each, by its name.
pub(super) fn figures(others: Vec<Other>) -> io::Result<Value> {
    let mut all = Map::new();
    for Other { name, tool, mut peer, mut figures, .. } in others {
        let calls_per_s = peer.rush(&tool, &json!({}))?.round();
        let [p50, p99] = [50, 99].map(|percent| percentile(&mut figures, percent));
        all.insert(name, json!({"tool": tool, "us_p50": p50, "us_p99": p99, "calls_per_s": calls_per_s}));
    }
    Ok(Value::Object(all))
}
