//! Effects from outside: a service that loses answers, tools that stage, resources that two want, the ledger of calls
//! without a workflow, and what the daemon says where no contract helps.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::Daemon;

/// One request as it came: method, path and key.
#[derive(Debug, Clone, PartialEq)]
struct Came {
    method: String,
    path: String,
    key: Option<String>,
}

/// An HTTP service. `POST /orders/…` makes one, `GET` says whether it is there, `DELETE` takes it back; `POST /drafts/…`
/// stages one, `POST /sent/…` releases it and `DELETE /drafts/…` drops it. The answers of the first so many `POST`s to
/// orders are lost, after the effect or before it.
struct Service {
    port: u16,
    came: Arc<Mutex<Vec<Came>>>,
    there: Arc<Mutex<BTreeMap<String, u32>>>,
}

impl Service {
    fn losing(count: u32, arrives: bool) -> Service {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let service =
            Service { port: listener.local_addr().unwrap().port(), came: Arc::default(), there: Arc::default() };
        let (came, there) = (Arc::clone(&service.came), Arc::clone(&service.there));
        let left = Arc::new(Mutex::new(count));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (came, there, left) = (Arc::clone(&came), Arc::clone(&there), Arc::clone(&left));
                std::thread::spawn(move || serve(stream, &came, &there, &left, arrives));
            }
        });
        service
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.port)
    }

    fn requests(&self, method: &str) -> Vec<Came> {
        self.came.lock().unwrap().iter().filter(|came| came.method == method).cloned().collect()
    }

    fn count(&self, path: &str) -> u32 {
        self.there.lock().unwrap().get(path).copied().unwrap_or(0)
    }

    /// A daemon that may ask it, with these further tables.
    fn daemon(&self, tables: &str) -> Daemon {
        let tables = tables.replace("ROOT", &format!("http://127.0.0.1:{}", self.port));
        Daemon::with(&format!("version = 1\n[policy]\nmode = \"bypassPermissions\"\nallow = [\"WebFetch\"]\n{tables}"))
    }
}

fn serve(
    stream: TcpStream,
    came: &Mutex<Vec<Came>>,
    there: &Mutex<BTreeMap<String, u32>>,
    left: &Mutex<u32>,
    arrives: bool,
) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let (mut first, mut key, mut length) = (String::new(), None, 0);
    reader.read_line(&mut first).ok()?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim().split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "idempotency-key" => key = Some(value.trim().to_owned()),
            "content-length" => length = value.trim().parse().ok()?,
            _ => {}
        }
    }
    reader.take(length).read_to_end(&mut Vec::new()).ok()?;
    let mut words = first.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    // A key was used up by what arrived under it.
    let known = |it: &Came| it.key.is_some() && it.key == key && it.method == method;
    let again = came.lock().unwrap().iter().any(known) && there.lock().unwrap().contains_key(&path);
    came.lock().unwrap().push(Came { method: method.clone(), path: path.clone(), key });
    let loses = method == "POST" && path.starts_with("/orders/") && {
        let mut left = left.lock().unwrap();
        let loses = *left > 0;
        *left = left.saturating_sub(1);
        loses
    };
    if loses && !arrives {
        return None;
    }
    let status = {
        let mut there = there.lock().unwrap();
        let count = there.entry(path.clone()).or_default();
        match method.as_str() {
            "POST" if again => "200 OK",
            "POST" => {
                *count += 1;
                "201 Created"
            }
            "DELETE" => {
                *count = count.saturating_sub(1);
                "200 OK"
            }
            _ if *count > 0 => "200 OK",
            _ => "404 Not Found",
        }
    };
    if loses {
        return None;
    }
    let body = json!({ "id": path.rsplit('/').next() }).to_string();
    let mut stream = &stream;
    write!(stream, "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len()).ok()
}

