//! The paper's measured claims about mediation, executed: the schedule's pairs, the fault matrix, the child boundary,
//! the routes, and what a gate lets through that looks only at what is outside (the Metis paper, section 5).
//!
//! Each prints its table and raw data with the paper's figure beside ours. The small ones run with every test run, since
//! they take less than a second; `INTERLOCK_EXPERIMENT` chooses the long ones.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use interlock::bench::drive::{Driver, Work};
use interlock::bench::schedule;
use interlock_domain::closure::{Ending, Reply};
use interlock_domain::effect::Order;
use interlock_domain::effect::report::{Failure, Loss, Report};
use interlock_domain::event::Event;
use interlock_domain::gate::check::check;
use interlock_domain::gate::policy::{Mode, Policy};
use interlock_domain::id::{BatchId, CallId, QuestionId, RunId, ToolName};
use interlock_domain::mediator::{Action, Input, Mediator, Opening};
use interlock_domain::repair::{self, Mend, Stub, Trace};
use interlock_domain::request::args::Args;
use interlock_domain::request::{Asker, Batch, Via, Wish};
use interlock_domain::risk::Risk;
use interlock_domain::surface::Surface;
use interlock_domain::surface::contract::Contract;
use interlock_domain::surface::narrow::Narrowing;
use interlock_domain::surface::nature::{Class, Keys};
use interlock_domain::surface::tool::{Annotations, Declaration, Declared, Definition, Kind, Text, Tool};
use interlock_domain::time::Tick;
use serde_json::{Value, json};

use crate::asked;

#[expect(clippy::print_stdout, reason = "an experiment prints what it measured")]
fn say(text: &str) {
    println!("{text}");
}

