//! The second layer of the evidence, of tasks: what a worker gives back against what was promised of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use interlock::engine::keeper;
use interlock::engine::supervisor::{Finished, Settings, Supervisor, TaskSpec};
use interlock::engine::tasks::{self, Tasks};
use interlock::record::Recorded;
use interlock::store::chain::Algorithm;
use interlock::store::read::{self, Query};
use interlock::store::state::State;
use interlock::store::{Limits, Store};
use interlock_domain::id::TaskId;
use interlock_domain::surface::outputs::Outputs;
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(60);

fn rows(state: &std::path::Path, kind: &str) -> Vec<Recorded> {
    read::query(state, &Query { kind: Some(kind.to_owned()), limit: Some(1_000), ..Query::default() }).unwrap()
}

#[test]
fn the_output_of_a_task_is_judged_whatever_became_of_the_task() {
    let dir = tempfile::tempdir().unwrap();
    let state = State::open(dir.path()).unwrap();
    let store = Store::open(&interlock::store::Settings {
        state: dir.path().to_owned(),
        boot_id: "0b5c9f4e-8f5e-4f0e-9d55-2f6a2f1f7b11".to_owned(),
        version: "0.1.0".to_owned(),
        clock: interlock::engine::stamp::now,
        limits: Limits::default(),
        algorithm: Algorithm::default(),
    })
    .unwrap()
    .store;
    let (keeper, _kept) = keeper::start(state).unwrap();
    let (offer, notices) = tasks::channel();
    let offer = move |notice| offer.try_send(notice).map_err(tokio::sync::mpsc::error::TrySendError::into_inner);
    let supervisor = Supervisor::start(Settings::default(), Box::new(offer)).unwrap();
    let (tasks, owner) = Tasks::new(supervisor.clone(), notices, store.writer(), keeper, TaskId(1));
    let owner = owner.start().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();

    let schema = json!({
        "type": "object",
        "properties": {
            "code": { "const": 0, "description": "what the accelerator's library returned" },
            "score": { "type": "number", "minimum": 0, "maximum": 1 },
        },
        "required": ["code"],
    });
    let promised = Arc::new(Outputs::new(&schema).unwrap());
    // The library returned a time-out code: an output that is not as promised, and no death.
    let outputs = [
        (json!({ "code": 107_020 }), "invalid", Some("INVALID_OUTPUT")),
        (json!({ "code": 0, "score": "0.93" }), "valid_after_normalization", None),
        (json!({ "code": 0, "score": 0.93 }), "valid", None),
    ];
    for (output, ..) in &outputs {
        let output = output.clone();
        let work = move |_| Finished::Done(output);
        let born = tasks.spawn(TaskSpec::new("npu", "asks an accelerator"), Arc::clone(&promised), work);
        runtime.block_on(born).unwrap().unwrap();
    }
    // One that says nothing, and one that only fails, have no output to judge.
    for finished in [Finished::Stopped(Value::Null), Finished::Failed("no device".to_owned())] {
        let open = Arc::new(Outputs::new(&json!({ "type": "object", "properties": { "a": {} } })).unwrap());
        runtime.block_on(tasks.spawn(TaskSpec::new("quiet", ""), open, move |_| finished)).unwrap().unwrap();
    }
    let until = Instant::now() + PATIENCE;
    while supervisor.figures().living > 0 {
        assert!(Instant::now() < until, "the workers do not end");
        std::thread::yield_now();
    }
    drop(tasks);
    supervisor.end();
    drop(supervisor);
    owner.join().unwrap();
    store.close();

    let mut judged = rows(dir.path(), "validity");
    // They ended in whatever order.
    judged.sort_by_key(|row| row.row.task);
    assert_eq!(judged.len(), outputs.len());
    for (row, (output, verdict, cause)) in judged.iter().zip(&outputs) {
        assert_eq!((row.row.to.as_deref(), row.row.cause.as_deref()), (Some(*verdict), *cause), "{output}");
        assert_eq!(row.row.generation, Some(1));
    }
    let detail: Value = serde_json::from_str(judged[0].row.detail.as_deref().unwrap()).unwrap();
    assert_eq!(detail["invalid"], json!([{ "at": "/code", "expected": "exactly 0", "found": "number 107020" }]));
    let detail: Value = serde_json::from_str(judged[1].row.detail.as_deref().unwrap()).unwrap();
    assert_eq!(detail["normalized"], json!([{ "at": "/score", "done": ["text_to_number"], "as": 0.93 }]));
    let ends: Vec<_> = rows(dir.path(), "lifecycle").into_iter().filter(|row| row.row.from.is_some()).collect();
    assert!(ends.iter().all(|row| row.row.to.as_deref() == Some("STOPPED")), "{ends:?}");
    assert_eq!(ends.len(), 5);
}
