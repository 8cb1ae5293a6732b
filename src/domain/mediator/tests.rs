//! The conductor, step by step: what goes in and which actions come out.

use super::*;
use crate::effect::report::{Failure, Loss};
use crate::gate::docket::{By, Ignored};
use crate::gate::policy::Mode;
use crate::request::Via;
use crate::request::why::Why;
use crate::sample;
use serde_json::json;

/// Steps, and tells in short words what is to be done.
struct Bench {
    mediator: Mediator,
    now: Tick,
    entry: Entry,
}

impl Bench {
    fn new(via: Via) -> Bench {
        let mut bench = Bench { mediator: Mediator::new(QuestionId(1)), now: Tick(1), entry: Entry(0) };
        bench.open(Policy { mode: Mode::Default, ..sample::policy(via) });
        bench
    }

    fn open(&mut self, policy: Policy) -> Vec<String> {
        let opening = Opening {
            run: sample::run(),
            parent: None,
            surface: sample::surface(),
            narrowing: Narrowing::default(),
            policy,
        };
        self.step(Input::Open(Box::new(opening)))
    }

    fn submit(&mut self, batch: u64, verbs: &[&str]) -> Vec<String> {
        self.step(Input::Submit { run: sample::run(), batch: BatchId(batch), wishes: sample::batch(verbs) })
    }

    fn commit(&mut self) -> Vec<String> {
        self.step(Input::Committed { upto: self.entry })
    }

    fn end(&mut self, batch: u64, position: u32, report: Report) -> Vec<String> {
        self.step(Input::Ended { call: sample::id(batch, position), report })
    }

    fn answer(&mut self, question: u64, answer: Answer) -> Vec<String> {
        self.step(Input::Answer { question: QuestionId(question), answer, by: By::person("w", "w") })
    }

    fn step(&mut self, input: Input) -> Vec<String> {
        self.mediator.step(input, self.now);
        let mut told = Vec::new();
        while let Some(action) = self.mediator.next_action() {
            told.push(match action {
                Action::Record { entries, now } => {
                    self.entry = entries.last().map_or(self.entry, |(entry, _)| *entry);
                    let words: Vec<&str> = entries.iter().map(|(_, event)| event.word()).collect();
                    format!("record{} {}", if now { " now" } else { "" }, words.join(" "))
                }
                Action::Look { question, .. } => format!("look {question}"),
                Action::Ask(question) => format!("ask {} {}", question.id, question.kind.word()),
                Action::Withdraw { question } => format!("withdraw {question}"),
                Action::Start(order) => format!("start {}", order.call().position),
                Action::Stop { call } => format!("stop {}", call.position),
                Action::Reply { batch, replies } => {
                    let one = |reply: &Reply| {
                        let code = reply.ending.code().unwrap_or("-");
                        let evidence = if reply.evidence.is_some() { "+" } else { "" };
                        format!(" {}:{code}{evidence}", reply.ending.word())
                    };
                    format!("reply {}{}", batch.0, replies.iter().map(one).collect::<String>())
                }
            });
        }
        told
    }
}

fn done() -> Report {
    Report::Done(json!({}))
}

#[test]
fn a_read_starts_and_is_answered_without_waiting_for_the_log() {
    let mut bench = Bench::new(Via::Mcp);
    assert_eq!(bench.submit(1, &["look"]), ["record requested permitted queued intent started", "start 0"]);
    assert_eq!(bench.end(1, 0, done()), ["record outcome settled", "reply 1 done:-"]);
    assert!(bench.mediator.is_idle());
}

#[test]
fn a_change_waits_for_the_log_before_it_starts_and_before_it_is_told() {
    let mut bench = Bench::new(Via::Cli);
    assert_eq!(bench.submit(1, &["write:a"]), ["record now requested permitted queued intent"]);
    assert_eq!(bench.commit(), ["record started", "start 0"]);
    assert_eq!(bench.end(1, 0, done()), ["record now outcome settled"]);
    assert_eq!(bench.commit(), ["reply 1 done:-+"]);
}

#[test]
fn the_intent_of_the_next_in_line_is_written_while_the_one_before_runs() {
    let mut bench = Bench::new(Via::Cli);
    let first = bench.submit(1, &["lane:1", "lane:1"]);
    assert_eq!(first, ["record now requested requested permitted queued permitted queued intent"]);
    assert_eq!(bench.commit(), ["record now started intent", "start 0"]);
    assert_eq!(bench.commit(), [""; 0]);
    assert_eq!(bench.end(1, 0, done()), ["record outcome settled started", "start 1"]);
}

