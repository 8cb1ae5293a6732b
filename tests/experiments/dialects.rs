//! The one-call protocol in five dialects, three fresh runs each (papers: Metis, 5.5).
//!
//! The protocol of the paper: one marker prompt, the schema of the tool that reads, one file. A run passes when there is
//! exactly one call of that tool, its result is paired and ids are closed and unique, and the marker stands in the
//! result and in the last words. The paper asked five models of five providers; here, five servers answer in the shape
//! of their streams, each with its quirks, and take the marker from the request that they are sent: what is tried is
//! the wire and the runtime, not a model.

#[path = "../it/agent/server.rs"]
#[expect(dead_code, reason = "the tests of the agent use the rest")]
mod server;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use server::{Answer, Server, Wire};

use crate::asked;

const RUNS: usize = 3;
const MARKER: &str = "INTERLOCK-MARKER-7f3a";
const DEADLINE: Duration = Duration::from_secs(60);

#[expect(clippy::print_stdout, reason = "an experiment prints what it measured")]
fn say(text: &str) {
    println!("{text}");
}

/// A dialect: the paper's model, what it speaks, and how it says a call and its last words.
struct Dialect {
    name: &'static str,
    wire: Wire,
    call: fn(&str) -> String,
    words: fn(&str) -> String,
}

fn frames(values: &[Value]) -> String {
    values.iter().map(|value| format!("data: {value}\n\n")).collect()
}

