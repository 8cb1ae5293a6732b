//! The later stages as `interlock match` shows them: the classifier through ONNX Runtime, and the passages.
//!
//! Whatever needs ONNX Runtime says so by name where `cargo xtask` has not brought it.

use std::path::{Path, PathBuf};

use interlock::boot::model;
use interlock::cli::match_verb::{self, MatchArgs};
use interlock::config::regression;
use interlock::infer::classifier::{Bytes, Classifier, Course, ModelError};
use interlock::infer::runtime::{Provider, RuntimeError};
use interlock_domain::command::cascade::{Stages, Step, Walk};
use interlock_domain::command::resolution::{Candidate, Outcome, Passage, Resolution, Stage};
use interlock_domain::command::utterance;
use interlock_domain::learn::head::KEPT_MAX;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::skipped;

fn rows(file: &str) -> Vec<Value> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/corpus").join(file);
    let text = std::fs::read_to_string(path).expect("the corpus is read");
    text.lines().map(|line| serde_json::from_str(line).expect("a row")).collect()
}

fn text<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().unwrap_or_default()
}

/// The shipped classifier; none, told by name, where there is no ONNX Runtime.
fn classifier(test: &str) -> Option<Classifier> {
    match Classifier::load(&model::source(None).expect("the embedded manifest"), Provider::Auto) {
        Ok(classifier) => Some(classifier),
        Err(error) if error.is_only_missing_runtime() => {
            skipped(test, "no ONNX Runtime; `cargo xtask setup` brings it");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn meant(resolution: &Resolution) -> Option<&str> {
    match &resolution.outcome {
        Outcome::Command(one) | Outcome::Incomplete { understood: one, .. } => Some(&one.command),
        Outcome::Sequence(_) | Outcome::Knowledge | Outcome::Ambiguous | Outcome::Rejected(_) => None,
    }
}

#[test]
fn with_the_model_more_is_understood_and_nothing_else_is_executed() {
    let Some(mut classifier) = classifier("model::with_the_model_more_is_understood_and_nothing_else_is_executed")
    else {
        return;
    };
    let understanding = match_verb::load(None).expect("the embedded set compiles");
    let library = model::shipped_library().expect("the shipped passages");
    let mut ask = |query: &str| {
        let mut walk = Walk::new(&understanding, query, Stages::PURE.with(Stage::Model).with(Stage::Knowledge));
        loop {
            match walk.next() {
                Step::Done(resolution) => return resolution,
                Step::Classify(text) => {
                    walk.classified(&classifier.classify(&[&text]).expect("classified").remove(0));
                }
                Step::Retrieve(question) => {
                    let found = library.answer(&question, 3).expect("searched");
                    walk.retrieved(found.iter().map(|f| Passage { id: f.id.clone(), score: f.score }).collect());
                }
            }
        }
    };
    let mut check = |file: &str, right: usize, wrong: &[&str], answered: usize| {
        let (mut understood, mut with_passages, mut others) = (0, 0, Vec::new());
        for row in rows(file).iter().filter(|row| row["query"].is_string()) {
            let found = ask(text(row, "query"));
            let expected = row["expected_command"].as_str();
            understood += usize::from(expected.is_some() && meant(&found) == expected);
            with_passages += usize::from(found.outcome == Outcome::Knowledge);
            if let Some(one) = found.command().filter(|one| Some(one.command.as_str()) != expected) {
                others.push(format!("{}: {}", text(row, "query"), one.command));
            }
        }
        assert!(understood >= right, "{file}: {understood} understood, not {right}");
        assert!(with_passages >= answered, "{file}: {with_passages} answered, not {answered}");
        assert_eq!(others, wrong, "{file}");
    };
    check("dev.jsonl", 223, &[], 23);
    check("paraphrases-1.jsonl", 174, &[], 0);
    check("paraphrases-2.jsonl", 141, &[], 0);
    check("paraphrases-3.jsonl", 141, &[], 0);
    check("rejects-3.jsonl", 0, &[], 0);
    // Without the model it is 41.
    check("extra_real_asr.jsonl", 46, &[], 0);
    check("fresh-1.jsonl", 207, &[], 0);
    check("fresh-2.jsonl", 98, &[], 0);
}

#[test]
fn the_right_passage_comes_first() {
    let library = model::shipped_library().expect("the shipped passages");
    for (file, at_least) in [("questions.jsonl", 98), ("questions_noisy.jsonl", 95)] {
        let rows = rows(file);
        let mut wrong = Vec::new();
        for row in &rows {
            let question = text(row, "question");
            let found = library.nearest(question, 1).expect("searched");
            let first = found.first().map_or("", |found| found.id.as_str());
            if !row["passages"].as_array().is_some_and(|list| list.iter().any(|one| one == first)) {
                wrong.push(format!("{question}: {first}"));
            }
        }
        assert!((rows.len() - wrong.len()) * 100 >= at_least * rows.len(), "{file}: {wrong:?}");
    }
}

#[test]
fn what_runs_the_model_is_what_the_session_says() {
    let Some(mut classifier) = classifier("model::what_runs_the_model_is_what_the_session_says") else { return };
    let running = classifier.running().clone();
    assert_eq!(running.assigned.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["CPUExecutionProvider"]);
    assert!(running.assigned[0].1 > 5, "{running}");
    // More than one run takes, in one call, in order; an utterance beside others has the labels that it has alone.
    let texts = ["启动水泵", "停止风机", "关闭阀门", "合上断路器", "打开空调", "帮我点一份外卖"];
    let together = classifier.classify(&texts).expect("classified");
    let best: Vec<&str> = together.iter().map(|labels| labels[0].command.as_str()).collect();
    assert_eq!(best, ["pump_start", "fan_stop", "valve_close", "brk_close", "ac_on", "none"]);
    for (text, expected) in texts.iter().zip(&together) {
        assert_eq!(classifier.classify(&[text]).expect("classified")[0][0].command, expected[0].command);
    }
}

#[test]
fn cann_that_is_not_there_is_said_and_the_cpu_runs_it() {
    if classifier("model::cann_that_is_not_there_is_said_and_the_cpu_runs_it").is_none() {
        return;
    }
    if Path::new("/dev/davinci0").exists() {
        skipped("model::cann_that_is_not_there_is_said_and_the_cpu_runs_it", "an Ascend device is there");
        return;
    }
    let source = model::source(None).expect("the embedded manifest");
    let asked = Classifier::load(&source, Provider::Cann).expect("the CPU takes it");
    let why = asked.running().fell_back.clone().expect("it says so");
    assert!(why.starts_with("CANN was asked for: "), "{why}");
}

/// `interlock match` with another model: its answer to one sentence, with the explanation.
fn with_model(manifest: &Path) -> String {
    let args = MatchArgs {
        model: Some(manifest.to_owned()),
        explain: true,
        text: Some("去消任模".to_owned()),
        ..MatchArgs::default()
    };
    let mut output = Vec::new();
    assert_eq!(match_verb::run(&args, &mut &b""[..], &mut output).expect("runs"), 0);
    String::from_utf8(output).expect("UTF-8")
}

#[test]
fn a_spoiled_model_is_refused_by_name_and_the_cascade_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let models = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("models");
    std::fs::create_dir(at("classifier")).expect("made");
    for name in ["manifest.toml", "classifier/commands.onnx", "classifier/labels.txt"] {
        std::fs::copy(models.join(name), at(name)).expect("copied");
    }
    let mut bytes = std::fs::read(at("classifier/commands.onnx")).expect("read");
    bytes[1000] ^= 1;
    std::fs::write(at("classifier/commands.onnx"), &bytes).expect("written");
    let shown = with_model(&at("manifest.toml"));
    assert!(shown.starts_with("outcome: rejected\n"), "{shown}");
    let name = at("classifier/commands.onnx").display().to_string();
    assert!(shown.contains(&format!("model: off: {name}: its SHA-256 is ")), "{shown}");

    // The hash of a file that is no model at all does not make it one.
    if classifier("model::a_spoiled_model_is_refused_by_name_and_the_cascade_goes_on").is_none() {
        return;
    }
    let mut source = model::source(None).expect("the embedded manifest");
    source.model = Bytes::Embedded(b"not a model");
    source.model_sha256 = Sha256::digest(b"not a model").iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(matches!(Classifier::load(&source, Provider::Cpu), Err(ModelError::Runtime(RuntimeError::Model(_)))));
}

/// A sentence encoder of a few hundred numbers, made by `models/train/sentences/tiny.py`.
fn encoder(test: &str) -> Option<Classifier> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/encoder/manifest.toml");
    match Classifier::load(&model::source(Some(&manifest)).expect("its manifest"), Provider::Auto) {
        Ok(classifier) => Some(classifier),
        Err(error) if error.is_only_missing_runtime() => {
            skipped(test, "no ONNX Runtime; `cargo xtask setup` brings it");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn best(classifier: &mut Classifier, text: &str) -> (String, f32) {
    let labels = classifier.classify(&[text]).expect("classified").remove(0);
    (labels[0].command.clone(), labels[0].confidence)
}

#[test]
fn a_sentence_encoder_with_a_linear_head_runs_in_the_same_place() {
    let Some(mut classifier) = encoder("model::a_sentence_encoder_with_a_linear_head_runs_in_the_same_place") else {
        return;
    };
    assert_eq!(classifier.rows(), 1);
    let endless = "长得没有尽头".repeat(30);
    let asked = ["启动水泵", "停止水泵", "启动风机", "天气怎么样", "", endless.as_str()];
    let all = classifier.classify(&asked).expect("classified");
    let named: Vec<&str> = all.iter().map(|labels| labels[0].command.as_str()).collect();
    assert_eq!(named, ["pump_start", "pump_stop", "fan_start", "none", "none", "none"]);
}

#[test]
fn what_was_learned_bends_the_head_and_going_back_brings_the_old_one() {
    let Some(mut classifier) = encoder("model::what_was_learned_bends_the_head_and_going_back_brings_the_old_one")
    else {
        return;
    };
    let kept = ["启动水泵", "停止水泵", "启动风机", "天气怎么样"].map(str::to_owned).to_vec();
    let untaught = classifier.classify(&["抽水", "启动水泵", "天气怎么样"]).expect("classified");
    assert_eq!(best(&mut classifier, "抽水").0, "none");
    let course = Course { taught: vec![("抽水".to_owned(), "pump_start".to_owned())], kept: kept.clone() };
    let first = classifier.teach(&course).expect("runs").expect("taught");
    let (command, sure) = best(&mut classifier, "抽水");
    assert!(command == "pump_start" && sure >= 0.9, "{command} {sure}");
    assert_eq!(best(&mut classifier, "停止水泵").0, "pump_stop");
    assert_eq!(best(&mut classifier, "天气怎么样").0, "none");
    // A new command is a label behind the model's own.
    let new = Course {
        taught: vec![("抽水".to_owned(), "pump_start".to_owned()), ("抽风机".to_owned(), "dryer_start".to_owned())],
        kept,
    };
    assert_ne!(classifier.teach(&new).expect("runs").expect("taught"), first);
    assert_eq!(best(&mut classifier, "抽风机").0, "dryer_start");
    // The same set gives the same head, bit for bit; nothing learned gives the shipped one.
    assert_eq!(classifier.teach(&course).expect("runs").expect("taught"), first);
    classifier.teach(&Course::default()).expect("runs").expect("nothing to do");
    assert_eq!(classifier.classify(&["抽水", "启动水泵", "天气怎么样"]).expect("classified"), untaught);
}

#[test]
fn the_shipped_model_is_taught_too_and_its_thresholds_still_hold() {
    let Some(mut classifier) = classifier("model::the_shipped_model_is_taught_too_and_its_thresholds_still_hold")
    else {
        return;
    };
    let replay = regression::read(Path::new(regression::EMBEDDED_NAME), regression::EMBEDDED).expect("the set");
    let apart = replay.len().div_ceil(KEPT_MAX);
    let kept: Vec<String> = replay.iter().step_by(apart).map(|one| utterance::plain(&one.sentence)).collect();
    let all: Vec<String> = replay.iter().map(|one| utterance::plain(&one.sentence)).collect();
    let taught: Vec<(String, String)> = rows("learning.jsonl")
        .iter()
        .filter(|row| row["channel"] == "B" && row["command"].is_string() && row["phrase"].is_string())
        .map(|row| (utterance::plain(text(row, "phrase")), text(row, "command").to_owned()))
        .take(12)
        .collect();
    assert!(taught.len() >= 10, "{} phrases", taught.len());
    let before = classifier.classify(&all.iter().map(String::as_str).collect::<Vec<_>>()).expect("classified");
    let Ok(_) = classifier.teach(&Course { taught: taught.clone(), kept }).expect("runs") else {
        panic!("a kept sentence would move");
    };
    let learned = taught.iter().filter(|(text, command)| best(&mut classifier, text).0 == *command).count();
    assert!(learned * 10 >= taught.len() * 8, "{learned} of {}", taught.len());
    // No sentence that must come to nothing gets a clear label that it did not have.
    let after = classifier.classify(&all.iter().map(String::as_str).collect::<Vec<_>>()).expect("classified");
    let clear =
        |labels: &[Candidate]| labels.first().filter(|one| one.confidence >= 0.7).map(|one| one.command.clone());
    let moved = replay.iter().zip(before.iter().zip(&after)).filter(|(example, (before, after))| {
        example.means.is_none() && clear(after).is_some_and(|one| one != "none") && clear(after) != clear(before)
    });
    let moved: Vec<&str> = moved.map(|(example, _)| example.sentence.as_str()).collect();
    assert!(moved.is_empty(), "{moved:?}");
}

#[test]
fn a_vocabulary_that_is_not_the_one_of_the_manifest_is_refused() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/encoder/manifest.toml");
    let mut source = model::source(Some(&manifest)).expect("its manifest");
    source.pieces = Some((Bytes::Embedded(b"unknown\t-1\n"), "0".repeat(64)));
    let refused = Classifier::load(&source, Provider::Auto).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(refused.contains("the pieces of") && refused.ends_with("it is not loaded"), "{refused}");
}
