//! What goes wrong under an export: a broker that is killed, a disk that is full, a certificate that is not taken.

use std::path::Path;

use serde_json::{Value, json};

use super::broker::{Broker, Cable, Receiver, free_port, mosquitto};
use super::{config, seed, skipped};
use crate::daemon::ground::Disk;
use crate::daemon::{Daemon, Home};

fn standing(daemon: &Daemon) -> Value {
    daemon.ask("status", json!({})).unwrap()["export"]["mqtt"].clone()
}

/// H6-048, the hard way. A broker acknowledges before its receivers and its disk have a message, so that what is lost
/// with its memory is its own loss: it is killed when its receiver has all that it has acknowledged.
#[test]
fn a_broker_that_is_killed_again_and_again_costs_no_row_of_ours() {
    const ROWS: u64 = 3_000;
    const KILLS: u64 = 5;
    if mosquitto().is_none() {
        return skipped("faults::a_broker_that_is_killed_again_and_again_costs_no_row_of_ours");
    }
    let mut broker = Broker::start("");
    let receiver = Receiver::of(&broker, "interlock/box-1/evidence");
    let home = Home::new();
    seed(&home.path("state"), ROWS);
    let cable = Cable::to(broker.port);
    let path = config(&home, cable.port, "rate = 2000");
    let daemon = home.start(Some(&path));
    let mut in_the_middle = 0;
    for kill in 1..=KILLS {
        let wanted = usize::try_from(ROWS * kill / (KILLS + 1)).unwrap();
        receiver.until(&format!("row {wanted}"), |inbox| inbox.rows.len() >= wanted);
        cable.unplug();
        let acknowledged = daemon.eventually("the cut", || {
            let standing = standing(&daemon);
            let last = daemon.ask("evidence.stats", json!({})).unwrap()["last"].as_u64().unwrap();
            (standing["connected"] == false).then(|| last - standing["waiting"].as_u64().unwrap())
        });
        in_the_middle += u64::from(acknowledged < ROWS);
        receiver.until("what was acknowledged", |inbox| inbox.is_whole(1, acknowledged));
        broker.kill();
        broker.begin();
        // What nobody has subscribed to is lost for its receiver, and no business of ours.
        let probe = format!("probe-{kill}");
        daemon.eventually("the receiver", || {
            broker.publish("interlock/box-1/evidence", &probe);
            receiver.has(|inbox| inbox.messages.iter().any(|(_, text)| *text == probe)).then_some(())
        });
        cable.plug();
    }
    assert!(in_the_middle > 2, "all was sent before the kills came");
    receiver.until("every row", |inbox| inbox.is_whole(1, ROWS));
    let last = daemon.ask("evidence.stats", json!({})).unwrap()["last"].as_u64().unwrap();
    receiver.until("the last row", |inbox| inbox.is_whole(1, last));
    assert_eq!((&standing(&daemon)["dropped"], &standing(&daemon)["last_error"].is_null()), (&json!(0), &false));
}

#[test]
fn what_happens_on_a_full_disk_is_exported_when_it_is_written() {
    let test = "daemon::export::faults::what_happens_on_a_full_disk_is_exported_when_it_is_written";
    if mosquitto().is_none() {
        return skipped("faults::what_happens_on_a_full_disk_is_exported_when_it_is_written");
    }
    let broker = Broker::start("");
    let receiver = Receiver::of(&broker, "interlock/box-1/evidence");
    let home = Home::new();
    let Some(disk) = Disk::mounted(test, &home, "140m") else { return };
    let path = config(&home, broker.port, "rate = 100000");
    let daemon = home.start(Some(&path));
    assert_eq!(daemon.say("启动二号泵")["result"], "done");
    let ballast = daemon.path("state").join("ballast");
    std::fs::write(&ballast, vec![1; 200 << 20]).unwrap_err();
    daemon.eventually("the full disk", || (daemon.say("启动一号泵")["result"] == "not_started").then_some(()));
    assert_eq!(daemon.say("查询一号水泵出口压力")["result"], "done");
    assert_eq!(daemon.say("全线急停")["result"], "done");
    std::fs::remove_file(&ballast).unwrap();
    daemon.eventually("the way back", || (daemon.say("启动二号泵")["result"] == "done").then_some(()));
    // The export goes on from where it was, over a kill too: the place was kept, or is told again.
    let home = daemon.kill();
    let daemon = home.start(Some(&path));
    daemon.eventually("a calm", || {
        let last = daemon.ask("evidence.stats", json!({})).unwrap()["last"].as_u64().unwrap();
        receiver.has(|inbox| inbox.is_whole(1, last)).then_some(())
    });
    let told = receiver.json("/evidence");
    assert!(told.iter().all(|row| row["kind"] != "export_gap"));
    assert!(told.iter().any(|row| row["kind"] == "evidence_recovered"), "the disk was not full");
    assert_eq!(standing(&daemon)["dropped"], 0);
    drop(daemon);
    drop(disk);
}

#[test]
fn a_box_shows_its_certificate_and_one_that_does_not_go_with_its_key_is_told_with_its_place() {
    if mosquitto().is_none() {
        return skipped(
            "faults::a_box_shows_its_certificate_and_one_that_does_not_go_with_its_key_is_told_with_its_place",
        );
    }
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tls");
    let port = free_port();
    let broker = Broker::start(&format!(
        "listener {port} 127.0.0.1\nallow_anonymous true\nrequire_certificate true\ncafile {0}\ncertfile {0}\nkeyfile {1}",
        data.join("localhost.pem").display(),
        data.join("localhost-key.pem").display(),
    ));
    let receiver = Receiver::of(&broker, "interlock/#");
    let home = Home::new();
    let text = |ours: &str| {
        format!(
            "version = 1\n[export.mqtt]\nbroker = \"mqtts://localhost:{port}\"\ndevice = \"box-1\"\nca = {:?}\n{ours}",
            data.join("localhost.pem")
        )
    };
    let ours = |certificate: &str| {
        text(&format!("certificate = {:?}\nkey-file = {:?}\n", data.join(certificate), data.join("localhost-key.pem")))
    };
    let path = home.config(&ours("other.pem"));
    let daemon = home.start(Some(&path));
    let why = standing(&daemon)["last_error"]["why"].as_str().unwrap().to_owned();
    assert!(why.contains("interlock.toml:6:15: export.mqtt.certificate"), "{why}");
    assert_eq!(daemon.say("启动一号泵")["result"], "done");
    let check = daemon.cli(&["check", "--config", path.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&check.stderr).into_owned();
    assert_eq!(check.status.code(), Some(78), "{said}");
    assert!(said.contains("export.mqtt.certificate") && said.contains("hint: certificate is a PEM file"), "{said}");
    // Without one, it is the broker that refuses.
    let home = daemon.kill();
    std::fs::write(&path, text("")).unwrap();
    let daemon = home.start(Some(&path));
    daemon.eventually("the refusal", || standing(&daemon)["last_error"]["why"].is_string().then_some(()));
    assert_eq!(standing(&daemon)["arrived"], 0);
    let home = daemon.kill();
    std::fs::write(&path, ours("localhost.pem")).unwrap();
    let daemon = home.start(Some(&path));
    receiver.until("the first row", |inbox| inbox.is_whole(1, 1));
    // The alarm of the first start is over.
    daemon.eventually("its end", || {
        let state = interlock::store::state::State::open(&daemon.path("state")).unwrap();
        let alarms = state.standing_alarms().unwrap();
        alarms.iter().all(|alarm| alarm.source != "export:mqtt" || alarm.cleared.is_some()).then_some(())
    });
}
