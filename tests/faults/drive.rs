//! One run: two operations by one kind of tool, by a client that guesses or as a workflow with a profile; and what the
//! story that the tools wrote of it comes to.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use interlock_domain::effect::anomaly::{Event, History, Kind, Seen, Terms, View};
use interlock_domain::effect::profile::Profile;
use serde_json::{Value, json};

use super::Tool;
use super::servers::Fault;
use super::stand::{Agent, Stand, rest};

/// How long a run waits for an unknown outcome to be found out: longer than a killed server stays away.
const FIND_OUT_PATIENCE: Duration = Duration::from_secs(90);

/// How often an operation is tried that failed with authority.
const TRIES: usize = 4;

const OPS: [&str; 2] = ["one", "two"];

pub(crate) struct Ran {
    pub(crate) end: &'static str,
    pub(crate) found: Vec<Kind>,
    pub(crate) story: String,
}

struct Run<'a> {
    stand: &'a Stand,
    lane: usize,
    name: String,
    tool: Tool,
    rng: fastrand::Rng,
}

/// What came of one operation.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Came {
    Done,
    Failed,
    Unknown,
    /// Its contract cannot support the profile.
    Refused,
}

/// Runs one seed.
pub(crate) fn one(stand: &Stand, lane: usize, seed: u64, tool: Tool, profile: Option<Profile>) -> Ran {
    let mut run = Run { stand, lane, name: format!("r{seed}"), tool, rng: fastrand::Rng::with_seed(seed) };
    run.prepare();
    let (end, mut found) = match profile {
        None => (run.guess(), Vec::new()),
        Some(profile) => run.guard(profile),
    };
    run.look();
    let story = stand.files.story(&run.name);
    let required = if story.contains("mark dropped") { &OPS[1..] } else { &OPS[..] };
    found.extend(judge(&story, end, required, profile));
    found.sort_unstable();
    found.dedup();
    Ran { end, found, story }
}

