//! An operator's sentences, from the wire to the register.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{DEADLINE, Daemon, Register};

#[test]
fn a_sentence_changes_a_register_that_another_client_reads_back() {
    let daemon = Daemon::start();
    let run = Register::of(&daemon, "pump-2", "run");
    assert_eq!(run.read(), 0);
    let answer = daemon.say("启动二号泵");
    assert_eq!((&answer["outcome"], &answer["command"]), (&json!("command"), &json!("pump_start")), "{answer}");
    assert_eq!((&answer["decision"], &answer["result"]), (&json!("allow"), &json!("done")), "{answer}");
    assert_eq!(answer["slots"], json!({ "device": 2 }));
    assert!(answer["evidence"].as_u64().is_some_and(|seq| seq > 0), "{answer}");
    assert_eq!(run.read(), 1);
}

#[test]
fn what_is_forbidden_asked_or_told_changes_nothing() {
    let daemon = Daemon::start();
    let run = Register::of(&daemon, "pump-2", "run");
    for sentence in [
        "不要启动二号泵",
        "能不能启动二号泵",
        "他说启动二号泵",
        "如果水位高了就启动二号泵",
        "昨天启动二号泵",
        "启动九号泵",
    ] {
        let answer = daemon.say(sentence);
        assert_eq!((&answer["decision"], &answer["result"]), (&json!(null), &json!(null)), "{sentence}: {answer}");
        assert!(answer["evidence"].as_u64().is_some(), "{sentence}: {answer}");
        assert_eq!(run.read(), 0, "{sentence}");
    }
    assert_eq!(daemon.cli(&["say", "不要启动二号泵"]).status.code(), Some(1));
    // Asking whether it runs is a question that may be answered: it reads.
    assert_eq!(daemon.say("二号泵启动了吗")["command"], "pump_status");
    assert_eq!(run.read(), 0);
}

#[test]
fn a_set_point_is_written_with_its_scale() {
    let daemon = Daemon::start();
    let opening = Register::of(&daemon, "valve-1", "opening-set");
    let answer = daemon.say("把一号阀门开度调到百分之四十");
    assert_eq!(answer["result"], "done", "{answer}");
    let rows = daemon.list("device.list");
    let row = rows.iter().find(|row| row["device"] == "valve-1" && row["point"] == "opening-set").unwrap();
    let scale = row["scale"].as_f64().unwrap();
    assert!((f64::from(opening.read()) * scale - 40.0).abs() < 1e-9, "{row}");
}

#[test]
fn a_device_that_is_not_named_is_asked_for() {
    let daemon = Daemon::start();
    let answer = daemon.say("启动水泵");
    assert_eq!((&answer["outcome"], &answer["missing"]), (&json!("incomplete"), &json!(["device"])), "{answer}");
    assert_eq!(answer["result"], json!(null));
    // There is only one boiler: stopping it needs no number.
    assert_eq!(daemon.say("锅炉停炉")["result"], "done");
}

#[test]
fn a_dangerous_command_waits_and_its_confirmation_is_bound_to_it() {
    let daemon = Daemon::start();
    let closed = Register::of(&daemon, "breaker-1", "close");
    let asked = daemon.say("合上一号断路器");
    assert_eq!((&asked["decision"], &asked["result"]), (&json!("ask"), &json!(null)), "{asked}");
    let question = asked["question"].as_str().unwrap().to_owned();
    let open = daemon.list("ask.list");
    assert_eq!((&open[0]["question"], &open[0]["kind"]), (&json!(question), &json!("confirm")), "{open:?}");
    assert_eq!(closed.read(), 0);

    // Another sentence in between takes the voice's way to the question away.
    daemon.say("查看母线电压");
    let lost = daemon.say("确认");
    assert_eq!(lost["result"], json!(null), "{lost}");
    assert_eq!(closed.read(), 0);

    let allowed = daemon.cli(&["ask", "allow", &question, "--json"]);
    assert_eq!(allowed.status.code(), Some(0), "{allowed:?}");
    let settlement: serde_json::Value = serde_json::from_slice(&allowed.stdout).unwrap();
    assert_eq!(settlement["result"], "done", "{settlement}");
    assert_eq!(closed.read(), 1);
    // The first answer wins; a second one is told so.
    assert_eq!(daemon.cli(&["ask", "deny", &question]).status.code(), Some(1));
}

#[test]
fn the_second_utterance_confirms_or_takes_back() {
    let daemon = Daemon::start();
    let closed = Register::of(&daemon, "breaker-1", "close");
    assert_eq!(daemon.say("合上一号断路器")["decision"], "ask");
    let denied = daemon.say("取消");
    assert_eq!((&denied["decision"], &denied["result"]), (&json!("deny"), &json!("not_started")), "{denied}");
    assert_eq!(closed.read(), 0);
    assert_eq!(daemon.say("合上一号断路器")["decision"], "ask");
    let confirmed = daemon.say("确认");
    assert_eq!((&confirmed["decision"], &confirmed["result"]), (&json!("allow"), &json!("done")), "{confirmed}");
    assert_eq!(closed.read(), 1);
}

#[test]
fn an_emergency_stop_does_not_wait() {
    let daemon = Daemon::start();
    let pump = Register::of(&daemon, "pump-1", "running");
    assert_eq!(daemon.say("启动一号泵")["result"], "done");
    daemon.eventually("the pump", || (pump.read() == 1).then_some(()));
    let answer = daemon.say("全线急停");
    assert_eq!((&answer["decision"], &answer["result"]), (&json!("allow"), &json!("done")), "{answer}");
    daemon.eventually("the standstill", || (pump.read() == 0).then_some(()));
}

