//! Effects: the checker against the definitions, on random histories.

use interlock_domain::effect::anomaly::{Event, History, Kind, Seen, Terms, Verdict, View};

use crate::{asked, asked_count};

#[path = "oracle.rs"]
mod oracle;

#[expect(clippy::print_stdout, reason = "an experiment prints what it measured")]
fn say(text: &str) {
    println!("{text}");
}

/// 100,000 random histories (or `INTERLOCK_EXPERIMENT_COUNT`), half of them logs of a runtime, each judged by the
/// checker and by brute force over all worlds.
#[test]
fn random_histories_against_the_definitions() {
    if !asked("effects-oracle") {
        return;
    }
    let count = asked_count(100_000);
    let (mut wrong, mut by_kind) = (Vec::new(), std::collections::BTreeMap::new());
    for seed in 0..count {
        let (events, terms) = oracle::random(&mut fastrand::Rng::with_seed(seed));
        for (kind, verdict) in oracle::verdicts(&events, &terms) {
            *by_kind.entry((kind, verdict)).or_insert(0_u64) += 1;
        }
        wrong.extend(oracle::differ(seed..seed + 1));
    }
    say(&format!("{count} histories, {} judged differently", wrong.len()));
    for ((kind, verdict), count) in by_kind {
        say(&format!("  {} {:<8} in {count}", kind.word(), verdict.word()));
    }
    assert!(wrong.is_empty(), "{}", wrong[0]);
}

/// The four limits of the paper (effects, sections 4 and 5), each put to a real daemon: what it says where no contract
/// helps.
#[test]
fn the_four_limits() {
    if !asked("effects-limits") {
        return;
    }
    let stand = crate::faults::world::stand::Stand::start(1);
    let workflow = |input: serde_json::Value| stand.ask("workflow", &serde_json::json!({ "input": input })).unwrap();
    let begin = |profiles: &[&str]| {
        let begun = workflow(serde_json::json!({ "verb": "begin", "profiles": profiles }));
        begun["output"]["workflow"].as_str().unwrap().to_owned()
    };
    let post = |name: &str, path: &str| {
        let url = format!("http://127.0.0.1:{}/{path}", stand.http);
        let input = serde_json::json!({ "url": url, "method": "POST" });
        workflow(serde_json::json!({ "verb": "do", "workflow": name, "tool": "http", "input": input, "op": "pay" }))
    };
    let told =
        |what: &str, said: &serde_json::Value| say(&format!("   {what:<34} {}", said["message"].as_str().unwrap()));
    say("1. an outcome that nobody can find out");
    stand.files.plan("r1.pay", &[crate::faults::world::servers::Fault::After]);
    let name = begin(&[]);
    told("the call", &post(&name, "plain/r1.pay"));
    told("again", &post(&name, "plain/r1.pay"));
    for verb in ["commit", "abort"] {
        told(verb, &workflow(serde_json::json!({ "verb": verb, "workflow": name })));
    }
    told("under unknown-safe", &post(&begin(&["unknown-safe"]), "plain/r1.pay"));
    say("2. what does not commute and cannot be taken back, without mediation");
    told("under externally-mediated", &post(&begin(&["externally-mediated"]), "plain/r2.post"));
    told("under compensation-safe", &post(&begin(&["compensation-safe"]), "plain/r2.post"));
    say("3. an open world");
    let name = begin(&["compensation-safe"]);
    post(&name, "asked/r3.order");
    let undone = workflow(serde_json::json!({ "verb": "abort", "workflow": name }));
    say(&format!("   {:<34} {}", "undone, and said all the same", undone["output"]["anomalies"]));
    say("4. irreversible effects of several tools");
    told("under speculation-safe", &post(&begin(&["speculation-safe"]), "plain/r4.pay"));
}
