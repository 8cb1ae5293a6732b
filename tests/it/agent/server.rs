//! A server that speaks as providers do: bytes of recorded shape, whole, split, slow, broken off, or an error instead.
//!
//! It answers the n-th request with the n-th answer of its script and keeps what it was asked. It knows nothing of the
//! product: a request is read as HTTP and JSON, by hand.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

/// The wire formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    Chat,
    Anthropic,
    Responses,
    Gemini,
}

impl Wire {
    /// As the configuration names it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Wire::Chat => "openai",
            Wire::Anthropic => "anthropic",
            Wire::Responses => "openai-responses",
            Wire::Gemini => "gemini",
        }
    }
}

/// One answer.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    /// The status line and more headers.
    head: String,
    /// The pieces of the body, each in a chunk of its own.
    pieces: Vec<Vec<u8>>,
    /// The body is ended as HTTP wants it.
    ended: bool,
    /// The server waits for a word before each piece but the first.
    slow: bool,
}

impl Answer {
    /// A stream of these bytes.
    pub(crate) fn stream(bytes: impl Into<Vec<u8>>) -> Answer {
        Answer { head: "200 OK".into(), pieces: vec![bytes.into()], ended: true, slow: false }
    }

    /// An error instead of a stream.
    pub(crate) fn error(status: &str, more: &str, body: &str) -> Answer {
        let head = if more.is_empty() { status.to_owned() } else { format!("{status}\r\n{more}") };
        Answer { head, pieces: vec![body.into()], ended: true, slow: false }
    }

    /// The same in pieces of so many bytes.
    pub(crate) fn split(mut self, size: usize) -> Answer {
        let whole = self.pieces.concat();
        self.pieces = whole.chunks(size).map(<[u8]>::to_vec).collect();
        self
    }

    /// The same without its last frames, and broken off so many bytes before their beginning; `in_order`: HTTP ends as
    /// it should, only the stream does not.
    pub(crate) fn broken(mut self, frames: usize, bytes: usize, in_order: bool) -> Answer {
        let whole = String::from_utf8(self.pieces.concat()).unwrap();
        let all: Vec<&str> = whole.split_inclusive("\n\n").collect();
        let left = all[..all.len() - frames].concat();
        self.pieces = vec![left.as_bytes()[..left.len() - bytes].to_vec()];
        self.ended = in_order;
        self
    }

    /// The same, a frame at a time, each when the test says so.
    pub(crate) fn slow(mut self) -> Answer {
        let whole = String::from_utf8(self.pieces.concat()).unwrap();
        self.pieces = whole.split_inclusive("\n\n").map(|frame| frame.as_bytes().to_vec()).collect();
        self.slow = true;
        self
    }
}

/// What the server was asked.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) headers: Vec<String>,
    pub(crate) body: Value,
}

pub(crate) struct Server {
    pub(crate) address: String,
    requests: Arc<Mutex<Vec<Request>>>,
    go: Sender<()>,
    gone: Receiver<()>,
}

impl Server {
    /// Answers the n-th request with the n-th of these, and every further one with an error.
    pub(crate) fn start(script: Vec<Answer>) -> Server {
        let mut script = script.into_iter();
        let over = "{\"error\":{\"message\":\"invalid: the script is over\",\"type\":\"invalid\"}}";
        Server::answering(move |_| script.next().unwrap_or_else(|| Answer::error("500 Script Over", "", over)))
    }

    /// Answers each request by what it says.
    pub(crate) fn answering(mut answer: impl FnMut(&Value) -> Answer + Send + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (go, wait) = channel();
        let (went, gone) = channel();
        let kept = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let Some(request) = read(&stream) else { continue };
                let answer = answer(&request.body);
                kept.lock().unwrap().push(request);
                if write(stream, &answer, &wait).is_err() {
                    let _ = went.send(());
                }
            }
        });
        Server { address, requests, go, gone }
    }

    /// What it was asked so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// Lets the next piece of a slow answer go.
    pub(crate) fn go(&self) {
        let _ = self.go.send(());
    }

    /// Waits until a client went away in the middle of an answer.
    pub(crate) fn client_left(&self, deadline: std::time::Duration) -> bool {
        self.gone.recv_timeout(deadline).is_ok()
    }

    /// `[agent]` for it.
    pub(crate) fn config(&self, wire: Wire, more: &str) -> String {
        let base = match wire {
            Wire::Chat | Wire::Responses => "/v1",
            Wire::Anthropic => "",
            Wire::Gemini => "/v1beta",
        };
        let (address, kind) = (&self.address, wire.word());
        format!("[agent]\nendpoint = \"http://{address}{base}\"\nkind = \"{kind}\"\nmodel = \"test-model\"\n{more}\n")
    }
}

