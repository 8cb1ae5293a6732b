//! The route oracle: five ways to write a file, each once with leave and once without, carried out by a real daemon, and
//! the folder compared before and after (the Metis paper, 5.4, which only asked for decisions).

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

#[expect(clippy::print_stdout, reason = "an experiment prints what it measured")]
fn say(text: &str) {
    println!("{text}");
}

/// The one deadline: what takes longer hangs.
const DEADLINE: Duration = Duration::from_secs(60);

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A client of the daemon, over `interlock mcp`.
struct Client {
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    next: u64,
    _child: Killed,
}

impl Client {
    fn connect(home: &Path) -> Client {
        let (child, stdin, stdout) = crate::faults::world::stand::joined(&home.join("s"));
        let mut client = Client { stdin, stdout, next: 0, _child: Killed(child) };
        client.ask(
            "initialize",
            json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "oracle", "version": "1"}}),
        );
        writeln!(client.stdin, "{}", json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).unwrap();
        client
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let id = self.next;
        writeln!(self.stdin, "{}", json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).unwrap();
        loop {
            let mut line = String::new();
            assert!(self.stdout.read_line(&mut line).unwrap() > 0, "the daemon closed the connection");
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == json!(id) && message.get("method").is_none() {
                return message;
            }
        }
    }

    fn tools(&mut self) -> BTreeSet<String> {
        let answer = self.ask("tools/list", json!({}));
        let tools = answer["result"]["tools"].as_array().unwrap();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }
}

fn files(dir: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for place in ["ok", "no", "served", "plugged"] {
        for entry in std::fs::read_dir(dir.join(place)).unwrap() {
            found.insert(format!("{place}/{}", entry.unwrap().file_name().to_string_lossy()));
        }
    }
    found
}

#[test]
fn route_oracle() {
    let home = tempfile::tempdir().unwrap();
    let work = home.path().join("work");
    for place in ["ok", "no", "served", "plugged"] {
        std::fs::create_dir_all(work.join(place)).unwrap();
    }
    std::fs::write(work.join("seed"), "x").unwrap();
    let own = std::env::current_exe().unwrap();
    let server = |name: &str, place: &str| {
        format!(
            "[[mcp.server]]\nname = \"{name}\"\ncommand = [{:?}, \"--exact\", \"mediation::serve\", \"--nocapture\"]\n\
             env = {{ INTERLOCK_ROUTES_DIRECTORY = {:?} }}\n",
            own.display().to_string(),
            work.join(place).display().to_string()
        )
    };
    let plugin = home.path().join("plugin");
    std::fs::create_dir(&plugin).unwrap();
    let manifest = format!("name = \"plugged\"\n{}", server("plugged", "plugged"));
    std::fs::write(plugin.join("plugin.toml"), manifest).unwrap();
    let config = format!(
        "version = 1\n[policy]\nmode = \"dontAsk\"\nwork-dirs = [{:?}]\n\
         allow = [\"Edit(ok/**)\", \"Bash(cp seed ok/*)\", \"mcp__served__put_ok\", \"mcp__plugged__put_ok\"]\n\
         [[alias]]\nname = \"save\"\ntool = \"write_file\"\n[plugins]\ndirs = [\"plugin\"]\n{}",
        work.display().to_string(),
        server("served", "served")
    );
    let file = home.path().join("interlock.toml");
    std::fs::write(&file, config).unwrap();
    let log = std::fs::File::create(home.path().join("log")).unwrap();
    let daemon = Command::new(env!("CARGO_BIN_EXE_interlock"))
        .args(["--socket".as_ref(), home.path().join("s").as_os_str(), "run".as_ref()])
        .args(["--config".as_ref(), file.as_os_str(), "--state".as_ref(), home.path().join("state").as_os_str()])
        .env_remove("NOTIFY_SOCKET")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn();
    let _daemon = Killed(daemon.unwrap());
    let until = Instant::now() + DEADLINE;
    let told = || std::fs::read_to_string(home.path().join("log")).unwrap_or_default();
    while std::os::unix::net::UnixStream::connect(home.path().join("s")).is_err() {
        assert!(Instant::now() < until, "{}", told());
        std::thread::yield_now();
    }
    let mut client = Client::connect(home.path());
    let wanted = ["save", "served__put_no", "plugged__put_no"];
    let names = loop {
        let tools = client.tools();
        let ends = |end: &str| tools.iter().find(|tool| tool.ends_with(end)).cloned();
        if let [Some(_), Some(served), Some(plugged)] = wanted.map(ends) {
            break [served, plugged];
        }
        assert!(Instant::now() < until, "{tools:?}\n{}", told());
        std::thread::yield_now();
    };
    let [served, plugged] = names.map(|name| name.trim_end_matches("put_no").to_owned());
    let write = |place: &str, name: &str| json!({"path": format!("{place}/{name}"), "content": "x"});
    let table = [
        ("built-in write", "write_file".to_owned(), "write_file".to_owned(), write("ok", "a"), write("no", "a")),
        (
            "shell",
            "shell".to_owned(),
            "shell".to_owned(),
            json!({"command": "cp seed ok/b"}),
            json!({"command": "cp seed no/b"}),
        ),
        ("alias", "save".to_owned(), "save".to_owned(), write("ok", "c"), write("no", "c")),
        ("MCP", format!("{served}put_ok"), format!("{served}put_no"), json!({}), json!({})),
        ("MCP of a plugin", format!("{plugged}put_ok"), format!("{plugged}put_no"), json!({}), json!({})),
    ];
    say("route             leave   answer        files before -> after   right");
    let mut right = 0;
    for (route, ok_tool, no_tool, ok_input, no_input) in table {
        for (leave, tool, input) in [(true, ok_tool, ok_input), (false, no_tool, no_input)] {
            let before = files(&work);
            let answer = client.ask("tools/call", json!({"name": tool, "arguments": input}));
            let after = files(&work);
            let refused = answer["result"]["isError"].as_bool().unwrap_or(answer.get("error").is_some());
            let made: Vec<&String> = after.difference(&before).collect();
            let as_it_should = if leave { !refused && made.len() == 1 } else { refused && made.is_empty() };
            right += usize::from(as_it_should);
            say(&format!(
                "{route:<17} {leave:<7} {:<13} {:>2} -> {:<2} {made:?}   {as_it_should}",
                if refused { "refused" } else { "done" },
                before.len(),
                after.len()
            ));
            if !as_it_should {
                say(&format!("  {answer}"));
            }
        }
    }
    say(&format!("{right} of 10 (the paper: 10 of 10, decisions only)"));
    assert_eq!(right, 10, "{}", told());
}
