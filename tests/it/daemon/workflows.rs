//! Unknown outcomes that are looked up, and workflows over a line that loses answers.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::Daemon;

/// What becomes of a write.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    /// It arrives, and its answer comes back.
    None,
    /// It arrives, and the connection breaks before the answer.
    LoseAnswer,
    /// The connection breaks before it arrives.
    LoseRequest,
}

/// A Modbus device of coils, behind a line that can lose one write.
struct Line {
    port: u16,
    coils: Arc<Mutex<BTreeMap<u16, bool>>>,
    next: Arc<Mutex<Vec<Fault>>>,
    writes: Arc<Mutex<u32>>,
}

impl Line {
    /// The faults of the next writes, in order; after them there is none.
    fn new(faults: &[Fault]) -> Line {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let line = Line {
            port: listener.local_addr().unwrap().port(),
            coils: Arc::default(),
            next: Arc::new(Mutex::new(faults.iter().rev().copied().collect())),
            writes: Arc::default(),
        };
        let (coils, next, writes) = (Arc::clone(&line.coils), Arc::clone(&line.next), Arc::clone(&line.writes));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (coils, next, writes) = (Arc::clone(&coils), Arc::clone(&next), Arc::clone(&writes));
                std::thread::spawn(move || serve(stream, &coils, &next, &writes));
            }
        });
        line
    }

    fn config(&self, more: &str) -> String {
        format!(
            r#"
            version = 1
            [[bus]]
            name = "b"
            tcp = "127.0.0.1:{}"
            [[device]]
            name = "pump-1"
            kind = "pump"
            bus = "b"
            unit = 1
            points = {{ run = {{ coil = 1 }}, press = {{ coil = 2, pulse = true }} }}
            [device.actions]
            start = {{ writes = [{{ point = "run", value = true }}], inverse = "stop", inverse-when = "any time" }}
            stop = {{ writes = [{{ point = "run", value = false }}] }}
            jog = {{ writes = [{{ point = "press", value = true }}] }}
            [[device]]
            name = "pump-2"
            like = "pump-1"
            shift = 8
            {more}
            "#,
            self.port
        )
    }

    fn coil(&self, at: u16) -> bool {
        self.coils.lock().unwrap().get(&at).copied().unwrap_or(false)
    }
}

fn serve(mut stream: TcpStream, coils: &Mutex<BTreeMap<u16, bool>>, next: &Mutex<Vec<Fault>>, writes: &Mutex<u32>) {
    let mut head = [0; 12];
    while stream.read_exact(&mut head).is_ok() {
        let (function, at) = (head[7], u16::from_be_bytes([head[8], head[9]]));
        let mut answer = head[..7].to_vec();
        if function == 5 {
            *writes.lock().unwrap() += 1;
            let fault = next.lock().unwrap().pop().unwrap_or(Fault::None);
            if fault != Fault::LoseRequest {
                coils.lock().unwrap().insert(at, head[10] == 0xff);
            }
            if fault != Fault::None {
                return;
            }
            answer.extend(&head[7..12]);
        } else {
            let count = u16::from_be_bytes([head[10], head[11]]);
            let bits = (0..count).map(|i| coils.lock().unwrap().get(&(at + i)).copied().unwrap_or(false));
            let mut bytes = vec![0_u8; usize::from(count).div_ceil(8)];
            for (i, bit) in bits.enumerate() {
                bytes[i / 8] |= u8::from(bit) << (i % 8);
            }
            answer.extend([function, u8::try_from(bytes.len()).unwrap()]);
            answer.extend(bytes);
        }
        let len = u16::try_from(answer.len() - 6).unwrap().to_be_bytes();
        answer[4..6].copy_from_slice(&len);
        if stream.write_all(&answer).is_err() {
            return;
        }
    }
}

fn write(daemon: &Daemon, point: &str) -> Value {
    daemon.ask("device.write", json!({ "device": "pump-1", "point": point, "value": true })).unwrap()
}

fn resolved(daemon: &Daemon) -> (String, String) {
    let row = daemon.eventually("a row of what was found out", || {
        let rows = daemon.ask("evidence.query", json!({ "kind": "resolved" })).unwrap();
        rows.as_array().unwrap().first().cloned()
    });
    let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
    (text("to"), text("cause"))
}

#[test]
fn a_write_whose_answer_was_lost_is_read_back() {
    for (fault, found) in [(Fault::LoseAnswer, "done"), (Fault::LoseRequest, "failed")] {
        let line = Line::new(&[fault]);
        let daemon = Daemon::with(&line.config(""));
        let said = write(&daemon, "run");
        assert_eq!(said["result"], "unknown", "{said}");
        assert_eq!(resolved(&daemon), (found.to_owned(), "query".to_owned()));
        assert!(daemon.list("ask.list").is_empty(), "nobody needs to answer any more");
        assert_eq!((*line.writes.lock().unwrap(), line.coil(1)), (1, found == "done"), "it was not sent again");
    }
}