const CONTRACTS: &str = r#"
    [[alias]]
    name = "order"
    tool = "http"
    [[contract]]
    tool = "http"
    input = { url = "ROOT/orders/keyed*", method = "POST" }
    op-kind = "order"
    op-id = { header = "Idempotency-Key" }
    outcome = { resend-original-s = 86400 }
    [[contract]]
    tool = "http"
    input = { url = "ROOT/orders/asked*", method = "POST" }
    op-kind = "order"
    query = { tool = "http", input = { url = "{input.url}" }, done = { status = 200 }, failed = { status = 404 } }
    effect = { inverse = "http", precondition = "not shipped", input = { url = "{input.url}", method = "DELETE" } }
    [[contract]]
    tool = "http"
    input = { url = "ROOT/orders/asked*", method = "DELETE" }
    op-kind = "cancel"
    query = { tool = "http", input = { url = "{input.url}" }, done = { status = 404 }, failed = { status = 200 } }
    [[contract]]
    tool = "http"
    input = { url = "ROOT/drafts/*", method = "POST" }
    op-kind = "draft"
    query = { tool = "http", input = { url = "{input.url}" }, done = { status = 200 }, failed = { status = 404 } }
    effect = { stageable-s = 600, release = { tool = "http", input = { url = "ROOT/sent/{output.body.id}", method = "POST" } }, discard = { tool = "http", input = { url = "{input.url}", method = "DELETE" } } }
    [[contract]]
    tool = "http"
    input = { url = "ROOT/sent/*", method = "POST" }
    op-kind = "send"
    query = { tool = "http", input = { url = "{input.url}" }, done = { status = 200 }, failed = { status = 404 } }
    [[contract]]
    tool = "http"
    input = { url = "ROOT/counters/*", method = "POST" }
    op-kind = "add"
    visibility = "private"
    commutes = [{ kind = "add", resource = "*" }]
    [[contract]]
    tool = "http"
    input = { url = "ROOT/rows/*", method = "POST" }
    op-kind = "set"
    visibility = "private"
"#;

fn workflow(daemon: &Daemon, input: Value) -> Value {
    daemon.ask("workflow", json!({ "input": input })).unwrap()
}

fn begin(daemon: &Daemon, profiles: &[&str], required: &[&str]) -> String {
    let begun = workflow(daemon, json!({ "verb": "begin", "profiles": profiles, "required": required }));
    begun["output"]["workflow"].as_str().unwrap_or_else(|| panic!("{begun}")).to_owned()
}

fn post(daemon: &Daemon, workflow_name: &str, tool: &str, op: &str, url: &str, branch: &str) -> Value {
    let input = json!({ "url": url, "method": "POST" });
    let wanted =
        json!({ "verb": "do", "workflow": workflow_name, "tool": tool, "input": input, "op": op, "branch": branch });
    workflow(daemon, wanted)
}

fn settled(daemon: &Daemon, verb: &str, name: &str) -> Value {
    daemon.eventually("the end of the workflow", || {
        let said = workflow(daemon, json!({ "verb": verb, "workflow": name }));
        let shown = workflow(daemon, json!({ "verb": "show", "workflow": name }));
        let stage = shown["output"]["stage"].as_str().unwrap_or_default().to_owned();
        matches!(stage.as_str(), "committed" | "aborted").then(|| json!({ "stage": stage, "said": said }))
    })
}

#[test]
fn a_lost_answer_is_had_again_with_the_same_key_and_there_is_one_order() {
    for arrives in [true, false] {
        let service = Service::losing(1, arrives);
        let daemon = service.daemon(CONTRACTS);
        let name = begin(&daemon, &["unknown-safe"], &["pay"]);
        // By another name of the tool: what is promised of the tool holds for it.
        let said = post(&daemon, &name, "order", "pay", &service.url("orders/keyed-1"), "main");
        assert!(said["message"].as_str().unwrap().contains("is not known"), "{said}");
        assert_eq!(settled(&daemon, "commit", &name)["stage"], "committed");
        let keys: Vec<Option<String>> = service.requests("POST").into_iter().map(|came| came.key).collect();
        assert_eq!((keys.len(), keys[0].is_some() && keys[0] == keys[1]), (2, true), "{keys:?}");
        assert_eq!(service.count("/orders/keyed-1"), 1);
    }
}

