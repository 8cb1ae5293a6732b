//! Tables of what may be tried, when a workflow may be settled, and how it ends.

use serde_json::json;

use super::super::anomaly::Anomaly;
use super::decide::Out;
use super::*;
use crate::surface::companion::{Companion, Companions};
use crate::surface::contract::{Commutes, Effect, Visibility};

/// A moment.
const NOW: Wall = Wall(1_000_000);

fn contract(outcome: OutcomeBy, reversible: bool) -> Contract {
    let effect = if reversible {
        let precondition = Some("any time".to_owned());
        Effect::Reversible { inverse: "undo".to_owned(), precondition, window: None }
    } else {
        Effect::Irreversible
    };
    Contract { outcome, effect, ..Contract::weakest("x") }
}

fn resend() -> OutcomeBy {
    OutcomeBy::ResendOriginal { retention: std::time::Duration::from_secs(60) }
}

fn wanted(op: &str, branch: &str, contract: Contract) -> Wanted {
    Wanted {
        op: op.to_owned(),
        branch: branch.to_owned(),
        tool: "act".to_owned(),
        input: Arc::new(json!({ "op": op })),
        contract: Arc::new(contract),
        resources: vec![op.to_owned()],
        after: Vec::new(),
    }
}

fn begin(profiles: &[Profile], required: &[&str]) -> Workflow {
    Workflow::begin(profiles.iter().copied().collect(), required.iter().map(|op| (*op).to_owned()).collect()).unwrap()
}

fn call(position: u32) -> CallId {
    crate::sample::id(1, position)
}

/// Makes the attempt, as if it had been sent and seen.
fn tried(workflow: &mut Workflow, wanted: Wanted, state: State) -> usize {
    let (at, _) = workflow.attempt(wanted).unwrap();
    workflow.bound(at, call(u32::try_from(at).unwrap()));
    workflow.seen(at, state, None);
    at
}

fn kinds(workflow: &Workflow) -> Vec<String> {
    let word = |it: &Anomaly| format!("{} {}", it.kind.word(), it.verdict.word());
    workflow.check().unwrap().iter().map(word).collect()
}

#[test]
fn the_retry_table_says_what_may_follow() {
    let check = |state: State, outcome: OutcomeBy, want: Result<Option<CallId>, &str>| {
        let mut workflow = begin(&[], &[]);
        tried(&mut workflow, wanted("pay", MAIN, contract(outcome, false)), state);
        let got = workflow.attempt(wanted("pay", MAIN, contract(outcome, false)));
        let got = got.map(|(_, again)| again).map_err(|refused| refused.to_string());
        assert_eq!(got, want.map_err(str::to_owned), "{state:?} {outcome:?}");
    };
    let done = "operation \"pay\" is done; a second effect would be one too many";
    check(State::Done, OutcomeBy::Query, Err(done));
    check(State::Failed, OutcomeBy::None, Ok(None));
    check(State::Unknown, resend(), Ok(Some(call(0))));
    check(State::Unknown, OutcomeBy::Query, Err("the outcome of operation \"pay\" is not known: it is asked first"));
    let person = "the outcome of operation \"pay\" is not known: no contract says how to find out, so a person has to";
    check(State::Unknown, OutcomeBy::None, Err(person));
    // What leaves no effect may be asked again.
    let mut workflow = begin(&[], &[]);
    tried(&mut workflow, wanted("look", MAIN, Contract::reads("x")), State::Unknown);
    assert_eq!(workflow.attempt(wanted("look", MAIN, Contract::reads("x"))).map(|(at, _)| at), Ok(1));
}

#[test]
fn a_contract_that_cannot_support_the_profile_is_refused_with_the_field() {
    let mut workflow = begin(&[Profile::UnknownSafe], &[]);
    let refused = workflow.attempt(wanted("pay", MAIN, contract(OutcomeBy::None, false))).unwrap_err();
    let said = "act: unknown-safe needs `outcome` in its contract: a query, an acknowledgement, or the original result \
                on a resend";
    assert_eq!(refused.to_string(), said);
    assert!(workflow.attempts.is_empty(), "nothing was taken in");
}

