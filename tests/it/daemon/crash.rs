//! `kill -9` at any moment: nothing that was acknowledged is lost, and every call has an end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::{Daemon, Home};

/// So many times is the plug pulled; `INTERLOCK_KILLS` sets another number for a long run.
fn kills() -> u64 {
    std::env::var("INTERLOCK_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(50)
}

#[test]
fn fifty_kills_under_load_lose_nothing_and_leave_no_call_without_an_end() {
    let mut home = Home::new();
    let mut dice = fastrand::Rng::with_seed(20270813);
    for round in 0..kills() {
        let daemon = home.start(None);
        let acknowledged = AtomicU64::new(0);
        let wait = Duration::from_millis(dice.u64(5..250));
        std::thread::scope(|scope| {
            for speaker in 0..3 {
                let (daemon, acknowledged) = (&daemon, &acknowledged);
                scope.spawn(move || load(daemon, speaker, acknowledged));
            }
            let pid = nix::unistd::Pid::from_raw(i32::try_from(daemon.child.id()).unwrap());
            // The moment of a crash is what is random here: there is no event to wait for.
            std::thread::park_timeout(wait);
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
        });
        home = daemon.kill();
        let verify = verdict(&home);
        assert_eq!(verify["verdict"], "INTACT", "round {round}: {verify}");
        let told = acknowledged.load(Ordering::SeqCst);
        assert!(verify["anchored_to"].as_u64().unwrap() >= told, "round {round}: row {told} was told, {verify}");
    }
    let daemon = home.start(None);
    let rows = daemon.ask("evidence.query", json!({ "since": 1, "limit": 10_000 })).unwrap();
    let mut after = rows.as_array().unwrap().last().map_or(0, |row| row["seq"].as_u64().unwrap());
    let mut rows = rows.as_array().unwrap().clone();
    loop {
        let more = daemon.ask("evidence.query", json!({ "since": after + 1, "limit": 10_000 })).unwrap();
        let Some(last) = more.as_array().unwrap().last() else { break };
        after = last["seq"].as_u64().unwrap();
        rows.extend(more.as_array().unwrap().iter().cloned());
    }
    every_call_has_one_end(&rows);
}

/// Speaks until the daemon is gone, and keeps the newest row that it was told of.
fn load(daemon: &Daemon, speaker: u64, acknowledged: &AtomicU64) {
    use std::io::{BufRead, BufReader, Write};
    let Ok(mut stream) = std::os::unix::net::UnixStream::connect(&daemon.socket) else { return };
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    for turn in 0_u64.. {
        let pump = ["一", "二", "三"][usize::try_from(turn % 3).unwrap()];
        let text = match (turn + speaker) % 4 {
            0 => format!("启动{pump}号泵"),
            1 => format!("停止{pump}号泵"),
            2 => format!("不要启动{pump}号泵"),
            _ => format!("查看{pump}号水泵状态"),
        };
        let request = json!({ "v": 1, "id": 1, "verb": "say", "args": { "text": text } });
        if writeln!(stream, "{request}").is_err() {
            return;
        }
        let mut line = String::new();
        if !matches!(answers.read_line(&mut line), Ok(length) if length > 0) {
            return;
        }
        let Ok(answer) = serde_json::from_str::<Value>(&line) else { return };
        if let Some(seq) = answer["ok"]["evidence"].as_u64() {
            acknowledged.fetch_max(seq, Ordering::SeqCst);
        }
    }
}

fn verdict(home: &Home) -> Value {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_interlock"))
        .args(["evidence", "verify", "--json", "--state"])
        .arg(home.path("state"))
        .output()
        .unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

fn every_call_has_one_end(rows: &[Value]) {
    let mut requested = BTreeSet::new();
    let mut intents = BTreeSet::new();
    let mut settled: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for row in rows {
        let Some(call) = row["call"].as_str() else { continue };
        match row["kind"].as_str().unwrap() {
            "requested" => {
                requested.insert(call.to_owned());
            }
            "intent" => {
                intents.insert(call.to_owned());
            }
            "outcome" => assert!(intents.contains(call), "{call} has an outcome and no intent before it"),
            "settled" => settled.entry(call.to_owned()).or_default().push(row["to"].as_str().unwrap().to_owned()),
            _ => {}
        }
    }
    assert!(requested.len() > 50, "the load was no load: {} calls", requested.len());
    for call in &requested {
        assert_eq!(settled.get(call).map(Vec::len), Some(1), "{call} ended {:?}", settled.get(call));
    }
}

#[test]
fn what_was_under_way_is_unknown_after_a_kill_and_a_person_settles_it() {
    // A device that takes the request and never answers: the call hangs between intent and outcome.
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = mute.local_addr().unwrap().port();
    let home = Home::new();
    let path = home.config(&format!(
        "version = 1\n[[bus]]\nname = \"line\"\ntcp = \"127.0.0.1:{port}\"\n\
         [[device]]\nname = \"pump-1\"\nkind = \"pump\"\nbus = \"line\"\nunit = 1\n\
         [device.points]\nrun = {{ coil = 0 }}\n\
         [device.actions]\nstart = {{ writes = [{{ point = \"run\", value = true }}] }}\n"
    ));
    let daemon = home.start(Some(&path));
    std::thread::scope(|scope| {
        let daemon = &daemon;
        let speaker = scope.spawn(move || {
            use std::io::{Read, Write};
            let mut stream = std::os::unix::net::UnixStream::connect(&daemon.socket).unwrap();
            writeln!(stream, "{}", json!({ "v": 1, "id": 1, "verb": "say", "args": { "text": "启动一号泵" } }))
                .unwrap();
            // Nothing comes: the daemon dies first.
            let mut rest = String::new();
            let _ = stream.read_to_string(&mut rest);
        });
        // The request is on the wire: its intent is in the log.
        let (mut wire, _) = mute.accept().unwrap();
        std::io::Read::read_exact(&mut wire, &mut [0; 12]).unwrap();
        daemon.signal(nix::sys::signal::Signal::SIGKILL);
        speaker.join().unwrap();
    });
    let home = daemon.kill();
    let daemon = home.start(Some(&path));
    let open = daemon.list("ask.list");
    assert_eq!(open.len(), 1, "{open:?}");
    assert_eq!((&open[0]["kind"], &open[0]["expires_ms"]), (&json!("outcome"), &json!(null)), "{open:?}");
    let settled = daemon.ask("evidence.query", json!({ "kind": "settled", "limit": 10 })).unwrap();
    let unknown: Vec<_> = settled.as_array().unwrap().iter().map(|row| row["to"].clone()).collect();
    assert_eq!(unknown, ["unknown"], "{settled}");
    let question = open[0]["question"].as_str().unwrap();
    assert_eq!(daemon.cli(&["ask", "allow", question]).status.code(), Some(64));
    let done = daemon.cli(&["ask", "settle", question, "done", "--note", "seen running on site"]);
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    assert!(daemon.list("ask.list").is_empty());
    let resolved = daemon.ask("evidence.query", json!({ "kind": "resolved", "limit": 10 })).unwrap();
    assert_eq!(resolved[0]["to"], "done", "{resolved}");
    // It stays so after another life.
    let home = daemon.kill();
    let daemon = home.start(Some(&path));
    assert!(daemon.list("ask.list").is_empty());
}
