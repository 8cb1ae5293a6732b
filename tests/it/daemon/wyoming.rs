//! Voice front ends: the real `wyoming` client in Python, and peers that do not keep to the protocol.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use super::{DEADLINE, Daemon, Home, Register};

fn daemon() -> (Daemon, String, String) {
    let home = Home::new();
    let socket = home.path("voice.sock");
    let text = format!("version = 1\n[wyoming]\nlisten = \"127.0.0.1:0\"\nsocket = {:?}\n", socket.to_str().unwrap());
    let config = home.config(&text);
    let daemon = home.start(Some(&config));
    let tcp = daemon.ask("status", json!({})).unwrap()["wyoming"].as_str().unwrap().to_owned();
    (daemon, tcp, format!("unix://{}", socket.display()))
}

/// A satellite of the `wyoming` package.
struct Satellite {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Satellite {
    fn of(python: &std::path::Path, uri: &str) -> Satellite {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/wyoming_satellite.py");
        let mut child =
            Command::new(python).args([script, uri]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Satellite { child, input, output }
    }

    fn send(&mut self, request: Value) -> Value {
        writeln!(self.input, "{request}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{request}: {error}: {line:?}"))
    }

    fn say(&mut self, text: &str, conversation: &str) -> (String, String) {
        let context = json!({ "conversation_id": conversation, "satellite_id": "hall-1" });
        let data = json!({ "text": text, "language": "zh-CN", "context": context });
        let answer = self.send(json!({ "type": "transcript", "data": data }));
        assert_eq!(answer["data"]["context"], context, "{answer}");
        (answer["type"].as_str().unwrap().to_owned(), answer["data"]["text"].as_str().unwrap().to_owned())
    }
}

impl Drop for Satellite {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_satellite_speaks_and_confirms_over_tcp_and_a_unix_socket() {
    let Some(python) = crate::python() else {
        let name = "daemon::wyoming::a_satellite_speaks_and_confirms_over_tcp_and_a_unix_socket";
        return crate::skipped(name, "no Python with wyoming: run cargo xtask test");
    };
    let (daemon, tcp, unix) = daemon();
    let run = Register::of(&daemon, "pump-2", "run");
    let closed = Register::of(&daemon, "breaker-1", "close");
    for uri in [&tcp, &unix] {
        let mut hall = Satellite::of(&python, uri);
        let info = hall.send(json!({ "type": "describe" }));
        let expected = json!({ "type": "info", "handle": ["interlock", true, ["zh-CN", "zh"]], "intent": 0, "asr": 0 });
        assert_eq!(info, expected);
        let pong = hall.send(json!({ "type": "ping", "data": { "text": "a" } }));
        assert_eq!((&pong["type"], &pong["data"]["text"]), (&json!("pong"), &json!("a")));
        // Unknown events and their payload are read past.
        let past = hall.send(json!({ "type": "audio-chunk", "data": {}, "payload": 32000, "reply": false }));
        assert_eq!(past["data"]["text"], "still here", "{past}");
        let past = hall.send(json!({ "type": "select-program", "data": { "name": "x" }, "reply": false }));
        assert_eq!(past["data"]["text"], "still here", "{past}");

        assert_eq!(hall.say("停止二号泵", "c1").0, "handled");
        assert_eq!(run.read(), 0);
        assert_eq!(hall.say("启动二号泵", "c1").0, "handled");
        assert_eq!(run.read(), 1);
        let (kind, text) = hall.say("不要停止二号泵", "c1");
        assert_eq!((kind.as_str(), run.read()), ("not-handled", 1), "{text}");

        // A dangerous command waits for 确认 in its own conversation.
        assert_eq!(hall.say("断开一号断路器", "c0").0, "handled");
        assert_eq!(hall.say("确认", "c0").0, "handled");
        assert_eq!(closed.read(), 0);
        let (kind, text) = hall.say("合上一号断路器", "c1");
        assert!(kind == "handled" && text.contains("确认"), "{kind} {text}");
        assert_eq!(hall.say("确认", "c2").0, "not-handled");
        assert_eq!(closed.read(), 0);
        assert_eq!(hall.say("确认", "c1").0, "handled");
        assert_eq!(closed.read(), 1);

        // A missing number is asked for and given.
        assert_eq!(hall.say("停止水泵", "c3").0, "handled");
        assert_eq!(run.read(), 1);
        assert_eq!(hall.say("二号", "c3").0, "handled");
        assert_eq!(run.read(), 0);

        // Recognised, and not carried out.
        let intent = hall.send(json!({ "type": "recognize", "data": { "text": "启动二号泵" } }));
        assert_eq!((&intent["type"], &intent["data"]["name"]), (&json!("intent"), &json!("pump_start")), "{intent}");
        assert_eq!(intent["data"]["entities"], json!([{ "name": "device", "value": 2 }]));
        let none = hall.send(json!({ "type": "recognize", "data": { "text": "今天吃什么" } }));
        assert_eq!((none["type"].as_str(), run.read()), (Some("not-recognized"), 0), "{none}");
        let empty = hall.say("", "c4");
        assert_eq!(empty.0, "not-handled");
    }
    let rows = daemon.ask("evidence.query", json!({ "kind": "heard", "text": "hall-1" })).unwrap();
    assert!(rows.as_array().unwrap().len() > 10, "{rows}");
}

/// Writes bytes and reads what comes back until the peer closes.
fn spoken(tcp: &str, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(tcp.trim_start_matches("tcp://")).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    // Unread input makes the close a reset: what came before it is there all the same.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_peer_that_breaks_the_protocol_is_closed_and_the_others_go_on() {
    let (daemon, tcp, _) = daemon();
    for bytes in [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        b"{\"type\":\"transcript\",\"data_length\":99999999999}\n".to_vec(),
        b"{\"type\":\"audio-chunk\",\"payload_length\":18446744073709551615}\n".to_vec(),
        vec![b'x'; 200_000],
        b"{\"type\": 7}\n".to_vec(),
        b"{\"type\":\"transcript\",\"data_length\":2}\n\xff\xfe".to_vec(),
    ] {
        let answer = spoken(&tcp, &bytes);
        assert!(answer.is_empty() || answer.contains("\"bad-event\""), "{answer}");
    }
    // One that never ends its event holds a place, not the service.
    let held: Vec<TcpStream> = (0..16)
        .map(|_| {
            let mut stream = TcpStream::connect(tcp.trim_start_matches("tcp://")).unwrap();
            stream.write_all(b"{\"type\":\"transcript\"").unwrap();
            stream
        })
        .collect();
    let mut stream = TcpStream::connect(tcp.trim_start_matches("tcp://")).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    // Data in the line itself, as old clients send it.
    stream.write_all(b"{\"type\":\"ping\",\"data\":{\"text\":\"inline\"}}\n").unwrap();
    let mut lines = BufReader::new(stream);
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    let header: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(header["type"], "pong");
    let mut data = vec![0; usize::try_from(header["data_length"].as_u64().unwrap()).unwrap()];
    lines.read_exact(&mut data).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&data).unwrap()["text"], "inline");
    drop(held);
    assert_eq!(daemon.say("启动二号泵")["result"], "done");
}

