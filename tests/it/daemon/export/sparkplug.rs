//! Values of devices as an edge node of Sparkplug B says them, read by a decoder that shares nothing with the encoder.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use serde_json::{Value, json};

use super::broker::{Broker, Cable, Inbox, Receiver, mosquitto};
use super::skipped;
use crate::daemon::Home;

/// A device with a coil, an input register and a float.
#[derive(Default)]
struct Line {
    frequency: AtomicU32,
    level: AtomicU32,
    is_silent: AtomicBool,
    writes: AtomicU32,
}

impl Line {
    fn open() -> (Arc<Line>, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let line = Arc::new(Line::default());
        let served = Arc::clone(&line);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let served = Arc::clone(&served);
                std::thread::spawn(move || served.serve(stream));
            }
        });
        (line, port)
    }

    fn serve(&self, mut stream: TcpStream) {
        let mut request = [0; 12];
        while !self.is_silent.load(Ordering::SeqCst) && stream.read_exact(&mut request).is_ok() {
            if request[7] > 4 {
                self.writes.fetch_add(1, Ordering::SeqCst);
            }
            let [first, count] = [8, 10].map(|at| u16::from_be_bytes([request[at], request[at + 1]]));
            let level = self.level.load(Ordering::SeqCst);
            let word = |address: u16| match address {
                0 => u16::try_from(self.frequency.load(Ordering::SeqCst)).unwrap(),
                10 => u16::try_from(level >> 16).unwrap(),
                11 => u16::try_from(level & 0xffff).unwrap(),
                _ => 0,
            };
            let data: Vec<u8> = match request[7] {
                1 => vec![1],
                _ => (first..first + count).flat_map(|address| word(address).to_be_bytes()).collect(),
            };
            let bytes = u8::try_from(data.len()).unwrap();
            let length = bytes + 3;
            let mut answer = vec![request[0], request[1], 0, 0, 0, length, request[6], request[7], bytes];
            answer.extend(data);
            if self.is_silent.load(Ordering::SeqCst) || stream.write_all(&answer).is_err() {
                return;
            }
        }
    }
}

/// One field of protobuf: its number, and a number or bytes.
fn fields(bytes: &[u8]) -> Vec<(u64, u64, Vec<u8>)> {
    let (mut at, mut found) = (0, Vec::new());
    let varint = |at: &mut usize| {
        let mut value = 0;
        for shift in 0.. {
            let byte = bytes[*at];
            *at += 1;
            value |= u64::from(byte % 128) << (7 * shift);
            if byte < 128 {
                return value;
            }
        }
        unreachable!()
    };
    while at < bytes.len() {
        let key = varint(&mut at);
        let (number, data) = match key % 8 {
            0 => (varint(&mut at), Vec::new()),
            1 => {
                at += 8;
                (0, bytes[at - 8..at].to_vec())
            }
            2 => {
                let length = usize::try_from(varint(&mut at)).unwrap();
                at += length;
                (0, bytes[at - length..at].to_vec())
            }
            other => panic!("wire type {other} is not used here"),
        };
        found.push((key / 8, number, data));
    }
    found
}

