//! What is understood, what is learned, and what never fires: the paper's figure beside ours in each table.
//!
//! `INTERLOCK_EXPERIMENT=understanding cargo test --release --test experiments -- --nocapture learning`. The corpus
//! has one author; these are regression figures, not field accuracy (`tests/data/corpus/README.md`).
#![expect(clippy::print_stdout, reason = "the tables are the point")]
#![expect(clippy::wildcard_enum_match_arm, reason = "a value that is no text is shown as JSON")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use interlock::config::{commands, lexicon, regression};
use interlock::record::learned;
use interlock_domain::command::cascade::{Stages, Step, Walk};
use interlock_domain::command::resolution::{Outcome, Resolution, SlotValue};
use interlock_domain::command::understanding::{Learned, Understanding};
use interlock_domain::learn::describe::{self, Described, Seen};
use interlock_domain::learn::gate::{Base, Policy, Proposal, Verdict, review};
use interlock_domain::learn::skill::{self, Skill};
use serde_json::{Value, json};

#[test]
fn learning() {
    if !super::asked("understanding") {
        return;
    }
    let set = commands::read(Path::new(commands::EMBEDDED_NAME), commands::EMBEDDED).expect("the embedded set");
    let words = lexicon::read(Path::new(lexicon::EMBEDDED_NAME), lexicon::EMBEDDED).expect("the lexicon");
    let costs = lexicon::read_confusions(Path::new(lexicon::EMBEDDED_CONFUSIONS_NAME), lexicon::EMBEDDED_CONFUSIONS)
        .expect("the costs");
    let base = Base { commands: &set, lexicon: &words, confusions: &costs };
    let shipped = base.with(&Learned::default());
    corpus(&shipped);
    by_stage(&shipped);
    false_accepts(&shipped);
    one_character(&shipped);
    latency(&shipped);
    protocol(base);
    seeded_faults();
}

fn rows(file: &str) -> Vec<Value> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/corpus").join(file);
    let text = std::fs::read_to_string(path).expect("the corpus is read");
    text.lines().map(|line| serde_json::from_str(line).expect("a row")).collect()
}

fn text<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().unwrap_or_default()
}

fn ask(understanding: &Understanding, query: &str, stages: Stages) -> Resolution {
    match Walk::new(understanding, query, stages).next() {
        Step::Done(resolution) => resolution,
        Step::Classify(_) | Step::Retrieve(_) => panic!("neither stage is on"),
    }
}

/// Rows with a command, understood, wrong, slots wrong; rows without, executed, dangerous.
#[derive(Default)]
struct Figures {
    wanted: usize,
    right: usize,
    wrong: usize,
    slots: usize,
    nothing: usize,
    executed: usize,
    dangerous: usize,
}

fn figures(understanding: &Understanding, rows: &[Value], stages: Stages) -> Figures {
    let mut found = Figures::default();
    for row in rows.iter().filter(|row| row["query"].is_string()) {
        let resolution = ask(understanding, text(row, "query"), stages);
        let (meant, executed) = match &resolution.outcome {
            Outcome::Command(one) => (Some(one), true),
            Outcome::Incomplete { understood, .. } => (Some(understood), false),
            Outcome::Sequence(_) | Outcome::Knowledge | Outcome::Ambiguous | Outcome::Rejected(_) => (None, false),
        };
        let Some(expected) = row["expected_command"].as_str() else {
            found.nothing += 1;
            found.executed += usize::from(executed);
            found.dangerous += usize::from(executed && meant.is_some_and(|one| one.confirm));
            continue;
        };
        found.wanted += 1;
        match meant {
            Some(one) if one.command == expected => {
                found.right += 1;
                let shown = |value: &SlotValue| match value.to_json() {
                    Value::String(text) => text,
                    other => other.to_string(),
                };
                let slots: BTreeMap<String, String> =
                    one.slots.iter().map(|(name, value)| (name.clone(), shown(value))).collect();
                let wanted = row["slots"].as_object().into_iter().flatten();
                let wanted: BTreeMap<String, String> = wanted
                    .map(|(name, value)| {
                        (name.clone(), value.as_str().map_or_else(|| value.to_string(), str::to_owned))
                    })
                    .collect();
                found.slots += usize::from(row["slot_hazard"] != true && slots != wanted);
            }
            Some(one) if executed => {
                found.wrong += 1;
                found.dangerous += usize::from(one.confirm);
            }
            Some(_) | None => {}
        }
    }
    found
}