/// What a tool of the daemon started cannot speak for a person, on either way in.
#[test]
fn a_process_of_a_tool_is_sent_away() {
    let Some(python) = crate::python() else {
        let name = "daemon::wyoming::a_process_of_a_tool_is_sent_away";
        return crate::skipped(name, "no Python with wyoming: run cargo xtask test");
    };
    let home = Home::new();
    let socket = home.path("voice.sock");
    let work = home.path("work");
    std::fs::create_dir(&work).unwrap();
    let new = json!({
        "channel": "C", "command": "speak", "text": "自言自语", "risk": "operate",
        "bind": { "tool": "shell", "input": { "command": format!(
            "{} {} \"$(cat uri)\" < event > answer",
            python.display(),
            concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/wyoming_satellite.py"),
        ) } },
    });
    let config = home.config(&format!(
        "version = 1\n[wyoming]\nlisten = \"127.0.0.1:0\"\nsocket = {:?}\n[learning]\npolicy = \"auto\"\n\
         [policy]\nmode = \"bypassPermissions\"\nallow = [\"Bash\"]\nwork-dirs = [{:?}]\n",
        socket.to_str().unwrap(),
        work.to_str().unwrap(),
    ));
    let daemon = home.start(Some(&config));
    let run = Register::of(&daemon, "pump-2", "run");
    let taken = daemon.ask("learn.propose", json!({ "proposal": new })).unwrap();
    assert_eq!(taken["verdict"], "approve", "{taken}");
    let tcp = daemon.ask("status", json!({})).unwrap()["wyoming"].as_str().unwrap().to_owned();
    let event = json!({ "type": "transcript", "data": { "text": "启动二号泵" } });
    std::fs::write(work.join("event"), format!("{event}\n")).unwrap();
    for uri in [tcp, format!("unix://{}", socket.display())] {
        std::fs::write(work.join("uri"), &uri).unwrap();
        let _ = std::fs::remove_file(work.join("answer"));
        let answer = daemon.ask("say", json!({ "text": "自言自语" })).unwrap();
        assert_eq!(answer["result"], "done", "{uri}: {answer}");
        let heard = std::fs::read_to_string(work.join("answer")).unwrap();
        assert!(heard.contains("not-allowed") || heard.contains("closed"), "{uri}: {heard}");
        assert_eq!(run.read(), 0, "{uri}: {heard}");
    }
}

#[test]
fn an_open_network_is_asked_for_by_name() {
    let home = Home::new();
    let check = |text: &str| {
        let path = home.config(text);
        let mut command = Command::new(env!("CARGO_BIN_EXE_interlock"));
        let output = command.arg("check").arg("--config").arg(path).env("LANG", "C").output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, error) = check("version = 1\n[wyoming]\nlisten = \"0.0.0.0:10700\"\n");
    assert!(code == Some(78) && error.contains("wyoming.listen") && error.contains("open-network"), "{error}");
    assert_eq!(check("version = 1\n[wyoming]\nlisten = \"0.0.0.0:10700\"\nopen-network = true\n").0, Some(0));
    let (code, error) = check("version = 1\n[wyoming]\nsocket = \"voice.sock\"\n");
    assert!(code == Some(78) && error.contains("not an absolute path"), "{error}");
}
