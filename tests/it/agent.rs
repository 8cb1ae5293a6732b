//! Runs of a language model against the real daemon and a server that speaks as providers do.

mod below;
mod extend;
mod hostile;
mod interlocks;
mod judge;
mod lazy;
mod llama;
mod resume;
mod server;
mod traced;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use serde_json::{Value, json};
use server::{Answer, Server, Wire, calls, text};

use crate::daemon::{DEADLINE, Daemon, Home, Register};

/// A daemon whose model is this server, and which may do what the rules allow.
fn daemon(server: &Server, wire: Wire, agent: &str, policy: &str) -> Daemon {
    Daemon::with(&format!("version = 1\n{}\n[policy]\n{policy}\n", server.config(wire, agent)))
}

/// A run, told line by line.
struct Run {
    lines: BufReader<UnixStream>,
    all: Vec<Value>,
}

impl Run {
    fn of(daemon: &Daemon, args: Value) -> Run {
        Run::within(daemon, args, DEADLINE)
    }

    /// For a real model on a slow machine.
    fn patient(daemon: &Daemon, args: Value) -> Run {
        Run::within(daemon, args, DEADLINE * 20)
    }

    fn within(daemon: &Daemon, args: Value, deadline: std::time::Duration) -> Run {
        let mut stream = UnixStream::connect(&daemon.socket).unwrap();
        stream.set_read_timeout(Some(deadline)).unwrap();
        writeln!(stream, "{}", json!({ "v": 1, "id": 1, "verb": "agent", "args": args })).unwrap();
        Run { lines: BufReader::new(stream), all: Vec::new() }
    }

    /// The next thing that it says; `None` at its end.
    fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        let line: Value = serde_json::from_str(&line).unwrap();
        assert!(line.get("error").is_none(), "{line}");
        let item = line.get("item").cloned();
        self.all.extend(item.clone());
        item
    }

    fn until(&mut self, event: &str) -> Value {
        loop {
            let told = self.next().unwrap_or_else(|| panic!("no {event} in {:?}", self.all));
            if told["event"] == event {
                return told;
            }
        }
    }

    /// The end, and everything before it.
    fn end(mut self) -> (Value, Vec<Value>) {
        let end = self.until("end");
        while self.next().is_some() {}
        (end, self.all)
    }
}

/// A whole run. Its rows are on the disk: those of reads are written within 50 ms, and no answer waits for them.
fn ask(daemon: &Daemon, text: &str) -> (Value, Vec<Value>) {
    let (end, all) = Run::of(daemon, json!({ "text": text })).end();
    if end["run"].is_string() {
        daemon.eventually("the last row of the run", || rows(daemon, &end["run"], "agent_ended").pop());
    }
    (end, all)
}

fn results(all: &[Value]) -> Vec<(String, String)> {
    let of = |told: &Value, key: &str| told[key].as_str().unwrap_or("-").to_owned();
    all.iter().filter(|told| told["event"] == "result").map(|told| (of(told, "result"), of(told, "code"))).collect()
}

/// What the model was told of the calls of its n-th answer, as JSON text.
fn told_model(server: &Server, request: usize) -> String {
    server.requests()[request].body.to_string()
}

fn rows(daemon: &Daemon, run: &Value, kind: &str) -> Vec<Value> {
    daemon.ask("evidence.query", json!({ "run": run, "kind": kind, "limit": 100 })).unwrap().as_array().unwrap().clone()
}

const READ: (&str, &str, fn() -> Value) = ("c1", "device", || json!({ "device": "pump-2", "action": "read" }));

