//! `cargo xtask conformance`: the daemon, with a server that speaks both eras behind it, before clients and suites that
//! nobody here wrote.
//!
//! The proxy is judged, not the fixture: all of the fixture's tools are seen through the gate, under their own names.
//! No failure is expected, so there is no list of expected ones.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Instant;

use crate::{Places, machine, steps};

/// How long fetching the clients may take, in seconds: a slow registry must not hold CI up for ever.
const FETCH_SECONDS: &str = "900";

/// How long one part may take, in seconds: the longest takes a minute on two cores.
const PART_SECONDS: &str = "600";

/// The scenarios of the Tasks extension; `--requirements` leaves them out.
const TASKS: [&str; 10] = [
    "tasks-capability-negotiation",
    "tasks-dispatch-and-envelope",
    "tasks-lifecycle",
    "tasks-mrtr-composition",
    "tasks-mrtr-input",
    "tasks-request-headers",
    "tasks-request-state-removal",
    "tasks-required-task-error",
    "tasks-status-notifications",
    "tasks-wire-fields",
];

/// A process that goes with us.
struct Ours(Child);

impl Drop for Ours {
    fn drop(&mut self) {
        // Its input closes with it; whoever does not heed that is ended.
        drop(self.0.stdin.take());
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// How it ended.
pub(crate) enum Ended {
    /// Nothing failed.
    Passed,
    /// Something did; it was printed.
    Failed,
    /// What others wrote could not be fetched, so that nothing was tried; why.
    NotFetched(String),
}

/// All parts, or those that are named.
pub(crate) fn run(places: &Places, only: &[String]) -> Result<ExitCode, String> {
    machine::for_building()?;
    match parts(places, only, None)? {
        Ended::Passed => Ok(ExitCode::SUCCESS),
        Ended::Failed => Ok(ExitCode::FAILURE),
        Ended::NotFetched(why) => Err(why),
    }
}

/// The same on a machine that can build already; what is skipped is added to that file, by name.
pub(crate) fn parts(places: &Places, only: &[String], skips: Option<&Path>) -> Result<Ended, String> {
    let only: Vec<&str> = only.iter().map(String::as_str).collect();
    let clients = places.target.join("mcp-clients");
    let fetched = machine::for_conformance().and_then(|()| {
        let mut setup = bounded(FETCH_SECONDS, places.root.join("tests/clients/setup.sh"));
        said(setup.arg(&clients))
    });
    if let Err(why) = fetched {
        return Ok(Ended::NotFetched(format!("the clients of others could not be fetched: {why}")));
    }
    let tests = test_binary(places)?;
    let home = places.target.join("conformance");
    let world = World::start(places, &tests, &home)?;
    let script = |name: &str| {
        let mut command = bounded(PART_SECONDS, places.root.join("tests/clients").join(name));
        command.env("DIR", &clients).env("INTERLOCK_TEST_MCP_CLIENTS", &clients);
        command
    };
    let python = || {
        let mut command = bounded(PART_SECONDS, clients.join("py/bin/python"));
        command.current_dir(places.root.join("tests/clients"));
        command
    };
    let node = || -> Result<Command, String> {
        let copied = clients.join("node/typescript.mjs");
        fs::copy(places.root.join("tests/clients/typescript.mjs"), &copied)
            .map_err(|e| format!("{}: {e}", copied.display()))?;
        let mut command = bounded(PART_SECONDS, clients.join("node/node_modules/.bin/node"));
        command.arg(copied);
        Ok(command)
    };
    let mut others = bounded(PART_SECONDS, tests.clone());
    others.args(["--exact", "daemon::proxy::others::five_servers_of_others_are_served_at_once"]);
    others.env("INTERLOCK_TEST_MCP_CLIENTS", &clients);
    let mut parts: Vec<(&str, Command)> = vec![
        ("server", script("conformance.sh")),
        ("tasks", script("conformance.sh")),
        ("inspector", script("inspector.sh")),
        ("python", python()),
        ("typescript", node()?),
        ("fastmcp", python()),
        ("client", script("client_suite.sh")),
        ("servers", others),
    ];
    for (name, command) in &mut parts {
        match *name {
            "tasks" => drop(command.arg(&world.url).args(TASKS)),
            "inspector" => drop(command.args([&world.url, "echo", "text=hello"])),
            "python" => drop(command.args(["python_mcp.py", &world.url, "echo", r#"{"text": "你好"}"#])),
            "fastmcp" => {
                command.args(["fastmcp_client.py", &world.url, "--command"]);
                command
                    .arg(places.target.join("debug/interlock"))
                    .arg("--socket")
                    .arg(home.join("interlock.sock"))
                    .arg("mcp");
            }
            "client" => drop(command.arg(&tests)),
            "servers" => {}
            _ => drop(command.arg(&world.url)),
        }
    }
    if let Some(unknown) = only.iter().find(|only| !parts.iter().any(|(name, _)| name == *only)) {
        let names: Vec<&str> = parts.iter().map(|(name, _)| *name).collect();
        return Err(format!("no part is called {unknown}\nhint: the parts are {}", names.join(", ")));
    }
    let mut failed = Vec::new();
    for (name, mut command) in parts.into_iter().filter(|(name, _)| only.is_empty() || only.contains(name)) {
        println!("\n--- {name}");
        let begun = Instant::now();
        if let Some(skips) = skips {
            command.env("INTERLOCK_TEST_SKIPS", skips);
        }
        if let Err(why) = said(&mut command) {
            println!("{why}");
            failed.push(name);
        }
        println!("{name}: {:.1} s", begun.elapsed().as_secs_f64());
    }
    drop(world);
    if failed.is_empty() {
        println!("\nconformance: nothing failed");
        return Ok(Ended::Passed);
    }
    println!("\nconformance: FAILED: {}; the daemon's log is {}", failed.join(", "), home.join("log").display());
    Ok(Ended::Failed)
}

/// A command that ends by itself.
fn bounded(seconds: &str, program: PathBuf) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10", seconds]).arg(program).stdin(Stdio::null());
    command
}

fn said(command: &mut Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{}: {status}", format!("{command:?}").replace('"', ""))),
        Err(e) => Err(format!("{}: {e}", format!("{command:?}").replace('"', ""))),
    }
}

/// The integration tests, built, and the daemon with them: the fixture is one of them.
fn test_binary(places: &Places) -> Result<PathBuf, String> {
    let mut cargo = steps::cargo_command(places);
    // The whole workspace, as the tests are built: another selection of packages would be built anew.
    cargo.args(["test", "--workspace", "--test", "it", "--no-run", "--message-format=json"]).stderr(Stdio::inherit());
    let output = cargo.output().map_err(|e| format!("cargo: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.contains("\"name\":\"it\"") && line.contains("\"executable\":\"/"));
    let named = line.and_then(|line| line.split("\"executable\":\"").nth(1)).and_then(|rest| rest.split('"').next());
    named.map(PathBuf::from).ok_or_else(|| "the integration tests do not build".to_owned())
}

/// The fixture and the daemon before it.
struct World {
    url: String,
    _daemon: Ours,
    _fixture: Ours,
}

impl World {
    fn start(places: &Places, tests: &Path, home: &Path) -> Result<World, String> {
        let told = |what: &str, e: std::io::Error| format!("{what}: {e}");
        // A state of an earlier run could have other definitions of the same tools.
        if home.exists() {
            fs::remove_dir_all(home).map_err(|e| told("an earlier run", e))?;
        }
        fs::create_dir_all(home).map_err(|e| told("a directory", e))?;
        let mut fixture = Command::new(tests)
            .args(["--exact", "mcp::serve_for_clients", "--nocapture"])
            .env("INTERLOCK_MCP_SERVE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| told("the fixture", e))?;
        let output = fixture.stdout.take();
        let fixture = Ours(fixture);
        let behind = line_with(output, "MCP_URL=").ok_or("the fixture did not say where it is")?;
        let config = home.join("interlock.toml");
        let text = format!(
            "version = 1\n[policy]\nallow = [\"mcp__fixture\"]\n[[mcp.server]]\nname = \"fixture\"\nurl = \"{behind}\"\n\
             prefix = \"\"\n"
        );
        fs::write(&config, text).map_err(|e| told("the configuration", e))?;
        let mut daemon = Command::new(places.target.join("debug/interlock"))
            .arg("--socket")
            .arg(home.join("interlock.sock"))
            .args(["run", "--state"])
            .arg(home.join("state"))
            .arg("--config")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| told("the daemon", e))?;
        let log = daemon.stderr.take();
        let daemon = Ours(daemon);
        let url = ready(log, home.join("log")).ok_or("the daemon did not reach the fixture")?;
        Ok(World { url, _daemon: daemon, _fixture: fixture })
    }
}

/// The rest of the first line with that mark; the rest of the stream is read by a thread, so that its writer never
/// waits.
fn line_with(stream: Option<impl std::io::Read + Send + 'static>, mark: &str) -> Option<String> {
    let mut lines = BufReader::new(stream?).lines();
    let found = lines.by_ref().map_while(Result::ok).find_map(|line| Some(line.split_once(mark)?.1.to_owned()));
    std::thread::spawn(move || lines.for_each(drop));
    found
}

/// The daemon's address, once the fixture is up; its log is kept.
fn ready(stream: Option<impl std::io::Read + Send + 'static>, log: PathBuf) -> Option<String> {
    use std::io::Write;
    let mut kept = fs::File::create(log).ok()?;
    let mut lines = BufReader::new(stream?).lines();
    let (mut url, mut is_up) = (None, false);
    while url.is_none() || !is_up {
        let line = lines.next()?.ok()?;
        writeln!(kept, "{line}").ok()?;
        if let Some((_, rest)) = line.split_once("mcp=\"") {
            url = rest.split('"').next().map(str::to_owned);
        }
        is_up |= line.contains("MCP server is up");
    }
    std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| drop(writeln!(kept, "{line}"))));
    url
}