impl Run<'_> {
    fn id(&self, op: &str) -> String {
        format!("{}.{op}", self.name)
    }

    fn prepare(&mut self) {
        let unit = u8::try_from(self.lane + 1).unwrap();
        // What came before it on this line is over.
        self.stand.units.lock().unwrap().remove(&unit);
        self.stand.coils.lock().unwrap().retain(|(other, _), _| *other != unit);
        self.stand.units.lock().unwrap().insert(unit, self.name.clone());
        for op in OPS {
            for id in [self.id(op), format!("{}.undo", self.id(op))] {
                let faults: Vec<Fault> = (0..2)
                    .map(|_| [Fault::None, Fault::None, Fault::Before, Fault::After][self.rng.usize(0..4)])
                    .collect();
                self.stand.files.plan(&id, &faults);
            }
        }
    }

    /// The call of an operation, or the one that takes it back.
    fn call(&self, op: &str, undo: bool) -> (String, Value) {
        let id = self.id(op);
        let http = |root: &str| {
            let url = format!("http://127.0.0.1:{}/{root}/{id}", self.stand.http);
            ("http".to_owned(), json!({"url": url, "method": if undo { "DELETE" } else { "POST" }, "timeout_s": 20}))
        };
        match self.tool {
            Tool::Modbus => {
                let action = if undo { "stop" } else { "start" };
                ("device".to_owned(), json!({"device": format!("{op}-{}", self.lane), "action": action}))
            }
            Tool::HttpKeyed => http("keyed"),
            Tool::HttpAsked => http("asked"),
            Tool::HttpPlain => http("plain"),
            Tool::File => {
                let content = if undo { "" } else { "there" };
                ("write_file".to_owned(), json!({"path": self.file(op), "content": content}))
            }
            Tool::Mcp => {
                let tool = if undo { "undo" } else { "act" };
                (format!("m{}__{tool}", self.lane), json!({"id": id}))
            }
            Tool::Shell => {
                let (home, what) = (self.stand.files.0.display(), if undo { "undo" } else { "effect" });
                let plan = if undo { format!("{id}.undo") } else { id };
                ("shell".to_owned(), json!({"command": format!("exec /bin/sh {home}/act.sh {home} {plan} {what}")}))
            }
        }
    }

    fn file(&self, op: &str) -> String {
        // Of some runs the folder of the second file is not there.
        let is_away = op == "two" && self.name.ends_with(['0', '3', '6']);
        let folder = if is_away { "work/none" } else { "work" };
        self.stand.files.0.join(folder).join(self.id(op)).display().to_string()
    }

    fn tell(&self, what: &str, op: &str) {
        self.stand.files.tell(&self.id(op), what);
    }

    /// Files tell nothing by themselves: what is in them is looked at.
    fn look(&self) {
        if self.tool != Tool::File {
            return;
        }
        for op in OPS {
            let is = std::fs::read_to_string(self.file(op)).is_ok_and(|text| text == "there");
            let story = self.stand.files.story(&self.name);
            let of = |line: &&str| line.ends_with(op) && (line.starts_with("effect") || line.starts_with("undo"));
            let last = story.lines().rfind(of);
            match (is, last.map(|line| line.starts_with("effect"))) {
                (true, None | Some(false)) => self.tell("effect", op),
                (false, Some(true)) => self.tell("undo", op),
                _ => {}
            }
        }
    }

    /// One verb of the tool `workflow`; nothing when the daemon was killed in it.
    fn workflow(&self, input: &Value) -> Option<Value> {
        self.stand.ask("workflow", &json!({ "input": input }))
    }

    fn begin(&self, profiles: &[&str], required: &[&str]) -> String {
        loop {
            let begun = self.workflow(&json!({"verb": "begin", "profiles": profiles, "required": required}));
            if let Some(name) = begun.as_ref().and_then(|begun| begun["output"]["workflow"].as_str()) {
                return name.to_owned();
            }
            if let Some(begun) = begun {
                assert!(begun["error"].is_object(), "{begun}");
                rest(20);
            }
        }
    }

    fn show(&self, workflow: &str) -> Value {
        loop {
            if let Some(shown) = self.workflow(&json!({"verb": "show", "workflow": workflow}))
                && shown["output"].is_object()
            {
                return shown["output"].clone();
            }
            rest(20);
        }
    }

    /// Makes one attempt, once: what is not known stays so.
    fn once(&self, workflow: &str, op: &str) -> Came {
        let (tool, input) = self.call(op, false);
        let wanted = json!({"verb": "do", "workflow": workflow, "tool": tool, "input": input, "op": op});
        let answer = self.workflow(&wanted);
        self.look();
        match answer {
            Some(answer) if answer["result"] == "done" => Came::Done,
            Some(answer) => {
                let message = answer["message"].as_str().unwrap_or_default();
                if message.contains("in its contract") {
                    Came::Refused
                } else if message.contains("not known") || answer["result"] == "unknown" {
                    Came::Unknown
                } else {
                    Came::Failed
                }
            }
            // It may have been sent, or not even have arrived: the workflow knows as much as anybody.
            None => match self.state(workflow, op) {
                Some("done" | "held") => Came::Done,
                None | Some("failed") => Came::Failed,
                Some(_) => Came::Unknown,
            },
        }
    }

    /// The state of the last attempt at an operation.
    fn state(&self, workflow: &str, name: &str) -> Option<&'static str> {
        let shown = self.show(workflow);
        let last = shown["attempts"].as_array()?.iter().rfind(|it| it["op"] == name && it["undoes"].is_null())?;
        ["done", "held", "failed", "unknown"].into_iter().find(|word| last["state"] == *word)
    }

    /// One call of a plain agent.
    fn plain(&self, agent: &mut Option<Agent>, op: &str, undo: bool) -> Came {
        let (tool, input) = self.call(op, undo);
        let ended = self.stand.call(agent, &tool, &input);
        self.look();
        match ended.as_deref() {
            Some("done") => Came::Done,
            Some("failed" | "not_started") => Came::Failed,
            Some(_) | None => Came::Unknown,
        }
    }

    /// A client without a guarantee: it retries, goes on, or gives up as if it knew.
    fn guess(&mut self) -> &'static str {
        let mut agent = None;
        let mut give_up = false;
        for op in OPS {
            for attempt in 0..2 {
                let came = self.plain(&mut agent, op, false);
                self.tell(if came == Came::Unknown { "seen-unknown" } else { "seen-done" }, op);
                if came == Came::Done && self.tool == Tool::HttpPlain && self.rng.u32(0..4) == 0 {
                    // Whoever can see it acts on it.
                    self.tell("react", op);
                }
                match self.rng.u32(0..4) {
                    _ if came == Came::Done => break,
                    0 | 1 if attempt == 0 => {}
                    2 => {
                        give_up = true;
                        break;
                    }
                    _ => break,
                }
            }
            if op == "one" && matches!(self.tool, Tool::HttpKeyed | Tool::HttpAsked) && self.rng.u32(0..3) == 0 {
                self.other(&[]);
            }
            if give_up {
                break;
            }
        }
        let drop_one = !give_up && self.rng.u32(0..5) == 0;
        let undone: &[&str] = match (give_up, drop_one) {
            (true, _) => &["two", "one"],
            (false, true) => &["one"],
            (false, false) => &[],
        };
        if drop_one {
            self.tell("mark", "dropped");
        }
        for op in undone {
            self.tell("comp", op);
            self.plain(&mut agent, op, true);
        }
        if give_up { "gave up" } else { "went on" }
    }

    /// Another workflow acts on the resource of the first operation.
    fn other(&self, profiles: &[&str]) {
        let other = self.begin(profiles, &[]);
        let (tool, mut input) = self.call("one", false);
        input["url"] = format!("{}?other", input["url"].as_str().unwrap()).into();
        let wanted = json!({"verb": "do", "workflow": other, "tool": tool, "input": input, "op": "other"});
        let until = Instant::now() + FIND_OUT_PATIENCE;
        while Instant::now() < until {
            match self.workflow(&wanted) {
                // Killed, or held for longer than it waits: again, unless it was done.
                None => {
                    if self.state(&other, "other").is_some_and(|state| state != "failed") {
                        break;
                    }
                }
                Some(_) => break,
            }
        }
        let _ = self.workflow(&json!({"verb": "commit", "workflow": other}));
    }

    /// As a workflow with a profile.
    fn guard(&mut self, profile: Profile) -> (&'static str, Vec<Kind>) {
        let required = OPS;
        let workflow = self.begin(&[profile.word()], &required);
        let mediated = profile == Profile::ExternallyMediated
            && matches!(self.tool, Tool::HttpKeyed | Tool::HttpAsked)
            && self.rng.bool();
        let both = |run: &Self| {
            for op in OPS {
                match run.until_known(&workflow, op) {
                    Came::Done => {}
                    Came::Refused if op == "one" => return Some("refused"),
                    Came::Refused | Came::Failed | Came::Unknown => return None,
                }
            }
            Some("done")
        };
        let came = if mediated {
            std::thread::scope(|scope| {
                let first = self.until_known(&workflow, "one");
                if first != Came::Done {
                    return (first == Came::Refused).then_some("refused");
                }
                let own = Run {
                    stand: self.stand,
                    lane: self.lane,
                    name: self.name.clone(),
                    tool: self.tool,
                    rng: fastrand::Rng::with_seed(0),
                };
                scope.spawn(move || own.other(&["externally-mediated"]));
                let came = (self.until_known(&workflow, "two") == Came::Done).then_some("done");
                Some(self.decide(&workflow, came.is_some()))
            })
        } else {
            both(self)
        };
        let keep = self.rng.u32(0..5) > 0;
        let end = match came {
            Some("refused") => {
                let _ = self.workflow(&json!({"verb": "abort", "workflow": workflow}));
                "refused"
            }
            Some("done") => self.decide(&workflow, keep),
            None => self.decide(&workflow, false),
            Some(decided) => decided,
        };
        let shown = self.show(&workflow);
        let attempts = shown["attempts"].as_array().cloned().unwrap_or_default();
        let blind = |it: &Value| {
            let of = it["undoes"].as_u64().and_then(|of| attempts.get(usize::try_from(of).ok()?));
            of.is_some_and(|of| of["state"] == "unknown")
        };
        (end, if attempts.iter().any(blind) { vec![Kind::A3] } else { Vec::new() })
    }

    /// Tries an operation until it is done, or nobody can say.
    fn until_known(&self, workflow: &str, op: &str) -> Came {
        for _ in 0..TRIES {
            let came = self.once(workflow, op);
            let came = if came == Came::Unknown { self.found(workflow, op) } else { came };
            if came != Came::Failed {
                return came;
            }
        }
        Came::Failed
    }

    /// Waits for what can be found out, where a contract says how.
    fn found(&self, workflow: &str, op: &str) -> Came {
        let can = matches!(self.tool, Tool::Modbus | Tool::HttpKeyed | Tool::HttpAsked | Tool::Mcp);
        let until = Instant::now() + FIND_OUT_PATIENCE;
        loop {
            match self.state(workflow, op) {
                Some("done" | "held") => return Came::Done,
                None | Some("failed") => return Came::Failed,
                Some(_) if !can || Instant::now() > until => return Came::Unknown,
                Some(_) => rest(100),
            }
        }
    }

    /// Commits or aborts, and goes on as long as something can be found out.
    fn decide(&self, workflow: &str, keep: bool) -> &'static str {
        let mut verb = if keep { "commit" } else { "abort" };
        self.tell("mark", verb);
        let can = matches!(self.tool, Tool::Modbus | Tool::HttpKeyed | Tool::HttpAsked | Tool::Mcp);
        let until = Instant::now() + FIND_OUT_PATIENCE;
        let mut tries = 0;
        loop {
            tries += 1;
            let said = self.workflow(&json!({"verb": verb, "workflow": workflow}));
            self.look();
            let shown = self.show(workflow);
            let stage = shown["stage"].as_str().unwrap_or_default().to_owned();
            match stage.as_str() {
                "committed" => return "committed",
                "aborted" => return "aborted",
                _ => {}
            }
            let unknown = shown["unknown"].as_array().is_some_and(|all| !all.is_empty());
            match (stage.as_str(), said) {
                // Refused: something is missing, so it is given up.
                ("open", Some(_)) if verb == "commit" && !unknown => verb = "abort",
                ("unsettled", Some(_)) if !can || (!unknown && tries > TRIES) => return "unsettled",
                _ if Instant::now() > until => return "unsettled",
                _ if unknown && !can && stage == "open" => verb = "abort",
                _ => rest(100),
            }
        }
    }
}