#[test]
fn questions_hold_the_whole_batch_and_answers_let_it_go() {
    let mut bench = Bench::new(Via::Mcp);
    let asked = bench.submit(1, &["look", "write:a", "danger"]);
    assert_eq!(asked, ["record requested requested requested asked asked", "ask q1 permit", "ask q2 confirm"]);
    assert_eq!(bench.answer(2, Answer::Deny), ["record answered settled", "withdraw q2"]);
    assert_eq!(bench.answer(2, Answer::Allow), ["record answer_ignored"]);
    assert_eq!(bench.answer(77, Answer::Allow), ["record answer_ignored"]);
    assert_eq!(bench.mediator.not_asked(QuestionId(2)), Ignored::Closed);
    assert_eq!(bench.mediator.not_asked(QuestionId(77)), Ignored::NoSuchQuestion);
    let going = bench.answer(1, Answer::Allow);
    assert_eq!(
        going,
        ["record now answered permitted queued permitted queued intent intent started", "withdraw q1", "start 0"]
    );
    bench.commit();
    bench.end(1, 0, done());
    bench.end(1, 1, done());
    assert_eq!(bench.commit(), ["reply 1 done:-+ done:-+ not_started:denied_by_person+"]);
}

#[test]
fn nobody_answers_and_it_is_a_no() {
    let mut bench = Bench::new(Via::Mcp);
    bench.submit(1, &["write:a"]);
    let until = bench.mediator.wake_at().unwrap();
    assert_eq!(until, Tick(1).after(Duration::from_secs(120)));
    bench.now = Tick(until.0 - 1);
    assert_eq!(bench.step(Input::Tick), [""; 0]);
    bench.now = until;
    assert_eq!(bench.step(Input::Tick), ["record settled", "withdraw q1", "reply 1 not_started:ask_timed_out"]);
}

#[test]
fn a_hung_call_is_asked_to_stop_then_given_up_and_a_late_report_resolves_it() {
    let mut bench = Bench::new(Via::Cli);
    bench.submit(1, &["write:a"]);
    bench.commit();
    let until = bench.mediator.wake_at().unwrap();
    bench.now = Tick(until.0 - 1);
    assert_eq!(bench.step(Input::Tick), [""; 0]);
    bench.now = until;
    assert_eq!(bench.step(Input::Tick), ["record stop_asked", "stop 0"]);
    assert_eq!(bench.mediator.wake_at(), Some(until.after(STOP_GRACE)));
    bench.now = until.after(STOP_GRACE);
    assert_eq!(bench.step(Input::Tick), ["record now outcome settled asked", "ask q1 outcome"]);
    assert_eq!(bench.commit(), ["reply 1 unknown:timed_out+"]);
    assert_eq!(bench.answer(1, Answer::Allow), ["record answer_ignored"]);
    assert_eq!(bench.end(1, 0, done()), ["record late_report resolved", "withdraw q1"]);
    assert_eq!(bench.end(1, 0, done()), ["record late_report"]);
}

#[test]
fn an_unknown_waits_for_a_person_and_is_resolved_once() {
    let mut bench = Bench::new(Via::Cli);
    bench.submit(1, &["write:a"]);
    bench.commit();
    let lost = Report::Lost(Loss::ConnectionLost);
    assert_eq!(bench.end(1, 0, lost), ["record now outcome settled asked", "ask q1 outcome"]);
    let settle = || Input::Settle { question: QuestionId(1), found: Found::Done, note: "seen".into(), by: "w".into() };
    assert_eq!(bench.step(settle()), ["record resolved", "withdraw q1"]);
    assert_eq!(bench.step(settle()), ["record answer_ignored"]);
}

#[test]
fn without_a_log_nothing_that_changes_starts_but_what_protects() {
    let mut bench = Bench::new(Via::Cli);
    bench.submit(1, &["write:a"]);
    assert_eq!(bench.step(Input::CommitFailed), ["record settled", "reply 1 not_started:no_evidence"]);
    let refused = bench.submit(2, &["write:b"]);
    assert_eq!(refused, ["record requested permitted queued settled", "reply 2 not_started:no_evidence"]);
    assert_eq!(bench.submit(3, &["look"]).last().unwrap(), "start 0");
    let stop = bench.submit(4, &["stop:a"]);
    assert_eq!(stop, ["record now requested permitted queued intent started", "start 0"]);
    assert_eq!(bench.end(4, 0, done()), ["record outcome settled", "reply 4 done:-"]);
    // The log is back: everything waits for it again.
    bench.commit();
    assert_eq!(bench.submit(5, &["stop:a"]), ["record now requested permitted queued intent"]);
}

