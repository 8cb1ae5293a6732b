//! The tools that faults are made in: a Modbus device and the proxy before it, an HTTP service, an MCP server, a script.
//! Each writes what it did into the file of its run, one line for one effect, in the order in which it happened.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

/// Set for the MCP server: the directory of the stand.
pub(crate) const DIRECTORY: &str = "FAULTS_DIRECTORY";

/// Where a call is hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// It does not arrive.
    Before,
    /// It arrives, and its answer does not come back.
    After,
}

/// The stories and the plans of all runs.
#[derive(Debug, Clone)]
pub(crate) struct Files(pub(crate) PathBuf);

impl Files {
    /// The next fault of an operation: the first line of its plan, which is used up.
    pub(crate) fn fault(&self, id: &str) -> Fault {
        let path = self.0.join("plans").join(id);
        let Ok(text) = std::fs::read_to_string(&path) else { return Fault::None };
        let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
        std::fs::write(&path, rest).unwrap();
        match first {
            "before" => Fault::Before,
            "after" => Fault::After,
            _ => Fault::None,
        }
    }

    pub(crate) fn plan(&self, id: &str, faults: &[Fault]) {
        let word = |fault: &Fault| match fault {
            Fault::None => "none\n",
            Fault::Before => "before\n",
            Fault::After => "after\n",
        };
        let text: String = faults.iter().map(word).collect();
        std::fs::write(self.0.join("plans").join(id), text).unwrap();
    }

    /// One more line of a run's story; `id` is the run and the operation, `r12.one`.
    pub(crate) fn tell(&self, id: &str, what: &str) {
        let run = id.split('.').next().unwrap();
        let path = self.0.join("stories").join(run);
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
        // One write for one line: several tell it.
        file.write_all(format!("{what} {}\n", id.split('.').nth(1).unwrap_or("-")).as_bytes()).unwrap();
    }

    pub(crate) fn story(&self, run: &str) -> String {
        std::fs::read_to_string(self.0.join("stories").join(run)).unwrap_or_default()
    }
}

/// The coils of a device, by unit and number.
pub(crate) type Coils = Arc<Mutex<BTreeMap<(u8, u16), bool>>>;

/// A device of coils and, before it, a proxy that drops what is planned. Gives the proxy's port.
pub(crate) fn modbus(files: &Files, runs: &Arc<Mutex<BTreeMap<u8, String>>>, coils: &Coils) -> u16 {
    let device = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let (behind, port) = (device.local_addr().unwrap(), proxy.local_addr().unwrap().port());
    let (told, current, coils) = (files.clone(), Arc::clone(runs), Arc::clone(coils));
    std::thread::spawn(move || {
        for stream in device.incoming().flatten() {
            let (told, current, coils) = (told.clone(), Arc::clone(&current), Arc::clone(&coils));
            std::thread::spawn(move || serve_coils(stream, &told, &current, &coils));
        }
    });
    let (plans, current) = (files.clone(), Arc::clone(runs));
    std::thread::spawn(move || {
        for stream in proxy.incoming().flatten() {
            let (plans, current) = (plans.clone(), Arc::clone(&current));
            std::thread::spawn(move || drop_some(stream, &TcpStream::connect(behind).unwrap(), &plans, &current));
        }
    });
    port
}

/// The operation that a write of a coil is: coils 0 and 1 are the two, and the same again clears them.
fn op_of(head: &[u8], runs: &Mutex<BTreeMap<u8, String>>) -> Option<(String, bool)> {
    let run = runs.lock().unwrap().get(&head[6]).cloned()?;
    let op = if u16::from_be_bytes([head[8], head[9]]) == 0 { "one" } else { "two" };
    Some((format!("{run}.{op}"), head[10] == 0xff))
}