/// A payload, by the names of `sparkplug_b.proto`.
fn decoded(hex: &str) -> Value {
    let bytes: Vec<u8> =
        (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect();
    let mut payload = json!({ "metrics": [] });
    for (field, number, data) in fields(&bytes) {
        match field {
            1 => payload["timestamp"] = number.into(),
            2 => payload["metrics"].as_array_mut().unwrap().push(metric(&data)),
            3 => payload["seq"] = number.into(),
            other => panic!("field {other} of a payload"),
        }
    }
    payload
}

fn metric(bytes: &[u8]) -> Value {
    let text = |data: &[u8]| String::from_utf8(data.to_vec()).unwrap();
    let mut metric = json!({});
    for (field, number, data) in fields(bytes) {
        match field {
            1 => metric["name"] = text(&data).into(),
            2 => metric["alias"] = number.into(),
            3 => assert!(number > 1_700_000_000_000, "a metric has a time"),
            4 => metric["datatype"] = number.into(),
            7 => metric["is_null"] = (number == 1).into(),
            9 => {
                let all = fields(&data);
                let keys = all.iter().filter(|(field, ..)| *field == 1).map(|(_, _, key)| text(key));
                let values = all.iter().filter(|(field, ..)| *field == 2).map(|(_, _, value)| {
                    let value = fields(value);
                    let of = |wanted: u64| value.iter().find(|(field, ..)| *field == wanted);
                    of(3).map(|(_, number, _)| json!(number)).or(of(8).map(|(_, _, data)| json!(text(data)))).unwrap()
                });
                for (key, value) in keys.zip(values) {
                    metric[key] = value;
                }
            }
            11 => metric["value"] = number.into(),
            13 => metric["value"] = f64::from_le_bytes(data.try_into().unwrap()).into(),
            14 => metric["value"] = (number == 1).into(),
            other => panic!("field {other} of a metric"),
        }
    }
    metric
}

/// What has come, as type, device and payload, in order.
fn said(inbox: &Inbox) -> Vec<(String, Value)> {
    let message = |(topic, hex): &(String, String)| {
        let parts: Vec<&str> = topic.split('/').collect();
        assert_eq!((parts[0], parts[1], parts[3]), ("spBv1.0", "plant", "box-1"), "{topic}");
        let kind = format!("{} {}", parts[2], parts.get(4).unwrap_or(&"")).trim_end().to_owned();
        (!kind.contains("CMD")).then(|| (kind, decoded(hex)))
    };
    inbox.messages.iter().filter_map(message).collect()
}

/// Waits until what has come says so, and gives it.
fn until(receiver: &Receiver, what: &str, seen: impl Fn(&[(String, Value)]) -> bool) -> Vec<(String, Value)> {
    let told = RefCell::new(Vec::new());
    receiver.until(what, |inbox| {
        *told.borrow_mut() = said(inbox);
        seen(&told.borrow())
    });
    told.into_inner()
}

fn count(said: &[(String, Value)], kind: &str) -> usize {
    said.iter().filter(|(known, _)| known == kind).count()
}

/// A command, as bytes: one metric with a name and a yes.
fn command(broker: &Broker, home: &std::path::Path, topic: &str, name: &str) {
    let length = |bytes: &[u8]| u8::try_from(bytes.len()).unwrap();
    let metric = [&[0x0a, length(name.as_bytes())], name.as_bytes(), &[0x20, 11, 0x70, 1]].concat();
    let payload = [&[0x12, length(&metric)], &metric[..]].concat();
    let file = home.join("command");
    std::fs::write(&file, payload).unwrap();
    let status = Command::new(&mosquitto().unwrap()[2])
        .args(["-h", "127.0.0.1", "-p", &broker.port.to_string(), "-t", topic, "-q", "1", "-f", file.to_str().unwrap()])
        .status();
    assert!(status.unwrap().success());
}

#[test]
fn an_edge_node_is_born_says_what_changes_and_dies_with_its_connection() {
    if mosquitto().is_none() {
        return skipped("sparkplug::an_edge_node_is_born_says_what_changes_and_dies_with_its_connection");
    }
    let broker = Broker::start("");
    let receiver = Receiver::in_hex(&broker, "spBv1.0/#");
    let (line, port) = Line::open();
    line.frequency.store(50, Ordering::SeqCst);
    line.level.store(1.5_f32.to_bits(), Ordering::SeqCst);
    let cable = Cable::to(broker.port);
    let home = Home::new();
    let path = home.config(&format!(
        "version = 1\n[[bus]]\nname = \"line\"\ntcp = \"127.0.0.1:{port}\"\ntimeout-ms = 300\n\
         [[device]]\nname = \"pump-1\"\nkind = \"pump\"\nbus = \"line\"\nunit = 1\n\
         [device.points]\nfrequency = {{ input = 0, unit = \"Hz\" }}\nlevel = {{ input = 10, type = \"f32\" }}\n\
         run = {{ coil = 0 }}\n\
         [export.mqtt]\nbroker = \"mqtt://127.0.0.1:{}\"\ndevice = \"box-1\"\nsparkplug = true\n\
         sparkplug-group = \"plant\"\nsparkplug-every = 1\n",
        cable.port
    ));
    let daemon = home.start(Some(&path));
    let told = until(&receiver, "the births", |said| count(said, "DBIRTH pump-1") == 1);
    assert_eq!(told[0].0, "NBIRTH");
    let first = told[0].1["metrics"][0]["value"].as_u64().unwrap();
    let birth = json!([
        { "name": "bdSeq", "datatype": 4, "value": first },
        { "name": "Node Control/Rebirth", "datatype": 11, "value": false },
    ]);
    assert_eq!((&told[0].1["seq"], &told[0].1["metrics"]), (&json!(0), &birth));
    let metrics = told[1].1["metrics"].as_array().unwrap();
    let of = |name: &str| metrics.iter().find(|metric| metric["name"] == name).unwrap();
    let alias = of("frequency")["alias"].clone();
    let want =
        json!({ "name": "frequency", "alias": alias, "datatype": 10, "Quality": 192, "engUnit": "Hz", "value": 50.0 });
    assert_eq!(of("frequency"), &want);
    assert_eq!((&of("run")["datatype"], &of("run")["value"]), (&json!(11), &json!(true)));

    // Only what changed is said, by its number; what is no number has no value and a bad quality.
    line.frequency.store(42, Ordering::SeqCst);
    until(&receiver, "the change", |said| count(said, "DDATA pump-1") == 1);
    line.level.store(f32::NAN.to_bits(), Ordering::SeqCst);
    let told = until(&receiver, "what cannot be read", |said| count(said, "DDATA pump-1") == 2);
    let data: Vec<&Value> =
        told.iter().filter(|(kind, _)| kind == "DDATA pump-1").map(|(_, said)| &said["metrics"]).collect();
    assert_eq!(data[0], &json!([{ "alias": alias, "datatype": 10, "Quality": 192, "value": 42.0 }]));
    assert_eq!(data[1], &json!([{ "alias": of("level")["alias"], "datatype": 10, "Quality": 0, "is_null": true }]));

    // A device that does not answer is dead, and born when it does again.
    line.is_silent.store(true, Ordering::SeqCst);
    until(&receiver, "the death of the device", |said| count(said, "DDEATH pump-1") == 1);
    line.is_silent.store(false, Ordering::SeqCst);
    let told = until(&receiver, "its second birth", |said| count(said, "DBIRTH pump-1") == 2);
    let seqs: Vec<u64> = told.iter().map(|(_, said)| said["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (0..told.len() as u64).collect::<Vec<_>>(), "none is missing");

    // Asked to, it says all of it again, as the same connection.
    let state = daemon.path("state");
    command(&broker, &state, "spBv1.0/plant/NCMD/box-1", "Node Control/Rebirth");
    let told = until(&receiver, "the rebirth", |said| count(said, "DBIRTH pump-1") == 3);
    let again = told.iter().rposition(|(kind, _)| kind == "NBIRTH").unwrap();
    assert_eq!((&told[again].1["metrics"], &told[again].1["seq"]), (&birth, &json!(0)));
    assert_eq!((told[again + 1].0.as_str(), &told[again + 1].1["seq"]), ("DBIRTH pump-1", &json!(1)));

    // A write is refused and written down, and nothing changes.
    command(&broker, &state, "spBv1.0/plant/DCMD/box-1/pump-1", "run");
    command(&broker, &state, "spBv1.0/plant/NCMD/box-1", "Node Control/Reboot");
    daemon.eventually("both refusals", || {
        let rows = daemon.ask("evidence.query", json!({ "kind": "heard" })).unwrap();
        let refused = rows.as_array().unwrap().iter().filter(|row| row["cause"] == "sparkplug_write");
        let names: Vec<Value> = refused.map(|row| row["detail"]["message"]["metrics"][0].clone()).collect();
        (names.len() == 2).then(|| assert_eq!(names, [json!("run"), json!("Node Control/Reboot")]))
    });
    assert_eq!(line.writes.load(Ordering::SeqCst), 0);

    // The link is cut: the broker says the death of this connection, and the next one has the next number.
    cable.cut();
    let told =
        until(&receiver, "the next life", |said| count(said, "NDEATH") == 1 && count(said, "DBIRTH pump-1") == 4);
    let of = |kind: &str| told.iter().rfind(|(known, _)| known == kind).unwrap().1.clone();
    let died = json!([{ "name": "bdSeq", "datatype": 4, "value": first }]);
    assert_eq!((&of("NDEATH")["metrics"], of("NDEATH").get("seq")), (&died, None));
    assert_eq!(of("NBIRTH")["metrics"][0]["value"], first + 1);
    let standing = daemon.ask("status", json!({})).unwrap()["export"]["sparkplug"].clone();
    assert_eq!((&standing["connected"], &standing["connections"]), (&json!(true), &json!(2)), "{standing}");

    // Its own word at the end; and the next start goes on counting.
    let (status, home) = daemon.end();
    assert!(status.success());
    let told = until(&receiver, "the last word", |said| count(said, "NDEATH") == 2);
    assert_eq!(told.iter().rfind(|(kind, _)| kind == "NDEATH").unwrap().1["metrics"][0]["value"], first + 1);
    let daemon = home.start(Some(&path));
    let told = until(&receiver, "the next start", |said| count(said, "DBIRTH pump-1") == 5);
    assert_eq!(told.iter().rfind(|(kind, _)| kind == "NBIRTH").unwrap().1["metrics"][0]["value"], first + 2);
    drop(daemon);
}

/// More devices than the library has places for messages.
#[test]
fn a_plant_of_many_devices_is_born_whole_and_goes_on() {
    if mosquitto().is_none() {
        return skipped("sparkplug::a_plant_of_many_devices_is_born_whole_and_goes_on");
    }
    let broker = Broker::start("");
    let receiver = Receiver::in_hex(&broker, "spBv1.0/#");
    let home = Home::new();
    let path = super::config(&home, broker.port, "sparkplug = true\nsparkplug-group = \"plant\"\nsparkplug-every = 1");
    let daemon = home.start(Some(&path));
    let rows = daemon.list("device.list");
    let devices: BTreeSet<&str> = rows.iter().map(|row| row["device"].as_str().unwrap()).collect();
    assert!(devices.len() > 60, "{}", devices.len());
    let births = |said: &[(String, Value)]| said.iter().filter(|(kind, _)| kind.starts_with("DBIRTH ")).count();
    until(&receiver, "every birth", |said| births(said) == devices.len());
    assert_eq!(daemon.say("启动一号泵")["result"], "done");
    until(&receiver, "the pump", |said| count(said, "DDATA pump-1") > 0);
    for turn in 2..6 {
        command(&broker, &daemon.path("state"), "spBv1.0/plant/NCMD/box-1", "Node Control/Rebirth");
        until(&receiver, "every birth again", |said| births(said) >= turn * devices.len());
    }
    let (status, _home) = daemon.end();
    assert!(status.success());
    let told = until(&receiver, "the last word", |said| count(said, "NDEATH") == 1);
    // Between two births of the node, none is missing.
    let mut next = 0;
    for (kind, payload) in told.iter().filter(|(kind, _)| kind != "NDEATH") {
        if kind == "NBIRTH" {
            next = 0;
        }
        assert_eq!(payload["seq"], next, "{kind}");
        next = (next + 1) % 256;
    }
}
