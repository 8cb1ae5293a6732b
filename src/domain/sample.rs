//! Passports for tests, made the only way there is: through the stations.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use crate::gate::breaker::Denials;
use crate::gate::docket::{Permit, QuestionIds, judge};
use crate::gate::policy::Policy;
use crate::id::{BatchId, CallId, Epoch, QuestionId, RunId, ToolName};
use crate::request::args::Args;
use crate::request::{Asker, Batch, Request, Via, Wish};
use crate::risk::Risk;
use crate::surface::contract::{Contract, OutcomeBy};
use crate::surface::nature::{Class, Key, Keys, Lane};
use crate::surface::tool::{Annotations, Declaration, Declared, Definition, Kind, Text, Tool};
use crate::surface::{Call, Surface};
use crate::time::Tick;

pub(crate) fn run() -> RunId {
    RunId::new(1, 1)
}

pub(crate) fn id(batch: u64, position: u32) -> CallId {
    CallId { run: run(), batch: BatchId(batch), position }
}

pub(crate) fn policy(via: Via) -> Policy {
    Policy::plain(Asker { via, name: "somebody".to_owned() })
}

/// A tool `act` whose verbs say what they are: `look`, `write:KEY`, `read:KEY`, `lane:NAME`, `alone`, `back`,
/// `danger`, `stop:KEY` (protective), `query`, `resend`, `family` (a composite) and `family:KEY` (one with a key).
pub(crate) fn tool() -> Tool {
    let key = |key: &str| vec![Key::Named(key.to_owned())];
    let say = |class, reads: &[&str], writes: &[&str], risk, changes: bool| Declaration {
        class,
        keys: Keys {
            reads: reads.iter().flat_map(|one| key(one)).collect(),
            writes: writes.iter().flat_map(|one| key(one)).collect(),
        },
        risk,
        protective: false,
        contract: Arc::new(if changes { Contract::weakest("act") } else { Contract::reads("look") }),
        patience: Duration::from_secs(10),
    };
    let outcome = |outcome| Declaration {
        contract: Arc::new(Contract { outcome, ..Contract::weakest("act") }),
        ..say(Class::Safe, &[], &[], Risk::Operate, true)
    };
    let lane = |name: &str| Class::Queue(Lane(name.into()));
    let look = say(Class::Safe, &[], &[], Risk::Read, false);
    let verbs = [
        ("look", look.clone()),
        ("read:a", say(Class::Safe, &["a"], &[], Risk::Read, false)),
        ("write:a", say(Class::Safe, &[], &["a"], Risk::Operate, true)),
        ("write:b", say(Class::Safe, &[], &["b"], Risk::Operate, true)),
        ("lane:1", say(lane("1"), &[], &[], Risk::Operate, true)),
        ("lane:2", say(lane("2"), &[], &[], Risk::Operate, true)),
        ("alone", say(Class::Exclusive, &[], &[], Risk::Operate, true)),
        ("back", say(Class::Background, &[], &[], Risk::Operate, true)),
        ("danger", say(Class::Safe, &[], &[], Risk::Dangerous, true)),
        ("stop:a", Declaration { protective: true, ..say(Class::Safe, &[], &["a"], Risk::Dangerous, true) }),
        ("family", say(Class::Composite, &[], &[], Risk::Read, false)),
        ("family:a", say(Class::Composite, &[], &["a"], Risk::Read, false)),
        ("query", outcome(OutcomeBy::Query)),
        ("resend", outcome(OutcomeBy::ResendOriginal { retention: Duration::from_secs(60) })),
    ];
    let definition = Definition {
        name: ToolName::new("act").unwrap(),
        title: Text::default(),
        description: Text::default(),
        input_schema: json!({"type": "object", "required": ["verb"], "properties": {"verb": {"type": "string"}}}),
        output_schema: None,
        annotations: Annotations::default(),
        kind: Kind::Declared(Declared {
            mcp: None,
            verb_in: Some("verb".to_owned()),
            verbs: verbs.into_iter().map(|(verb, declaration)| (verb.to_owned(), declaration)).collect(),
            otherwise: look,
        }),
    };
    Tool::new(definition).unwrap()
}

pub(crate) fn surface() -> Surface {
    Surface::new([Arc::new(tool())])
}

pub(crate) fn wish(verb: &str) -> Wish {
    Wish {
        tool: ToolName::new("act").unwrap(),
        args: Args::new(json!({ "verb": verb })).unwrap(),
        parent: None,
        again: None,
        classified: None,
        part: None,
        facts: Arc::default(),
        protective: false,
    }
}

pub(crate) fn batch(verbs: &[&str]) -> Batch {
    Batch::new(verbs.iter().map(|verb| wish(verb)).collect()).unwrap()
}

pub(crate) fn calls(number: u64, verbs: &[&str]) -> Vec<Call> {
    let requests = Request::number(run(), BatchId(number), batch(verbs));
    requests.into_iter().map(|request| surface().resolve(request).unwrap()).collect()
}

/// Permits for verbs that an operator may do without a question.
pub(crate) fn permits(number: u64, verbs: &[&str]) -> Vec<Permit> {
    permitted(calls(number, verbs), Via::Cli)
}

/// Permits for calls that may go on without a question.
pub(crate) fn permitted(calls: Vec<Call>, via: Via) -> Vec<Permit> {
    let mut ids = QuestionIds::starting_at(QuestionId(1));
    let (docket, refused) = judge(&policy(via), Epoch(0), calls, &mut ids, &mut Denials::default(), Tick(0));
    assert!(refused.is_empty(), "{refused:?}");
    docket.clear().unwrap()
}