#[test]
fn nothing_is_committed_while_an_outcome_is_unknown_or_missing() {
    let mut workflow = begin(&[Profile::UnknownSafe], &["pay", "ship"]);
    let pay = tried(&mut workflow, wanted("pay", MAIN, contract(OutcomeBy::Query, false)), State::Unknown);
    assert_eq!(workflow.commit(&[], NOW), Err(NotYet::Unknown(vec!["pay".to_owned()])));
    workflow.seen(pay, State::Done, None);
    assert_eq!(workflow.commit(&[], NOW), Err(NotYet::Missing(vec!["ship".to_owned()])));
    tried(&mut workflow, wanted("ship", MAIN, contract(OutcomeBy::Query, false)), State::Failed);
    assert_eq!(workflow.commit(&[], NOW), Err(NotYet::Missing(vec!["ship".to_owned()])));
    tried(&mut workflow, wanted("ship", MAIN, contract(OutcomeBy::Query, false)), State::Done);
    assert_eq!(workflow.commit(&[], NOW), Ok(()));
    assert_eq!((workflow.settle(), kinds(&workflow)), (Stage::Committed, vec![]));
    assert_eq!(workflow.commit(&[], NOW), Err(NotYet::Decided(Stage::Committed)));
}

#[test]
fn a_person_closes_only_what_no_contract_can_end() {
    let mut workflow = begin(&[Profile::UnknownSafe], &[]);
    tried(&mut workflow, wanted("mail", MAIN, contract(OutcomeBy::Query, false)), State::Done);
    let late = tried(&mut workflow, wanted("mail 2", MAIN, contract(OutcomeBy::Query, false)), State::Unknown);
    assert_eq!(workflow.close(), Err(NotYet::Undecided(Stage::Open)));
    workflow.abort().unwrap();
    assert_eq!(workflow.close(), Err(NotYet::Undecided(Stage::Aborting)));
    assert_eq!(workflow.settle(), Stage::Unsettled);
    assert_eq!(workflow.close(), Err(NotYet::Unknown(vec!["mail 2".to_owned()])));
    workflow.seen(late, State::Failed, None);
    let anomalies = kinds(&workflow);
    assert_eq!(workflow.close(), Ok(()));
    assert_eq!((workflow.left(), kinds(&workflow)), (vec!["mail".to_owned()], anomalies), "what is left stays told");
    assert_eq!((workflow.settle(), workflow.close()), (Stage::Closed, Err(NotYet::Decided(Stage::Closed))));
    assert_eq!(workflow.abort(), Err(NotYet::Decided(Stage::Closed)));

    let mut found = begin(&[Profile::UnknownSafe], &[]);
    let lost = tried(&mut found, wanted("mail", MAIN, contract(OutcomeBy::Query, false)), State::Unknown);
    found.abort().unwrap();
    found.settle();
    found.seen(lost, State::Failed, None);
    assert_eq!(found.close(), Err(NotYet::EndsWell { keeps: false }));
}

#[test]
fn a_resend_that_came_back_settles_the_operation() {
    let mut workflow = begin(&[Profile::UnknownSafe], &["pay"]);
    tried(&mut workflow, wanted("pay", MAIN, contract(resend(), false)), State::Unknown);
    let (again, key) = workflow.attempt(wanted("pay", MAIN, contract(resend(), false))).unwrap();
    assert_eq!(key, Some(call(0)));
    workflow.seen(again, State::Done, None);
    assert_eq!(workflow.unknown(), Vec::<String>::new());
    assert_eq!(workflow.commit(&[], NOW), Ok(()));
    assert_eq!((workflow.settle(), kinds(&workflow)), (Stage::Committed, vec![]));
}

#[test]
fn an_abort_undoes_the_newest_first_and_never_what_is_unknown() {
    let mut workflow = begin(&[Profile::CompensationSafe], &[]);
    tried(&mut workflow, wanted("a", MAIN, contract(OutcomeBy::Query, true)), State::Done);
    tried(&mut workflow, wanted("b", MAIN, contract(OutcomeBy::Query, true)), State::Done);
    tried(&mut workflow, wanted("c", MAIN, contract(OutcomeBy::Query, true)), State::Failed);
    let unknown = tried(&mut workflow, wanted("d", MAIN, contract(OutcomeBy::Query, true)), State::Unknown);
    workflow.abort().unwrap();
    let mut undone = Vec::new();
    while let Some(of) = workflow.to_undo() {
        let undo = workflow.undo(of, "act".to_owned(), Arc::default(), Arc::new(contract(OutcomeBy::Query, true)));
        workflow.seen(undo, State::Done, None);
        undone.push(workflow.attempts[of].op.clone());
    }
    assert_eq!(undone, ["b", "a"]);
    assert_eq!((workflow.settle(), workflow.unknown()), (Stage::Unsettled, vec!["d".to_owned()]));
    assert_eq!(kinds(&workflow), ["A4 possible", "A8 possible"]);
    // The query says that it never happened: then nothing is left.
    workflow.seen(unknown, State::Failed, None);
    workflow.resume();
    assert_eq!((workflow.to_undo(), workflow.settle()), (None, Stage::Aborted));
    assert_eq!(kinds(&workflow), ["A8 possible"]);
}

