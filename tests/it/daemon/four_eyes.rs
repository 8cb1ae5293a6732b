//! Two persons for what is dangerous: whom the box takes for a person, and whom for the same one.

use serde_json::{Value, json};

use super::console::Browser;
use super::{Daemon, Register};

const FOUR_EYES: &str = "version = 1\n[ask]\nfour-eyes = \"dangerous\"\n";

fn asked(daemon: &Daemon) -> String {
    let asked = daemon.say("合上一号断路器");
    assert_eq!((&asked["decision"], &asked["result"]), (&json!("ask"), &Value::Null), "{asked}");
    assert!(asked["message"].as_str().unwrap().contains("waits for two persons"), "{asked}");
    asked["question"].as_str().unwrap().to_owned()
}

fn answers(daemon: &Daemon, question: &str) -> Vec<String> {
    let mut rows = daemon.list("evidence.query");
    rows.retain(|row| row["detail"]["question"] == question && row["kind"] != "asked");
    rows.sort_by_key(|row| row["seq"].as_u64());
    let words = rows.iter().map(|row| {
        let word = |of: &Value| of.as_str().unwrap_or("-").to_owned();
        let (to, cause, waits) = (word(&row["to"]), word(&row["cause"]), word(&row["detail"]["waits"]));
        format!("{} {to} {cause} {waits} by {}", word(&row["kind"]), word(&row["detail"]["by"]))
    });
    words.collect()
}

#[test]
fn the_second_yes_of_another_person_starts_it_and_the_log_names_both() {
    let daemon = Daemon::with(FOUR_EYES);
    let closed = Register::of(&daemon, "breaker-1", "close");
    let me = nix::unistd::User::from_uid(nix::unistd::geteuid()).unwrap().unwrap().name;
    let question = asked(&daemon);
    // A voice proves no person, at the cabinet or in a program's mouth.
    assert_eq!(daemon.say("确认")["result"], Value::Null);
    let allow = || daemon.ask("ask.allow", json!({ "question": question }));
    let first = allow().unwrap();
    assert_eq!((&first["result"], &first["needs"]), (&Value::Null, &json!("second_person")), "{first}");
    assert_eq!(allow().unwrap_err()["kind"], "not_so");
    let row = &daemon.list("ask.list")[0];
    assert_eq!((&row["four_eyes"], &row["allowed_by"]), (&json!(true), &json!(me)), "{row}");
    // The same person at the other place, and one who may not say yes.
    assert_eq!(Browser::of(&daemon, &me, "approve").act("/ask/allow", &format!("question={question}")).status, 409);
    assert_eq!(Browser::of(&daemon, "zhao", "operate").act("/ask/allow", &format!("question={question}")).status, 403);
    let wang = Browser::of(&daemon, "wang", "approve");
    let page = wang.page("/questions");
    assert!(page.contains(&format!("须两人；{me} 已允许")) || page.contains(&format!("two; {me} has")), "{page}");
    assert_eq!(closed.read(), 0);
    assert_eq!(wang.act("/ask/allow", &format!("question={question}")).status, 303);
    daemon.eventually("the breaker closes", || (closed.read() == 1).then_some(()));
    let said = daemon.eventually("the rows", || Some(answers(&daemon, &question)).filter(|rows| rows.len() == 5));
    let expected = [
        "answer_ignored - unknown_person - by operator (cli)".to_owned(),
        format!("answered allow - second_person by {me}"),
        format!("answer_ignored - same_person - by {me}"),
        format!("answer_ignored - same_person - by {me}@console"),
        "answered allow - - by wang@console".to_owned(),
    ];
    assert_eq!(said[1..], expected[1..], "{said:?}");
    assert!(said[0].starts_with("answer_ignored - unknown_person"), "{said:?}");
}

#[test]
fn a_yes_of_somebody_who_was_taken_out_does_not_count_and_one_no_is_enough() {
    let daemon = Daemon::with(FOUR_EYES);
    let closed = Register::of(&daemon, "breaker-1", "close");
    let question = asked(&daemon);
    let fields = format!("question={question}");
    assert_eq!(Browser::of(&daemon, "wang", "approve").act("/ask/allow", &fields).status, 303);
    daemon.ask("console.token.revoke", json!({ "name": "wang" })).unwrap();
    let first = daemon.ask("ask.allow", json!({ "question": question })).unwrap();
    assert_eq!(first["needs"], "second_person", "{first}");
    assert_eq!(closed.read(), 0);
    let revoked = "answer_ignored - revoked - by wang@console".to_owned();
    daemon.eventually("the row", || answers(&daemon, &question).contains(&revoked).then_some(()));
    // One no, after one yes.
    let zhao = Browser::of(&daemon, "zhao", "operate");
    assert_eq!(zhao.act("/ask/deny", &fields).status, 303);
    let settled = daemon.eventually("the end of the call", || {
        let rows = daemon.ask("evidence.query", json!({ "kind": "settled" })).unwrap();
        rows.as_array()?.iter().find(|row| row["cause"] == "denied_by_person").cloned()
    });
    assert_eq!(settled["to"], "not_started", "{settled}");
    assert_eq!(closed.read(), 0);
    // A person at the cabinet may still take it back by voice.
    let question = asked(&daemon);
    let taken_back = daemon.say("取消");
    assert!(daemon.list("ask.list").iter().all(|row| row["question"] != question), "{taken_back}");
}

#[test]
fn without_the_setting_one_is_enough_and_a_word_that_is_none_is_refused() {
    let daemon = Daemon::start();
    let closed = Register::of(&daemon, "breaker-1", "close");
    let asked = daemon.say("合上一号断路器");
    daemon.ask("ask.allow", json!({ "question": asked["question"] })).unwrap();
    assert_eq!(closed.read(), 1);
    let home = super::Home::new();
    let config = home.config("version = 1\n[ask]\nfour-eyes = \"always\"\n");
    let ended = home.command(Some(&config)).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(ended.status.code() == Some(78) && said.contains("\"off\" or \"dangerous\""), "{said}");
}
