//! The log and its traces to a collector: every row, through answers that are none, and what it will not take.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::desk::{Desk, Posted};
use super::{free_port, seed};
use crate::daemon::{Daemon, Home};

fn config(home: &Home, port: u16, more: &str) -> std::path::PathBuf {
    home.config(&format!(
        "version = 1\n[export.otlp]\nendpoint = \"http://127.0.0.1:{port}\"\ndevice = \"box-1\"\nrate = 100000\n{more}"
    ))
}

/// An attribute, as it is written.
fn attribute(of: &Value, key: &str) -> Value {
    let found = of["attributes"].as_array().into_iter().flatten().find(|one| one["key"] == key);
    found.map_or(Value::Null, |one| one["value"].clone())
}

/// The records that were taken, in order.
fn records(posted: &[Posted]) -> Vec<Value> {
    let taken = posted.iter().filter(|posted| posted.status == 200 && posted.path == "/v1/logs");
    taken
        .flat_map(|posted| {
            let resource = &posted.json()["resourceLogs"][0];
            assert_eq!(attribute(&resource["resource"], "service.instance.id"), json!({ "stringValue": "box-1" }));
            resource["scopeLogs"][0]["logRecords"].as_array().unwrap().clone()
        })
        .collect()
}

/// How often each row was taken.
fn rows(posted: &[Posted]) -> BTreeMap<u64, usize> {
    let mut rows = BTreeMap::new();
    for record in records(posted) {
        if let Some(seq) = attribute(&record, "interlock.seq")["intValue"].as_str() {
            *rows.entry(seq.parse().unwrap()).or_default() += 1;
        }
    }
    rows
}

fn is_whole(posted: &[Posted], first: u64, last: u64) -> bool {
    rows(posted).range(first..=last).count() as u64 == last + 1 - first
}

fn standing(daemon: &Daemon) -> Value {
    daemon.ask("status", json!({})).unwrap()["export"]["otlp"].clone()
}

#[test]
fn each_row_arrives_through_answers_that_are_none_and_kills() {
    const ROWS: u64 = 3_000;
    let (desk, home) = (Desk::open(), Home::new());
    seed(&home.path("state"), ROWS);
    std::fs::write(home.path("token"), "a-token\n").unwrap();
    desk.answer(503, "retry-after: 1\r\n", "");
    desk.answer(200, "", "{}");
    desk.answer(429, "", "slowly");
    desk.answer(401, "", "who are you");
    let path = config(&home, desk.port, &format!("token-file = {:?}\n", home.path("token")));
    let mut daemon = home.start(Some(&path));
    for wanted in [500, 1_500] {
        desk.until("a part", |posted| (rows(posted).len() >= wanted).then_some(()));
        desk.close(true);
        daemon = daemon.kill().start(Some(&path));
        desk.close(false);
    }
    desk.until("every row", |posted| is_whole(posted, 1, ROWS).then_some(()));
    let last = daemon.ask("evidence.stats", json!({})).unwrap()["last"].as_u64().unwrap();
    desk.until("the last row", |posted| is_whole(posted, 1, last).then_some(()));
    let posted = desk.posted();
    assert!(posted.iter().all(|posted| posted.header("authorization") == "Bearer a-token"));
    assert!(records(&posted).iter().all(|record| record["eventName"] != "interlock.export_gap"));
    // Within one life nothing is told twice; a kill repeats what was taken in the second before it.
    let repeated = rows(&posted).values().filter(|count| **count > 1).count();
    assert!(repeated < usize::try_from(ROWS).unwrap(), "{repeated} rows came more than once");
    daemon.eventually("a calm", || {
        let standing = standing(&daemon);
        (standing["connected"] == true && standing["waiting"] == 0 && standing["dropped"] == 0).then_some(())
    });
}