fn percent(part: usize, of: usize) -> String {
    #[expect(clippy::cast_precision_loss, reason = "a few hundred rows")]
    let share = part as f64 * 100.0 / of.max(1) as f64;
    format!("{part} of {of} ({share:.1} %)")
}

fn corpus(shipped: &Understanding) {
    println!("\n# Sentences with a command (paper: 90.2 % after learning)");
    let files = ["dev", "extra_real_asr", "paraphrases-1", "paraphrases-2", "paraphrases-3", "paraphrases-4"];
    for file in files {
        let all = rows(&format!("{file}.jsonl"));
        let found = figures(shipped, &all, Stages::PURE);
        println!(
            "{file:<16} right {:<22} wrong {} slots wrong {} executed of {} others {} dangerous {}",
            percent(found.right, found.wanted),
            found.wrong,
            found.slots,
            found.nothing,
            found.executed,
            found.dangerous
        );
    }
    let dev = rows("dev.jsonl");
    let kinds: std::collections::BTreeSet<&str> = dev.iter().map(|row| text(row, "kind")).collect();
    for kind in kinds {
        let some: Vec<Value> = dev.iter().filter(|row| text(row, "kind") == kind).cloned().collect();
        let found = figures(shipped, &some, Stages::PURE);
        println!(
            "  dev {kind:<18} right {} executed {} of {}",
            percent(found.right, found.wanted),
            found.executed,
            found.nothing
        );
    }
}

fn by_stage(shipped: &Understanding) {
    println!("\n# Ablation by stage, on dev");
    let dev = rows("dev.jsonl");
    let pattern = Stages { pattern: true, ..Stages::NONE };
    let sound = Stages { pinyin: true, hotword: true, ..Stages::NONE };
    for (name, stages) in
        [("pattern only", pattern), ("sound and words only", sound), ("all pure stages", Stages::PURE)]
    {
        let found = figures(shipped, &dev, stages);
        println!(
            "{name:<22} right {} wrong {} executed {}",
            percent(found.right, found.wanted),
            found.wrong,
            found.executed
        );
    }
}

fn false_accepts(shipped: &Understanding) {
    println!("\n# Executed though nothing should be, by kind (paper: not reported)");
    let mut by_kind: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for file in ["dev", "paraphrases-1", "paraphrases-2", "rejects-3", "rejects-4"] {
        for row in rows(&format!("{file}.jsonl")).iter().filter(|row| row["expected_command"].is_null()) {
            let Some(query) = row["query"].as_str() else { continue };
            let resolution = ask(shipped, query, Stages::PURE);
            let fired = matches!(resolution.outcome, Outcome::Command(_) | Outcome::Sequence(_));
            let entry = by_kind.entry(text(row, "kind").to_owned()).or_default();
            entry.0 += usize::from(fired);
            entry.1 += 1;
            if fired {
                println!("  executed: {query}");
            }
        }
    }
    for (kind, (fired, all)) in by_kind {
        println!("{kind:<18} {}", percent(fired, all));
    }
}

/// Every sentence of dev with one character dropped or doubled: what is executed wrongly is listed.
fn one_character(shipped: &Understanding) {
    println!("\n# One character dropped or doubled, over all of dev");
    let (mut count, mut wrong, mut dangerous) = (0, 0, 0);
    for row in rows("dev.jsonl") {
        let chars: Vec<char> = text(&row, "query").chars().collect();
        for at in 0..chars.len() {
            let mut lost = chars.clone();
            lost.remove(at);
            let mut doubled = chars.clone();
            doubled.insert(at, chars[at]);
            for changed in [lost, doubled] {
                count += 1;
                let changed: String = changed.iter().collect();
                let resolution = ask(shipped, &changed, Stages::PURE);
                if let Some(one) = resolution.command()
                    && row["expected_command"].as_str() != Some(&one.command)
                {
                    wrong += 1;
                    dangerous += usize::from(one.confirm);
                    println!(
                        "  {} -> {changed}: {}{}",
                        text(&row, "query"),
                        one.command,
                        if one.confirm { " (asks)" } else { "" }
                    );
                }
            }
        }
    }
    println!("{count} sentences, {} executed something else, {dangerous} of them dangerous", percent(wrong, count));
}

