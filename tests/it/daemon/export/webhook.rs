//! Notices to a webhook: each once, with its end, signed so that a library which is not ours believes it.

use std::collections::BTreeSet;
use std::process::Command;

use interlock::store::state::State;
use interlock_domain::time::Wall;
use serde_json::{Value, json};

use super::desk::{Desk, Posted};
use crate::daemon::Home;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn config(home: &Home, desk: &Desk, more: &str) -> std::path::PathBuf {
    std::fs::write(home.path("secret"), format!("{SECRET}\n")).unwrap();
    home.config(&format!(
        "version = 1\n[export.webhook]\nurl = \"http://127.0.0.1:{}/hook\"\ndevice = \"box-1\"\nsecret-file = {:?}\n{more}",
        desk.port,
        home.path("secret")
    ))
}

/// What was told, in order, as `id state`; what was not taken is left out. A kill between the answer and the disk repeats
/// a message under its own name, by which a receiver knows it.
fn told(posted: &[Posted]) -> Vec<String> {
    let mut names = BTreeSet::new();
    let taken = posted.iter().filter(|posted| posted.status == 200 && names.insert(posted.header("webhook-id")));
    let word = |told: &Value, key: &str| told["data"][key].as_str().unwrap().to_owned();
    taken.map(Posted::json).map(|told| format!("{} {}", word(&told, "id"), word(&told, "state"))).collect()
}

