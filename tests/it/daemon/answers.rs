//! Sentences that no command fits: a passage answers, the nearest are named, or the language model is asked.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;

use serde_json::{Value, json};

use super::{Daemon, Home, Register};
use crate::skipped;

#[test]
fn a_question_is_answered_with_its_source_and_nothing_is_carried_out() {
    let daemon = Daemon::start();
    let run = Register::of(&daemon, "pump-2", "run");
    let answer = daemon.say("水泵不上水怎么处理");
    assert_eq!((&answer["outcome"], &answer["result"]), (&json!("knowledge"), &json!(null)), "{answer}");
    let message = answer["message"].as_str().unwrap();
    assert!(message.contains("interlock: general notes"), "{message}");
    assert_eq!(run.read(), 0);
    assert_eq!(daemon.cli(&["say", "水泵不上水怎么处理"]).status.code(), Some(0));
    // What is forbidden is no question, and is answered with no page.
    assert_eq!(daemon.say("不要启动二号泵")["outcome"], "rejected");
}

#[test]
fn manuals_come_and_go_without_a_restart() {
    let home = Home::new();
    let manuals = home.path("manuals");
    std::fs::create_dir(&manuals).unwrap();
    let config = home.config("version = 1\n[knowledge]\nfolders = [\"manuals\"]\n");
    let daemon = home.start(Some(&config));
    let state = daemon.path("state").display().to_string();
    let question = "压滤机滤布多久清洗一次";
    assert_eq!(daemon.say(question)["outcome"], "rejected");

    let file = daemon.path("press.md");
    std::fs::write(&file, "# 压滤机\n\n滤布每八小时清洗一次，破损即换。\n").unwrap();
    let file = file.display().to_string();
    let added = daemon.cli(&["knowledge", "add", &file, "--state", &state, "--json"]);
    assert_eq!(added.status.code(), Some(0), "{added:?}");
    assert_eq!(daemon.say(question)["outcome"], "knowledge");
    let found = daemon.cli(&["knowledge", "search", question, "--state", &state, "--json"]);
    let first: Value = serde_json::from_slice(found.stdout.split(|byte| *byte == b'\n').next().unwrap()).unwrap();
    assert_eq!((&first["id"], &first["title"]), (&json!("press.md#1"), &json!("压滤机")));
    assert_eq!(daemon.cli(&["knowledge", "remove", &file, "--state", &state]).status.code(), Some(0));
    assert_eq!(daemon.say(question)["outcome"], "rejected");
    assert_eq!(daemon.cli(&["knowledge", "remove", &file, "--state", &state]).status.code(), Some(1));

    // A folder of the configuration counts at one of the next questions.
    std::fs::write(manuals.join("press.md"), "# 压滤机\n\n滤布每八小时清洗一次。\n").unwrap();
    daemon.eventually("the manual", || (daemon.say(question)["outcome"] == "knowledge").then_some(()));
}

#[test]
fn what_is_nearest_is_named_and_the_speaker_chooses() {
    if interlock::infer::runtime::find().is_none() {
        skipped("daemon::answers::what_is_nearest_is_named_and_the_speaker_chooses", "no ONNX Runtime");
        return;
    }
    let daemon = Daemon::start();
    // A whole word is something else, and the command is dangerous: the model names it, and executes nothing.
    let answer = daemon.say("停审全部任模");
    assert_eq!((&answer["outcome"], &answer["result"]), (&json!("rejected"), &json!(null)), "{answer}");
    let message = answer["message"].as_str().unwrap();
    assert!(message.contains("取消全部任务"), "{message}");
    let rows = daemon.cli(&["evidence", "query", "--kind", "model", "--json"]);
    let rows = String::from_utf8(rows.stdout).unwrap();
    assert!(rows.contains("CPUExecutionProvider") || rows.contains("CANNExecutionProvider"), "{rows}");
}

/// An endpoint of the Chat dialect that answers each request with one sentence.
fn endpoint(words: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let (mut length, mut line) = (0, String::new());
            while stream.read_line(&mut line).unwrap() > 2 {
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                line.clear();
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            let part = json!({ "id": "1", "object": "chat.completion.chunk", "choices": [{ "index": 0, "delta": { "content": words } }] });
            let end = json!({ "id": "1", "object": "chat.completion.chunk", "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] });
            let body = format!("data: {part}\n\ndata: {end}\n\ndata: [DONE]\n\n");
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n";
            let _ = write!(stream.get_mut(), "{head}Content-Length: {}\r\n\r\n{body}", body.len());
        }
    });
    port
}

#[test]
fn what_no_command_fits_goes_to_the_language_model() {
    let port = endpoint("这里没有电梯。");
    let config =
        format!("version = 1\n[agent]\nkind = \"openai\"\nendpoint = \"http://127.0.0.1:{port}/v1\"\nmodel = \"m\"\n");
    let daemon = Daemon::with(&config);
    let answer = daemon.say("把电梯停到五楼");
    assert_eq!((&answer["message"], &answer["result"]), (&json!("这里没有电梯。"), &json!("done")), "{answer}");
    assert!(answer["run"].is_string(), "{answer}");
    // A sentence that forbids is not handed on.
    assert_eq!(daemon.say("不要启动二号泵")["run"], json!(null));
}
