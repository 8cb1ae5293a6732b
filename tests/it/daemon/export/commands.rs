//! Commands on a topic: the narrowest authority, and what is no order.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::broker::{Broker, Receiver, mosquitto};
use super::{config, skipped};
use crate::daemon::{Daemon, Home, Register};

const TOPIC: &str = "plant/orders";

/// More than are taken in a second.
const FLOOD: usize = 60;

fn publish(broker: &Broker, message: &str, more: &[&str]) {
    let [.., program] = mosquitto().unwrap();
    let port = broker.port.to_string();
    let status = Command::new(program)
        .args(["-h", "127.0.0.1", "-p", &port, "-V", "5", "-q", "1", "-t", TOPIC, "-m", message])
        .args(more)
        .status();
    assert!(status.unwrap().success());
}

/// Asks and waits for the answer on a topic of its own.
fn ask(broker: &Broker, receiver: &Receiver, number: usize, message: &str) -> Value {
    let topic = format!("replies/{number}");
    publish(broker, message, &["-D", "publish", "response-topic", &topic, "-D", "publish", "correlation-data", "x"]);
    receiver.until(message, |inbox| inbox.messages.iter().any(|(to, _)| *to == topic));
    let answer = receiver.json(&format!("/{number}")).pop().unwrap();
    assert_eq!(answer["device"], "box-1");
    answer
}

fn start(broker: &Broker, more: &str) -> (Daemon, Receiver) {
    let home = Home::new();
    let path = config(&home, broker.port, &format!("command-topic = \"{TOPIC}\"\n{more}"));
    let receiver = Receiver::of(broker, "#");
    let daemon = home.start(Some(&path));
    receiver.until("the box", |inbox| inbox.messages.iter().any(|(_, text)| text.contains("\"online\"")));
    (daemon, receiver)
}

#[test]
fn a_topic_reads_and_makes_safe_and_nothing_else() {
    if mosquitto().is_none() {
        return skipped("commands::a_topic_reads_and_makes_safe_and_nothing_else");
    }
    let broker = Broker::start("");
    // A rule that lets agents do it lets the topic do nothing.
    let (daemon, receiver) = start(&broker, "[policy]\nallow = [\"Device\"]\n");
    let (one, two) = (Register::of(&daemon, "pump-1", "running"), Register::of(&daemon, "pump-2", "run"));
    assert_eq!(daemon.say("启动一号泵")["result"], "done");
    daemon.eventually("the pump", || (one.read() == 1).then_some(()));

    let answer = ask(&broker, &receiver, 1, "启动二号泵");
    assert_eq!((&answer["command"].is_string(), &answer["decision"]), (&true, &json!("deny")), "{answer}");
    assert_eq!(two.read(), 0);
    let answer = ask(&broker, &receiver, 2, r#"{"text": "查询一号水泵流量", "id": "r-1"}"#);
    assert_eq!((&answer["result"], &answer["id"]), (&json!("done"), &json!("r-1")), "{answer}");
    // A yes is for people, and nothing is asked back.
    let answer = ask(&broker, &receiver, 3, "确认");
    assert_eq!(answer["outcome"], "rejected", "{answer}");
    assert_eq!(daemon.list("ask.list"), Vec::<Value>::new());
    let answer = ask(&broker, &receiver, 4, "全线急停");
    assert_eq!((&answer["decision"], &answer["result"]), (&json!("allow"), &json!("done")), "{answer}");
    daemon.eventually("the standstill", || (one.read() == 0).then_some(()));
    let row = receiver.json("/evidence").into_iter().rfind(|row| row["kind"] == "heard").unwrap();
    assert_eq!(
        (&row["detail"]["via"], &row["detail"]["speaker"]),
        (&json!("plant"), &json!("plant/orders@mqtt")),
        "{row}"
    );
}

#[test]
fn with_the_authority_to_ask_a_person_answers_and_not_the_topic() {
    if mosquitto().is_none() {
        return skipped("commands::with_the_authority_to_ask_a_person_answers_and_not_the_topic");
    }
    let broker = Broker::start("");
    let (daemon, receiver) = start(&broker, "command-authority = \"ask\"");
    let two = Register::of(&daemon, "pump-2", "run");
    let answer = ask(&broker, &receiver, 1, "启动二号泵");
    assert_eq!(answer["decision"], "ask", "{answer}");
    assert_eq!(ask(&broker, &receiver, 2, "确认")["outcome"], "rejected");
    assert_eq!(two.read(), 0);
    let question = answer["question"].as_str().unwrap();
    assert_eq!(daemon.list("ask.list").len(), 1);
    daemon.ask("ask.allow", json!({ "question": question })).unwrap();
    daemon.eventually("the pump", || (two.read() == 1).then_some(()));
    // Nobody is told that the topic has less authority while it has not.
    let path = daemon.path("interlock.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("\"ask\"", "\"protective\"")).unwrap();
    let refused = daemon.cli(&["reload"]);
    assert_eq!(refused.status.code(), Some(78));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("export.mqtt cannot change while"), "{refused:?}");
}