#[test]
fn a_press_whose_answer_was_lost_waits_for_a_person() {
    let line = Line::new(&[Fault::LoseAnswer]);
    let daemon = Daemon::with(&line.config(""));
    assert_eq!(write(&daemon, "press")["result"], "unknown");
    let questions = daemon.list("ask.list");
    assert_eq!((questions.len(), &questions[0]["kind"]), (1, &json!("outcome")), "{questions:?}");
}

fn workflow(daemon: &Daemon, input: Value) -> Value {
    daemon.ask("workflow", json!({ "input": input })).unwrap()
}

const RECIPE: &str = r#"
    [[workflow]]
    name = "both"
    profiles = ["unknown-safe", "compensation-safe"]
    steps = [
        { tool = "device", input = { device = "pump-1", action = "start" } },
        { tool = "device", input = { device = "pump-2", action = "start" } },
    ]
    [[workflow]]
    name = "press"
    profiles = ["unknown-safe"]
    steps = [{ tool = "device", input = { device = "pump-1", action = "jog" } }]
"#;

#[test]
fn a_recipe_goes_on_after_what_was_lost_has_been_found_out() {
    let line = Line::new(&[Fault::LoseAnswer]);
    let daemon = Daemon::with(&line.config(RECIPE));
    let said = workflow(&daemon, json!({ "verb": "run", "recipe": "both" }));
    assert_eq!((&said["result"], &said["output"]["stage"]), (&json!("done"), &json!("committed")), "{said}");
    assert_eq!((line.coil(1), line.coil(9), *line.writes.lock().unwrap()), (true, true, 2));
    // The contract of a press cannot support it: refused before anything is done, with the field.
    let said = workflow(&daemon, json!({ "verb": "run", "recipe": "press" }));
    let message = said["message"].as_str().unwrap();
    assert!(message.contains("unknown-safe needs `outcome` in its contract"), "{said}");
    assert_eq!(*line.writes.lock().unwrap(), 2);
}

#[test]
fn a_recipe_that_fails_half_way_is_undone() {
    // The second start never arrives, and reading back says so.
    let line = Line::new(&[Fault::None, Fault::LoseRequest]);
    let daemon = Daemon::with(&line.config(RECIPE));
    let said = workflow(&daemon, json!({ "verb": "run", "recipe": "both" }));
    assert_eq!(said["result"], "failed", "{said}");
    assert!(said["message"].as_str().unwrap().contains("was given up and undone"), "{said}");
    assert_eq!((line.coil(1), line.coil(9)), (false, false), "{said}");
    let shown = workflow(&daemon, json!({ "verb": "show", "workflow": "w1" }));
    assert_eq!(shown["output"]["stage"], "aborted", "{shown}");
}

#[test]
fn a_workflow_survives_a_kill_and_is_settled_in_the_next_life() {
    let line = Line::new(&[Fault::None, Fault::LoseAnswer]);
    let daemon = Daemon::with(&line.config(""));
    let begun = workflow(
        &daemon,
        json!({ "verb": "begin", "profiles": ["unknown-safe", "compensation-safe"], "required": ["a", "b"] }),
    );
    assert_eq!(begun["output"]["workflow"], "w1", "{begun}");
    let act = |daemon: &Daemon, op: &str, device: &str| {
        let input = json!({ "device": device, "action": "start" });
        workflow(daemon, json!({ "verb": "do", "workflow": "w1", "tool": "device", "input": input, "op": op }))
    };
    assert_eq!(act(&daemon, "a", "pump-1")["result"], "done");
    let again = act(&daemon, "a", "pump-1");
    assert!(again["message"].as_str().unwrap().contains("a second effect would be one too many"), "{again}");
    let early = workflow(&daemon, json!({ "verb": "commit", "workflow": "w1" }));
    assert!(early["message"].as_str().unwrap().contains("required and not done: b"), "{early}");
    let lost = act(&daemon, "b", "pump-2");
    assert_eq!(lost["result"], "failed", "an unknown is no success: {lost}");
    let home = daemon.kill();
    let config = home.path("interlock.toml");
    let daemon = home.start(Some(&config));
    resolved(&daemon);
    let kept = daemon.eventually("the commit", || {
        let said = workflow(&daemon, json!({ "verb": "commit", "workflow": "w1" }));
        (said["output"]["stage"] == "committed").then_some(said)
    });
    assert_eq!(kept["output"]["anomalies"], json!([]), "{kept}");
    assert_eq!((line.coil(1), line.coil(9), *line.writes.lock().unwrap()), (true, true, 2));
}