#[test]
fn a_run_reads_acts_and_says_what_it_did_in_every_dialect() {
    for wire in [Wire::Chat, Wire::Anthropic, Wire::Responses, Wire::Gemini] {
        let (id, tool, input) = READ;
        let start = json!({ "device": "pump-2", "action": "start" });
        let server = Server::start(vec![
            calls(wire, &[(id, tool, input())]).split(7),
            calls(wire, &[("c2", "device", start), ("c3", "system", json!({ "verb": "version" }))]),
            text(wire, "二号泵已启动。"),
        ]);
        let daemon = daemon(&server, wire, "instructions = \"Be brief.\"", "allow = [\"Device(pump-2:start)\"]");
        let register = Register::of(&daemon, "pump-2", "run");
        assert_eq!(register.read(), 0);
        let (end, all) = ask(&daemon, "启动二号泵");
        assert_eq!((&end["outcome"], &end["text"]), (&json!("done"), &json!("二号泵已启动。")), "{wire:?} {all:?}");
        assert_eq!(end["turns"], 3);
        let done = ("done".to_owned(), "-".to_owned());
        assert_eq!(results(&all), [done.clone(), done.clone(), done], "{wire:?}");
        assert_eq!(register.read(), 1, "{wire:?}");
        let said: String =
            all.iter().filter(|told| told["event"] == "text").map(|told| told["text"].as_str().unwrap()).collect();
        assert_eq!(said, "二号泵已启动。", "{wire:?}");
        // The model was asked with its tools, and told what came of its calls.
        let first = told_model(&server, 0);
        assert!(first.contains("Be brief.") && first.contains("write_file") && first.contains("subagent"), "{first}");
        assert!(told_model(&server, 1).contains("pressure"), "{wire:?}");
        assert!(told_model(&server, 2).contains("interlock"), "{wire:?}");
        // One run is one trace: what was asked, each turn, each batch, each call, the end.
        let run = &end["run"];
        for (kind, count) in [
            ("run_opened", 1),
            ("agent_asked", 1),
            ("agent_turn", 3),
            ("agent_dispatched", 2),
            ("settled", 3),
            ("agent_ended", 1),
        ] {
            daemon.eventually(kind, || (rows(&daemon, run, kind).len() == count).then_some(()));
        }
        let asked = &rows(&daemon, run, "agent_asked")[0];
        assert!(asked.to_string().contains("启动二号泵"), "{asked}");
    }
}

#[test]
fn a_question_waits_for_a_person_and_the_model_reads_the_answer() {
    for (answer, word, code, register) in
        [("ask.allow", "done", "-", 1), ("ask.deny", "not_started", "denied_by_person", 0)]
    {
        let start = json!({ "device": "pump-1", "action": "start" });
        let server = Server::start(vec![calls(Wire::Chat, &[("c1", "device", start)]), text(Wire::Chat, "ok")]);
        let daemon = daemon(&server, Wire::Chat, "", "");
        let mut run = Run::of(&daemon, json!({ "text": "start pump 1" }));
        let question = run.until("question");
        assert!(question["about"].as_str().unwrap().contains("pump-1"), "{question}");
        daemon.ask(answer, json!({ "question": question["question"] })).unwrap();
        let (end, all) = run.end();
        assert_eq!(end["outcome"], "done");
        assert_eq!(results(&all), [(word.to_owned(), code.to_owned())]);
        assert_eq!(Register::of(&daemon, "pump-1", "run").read(), register, "{answer}");
        assert_eq!(told_model(&server, 1).contains("denied (denied_by_person)"), register == 0);
    }
}

/// An answer that would start a pump, if it were whole.
fn starts() -> Answer {
    calls(Wire::Chat, &[("c1", "device", json!({ "device": "pump-2", "action": "start" }))])
}