#[test]
fn a_protective_action_voids_what_waits_for_the_same_thing() {
    let mut bench = Bench::new(Via::Cli);
    bench.submit(1, &["write:a"]);
    let stop = bench.submit(2, &["stop:a"]);
    assert_eq!(stop, ["record now requested permitted settled queued intent"]);
    assert_eq!(bench.commit(), ["record started", "reply 1 not_started:superseded+", "start 0"]);
}

#[test]
fn a_changed_policy_and_a_cancellation_void_what_has_not_started() {
    let mut bench = Bench::new(Via::Cli);
    bench.submit(1, &["write:a"]);
    let plan = Policy { mode: Mode::Plan, ..sample::policy(Via::Cli) };
    let changed = bench.step(Input::Policy { run: sample::run(), policy: Box::new(plan) });
    // Its intent was recorded, so its asker hears of it when the log has its end.
    assert_eq!(changed, ["record now policy_changed settled"]);
    assert_eq!(bench.commit(), ["reply 1 not_started:policy_changed+"]);
    let denied = bench.submit(2, &["write:a", "look"]);
    assert_eq!(denied.last().unwrap(), "start 1");
    assert_eq!(bench.step(Input::Cancel { batch: BatchId(2) }), ["record stop_asked", "stop 1"]);
    let failed = Report::Failed(Failure { code: "stopped", message: String::new() });
    assert_eq!(bench.end(2, 1, failed).last().unwrap(), "reply 2 not_started:denied failed:stopped");
}

#[test]
fn a_batch_of_none_a_used_number_and_a_strange_run_are_answered() {
    let mut bench = Bench::new(Via::Cli);
    assert_eq!(bench.submit(5, &[]), ["reply 5"]);
    assert_eq!(bench.submit(5, &["look"]), ["reply 5"]);
    let strange = Input::Submit { run: RunId::new(9, 9), batch: BatchId(6), wishes: sample::batch(&["look"]) };
    assert_eq!(bench.step(strange), ["record requested settled", "reply 6 not_started:no_such_run"]);
    bench.step(Input::Drain);
    assert_eq!(bench.submit(7, &["look"]), ["record requested settled", "reply 7 not_started:interrupted"]);
}

#[test]
fn open_dockets_and_inputs_are_bounded() {
    let mut bench = Bench::new(Via::Mcp);
    for batch in 1..=DOCKETS_MAX as u64 {
        bench.submit(batch, &["write:a"]);
    }
    let one_more = bench.submit(1000, &["write:a"]);
    assert_eq!(one_more.last().unwrap(), "reply 1000 not_started:busy");
    assert_eq!(bench.mediator.questions().len(), DOCKETS_MAX);

    let mut bench = Bench::new(Via::Mcp);
    let text = "x".repeat(crate::request::args::ARGS_BYTES_MAX - 100);
    let args = crate::request::args::Args::new(json!({"verb": "write:a", "text": text})).unwrap();
    let large = || Batch::new(vec![crate::request::Wish { args: args.clone(), ..sample::wish("write:a") }]).unwrap();
    let refused = (1..=40).find(|batch| {
        let told = bench.step(Input::Submit { run: sample::run(), batch: BatchId(*batch), wishes: large() });
        told.last().is_some_and(|last| last.ends_with("input_flood"))
    });
    assert_eq!(refused, Some(32));
}

