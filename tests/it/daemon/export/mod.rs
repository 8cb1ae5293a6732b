//! What happens here reaches an existing broker whole: Mosquitto, its own client, and a link that is cut.

mod broker;
mod commands;
pub(crate) mod desk;
mod faults;
mod metrics;
mod otlp;
mod sparkplug;
mod webhook;

use std::path::Path;

use interlock::record::{Row, Stamp, TimeQuality};
use interlock::store::queue::Entry;
use interlock::store::{Limits, Settings, Store};
use interlock_domain::time::{Tick, Wall};
use nix::sys::signal::Signal;
use serde_json::json;

use super::Home;
use broker::{Broker, Cable, Inbox, Receiver, free_port, mosquitto};

/// H6-048: so many rows, cuts of the link, kills of the daemon and restarts of the broker.
const ROWS: u64 = 10_000;
const CUTS: u64 = 50;
const KILLS: u64 = 10;
const RESTARTS: u64 = 5;

fn clock() -> Stamp {
    Stamp { mono: Tick(1), boottime_ns: 1, wall: Wall(1_764_500_000_000), quality: TimeQuality::Unknown }
}

/// A log of so many rows, of a life before the one that exports it.
fn seed(state: &Path, rows: u64) {
    let store = Store::open(&Settings {
        state: state.to_owned(),
        boot_id: "0b5c9f4e-8f5e-4f0e-9d55-2f6a2f1f7b11".to_owned(),
        version: "0.1.0".to_owned(),
        clock,
        limits: Limits::default(),
        algorithm: Default::default(),
    });
    let store = store.unwrap().store;
    let writer = store.writer();
    // The boot row is the first.
    for n in 2..=rows {
        let mut entry = Entry::relaxed(Row::new(clock(), "note").detailed(&json!({ "n": n })));
        while let Err(back) = writer.append(entry) {
            entry = *back.entry;
            std::thread::yield_now();
        }
    }
    assert_eq!(store.close().unwritten, 0);
}

fn config(home: &Home, port: u16, more: &str) -> std::path::PathBuf {
    let broker = format!("broker = \"mqtt://127.0.0.1:{port}\"\ndevice = \"box-1\"\n");
    home.config(&format!("version = 1\n[export.mqtt]\n{broker}{more}\n"))
}

fn skipped(test: &str) {
    crate::skipped(&format!("daemon::export::{test}"), "no mosquitto and mosquitto-clients of Debian");
}

/// H6-048.
#[test]
fn each_row_arrives_through_cuts_kills_and_restarts_of_the_broker() {
    if mosquitto().is_none() {
        return skipped("each_row_arrives_through_cuts_kills_and_restarts_of_the_broker");
    }
    let mut broker = Broker::start("");
    let cable = Cable::to(broker.port);
    let receiver = Receiver::of(&broker, "interlock/box-1/evidence");
    let home = Home::new();
    seed(&home.path("state"), ROWS);
    let path = config(&home, cable.port, "rate = 100000");
    let mut daemon = home.start(Some(&path));
    let turns = CUTS + KILLS + RESTARTS;
    for turn in 0..turns {
        // Where in the next part the disturbance falls is up to the machine.
        let wanted = usize::try_from(ROWS * (turn + 1) / (turns + 1)).unwrap();
        receiver.until(&format!("row {wanted} of {ROWS}"), |inbox| inbox.rows.len() >= wanted);
        if turn % (turns / KILLS) == 5 {
            let home = daemon.kill();
            daemon = home.start(Some(&path));
        } else if turn % (turns / RESTARTS) == 12 {
            broker.end();
            broker.begin();
        } else {
            cable.cut();
        }
    }
    receiver.until("every row", |inbox| inbox.is_whole(1, ROWS));
    // And each later life's rows, up to its own end.
    let last = daemon.ask("evidence.stats", json!({})).unwrap()["last"].as_u64().unwrap();
    receiver.until("the last row", |inbox| inbox.is_whole(1, last));
    assert!(receiver.json("/evidence").iter().all(|row| row["kind"] != "export_gap" && row["device"] == "box-1"));
}

