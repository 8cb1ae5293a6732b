//! How well sentences are understood, stage by stage, and what each stage costs: the figures of the corpus, with the
//! paper's beside ours. They are regression figures (`tests/data/corpus/README.md`), not field accuracy.
//!
//! `INTERLOCK_EXPERIMENT=understanding cargo test --release --test experiments understanding -- --nocapture`, in a machine
//! that `cargo xtask setup` has given ONNX Runtime; without it the rows with the model are left out, by name.
//! `INTERLOCK_EXPERIMENT_MODEL=MANIFEST` measures another model, for instance the one of `cargo xtask models`.
#![expect(clippy::print_stdout, reason = "an experiment prints its table")]

use std::path::PathBuf;
use std::time::Instant;

use interlock::boot::model;
use interlock::cli::match_verb;
use interlock::infer::classifier::Classifier;
use interlock::infer::knowledge::Library;
use interlock::infer::runtime::Provider;
use interlock_domain::command::cascade::{Stages, Step, Walk};
use interlock_domain::command::decide::Thresholds;
use interlock_domain::command::grams::grams;
use interlock_domain::command::resolution::{Candidate, Outcome, Passage, Resolution, Stage};
use interlock_domain::command::understanding::Understanding;
use interlock_domain::risk::Risk;
use serde_json::Value;

const FILES: &[&str] = &[
    "dev",
    "extra_real_asr",
    "paraphrases-1",
    "paraphrases-2",
    "paraphrases-3",
    "paraphrases-4",
    "paraphrases-5",
    "rejects-3",
    "rejects-4",
    "rejects-5",
    "fresh-1",
    "fresh-2",
];

fn rows(file: &str) -> Vec<Value> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/corpus").join(format!("{file}.jsonl"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().map(|line| serde_json::from_str(line).expect("a row")).collect()
}

fn text<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().unwrap_or_default()
}

/// Everything that understands, and which stages take part.
struct Ears {
    understanding: Understanding,
    classifier: Option<Classifier>,
    library: Library,
}

impl Ears {
    fn new() -> Ears {
        // Another model by its manifest: what `cargo xtask models` made, for instance.
        let manifest = std::env::var_os("INTERLOCK_EXPERIMENT_MODEL").map(PathBuf::from);
        let source = model::source(manifest.as_deref()).expect("a manifest");
        let classifier = match Classifier::load(&source, Provider::Auto) {
            Ok(classifier) => {
                println!("the model runs on {}", classifier.running());
                Some(classifier)
            }
            Err(error) => {
                println!("left out: every row with the model: {error}");
                None
            }
        };
        let understanding = match_verb::load(None).expect("the embedded set compiles");
        Ears { understanding, classifier, library: model::shipped_library().expect("the shipped passages") }
    }

    fn labels(&mut self, text: &str) -> Vec<Candidate> {
        let Some(classifier) = &mut self.classifier else { return Vec::new() };
        classifier.classify(&[text]).expect("classified").remove(0)
    }

    fn ask(&mut self, text: &str, stages: Stages) -> Resolution {
        let mut walk = Walk::new(&self.understanding, text, stages);
        loop {
            match walk.next() {
                Step::Done(resolution) => return resolution,
                Step::Classify(text) => {
                    let labels = match &mut self.classifier {
                        Some(classifier) => classifier.classify(&[&text]).expect("classified").remove(0),
                        None => Vec::new(),
                    };
                    walk.classified(&labels);
                }
                Step::Retrieve(question) => {
                    let found = self.library.answer(&question, 3).expect("searched");
                    walk.retrieved(found.iter().map(|f| Passage { id: f.id.clone(), score: f.score }).collect());
                }
            }
        }
    }
}

fn meant(resolution: &Resolution) -> Option<&str> {
    match &resolution.outcome {
        Outcome::Command(one) | Outcome::Incomplete { understood: one, .. } => Some(&one.command),
        Outcome::Sequence(_) | Outcome::Knowledge | Outcome::Ambiguous | Outcome::Rejected(_) => None,
    }
}

