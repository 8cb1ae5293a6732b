//! The console as a person uses it: in a browser that nobody here wrote, judged for accessibility by axe-core.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use super::ground::Frozen;
use super::{Daemon, Register, hostile};

fn on_path(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|folder| folder.join(program)).find(|file| file.exists())
}

/// What a journey finds in Chromium; `None` where there is none.
fn journey(test: &str, daemon: &Daemon, mut plan: Value) -> Option<Value> {
    let (Some(chromium), Some(driver)) = (on_path("chromium"), on_path("chromedriver")) else {
        crate::skipped(test, "no chromium with chromedriver: run cargo xtask test as root");
        return None;
    };
    let has = |python: &PathBuf| {
        Command::new(python).args(["-c", "import selenium, axe_core_python"]).status().is_ok_and(|it| it.success())
    };
    let Some(python) = crate::python().filter(has) else {
        crate::skipped(test, "no Python with selenium and axe-core-python: run cargo xtask test");
        return None;
    };
    let made = daemon.ask("console.token.add", json!({ "name": "wang", "role": "approve" })).unwrap();
    plan["chromium"] = chromium.to_str().into();
    plan["driver"] = driver.to_str().into();
    plan["url"] = daemon.ask("status", json!({})).unwrap()["console"].clone();
    plan["token"] = made["token"].clone();
    plan["pictures"] = std::env::var("INTERLOCK_TEST_SCREENSHOTS").ok().into();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/browser.py");
    let output = Command::new(python).arg(script).arg(plan.to_string()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    Some(serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}\n{}", daemon.log())))
}

#[test]
fn a_person_answers_approves_follows_and_stops_in_a_browser() {
    const NAME: &str = "daemon::browser::a_person_answers_approves_follows_and_stops_in_a_browser";
    let daemon = Daemon::with("version = 1\n[liveness]\nscan = 0.2\ntau = 5\n[ask]\ntimeout = 900\n");
    let started = daemon.say("开始监测传感器");
    let task = started["output"]["task"].as_str().unwrap_or_else(|| panic!("{started}"));
    assert!(daemon.say("合上一号断路器")["question"].is_string());
    assert_eq!(daemon.say("启动二号泵")["result"], "done");
    assert_eq!(daemon.say("给二号泵打水")["command"], json!(null));
    let slang = json!({ "id": "a", "channel": "B", "phrase": "打水", "command": "pump_start" });
    daemon.ask("learn.propose", json!({ "proposal": slang })).unwrap();
    // The thread of the task stands still, as behind a device that never answers.
    let tid = daemon.ask("task.show", json!({ "task": task })).unwrap()["tid"].as_u64().unwrap();
    let Some(frozen) = Frozen::thread(&daemon, tid) else { return crate::skipped(NAME, "ptrace is not allowed") };
    let cause = daemon.eventually("the task is a zombie", || {
        let row = daemon.ask("task.show", json!({ "task": task })).unwrap();
        (row["state"] == "ZOMBIE").then(|| row["cause"].as_str().unwrap().to_owned())
    });

    let plan = json!({ "journey": "operate", "task": task, "said": "启动二号泵", "device": "pump-2" });
    let Some(found) = journey(NAME, &daemon, plan) else { return };
    assert_eq!((&found["violations"], &found["wide"]), (&json!([]), &json!([])), "{found}");
    assert_eq!(found["pages"], 43, "a login, eight pages and a task on four screens, and three of a journey: {found}");
    let has = |key: &str, words: &[&str]| {
        let text = found[key].as_str().unwrap();
        words.iter().for_each(|word| assert!(text.contains(word), "{key} has no {word:?}: {text}"));
    };
    has("overview", &["请查看", "无响应", task]);
    has("task", &["无响应", &cause, "停止"]);
    has("question", &["breaker-1", "危险操作", "声明的风险等级为危险", "\"device\""]);
    has("proposal", &["打水", "pump_start"]);
    has("trace", &["requested", "permitted", "intent", "settled", "pump-2"]);
    has("row", &["hash", "boot_id"]);
    let read = found["read"].as_object().unwrap();
    assert!(read.len() == 8 && read.values().all(|page| page[1].as_u64() > Some(30)), "{found}");
    let run = found["device"].as_array().unwrap().iter().find(|row| row[0] == "run").unwrap();
    assert_eq!(run[1], "true", "{found}");

    let closed = Register::of(&daemon, "breaker-1", "close");
    daemon.eventually("the breaker closes", || (closed.read() == 1).then_some(()));
    let rows = daemon.ask("evidence.query", json!({ "kind": "answered" })).unwrap();
    assert_eq!(rows[0]["detail"]["by"], "wang@console", "{rows}");
    assert_eq!(daemon.say("给二号泵打水")["command"], "pump_start", "{found}");
    drop(frozen);
    daemon.eventually("the task stops", || {
        let row = daemon.ask("task.show", json!({ "task": task })).unwrap();
        (row["state"] == "STOPPED").then_some(())
    });
}

#[test]
fn no_word_of_somebody_else_acts_in_a_browser() {
    const NAME: &str = "daemon::browser::no_word_of_somebody_else_acts_in_a_browser";
    let (daemon, places) = hostile::daemon();
    let Some(found) = journey(NAME, &daemon, json!({ "journey": "hostile", "places": places })) else { return };
    assert_eq!(found["hurt"], json!([]), "{found}");
    assert_eq!(found["pages"], places.len(), "{found}");
    assert!(found["shown"].as_u64() > Some(20), "{found}");
    let quiet = json!({ "hurt": false, "scripts": 0, "elements": 0, "acts": 0, "away": 0 });
    for (key, value) in quiet.as_object().unwrap() {
        assert_eq!(&found["changed"][key], value, "{found}");
    }
}