#[test]
fn a_child_has_at_most_what_its_parent_has_and_follows_its_changes() {
    let mut bench = Bench::new(Via::Mcp);
    let child = RunId::new(1, 2);
    let opening = |mode| Opening {
        run: child,
        parent: Some(sample::run()),
        surface: Surface::default(),
        narrowing: Narrowing::default(),
        policy: Policy { mode, ..sample::policy(Via::Agent) },
    };
    bench.step(Input::Open(Box::new(opening(Mode::BypassPermissions))));
    assert_eq!(bench.mediator.policy_of(child).unwrap().0.mode, Mode::Default);
    let plan = Policy { mode: Mode::Plan, ..sample::policy(Via::Mcp) };
    bench.step(Input::Policy { run: sample::run(), policy: Box::new(plan) });
    assert_eq!(bench.mediator.policy_of(child).unwrap().0.mode, Mode::Plan);
    let wide = Policy { mode: Mode::BypassPermissions, ..sample::policy(Via::Agent) };
    bench.step(Input::Policy { run: child, policy: Box::new(wide) });
    assert_eq!(bench.mediator.policy_of(child).unwrap().0.mode, Mode::Plan);
    let look = |bench: &mut Bench, batch| {
        let wishes = sample::batch(&["look"]);
        let told = bench.step(Input::Submit { run: child, batch: BatchId(batch), wishes });
        told.last().unwrap().clone()
    };
    assert_ne!(look(&mut bench, 1), "reply 1 not_started:no_such_tool");
    let narrow = Opening { narrowing: Narrowing::only(["other".to_owned()]), ..opening(Mode::Plan) };
    bench.step(Input::Open(Box::new(narrow)));
    assert_eq!(look(&mut bench, 2), "reply 2 not_started:no_such_tool");
    // What is registered later passes the same lists: the child sees it only if they name it.
    bench.open(sample::policy(Via::Mcp));
    assert_eq!(look(&mut bench, 3), "reply 3 not_started:no_such_tool");
    let wider = Opening { narrowing: Narrowing::only(["act".to_owned()]), ..opening(Mode::Plan) };
    bench.step(Input::Open(Box::new(wider)));
    bench.step(Input::Open(Box::new(Opening {
        run: sample::run(),
        parent: None,
        surface: Surface::default(),
        narrowing: Narrowing::default(),
        policy: sample::policy(Via::Mcp),
    })));
    assert_eq!(look(&mut bench, 4), "reply 4 not_started:no_such_tool");
    bench.open(sample::policy(Via::Mcp));
    assert_ne!(look(&mut bench, 5), "reply 5 not_started:no_such_tool");
}

#[test]
fn what_the_last_life_left_open_is_settled_and_asked_about_under_its_old_number() {
    let mut bench = Bench::new(Via::Cli);
    let unknown = |question| Unknown {
        op: crate::effect::outcome::OpKey(sample::id(1, 0)),
        tool: crate::id::ToolName::new("act").unwrap(),
        shown: "{}".into(),
        loss: Loss::DaemonEnded,
        way_out: crate::effect::outcome::WayOut::Hold,
        question,
        args: None,
        since: None,
        contract: std::sync::Arc::new(crate::surface::contract::Contract::weakest("act")),
        noted: std::sync::Arc::default(),
    };
    let known = crate::effect::outcome::Known::Unknown {
        loss: Loss::DaemonEnded,
        way_out: crate::effect::outcome::WayOut::Hold,
    };
    let mend = |position, ending, unknown| Mend { call: sample::id(1, position), ending, stub: None, unknown };
    let told = bench.step(Input::Mended(vec![
        mend(0, Some(crate::closure::Ending::Ran(known)), Some(unknown(None))),
        mend(1, None, Some(unknown(Some(QuestionId(6))))),
        mend(2, Some(crate::closure::Ending::NotStarted(Why::Interrupted)), None),
    ]));
    assert_eq!(told, ["record now settled asked settled", "ask q7 outcome", "ask q6 outcome"]);
}

/// A wish in the name of another call.
fn for_parent(verb: &str, parent: CallId) -> Batch {
    Batch::new(vec![crate::request::Wish { parent: Some(parent), ..sample::wish(verb) }]).unwrap()
}

fn ask_for(bench: &mut Bench, batch: u64, verb: &str, parent: CallId) -> Vec<String> {
    bench.step(Input::Submit { run: sample::run(), batch: BatchId(batch), wishes: for_parent(verb, parent) })
}

#[test]
fn a_parent_that_waits_for_its_child_holds_nothing_and_what_comes_after_it_waits_outside_the_line() {
    let mut bench = Bench::new(Via::Cli);
    // The composite has a key; the write behind it has the same, and so has the child.
    let first = bench.submit(1, &["family:a", "write:a", "look"]);
    assert_eq!(
        first,
        ["record requested requested requested permitted queued permitted permitted intent started", "start 0"]
    );
    let child = ask_for(&mut bench, 2, "write:a", sample::id(1, 0));
    assert_eq!(child, ["record now requested permitted queued intent"]);
    assert_eq!(bench.commit(), ["record started", "start 0"]);
    bench.end(2, 0, done());
    assert_eq!(bench.commit(), ["reply 2 done:-+"]);
    // Its end lets go what it held, in call order.
    assert_eq!(bench.end(1, 0, done()), ["record now outcome settled queued queued intent intent started", "start 2"]);
    assert_eq!(bench.commit(), ["record started", "start 1"]);
    bench.end(1, 2, done());
    bench.end(1, 1, done());
    assert_eq!(bench.commit(), ["reply 1 done:-+ done:-+ done:-+"]);
    assert!(bench.mediator.is_idle());
}