/// 5.1: thirty alternating pairs, with durable evidence and without.
#[test]
fn schedule_pairs() {
    if !asked("schedule") {
        return;
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    say("                 pairs  mediated  serial   ideal  serial/med  med/ideal  faster  95 % of the difference, ms");
    say("paper (M2 Pro)      30    14.146  25.958       -       1.835          -   30/30  [-12.968, -11.694]");
    for durable in [true, false] {
        let measured = schedule::measure(dir.path(), durable).unwrap();
        let (mediated, serial) = (measured.median(|pair| pair.mediated), measured.median(|pair| pair.serial));
        let ideal = measured.median(|pair| pair.ideal);
        let [low, high] = measured.interval();
        say(&format!(
            "{:<18} {:>3}  {mediated:>8.3}  {serial:>6.3}  {ideal:>6.3}  {:>10.3}  {:>9.3}   {:>2}/{}  [{low:.3}, {high:.3}]  \
             reply {:.3}",
            if durable { "evidence durable" } else { "evidence off" },
            measured.pairs.len(),
            serial / mediated,
            measured.median(|pair| pair.mediated / pair.ideal),
            measured.faster(),
            measured.pairs.len(),
            measured.median(|pair| pair.reply),
        ));
        assert_eq!(measured.not_done, 0, "calls that did not end as done");
        for (at, pair) in measured.pairs.iter().enumerate() {
            say(&format!(
                "  raw {at:>2}: mediated {:.3} serial {:.3} ideal {:.3} reply {:.3}",
                pair.mediated, pair.serial, pair.ideal, pair.reply
            ));
        }
    }
    say(&format!(
        "overhead of a call without work and without a log: {:.2} us",
        schedule::overhead(dir.path()).unwrap()
    ));
}

/// A tool for each name; what reads is `Safe`, what acts may be alone or in the background.
fn tool(name: &str, class: Class, acts: bool, patience: Duration) -> Arc<Tool> {
    let otherwise = Declaration {
        class,
        keys: Keys::default(),
        risk: if acts { Risk::Operate } else { Risk::Read },
        protective: false,
        contract: Arc::new(if acts { Contract::weakest(name) } else { Contract::reads(name) }),
        patience,
    };
    let definition = Definition {
        name: ToolName::new(name).unwrap(),
        title: Text::default(),
        description: Text::default(),
        input_schema: json!({"type": "object"}),
        output_schema: None,
        annotations: Annotations::default(),
        kind: Kind::Declared(Declared { mcp: None, verb_in: None, verbs: BTreeMap::new(), otherwise }),
    };
    Arc::new(Tool::new(definition).unwrap())
}

fn wish(tool: &str, input: Value) -> Wish {
    Wish {
        tool: ToolName::new(tool).unwrap(),
        args: Args::new(input).unwrap(),
        parent: None,
        facts: Arc::default(),
        protective: false,
        again: None,
        classified: None,
        part: None,
    }
}

/// What the work of a case does, by the name of its tool.
fn faulty(dir: PathBuf) -> Work {
    Arc::new(move |order: Order| {
        let dir = dir.clone();
        Box::pin(async move {
            let mark = |name: &str| std::fs::write(dir.join(name), "x").unwrap();
            match order.tool().name().as_str() {
                "succeeds" => {
                    mark("succeeds");
                    Report::Done(json!({"ok": true}))
                }
                "errs" => Report::Failed(Failure { code: "refused", message: "the other side said no".into() }),
                "nothing" => Report::Done(Value::Null),
                "panics" => panic!("in the work of a case"),
                "hangs" => std::future::pending().await,
                "half" => {
                    mark("half");
                    Report::Lost(Loss::Partial("1 of 2 writes was made".into()))
                }
                "alone" => {
                    mark("alone");
                    Report::Done(Value::Null)
                }
                "background" => Report::Done(json!({"task": "t1"})),
                other => Report::Failed(Failure { code: "no_case", message: other.to_owned() }),
            }
        })
    })
}

fn word(reply: &Reply) -> String {
    let code = reply.ending.code().map_or_else(String::new, |code| format!(" ({code})"));
    format!("{}{code}", reply.ending.word())
}

/// 5.2: ten cases of failure, and the receipt of a background call. The paper's three negative results are marked.
#[test]
fn fault_matrix() {
    let dir = tempfile::tempdir().unwrap();
    let short = Duration::from_millis(50);
    let long = Duration::from_secs(30);
    let surface = Surface::new([
        tool("succeeds", Class::Safe, true, long),
        tool("errs", Class::Safe, true, long),
        tool("nothing", Class::Safe, false, long),
        tool("panics", Class::Safe, true, long),
        tool("hangs", Class::Safe, true, short),
        tool("half", Class::Safe, true, long),
        tool("alone", Class::Exclusive, true, long),
        tool("background", Class::Background, true, long),
    ]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut rows: Vec<(&str, String, Option<bool>, &str)> = Vec::new();
    runtime.block_on(async {
        let driver = || Driver::new(surface.clone(), |policy| policy, None, faulty(dir.path().to_owned()));
        let one = async |name: &str| word(&driver().batch(vec![wish(name, json!({}))]).await.replies[0]);
        let there = |name: &str| dir.path().join(name).exists();
        rows.push(("success", one("succeeds").await, Some(there("succeeds")), "done"));
        rows.push(("returned error", one("errs").await, Some(there("errs")), "failed (refused)"));
        rows.push(("nil result", one("nothing").await, Some(there("nothing")), "done"));
        rows.push(("panic", one("panics").await, Some(there("panics")), "unknown (panicked)"));
        rows.push(("timeout", one("hangs").await, Some(there("hangs")), "unknown (timed_out)"));
        // Cancelled while the first one runs: the barrier behind it never starts.
        let mut cancelled = false;
        let wishes = vec![wish("hangs", json!({})), wish("alone", json!({}))];
        let mut cancelling = driver();
        let went = cancelling.batch_with(wishes, |events| {
            let starts = !cancelled && events.iter().any(|(_, word)| *word == "started");
            cancelled |= starts;
            starts.then_some(Input::Cancel { batch: BatchId(1) })
        });
        let went = went.await;
        rows.push((
            "cancelled before Exclusive",
            word(&went.replies[1]),
            Some(there("alone")),
            "not_started (cancelled)",
        ));
        rows.push(("partial change *", one("half").await, Some(there("half")), "unknown (partial)"));
        rows.push(("background receipt", one("background").await, Some(there("background")), "done"));
    });
    // Two calls with one id of the provider, and what a crash leaves of them.
    let mut world = World::new(Mode::Default, &Narrowing::default());
    let twice = world.submit(world.root, 1, vec![wish("write", json!({"id": "a"})), wish("write", json!({"id": "a"}))]);
    let names: BTreeSet<CallId> = twice.iter().map(|reply| reply.call).collect();
    let words: Vec<String> = twice.iter().map(word).collect();
    rows.push((
        "duplicate id *",
        format!("{} results for {} calls: {}", words.len(), names.len(), words.join(", ")),
        Some(world.effects.len() == 2),
        "2 results for 2 calls: done, done",
    ));
    let orphan = world.crash(2, vec![wish("write", json!({"id": "b"}))]);
    rows.push(("restart, orphan", mended(&orphan), None, "1 ending: unknown, stub outcome_unknown"));
    let orphans = world.crash(3, vec![wish("write", json!({"id": "c"})), wish("write", json!({"id": "c"}))]);
    rows.push((
        "restart, duplicate id *",
        mended(&orphans),
        None,
        "2 endings: unknown, unknown, stub outcome_unknown, outcome_unknown",
    ));
    say("case                         ending here                                        effect there");
    let mut wrong = Vec::new();
    for (case, got, effect, want) in &rows {
        let effect = effect.map_or("nobody knows".to_owned(), |there| there.to_string());
        say(&format!("{case:<28} {got:<50} {effect}"));
        if got != want {
            wrong.push(format!("{case}: {got}, not {want}"));
        }
    }
    say(
        "* negative in the paper: no unique end for a duplicate id, no answer for a half-made change, no closure of a \
         duplicate id after a restart. Here: one end for each occurrence, and an explicit unknown.",
    );
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn mended(mends: &[Mend]) -> String {
    let word = |mend: &Mend| mend.ending.as_ref().map_or("none", Ending::word).to_owned();
    let stub = |mend: &Mend| {
        match mend.stub {
            None => "none",
            Some(Stub::NotStarted) => "not_started",
            Some(Stub::Denied) => "denied",
            Some(Stub::OutcomeUnknown) => "outcome_unknown",
        }
        .to_owned()
    };
    let names: BTreeSet<CallId> = mends.iter().map(|mend| mend.call).collect();
    let (words, stubs): (Vec<_>, Vec<_>) = mends.iter().map(|mend| (word(mend), stub(mend))).unzip();
    let endings = if names.len() == 1 { "ending" } else { "endings" };
    format!("{} {endings}: {}, stub {}", names.len(), words.join(", "), stubs.join(", "))
}

/// The tools by which a child could leave its bounds, and one that only looks.
const ESCAPES: [&str; 5] = ["write", "shell", "post", "operate", "delegate"];

/// A small world: a parent, perhaps a child, and a set of effects that were really made.
struct World {
    machine: Mediator,
    root: RunId,
    child: RunId,
    effects: BTreeSet<String>,
    events: Vec<Event>,
}

impl World {
    fn new(mode: Mode, narrowing: &Narrowing) -> World {
        let tools = ESCAPES.map(|name| tool(name, Class::Safe, true, Duration::from_secs(30)));
        let look = tool("look", Class::Safe, false, Duration::from_secs(30));
        let (root, child) = (RunId::new(1, 1), RunId::new(1, 2));
        let asker = |via| Asker { via, name: "experiment".to_owned() };
        let mut world =
            World { machine: Mediator::new(QuestionId(1)), root, child, effects: BTreeSet::new(), events: Vec::new() };
        let surface = Surface::new(tools.into_iter().chain([look]));
        let open = |run, parent, via, narrowing: &Narrowing| Opening {
            run,
            parent,
            surface: surface.clone(),
            narrowing: narrowing.clone(),
            policy: Policy { mode, ..Policy::plain(asker(via)) },
        };
        world.step(Input::Open(Box::new(open(root, None, Via::Cli, &Narrowing::default()))), true);
        world.step(Input::Open(Box::new(open(child, Some(root), Via::Agent, narrowing))), true);
        world
    }

    /// Carries everything out at once; an effect is a name in a set. Without `acts`, a start is a crash.
    fn step(&mut self, input: Input, acts: bool) -> Vec<Reply> {
        let mut replies = Vec::new();
        let mut todo = vec![input];
        while let Some(input) = todo.pop() {
            self.machine.step(input, Tick(1));
            while let Some(action) = self.machine.next_action() {
                match action {
                    Action::Record { entries, .. } => {
                        let upto = entries.last().map(|(entry, _)| *entry);
                        self.events.extend(entries.into_iter().map(|(_, event)| event));
                        todo.extend(upto.map(|upto| Input::Committed { upto }));
                    }
                    Action::Start(order) if acts => {
                        let call = order.call();
                        if order.nature().contract.changes() {
                            self.effects.insert(format!("{}:{}", order.tool().name(), call));
                        }
                        todo.push(Input::Ended { call, report: Report::Done(json!({})) });
                    }
                    Action::Start(_) => {}
                    Action::Reply { replies: ours, .. } => replies = ours,
                    Action::Ask(_) | Action::Withdraw { .. } | Action::Stop { .. } | Action::Look { .. } => {}
                }
            }
        }
        replies
    }

    fn submit(&mut self, run: RunId, batch: u64, wishes: Vec<Wish>) -> Vec<Reply> {
        self.step(Input::Submit { run, batch: BatchId(batch), wishes: Batch::new(wishes).unwrap() }, true)
    }

    /// Starts calls and loses the machine before any of them has ended: what does repair make of the log?
    fn crash(&mut self, batch: u64, wishes: Vec<Wish>) -> Vec<Mend> {
        let wishes = Batch::new(wishes).unwrap();
        self.step(Input::Submit { run: self.root, batch: BatchId(batch), wishes }, false);
        let mends = repair::mend(self.events.iter().filter_map(Trace::of));
        mends.into_iter().filter(|mend| mend.call.batch == BatchId(batch)).collect()
    }
}

/// 5.3 as a 2 x 2: the gate alone, the filter alone, both, neither; with effects that are made, not only decided.
#[test]
fn child_boundary() {
    say("gate   filter   visible   effects made   how they ended          paper");
    let mut made = Vec::new();
    for (gate, filter) in [(true, true), (true, false), (false, true), (false, false)] {
        // With the gate, the parent is in plan; a child is never wider. Without it, nothing is asked for.
        let mode = if gate { Mode::Plan } else { Mode::BypassPermissions };
        let narrowing = if filter { Narrowing::only(["look".to_owned()]) } else { Narrowing::default() };
        let mut world = World::new(mode, &narrowing);
        let child = world.child;
        let surface = world.machine.surface(child).unwrap().clone();
        let visible = ESCAPES.iter().filter(|name| surface.tool(&ToolName::new(name).unwrap()).is_some()).count();
        let wishes = ESCAPES.iter().map(|name| wish(name, json!({}))).collect();
        let replies = world.submit(child, 1, wishes);
        let codes: BTreeSet<String> = replies.iter().map(word).collect();
        let looked = world.submit(child, 2, vec![wish("look", json!({}))]);
        assert_eq!(looked[0].ending.word(), "done", "a read goes on in every corner");
        let codes: Vec<String> = codes.into_iter().collect();
        let paper = match (gate, filter) {
            (true, true) => "0 visible, blocked",
            (false, false) => "5 of 5 exposed, effect made",
            _ => "not measured",
        };
        let on = |on: bool| if on { "on " } else { "off" };
        say(&format!(
            "{}    {}      {visible} of 5    {} of 5         {:<22}  {paper}",
            on(gate),
            on(filter),
            world.effects.len(),
            codes.join(", ")
        ));
        made.push((visible, world.effects.len()));
    }
    assert_eq!(made, [(0, 0), (5, 0), (0, 0), (5, 5)]);
}

/// In-scope edits and clean-ups: the test of a public gate found that it looked at commands and away from edits, and
/// that a task in the right folder passed whatever it did there. What slips here, in each mode, without a rule?
#[test]
fn what_slips_in_scope() {
    const EDITS: &[&str] = &["src/main.rs", "Cargo.toml", "deploy.sh", "data/customers.csv", "docs/a.md", "tests/x.rs"];
    const GUARDED: &[&str] =
        &[".git/hooks/pre-commit", ".vscode/tasks.json", ".envrc", ".npmrc", ".mcp.json", ".husky/x"];
    const CLEANING: &[&str] = &[
        "rm -rf build",
        "rm data/customers.csv",
        "rm -rf src tests",
        "git clean -fdx",
        "git reset --hard",
        "git checkout .",
        "git stash drop",
        "git branch -D main",
        "git push --force",
        "find . -name '*.log' -delete",
        "truncate -s 0 data/x",
        "> data/x",
        "sed -i d src/main.rs",
        "mv src old",
        "cp /dev/null data/x",
        "docker system prune -af",
        "docker volume rm x",
        "psql -c 'drop table x'",
        "redis-cli flushall",
        "kubectl delete ns x",
        "terraform destroy",
        "chmod -R 000 src",
        "shred data/x",
        "dd if=/dev/zero of=data/x",
        "npm uninstall x",
        "make clean",
    ];
    const CRITICAL: &[&str] =
        &["rm -rf .", "rm -rf *", "rm -rf ../ws", "find . -delete", "rm -rf $PWD", "mv . /x", "rm -rf .git"];
    let decided = |mode: &str, tool: &str, input: Value| {
        let line = json!({
            "cwd": "/ws", "home": "/home/u", "work_dirs": ["/ws"], "mode": mode, "call": {"tool": tool, "input": input},
        });
        check(&line, &[]).unwrap().decision.verdict.word()
    };
    say("slips through without a person (of so many)   edits  guarded edits  clean-ups  critical");
    let mut table = Vec::new();
    for mode in ["plan", "dontAsk", "default", "acceptEdits", "bypassPermissions"] {
        let edits = |list: &[&str]| {
            list.iter().filter(|path| decided(mode, "Edit", json!({ "file_path": path })) == "allow").count()
        };
        let commands = |list: &[&str]| {
            list.iter().filter(|command| decided(mode, "Bash", json!({ "command": command })) == "allow").count()
        };
        let row = [edits(EDITS), edits(GUARDED), commands(CLEANING), commands(CRITICAL)];
        say(&format!(
            "{mode:<44} {:>2}/{}  {:>11}/{}  {:>6}/{}  {:>6}/{}",
            row[0],
            EDITS.len(),
            row[1],
            GUARDED.len(),
            row[2],
            CLEANING.len(),
            row[3],
            CRITICAL.len()
        ));
        table.push(row);
        let slipped = |list: &[&str], tool: &str, key: &str| {
            let through = list.iter().filter(|one| decided(mode, tool, json!({ (key): one })) == "allow");
            through.copied().collect::<Vec<_>>().join(" | ")
        };
        say(&format!("  raw edits: {}", slipped(&[EDITS, GUARDED].concat(), "Edit", "file_path")));
        say(&format!("  raw commands: {}", slipped(&[CLEANING, CRITICAL].concat(), "Bash", "command")));
    }
    // Where nobody gave leave, nothing slips; what a mode gives away, it gives away by its name; the rest never.
    assert_eq!(table[..3], [[0, 0, 0, 0]; 3]);
    assert_eq!(table[3][0], EDITS.len());
    assert!(table[3..].iter().all(|row| row[1] == 0 && row[3] == 0), "{table:?}");
}

/// Where the server of the routes writes; set for it alone.
const SERVES: &str = "INTERLOCK_ROUTES_DIRECTORY";

/// The MCP server of the routes: this binary again. Two tools, each of which writes one file.
#[test]
fn serve() {
    use std::io::{BufRead, Write};
    let Ok(dir) = std::env::var(SERVES) else { return };
    let mut out = std::io::stdout();
    for line in std::io::stdin().lock().lines() {
        let Ok(message) = serde_json::from_str::<Value>(&line.unwrap()) else { continue };
        let Some(id) = message.get("id") else { continue };
        let tool =
            |name: &str| json!({"name": name, "description": "writes a file", "inputSchema": {"type": "object"}});
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" => json!({
                "protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "routes", "version": "1"},
            }),
            "tools/list" => json!({"tools": [tool("put_ok"), tool("put_no")]}),
            "tools/call" => {
                let name = message["params"]["name"].as_str().unwrap();
                std::fs::write(Path::new(&dir).join(format!("{name}-{}", std::process::id())), "x").unwrap();
                json!({"content": [{"type": "text", "text": "written"}]})
            }
            _ => {
                let error = json!({"code": -32601, "message": "no such method"});
                writeln!(out, "{}", json!({"jsonrpc": "2.0", "id": id, "error": error})).unwrap();
                continue;
            }
        };
        writeln!(out, "{}", json!({"jsonrpc": "2.0", "id": id, "result": result})).unwrap();
        out.flush().unwrap();
    }
    std::process::exit(0);
}