#[test]
fn what_is_not_whole_dispatches_nothing() {
    let check = |answer: Answer, outcome: &str, asked: usize| {
        let server = Server::start(vec![answer.clone(), answer.clone(), answer.clone(), answer]);
        let daemon = daemon(&server, Wire::Chat, "", "allow = [\"Device\"]");
        let (end, all) = ask(&daemon, "go");
        assert_eq!(end["outcome"], outcome, "{all:?}");
        assert_eq!(server.requests().len(), asked, "{outcome}");
        assert_eq!(results(&all), []);
        assert_eq!(Register::of(&daemon, "pump-2", "run").read(), 0, "{outcome}");
        assert!(rows(&daemon, &end["run"], "requested").is_empty());
    };
    // The connection breaks in the arguments, and where they are whole and only the end is missing; HTTP ends in order
    // and the stream does not; a frame is lost; the output is cut in a call.
    check(starts().broken(3, 20, false), "stream_truncated", 3);
    check(starts().broken(2, 0, false), "stream_truncated", 3);
    check(starts().broken(2, 0, true), "stream_truncated", 3);
    check(
        Answer::stream("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\n\ndata: [DONE]\n\n"),
        "malformed",
        3,
    );
    let cut = "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c1\",\"function\":{\"name\":\"device\",\"arguments\":\"{\\\"device\\\":\\\"pu\"}}]},\"finish_reason\":null}]}\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n";
    check(Answer::stream(cut), "output_truncated", 1);
    check(
        Answer::error("401 Unauthorized", "", "{\"error\":{\"type\":\"authentication_error\",\"message\":\"no\"}}"),
        "provider_error",
        1,
    );
    let quota = "{\"error\":{\"type\":\"insufficient_quota\",\"code\":\"insufficient_quota\",\"message\":\"pay\"}}";
    check(Answer::error("429 Too Many Requests", "", quota), "provider_error", 1);
    check(Answer::error("503 Busy", "retry-after: 3600", "{}"), "provider_error", 1);
    check(Answer::error("404 Not Found", "", "<html>nothing here</html>"), "provider_error", 1);
}

#[test]
fn what_passes_is_asked_again_and_then_goes_on() {
    let overloaded =
        "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"x\"}}\n\n";
    for (wire, trouble) in [
        (
            Wire::Chat,
            Answer::error("429 Too Many Requests", "retry-after-ms: 5", "{\"error\":{\"message\":\"slow down\"}}"),
        ),
        (Wire::Chat, Answer::error("500 Oops", "retry-after: 0", "not json")),
        (
            Wire::Anthropic,
            Answer::error(
                "529 Overloaded",
                "retry-after: 0",
                "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"x\"}}",
            ),
        ),
        (Wire::Anthropic, Answer::stream(overloaded)),
        (Wire::Chat, starts().broken(3, 20, false)),
    ] {
        let server = Server::start(vec![trouble, text(wire, "here")]);
        let daemon = daemon(&server, wire, "", "");
        let (end, all) = ask(&daemon, "go");
        assert_eq!((&end["outcome"], &end["text"]), (&json!("done"), &json!("here")), "{all:?}");
        assert!(all.iter().any(|told| told["event"] == "again"), "{all:?}");
        assert_eq!(server.requests()[0].body, server.requests()[1].body);
    }
}

#[test]
fn a_key_is_sent_and_never_shown() {
    let home = Home::new();
    let key = home.path("key");
    std::fs::write(&key, "sk-very-secret\n").unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let refused = Answer::error(
        "401 Unauthorized",
        "",
        "{\"error\":{\"message\":\"bad key\",\"type\":\"authentication_error\"}}",
    );
    let server = Server::start(vec![text(Wire::Anthropic, "ok"), refused]);
    let agent = server.config(Wire::Anthropic, &format!("key-file = \"{}\"", key.display()));
    let config = home.config(&format!("version = 1\n{agent}"));
    let daemon = home.start(Some(&config));
    ask(&daemon, "go");
    let (end, all) = ask(&daemon, "go");
    assert_eq!(end["outcome"], "provider_error");
    let headers = &server.requests()[0].headers;
    assert!(headers.iter().any(|header| header == "x-api-key: sk-very-secret"), "{headers:?}");
    assert!(headers.iter().any(|header| header == "anthropic-version: 2023-06-01"), "{headers:?}");
    let everything = format!("{all:?}{}{:?}", daemon.log(), rows(&daemon, &end["run"], "agent_trouble"));
    assert!(!everything.contains("sk-very-secret"), "{everything}");
    // A key that others can read is refused at a reload, by name, and the old configuration stays.
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let error = daemon.ask("reload", json!({})).unwrap_err();
    assert!(error["message"].as_str().unwrap().contains("can be read by others"), "{error}");
}