fn read(stream: &TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line.trim().is_empty() {
            break;
        }
        lines.push(line.trim().to_owned());
    }
    let length =
        lines.iter().find_map(|line| line.to_lowercase().strip_prefix("content-length: ").map(str::to_owned))?;
    let mut body = vec![0; length.parse().ok()?];
    reader.read_exact(&mut body).ok()?;
    lines.remove(0);
    Some(Request { headers: lines, body: serde_json::from_slice(&body).ok()? })
}

fn write(mut stream: TcpStream, answer: &Answer, wait: &Receiver<()>) -> std::io::Result<()> {
    let head = "Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n";
    write!(stream, "HTTP/1.1 {}\r\n{head}", answer.head)?;
    for (at, piece) in answer.pieces.iter().enumerate() {
        if answer.slow && at > 0 {
            // The test is over when its end of the channel is.
            if wait.recv().is_err() {
                return Ok(());
            }
            // A client that has gone away shows at the second write after it.
            stream.write_all(b"2\r\n\r\n\r\n")?;
        }
        write!(stream, "{:x}\r\n", piece.len())?;
        stream.write_all(piece)?;
        stream.write_all(b"\r\n")?;
        stream.flush()?;
    }
    if answer.ended {
        stream.write_all(b"0\r\n\r\n")?;
    }
    stream.flush()
}

fn frames(values: &[Value]) -> String {
    values.iter().map(|value| format!("data: {value}\n\n")).collect()
}

fn events(values: &[Value]) -> String {
    values.iter().map(|value| format!("event: {}\ndata: {value}\n\n", value["type"].as_str().unwrap())).collect()
}

/// An answer of text, in two pieces.
pub(crate) fn text(wire: Wire, said: &str) -> Answer {
    let (one, two) = said.split_at(said.floor_char_boundary(said.len() / 2));
    Answer::stream(match wire {
        Wire::Chat => {
            let delta = |text: &str| json!({ "id": "c", "object": "chat.completion.chunk", "choices": [{ "index": 0, "delta": { "role": "assistant", "content": text }, "finish_reason": null }] });
            frames(&[
                delta(one),
                delta(two),
                json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] }),
                json!({ "choices": [], "usage": { "prompt_tokens": 50, "completion_tokens": 5, "total_tokens": 55 } }),
            ]) + "data: [DONE]\n\n"
        }
        Wire::Anthropic => {
            let delta = |text: &str| json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": text } });
            events(&[
                json!({ "type": "message_start", "message": { "id": "m", "type": "message", "role": "assistant", "model": "x", "content": [], "stop_reason": null, "usage": { "input_tokens": 50, "output_tokens": 1 } } }),
                json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } }),
                json!({ "type": "ping" }),
                delta(one),
                delta(two),
                json!({ "type": "content_block_stop", "index": 0 }),
                json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn", "stop_sequence": null }, "usage": { "output_tokens": 5 } }),
                json!({ "type": "message_stop" }),
            ])
        }
        Wire::Responses => {
            let delta = |text: &str| json!({ "type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0, "content_index": 0, "delta": text });
            let item = json!({ "id": "msg_1", "type": "message", "status": "completed", "role": "assistant", "content": [{ "type": "output_text", "text": said, "annotations": [] }] });
            events(&[
                json!({ "type": "response.created", "response": { "id": "r", "status": "in_progress", "output": [] } }),
                json!({ "type": "response.output_item.added", "output_index": 0, "item": { "id": "msg_1", "type": "message", "status": "in_progress", "role": "assistant", "content": [] } }),
                json!({ "type": "response.content_part.added", "item_id": "msg_1", "output_index": 0, "content_index": 0, "part": { "type": "output_text", "text": "", "annotations": [] } }),
                delta(one),
                delta(two),
                json!({ "type": "response.output_text.done", "item_id": "msg_1", "output_index": 0, "content_index": 0, "text": said }),
                json!({ "type": "response.output_item.done", "output_index": 0, "item": item }),
                json!({ "type": "response.completed", "response": { "id": "r", "status": "completed", "output": [item], "usage": { "input_tokens": 50, "output_tokens": 5, "total_tokens": 55 } } }),
            ])
        }
        Wire::Gemini => frames(&[
            json!({ "candidates": [{ "content": { "parts": [{ "text": one }], "role": "model" }, "index": 0 }] }),
            json!({ "candidates": [{ "content": { "parts": [{ "text": two }], "role": "model" }, "finishReason": "STOP", "index": 0 }], "usageMetadata": { "promptTokenCount": 50, "candidatesTokenCount": 5 } }),
        ]),
    })
}

