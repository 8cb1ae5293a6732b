//! What is noted of a call, and when an anomaly arises or turns out not to be.

use serde_json::json;

use super::*;
use crate::effect::outcome::WayOut;
use crate::effect::report::{Failure, Loss};
use crate::id::BatchId;
use crate::request::args::Args;
use crate::request::{Batch, Request, Via, Wish};
use crate::sample;
use crate::schedule::Board;

/// An intent of the run of this number, with an input that has `more` in it.
fn intent(run: u128, verb: &str, more: &str, wish: impl FnOnce(Wish) -> Wish) -> Intent {
    let args = Args::new(json!({ "verb": verb, "more": more })).unwrap();
    let batch = Batch::new(vec![wish(Wish { args, ..sample::wish(verb) })]).unwrap();
    let run = RunId::new(1, run);
    static NUMBER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    let number = BatchId(NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
    let requests = Request::number(run, number, batch);
    let calls = requests.into_iter().map(|request| sample::surface().resolve(request).unwrap()).collect();
    let permit = sample::permitted(calls, Via::Cli).remove(0);
    let ticket = Board::default().admit(permit).unwrap();
    Intent::declare(ticket, &mut Ledger::default()).unwrap()
}

fn done(output: Value) -> Known {
    Known::Done(Arc::new(output))
}

fn lost() -> Known {
    Known::Unknown { loss: Loss::TimedOut, way_out: WayOut::Hold }
}

struct Bench {
    ledger: Ledger,
}

impl Bench {
    fn send(&mut self, run: u128, verb: &str, more: &str) -> (CallId, Arc<Noted>) {
        let intent = intent(run, verb, more, |wish| wish);
        let noted = self.ledger.declared(&intent);
        (intent.id(), noted)
    }

    /// The changes by this end: `A1? A7!`, and `-A1` for one that turned out not to be.
    fn end(&mut self, call: CallId, known: &Known) -> String {
        self.ledger.seen(call, known);
        if matches!(known, Known::Unknown { .. }) {
            self.ledger.opened(OpKey(call));
        }
        self.said(call)
    }

    fn found(&mut self, call: CallId, done: bool) -> String {
        self.ledger.resolved(OpKey(call), done);
        self.said(call)
    }

    fn said(&mut self, call: CallId) -> String {
        let changes = self.ledger.judge(call);
        let word = |change: &Change| match change.verdict {
            None => format!("-{}", change.kind.word()),
            Some(Verdict::Possible) => format!("{}?", change.kind.word()),
            Some(Verdict::Certain) => format!("{}!", change.kind.word()),
        };
        changes.iter().map(word).collect::<Vec<_>>().join(" ")
    }
}

fn bench() -> Bench {
    Bench { ledger: Ledger::default() }
}

#[test]
fn what_is_sent_again_while_nobody_knows_is_a_second_attempt() {
    for (first_is_there, said) in [(true, "A1!"), (false, "-A1")] {
        let mut bench = bench();
        let (one, noted) = bench.send(1, "write:a", "pay");
        assert_eq!(*noted, Noted { resources: vec!["a".to_owned()], ..Noted::default() });
        assert_eq!(bench.end(one, &lost()), "");
        let (two, noted) = bench.send(1, "write:a", "pay");
        assert_eq!(noted.repeats, Some(one));
        assert_eq!(bench.end(two, &done(json!({}))), "A1?");
        assert_eq!(bench.found(one, first_is_there), said);
    }
    let mut bench = bench();
    let (one, _) = bench.send(1, "write:a", "pay");
    // Twice at the same time are two wishes, and so are two after one another, and another input.
    assert_eq!(bench.send(1, "write:a", "pay").1.repeats, None);
    bench.end(one, &done(json!({})));
    assert_eq!(bench.send(1, "write:a", "pay").1.repeats, None);
    let (lost_one, _) = bench.send(1, "write:b", "x");
    bench.end(lost_one, &lost());
    assert_eq!(bench.send(1, "write:b", "y").1.repeats, None);
}

#[test]
fn two_runs_on_one_resource_have_an_order_unless_nobody_knew_the_end_of_the_first() {
    let mut bench = bench();
    let (one, _) = bench.send(1, "write:a", "1");
    assert_eq!(bench.end(one, &lost()), "");
    let (two, _) = bench.send(2, "write:a", "2");
    assert_eq!(bench.end(two, &done(json!({}))), "A7?");
    // The next one is behind the second, and not behind the first.
    let (three, _) = bench.send(2, "write:b", "3");
    assert_eq!(bench.end(three, &done(json!({}))), "", "another resource");
    assert_eq!(bench.found(one, false), "-A7");
    let (four, _) = bench.send(3, "write:a", "4");
    assert_eq!(bench.end(four, &done(json!({}))), "");
}

#[test]
fn what_rests_on_a_result_is_seen_by_the_value_that_it_repeats() {
    let mut bench = bench();
    let (quote, _) = bench.send(1, "write:a", "quote");
    bench.end(quote, &done(json!({ "number": "Q-1234" })));
    assert_eq!(bench.send(1, "write:b", "Q-1234").1.rests_on, [quote]);
    assert_eq!(bench.send(2, "write:b", "Q-1234").1.rests_on, [], "another run has not seen it");
    assert_eq!(bench.send(1, "write:b", "Q-12345").1.rests_on, []);
    // What reads is a source too, and has no effect of its own.
    let (look, noted) = bench.send(1, "look", "Q-1234");
    assert_eq!(*noted, Noted::default());
    bench.end(look, &done(json!({ "level": "L-77 m" })));
    assert_eq!(bench.send(1, "write:a", "L-77 m").1.rests_on, [look]);
}

#[test]
fn while_everything_is_known_there_is_nothing_to_look_at_and_nothing_piles_up() {
    let mut bench = bench();
    for number in 0..KNOWN_MAX + 50 {
        let (call, _) = bench.send(u128::try_from(number % 3).unwrap(), "write:a", &format!("value {number}"));
        let known = match number % 3 {
            0 => Known::Failed(Failure { code: "x", message: String::new() }),
            _ => done(json!({ "id": format!("id {number}") })),
        };
        assert_eq!(bench.end(call, &known), "");
    }
    assert_eq!((bench.ledger.entries.len(), bench.ledger.lost.len()), (KNOWN_MAX, 0));
    assert!(bench.ledger.sources.len() <= SOURCES_MAX);
}

#[test]
fn an_effect_of_an_earlier_life_is_still_in_doubt() {
    let (old, contract) = (sample::id(900, 0), Arc::new(Contract::weakest("act")));
    let noted = Arc::new(Noted { resources: vec!["a".to_owned()], ..Noted::default() });
    let args = Args::new(json!({ "verb": "write:a", "more": "pay" })).unwrap().hash();
    let tool = ToolName::new("act").unwrap();
    let mut bench = bench();
    let lost = Lost { op: OpKey(old), tool: &tool, args: Some(args), contract: &contract, noted: &noted };
    bench.ledger.reopened(old, lost);
    bench.ledger.opened(OpKey(old));
    let (again, noted) = bench.send(5, "write:a", "pay");
    assert_eq!(noted.repeats, Some(old));
    assert_eq!(bench.end(again, &done(json!({}))), "A1?");
    assert_eq!(bench.found(old, true), "A1!");
}
