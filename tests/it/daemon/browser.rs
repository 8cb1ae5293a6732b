//! The console as a person uses it: in a browser that nobody here wrote, judged for accessibility by axe-core.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use super::{Daemon, Register};

const NAME: &str = "daemon::browser::a_person_answers_approves_and_stops_in_a_browser";

fn on_path(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|folder| folder.join(program)).find(|file| file.exists())
}

#[test]
fn a_person_answers_approves_and_stops_in_a_browser() {
    let (Some(chromium), Some(driver)) = (on_path("chromium"), on_path("chromedriver")) else {
        return crate::skipped(NAME, "no chromium with chromedriver: run cargo xtask test as root");
    };
    let has = |python: &PathBuf| {
        Command::new(python).args(["-c", "import selenium, axe_core_python"]).status().is_ok_and(|it| it.success())
    };
    let Some(python) = crate::python().filter(has) else {
        return crate::skipped(NAME, "no Python with selenium and axe-core-python: run cargo xtask test");
    };
    let daemon = Daemon::start();
    let url = daemon.ask("status", json!({})).unwrap()["console"].as_str().unwrap().to_owned();
    let made = daemon.ask("console.token.add", json!({ "name": "wang", "role": "approve" })).unwrap();
    let started = daemon.say("开始监测传感器");
    let task = started["output"]["task"].as_str().unwrap_or_else(|| panic!("{started}"));
    assert!(daemon.say("合上一号断路器")["question"].is_string());
    assert_eq!(daemon.say("给二号泵打水")["command"], json!(null));
    let slang = json!({ "id": "a", "channel": "B", "phrase": "打水", "command": "pump_start" });
    daemon.ask("learn.propose", json!({ "proposal": slang })).unwrap();

    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/browser.py");
    let output = Command::new(python)
        .arg(script)
        .args([chromium, driver])
        .args([&url, made["token"].as_str().unwrap(), task])
        .args(std::env::var_os("INTERLOCK_TEST_SCREENSHOTS"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let found: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    assert_eq!((&found["violations"], &found["wide"]), (&json!([]), &json!([])), "{found}");
    assert_eq!(found["pages"], 18, "eight pages and a task, twice: {found}");

    let closed = Register::of(&daemon, "breaker-1", "close");
    daemon.eventually("the breaker closes", || (closed.read() == 1).then_some(()));
    let rows = daemon.ask("evidence.query", json!({ "kind": "answered" })).unwrap();
    assert_eq!(rows[0]["detail"]["by"], "wang@console", "{rows}");
    assert_eq!(daemon.say("给二号泵打水")["command"], "pump_start", "{found}");
    daemon.eventually("the task stops", || {
        let row = daemon.ask("task.show", json!({ "task": task })).unwrap();
        (row["state"] == "STOPPED").then_some(())
    });
}