#[test]
fn an_emergency_stop_in_a_flood_of_orders_is_taken() {
    if mosquitto().is_none() {
        return skipped("commands::an_emergency_stop_in_a_flood_of_orders_is_taken");
    }
    let broker = Broker::start("");
    let (daemon, receiver) = start(&broker, "");
    let one = Register::of(&daemon, "pump-1", "running");
    assert_eq!(daemon.say("启动一号泵")["result"], "done");
    daemon.eventually("the pump", || (one.read() == 1).then_some(()));
    let [.., program] = mosquitto().unwrap();
    let port = broker.port.to_string();
    let mut child = Command::new(program)
        .args(["-h", "127.0.0.1", "-p", &port, "-V", "5", "-q", "1", "-t", TOPIC, "-l"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = "查询一号水泵流量\n".repeat(FLOOD) + "全线急停\n";
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    let answers =
        |inbox: &super::broker::Inbox| inbox.messages.iter().filter(|(to, _)| to.ends_with("/answer")).count();
    receiver.until("every answer", |inbox| answers(inbox) == FLOOD + 1);
    let answers = receiver.json("/answer");
    let busy = answers.iter().filter(|answer| answer["code"] == "busy").count();
    assert!(busy > 0, "this was no flood");
    let stop = answers.iter().find(|answer| answer["query"] == "全线急停").expect("the stop was held back");
    assert_eq!((&stop["decision"], &stop["result"]), (&json!("allow"), &json!("done")), "{stop}");
    daemon.eventually("the standstill", || (one.read() == 0).then_some(()));
}

#[test]
fn what_is_no_order_is_answered_and_written_down() {
    if mosquitto().is_none() {
        return skipped("commands::what_is_no_order_is_answered_and_written_down");
    }
    let broker = Broker::start("");
    // Kept by the broker before the box comes, and once more at each of its starts.
    publish(&broker, "全线急停", &["-r"]);
    let (daemon, receiver) = start(&broker, "");
    receiver.until("the word on the kept one", |inbox| inbox.messages.iter().any(|(to, _)| to.ends_with("/answer")));
    assert_eq!(receiver.json("/answer")[0]["code"], "retained");
    let order = r#"{"text": "查询一号水泵流量", "id": 1}"#;
    let answer = ask(&broker, &receiver, 1, order);
    assert_eq!(answer["result"], "done", "{answer}");
    for (number, message, code) in [
        (2, order.to_owned(), "repeated"),
        (3, "{".to_owned(), "malformed"),
        (4, "泵".repeat(600), "too_large"),
        (5, r#"{"text": "全线急停", "expires": 1000}"#.to_owned(), "expired"),
        (6, "a".repeat(100_000), "too_large"),
    ] {
        let answer = ask(&broker, &receiver, number, &message);
        assert_eq!((&answer["outcome"], &answer["code"]), (&json!("declined"), &json!(code)), "{answer}");
    }
    // No answer goes onto a topic that says something else.
    publish(&broker, "{", &["-D", "publish", "response-topic", "interlock/box-1/checkpoint"]);
    receiver.until("its answer", |inbox| inbox.messages.iter().filter(|(to, _)| to.ends_with("/answer")).count() == 2);
    let codes = ["retained", "repeated", "malformed", "too_large", "expired", "too_large", "malformed"];
    // The answer does not wait for its row.
    daemon.eventually("the rows", || {
        let rows = daemon.ask("evidence.query", json!({ "kind": "heard" })).unwrap();
        let declined = rows.as_array().unwrap().iter().filter(|row| row["to"] == "declined");
        let declined: Vec<Value> = declined.map(|row| row["cause"].clone()).collect();
        (declined.len() >= codes.len()).then(|| assert_eq!(declined, codes.map(|code| json!(code))))
    });
}

/// H6-049.
#[test]
fn after_a_broker_that_forgot_the_session_commands_work_again() {
    if mosquitto().is_none() {
        return skipped("commands::after_a_broker_that_forgot_the_session_commands_work_again");
    }
    let mut broker = Broker::start("");
    let (_daemon, receiver) = start(&broker, "");
    assert_eq!(ask(&broker, &receiver, 1, "查询一号水泵流量")["result"], "done");
    broker.end();
    broker.begin();
    let back = Instant::now();
    // What is said while nobody has subscribed is not an order for later.
    let answered = |inbox: &super::broker::Inbox| inbox.messages.iter().any(|(to, _)| to == "replies/2");
    while !receiver.has(answered) {
        assert!(back.elapsed() < Duration::from_secs(5), "no command was taken for five seconds");
        publish(&broker, "查询一号水泵流量", &["-D", "publish", "response-topic", "replies/2"]);
    }
}