#[test]
fn the_declared_query_is_asked_before_anything_else_and_nothing_is_undone_while_unknown() {
    for (arrives, stage) in [(true, "committed"), (false, "aborted")] {
        let service = Service::losing(1, arrives);
        let daemon = service.daemon(CONTRACTS);
        let name = begin(&daemon, &["unknown-safe", "compensation-safe"], &["pay"]);
        let url = service.url("orders/asked-1");
        post(&daemon, &name, "http", "pay", &url, "main");
        let shown = workflow(&daemon, json!({ "verb": "show", "workflow": name }));
        if shown["output"]["unknown"] == json!(["pay"]) {
            // Sent again while nobody knows: refused, it is asked first.
            let again = post(&daemon, &name, "http", "pay", &url, "main");
            let message = again["message"].as_str().unwrap();
            assert!(message.contains("it is asked first") || message.contains("is done"), "{again}");
        }
        let end = settled(&daemon, if arrives { "commit" } else { "abort" }, &name);
        assert_eq!(end["stage"], stage, "{end}");
        let came = service.came.lock().unwrap().clone();
        let methods: Vec<&str> = came.iter().map(|came| came.method.as_str()).collect();
        assert_eq!((methods[0], methods[1]), ("POST", "GET"), "{methods:?}");
        // What never happened is never taken back.
        assert!(!methods.contains(&"DELETE"), "{methods:?}");
        assert_eq!(
            (methods.iter().filter(|it| **it == "POST").count(), service.count("/orders/asked-1")),
            (1, u32::from(arrives))
        );
    }
}

#[test]
fn what_a_tool_stages_is_released_at_the_commit_and_dropped_with_its_branch() {
    let service = Service::losing(0, true);
    let daemon = service.daemon(CONTRACTS);
    let name = begin(&daemon, &["speculation-safe"], &["keep"]);
    for (op, branch) in [("keep", "x"), ("drop", "y")] {
        let said = post(&daemon, &name, "http", op, &service.url(&format!("drafts/{op}")), branch);
        assert_eq!(said["output"]["state"], "done", "its tool holds it: {said}");
    }
    assert_eq!((service.count("/drafts/keep"), service.count("/sent/keep")), (1, 0));
    let said = workflow(&daemon, json!({ "verb": "commit", "workflow": name, "branches": ["x"] }));
    assert_eq!(said["output"]["stage"], "committed", "{said}");
    assert_eq!(said["output"]["anomalies"], json!([]), "{said}");
    let counts = ["/sent/keep", "/sent/drop", "/drafts/keep", "/drafts/drop"].map(|path| service.count(path));
    assert_eq!(counts, [1, 0, 1, 0]);
    // What the log has of it is the same.
    let state = daemon.path("state");
    daemon.eventually("the end of the workflow in the log", || {
        let history = daemon.cli(&["effects", "history", "--all", "--state", state.to_str().unwrap()]);
        String::from_utf8_lossy(&history.stdout).contains("commit").then_some(())
    });
    let checked = daemon.cli(&["effects", "check", "--all", "--state", state.to_str().unwrap()]);
    assert_eq!(checked.status.code(), Some(0), "{}", String::from_utf8_lossy(&checked.stdout));
}

#[test]
fn two_workflows_on_one_resource_wait_for_one_another_unless_their_operations_commute() {
    let service = Service::losing(0, true);
    let daemon = service.daemon(CONTRACTS);
    let both = [(); 2].map(|()| begin(&daemon, &["externally-mediated"], &[]));
    for (path, op) in [("counters/c", "add"), ("counters/c", "add more")] {
        for name in &both {
            assert_eq!(post(&daemon, name, "http", op, &service.url(path), "main")["result"], "done", "{op}");
        }
    }
    assert_eq!(service.count("/counters/c"), 4, "what commutes may interleave");
    assert_eq!(post(&daemon, &both[0], "http", "set", &service.url("rows/r"), "main")["result"], "done");
    std::thread::scope(|scope| {
        let second = scope.spawn(|| post(&daemon, &both[1], "http", "set", &service.url("rows/r"), "main"));
        // It stands in line, and nothing of it is sent. A third that would close a circle is refused at once.
        daemon.eventually("the second attempt", || {
            let rows =
                daemon.ask("evidence.query", json!({ "kind": "requested", "text": "workflow", "limit": 50 })).unwrap();
            let done = |row: &&Value| row.to_string().contains("rows/r");
            (rows.as_array().unwrap().iter().filter(done).count() >= 2).then_some(())
        });
        assert_eq!(service.count("/rows/r"), 1);
        let kept = workflow(&daemon, json!({ "verb": "commit", "workflow": both[0] }));
        assert_eq!(kept["output"]["stage"], "committed", "{kept}");
        assert_eq!(second.join().unwrap()["result"], "done");
    });
    assert_eq!(service.count("/rows/r"), 2);
}