#[test]
fn a_person_answers_for_what_cannot_be_undone_and_an_agent_cannot() {
    let line = Line::new(&[]);
    let daemon = Daemon::with(&line.config(""));
    workflow(&daemon, json!({ "verb": "begin", "profiles": ["unknown-safe"] }));
    // A start has an inverse here; a stop has none.
    let input = json!({ "device": "pump-1", "action": "stop" });
    workflow(&daemon, json!({ "verb": "do", "workflow": "w1", "tool": "device", "input": input, "op": "a" }));
    let fact = |error: &Value| error["message"].as_str().unwrap_or_default().to_owned();
    let close = |note: &str| daemon.ask("workflow.close", json!({ "workflow": "w1", "note": note }));
    let early = close("seen").unwrap_err();
    assert!(fact(&early).contains("the workflow is open: commit or abort it"), "{early}");
    let said = workflow(&daemon, json!({ "verb": "abort", "workflow": "w1" }));
    assert!(said["message"].as_str().unwrap().contains("unsettled"), "{said}");
    let through_the_tool = workflow(&daemon, json!({ "verb": "close", "workflow": "w1" }));
    assert_eq!(through_the_tool["result"], "not_started", "{through_the_tool}");
    assert!(fact(&close(" ").unwrap_err()).contains("the note is empty"));
    let closed = close("stopped for good, shift lead knows").unwrap();
    assert_eq!((&closed["stage"], &closed["left"]), (&json!("closed"), &json!(["a"])), "{closed}");
    assert!(fact(&close("again").unwrap_err()).contains("the workflow is closed"));
    let row = daemon.eventually("the row of it", || {
        let rows = daemon.ask("evidence.query", json!({ "kind": "workflow" })).unwrap();
        rows.as_array().unwrap().iter().find(|row| row["cause"] == "close").cloned()
    });
    assert_eq!((&row["to"], &row["detail"]["left"]), (&json!("closed"), &json!(["a"])), "{row}");
    assert_eq!(row["detail"]["note"], "stopped for good, shift lead knows", "{row}");
    assert!(row["detail"]["by"].as_str().is_some_and(|by| !by.is_empty()), "{row}");
    let home = daemon.kill();
    let config = home.path("interlock.toml");
    let daemon = home.start(Some(&config));
    let shown = workflow(&daemon, json!({ "verb": "show", "workflow": "w1" }));
    assert_eq!(shown["output"]["stage"], "closed", "{shown}");
}

/// An abort makes several calls in its own name. A daemon that is killed before it makes the second must not take the
/// first for it: the second would count as done, and what it should have undone would be called undone.
#[test]
fn an_undoing_that_was_never_sent_is_not_taken_for_another_one() {
    let line = Line::new(&[]);
    let daemon = Daemon::with(&line.config(""));
    workflow(&daemon, json!({ "verb": "begin", "profiles": ["unknown-safe"] }));
    for (op, device, action) in [("a", "pump-1", "stop"), ("b", "pump-2", "start")] {
        let input = json!({ "device": device, "action": action });
        workflow(&daemon, json!({ "verb": "do", "workflow": "w1", "tool": "device", "input": input, "op": op }));
    }
    workflow(&daemon, json!({ "verb": "abort", "workflow": "w1" }));
    let home = daemon.kill();
    // As it stands on the disk when the undoing of `a` is about to be sent.
    let state = rusqlite::Connection::open(home.path("state").join("state.db")).unwrap();
    let form: String = state.query_row("SELECT form FROM workflow WHERE id = 1", [], |row| row.get(0)).unwrap();
    let mut form: Value = serde_json::from_str(&form).unwrap();
    let mut undo = form["attempts"][2].clone();
    assert_eq!((&undo["op"], &undo["state"], &undo["undoes"]), (&json!("undo b"), &json!("done"), &json!(1)), "{form}");
    for (key, value) in
        [("op", json!("undo a")), ("undoes", json!(0)), ("call", Value::Null), ("state", json!("unknown"))]
    {
        undo[key] = value;
    }
    form["attempts"].as_array_mut().unwrap().push(undo);
    form["stage"] = "aborting".into();
    let now = (form["stage"].as_str().unwrap().to_owned(), form.to_string());
    state.execute("UPDATE workflow SET stage = ?1, form = ?2 WHERE id = 1", now).unwrap();
    drop(state);
    let config = home.path("interlock.toml");
    let daemon = home.start(Some(&config));
    let shown = workflow(&daemon, json!({ "verb": "show", "workflow": "w1" }))["output"].clone();
    assert_eq!((&shown["attempts"][3]["state"], &shown["left"]), (&json!("failed"), &json!(["a"])), "{shown}");
}