#[test]
fn a_client_that_goes_away_ends_its_run() {
    let server = Server::start(vec![text(Wire::Chat, "one two three four").slow()]);
    let daemon = daemon(&server, Wire::Chat, "", "");
    let mut run = Run::of(&daemon, json!({ "text": "go" }));
    let begun = run.until("begin");
    run.until("text");
    drop(run);
    // The daemon closes its connection to the provider, which shows at the next writes.
    let until = std::time::Instant::now() + DEADLINE;
    while !server.client_left(std::time::Duration::from_millis(20)) {
        assert!(std::time::Instant::now() < until, "the daemon goes on listening\n{}", daemon.log());
        server.go();
    }
    let ended = daemon.eventually("the end", || rows(&daemon, &begun["run"], "agent_ended").pop());
    assert_eq!(ended["to"], "cancelled");
}

#[test]
fn a_cancelled_run_settles_what_it_began() {
    let sleep = json!({ "command": "sleep 600" });
    let server = Server::start(vec![calls(Wire::Chat, &[("c1", "shell", sleep)])]);
    let daemon = daemon(&server, Wire::Chat, "", "allow = [\"Bash(sleep 600)\"]");
    let mut run = Run::of(&daemon, json!({ "text": "go" }));
    let begun = run.until("begin");
    run.until("call");
    daemon.eventually("the start", || rows(&daemon, &begun["run"], "started").pop());
    drop(run);
    let settled = daemon.eventually("the settlement", || rows(&daemon, &begun["run"], "settled").pop());
    assert_eq!((&settled["to"], &settled["cause"]), (&json!("unknown"), &json!("stopped")), "{settled}");
    daemon.eventually("the end", || rows(&daemon, &begun["run"], "agent_ended").pop());
}

#[test]
fn a_slow_stream_is_told_as_it_comes() {
    let server = Server::start(vec![text(Wire::Anthropic, "one two").slow()]);
    let daemon = daemon(&server, Wire::Anthropic, "", "");
    let mut run = Run::of(&daemon, json!({ "text": "go" }));
    run.until("begin");
    for _ in 0..3 {
        server.go();
    }
    assert_eq!(run.until("text")["text"], "one");
    for _ in 0..8 {
        server.go();
    }
    assert_eq!(run.until("text")["text"], " two");
    let (end, _) = run.end();
    assert_eq!(end["text"], "one two");
}