/// A call outside of any workflow, as an agent over MCP would make it.
fn call(daemon: &Daemon, tool: &str, input: Value) -> Value {
    super::proxy::once(daemon, tool, input)
}

#[test]
fn calls_without_a_workflow_are_in_the_ledger_and_their_anomalies_are_told_as_they_arise() {
    let service = Service::losing(1, true);
    let daemon = service.daemon("");
    let order = || json!({ "url": service.url("orders/plain-1"), "method": "POST" });
    call(&daemon, "http", order());
    call(&daemon, "http", order());
    assert_eq!(service.count("/orders/plain-1"), 2, "an agent that sends again makes a second one");
    let told = |want: &str| {
        daemon.eventually("a row of the anomaly", || {
            let rows = daemon.ask("evidence.query", json!({ "kind": "anomaly" })).unwrap();
            rows.as_array().unwrap().iter().find(|row| row["cause"] == "A1" && row["to"] == want).cloned()
        })
    };
    told("possible");
    let alarm = call(&daemon, "alarm", json!({ "verb": "list" }));
    assert!(alarm.to_string().contains("A1 possible"), "{alarm}");
    // The daemon is killed: the log has it all the same, and the question is open again.
    let state = daemon.path("state");
    let home = daemon.kill();
    let config = home.path("interlock.toml");
    let check = |daemon: &Daemon| {
        let checked = daemon.cli(&["effects", "check", "--all", "--state", state.to_str().unwrap()]);
        serde_json::from_slice::<Value>(&checked.stdout).unwrap()["anomalies"].clone()
    };
    let daemon = home.start(Some(&config));
    let found = check(&daemon);
    assert_eq!((&found[0]["kind"], &found[0]["verdict"]), (&json!("A1"), &json!("possible")), "{found}");
    // Its history is one that the checker reads.
    let history = daemon.cli(&["effects", "history", "--all", "--state", state.to_str().unwrap()]);
    let history: Value = serde_json::from_slice(&history.stdout).unwrap();
    assert_eq!(history["view"], "runtime", "{history}");
    // A person looked: it is certain now.
    let questions = daemon.list("ask.list");
    assert_eq!(questions.len(), 1, "{questions:?}");
    let settle = json!({ "question": questions[0]["question"], "finding": "done", "note": "seen" });
    daemon.ask("ask.settle", settle).unwrap();
    let found = daemon.eventually("a certain verdict", || {
        let found = check(&daemon);
        (found[0]["verdict"] == "certain").then_some(found)
    });
    assert_eq!(found[0]["calls"].as_array().unwrap().len(), 2, "{found}");
}