#[test]
fn confirm_protective_makes_it_wait() {
    let daemon = Daemon::with("version = 1\n[safety]\nconfirm-protective = true\n");
    assert_eq!(daemon.say("全线急停")["decision"], "ask");
}

#[test]
fn a_sequence_runs_in_order_or_not_at_all() {
    let daemon = Daemon::start();
    let run = Register::of(&daemon, "pump-2", "run");
    let answer = daemon.say("启动二号泵，然后打开一号阀门");
    assert_eq!(answer["outcome"], "sequence", "{answer}");
    let steps: Vec<_> = answer["steps"].as_array().unwrap().iter().map(|step| step["result"].clone()).collect();
    assert_eq!(steps, ["done", "done"], "{answer}");
    assert_eq!(run.read(), 1);
    let daemon = Daemon::start();
    let run = Register::of(&daemon, "pump-2", "run");
    let answer = daemon.say("启动二号泵，然后打开九号阀门");
    assert_eq!(answer["result"], json!(null), "{answer}");
    assert_eq!(run.read(), 0);
}

#[test]
fn a_watch_is_a_running_task() {
    let daemon = Daemon::start();
    let answer = daemon.say("监测传感器十分钟");
    assert_eq!(answer["result"], "done", "{answer}");
    let task = answer["output"]["task"].as_str().unwrap().to_owned();
    let rows = daemon.list("task.list");
    assert_eq!((&rows[0]["task"], &rows[0]["state"]), (&json!(task), &json!("RUNNING")), "{rows:?}");
    daemon.eventually("progress", || daemon.list("task.list")[0]["progress"].as_u64().filter(|made| *made > 0));
    daemon.ask("task.pause", json!({ "task": task })).unwrap();
    daemon.eventually("the pause", || {
        let row = daemon.list("task.list").remove(0);
        (row["state"] == "RUNNING" && row["cause"] == "PAUSED").then_some(())
    });
    daemon.ask("task.resume", json!({ "task": task })).unwrap();
    daemon.ask("task.stop", json!({ "task": task })).unwrap();
    let row = daemon.eventually("the end", || daemon.list("task.list").pop().filter(|row| row["state"] == "STOPPED"));
    assert_eq!(row["outcome"], "stopped", "{row}");
    daemon.ask("task.clean", json!({ "task": task })).unwrap();
    assert!(daemon.list("task.list").is_empty());
    let all = daemon.ask("task.list", json!({ "all": true })).unwrap();
    assert_eq!(all[0]["state"], "CLEANED", "{all}");
}

#[test]
fn pymodbus_reads_back_what_was_said() {
    let Some(python) = crate::python() else {
        crate::skipped(
            "daemon::voice::pymodbus_reads_back_what_was_said",
            "no Python with pymodbus: run cargo xtask test",
        );
        return;
    };
    let daemon = Daemon::start();
    let run = Register::of(&daemon, "pump-2", "run");
    let read = || {
        let (host, port) = run.address.rsplit_once(':').unwrap();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/modbus.py");
        let mut client = std::process::Command::new(&python)
            .args([script, host, port])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let request = json!({ "call": "read_coils", "unit": run.unit, "address": run.number, "count": 1 });
        std::io::Write::write_all(&mut client.stdin.take().unwrap(), format!("{request}\n").as_bytes()).unwrap();
        let output = client.wait_with_output().unwrap();
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        answer["bits"][0].clone()
    };
    assert_eq!(read(), json!(false));
    assert_eq!(daemon.say("启动二号泵")["result"], "done");
    assert_eq!(read(), json!(true));
    daemon.say("不要停止二号泵");
    assert_eq!(read(), json!(true));
}

#[test]
fn an_emergency_stop_waits_for_its_place_where_others_are_busy() {
    const SPEAKERS: usize = 120;
    const ROUNDS: usize = 5;
    let daemon = Daemon::start();
    let running = Register::of(&daemon, "pump-2", "running");
    assert_eq!(daemon.say("启动二号泵")["result"], "done");
    daemon.eventually("the pump", || (running.read() == 1).then_some(()));
    // A long sentence of nothing takes its time.
    let long = "这里没有任何一句话是命令只是很长".repeat(30);
    let mut busy = 0;
    for _ in 0..ROUNDS {
        // Everybody has spoken before the daemon hears the first; every eighth wants the stop.
        daemon.signal(Signal::SIGSTOP);
        let speak = |text: &str| {
            let mut stream = UnixStream::connect(&daemon.socket).unwrap();
            stream.set_read_timeout(Some(DEADLINE)).unwrap();
            let request = json!({ "v": 1, "id": 7, "verb": "say", "args": { "text": text } });
            writeln!(stream, "{request}").unwrap();
            BufReader::new(stream)
        };
        let (mut others, mut stops) = (Vec::new(), Vec::new());
        for speaker in 0..SPEAKERS {
            if speaker % 8 == 7 { stops.push(speak("全线急停")) } else { others.push(speak(&long)) }
        }
        daemon.signal(Signal::SIGCONT);
        let answer = |stream: &mut BufReader<UnixStream>| {
            let mut line = String::new();
            stream.read_line(&mut line).unwrap();
            serde_json::from_str::<Value>(&line).unwrap()
        };
        for stop in stops.iter_mut().map(answer) {
            assert_eq!((&stop["ok"]["decision"], &stop["ok"]["result"]), (&json!("allow"), &json!("done")), "{stop}");
        }
        busy += others.iter_mut().map(answer).filter(|answer| answer["error"]["kind"] == "busy").count();
    }
    assert!(busy > 0, "this was no flood");
    daemon.eventually("the standstill", || (running.read() == 0).then_some(()));
}