/// What the story of a run comes to, in the view of the world.
fn judge(story: &str, end: &str, required: &[&str], profile: Option<Profile>) -> Vec<Kind> {
    let mut history = History::new();
    history.take(Event::Begin { workflow: "w", required }).unwrap();
    let mut last: BTreeMap<&str, (String, Option<String>)> = BTreeMap::new();
    let mut found = Vec::new();
    let (mut number, mut decided, mut doubt, mut other) = (0, false, false, false);
    let first_attempt = |history: &mut History, number: &mut usize, op: &str| {
        *number += 1;
        let attempt = format!("a{number}");
        history.take(Event::Attempt { attempt: &attempt, op, workflow: "w", branch: "m" }).unwrap();
        attempt
    };
    for line in story.lines() {
        let (what, op) = line.split_once(' ').unwrap();
        match what {
            "effect" => {
                if op == "one" && other {
                    found.push(Kind::A7);
                }
                let attempt = first_attempt(&mut history, &mut number, op);
                let effect = format!("e{number}");
                history
                    .take(Event::Effect { effect: &effect, attempt: &attempt, resource: op, staged: false })
                    .unwrap();
                if profile.is_some() {
                    history.take(Event::Observe { attempt: &attempt, seen: Seen::Confirmed }).unwrap();
                }
                if op == "two"
                    && let Some((_, Some(one))) = last.get("one")
                {
                    history.take(Event::Depends { later: &effect, earlier: one }).unwrap();
                }
                // Nothing that is speculative may be seen before it is decided.
                if profile == Some(Profile::SpeculationSafe) && !decided {
                    found.push(Kind::A5);
                }
                last.insert(op, (attempt, Some(effect)));
            }
            "seen-unknown" | "seen-done" => {
                let seen = if what == "seen-done" { Seen::Confirmed } else { Seen::Unknown };
                doubt = op == "one" && seen == Seen::Unknown || op != "one" && doubt;
                if !last.contains_key(op) {
                    let attempt = first_attempt(&mut history, &mut number, op);
                    last.insert(op, (attempt, None));
                }
                history.take(Event::Observe { attempt: &last[op].0, seen }).unwrap();
            }
            "react" => {
                if let Some((_, Some(effect))) = last.get(op) {
                    let reaction = format!("x{}", history.len());
                    history.take(Event::React { reaction: &reaction, effect }).unwrap();
                }
            }
            "comp" | "undo" => {
                if (what, op, other) == ("undo", "one", true) {
                    found.push(Kind::A7);
                }
                number += 1;
                let attempt = format!("c{number}");
                let name = format!("undo {op}");
                history.take(Event::Attempt { attempt: &attempt, op: &name, workflow: "w", branch: "m" }).unwrap();
                if let Some((of, effect)) = last.get(op) {
                    history.take(Event::Compensate { compensation: &attempt, attempt: of }).unwrap();
                    if let ("undo", Some(effect)) = (what, effect) {
                        history.take(Event::Neutralise { compensation: &attempt, effect }).unwrap();
                    }
                }
            }
            // Another workflow acted on the resource: in an order only if the end of this one's was known, and if nothing
            // of this one follows.
            "other" => {
                other = true;
                if doubt {
                    found.push(Kind::A7);
                }
            }
            "mark" => decided |= matches!(op, "commit" | "abort"),
            other => panic!("{other} is in no story"),
        }
    }
    match end {
        "committed" | "went on" => history.take(Event::Commit { workflow: "w", branches: &["m"] }).unwrap(),
        "aborted" | "gave up" => history.take(Event::Abort { workflow: "w", branch: None }).unwrap(),
        _ => {}
    }
    let terms = Terms { view: View::World, ..Terms::default() };
    found.extend(history.check(&terms).into_iter().map(|anomaly| anomaly.kind));
    found
}