fn serve_coils(
    mut stream: TcpStream,
    files: &Files,
    runs: &Mutex<BTreeMap<u8, String>>,
    coils: &Mutex<BTreeMap<(u8, u16), bool>>,
) {
    let mut head = [0; 12];
    while stream.read_exact(&mut head).is_ok() {
        let (unit, at) = (head[6], u16::from_be_bytes([head[8], head[9]]));
        let mut answer = head[..8].to_vec();
        if head[7] == 5 {
            let mut coils = coils.lock().unwrap();
            let before = coils.insert((unit, at), head[10] == 0xff).unwrap_or(false);
            // A coil that holds the value already is not changed by it.
            if let Some((id, on)) = op_of(&head, runs).filter(|(_, on)| *on != before) {
                files.tell(&id, if on { "effect" } else { "undo" });
            }
            answer.extend(&head[8..12]);
        } else {
            let bit = coils.lock().unwrap().get(&(unit, at)).copied().unwrap_or(false);
            answer.extend([1, u8::from(bit)]);
        }
        let len = u16::try_from(answer.len() - 6).unwrap().to_be_bytes();
        answer[4..6].copy_from_slice(&len);
        if stream.write_all(&answer).is_err() {
            return;
        }
    }
}

fn drop_some(mut near: TcpStream, mut far: &TcpStream, files: &Files, runs: &Mutex<BTreeMap<u8, String>>) {
    let mut head = [0; 12];
    while near.read_exact(&mut head).is_ok() {
        let fault = match op_of(&head, runs) {
            Some((id, on)) if head[7] == 5 => files.fault(&if on { id } else { format!("{id}.undo") }),
            _ => Fault::None,
        };
        if fault == Fault::Before || far.write_all(&head).is_err() {
            break;
        }
        let mut answer = [0; 6];
        if far.read_exact(&mut answer).is_err() {
            break;
        }
        let mut rest = vec![0; usize::from(u16::from_be_bytes([answer[4], answer[5]]))];
        if far.read_exact(&mut rest).is_err() || fault == Fault::After {
            break;
        }
        if near.write_all(&[&answer[..], &rest].concat()).is_err() {
            break;
        }
    }
    let _ = near.shutdown(Shutdown::Both);
}

/// An HTTP service: POST makes an effect, DELETE takes it back, GET says whether it is there. Under `/keyed/` a key that
/// was seen gives its original answer back. What is under `/plain/` can be seen by anybody. Gives its port.
pub(crate) fn http(files: &Files) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (files, keys, there) = (files.clone(), Arc::default(), Arc::default());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (files, keys, there) = (files.clone(), Arc::clone(&keys), Arc::clone(&there));
            std::thread::spawn(move || answer(stream, &files, &keys, &there));
        }
    });
    port
}

fn answer(
    stream: TcpStream,
    files: &Files,
    keys: &Mutex<BTreeMap<String, String>>,
    there: &Mutex<BTreeMap<String, u32>>,
) -> Option<()> {
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines();
    let first = lines.next()?.ok()?;
    let mut key = None;
    for line in lines {
        let line = line.ok()?;
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':') {
            key = key.or_else(|| name.eq_ignore_ascii_case("idempotency-key").then(|| value.trim().to_owned()));
        }
    }
    let (method, path) = (first.split(' ').next()?, first.split(' ').nth(1)?);
    let (path, other) = path.split_once('?').map_or((path, false), |(path, _)| (path, true));
    let (keyed, id) = (path.starts_with("/keyed/"), path.rsplit('/').next()?.to_owned());
    let say = |status: &str| {
        let mut stream = &stream;
        let written = write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        written.ok()
    };
    if other {
        // Another workflow, on the same resource.
        files.tell(&id, "other");
        return say("200 OK");
    }
    if method == "GET" {
        let is = there.lock().unwrap().get(&id).is_some_and(|count| *count > 0);
        return say(if is { "200 OK" } else { "404 Not Found" });
    }
    let undo = format!("{id}.undo");
    let fault = files.fault(if method == "POST" { &id } else { &undo });
    if fault == Fault::Before {
        return None;
    }
    let seen = key.filter(|_| keyed).map(|key| keys.lock().unwrap().insert(format!("{method} {key}"), id.clone()));
    if !matches!(seen, Some(Some(_))) {
        let mut there = there.lock().unwrap();
        let count = there.entry(id.clone()).or_default();
        if method == "POST" {
            *count += 1;
            files.tell(&id, "effect");
        } else if *count > 0 {
            *count -= 1;
            files.tell(&id, "undo");
        }
    }
    if fault == Fault::After { None } else { say("200 OK") }
}