/// H6-050.
#[test]
fn of_too_many_rows_the_newest_arrive_and_a_gap_comes_first() {
    if mosquitto().is_none() {
        return skipped("of_too_many_rows_the_newest_arrive_and_a_gap_comes_first");
    }
    let broker = Broker::start("");
    let receiver = Receiver::of(&broker, "interlock/box-1/evidence");
    let home = Home::new();
    seed(&home.path("state"), 20_000);
    let path = config(&home, broker.port, "rate = 100000\nbacklog-max = 5000");
    let daemon = home.start(Some(&path));
    receiver.until("the newest rows", |inbox| inbox.is_whole(15_100, 20_000));
    let told = receiver.json("/evidence");
    let gap = &told[0];
    assert_eq!((&gap["kind"], &gap["cause"], &gap["first"]), (&json!("export_gap"), &json!("backlog"), &json!(1)));
    let (last, count) = (gap["last"].as_u64().unwrap(), gap["count"].as_u64().unwrap());
    // A few rows of this life are the newest.
    assert!((15_000..15_100).contains(&last) && count == last, "{gap}");
    assert_eq!(told[1]["seq"], last + 1, "{}", told[1]);
    assert_eq!(told[1]["historical"], true);
    // What happens now is not the past.
    daemon.say("没有这样的命令啊");
    receiver.until("what was heard", |inbox| inbox.messages.iter().any(|(_, text)| text.contains("没有这样的命令啊")));
    let heard = receiver.json("/evidence").into_iter().find(|row| row["kind"] == "heard").unwrap();
    assert_eq!(heard["historical"], json!(null), "{heard}");
}

#[test]
fn a_signed_head_lies_outside_and_the_broker_says_when_the_box_is_gone() {
    if mosquitto().is_none() {
        return skipped("a_signed_head_lies_outside_and_the_broker_says_when_the_box_is_gone");
    }
    let broker = Broker::start("log_type all");
    let home = Home::new();
    seed(&home.path("state"), 200);
    let path = config(&home, broker.port, "topic = \"hall/3\"");
    let daemon = home.start(Some(&path));
    // It comes after the fact: both are retained.
    let receiver = Receiver::of(&broker, "hall/3/#");
    receiver.until("a checkpoint", |inbox| inbox.messages.iter().any(|(topic, _)| topic == "hall/3/checkpoint"));
    receiver.until("the state", |inbox| inbox.messages.iter().any(|(_, text)| text.contains("\"online\"")));
    // What the broker keeps is held against the log, and against one that is shorter than it was.
    receiver.until("a head", |inbox| inbox.messages.iter().any(|(topic, _)| topic == "hall/3/head"));
    let home = daemon.kill();
    let port = broker.port.to_string();
    let kept = std::process::Command::new(&mosquitto().unwrap()[1])
        .args(["-h", "127.0.0.1", "-p", &port, "-t", "hall/3/head", "-C", "1"])
        .output()
        .unwrap();
    std::fs::write(home.path("kept"), kept.stdout).unwrap();
    let verify = |state: &str, head: &str| {
        let verified = std::process::Command::new(env!("CARGO_BIN_EXE_interlock"))
            .args(["evidence", "verify", "--json", "--head", head, "--state", state])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&verified.stderr).into_owned();
        (verified.status.code(), serde_json::from_slice::<serde_json::Value>(&verified.stdout).unwrap_or(json!(said)))
    };
    let at = |name: &str| home.path(name).to_str().unwrap().to_owned();
    let (code, found) = verify(&at("state"), &at("kept"));
    assert_eq!((code, &found["verdict"]), (Some(0), &json!("INTACT")), "{found}");
    std::fs::write(home.path("none"), "nothing\n").unwrap();
    let (code, found) = verify(&at("state"), &at("none"));
    assert!(code == Some(65) && found.as_str().unwrap().contains("holds no head"), "{code:?} {found}");
    seed(&home.path("younger"), 20);
    let (code, found) = verify(&at("younger"), &at("kept"));
    assert_eq!((code, &found["verdict"]), (Some(1), &json!("UNANCHORED")), "{found}");
    receiver.until("the broker's word", |inbox| inbox.messages.iter().any(|(_, text)| text.contains("\"offline\"")));
    let said = |inbox: &Inbox, word: &str| {
        let states = inbox.messages.iter().filter(|(topic, _)| topic == "hall/3/state");
        states.filter(|(_, text)| text.contains(word)).count()
    };
    let daemon = home.start(Some(&path));
    // Who ends before the broker was reached has nothing to say to it.
    receiver.until("the second life", |inbox| said(inbox, "\"online\"") == 2);
    let (status, home) = daemon.end();
    assert!(status.success());
    receiver.until("its own word", |inbox| said(inbox, "\"offline\"") == 2);
    // It took leave, so that the broker did not have to say it.
    assert_eq!(broker.log().matches("Received DISCONNECT from interlock-box-1").count(), 1, "{}", broker.log());

    // A broker that hangs does not hold the end; it says what it was told to say when it comes to itself.
    let daemon = home.start(Some(&path));
    receiver.until("the third life", |inbox| said(inbox, "\"online\"") == 3);
    broker.signal(Signal::SIGSTOP);
    let (status, _home) = daemon.end();
    broker.signal(Signal::SIGCONT);
    assert!(status.success());
    receiver.until("the last word", |inbox| said(inbox, "\"offline\"") >= 3);
}

