//! Process interlocks, met by voice, command line and agents alike.

use serde_json::{Value, json};

use super::{Daemon, Register};

fn allowed(daemon: &Daemon, answer: Value) -> Value {
    match answer["question"].as_str() {
        None => answer,
        Some(question) => daemon.ask("ask.allow", json!({ "question": question })).unwrap(),
    }
}

#[test]
fn an_isolator_does_not_move_under_load_and_the_reading_says_why() {
    let daemon = Daemon::start();
    let said = allowed(&daemon, daemon.say("合上一号断路器"));
    assert_eq!(said["result"], "done", "{said}");
    for sentence in ["拉开一号隔离刀闸", "合上一号隔离刀闸"] {
        let said = allowed(&daemon, daemon.say(sentence));
        assert_eq!(said["result"], "failed", "{said}");
        let message = said["message"].as_str().unwrap();
        let expected = "断路器合闸时不得操作隔离刀闸; interlock \"isolator-not-under-load\": breaker-1/closed is true, it must \
                        be false";
        assert!(message.contains(expected) && message.contains("nothing was sent"), "{message}");
    }
    // A direct write of the coil meets the same rule, and the other isolator does not.
    let write = |device: &str| {
        let args = json!({ "device": device, "point": "close", "value": true });
        allowed(&daemon, daemon.ask("device.write", args).unwrap())
    };
    assert_eq!(write("isolator-1")["result"], "failed");
    assert_eq!(Register::of(&daemon, "isolator-1", "close").read(), 0, "nothing was written");
    assert_eq!(write("isolator-2")["result"], "done");
    assert_eq!(Register::of(&daemon, "isolator-2", "close").read(), 1);
    // The way that an operator takes.
    for sentence in ["断开一号断路器", "合上一号隔离刀闸"] {
        let said = allowed(&daemon, daemon.say(sentence));
        assert_eq!(said["result"], "done", "{said}");
    }
}

#[test]
fn a_reading_that_cannot_be_had_refuses_and_a_protective_action_is_not_held_up() {
    // Nobody listens on the bus of the meter.
    let daemon = Daemon::with(
        r#"
        version = 1
        [[bus]]
        name = "far"
        tcp = "127.0.0.1:1"
        [[bus]]
        name = "near"
        tcp = "127.0.0.1:2"
        [[device]]
        name = "meter-1"
        kind = "meter"
        bus = "far"
        unit = 1
        points = { flow = { input = 0 } }
        [[device]]
        name = "heater-1"
        kind = "heater"
        bus = "near"
        unit = 1
        points = { run = { coil = 0 } }
        [device.actions]
        off = { protective = true, writes = [{ point = "run", value = false }] }
        [[interlock]]
        name = "no-heat-without-flow"
        writes = { device = "heater-1", point = "run" }
        needs = [{ device = "meter-1", point = "flow", min = 10 }]
        "#,
    );
    let args = json!({ "device": "heater-1", "point": "run", "value": true });
    let said = allowed(&daemon, daemon.ask("device.write", args).unwrap());
    let message = said["message"].as_str().unwrap();
    assert!(message.contains("interlock \"no-heat-without-flow\": meter-1/flow cannot be read ("), "{said}");
    assert!(message.contains("it must be at least 10"), "{said}");
}

/// Does something that a person is asked about, and says yes.
fn with_leave<T: Send>(daemon: &Daemon, act: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let acting = scope.spawn(act);
        let question = daemon.eventually("a question", || daemon.list("ask.list").first().cloned());
        daemon.ask("ask.allow", json!({ "question": question["question"] })).unwrap();
        acting.join().unwrap()
    })
}

/// Voice is above, a language model in `agent::interlocks`.
#[test]
fn an_agent_over_mcp_and_the_command_line_meet_the_same_interlock() {
    let daemon = Daemon::start();
    assert_eq!(allowed(&daemon, daemon.say("合上一号断路器"))["result"], "done");
    let open = || super::proxy::once(&daemon, "device", json!({ "device": "isolator-1", "action": "open" }));
    let told = with_leave(&daemon, open).to_string();
    assert!(told.contains("isolator-not-under-load") && told.contains("nothing was sent"), "{told}");
    let typed = with_leave(&daemon, || daemon.cli(&["device", "write", "isolator-1", "close", "true", "--wait"]));
    let told = String::from_utf8_lossy(&typed.stdout).into_owned() + &String::from_utf8_lossy(&typed.stderr);
    assert!(typed.status.code() == Some(1) && told.contains("isolator-not-under-load"), "{told}");
    assert_eq!(Register::of(&daemon, "isolator-1", "close").read(), 0, "nothing was written");
}