#[test]
fn what_cannot_be_taken_back_is_left_and_said() {
    let mut workflow = begin(&[], &[]);
    tried(&mut workflow, wanted("mail", MAIN, contract(OutcomeBy::Query, false)), State::Done);
    workflow.abort().unwrap();
    assert_eq!((workflow.to_undo(), workflow.settle()), (None, Stage::Unsettled));
    assert_eq!((workflow.left(), kinds(&workflow)), (vec!["mail".to_owned()], vec!["A4 certain".to_owned()]));
    // A failed undo leaves it too.
    let mut workflow = begin(&[], &[]);
    tried(&mut workflow, wanted("a", MAIN, contract(OutcomeBy::Query, true)), State::Done);
    workflow.abort().unwrap();
    let undo = workflow.undo(0, "act".to_owned(), Arc::default(), Arc::new(contract(OutcomeBy::Query, true)));
    workflow.seen(undo, State::Failed, None);
    assert_eq!((workflow.settle(), workflow.left()), (Stage::Unsettled, vec!["a".to_owned()]));
    // It changed nothing, so that it may be tried again; one that nobody knows the end of may not.
    assert_eq!(workflow.to_undo(), Some(0));
    workflow.seen(undo, State::Unknown, None);
    assert_eq!(workflow.to_undo(), None);
}

#[test]
fn what_is_speculative_is_held_until_the_commit_and_dropped_branches_never_go_out() {
    let mut workflow = begin(&[Profile::SpeculationSafe], &["order"]);
    for (op, branch) in [("quote", "x"), ("order", "y"), ("look", "y")] {
        let contract = if op == "look" { Contract::reads("x") } else { contract(OutcomeBy::Query, true) };
        let (at, _) = workflow.attempt(wanted(op, branch, contract)).unwrap();
        let want = if op == "look" { State::Unknown } else { State::Held };
        assert_eq!(workflow.attempts[at].state, want, "{op}");
    }
    assert_eq!(workflow.commit(&["z".to_owned()], NOW), Err(NotYet::NoBranch("z".to_owned())));
    assert_eq!(workflow.commit(&["x".to_owned()], NOW), Err(NotYet::Missing(vec!["order".to_owned()])));
    assert_eq!(workflow.commit(&["y".to_owned()], NOW), Ok(()));
    assert_eq!(workflow.to_go_out(), Some(Out::Send(1)));
    workflow.seen(1, State::Done, None);
    assert_eq!((workflow.settle(), kinds(&workflow)), (Stage::Committed, vec![]));
    // One that was released and whose outcome is unknown keeps it from being a success.
    let mut workflow = begin(&[Profile::SpeculationSafe], &["a"]);
    workflow.attempt(wanted("a", MAIN, contract(OutcomeBy::Query, true))).unwrap();
    assert_eq!((workflow.commit(&[], NOW), workflow.to_go_out()), (Ok(()), Some(Out::Send(0))));
    workflow.seen(0, State::Unknown, None);
    assert_eq!(workflow.to_go_out(), None);
    assert_eq!((workflow.settle(), kinds(&workflow)), (Stage::Unsettled, vec!["A2 possible".to_owned()]));
}

#[test]
fn what_rests_on_one_another_is_settled_as_a_whole() {
    let mut workflow = begin(&[], &[]);
    let (quote, _) = workflow.attempt(wanted("quote", "x", contract(OutcomeBy::Query, true))).unwrap();
    workflow.seen(quote, State::Done, Some(&json!({ "number": "Q-1234", "ok": true, "n": 7 })));
    // Nobody said so: the input repeats a value of the result.
    let input = Arc::new(json!({ "for": ["Q-1234"] }));
    let (order, _) =
        workflow.attempt(Wanted { input, ..wanted("order", "y", contract(OutcomeBy::Query, true)) }).unwrap();
    assert_eq!(workflow.attempts[order].rests_on, [quote]);
    workflow.seen(order, State::Done, None);
    let sphere = NotYet::Sphere { kept: "order".to_owned(), dropped: "quote".to_owned() };
    assert_eq!(workflow.commit(&["y".to_owned()], NOW), Err(sphere));
    let after = Wanted { after: vec!["order".to_owned()], ..wanted("ship", "y", contract(OutcomeBy::Query, true)) };
    let (ship, _) = workflow.attempt(after).unwrap();
    assert_eq!(workflow.attempts[ship].rests_on, [order]);
    let missing = Wanted { after: vec!["pay".to_owned()], ..wanted("z", "y", contract(OutcomeBy::Query, true)) };
    assert_eq!(workflow.attempt(missing), Err(Refused::After("pay".to_owned())));
}