/// A hook that runs this shell script.
fn hook(home: &Home, name: &str, script: &str) -> String {
    let path = home.path(name);
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

#[test]
fn hooks_may_deny_and_change_and_never_allow() {
    let check = |when: &str, script: &str, command: &str, policy: &str, expected: (&str, &str), told: &str| {
        let home = Home::new();
        let path = hook(&home, "hook", script);
        let server = Server::start(vec![
            calls(Wire::Chat, &[("c1", "shell", json!({ "command": command }))]),
            text(Wire::Chat, "ok"),
        ]);
        let hooks =
            format!("[[agent.hook]]\non = \"{when}\"\ntools = [\"shell\"]\ncommand = [\"{path}\"]\ntimeout = 2");
        let config = home.config(&format!("version = 1\n{}\n[policy]\n{policy}\n", server.config(Wire::Chat, &hooks)));
        let daemon = home.start(Some(&config));
        let (end, all) = ask(&daemon, "go");
        assert_eq!(end["outcome"], "done", "{all:?}");
        assert_eq!(results(&all), [(expected.0.to_owned(), expected.1.to_owned())], "{script}");
        let model = told_model(&server, 1);
        assert!(model.contains(told), "{script}: {model}");
    };
    let allow = "allow = [\"Bash(echo:*)\"]\ndeny = [\"Bash(rm:*)\"]";
    check("before", "exit 0", "echo hi", allow, ("done", "-"), "hi\\\\n");
    check(
        "before",
        "echo too dangerous >&2; exit 2",
        "echo hi",
        allow,
        ("not_started", "-"),
        "denied (hook): too dangerous",
    );
    check(
        "before",
        "echo '{\"decision\":\"deny\",\"reason\":\"no\"}'",
        "echo hi",
        allow,
        ("not_started", "-"),
        "denied (hook): no",
    );
    // What it changes is judged again; its allow beats nothing.
    check("before", "echo '{\"input\":{\"command\":\"echo changed\"}}'", "echo hi", allow, ("done", "-"), "changed");
    check(
        "before",
        "echo '{\"decision\":\"allow\",\"input\":{\"command\":\"rm -rf x\"}}'",
        "echo hi",
        allow,
        ("not_started", "denied"),
        "denied (denied)",
    );
    check("before", "echo '{\"decision\":\"allow\"}'", "rm -rf x", allow, ("not_started", "denied"), "denied (denied)");
    // One that does not answer as it should counts as a no.
    check("before", "sleep 60", "echo hi", allow, ("not_started", "-"), "took longer than 2 s");
    check("before", "exit 1", "echo hi", allow, ("not_started", "-"), "ended with exit code 1");
    check("before", "echo nonsense", "echo hi", allow, ("not_started", "-"), "no JSON object");
    check(
        "before",
        "grep -q '\"command\":\"echo hi\"' && exit 2",
        "echo hi",
        allow,
        ("not_started", "-"),
        "denied (hook)",
    );
    check("after", "echo '{\"add\":\"mind the gap\"}'", "echo hi", allow, ("done", "-"), "[hook] mind the gap");
    check("after", "echo secret >&2; exit 2", "echo hi", allow, ("done", "-"), "withheld by a hook: secret");
    check("after", "exit 3", "echo hi", allow, ("done", "-"), "hi\\\\n");
}

#[test]
fn a_narrower_mode_is_kept_and_a_wider_one_is_not_given() {
    for (configured, wanted, mode) in
        [("default", "plan", "plan"), ("plan", "bypassPermissions", "plan"), ("acceptEdits", "default", "default")]
    {
        let write = json!({ "path": "a.txt", "content": "x" });
        let server = Server::start(vec![calls(Wire::Chat, &[("c1", "write_file", write)]), text(Wire::Chat, "ok")]);
        let daemon = daemon(&server, Wire::Chat, "", &format!("mode = \"{configured}\"\nallow = [\"Edit\"]"));
        let (end, all) = Run::of(&daemon, json!({ "text": "go", "mode": wanted })).end();
        let opened = daemon.eventually("the row", || rows(&daemon, &end["run"], "run_opened").pop());
        assert_eq!(opened["to"], mode, "{configured} {wanted}");
        let expected = if mode == "plan" { ("not_started", "denied") } else { ("done", "-") };
        assert_eq!(results(&all), [(expected.0.to_owned(), expected.1.to_owned())], "{configured} {wanted}");
    }
}

#[test]
fn a_long_result_lies_on_the_disk_and_is_read_back_by_the_model() {
    let home = Home::new();
    let work = home.path("work");
    std::fs::create_dir(&work).unwrap();
    let long: String = (0..20_000).map(|n| format!("line {n}\n")).collect();
    std::fs::write(work.join("long.txt"), &long).unwrap();
    // The path of the spilled text is a function of the text and the run, so the model has to read it where it was told.
    let server = Server::start(vec![
        calls(Wire::Chat, &[("c1", "read_file", json!({ "path": "long.txt", "limit": 200_000 }))]),
        Answer::error("500 Wait", "retry-after: 0", "{}"),
    ]);
    let config = home.config(&format!(
        "version = 1\n{}\n[policy]\nwork-dirs = [\"{}\"]\n",
        server.config(Wire::Chat, "window = 8192\noutput = 1024"),
        work.display()
    ));
    let daemon = home.start(Some(&config));
    let mut run = Run::of(&daemon, json!({ "text": "read it" }));
    let begun = run.until("begin");
    let compacted = run.until("compacted");
    assert_eq!(compacted["levels"], json!(["spill"]), "{compacted}");
    daemon.eventually("the second request", || (server.requests().len() > 1).then_some(()));
    // Who asked goes away, and the run ends.
    drop(run);
    let told = told_model(&server, 1);
    let at = told.find("read_file /").unwrap_or_else(|| panic!("{told}")) + "read_file ".len();
    let path: String = told[at..].chars().take_while(|c| !c.is_whitespace()).collect();
    let spilled = std::fs::read_to_string(&path).unwrap();
    assert!(spilled.contains("line 18000"), "{path}");
    let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    assert!(path.contains(begun["run"].as_str().unwrap()));
    daemon.eventually("the end", || rows(&daemon, &begun["run"], "agent_ended").pop());
    // Another life of the conversation may read it; a run that has nothing to do with it may not.
    for (resume, result) in [(true, "done"), (false, "not_started")] {
        let server = Server::start(vec![
            calls(Wire::Chat, &[("c9", "read_file", json!({ "path": path, "limit": 100 }))]),
            text(Wire::Chat, "ok"),
        ]);
        let text = format!(
            "version = 1\n{}\n[policy]\nmode = \"dontAsk\"\nwork-dirs = [\"{}\"]\n",
            server.config(Wire::Chat, ""),
            work.display()
        );
        std::fs::write(&config, text).unwrap();
        daemon.ask("reload", json!({})).unwrap();
        let mut args = json!({ "text": "again" });
        if resume {
            args["resume"] = begun["run"].clone();
        }
        let (_, all) = Run::of(&daemon, args).end();
        assert_eq!(results(&all)[0].0, result, "{all:?}");
    }
}

#[test]
fn a_full_window_is_folded_into_a_summary_of_the_model_or_a_plain_one() {
    for (written, mark) in [(true, "SUMMARY-BY-MODEL"), (false, "call shell")] {
        let mut asked = 0;
        let server = Server::answering(move |body| {
            if body.to_string().contains("<record>") {
                let refused =
                    Answer::error("400 Bad Request", "", "{\"error\":{\"type\":\"invalid\",\"message\":\"no\"}}");
                return if written { text(Wire::Chat, "SUMMARY-BY-MODEL: so far so good") } else { refused };
            }
            asked += 1;
            // Long inputs: what no lower level may touch.
            let command = format!("true # {asked} {}", "x".repeat(4000));
            match asked {
                1..=8 => calls(Wire::Chat, &[("", "shell", json!({ "command": command }))]),
                _ => text(Wire::Chat, "done"),
            }
        });
        let daemon = daemon(&server, Wire::Chat, "window = 12000\noutput = 1000", "allow = [\"Bash(true:*)\"]");
        let (end, all) = ask(&daemon, "the first request");
        assert_eq!(end["outcome"], "done", "{all:?}");
        let folded: Vec<&Value> = all.iter().filter(|told| told["event"] == "compacted").collect();
        assert!(
            !folded.is_empty() && folded.iter().all(|told| told["levels"].to_string().contains("fold")),
            "{folded:?}"
        );
        let last = server.requests().pop().unwrap().body.to_string();
        assert!(last.contains(mark) && last.contains("the first request"), "{last}");
        daemon.eventually("the row", || rows(&daemon, &end["run"], "agent_compacted").pop());
    }
}

#[test]
fn a_conversation_goes_on_after_the_daemon_was_killed() {
    let sleep = json!({ "command": "sleep 600" });
    let server = Server::start(vec![
        calls(Wire::Anthropic, &[("c1", "shell", sleep), ("c2", "system", json!({ "verb": "version" }))]),
        text(Wire::Anthropic, "I see"),
    ]);
    let home = Home::new();
    let config = home.config(&format!(
        "version = 1\n{}\n[policy]\nallow = [\"Bash(sleep 600)\"]\n",
        server.config(Wire::Anthropic, "")
    ));
    let daemon = home.start(Some(&config));
    let mut run = Run::of(&daemon, json!({ "text": "sleep well" }));
    let begun = run.until("begin");
    daemon.eventually("the start", || rows(&daemon, &begun["run"], "started").pop());
    let home = daemon.kill();
    drop(run);
    let daemon = home.start(Some(&config));
    let (end, _) = Run::of(&daemon, json!({ "text": "and now?", "resume": begun["run"] })).end();
    assert_eq!((&end["outcome"], &end["text"]), (&json!("done"), &json!("I see")));
    let messages = &server.requests()[1].body["messages"];
    assert_eq!(messages.as_array().unwrap().len(), 3, "{messages}");
    let last = messages[2]["content"].to_string();
    assert!(last.contains("[outcome_unknown]") && last.contains("and now?"), "{last}");
    assert!(last.contains("\"tool_use_id\":\"c1\"") && last.contains("\"tool_use_id\":\"c2\""), "{last}");
    let error = Run::of(&daemon, json!({ "text": "x", "resume": "01KB9H0M800000000000000007" }));
    let mut lines = error.lines;
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert!(line.contains("there is no conversation"), "{line}");
}

/// The child's answers come from the same server, in the order in which they are asked for.
#[test]
fn a_subagent_has_at_most_what_its_parent_has() {
    let home = Home::new();
    let work = home.path("work");
    std::fs::create_dir(&work).unwrap();
    std::fs::write(work.join("a.txt"), "the marker").unwrap();
    let profile = "[[agent.profile]]\nname = \"reader\"\ndescription = \"reads files\"\ninstructions = \"You read.\"\n\
        allow = [\"read_file\", \"write_file\"]\ndeny = [\"write_file\"]\nmode = \"bypassPermissions\"\n";
    let task = json!({ "task": "read a.txt", "profile": "reader", "tools": ["read_file", "write_file", "shell"] });
    let server = Server::start(vec![
        calls(Wire::Chat, &[("p1", "subagent", task)]),
        calls(
            Wire::Chat,
            &[
                ("k1", "read_file", json!({ "path": "a.txt" })),
                ("k2", "write_file", json!({ "path": "b.txt", "content": "x" })),
                ("k3", "shell", json!({ "command": "touch c.txt" })),
                ("k4", "subagent", json!({ "task": "again" })),
            ],
        ),
        text(Wire::Chat, "it says: the marker"),
        text(Wire::Chat, "done"),
    ]);
    let config = home.config(&format!(
        "version = 1\n{}\n[policy]\nallow = [\"Edit\", \"Bash\"]\nwork-dirs = [\"{}\"]\n",
        server.config(Wire::Chat, profile),
        work.display()
    ));
    let daemon = home.start(Some(&config));
    let (end, all) = ask(&daemon, "what is in a.txt?");
    assert_eq!(end["outcome"], "done", "{all:?}");
    assert_eq!(results(&all), [("done".to_owned(), "-".to_owned())]);
    // The child is told of its tools only, and of what it is.
    let child = &server.requests()[1].body;
    let names: Vec<&str> =
        child["tools"].as_array().unwrap().iter().map(|tool| tool["function"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["read_file"]);
    assert!(child["messages"][0]["content"].as_str().unwrap().contains("You read."));
    assert_eq!(child["messages"].as_array().unwrap().len(), 2, "a cold start knows its task alone");
    // A call outside the surface is a typed error at execution too.
    let told = told_model(&server, 2);
    assert_eq!(told.matches("no_such_tool").count(), 3, "{told}");
    assert!(told.contains("the marker"), "{told}");
    assert!(!work.join("b.txt").exists() && !work.join("c.txt").exists());
    assert!(told_model(&server, 3).contains("it says: the marker"));
    let opened = daemon.ask("evidence.query", json!({ "kind": "run_opened", "limit": 10 })).unwrap();
    let child =
        opened.as_array().unwrap().iter().find(|row| row["detail"].to_string().contains(end["run"].as_str().unwrap()));
    assert_eq!(child.unwrap()["to"], "default", "the mode is clamped to the parent's");
}

#[test]
fn a_waiting_parent_holds_nothing_and_what_stands_behind_it_waits() {
    let home = Home::new();
    let work = home.path("work");
    std::fs::create_dir(&work).unwrap();
    // The child writes the very file that the parent's next call writes, and runs a barrier of its own.
    let write = |text: &str| json!({ "path": "a.txt", "content": text, "mode": "overwrite" });
    let server = Server::start(vec![
        calls(Wire::Chat, &[("p1", "subagent", json!({ "task": "write it" })), ("p2", "write_file", write("parent"))]),
        calls(
            Wire::Chat,
            &[("k1", "write_file", write("child")), ("k2", "shell", json!({ "command": "cp a.txt seen.txt" }))],
        ),
        text(Wire::Chat, "written"),
        text(Wire::Chat, "done"),
    ]);
    let config = home.config(&format!(
        "version = 1\n{}\n[policy]\nallow = [\"Edit\", \"Bash\"]\nwork-dirs = [\"{}\"]\n",
        server.config(Wire::Chat, ""),
        work.display()
    ));
    std::fs::write(work.join("a.txt"), "before").unwrap();
    let daemon = home.start(Some(&config));
    let (end, all) = ask(&daemon, "go");
    assert_eq!(end["outcome"], "done", "{all:?}");
    assert_eq!(std::fs::read_to_string(work.join("seen.txt")).unwrap(), "child");
    assert_eq!(std::fs::read_to_string(work.join("a.txt")).unwrap(), "parent");
}

#[test]
fn a_subagent_in_a_work_tree_writes_there_and_says_what_that_separates() {
    if std::process::Command::new("git").arg("--version").output().is_err() {
        return crate::skipped(
            "a_subagent_in_a_work_tree_writes_there_and_says_what_that_separates",
            "git is not here",
        );
    }
    let home = Home::new();
    let work = home.path("work");
    std::fs::create_dir(&work).unwrap();
    let git = |arguments: &[&str]| {
        let who = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"];
        let done = std::process::Command::new("git").current_dir(&work).args(who).args(arguments).output().unwrap();
        assert!(done.status.success(), "{done:?}");
    };
    git(&["init", "-q"]);
    std::fs::write(work.join("a.txt"), "committed").unwrap();
    git(&["add", "a.txt"]);
    git(&["commit", "-q", "-m", "a"]);
    let profile = "[[agent.profile]]\nname = \"apart\"\nworktree = true\n";
    let write = json!({ "path": "a.txt", "content": "changed", "mode": "overwrite" });
    let server = Server::start(vec![
        calls(Wire::Chat, &[("p1", "subagent", json!({ "task": "change a.txt", "profile": "apart" }))]),
        calls(Wire::Chat, &[("k1", "write_file", write)]),
        text(Wire::Chat, "changed"),
        text(Wire::Chat, "done"),
    ]);
    let config = home.config(&format!(
        "version = 1\n{}\n[policy]\nmode = \"acceptEdits\"\nwork-dirs = [\"{}\"]\n",
        server.config(Wire::Chat, profile),
        work.display()
    ));
    let daemon = home.start(Some(&config));
    let (end, all) = ask(&daemon, "go");
    assert_eq!(end["outcome"], "done", "{all:?}");
    assert_eq!(std::fs::read_to_string(work.join("a.txt")).unwrap(), "committed");
    assert!(told_model(&server, 1).contains("separates what you write into the repository and nothing else"));
    let result: Value =
        serde_json::from_str(all.iter().find(|told| told["event"] == "result").unwrap()["text"].as_str().unwrap())
            .unwrap();
    assert_eq!(result["worktree"]["changed"], true, "{result}");
    let tree = PathBuf::from(result["worktree"]["path"].as_str().unwrap());
    assert_eq!(std::fs::read_to_string(tree.join("a.txt")).unwrap(), "changed");
}

#[test]
fn without_a_model_it_says_what_to_do() {
    let daemon = Daemon::start();
    let error = daemon.ask("agent", json!({ "text": "go" })).unwrap_err();
    assert!(error["hint"].as_str().unwrap().contains("[agent]"), "{error}");
    let output = daemon.cli(&["agent", "go"]);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn the_verb_prints_the_words_as_they_come_and_a_line_for_each_call() {
    let (id, tool, input) = READ;
    let server = Server::start(vec![calls(Wire::Chat, &[(id, tool, input())]), text(Wire::Chat, "fine\u{1b}[2J")]);
    let daemon = daemon(&server, Wire::Chat, "", "");
    let output = daemon.cli(&["agent", "look", "at", "it"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with("device {\"action\":\"read\""), "{said}");
    assert!(lines[1].trim_start().starts_with("done"), "{said}");
    assert_eq!(lines[2], "fine\u{fffd}[2J");
    assert!(lines[3].trim_start().starts_with("run "), "{said}");
    assert_eq!(server.requests()[0].body["messages"][1]["content"], "look at it");
}
