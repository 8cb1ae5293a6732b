//! What the ledger of all calls costs one of them, besides the log: what it rests on, what it repeats, what is learned of
//! its end. The calls are made through the stations, outside of what is measured.

use std::sync::Arc;
use std::time::{Duration, Instant};

use interlock_domain::effect::Intent;
use interlock_domain::effect::ledger::Ledger;
use interlock_domain::effect::outcome::Known;
use interlock_domain::gate::breaker::Denials;
use interlock_domain::gate::docket::{QuestionIds, judge};
use interlock_domain::gate::policy::Policy;
use interlock_domain::id::{BatchId, Epoch, QuestionId, RunId, ToolName};
use interlock_domain::request::args::Args;
use interlock_domain::request::{Asker, Batch, Request, Via, Wish};
use interlock_domain::risk::Risk;
use interlock_domain::schedule::Board;
use interlock_domain::surface::Surface;
use interlock_domain::surface::contract::Contract;
use interlock_domain::surface::nature::{Class, Key, Keys};
use interlock_domain::surface::tool::{Annotations, Declaration, Declared, Definition, Kind, Text, Tool};
use interlock_domain::time::Tick;
use serde_json::{Value, json};

/// Calls in one round: some hundred runs.
const CALLS: u64 = 4096;

/// Calls of one run.
const CALLS_OF_A_RUN: u64 = 16;

/// Rounds: the first fills the memory of the ledger, the others find it full.
const ROUNDS: u64 = 5;

/// Microseconds a call; nothing when a call was not made, which is a bug of ours.
pub(super) fn per_call() -> Option<f64> {
    let surface = Surface::new([Arc::new(tool()?)]);
    let policy = Policy::plain(Asker { via: Via::Cli, name: "bench".to_owned() });
    let mut ledger = Ledger::default();
    let mut spent = Duration::ZERO;
    for round in 0..ROUNDS {
        let intents: Vec<Intent> =
            (0..CALLS).map(|number| intent(&surface, &policy, round * CALLS + number)).collect::<Option<_>>()?;
        let outputs: Vec<Known> = (0..CALLS)
            .map(|number| Known::Done(Arc::new(json!({ "order": format!("order-{number}"), "value": 42.5 }))))
            .collect();
        let begun = Instant::now();
        for (intent, output) in intents.iter().zip(&outputs) {
            std::hint::black_box(ledger.declared(intent));
            ledger.seen(intent.id(), output);
            std::hint::black_box(ledger.judge(intent.id()));
        }
        spent += begun.elapsed();
    }
    Some(spent.as_secs_f64() * 1e6 / (CALLS * ROUNDS) as f64)
}

fn intent(surface: &Surface, policy: &Policy, number: u64) -> Option<Intent> {
    let input = json!({ "device": "pump-1", "action": "set", "of": format!("order-{}", number / 2) });
    let wish = Wish {
        tool: ToolName::new("bench").ok()?,
        args: Args::new(input).ok()?,
        parent: None,
        again: None,
        part: None,
        classified: None,
        facts: Arc::default(),
        protective: false,
    };
    let run = RunId::new(1, u128::from(number / CALLS_OF_A_RUN));
    let request = Request::number(run, BatchId(number + 1), Batch::new(vec![wish]).ok()?).pop()?;
    let call = surface.resolve(request).ok()?;
    let mut ids = QuestionIds::starting_at(QuestionId(1));
    let (docket, _) = judge(policy, Epoch(0), vec![call], &mut ids, &mut Denials::default(), Tick(0));
    let ticket = Board::default().admit(docket.clear().ok()?.pop()?).ok()?;
    Intent::declare(ticket, &mut Ledger::default()).ok()
}

fn tool() -> Option<Tool> {
    Tool::new(Definition {
        name: ToolName::new("bench").ok()?,
        title: Text::default(),
        description: Text::default(),
        input_schema: Value::Bool(true),
        output_schema: None,
        annotations: Annotations::default(),
        kind: Kind::Declared(Declared {
            mcp: None,
            verb_in: None,
            verbs: Default::default(),
            otherwise: Declaration {
                class: Class::Safe,
                keys: Keys { reads: Vec::new(), writes: vec![Key::Named("pump-1".to_owned())] },
                risk: Risk::Operate,
                protective: false,
                contract: Arc::new(Contract::weakest("bench")),
                patience: Duration::from_secs(1),
            },
        }),
    })
    .ok()
}