/// The script that a shell call runs: it acts, and is killed before or after it as planned.
pub(crate) const SCRIPT: &str = r#"
run=${2%%.*} op=${2#*.} plan=$1/plans/$2
fault=$(head -n 1 "$plan" 2>/dev/null)
[ -f "$plan" ] && sed -i 1d "$plan"
[ "$fault" = before ] && kill -9 $$
echo "$3 $op" >> "$1/stories/$run"
[ "$fault" = after ] && kill -9 $$
exit 0
"#;

/// The MCP server of one lane: `act` and `undo` change something and may be killed in it, `status` says what is there.
pub(crate) fn serve_mcp(directory: &Path) {
    let files = Files(directory.to_owned());
    let there = |id: &str| directory.join("there").join(id);
    let undo = json!({"tool": "undo", "input": {"id": "{input.id}"}});
    let status = |done: &str, failed: &str| {
        json!({"tool": "status", "input": {"id": "{input.id}"},
            "done": {"content.0.text": done}, "failed": {"content.0.text": failed}})
    };
    let contract = |effect: Value, query: Value| {
        json!({"interlock/contract": {"outcome": "query", "query": query, "effect": effect, "visibility": "private",
            "resources": ["{input.id}"]}})
    };
    let schema = json!({"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]});
    let reversible = json!({"reversible": {"inverse": "undo", "precondition": "any time", "call": undo}});
    let tools = json!([
        {"name": "act", "inputSchema": schema, "_meta": contract(reversible, status("yes", "no"))},
        {"name": "undo", "inputSchema": schema, "_meta": contract("irreversible".into(), status("no", "yes"))},
        {"name": "status", "inputSchema": schema, "annotations": {"readOnlyHint": true}},
    ]);
    for line in std::io::stdin().lock().lines() {
        let Ok(message) = serde_json::from_str::<Value>(&line.unwrap_or_default()) else { break };
        let (Some(method), Some(id)) = (message["method"].as_str(), message.get("id")) else { continue };
        let (name, of) =
            (&message["params"]["name"], message["params"]["arguments"]["id"].as_str().unwrap_or_default());
        let text = |text: &str| json!({"content": [{"type": "text", "text": text}]});
        let result = match (method, name.as_str()) {
            ("initialize", _) => json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                "serverInfo": {"name": "faults", "version": "1"}}),
            ("tools/list", _) => json!({"tools": tools}),
            ("ping", _) => json!({}),
            ("tools/call", Some("status")) => text(if there(of).exists() { "yes" } else { "no" }),
            ("tools/call", Some(name)) => {
                let fault = files.fault(&if name == "act" { of.to_owned() } else { format!("{of}.undo") });
                if fault == Fault::Before {
                    die();
                }
                if name == "act" {
                    files.tell(of, "effect");
                    std::fs::write(there(of), "").unwrap();
                } else if std::fs::remove_file(there(of)).is_ok() {
                    files.tell(of, "undo");
                }
                if fault == Fault::After {
                    die();
                }
                text("acted")
            }
            _ => {
                let error = json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no such method"}});
                println_now(&error);
                continue;
            }
        };
        println_now(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }
    std::process::exit(0);
}

fn println_now(message: &Value) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{message}").unwrap();
    out.flush().unwrap();
}

/// As the kernel ends a process: without a word.
fn die() -> ! {
    let own = nix::unistd::Pid::this();
    let _ = nix::sys::signal::kill(own, nix::sys::signal::Signal::SIGKILL);
    std::process::abort()
}

/// The server itself; nothing when it runs as one of the tests.
#[test]
fn serve() {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        serve_mcp(Path::new(&directory));
    }
}

/// The command that starts it, for `[[mcp.server]]`.
pub(crate) fn command() -> Vec<String> {
    let own = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
    let here = module_path!().split_once("::").map_or("", |(_, path)| path);
    [own, "--exact".to_owned(), format!("{here}::serve"), "--nocapture".to_owned()].to_vec()
}