fn latency(shipped: &Understanding) {
    println!(
        "\n# Latency in microseconds, best of 5 rounds (paper: one regex 0.3, cascade 610, a language model 409,000 to 38,583,000)"
    );
    let queries: Vec<String> = rows("dev.jsonl").iter().map(|row| text(row, "query").to_owned()).collect();
    let pattern = Stages { pattern: true, ..Stages::NONE };
    for (name, stages) in [("pattern", pattern), ("whole cascade without the model", Stages::PURE)] {
        let mut best: Vec<f64> = vec![f64::MAX; queries.len()];
        for _ in 0..5 {
            for (query, best) in queries.iter().zip(&mut best) {
                let begun = Instant::now();
                let _ = Walk::new(shipped, query, stages).next();
                *best = best.min(begun.elapsed().as_secs_f64() * 1e6);
            }
        }
        best.sort_by(f64::total_cmp);
        println!("{name:<32} p50 {:.1} p99 {:.1}", best[best.len() / 2], best[best.len() * 99 / 100]);
    }
}

fn proposal(row: &Value) -> Proposal {
    learned::read_proposal(row).expect("a proposal")
}

/// The 102-query protocol with the whole regression set as replay; dangerous ones are approved by a person.
fn protocol(base: Base<'_>) {
    println!("\n# Self-learning: 47 queries, 49 proposals, 102 queries");
    let all = rows("learning.jsonl");
    let of = |phases: &[&str]| -> Vec<Value> {
        all.iter().filter(|row| phases.contains(&text(row, "phase"))).cloned().collect()
    };
    let replay = regression::read(Path::new(regression::EMBEDDED_NAME), regression::EMBEDDED).expect("the set");
    let measured = |learned: &Learned| {
        let active = base.with(learned);
        let right = |phases: &[&str]| figures(&active, &of(phases), Stages::PURE);
        (right(&["baseline", "expanded", "extra_clean"]), right(&["probe"]), right(&["after_reject"]))
    };
    let before = figures(&base.with(&Learned::default()), &of(&["baseline"]), Stages::PURE);
    println!("before               {} wrong {} (paper: 35 of 47)", percent(before.right, before.wanted), before.wrong);
    let mut learned = Learned::default();
    let proposals = of(&["learn"]);
    let (mut operator, mut refused) = (0, 0);
    for (n, row) in proposals.iter().enumerate() {
        if n % 7 == 0 {
            let (queries, probes, rejects) = measured(&learned);
            println!(
                "  learning curve: {n:>2} learned, {} queries, {} probes, {} must-rejects executed",
                percent(queries.right, queries.wanted),
                percent(probes.right, probes.wanted),
                rejects.executed
            );
        }
        match review(base, &learned, &proposal(row), &replay, Policy::Auto).verdict {
            Verdict::Approve(after) => learned = after,
            Verdict::Operator(after) => {
                operator += 1;
                learned = after;
            }
            Verdict::Refuse => refused += 1,
        }
    }
    let (queries, probes, rejects) = measured(&learned);
    println!(
        "after                {} wrong {} (paper: 92 of 102)",
        percent(queries.right, queries.wanted),
        queries.wrong
    );
    println!(
        "proposals            {} taken, of them {operator} by a person, {refused} refused",
        proposals.len() - refused
    );
    println!("generalisation       {} (pilot: 32 of 33)", percent(probes.right, probes.wanted));
    println!("must still reject    {} of {} came to nothing", rejects.nothing - rejects.executed, rejects.nothing);
    let poison = of(&["poison"]);
    let kept_out = poison.iter().filter(|row| {
        let found = match review(base, &learned, &proposal(row), &replay, Policy::Auto).verdict {
            Verdict::Approve(_) => "approve",
            Verdict::Operator(_) => "operator",
            Verdict::Refuse => "refuse",
        };
        if found != text(row, "expect") {
            println!("  poison: {row}: {found}");
        }
        found == text(row, "expect")
    });
    println!("poison               {} as they should end", percent(kept_out.count(), poison.len()));
    // There and back: a written set is the same set.
    let written = learned::set(&learned).to_string();
    assert_eq!(learned::read_set(&written).expect("reads"), learned);
}