/// An answer of calls: id, tool, input. The arguments come in two pieces where the format has pieces.
pub(crate) fn calls(wire: Wire, calls: &[(&str, &str, Value)]) -> Answer {
    let halves = |input: &Value| {
        let text = input.to_string();
        let (one, two) = text.split_at(text.floor_char_boundary(text.len() / 2));
        (one.to_owned(), two.to_owned())
    };
    let numbered = || calls.iter().enumerate();
    Answer::stream(match wire {
        Wire::Chat => {
            let delta = |call: Value| json!({ "choices": [{ "index": 0, "delta": { "tool_calls": [call] }, "finish_reason": null }] });
            let mut all = vec![
                json!({ "choices": [{ "index": 0, "delta": { "role": "assistant", "content": null }, "finish_reason": null }] }),
            ];
            for (at, (id, tool, input)) in numbered() {
                let (one, two) = halves(input);
                all.push(delta(
                    json!({ "index": at, "id": id, "type": "function", "function": { "name": tool, "arguments": "" } }),
                ));
                all.push(delta(json!({ "index": at, "function": { "arguments": one } })));
                all.push(delta(json!({ "index": at, "function": { "arguments": two } })));
            }
            all.push(json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "tool_calls" }] }));
            frames(&all) + "data: [DONE]\n\n"
        }
        Wire::Anthropic => {
            let mut all = vec![
                json!({ "type": "message_start", "message": { "id": "m", "type": "message", "role": "assistant", "model": "x", "content": [], "stop_reason": null, "usage": { "input_tokens": 50, "output_tokens": 1 } } }),
            ];
            for (at, (id, tool, input)) in numbered() {
                let (one, two) = halves(input);
                let delta = |part: String| json!({ "type": "content_block_delta", "index": at, "delta": { "type": "input_json_delta", "partial_json": part } });
                all.push(json!({ "type": "content_block_start", "index": at, "content_block": { "type": "tool_use", "id": id, "name": tool, "input": {} } }));
                all.extend([delta(one), delta(two)]);
                all.push(json!({ "type": "content_block_stop", "index": at }));
            }
            all.push(json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use", "stop_sequence": null }, "usage": { "output_tokens": 9 } }));
            all.push(json!({ "type": "message_stop" }));
            events(&all)
        }
        Wire::Responses => {
            let mut all = vec![
                json!({ "type": "response.created", "response": { "id": "r", "status": "in_progress", "output": [] } }),
            ];
            let mut output = Vec::new();
            for (at, (id, tool, input)) in numbered() {
                let (one, two) = halves(input);
                let item = |status: &str, arguments: &str| json!({ "id": format!("fc_{at}"), "type": "function_call", "status": status, "call_id": id, "name": tool, "arguments": arguments });
                let delta = |part: String| json!({ "type": "response.function_call_arguments.delta", "item_id": format!("fc_{at}"), "output_index": at, "delta": part });
                let whole = item("completed", &input.to_string());
                all.push(json!({ "type": "response.output_item.added", "output_index": at, "item": item("in_progress", "") }));
                all.extend([delta(one), delta(two)]);
                all.push(json!({ "type": "response.function_call_arguments.done", "item_id": format!("fc_{at}"), "output_index": at, "arguments": input.to_string() }));
                all.push(json!({ "type": "response.output_item.done", "output_index": at, "item": whole }));
                output.push(whole);
            }
            all.push(json!({ "type": "response.completed", "response": { "id": "r", "status": "completed", "output": output, "usage": { "input_tokens": 50, "output_tokens": 9, "total_tokens": 59 } } }));
            events(&all)
        }
        Wire::Gemini => {
            let parts: Vec<Value> = calls.iter().map(|(_, tool, input)| json!({ "functionCall": { "name": tool, "args": input }, "thoughtSignature": "c2ln" })).collect();
            frames(&[
                json!({ "candidates": [{ "content": { "parts": parts, "role": "model" }, "index": 0 }] }),
                json!({ "candidates": [{ "content": { "parts": [{ "text": "" }], "role": "model" }, "finishReason": "STOP", "index": 0 }], "usageMetadata": { "promptTokenCount": 50, "candidatesTokenCount": 9 } }),
            ])
        }
    })
}