#[derive(Default)]
struct Tally {
    wanted: usize,
    right: usize,
    null: usize,
    missed: Vec<String>,
    wrong: Vec<String>,
    executed: Vec<String>,
    forbidden: usize,
    dangerous: usize,
    by_model: usize,
    knowledge: usize,
}

fn tally(ears: &mut Ears, rows: &[Value], stages: Stages) -> Tally {
    let mut all = Tally::default();
    for row in rows.iter().filter(|row| row["query"].is_string()) {
        let query = text(row, "query");
        let found = ears.ask(query, stages);
        let executed = found.command().map(|one| (one.command.clone(), one.confirm));
        all.by_model += usize::from(found.stage == Stage::Model && executed.is_some());
        all.knowledge += usize::from(found.outcome == Outcome::Knowledge);
        if let Some((command, confirm)) = &executed {
            let forbidden =
                row["forbidden"].as_array().is_some_and(|list| list.iter().any(|one| one == command.as_str()));
            all.forbidden += usize::from(forbidden || row["forbidden"] == command.as_str());
            all.dangerous += usize::from(*confirm && row["expected_command"] != command.as_str());
        }
        match row["expected_command"].as_str() {
            Some(expected) => {
                all.wanted += 1;
                if meant(&found) == Some(expected) {
                    all.right += 1;
                } else {
                    let shown: Vec<String> =
                        found.candidates.iter().map(|one| format!("{} {:.2}", one.command, one.confidence)).collect();
                    all.missed.push(format!("{query} ({expected}): {:?} [{}]", found.outcome, shown.join(", ")));
                    if let Some((command, _)) = executed {
                        all.wrong.push(format!("{query}: {command}, not {expected}"));
                    }
                }
            }
            None => {
                all.null += 1;
                if let Some((command, _)) = executed {
                    all.executed.push(format!("{query}: {command}"));
                }
            }
        }
    }
    all
}

#[test]
fn understanding() {
    if !super::asked("understanding") {
        return;
    }
    let mut ears = Ears::new();
    ablation(&mut ears);
    alone(&mut ears);
    votes(&mut ears);
    knowledge(&ears);
    sweep(&mut ears);
    latency(&mut ears);
}

/// Which stages carry what. The paper gives 35 of 47 before learning and 92 of 102 after, and nothing of what fired
/// wrongly.
fn ablation(ears: &mut Ears) {
    let all = Stages::PURE.with(Stage::Model).with(Stage::Knowledge);
    let variants = [
        ("pattern", Stages::NONE.with(Stage::Hotword).with(Stage::Pattern)),
        ("pattern, pinyin", Stages::PURE),
        ("pattern, pinyin, model", Stages::PURE.with(Stage::Model)),
        ("all", all),
    ];
    println!(
        "\n| stages | set | right | wrong | executed on null | forbidden | dangerous | by the model | knowledge |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for (name, stages) in variants {
        for file in FILES {
            let found = tally(ears, &rows(file), stages);
            println!(
                "| {name} | {file} | {} of {} | {} | {} of {} | {} | {} | {} | {} |",
                found.right,
                found.wanted,
                found.wrong.len(),
                found.executed.len(),
                found.null,
                found.forbidden,
                found.dangerous,
                found.by_model,
                found.knowledge,
            );
            if stages == all {
                for line in found.wrong.iter().chain(&found.executed) {
                    println!("    wrong: {line}");
                }
                for line in &found.missed {
                    println!("    missed: {line}");
                }
            }
        }
    }
    let asked: Vec<Value> = rows("dev").into_iter().filter(|row| text(row, "route") == "knowledge").collect();
    let found = tally(ears, &asked, all);
    println!("questions of dev answered with a passage: {} of {}", found.knowledge, asked.len());
}

