//! What a decision of the gate costs: a policy of sixty rules, calls of every kind, and shell strings by themselves.
//!
//! A decision begins with what the call is by nature, which the surface has found; a decision with a shell string begins
//! with the string, so that it is parsed each time.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use interlock_domain::gate::decide::{Case, decide};
use interlock_domain::gate::policy::Policy;
use interlock_domain::gate::rule::{Authority, BadRule, Rule, Rules, Verb};
use interlock_domain::request::paths::PathFacts;
use interlock_domain::request::{Asker, Via};
use interlock_domain::risk::Risk;
use interlock_domain::surface::contract::Contract;
use interlock_domain::surface::nature::{Class, Deed, Keys, Nature};
use interlock_domain::surface::shell::Script;
use serde_json::{Value, json};

/// How long each figure is measured.
const MEASURED: Duration = Duration::from_secs(2);
/// Decisions between two looks at the clock.
const ROUND: usize = 256;

const ALLOW: &[&str] = &[
    "Bash(git status:*)",
    "Bash(git log:*)",
    "Bash(git diff:*)",
    "Bash(git add:*)",
    "Bash(ls:*)",
    "Bash(cat:*)",
    "Bash(make:*)",
    "Bash(cargo check:*)",
    "Bash(cargo test:*)",
    "Bash(npm run *)",
    "Bash(npm test)",
    "Bash(echo:*)",
    "Bash(grep:*)",
    "Bash(rg:*)",
    "Bash(find:*)",
    "Bash(wc:*)",
    "Bash(head:*)",
    "Bash(tail:*)",
    "Bash(python -m pytest:*)",
    "Edit(docs/**)",
    "Edit(src/**)",
    "Edit(/plans/*.md)",
    "Read(//usr/share/doc/**)",
    "Read(~/notes/**)",
    "Device(pump-*:start)",
    "Device(*:stop)",
    "Device(zone:north *:read)",
    "WebFetch(domain:docs.example)",
    "WebFetch(domain:*.vendor.example)",
    "mcp__mail__read",
    "mcp__plan",
    "task(list)",
];
const ASK: &[&str] = &[
    "Bash(git push:*)",
    "Bash(npm publish:*)",
    "Bash(docker *)",
    "Edit(*.lock)",
    "Edit(.github/**)",
    "Device(risk:dangerous)",
    "Device(valve-*:open)",
    "mcp__mail__send",
    "WebFetch(domain:forms.example)",
    "task(stop)",
];
const DENY: &[&str] = &[
    "Bash(rm -rf:*)",
    "Bash(curl:*)",
    "Bash(wget:*)",
    "Bash(sudo:*)",
    "Bash(chmod 777:*)",
    "Bash(nc:*)",
    "Bash(dd:*)",
    "Read(secrets/**)",
    "Read(*.pem)",
    "Read(//etc/shadow)",
    "Edit(//etc/**)",
    "Edit(production/**)",
    "Device(zone:south breaker-*)",
    "Device(boiler-1:start)",
    "WebFetch(domain:paste.example)",
    "mcp__shell",
    "mcp__files__delete",
    "system(restore)",
];

const SHELL: &[&str] = &[
    "git status",
    "git log --oneline -5 | head -3",
    "cargo test -p domain -- gate 2>&1 | tail -20",
    "cd build && make -j2 all > make.log",
    "LANG=C timeout 30 grep -rn 'a b' src --include='*.rs'",
    "find . -name '*.tmp' -exec rm {} +",
    "echo \"$HOME\" && cat <<'EOF'\nsome text\nEOF",
    "for f in a b c; do cp $f /out/$f; done",
];

/// The figures (`cli.md`, "bench gate").
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gate {
    /// Decisions a second, over calls of every kind but shell.
    pub decisions_per_s: f64,
    /// One decision, median.
    pub decision_us_p50: f64,
    /// One decision, 99th percentile.
    pub decision_us_p99: f64,
    /// Decisions a second for shell strings, parsing included.
    pub shell_decisions_per_s: f64,
    /// One decision for a shell string, 99th percentile.
    pub shell_decision_us_p99: f64,
    /// Rules of the policy.
    pub rules: usize,
}

impl Gate {
    /// For scripts.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "decisions_per_s": self.decisions_per_s,
            "decision_us_p50": self.decision_us_p50,
            "decision_us_p99": self.decision_us_p99,
            "shell_decisions_per_s": self.shell_decisions_per_s,
            "shell_decision_us_p99": self.shell_decision_us_p99,
            "rules": self.rules,
        })
    }
}