#[test]
fn what_a_collector_says_to_have_rejected_is_counted_and_not_sent_again() {
    let (desk, home) = (Desk::open(), Home::new());
    seed(&home.path("state"), 200);
    desk.answer(200, "", r#"{"partialSuccess": {"rejectedLogRecords": "3", "errorMessage": "too old"}}"#);
    let path = config(&home, desk.port, "");
    let daemon = home.start(Some(&path));
    let told = daemon.eventually("a calm", || {
        let standing = standing(&daemon);
        (standing["waiting"] == 0 && standing["arrived"].as_u64() > Some(200)).then_some(standing)
    });
    assert_eq!((&told["dropped"], &told["last_error"]["why"]), (&json!(3), &json!("took all but 3: too old")));
    assert!(rows(&desk.posted()).values().all(|count| *count == 1));
}

#[test]
fn a_batch_that_is_too_large_is_halved_and_one_row_that_is_refused_holds_back_no_other() {
    let (desk, home) = (Desk::open(), Home::new());
    seed(&home.path("state"), 600);
    (0..8).for_each(|_| desk.answer(413, "", "too much"));
    let path = config(&home, desk.port, "");
    let daemon = home.start(Some(&path));
    desk.until("the others", |posted| is_whole(posted, 2, 600).then_some(()));
    let posted = desk.posted();
    let sizes: Vec<usize> = posted[..8]
        .iter()
        .map(|posted| posted.json()["resourceLogs"][0]["scopeLogs"][0]["logRecords"].as_array().unwrap().len())
        .collect();
    assert_eq!(sizes, [128, 64, 32, 16, 8, 4, 2, 1]);
    assert_eq!(rows(&posted).get(&1), None);
    daemon.eventually("the count", || (standing(&daemon)["dropped"] == 1).then_some(()));
}

#[test]
fn a_command_is_a_span_of_its_run_and_too_many_rows_are_a_gap() {
    let (desk, home) = (Desk::open(), Home::new());
    seed(&home.path("state"), 20_000);
    let path = config(&home, desk.port, "backlog-max = 5000\n");
    let daemon = home.start(Some(&path));
    desk.until("the newest rows", |posted| is_whole(posted, 15_100, 20_000).then_some(()));
    let first = &records(&desk.posted())[0];
    assert_eq!(first["eventName"], "interlock.export_gap");
    assert_eq!(attribute(first, "interlock.first"), json!({ "intValue": "1" }));

    assert_eq!(daemon.say("启动一号泵")["result"], "done");
    let spans = |posted: &[Posted]| -> Vec<Value> {
        let taken = posted.iter().filter(|posted| posted.status == 200 && posted.path == "/v1/traces");
        let spans =
            |posted: &Posted| posted.json()["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone();
        taken.flat_map(spans).collect()
    };
    let (root, call) = desk.until("the spans", |posted| {
        let spans = spans(posted);
        let call = spans.iter().rfind(|span| span["name"] == "execute_tool device")?.clone();
        let root = spans.into_iter().find(|span| span["spanId"] == call["parentSpanId"])?;
        Some((root, call))
    });
    assert_eq!((&root["traceId"], root.get("parentSpanId")), (&call["traceId"], None));
    let time = |span: &Value, key: &str| span[key].as_str().unwrap().parse::<u64>().unwrap();
    let (began, ended) = (time(&call, "startTimeUnixNano"), time(&call, "endTimeUnixNano"));
    assert!(began > 1_700_000_000_000_000_000 && began <= ended, "{call}");
    assert_eq!(attribute(&call, "interlock.outcome"), json!({ "stringValue": "done" }));
    // A record of the call names its span.
    let settled =
        records(&desk.posted()).into_iter().rfind(|record| record["eventName"] == "interlock.settled").unwrap();
    assert_eq!((&settled["traceId"], &settled["spanId"]), (&call["traceId"], &call["spanId"]));
}

/// A collector behind TLS, of Python's own library.
#[test]
fn a_collector_is_known_by_its_certificate() {
    const SCRIPT: &str = "import sys, ssl, http.server\nclass Desk(http.server.BaseHTTPRequestHandler):\n    \
                          def do_POST(self):\n        self.rfile.read(int(self.headers['content-length']))\n        \
                          self.send_response(200)\n        self.send_header('content-length', '2')\n        \
                          self.end_headers()\n        self.wfile.write(b'{}')\n        print(self.path, flush=True)\n\
                          server = http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), Desk)\n\
                          context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)\n\
                          context.load_cert_chain(sys.argv[2], sys.argv[3])\n\
                          server.socket = context.wrap_socket(server.socket, server_side=True)\n\
                          print('open', flush=True)\nserver.serve_forever()";
    let Some(python) = crate::python() else {
        return crate::skipped("daemon::export::otlp::a_collector_is_known_by_its_certificate", "no Python");
    };
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tls");
    let port = free_port();
    let mut child = Command::new(python)
        .args(["-c", SCRIPT, &port.to_string()])
        .args([data.join("localhost.pem"), data.join("localhost-key.pem")])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert_eq!(said.next().as_deref(), Some("open"));
    let home = Home::new();
    let text = |ca: &str| {
        format!(
            "version = 1\n[export.otlp]\nendpoint = \"https://localhost:{port}\"\ndevice = \"box-1\"\nca = {:?}\n",
            data.join(ca)
        )
    };
    let path = home.config(&text("other.pem"));
    let daemon = home.start(Some(&path));
    daemon.eventually("the refusal of the certificate", || {
        let why = standing(&daemon)["last_error"]["why"].clone();
        why.as_str()?.contains("certificate").then_some(())
    });
    assert_eq!(standing(&daemon)["arrived"], 0);
    let home = daemon.kill();
    std::fs::write(&path, text("localhost.pem")).unwrap();
    let daemon = home.start(Some(&path));
    assert_eq!(said.next().as_deref(), Some("/v1/logs"));
    drop(daemon);
    child.kill().unwrap();
    child.wait().unwrap();
}