/// The classifier by itself: what it would do if it were let.
fn alone(ears: &mut Ears) {
    if ears.classifier.is_none() {
        return;
    }
    println!("\n| classifier alone | set | right | wrong | null taken | dangerous |\n|---|---|---|---|---|---|");
    for limit in [0.5, 0.8, 0.95] {
        for file in FILES {
            let (mut right, mut wrong, mut null, mut dangerous) = (0, 0, 0, 0);
            for row in rows(file) {
                let Some(best) = ears.labels(&spoken(text(&row, "query"))).into_iter().next() else { continue };
                if best.confidence < limit || best.command == "none" {
                    continue;
                }
                match row["expected_command"].as_str() {
                    Some(expected) if expected == best.command => right += 1,
                    Some(_) => wrong += 1,
                    None => null += 1,
                }
                let risk = ears.understanding.definition(&best.command).map(|one| one.risk);
                let is_right = row["expected_command"] == best.command.as_str();
                dangerous += usize::from(risk == Some(Risk::Dangerous) && !is_right);
            }
            println!("| p >= {limit} | {file} | {right} | {wrong} | {null} | {dangerous} |");
        }
    }
}

fn spoken(text: &str) -> String {
    text.chars().filter(|ch| ch.is_alphanumeric() || matches!(ch, '.' | '%')).flat_map(char::to_lowercase).collect()
}

/// What the classifier's vote may lift: chosen here, on dev, inside a plateau.
fn votes(ears: &mut Ears) {
    if ears.classifier.is_none() {
        return;
    }
    let chosen = Thresholds::default();
    let stages = Stages::PURE.with(Stage::Model);
    println!("\n| changed | dev right | wrong | executed |\n|---|---|---|---|");
    let dev = rows("dev");
    let mut tried: Vec<(String, Thresholds)> = vec![("nothing".to_owned(), chosen)];
    for sure in [0.3, 0.5, 0.7, 0.9] {
        tried.push((format!("read sure {sure}"), Thresholds { vote_read: sure, ..chosen }));
        tried.push((format!("operate sure {sure}"), Thresholds { vote_operate: sure, ..chosen }));
        tried.push((format!("doubt sure {sure}"), Thresholds { doubt_sure: sure, ..chosen }));
        tried.push((format!("doubt below {sure}"), Thresholds { doubt_below: sure, ..chosen }));
    }
    for lift in [45.0, 54.0, 70.0, 90.0] {
        tried.push((format!("read lift {lift}"), Thresholds { lift_read: lift, ..chosen }));
        tried.push((format!("operate lift {lift}"), Thresholds { lift_operate: lift, ..chosen }));
    }
    for lift_form in [20, 27, 40, 50] {
        tried.push((format!("form lift {lift_form}"), Thresholds { lift_form, ..chosen }));
    }
    for margin_heard in [1.0, 5.0, 8.0, 10.0, 14.0] {
        tried.push((format!("margin heard {margin_heard}"), Thresholds { margin_heard, ..chosen }));
    }
    let all: Vec<Vec<Value>> = FILES.iter().map(|file| rows(file)).collect();
    for (name, with) in tried {
        let understanding = match_verb::load(None).expect("the embedded set compiles").with_thresholds(with);
        let kept = std::mem::replace(&mut ears.understanding, understanding);
        let found = tally(ears, &dev, stages);
        let others: Vec<String> = all[1..]
            .iter()
            .map(|rows| tally(ears, rows, stages))
            .map(|found| format!("{}/{}/{}", found.right, found.wrong.len(), found.executed.len()))
            .collect();
        ears.understanding = kept;
        println!(
            "| {name} | {} of {} | {} | {} of {} | others {}",
            found.right,
            found.wanted,
            found.wrong.len(),
            found.executed.len(),
            found.null,
            others.join(" ")
        );
    }
}