/// Measures.
///
/// # Errors
/// When a rule of the measurement cannot be read, which is a bug of ours.
pub fn run() -> Result<Gate, BadRule> {
    let policy = policy()?;
    let facts = PathFacts {
        cwd: "/home/u/work".to_owned(),
        home: Some("/home/u".to_owned()),
        work_dirs: vec!["/srv/plans".to_owned()],
        links: [("/home/u/work/link".to_owned(), "/data/link".to_owned())].into(),
    };
    let natures = natures();
    let judge = |nature: &Nature| decide(&policy, Case { nature, facts: &facts, protective: false, classifier: None });
    let plain = measure(natures.len(), |at| {
        black_box(judge(&natures[at]));
    });
    let shell = measure(SHELL.len(), |at| {
        let script = Arc::new(Script::parse(SHELL[at]));
        black_box(judge(&nature(Deed::Shell { script, cwd: None }, Risk::Operate)));
    });
    Ok(Gate {
        decisions_per_s: plain.per_s,
        decision_us_p50: plain.p50,
        decision_us_p99: plain.p99,
        shell_decisions_per_s: shell.per_s,
        shell_decision_us_p99: shell.p99,
        rules: policy.rules.all().len(),
    })
}

fn policy() -> Result<Policy, BadRule> {
    let rule = |verb: Verb| move |text: &&str| Rule::parse(verb, text, Authority::Config, Some("/etc/interlock"));
    let rules: Result<Vec<Rule>, BadRule> = ALLOW
        .iter()
        .map(rule(Verb::Allow))
        .chain(ASK.iter().map(rule(Verb::Ask)))
        .chain(DENY.iter().map(rule(Verb::Deny)))
        .collect();
    let asker = Asker { via: Via::Mcp, name: "bench".to_owned() };
    Ok(Policy { rules: Arc::new(Rules::new(rules?)), ..Policy::plain(asker) })
}

fn nature(deed: Deed, risk: Risk) -> Nature {
    Nature {
        deed,
        class: Class::Exclusive,
        keys: Keys::default(),
        risk,
        protective: false,
        contract: Arc::new(Contract::weakest("bench")),
        patience: Duration::from_secs(1),
    }
}

fn natures() -> Vec<Nature> {
    let device = |device: &str, action: &str, zone: &str, risk| {
        let zone = Some(zone.to_owned());
        nature(Deed::Device { device: device.to_owned(), action: action.to_owned(), zone }, risk)
    };
    let mcp = |server: &str, tool: &str| {
        nature(Deed::Mcp { server: server.to_owned(), tool: tool.to_owned() }, Risk::Operate)
    };
    vec![
        device("pump-2", "start", "north", Risk::Operate),
        device("pump-2", "read", "north", Risk::Read),
        device("breaker-1", "close", "south", Risk::Dangerous),
        nature(Deed::Read { path: "src/main.rs".to_owned(), below: false }, Risk::Read),
        nature(Deed::Read { path: "/home/u/work/link/a".to_owned(), below: false }, Risk::Read),
        nature(Deed::Write { path: "docs/../src/a.rs".to_owned() }, Risk::Operate),
        nature(Deed::Write { path: "/etc/passwd".to_owned() }, Risk::Operate),
        nature(Deed::Fetch { url: "https://docs.example/a?b=c".to_owned(), reads: true }, Risk::Read),
        mcp("mail", "send"),
        mcp("files", "list"),
        nature(Deed::Own { tool: "task".to_owned(), verb: Some("list".to_owned()) }, Risk::Read),
    ]
}

struct Measured {
    per_s: f64,
    p50: f64,
    p99: f64,
}

/// Throughput over whole rounds, then single decisions by themselves: a look at the clock costs as much as one.
fn measure(kinds: usize, decide: impl Fn(usize)) -> Measured {
    let begun = Instant::now();
    let mut decided = 0_u32;
    while begun.elapsed() < MEASURED {
        (0..ROUND).for_each(|at| decide(at % kinds));
        decided += u32::try_from(ROUND).unwrap_or(u32::MAX);
    }
    let per_s = f64::from(decided) / begun.elapsed().as_secs_f64();
    let mut single = Vec::with_capacity(100_000);
    let begun = Instant::now();
    while begun.elapsed() < MEASURED && single.len() < single.capacity() {
        let at = single.len() % kinds;
        let before = Instant::now();
        decide(at);
        single.push(before.elapsed());
    }
    single.sort_unstable();
    let at = |part: usize| single.get(single.len() * part / 100).map_or(0.0, |took| took.as_secs_f64() * 1e6);
    Measured { per_s, p50: at(50), p99: at(99) }
}
