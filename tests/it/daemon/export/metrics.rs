//! `/metrics`: read by a parser that is not ours, and enough for the board that is shipped.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::broker::free_port;
use crate::daemon::{DEADLINE, Daemon, Home};

/// One request; the status line and the body.
fn get(address: &str, path: &str, host: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

fn start() -> (Daemon, String) {
    let home = Home::new();
    // A broker that is away, and a server that ends at once: their figures say so.
    let text = format!(
        "version = 1\n[metrics]\nlisten = \"127.0.0.1:0\"\n[export.mqtt]\nbroker = \"mqtt://127.0.0.1:{0}\"\n\
         device = \"box-1\"\n[export.webhook]\nurl = \"http://127.0.0.1:{0}/\"\ndevice = \"box-1\"\n\
         secret-file = \"/none\"\n[[mcp.server]]\nname = \"none\"\ncommand = [\"/bin/false\"]\n",
        free_port()
    );
    let path = home.config(&text);
    let daemon = home.start(Some(&path));
    let url = daemon.ask("status", json!({})).unwrap()["metrics"].as_str().unwrap().to_owned();
    let address = url.trim_start_matches("http://").trim_end_matches("/metrics").to_owned();
    (daemon, address)
}

fn figure(text: &str, sample: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.strip_prefix(sample).is_some_and(|rest| rest.starts_with(' ')))?;
    line.rsplit_once(' ')?.1.parse().ok()
}

#[test]
fn figures_follow_what_happens_and_are_read_by_another_parser_and_by_the_board() {
    let (daemon, address) = start();
    assert_eq!(daemon.say("启动一号泵")["result"], "done");
    assert_eq!(daemon.say("合上一号断路器")["decision"], "ask");
    let text = daemon.eventually("the count", || {
        let (status, text) = get(&address, "/metrics", &address);
        assert_eq!(status, "HTTP/1.1 200 OK");
        let failed = figure(&text, "interlock_export_last_error_timestamp_seconds{sink=\"mqtt\"}").is_some();
        (failed && figure(&text, "interlock_gate_decisions_total{decision=\"ask\"}") == Some(1.0)).then_some(text)
    });
    for (sample, want) in [
        ("interlock_gate_decisions_total{decision=\"allow\"}", 1.0),
        ("interlock_gate_decisions_total{decision=\"deny\"}", 0.0),
        ("interlock_calls_settled_total{outcome=\"done\"}", 1.0),
        ("interlock_questions_waiting{kind=\"confirm\"}", 1.0),
        ("interlock_tasks{state=\"ZOMBIE\"}", 0.0),
        ("interlock_evidence_degraded", 0.0),
        ("interlock_export_connected{sink=\"mqtt\"}", 0.0),
        ("interlock_mcp_server_up{server=\"none\"}", 0.0),
        ("interlock_scrape_missing", 0.0),
    ] {
        assert_eq!(figure(&text, sample), Some(want), "{sample}\n{text}");
    }
    assert!(figure(&text, "interlock_export_backlog_rows{sink=\"mqtt\"}").unwrap() > 1.0, "{text}");
    let failed = figure(&text, "interlock_export_last_error_timestamp_seconds{sink=\"mqtt\"}").unwrap();
    assert!(failed > 1.7e9, "{failed}");
    assert_eq!(figure(&text, "interlock_export_last_success_timestamp_seconds{sink=\"mqtt\"}"), None);
    assert_eq!(figure(&text, "interlock_export_connected{sink=\"webhook\"}"), Some(0.0));
    assert!(figure(&text, "process_resident_memory_bytes").unwrap() > 1e6, "{text}");
    assert!(figure(&text, "interlock_evidence_bytes").unwrap() > 1e4, "{text}");
    assert!(
        figure(&text, "interlock_device_last_answer_timestamp_seconds{device=\"pump-1\"}").unwrap() > 1e9,
        "{text}"
    );

    board(&text);
    parsed(&text);

    let statuses = [("/", "localhost"), ("/metrics", "evil.example")].map(|(path, host)| get(&address, path, host).0);
    assert_eq!(statuses, ["HTTP/1.1 404 Not Found", "HTTP/1.1 421 Misdirected Request"]);
}

/// Each name that a panel asks for is on the page.
fn board(text: &str) {
    let board: Value = serde_json::from_str(include_str!("../../../../systemd/grafana/interlock.json")).unwrap();
    let names: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ').map(|(name, _)| name)).collect();
    let mut asked = 0;
    for panel in board["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            let is_name = |word: &&str| word.starts_with("interlock_") || word.starts_with("process_");
            let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let own: Vec<&str> = words.filter(is_name).collect();
            assert!(!own.is_empty(), "{expression}");
            for name in own {
                assert!(names.contains(name), "the board asks for {name}, which is not on the page: {expression}");
                asked += 1;
            }
        }
    }
    assert!(asked > 10, "{asked}");
}

/// The parser of Python's client library, which refuses what Prometheus would.
fn parsed(text: &str) {
    const SCRIPT: &str = "import sys\nfrom prometheus_client.parser import text_string_to_metric_families as read\n\
                          found = list(read(sys.stdin.read()))\nassert all(f.documentation and f.samples for f in found)\n\
                          print(len(found))";
    let test = "daemon::export::metrics::parsed";
    let Some(python) = crate::python() else { return crate::skipped(test, "no Python: run cargo xtask test") };
    let has = Command::new(&python).args(["-c", "import prometheus_client"]).stderr(Stdio::null()).status().unwrap();
    if !has.success() {
        return crate::skipped(test, "no prometheus_client: run cargo xtask test");
    }
    let mut child =
        Command::new(python).args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let found: usize = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
    assert_eq!(found, text.lines().filter(|line| line.starts_with("# TYPE ")).count());
}