/// The right passage first, over clean questions and what a recogniser made of them.
fn knowledge(ears: &Ears) {
    println!("\n| knowledge | right passage first | answered |\n|---|---|---|");
    for file in ["questions", "questions_noisy"] {
        let rows = rows(file);
        let (mut first, mut answered) = (0, 0);
        for row in &rows {
            let question = text(row, "question");
            let is_right = |id: &str| row["passages"].as_array().is_some_and(|list| list.iter().any(|one| one == id));
            let found = ears.library.nearest(question, 1).expect("searched");
            first += usize::from(found.first().is_some_and(|one| is_right(&one.id)));
            answered += usize::from(!ears.library.answer(question, 1).expect("searched").is_empty());
        }
        println!("| {file} | {first} of {} | {answered} |", rows.len());
    }
}

/// Each sentence of dev with one character dropped or said twice: what would be executed that was not said.
fn sweep(ears: &mut Ears) {
    let stages = Stages::PURE.with(Stage::Model).with(Stage::Knowledge);
    let (mut tried, mut wrong, mut dangerous) = (0, Vec::new(), Vec::new());
    for row in rows("dev") {
        let chars: Vec<char> = text(&row, "query").chars().collect();
        for at in 0..chars.len() {
            let mut lost = chars.clone();
            lost.remove(at);
            let mut doubled = chars.clone();
            doubled.insert(at, chars[at]);
            for changed in [lost, doubled] {
                tried += 1;
                let changed: String = changed.iter().collect();
                let found = ears.ask(&changed, stages);
                let by = found.stage.name();
                if let Some(one) = found.command()
                    && row["expected_command"].as_str() != Some(&one.command)
                {
                    let line = format!("{changed} (of {}): {} by {by}", text(&row, "query"), one.command);
                    if one.confirm { &mut dangerous } else { &mut wrong }.push(line);
                }
            }
        }
    }
    println!(
        "\none character dropped or doubled: {tried} sentences, {} wrong, {} dangerous",
        wrong.len(),
        dangerous.len()
    );
    for line in dangerous {
        println!("    dangerous: {line}");
    }
    for line in wrong {
        println!("    wrong: {line}");
    }
}

/// The best of ten rounds for each sentence of dev, and of these the median and the 99th percentile.
fn latency(ears: &mut Ears) {
    println!("\n| stage | p50 us | p99 us | the paper |\n|---|---|---|---|");
    let queries: Vec<String> = rows("dev").iter().map(|row| text(row, "query").to_owned()).collect();
    let mut measure = |name: &str, paper: &str, run: &mut dyn FnMut(&mut Ears, &str)| {
        let mut best = vec![f64::MAX; queries.len()];
        for _ in 0..10 {
            for (query, best) in queries.iter().zip(&mut best) {
                let begun = Instant::now();
                run(ears, query);
                *best = best.min(begun.elapsed().as_secs_f64() * 1e6);
            }
        }
        best.sort_by(f64::total_cmp);
        println!("| {name} | {:.1} | {:.1} | {paper} |", best[best.len() / 2], best[best.len() * 99 / 100]);
    };
    let patterns = Stages::NONE.with(Stage::Hotword).with(Stage::Pattern);
    measure("bare pattern", "0.3 us for one regex", &mut |ears, query| drop(ears.ask(query, patterns)));
    measure("cascade without the model", "610 us", &mut |ears, query| drop(ears.ask(query, Stages::PURE)));
    let all = Stages::PURE.with(Stage::Model).with(Stage::Knowledge);
    measure("whole cascade", "-", &mut |ears, query| drop(ears.ask(query, all)));
    measure("grams", "-", &mut |_, query| drop(grams(query)));
    measure("model alone", "409 ms to 38 s (a language model)", &mut |ears, query| drop(ears.labels(query)));
    measure("knowledge alone", "-", &mut |ears, query| {
        drop(ears.library.answer(query, 3).expect("searched"));
    });
}