/// The signature, made anew by Python's own library.
fn is_signed(posted: &Posted) -> Option<bool> {
    const SCRIPT: &str = "import sys, hmac, hashlib, base64\nsecret, signed = sys.argv[1], sys.argv[2].encode()\n\
                          key = base64.b64decode(secret.removeprefix('whsec_'))\n\
                          print('v1,' + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode())";
    let signed = format!("{}.{}.{}", posted.header("webhook-id"), posted.header("webhook-timestamp"), posted.body);
    let output = Command::new(crate::python()?).args(["-c", SCRIPT, SECRET, &signed]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    Some(String::from_utf8_lossy(&output.stdout).trim() == posted.header("webhook-signature"))
}

#[test]
fn a_question_is_told_until_it_is_taken_and_then_its_end() {
    let (desk, home) = (Desk::open(), Home::new());
    desk.answer(503, "retry-after: 1\r\n", "not\nnow\u{1b}[31m");
    let path = config(&home, &desk, "");
    let daemon = home.start(Some(&path));
    let asked = daemon.say("合上一号断路器");
    let question = asked["question"].as_str().unwrap().to_owned();
    let raised = format!("{question} raised");
    desk.until("the question", |posted| (told(posted) == [raised.as_str()]).then_some(()));
    daemon.ask("ask.deny", json!({ "question": question })).unwrap();
    let over = format!("{question} over");
    desk.until("its end", |posted| (told(posted) == [raised.as_str(), over.as_str()]).then_some(()));

    let posted = desk.posted();
    assert_eq!(posted.iter().map(|one| one.status).collect::<Vec<_>>(), [503, 200, 200]);
    let ids: Vec<&str> = posted.iter().map(|one| one.header("webhook-id")).collect();
    assert!(ids[0] == ids[1] && ids[1] != ids[2], "{ids:?}");
    let first = posted[0].json();
    assert_eq!((&first["type"], &first["data"]["device"]), (&json!("interlock.question.raised"), &json!("box-1")));
    assert_eq!(posted[0].path, "/hook");
    match posted.iter().map(is_signed).collect::<Option<Vec<bool>>>() {
        Some(signed) => assert_eq!(signed, [true, true, true]),
        None => crate::skipped("daemon::export::webhook::is_signed", "no Python: run cargo xtask test"),
    }
    let standing = daemon.ask("status", json!({})).unwrap()["export"]["webhook"].clone();
    assert_eq!(
        (&standing["connected"], &standing["waiting"], &standing["arrived"]),
        (&json!(true), &json!(0), &json!(2))
    );
    assert!(standing["last_success"].is_string(), "{standing}");
    let why = standing["last_error"]["why"].as_str().unwrap();
    assert!(why.starts_with("answered 503: not") && !why.contains(['\n', '\u{1b}']), "{why:?}");
    // What the other side says begins no line of the journal.
    assert!(daemon.log().contains("answered 503") && !daemon.log().contains("\nnow"), "{}", daemon.log());
}

#[test]
fn what_was_raised_and_was_over_while_nobody_heard_it_is_told_once_in_order() {
    let (desk, home) = (Desk::open(), Home::new());
    let path = config(&home, &desk, "kinds = [\"alarm\", \"question\"]\n");
    let state = home.path("state");
    let daemon = home.start(Some(&path));
    // The receiver is away when the question comes, and the daemon dies before it is back.
    desk.close(true);
    let asked = daemon.say("合上一号断路器");
    let question = asked["question"].as_str().unwrap().to_owned();
    daemon.eventually("the first attempt", || {
        let standing = daemon.ask("status", json!({})).unwrap()["export"]["webhook"].clone();
        (standing["waiting"] == 1 && standing["last_error"]["why"].is_string()).then_some(())
    });
    // It is on the disk a moment later.
    daemon.eventually("the ledger", || {
        (State::open(&state).unwrap().notices("webhook").unwrap().len() == 1).then_some(())
    });
    let home = daemon.kill();
    {
        let mut kept = State::open(&state).unwrap();
        kept.raise_alarm("line-3", "the belt is torn", Wall(1_764_500_000_000)).unwrap();
        kept.raise_alarm("task:t9", "t9 is DEAD: of a kind that this desk is not told of", Wall(1)).unwrap();
    }
    desk.close(false);
    let daemon = home.start(Some(&path));
    let want = [format!("{question} raised"), format!("{question} over"), "a1 raised".to_owned()];
    desk.until("all of it", |posted| {
        let mut told = told(posted);
        told.sort_by_key(|word| (word.starts_with('a'), word.ends_with("over")));
        (told == want).then_some(())
    });
    // The condition goes while the daemon is down.
    let home = daemon.kill();
    let cleared = State::open(&state).unwrap().clear_alarms("line-3", Wall(1_764_500_001_000)).unwrap();
    assert_eq!(cleared, 1);
    let daemon = home.start(Some(&path));
    desk.until("its end", |posted| told(posted).contains(&"a1 over".to_owned()).then_some(()));
    assert_eq!(told(&desk.posted()).len(), 4, "{:?}", told(&desk.posted()));
    assert_eq!(daemon.log().matches("state=\"over\"").count(), 1, "{}", daemon.log());
}

#[test]
fn a_receiver_that_cannot_be_set_up_is_an_alarm_and_the_box_starts() {
    let home = Home::new();
    std::fs::write(home.path("ca.pem"), "no certificate\n").unwrap();
    let text = |ca: &str| {
        format!(
            "version = 1\n[export.mqtt]\nbroker = \"mqtts://localhost:8883\"\ndevice = \"box-1\"\nca = {:?}\n",
            home.path(ca)
        )
    };
    let wrong = home.config(&text("ca.pem"));
    let other = text("other.pem");
    let daemon = home.start(Some(&wrong));
    let status = daemon.ask("status", json!({})).unwrap();
    let why = status["export"]["mqtt"]["last_error"]["why"].as_str().unwrap().to_owned();
    assert!(why.contains("interlock.toml:5:6: export.mqtt.ca") && why.contains("no certificate in it"), "{why}");
    assert_eq!(daemon.say("启动一号泵")["result"], "done");
    let alarms = crate::daemon::proxy::once(&daemon, "alarm", json!({ "verb": "list" })).to_string();
    assert!(alarms.contains("export:mqtt") && alarms.contains("no certificate in it"), "{alarms}");
    let check = daemon.cli(&["check", "--config", wrong.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&check.stderr).into_owned();
    assert_eq!(check.status.code(), Some(78), "{said}");
    assert!(said.contains("interlock.toml:5:6: export.mqtt.ca") && said.contains("hint: ca is a PEM file"), "{said}");
    // A reload that would change it says so with its place; one that does not touch it goes on.
    std::fs::write(&wrong, &other).unwrap();
    let reload = daemon.cli(&["reload"]);
    let said = String::from_utf8_lossy(&reload.stderr).into_owned();
    assert_eq!(reload.status.code(), Some(78), "{said}");
    assert!(said.contains("interlock.toml:5:6: export.mqtt.ca") && said.contains("other.pem"), "{said}");
}