#[test]
fn what_stands_is_a_list_that_the_broker_keeps() {
    if mosquitto().is_none() {
        return skipped("what_stands_is_a_list_that_the_broker_keeps");
    }
    let broker = Broker::start("");
    let home = Home::new();
    let path = config(&home, broker.port, "");
    let daemon = home.start(Some(&path));
    let receiver = Receiver::of(&broker, "interlock/box-1/alarms");
    receiver.until("the first list", |inbox| !inbox.messages.is_empty());
    let asked = daemon.say("合上一号断路器");
    let question = asked["question"].as_str().unwrap().to_owned();
    receiver.until("the question", |inbox| inbox.messages.iter().any(|(_, text)| text.contains(&question)));
    let listed = receiver.json("/alarms").pop().unwrap();
    let standing = &listed["standing"][0];
    assert_eq!((&standing["kind"], &standing["id"]), (&json!("question"), &json!(question)), "{listed}");
    assert_eq!(daemon.log().matches("about=\"question\"").count(), 1, "{}", daemon.log());
    daemon.ask("ask.deny", json!({ "question": question })).unwrap();
    receiver.until("its end", |inbox| inbox.messages.last().is_some_and(|(_, text)| text.contains("\"standing\":[]")));
    daemon.eventually("the line of its end", || daemon.log().contains("state=\"over\"").then_some(()));
}

#[test]
fn a_broker_is_known_by_its_certificate_and_a_box_by_its_password() {
    if mosquitto().is_none() {
        return skipped("a_broker_is_known_by_its_certificate_and_a_box_by_its_password");
    }
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tls");
    let tls = free_port();
    let home = Home::new();
    // The broker's file has the password in the clear; it hashes it when it is told to.
    std::fs::write(home.path("passwords"), "").unwrap();
    let made = std::process::Command::new("mosquitto_passwd")
        .args(["-b", home.path("passwords").to_str().unwrap(), "interlock", "a secret"])
        .status();
    assert!(made.unwrap().success());
    let lines = format!(
        "listener {tls} 127.0.0.1\nallow_anonymous false\npassword_file {}\n\
         certfile {}\nkeyfile {}",
        home.path("passwords").display(),
        data.join("localhost.pem").display(),
        data.join("localhost-key.pem").display(),
    );
    let broker = Broker::start(&lines);
    let receiver = Receiver::of(&broker, "interlock/#");
    std::fs::write(home.path("password"), "a secret\n").unwrap();
    let path = home.path("interlock.toml");
    let write = |ca: &str, password: &str| {
        let text = format!(
            "version = 1\n[export.mqtt]\nbroker = \"mqtts://localhost:{tls}\"\ndevice = \"box-1\"\nca = {:?}\n\
             username = \"interlock\"\npassword-file = {:?}\n",
            data.join(ca),
            home.path(password),
        );
        std::fs::write(&path, text).unwrap();
    };
    std::fs::write(home.path("wrong"), "another\n").unwrap();
    write("other.pem", "password");
    let (other, wrong, right) = (
        std::fs::read_to_string(&path).unwrap(),
        {
            write("localhost.pem", "wrong");
            std::fs::read_to_string(&path).unwrap()
        },
        {
            write("localhost.pem", "password");
            std::fs::read_to_string(&path).unwrap()
        },
    );
    std::fs::write(&path, other).unwrap();
    let daemon = home.start(Some(&path));
    daemon.eventually("the refusal of the certificate", || {
        daemon.log().contains("invalid peer certificate").then_some(())
    });
    let home = daemon.kill();
    std::fs::write(&path, wrong).unwrap();
    let daemon = home.start(Some(&path));
    daemon.eventually("the refusal of the password", || daemon.log().contains("return code").then_some(()));
    assert!(!daemon.log().contains("another"), "{}", daemon.log());
    assert!(receiver.json("/evidence").is_empty());
    let home = daemon.kill();
    std::fs::write(&path, right).unwrap();
    let daemon = home.start(Some(&path));
    receiver.until("the first row", |inbox| inbox.is_whole(1, 1));
    drop(daemon);
}
