//! All shipped commands against the embedded plant: through the tool, and looked at by a client that shares no code
//! with it.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use interlock::plant::server::{Plant, start};
use interlock::plant::{BUILT_IN, BUILT_IN_NAME};
use interlock::tool::device::{ABOUT, DeviceTool};
use interlock_domain::command::bind::{BindError, bind, parse};
use interlock_domain::device::codec::{Raw, Reading};
use interlock_domain::device::plan::{Call, Plan, Put, Step};
use interlock_domain::device::point::{Point, Repr, Table};
use interlock_domain::effect::report::Report;
use serde_json::{Map, Value, json};

/// One deadline for everything in a test.
const DEADLINE: Duration = Duration::from_secs(60);

/// A Modbus TCP client of forty lines, for tests only: its frames are made here, byte by byte.
struct RawClient {
    stream: TcpStream,
    transaction: u16,
}

impl RawClient {
    fn connect(address: SocketAddr) -> RawClient {
        let stream = TcpStream::connect(address).expect("the plant listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        RawClient { stream, transaction: 0 }
    }

    /// Sends a PDU, gives the PDU of the answer.
    fn ask(&mut self, unit: u8, pdu: &[u8]) -> Vec<u8> {
        self.transaction += 1;
        let len = u16::try_from(pdu.len() + 1).expect("a short frame");
        let mut frame = Vec::new();
        frame.extend(self.transaction.to_be_bytes());
        frame.extend([0, 0]);
        frame.extend(len.to_be_bytes());
        frame.push(unit);
        frame.extend(pdu);
        self.stream.write_all(&frame).expect("sent");
        let mut head = [0; 7];
        self.stream.read_exact(&mut head).expect("an answer");
        assert_eq!((head[..2].to_vec(), head[6]), (self.transaction.to_be_bytes().to_vec(), unit));
        let mut answer = vec![0; usize::from(u16::from_be_bytes([head[4], head[5]])) - 1];
        self.stream.read_exact(&mut answer).expect("all of the answer");
        answer
    }

    /// Registers, or bits as 0 and 1.
    fn read(&mut self, unit: u8, table: Table, address: u16, count: u16) -> Vec<u16> {
        let function = match table {
            Table::Coil => 1,
            Table::Discrete => 2,
            Table::Holding => 3,
            Table::Input => 4,
        };
        let [a, b] = address.to_be_bytes();
        let [c, d] = count.to_be_bytes();
        let answer = self.ask(unit, &[function, a, b, c, d]);
        assert_eq!(answer[0], function, "{answer:?}");
        if table.is_bits() {
            (0..usize::from(count)).map(|at| u16::from(answer[2 + at / 8] >> (at % 8) & 1)).collect()
        } else {
            answer[2..].chunks(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect()
        }
    }

    fn write(&mut self, unit: u8, table: Table, address: u16, word: u16) {
        let [a, b] = address.to_be_bytes();
        let (function, [c, d]) = match table {
            Table::Coil => (5, if word == 0 { [0, 0] } else { [0xff, 0] }),
            Table::Holding => (6, word.to_be_bytes()),
            Table::Discrete | Table::Input => panic!("{table} cannot be written"),
        };
        let answer = self.ask(unit, &[function, a, b, c, d]);
        assert_eq!(answer, [function, a, b, c, d]);
    }
}

async fn built_in() -> (Plant, DeviceTool) {
    let plant = start(BUILT_IN, Path::new(BUILT_IN_NAME), 0).await.expect("the plant starts");
    let tool = DeviceTool::new(Arc::new(plant.devices.clone()));
    (plant, tool)
}

fn shipped() -> Vec<Map<String, Value>> {
    let text = include_str!("../../models/commands/commands.toml");
    let file: Value = toml::from_str(text).expect("TOML");
    file["command"].as_array().expect("commands").iter().map(|it| it.as_object().expect("a table").clone()).collect()
}

/// A slot as an operator would say it: the first device, some zone, a number that fits.
fn said(command: &str, slot: &str, kind: &str) -> Value {
    match (kind, command) {
        ("device_no", _) if slot == "tool" => json!(3),
        ("device_no", _) => json!(1),
        ("zone", _) => json!("二车间"),
        ("percent", _) => json!(40),
        ("digits", _) => json!("0107"),
        ("duration_s", _) => json!(600),
        ("number", "pump_set_freq") => json!(35.5),
        ("number", "conv_speed" | "agv_speed") => json!(1.25),
        ("number", "fan_speed" | "spindle_speed") => json!(1050),
        ("number", "ac_set_temp") => json!(24.5),
        _ => panic!("{command} has a slot {slot} of type {kind}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_141_commands_are_bound_and_do_what_they_say() {
    tokio::time::timeout(DEADLINE, all_commands()).await.expect("in time");
}

async fn all_commands() {
    let (plant, tool) = built_in().await;
    let mut raw = RawClient::connect(plant.address);
    let commands = shipped();
    assert_eq!(commands.len(), 141);
    let mut by_tool: BTreeMap<String, usize> = BTreeMap::new();
    let mut asked = Vec::new();
    for command in &commands {
        let id = command["id"].as_str().expect("an id");
        let steps = parse(&command["bind"]).unwrap_or_else(|error| panic!("{id}: {error}"));
        let slots = command["slots"].as_array().expect("slots");
        let slots = slots.iter().map(|slot| {
            let (name, kind) = (slot["name"].as_str().expect("a name"), slot["type"].as_str().expect("a type"));
            (name.to_owned(), said(id, name, kind), slot["required"] == json!(true))
        });
        let slots = slots.collect::<Vec<_>>();
        for named in steps.iter().flat_map(|step| step.slots()) {
            assert!(slots.iter().any(|(slot, ..)| *slot == named), "{id} has no slot {named}");
        }
        let all = slots.iter().map(|(name, value, _)| (name.clone(), value.clone())).collect::<Map<_, _>>();
        // With nothing optional said, it is the only such device, or a question.
        let required =
            slots.iter().filter(|(.., required)| *required).map(|(name, value, _)| (name.clone(), value.clone()));
        match bind(&steps, &required.collect(), &plant.devices) {
            Ok(_) => {}
            Err(BindError::Missing(missing)) => asked.push(format!("{id}: {}", missing.join(" "))),
            Err(other) => panic!("{id}: {other}"),
        }
        let calls = bind(&steps, &all, &plant.devices).unwrap_or_else(|error| panic!("{id}: {error}"));
        for (name, input) in calls {
            *by_tool.entry(name.as_str().to_owned()).or_default() += 1;
            if name.as_str() == "device" {
                let plan = plant.devices.plan(&Call::parse(&input).expect("a call")).expect("a plan");
                assert_eq!(plan.risk.word(), command["risk"], "{id}: the risk of {input}");
                let protective = command.get("protective") == Some(&json!(true));
                assert_eq!(plan.protective, protective, "{id}: protective");
                carried_out(id, &plan, &input, &tool, &mut raw).await;
            }
        }
    }
    assert_eq!(
        by_tool.into_iter().collect::<Vec<_>>(),
        [("alarm", 5), ("device", 122), ("log", 2), ("monitor", 1), ("report", 1), ("system", 4), ("task", 6)]
            .map(|(tool, count)| (tool.to_owned(), count))
    );
    // One boiler, one transformer, one machine tool: they need no name. Of these there are several.
    let several = ["pump_start: device", "ac_on: zone", "brk_close: device", "agv_goto: device", "conv_estop: device"];
    for question in several {
        assert!(asked.iter().any(|it| it == question), "{question} in {asked:?}");
    }
    assert!(!asked.iter().any(|it| it.starts_with("boiler") || it.starts_with("trafo") || it.starts_with("cnc")));
}

/// Through the tool, and then looked at from outside.
async fn carried_out(id: &str, plan: &Plan, input: &Value, tool: &DeviceTool, raw: &mut RawClient) {
    let puts = plan.steps.iter().filter_map(|step| match step {
        Step::Write(put) => Some(put),
        Step::Read(_) => None,
    });
    // The last write to a point is the one that stays.
    let last = puts.map(|put| ((put.device.clone(), put.point.name.clone()), put)).collect::<BTreeMap<_, _>>();
    for put in last.values() {
        let (wanted, other) = words(put);
        raw.write(put.unit, put.point.table, put.point.address, other);
        assert_ne!(
            raw.read(put.unit, put.point.table, put.point.address, 1),
            [wanted],
            "{id}: before {}",
            put.point.name
        );
    }
    let out = match tool.run(input).await {
        Report::Done(out) => out,
        other @ (Report::Failed(_) | Report::Lost(_)) => panic!("{id}: {input} gave {other:?}"),
    };
    assert_eq!(
        (out["device"].as_str(), out["action"].as_str()),
        (Some(plan.device.as_str()), Some(plan.action.as_str()))
    );
    for put in last.values() {
        let found = raw.read(put.unit, put.point.table, put.point.address, 1);
        assert_eq!(found, [words(put).0], "{id}: {}/{}", put.device, put.point.name);
    }
    let told = told(&out);
    for step in &plan.steps {
        let Step::Read(span) = step else { continue };
        for point in &span.points {
            let words = raw.read(span.unit, point.table, point.address, point.repr.addresses());
            let value = told.get(point.name.as_str()).unwrap_or_else(|| panic!("{id}: no {} in {out}", point.name));
            plausible(id, point, value, &words);
        }
    }
    assert!(!told.is_empty(), "{id}: {out}");
}

/// What the call should leave there, and something else that fits.
fn words(put: &Put) -> (u16, u16) {
    match put.raw {
        Raw::Bit(bit) => (u16::from(bit), u16::from(!bit)),
        Raw::Word(word) => {
            let (min, max) = put.point.limits().expect("a number");
            let ends = [min, max].map(|end| match put.point.encode(Reading::Number(end)) {
                Ok(Raw::Word(word)) => word,
                other => panic!("the end of a range is {other:?}"),
            });
            (word, ends.into_iter().find(|end| *end != word).expect("another value"))
        }
        Raw::BitOf(..) | Raw::Pair(_) => panic!("the built-in plant writes no {:?}", put.raw),
    }
}

fn told(out: &Value) -> BTreeMap<&str, &Value> {
    let rows = out.get("points").and_then(Value::as_array).map_or_else(|| vec![out], |rows| rows.iter().collect());
    rows.into_iter().filter_map(|row| Some((row["point"].as_str()?, &row["value"]))).collect()
}

/// The value that was told is what the registers hold now, or close to it where the process moves on.
fn plausible(id: &str, point: &Point, value: &Value, words: &[u16]) {
    let raw = words.iter().fold(0_u32, |all, word| (all << 16) | u32::from(*word));
    if point.table.is_bits() {
        assert_eq!(*value, json!(raw != 0), "{id}: {}", point.name);
        return;
    }
    let now = if point.repr == Repr::I16 { f64::from(words[0].cast_signed()) } else { f64::from(raw) } * point.scale;
    let then = value.as_f64().unwrap_or_else(|| panic!("{id}: {} is {value}", point.name));
    assert!((now - then).abs() <= 5.0_f64.max(now.abs() / 2.0), "{id}: {} was {then}, is {now}", point.name);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_sees_what_was_done_in_names_and_units() {
    let (_plant, tool) = built_in().await;
    let run = async |input: Value| match tool.run(&input).await {
        Report::Done(out) => out,
        Report::Failed(failure) => json!([failure.code, failure.message]),
        Report::Lost(loss) => panic!("{input}: {loss:?}"),
    };
    let rows = [
        (
            json!({"device": "pump-2", "action": "start"}),
            json!({"device": "pump-2", "action": "start", "point": "run", "value": true, "unit": ""}),
        ),
        (
            json!({"device": "pump-2", "action": "set-frequency", "value": 35.504}),
            json!({"device": "pump-2", "action": "set-frequency", "point": "frequency-set", "value": 35.5, "unit": "Hz", "raw": [3550]}),
        ),
        (
            json!({"device": "agv-1", "action": "read", "point": "position"}),
            json!({"device": "agv-1", "action": "read", "point": "position", "value": 12, "unit": "", "label": "充电区", "raw": [12]}),
        ),
        (
            json!({"device": "standby-pump-1", "action": "takeover"}),
            json!({"device": "standby-pump-1", "action": "takeover", "points": [
                {"device": "standby-pump-1", "point": "run", "value": true, "unit": ""},
                {"device": "pump-1", "point": "run", "value": false, "unit": ""},
            ]}),
        ),
        (
            json!({"device": "pump-2", "action": "set-frequency", "value": 80}),
            json!(["out_of_range", "pump-2: frequency-set takes 0 to 50 Hz, not 80"]),
        ),
        (
            json!({"device": "pump-9", "action": "start"}),
            json!(["no_such_device", "there is no device named \"pump-9\"; there are pump-1, pump-2, pump-3"]),
        ),
        (
            json!({"device": "pump-1", "action": "write", "point": "speed", "value": 3}),
            json!(["read_only", "pump-1/speed cannot be written"]),
        ),
        (
            json!({"device": "pump-1", "action": "start", "value": 3}),
            json!(["bad_input", "pump-1 start takes no value"]),
        ),
        (
            json!({"device": "pump-1", "action": "start", "valeu": 3}),
            json!(["bad_input", "the input has a key besides device, action, point and value"]),
        ),
    ];
    for (input, expected) in rows {
        assert_eq!(run(input.clone()).await, expected, "{input}");
    }
    let schema = (ABOUT.output)();
    assert_eq!(schema["required"], json!(["device", "action"]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_list_has_a_row_for_each_point_with_its_value() {
    let (plant, tool) = built_in().await;
    let Report::Done(list) = tool.run(&json!({"device": "*", "action": "list"})).await else { panic!("a list") };
    let rows = list["points"].as_array().expect("rows");
    let points = plant.devices.iter().map(|device| device.points.len()).sum::<usize>();
    assert_eq!(rows.len(), points);
    let row = rows.iter().find(|row| row["device"] == "pump-2" && row["point"] == "frequency-set").expect("a row");
    let expected = json!({
        "device": "pump-2", "point": "frequency-set", "title": "二号水泵", "zone": "泵房",
        "bus": format!("tcp://{}", plant.address), "unit": 1, "kind": "holding", "address": 16, "scale": 0.01,
        "offset": 0.0, "type": "u16", "measure": "Hz", "writable": true, "value": 50,
    });
    assert_eq!(*row, expected);
    // Every row can be checked from outside with nothing but its own fields.
    let mut raw = RawClient::connect(plant.address);
    for row in rows.iter().filter(|row| row["type"] != "u32") {
        let table = Table::ALL.into_iter().find(|table| row["kind"] == table.word()).expect("a table");
        let number = |key: &str| row[key].as_u64().expect("a number");
        let (unit, address) =
            (u8::try_from(number("unit")).expect("a unit"), u16::try_from(number("address")).expect("u16"));
        let word = f64::from(raw.read(unit, table, address, 1)[0]);
        let value = row["value"].as_f64().or(row["value"].as_bool().map(|bit| f64::from(u8::from(bit))));
        let value = value.unwrap_or_else(|| panic!("{row}"));
        assert!((word * row["scale"].as_f64().expect("a scale") - value).abs() < 1e-6, "{row} holds {word}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_refuses_with_the_right_exception() {
    let (plant, _) = built_in().await;
    let mut raw = RawClient::connect(plant.address);
    let rows: [(&str, u8, &[u8], &[u8]); 19] = [
        ("read of nothing", 1, &[1, 0, 0, 0, 0], &[0x81, 3]),
        ("read of 2001 coils", 1, &[1, 0, 0, 7, 209], &[0x81, 3]),
        ("read of 126 registers", 1, &[3, 0, 0, 0, 126], &[0x83, 3]),
        ("read behind the last address", 1, &[4, 255, 255, 0, 2], &[0x84, 2]),
        ("read where nothing lies", 1, &[2, 10, 0, 0, 1], &[0x82, 2]),
        ("write where nothing lies", 1, &[5, 10, 0, 0xff, 0], &[0x85, 2]),
        ("write out of range", 1, &[6, 0, 0, 0x13, 0x89], &[0x86, 3]),
        ("write in range", 1, &[6, 0, 0, 0x13, 0x88], &[6, 0, 0, 0x13, 0x88]),
        ("two coils", 1, &[15, 0, 0, 0, 2, 1, 3], &[15, 0, 0, 0, 2]),
        ("one register by 16", 1, &[16, 0, 0, 0, 1, 2, 0x10, 0], &[16, 0, 0, 0, 1]),
        ("registers over the edge by 16", 1, &[16, 0, 0, 0, 2, 4, 0, 0, 0, 0], &[0x90, 2]),
        ("nine coils in one byte", 1, &[15, 0, 0, 0, 9, 1, 3], &[0x8f, 3]),
        ("2000 coils in no byte", 1, &[15, 0, 0, 7, 208, 0], &[0x8f, 3]),
        ("32768 registers in no byte", 1, &[16, 0, 0, 128, 0, 0], &[0x90, 3]),
        ("a byte too many", 1, &[16, 0, 0, 0, 1, 2, 0, 0, 0], &[0x90, 3]),
        ("reading and writing at once", 1, &[23, 0, 0, 0, 1, 0, 0, 128, 0, 0], &[0x97, 1]),
        ("a function that is not there", 1, &[0x16, 0, 0, 0, 1, 0, 1], &[0x96, 1]),
        ("a function of nobody", 1, &[0x41, 1, 2, 3], &[0xc1, 1]),
        ("a unit that is not there", 77, &[1, 0, 0, 0, 1], &[0x81, 11]),
    ];
    for (what, unit, pdu, expected) in rows {
        assert_eq!(raw.ask(unit, pdu), expected, "{what}");
    }
    assert_eq!((raw.read(1, Table::Coil, 0, 2), raw.read(1, Table::Holding, 0, 1)), (vec![1, 1], vec![0x1000]));
    // It says what it is.
    let identity = raw.ask(1, &[0x2b, 0x0e, 1, 0]);
    assert!(String::from_utf8_lossy(&identity).contains("simulator"), "{identity:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pymodbus_sees_the_same_registers() {
    let name = "pymodbus_sees_the_same_registers";
    let Some(python) = crate::python() else {
        return crate::skipped(name, "no Python with pymodbus; `cargo xtask test` makes one");
    };
    let (plant, tool) = built_in().await;
    let start = json!({"device": "pump-2", "action": "start"});
    assert!(matches!(tool.run(&start).await, Report::Done(_)));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/modbus.py");
    let mut client = Command::new(python)
        .arg(script)
        .args([plant.address.ip().to_string(), plant.address.port().to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("Python starts");
    let mut requests = client.stdin.take().expect("piped");
    let mut answers = BufReader::new(client.stdout.take().expect("piped")).lines();
    let mut ask = |request: Value| -> Value {
        writeln!(requests, "{request}").expect("sent");
        let line = answers.next().expect("a line").expect("text");
        serde_json::from_str(&line).expect("JSON")
    };
    let rows = [
        (json!({"call": "read_coils", "unit": 1, "address": 16, "count": 2}), json!({"bits": [true, false]})),
        (json!({"call": "read_discrete_inputs", "unit": 1, "address": 16, "count": 2}), json!({"bits": [true, false]})),
        (json!({"call": "read_holding_registers", "unit": 1, "address": 16, "count": 1}), json!({"registers": [5000]})),
        (json!({"call": "read_input_registers", "unit": 1, "address": 7, "count": 1}), json!({"registers": [0]})),
        (json!({"call": "write_coil", "unit": 1, "address": 0, "value": true}), json!({"written": true})),
        (json!({"call": "write_coils", "unit": 1, "address": 16, "values": [false, true]}), json!({"written": true})),
        (json!({"call": "write_register", "unit": 1, "address": 0, "value": 3550}), json!({"written": true})),
        (json!({"call": "write_registers", "unit": 1, "address": 16, "values": [2500]}), json!({"written": true})),
        (json!({"call": "write_register", "unit": 1, "address": 0, "value": 5001}), json!({"exception": 3})),
        (json!({"call": "read_holding_registers", "unit": 1, "address": 9, "count": 1}), json!({"exception": 2})),
        (json!({"call": "read_coils", "unit": 99, "address": 0, "count": 1}), json!({"exception": 11})),
    ];
    for (request, expected) in rows {
        assert_eq!(ask(request.clone()), expected, "{request}");
    }
    let identity = ask(json!({"call": "read_device_information", "unit": 1}));
    assert!(identity["information"]["2"].as_str().expect("a text").starts_with("simulator"), "{identity}");
    // What it wrote is what the tool reads.
    for (device, point, expected) in [
        ("pump-1", "run", json!(true)),
        ("pump-2", "run", json!(false)),
        ("pump-2", "auto", json!(true)),
        ("pump-1", "frequency-set", json!(35.5)),
        ("pump-2", "frequency-set", json!(25)),
    ] {
        let read = json!({"device": device, "action": "read", "point": point});
        let report = tool.run(&read).await;
        assert!(matches!(&report, Report::Done(out) if out["value"] == expected), "{report:?}");
    }
    drop(requests);
    assert!(client.wait().expect("it ends").success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_on_its_port_costs_the_plant_one_connection() {
    let (plant, tool) = built_in().await;
    let mut random = fastrand::Rng::with_seed(11);
    for _ in 0..300 {
        let mut stream = TcpStream::connect(plant.address).expect("the plant listens");
        let mut bytes = (0..random.usize(1..300)).map(|_| random.u8(..)).collect::<Vec<_>>();
        if random.bool() {
            // A good head, so that the nonsense reaches the decoder of the PDU; often one of the functions with a
            // length inside.
            let len = u16::try_from(bytes.len().min(250)).expect("short");
            bytes.truncate(usize::from(len));
            if random.bool() {
                bytes[0] = [15, 16, 0x17][random.usize(..3)];
            }
            let head = [&[0, 1, 0, 0][..], &(len + 1).to_be_bytes(), &[1]].concat();
            bytes.splice(0..0, head);
        }
        // It may close before it has read all of it.
        stream.write_all(&bytes).ok();
    }
    let start = json!({"device": "pump-1", "action": "start"});
    assert!(matches!(tool.run(&start).await, Report::Done(_)));
    // It has 32 seats, the tool sits on one. Who comes when all are taken waits until somebody leaves.
    let mut seated = (0..31).map(|_| RawClient::connect(plant.address)).collect::<Vec<_>>();
    for client in &mut seated {
        assert_eq!(client.read(1, Table::Coil, 0, 1), [1]);
    }
    let mut late = RawClient::connect(plant.address);
    drop(seated);
    assert_eq!(late.read(1, Table::Coil, 0, 1), [1]);
    assert!(matches!(tool.run(&start).await, Report::Done(_)));
}