#[test]
fn the_end_or_the_stop_of_a_composite_cancels_what_was_wished_for_in_its_name() {
    for stop in [false, true] {
        let mut bench = Bench::new(Via::Cli);
        bench.submit(1, &["family"]);
        ask_for(&mut bench, 2, "lane:1", sample::id(1, 0));
        ask_for(&mut bench, 3, "lane:1", sample::id(1, 0));
        bench.commit();
        let told = if stop {
            bench.step(Input::Cancel { batch: BatchId(1) })
        } else {
            bench.end(1, 0, Report::Lost(Loss::Panicked("boom".into())))
        };
        assert!(told.contains(&"stop 0".to_owned()), "{told:?}");
        // One that ran was asked to stop, one that waited is not started, and nothing more is taken.
        assert!(bench.commit().contains(&"reply 3 not_started:cancelled+".to_owned()));
        let late = ask_for(&mut bench, 4, "look", sample::id(1, 0));
        assert_eq!(late, ["record requested settled", "reply 4 not_started:parent_ended"]);
        bench.end(2, 0, done());
        assert_eq!(bench.commit(), ["reply 2 done:-+"]);
    }
}

#[test]
fn only_a_composite_that_runs_makes_wishes_and_only_in_its_own_run_and_those_below_it() {
    let mut bench = Bench::new(Via::Cli);
    bench.submit(1, &["look", "family"]);
    for parent in [sample::id(1, 0), sample::id(1, 1), sample::id(9, 9)] {
        let told = ask_for(&mut bench, 10 + u64::from(parent.position) + parent.batch.0, "look", parent);
        assert_eq!(told[1].split(' ').next_back(), Some("not_started:parent_ended"), "{parent}");
    }
    bench.end(1, 0, done());
    let child = RunId::new(1, 2);
    let below = Opening {
        run: child,
        parent: Some(sample::run()),
        narrowing: Narrowing::default(),
        surface: sample::surface(),
        policy: sample::policy(Via::Agent),
    };
    bench.step(Input::Open(Box::new(below)));
    let beside = Opening {
        run: RunId::new(1, 3),
        parent: None,
        surface: sample::surface(),
        narrowing: Narrowing::default(),
        policy: sample::policy(Via::Agent),
    };
    bench.step(Input::Open(Box::new(beside)));
    for (batch, run, last) in [(30, child, "start 0"), (31, RunId::new(1, 3), "reply 31 not_started:parent_ended")] {
        let wishes = for_parent("look", sample::id(1, 1));
        let told = bench.step(Input::Submit { run, batch: BatchId(batch), wishes });
        assert_eq!(told.last().unwrap(), last);
    }
}

#[test]
fn what_a_composite_holds_is_voided_with_its_batch_and_by_an_emergency() {
    let mut bench = Bench::new(Via::Cli);
    bench.submit(1, &["family", "write:a", "write:b"]);
    let stop = bench.submit(2, &["stop:a"]);
    assert_eq!(stop, ["record now requested permitted settled queued intent"]);
    let cancelled = bench.step(Input::Cancel { batch: BatchId(1) });
    assert_eq!(cancelled[0], "record settled stop_asked");
    bench.end(1, 0, done());
    assert!(bench.mediator.running().count() <= 1);
    // A protective action of the same batch is not held.
    let mut bench = Bench::new(Via::Cli);
    bench.submit(1, &["family:a", "stop:a"]);
    assert_eq!(bench.commit(), ["record started", "start 1"]);
}

#[test]
fn composites_under_way_are_bounded() {
    let mut bench = Bench::new(Via::Cli);
    let max = crate::schedule::hold::COMPOSITES_MAX as u64;
    for batch in 1..=max {
        assert_eq!(bench.submit(batch, &["family"]).last().unwrap(), "start 0");
    }
    let refused = bench.submit(max + 1, &["family", "look"]);
    assert_eq!(refused.last().unwrap(), "start 1");
    bench.end(max + 1, 1, done());
    assert_eq!(bench.submit(max + 2, &["look"]).last().unwrap(), "start 0");
}