#[test]
fn a_mediated_workflow_holds_its_resources_until_it_is_settled() {
    let mut workflow = begin(&[Profile::ExternallyMediated], &[]);
    let seen = Contract { visibility: Visibility::Private, ..contract(OutcomeBy::Query, true) };
    tried(&mut workflow, wanted("row", MAIN, seen), State::Done);
    let other = Contract::weakest("x");
    assert_eq!((workflow.holds("row", &other, false), workflow.holds("other", &other, true)), (true, false));
    // What changes places with it on this resource need not wait for it.
    let pair = Commutes { kind: "x".to_owned(), resource: "row".to_owned(), state: None };
    assert!(!workflow.holds("row", &Contract { commutes: vec![pair], ..other.clone() }, true));
    workflow.commit(&[], NOW).unwrap();
    workflow.settle();
    assert!(!workflow.holds("row", &other, true));
    // Without the profile it holds what nobody knows the end of, against one that mediates.
    let mut workflow = begin(&[], &[]);
    tried(&mut workflow, wanted("row", MAIN, contract(OutcomeBy::Query, true)), State::Unknown);
    assert_eq!((workflow.holds("row", &other, false), workflow.holds("row", &other, true)), (false, true));
    workflow.seen(0, State::Done, None);
    assert!(!workflow.holds("row", &other, true));
}

fn staging() -> Contract {
    let with = Companions {
        release: Some(Companion::of("send")),
        discard: Some(Companion::of("drop")),
        ..Companions::default()
    };
    let effect = Effect::Stageable { ttl: std::time::Duration::from_secs(60) };
    Contract { effect, with, ..contract(OutcomeBy::Query, false) }
}

#[test]
fn what_a_tool_stages_is_released_at_the_commit_and_dropped_with_its_branch() {
    let begun = || {
        let mut workflow = begin(&[Profile::SpeculationSafe], &["mail"]);
        for (op, branch) in [("draft", "x"), ("mail", "y")] {
            let (at, _) = workflow.attempt(wanted(op, branch, staging())).unwrap();
            assert_eq!(workflow.attempts[at].state, State::Unknown, "its tool holds it, so that it is sent at once");
            workflow.sending(at, call(0), NOW);
            workflow.seen(at, State::Done, Some(&json!({ "id": 7 })));
            assert!(workflow.attempts[at].output.is_some());
        }
        workflow
    };
    let mut workflow = begun();
    workflow.commit(&["y".to_owned()], NOW).unwrap();
    assert_eq!(workflow.to_go_out(), Some(Out::Release(1)));
    let release = workflow.release(1, "send".to_owned(), Arc::default(), Arc::new(Contract::weakest("send")));
    workflow.seen(release, State::Failed, None);
    assert_eq!(workflow.to_go_out(), Some(Out::Release(1)), "what was not released is released again");
    let release = workflow.release(1, "send".to_owned(), Arc::default(), Arc::new(Contract::weakest("send")));
    assert_eq!(workflow.to_go_out(), None, "nobody knows whether it is out");
    workflow.seen(release, State::Done, None);
    assert_eq!((workflow.to_go_out(), workflow.to_undo()), (None, Some(0)));
    let drop = workflow.undo(0, "drop".to_owned(), Arc::default(), Arc::new(Contract::weakest("drop")));
    workflow.seen(drop, State::Done, None);
    assert_eq!((workflow.settle(), kinds(&workflow)), (Stage::Committed, vec![]));
    // Given up: both are dropped, and nobody has seen them.
    let mut workflow = begun();
    workflow.abort().unwrap();
    while let Some(of) = workflow.to_undo() {
        let drop = workflow.undo(of, "drop".to_owned(), Arc::default(), Arc::new(Contract::weakest("drop")));
        workflow.seen(drop, State::Done, None);
    }
    assert_eq!((workflow.settle(), kinds(&workflow)), (Stage::Aborted, vec![]));
    // One that is not released is no success.
    let mut workflow = begun();
    workflow.commit(&["x".to_owned(), "y".to_owned()], NOW).unwrap();
    assert_eq!((workflow.settle(), workflow.unreleased().len()), (Stage::Unsettled, 2));
    // Before, at and after the time at which its tool drops it.
    for (age, want) in [
        (54_999, Ok(())),
        (55_000, Err(NotYet::Expired("mail".to_owned()))),
        (70_000, Err(NotYet::Expired("mail".to_owned()))),
    ] {
        let mut workflow = begun();
        assert_eq!(workflow.commit(&["y".to_owned()], Wall(NOW.0 + age)), want, "{age}");
    }
    assert_eq!(
        begun().commit(&["y".to_owned()], Wall(0)),
        Err(NotYet::Expired("mail".to_owned())),
        "a clock that went back"
    );
}