/// What the daemon says where no contract helps: the four limits (effects, sections 4 and 5).
#[test]
fn the_four_limits_are_said_and_never_called_a_success() {
    let service = Service::losing(1, true);
    let daemon = service.daemon(CONTRACTS);
    let message = |said: &Value| said["message"].as_str().unwrap().to_owned();
    // 1. An outcome that nobody can find out: neither a retry nor a commit nor an undoing is chosen blind.
    let name = begin(&daemon, &[], &["pay"]);
    let url = service.url("orders/blind");
    let lost = post(&daemon, &name, "http", "pay", &url, "main");
    assert!(message(&lost).contains("is not known (hold)"), "{lost}");
    let again = post(&daemon, &name, "http", "pay", &url, "main");
    assert!(message(&again).contains("no contract says how to find out, so a person has to"), "{again}");
    let commit = workflow(&daemon, json!({ "verb": "commit", "workflow": name }));
    assert!(message(&commit).contains("the outcome of pay is not known"), "{commit}");
    let abort = workflow(&daemon, json!({ "verb": "abort", "workflow": name }));
    assert!(message(&abort).contains("is unsettled; not known: pay"), "{abort}");
    assert_eq!(service.requests("DELETE"), [], "nothing was undone");
    let refused = begin(&daemon, &["unknown-safe"], &[]);
    let said = post(&daemon, &refused, "http", "pay", &url, "main");
    assert!(message(&said).contains("unknown-safe needs `outcome` in its contract"), "{said}");
    // 2. What does not commute and cannot be taken back is prevented, never repaired.
    let mediated = begin(&daemon, &["externally-mediated"], &[]);
    let said = post(&daemon, &mediated, "http", "post", &service.url("orders/open"), "main");
    assert!(message(&said).contains("externally-mediated needs `visibility` in its contract"), "{said}");
    let compensated = begin(&daemon, &["compensation-safe"], &[]);
    let said = post(&daemon, &compensated, "http", "post", &service.url("orders/open"), "main");
    assert!(message(&said).contains("compensation-safe needs `effect` in its contract"), "{said}");
    // 3. The world is open: taking an effect back takes back nobody's reaction to it, and that is said.
    let undone = begin(&daemon, &["compensation-safe"], &[]);
    let said = post(&daemon, &undone, "http", "order", &service.url("orders/asked-3"), "main");
    assert_eq!(said["result"], "done", "{said}");
    let said = workflow(&daemon, json!({ "verb": "abort", "workflow": undone }));
    assert_eq!(said["output"]["stage"], "aborted", "{said}");
    assert_eq!(said["output"]["anomalies"][0]["kind"], "A8", "{said}");
    assert_eq!(service.count("/orders/asked-3"), 0);
    // 4. Irreversible effects of several tools are not one release.
    let several = begin(&daemon, &["speculation-safe"], &[]);
    let said = post(&daemon, &several, "http", "pay", &service.url("orders/keyed-4"), "main");
    assert!(message(&said).contains("several releases are not one"), "{said}");
}

#[test]
fn a_spoken_command_may_be_a_workflow() {
    let home = super::Home::new();
    let commands = home.path("line.toml");
    std::fs::write(
        &commands,
        "[[command]]\nid = \"stop_line\"\ntext = \"停机流程\"\naliases = [\"执行停机流程\"]\ncategory = \"line\"\n\
         risk = \"operate\"\nbind = { tool = \"workflow\", input = { verb = \"run\", recipe = \"stop-line\" } }\n",
    )
    .unwrap();
    // The plant that comes with it: a pump and a valve that run before.
    let config = home.config(
        "version = 1\n[commands]\nfiles = [\"line.toml\"]\n[policy]\nallow = [\"Device\"]\n\
         [[workflow]]\nname = \"stop-line\"\nprofiles = [\"unknown-safe\"]\nsteps = [\n\
         { tool = \"device\", input = { device = \"pump-1\", action = \"stop\" } },\n\
         { tool = \"device\", input = { device = \"pump-2\", action = \"stop\" } },\n]\n",
    );
    let daemon = home.start(Some(&config));
    let allowed = |said: Value| match said["question"].as_str() {
        None => said,
        Some(question) => daemon.ask("ask.allow", json!({ "question": question })).unwrap(),
    };
    for device in ["pump-1", "pump-2"] {
        let run = json!({ "device": device, "point": "run", "value": true });
        assert_eq!(allowed(daemon.ask("device.write", run).unwrap())["result"], "done", "{device}");
    }
    let runs = [1, 2].map(|number| super::Register::of(&daemon, &format!("pump-{number}"), "run"));
    assert_eq!([runs[0].read(), runs[1].read()], [1, 1]);
    let said = allowed(daemon.say("停机流程"));
    assert_eq!(said["result"], "done", "{said}");
    assert_eq!([runs[0].read(), runs[1].read()], [0, 0], "{said}");
    let shown = workflow(&daemon, json!({ "verb": "show", "workflow": "w1" }));
    assert_eq!(shown["output"]["stage"], "committed", "{shown}");
}