/// Descriptions that are right, each with one fault put in. Before: what a check of form alone finds (no description,
/// nothing about a required parameter, a broken front matter). After: descriptions against schema, behaviour and files.
fn seeded_faults() {
    println!("\n# Seeded faults in tool descriptions and skills (paper: 46.7 % before, 100 % after)");
    let good = Described {
        name: "set_pump_speed".to_owned(),
        description:
            "Sets the speed of a pump. `pump_id` (integer, required): which pump. `speed` (number, required), 0 to \
                      50. `ramp` (integer, optional, default 5): seconds. `mode` is one of auto, manual."
                .to_owned(),
        schema: json!({
            "type": "object",
            "properties": {
                "pump_id": { "type": "integer" },
                "speed": { "type": "number", "minimum": 0, "maximum": 50 },
                "ramp": { "type": "integer", "default": 5 },
                "mode": { "type": "string", "enum": ["auto", "manual"] },
            },
            "required": ["pump_id", "speed"],
        }),
        read_only: Some(false),
        destructive: None,
        seen: Vec::new(),
    };
    assert_eq!(describe::faults(&good), []);
    let changes: &[(&str, &str, &str)] = &[
        ("empty", "*", ""),
        ("only its name", "*", "set_pump_speed"),
        ("a parameter renamed", "`speed` (number, required), 0 to 50", "`velocity` (number, required)"),
        (
            "a parameter that is not there",
            "`mode` is one of auto, manual",
            "`priority` sets the order. `mode` is one of auto, manual",
        ),
        ("a required one left out", "`pump_id` (integer, required): which pump. ", ""),
        ("another type", "`pump_id` (integer", "`pump_id` (string"),
        ("another type in words", "`ramp` (integer, optional", "`ramp` (boolean, optional"),
        ("required said to be optional", "`speed` (number, required)", "`speed` (number, optional)"),
        ("optional said to be required", "`ramp` (integer, optional, default 5)", "`ramp` (integer, required)"),
        ("another default", "default 5", "default 10"),
        ("another range", "0 to 50", "0 to 100"),
        ("a value that is not taken", "auto, manual", "auto, manual, remote"),
        ("said to change nothing", "Sets the speed of a pump.", "Read-only."),
        ("misspells its own name", "Sets the speed of a pump.", "set_pump_sped sets the speed of a pump."),
        ("said in Chinese to be read only", "Sets the speed of a pump.", "只读查询水泵转速。"),
    ];
    let (mut all, mut before, mut after, mut mended) = (0, 0, 0, 0);
    let mut count = |name: &str, by_form: bool, found: bool, repaired: bool| {
        all += 1;
        before += usize::from(by_form);
        after += usize::from(found);
        mended += usize::from(repaired);
        println!("  {name:<34} by form {by_form:<5} found {found:<5} repaired {repaired}");
    };
    for (name, from, to) in changes {
        let description = if *from == "*" { (*to).to_owned() } else { good.description.replacen(from, to, 1) };
        assert_ne!(description, good.description, "{name}");
        let tool = Described { description, ..good.clone() };
        let faults = describe::faults(&tool);
        let by_form = faults.iter().any(|fault| matches!(fault, describe::Fault::Empty | describe::Fault::Silent(_)));
        count(name, by_form, !faults.is_empty(), describe::repaired(&tool).is_some());
    }
    let seen = |complaint: Option<&str>, given: &[&str], changed| Seen {
        given: given.iter().map(|name| (*name).to_owned()).collect(),
        complaint: complaint.map(str::to_owned),
        changed,
    };
    for (name, read_only, one) in [
        ("needs what its schema does not ask", false, seen(Some("missing argument ramp"), &["pump_id"], false)),
        ("refuses what its schema has", false, seen(Some("unknown argument mode"), &["mode"], false)),
        ("marked read only and changes", true, seen(None, &[], true)),
    ] {
        let tool = Described { read_only: Some(read_only), seen: vec![one], ..good.clone() };
        count(name, false, !describe::faults(&tool).is_empty(), describe::repaired(&tool).is_some());
    }
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let whole = Skill {
        folder: "pump-check".to_owned(),
        text: "---\nname: pump-check\ndescription: Looks after pumps.\n---\nRun `scripts/read.py`, then the tool `device`.\n"
            .to_owned(),
        files: set(&["SKILL.md", "scripts/read.py"]),
        tools: set(&["device", "read_file"]),
    };
    assert_eq!(skill::faults(&whole), []);
    for (name, from, to) in [
        ("skill: no front matter", "---\nname: pump-check\n", ""),
        ("skill: no description", "description: Looks after pumps.\n", ""),
        ("skill: another name", "name: pump-check", "name: pumps"),
        ("skill: a file that is not there", "scripts/read.py", "scripts/raed.py"),
        ("skill: a tool that is not there", "`device`", "`devices`"),
    ] {
        let changed = Skill { text: whole.text.replacen(from, to, 1), ..whole.clone() };
        let faults = skill::faults(&changed);
        let by_form = faults.iter().any(|fault| {
            matches!(fault, skill::Fault::NoFrontMatter | skill::Fault::NoDescription | skill::Fault::NoName)
        });
        count(name, by_form, !faults.is_empty(), skill::repaired(&changed).is_some());
    }
    println!(
        "by form alone {}, found {}, repaired by words {}",
        percent(before, all),
        percent(after, all),
        percent(mended, all)
    );
}