fn chunk(delta: Value, finish: Value) -> Value {
    json!({ "id": "chat-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] })
}

const DIALECTS: [Dialect; 5] = [
    Dialect {
        name: "gemini-3.5-flash",
        wire: Wire::Gemini,
        // No id; the whole call in one part, with a signature that has to go back on it; the usage in every frame.
        call: |path| {
            let usage = json!({ "promptTokenCount": 120, "candidatesTokenCount": 20, "totalTokenCount": 140 });
            frames(&[
                json!({ "candidates": [{ "content": { "parts": [{ "text": "I will read it.", "thought": true }], "role": "model" }, "index": 0 }], "usageMetadata": usage, "modelVersion": "m" }),
                json!({ "candidates": [{ "content": { "parts": [{ "functionCall": { "name": "read_file", "args": { "path": path } }, "thoughtSignature": "EpwCCpkCAXLI2nw=" }], "role": "model" }, "finishReason": "STOP", "index": 0 }], "usageMetadata": usage }),
            ])
        },
        words: |text| {
            frames(&[
                json!({ "candidates": [{ "content": { "parts": [{ "text": text }], "role": "model" }, "finishReason": "STOP", "index": 0 }], "usageMetadata": { "promptTokenCount": 150 } }),
            ])
        },
    },
    Dialect {
        name: "ark-code-latest",
        wire: Wire::Chat,
        // Thinks first; name and id in one piece, arguments in several; usage after the end, without choices.
        call: |path| {
            let arguments = json!({ "path": path }).to_string();
            let (one, two) = arguments.split_at(9);
            frames(&[
                chunk(json!({ "role": "assistant", "content": "", "reasoning_content": "read" }), Value::Null),
                chunk(json!({ "reasoning_content": " it" }), Value::Null),
                chunk(
                    json!({ "content": "", "tool_calls": [{ "index": 0, "id": "call_9mh6", "type": "function", "function": { "name": "read_file", "arguments": "" } }] }),
                    Value::Null,
                ),
                chunk(
                    json!({ "content": "", "tool_calls": [{ "index": 0, "function": { "arguments": one } }] }),
                    Value::Null,
                ),
                chunk(
                    json!({ "content": "", "tool_calls": [{ "index": 0, "function": { "arguments": two } }] }),
                    Value::Null,
                ),
                chunk(json!({ "content": "" }), "tool_calls".into()),
                json!({ "id": "chat-1", "choices": [], "usage": { "prompt_tokens": 120, "completion_tokens": 20, "total_tokens": 140 } }),
            ]) + "data: [DONE]\n\n"
        },
        words: plain,
    },
    Dialect {
        name: "sensenova-6.8-flash-lite",
        wire: Wire::Chat,
        // An empty id on every continuation, an empty word instead of null until the end, no blank after `data:`.
        call: |path| {
            let arguments = json!({ "path": path }).to_string();
            let (one, two) = arguments.split_at(5);
            let delta = |id: &str, name: &str, part: &str| json!({ "role": "assistant", "content": "", "tool_calls": [{ "index": 0, "id": id, "type": "function", "function": { "name": name, "arguments": part } }] });
            let all = frames(&[
                chunk(delta("call_a1", "read_file", one), "".into()),
                chunk(delta("", "", two), "".into()),
                chunk(json!({ "content": "" }), "tool_calls".into()),
            ]) + "data: [DONE]\n\n";
            all.replace("data: ", "data:")
        },
        words: plain,
    },
    Dialect {
        name: "glm-5.2",
        wire: Wire::Chat,
        // The whole call, its end and the usage in one frame.
        call: |path| {
            let arguments = json!({ "path": path }).to_string();
            let mut last = chunk(
                json!({ "role": "assistant", "tool_calls": [{ "id": "call_-8123", "index": 0, "type": "function", "function": { "name": "read_file", "arguments": arguments } }] }),
                "tool_calls".into(),
            );
            last["usage"] = json!({ "prompt_tokens": 120, "completion_tokens": 20, "total_tokens": 140 });
            frames(&[chunk(json!({ "role": "assistant", "reasoning_content": "\nread it" }), Value::Null), last])
                + "data: [DONE]\n\n"
        },
        words: plain,
    },
    Dialect {
        name: "deepseek-v4-flash",
        wire: Wire::Chat,
        // Thoughts before the call, which the next request must carry back; comments to keep the line open; CRLF.
        call: |path| {
            let arguments = json!({ "path": path }).to_string();
            let mut all = vec![
                chunk(json!({ "role": "assistant", "content": null, "reasoning_content": "" }), Value::Null),
                chunk(json!({ "content": null, "reasoning_content": "I read the file." }), Value::Null),
                chunk(
                    json!({ "tool_calls": [{ "index": 0, "id": "call_00_Xy", "type": "function", "function": { "name": "read_file", "arguments": "" } }] }),
                    Value::Null,
                ),
            ];
            for piece in arguments.as_bytes().chunks(3) {
                let piece = String::from_utf8_lossy(piece);
                all.push(chunk(
                    json!({ "tool_calls": [{ "index": 0, "function": { "arguments": piece } }] }),
                    Value::Null,
                ));
            }
            let mut last = chunk(json!({ "content": "" }), "tool_calls".into());
            last["usage"] = json!({ "prompt_tokens": 120, "completion_tokens": 20, "prompt_cache_hit_tokens": 0 });
            all.push(last);
            (": keep-alive\n\n".to_owned() + &frames(&all) + "data: [DONE]\n\n").replace('\n', "\r\n")
        },
        words: plain,
    },
];

fn plain(text: &str) -> String {
    frames(&[
        chunk(json!({ "role": "assistant", "content": text }), Value::Null),
        chunk(json!({ "content": "" }), "stop".into()),
    ]) + "data: [DONE]\n\n"
}

struct Daemon {
    child: Child,
    home: tempfile::TempDir,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Daemon {
    fn start(agent: &str) -> Daemon {
        let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let at = |name: &str| home.path().join(name);
        std::fs::create_dir(at("work")).unwrap();
        std::fs::write(at("work").join("fixture.txt"), format!("line one\n{MARKER}\nline three\n")).unwrap();
        let config = format!("version = 1\n{agent}\n[policy]\nwork-dirs = [\"{}\"]\n", at("work").display());
        std::fs::write(at("interlock.toml"), config).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_interlock"))
            .arg("--socket")
            .arg(at("s"))
            .args(["run", "--state"])
            .arg(at("state"))
            .arg("--config")
            .arg(at("interlock.toml"))
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Daemon { child, home }
    }

    /// Everything that a run says.
    fn run(&self, text: &str) -> Vec<Value> {
        let until = Instant::now() + DEADLINE;
        let mut stream = loop {
            match UnixStream::connect(self.home.path().join("s")) {
                Ok(stream) => break stream,
                Err(error) => assert!(Instant::now() < until, "{error}"),
            }
            std::thread::yield_now();
        };
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        writeln!(stream, "{}", json!({ "v": 1, "id": 1, "verb": "agent", "args": { "text": text } })).unwrap();
        let lines = BufReader::new(stream).lines().map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
        lines.map_while(|line| line.get("item").cloned()).collect()
    }
}

/// What `interlock history validate` finds in the messages of a request.
fn breaches(wire: Wire, body: &Value) -> usize {
    let messages = body.get("messages").or_else(|| body.get("contents")).cloned().unwrap_or_default();
    let mut child = Command::new(env!("CARGO_BIN_EXE_interlock"))
        .args(["history", "validate", "--provider", wire.word()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    writeln!(child.stdin.take().unwrap(), "{}", json!({ "messages": messages })).unwrap();
    let output = child.wait_with_output().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().count() + usize::from(!output.status.success())
}

/// One run: calls of the reader, breaches of the last request, the marker in the result, the marker in the last words.
fn one(dialect: &Dialect) -> (usize, usize, bool, bool) {
    let (call, words) = (dialect.call, dialect.words);
    let server = Server::answering(move |body| {
        // It knows the marker only from what it is sent.
        let told = body.to_string();
        match told.find("INTERLOCK-MARKER-") {
            None => Answer::stream(call("fixture.txt")).split(11),
            Some(at) => {
                let marker: String =
                    told[at..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
                Answer::stream(words(&format!("The marker is {marker}.")))
            }
        }
    });
    let daemon = Daemon::start(&server.config(dialect.wire, ""));
    let told = daemon.run("Read fixture.txt and tell me the marker in it.");
    let of = |event: &str| told.iter().filter(|told| told["event"] == event).collect::<Vec<_>>();
    let calls = of("call").iter().filter(|call| call["tool"] == "read_file").count() + of("call").len() - 1;
    let in_result = of("result").iter().all(|result| result["text"].as_str().is_some_and(|text| text.contains(MARKER)));
    let in_text = of("end").iter().all(|end| end["text"].as_str().is_some_and(|text| text.contains(MARKER)));
    let last = server.requests().pop().map(|request| request.body).unwrap_or_default();
    (calls, breaches(dialect.wire, &last), in_result, in_text && !of("end").is_empty())
}

#[test]
fn one_call_in_five_dialects() {
    if !asked("dialects") {
        return;
    }
    assert!(Path::new(env!("CARGO_BIN_EXE_interlock")).exists());
    say("| dialect | run | calls | breaches | marker in result | marker in text | |");
    say("|---|---|---|---|---|---|---|");
    let mut passed = 0;
    for dialect in &DIALECTS {
        for run in 1..=RUNS {
            let (calls, breaches, in_result, in_text) = one(dialect);
            let passes = calls == 1 && breaches == 0 && in_result && in_text;
            passed += usize::from(passes);
            let word = if passes { "pass" } else { "FAIL" };
            say(&format!("| {} | {run} | {calls} | {breaches} | {in_result} | {in_text} | {word} |", dialect.name));
        }
    }
    let all = DIALECTS.len() * RUNS;
    say(&format!("passed: {passed} of {all} (the paper, real models of these names: 15 of 15)"));
    assert_eq!(passed, all);
}
