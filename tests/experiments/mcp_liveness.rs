//! How long after its death, or after its last beat, a client of Tasks hears that a worker is gone or silent.
//!
//! The client speaks plain 2025-11-25 over a pipe and knows nothing of us: what it measures is the arrival of
//! `notifications/tasks/status`. Behind it are the real supervisor, real threads and the real front; only the gate is
//! left out.

#![expect(clippy::print_stdout, reason = "an experiment prints its table")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use interlock::agents::bridge::watch_workers;
use interlock::agents::core::{Core, Settings as Front};
use interlock::agents::engine::{
    Asker, Calls, Ending, Engine, EngineRequest, Later, NotSubmitted, Offers, Output, ReplyView, Stopping, Submitted,
    TaskSupport, ToolView,
};
use interlock::agents::front::stdio;
use interlock::engine::supervisor::{Finished, Heart, Settings, Supervisor, TaskSpec};
use interlock::engine::tasks::{self, Tasks};
use interlock::mcp::upward::Line;
use interlock::store::chain::Algorithm;
use interlock::store::state::State;
use interlock::store::{Limits as StoreLimits, Store};
use interlock::{engine, sys};
use interlock_domain::id::{BatchId, CallId, RunId, TaskId, ToolName};
use interlock_domain::liveness::judge::Limits;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::sync::{broadcast, mpsc, watch};

use crate::{asked, asked_count};

const TAU: Duration = Duration::from_secs(1);
const SCAN: Duration = Duration::from_millis(100);

/// When the last worker did what is measured: nanoseconds since the start of the run.
#[derive(Debug, Default)]
struct Moment(AtomicU64);

/// Starts the worker that it was told to.
#[derive(Debug)]
struct Workers {
    tasks: Tasks,
    fate: Mutex<Fate>,
    began: Instant,
    moment: Arc<Moment>,
    calls: AtomicU64,
}

#[derive(Debug, Clone, Copy)]
enum Fate {
    Dies,
    Panics,
    Hangs,
}

impl Calls for Workers {
    fn tools(&self, _holder: Option<&str>) -> Arc<[ToolView]> {
        let schema = json!({"type": "object"});
        Arc::new([ToolView {
            name: ToolName::new("work").unwrap(),
            title: "work".into(),
            description: String::new(),
            input_schema: schema,
            output_schema: None,
            annotations: json!({}),
            contract: json!({}),
            tasks: TaskSupport::Optional,
            raw: None,
        }])
    }

    fn open_run(&self, _asker: Asker) -> Later<Result<RunId, Stopping>> {
        Box::pin(std::future::ready(Ok(RunId::new(1, 1))))
    }

    fn submit(&self, run: RunId, _tool: ToolName, _args: Value, _line: Line) -> Later<Result<Submitted, NotSubmitted>> {
        let fate = *self.fate.lock().unwrap();
        let (began, moment) = (self.began, Arc::clone(&self.moment));
        let work = move |heart: Heart| {
            // Alive for a while, so that its client knows it as that.
            let until = Instant::now() + Duration::from_millis(300);
            while Instant::now() < until {
                heart.beat();
                moment.0.store(u64::try_from(began.elapsed().as_nanos()).unwrap(), Ordering::Release);
                std::thread::park_timeout(Duration::from_millis(20));
            }
            match fate {
                Fate::Dies => {
                    moment.0.store(u64::try_from(began.elapsed().as_nanos()).unwrap(), Ordering::Release);
                    sys::thread::raw_exit()
                }
                Fate::Panics => {
                    moment.0.store(u64::try_from(began.elapsed().as_nanos()).unwrap(), Ordering::Release);
                    panic!("as the experiment wants it")
                }
                Fate::Hangs => {
                    while !heart.should_stop() {
                        std::thread::park_timeout(Duration::from_millis(20));
                    }
                    Finished::Stopped(Value::Null)
                }
            }
        };
        let number = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let call = CallId { run, batch: BatchId(number), position: 0 };
        let supervisor = self.tasks.supervisor().clone();
        Box::pin(async move {
            let spec = TaskSpec { tau: Some(TAU), ..TaskSpec::new("experiment", "") };
            let born = supervisor.spawn(spec, work).await.map_err(|_| NotSubmitted::Stopping)?;
            let task = born.map_err(|_| NotSubmitted::Busy)?.task;
            let reply = ReplyView {
                ending: Ending::Done,
                code: "done".into(),
                output: Some(Output::Object(json!({"task": task.to_string()}))),
                message: String::new(),
                evidence: None,
                task: Some(task),
            };
            let question = Box::pin(std::future::ready(None));
            Ok(Submitted { call, question, reply: Box::pin(std::future::ready(Some(reply))) })
        })
    }
}

/// A client on a pipe.
struct Client {
    to: tokio::io::WriteHalf<DuplexStream>,
    from: tokio::io::Lines<BufReader<tokio::io::ReadHalf<DuplexStream>>>,
}

impl Client {
    async fn send(&mut self, message: Value) {
        self.to.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn until(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line = self.from.next_line().await.unwrap().unwrap();
            let message: Value = serde_json::from_str(&line).unwrap();
            if fits(&message) {
                return message;
            }
        }
    }
}

/// A death and a silence as a client hears of them; a minute.
#[test]
fn heard() {
    if !asked("mcp-liveness") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let state = State::open(dir.path()).unwrap();
    let store = Store::open(&interlock::store::Settings {
        state: dir.path().to_owned(),
        boot_id: "0b5c9f4e-8f5e-4f0e-9d55-2f6a2f1f7b11".to_owned(),
        version: "0.1.0".to_owned(),
        clock: engine::stamp::now,
        limits: StoreLimits::default(),
        algorithm: Algorithm::default(),
    })
    .unwrap()
    .store;
    let (keeper, _kept) = engine::keeper::start(state).unwrap();
    let (offer, notices) = tasks::channel();
    let offer = move |notice| offer.try_send(notice).map_err(mpsc::error::TrySendError::into_inner);
    let limits = Limits { scan: SCAN, ..Limits::default() };
    let supervisor = Supervisor::start(Settings { limits, ..Settings::default() }, Box::new(offer)).unwrap();
    let (tasks, owner) = Tasks::new(supervisor, notices, store.writer(), keeper, TaskId(1));
    let _owner = owner.start().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(measure(tasks));
}

async fn measure(tasks: Tasks) {
    let (requests, mut inbox) = mpsc::channel(8);
    // The front waits for a place in it.
    let supervisor = tasks.supervisor().clone();
    tokio::spawn(async move {
        while let Some(request) = inbox.recv().await {
            if let EngineRequest::StopWorker(worker) = request {
                drop(supervisor.stop(worker));
            }
        }
    });
    let (moment, began) = (Arc::new(Moment::default()), Instant::now());
    let fate = Mutex::new(Fate::Dies);
    let workers =
        Arc::new(Workers { tasks: tasks.clone(), fate, began, moment: Arc::clone(&moment), calls: AtomicU64::new(0) });
    let (_offering, offers) = watch::channel(Offers::default());
    let engine = Engine { calls: workers.clone(), requests, news: broadcast::Sender::new(4), offers };
    let core = Core::new(engine, Front::default());
    let (_stop, stopped) = watch::channel(false);
    tokio::spawn(watch_workers(Arc::clone(&core), tasks, stopped));
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let (reader, writer) = tokio::io::split(theirs);
    tokio::spawn(stdio::serve(reader, writer, Arc::clone(&core)));
    // The experiment stands in for whoever writes tasks down, which the front waits for.
    let keeping = Arc::clone(&core);
    tokio::spawn(async move {
        let mut made = keeping.tasks.made();
        loop {
            let upto = *made.borrow_and_update();
            keeping.tasks.keep(upto);
            if made.changed().await.is_err() {
                return;
            }
        }
    });
    let (from, to) = tokio::io::split(ours);
    let mut client = Client { to, from: BufReader::new(from).lines() };
    let info = json!({"name": "experiment", "version": "1"});
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info});
    client.send(json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})).await;
    client.until(|message| message["id"] == 0).await;
    client.send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
    println!("tau {TAU:?}, scan {SCAN:?}; milliseconds from the death, or from the last beat, to the notification");
    for (name, fate, status) in [
        ("the thread is gone", Fate::Dies, "failed"),
        ("it panics", Fate::Panics, "failed"),
        ("it hangs", Fate::Hangs, "working"),
    ] {
        *workers.fate.lock().unwrap() = fate;
        let mut took = Vec::new();
        for turn in 0..asked_count(10) {
            let id = 1000 + turn;
            let call = json!({"name": "work", "arguments": {}, "task": {"ttl": 60_000}});
            client.send(json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": call})).await;
            let made = client.until(|message| message["id"] == id).await;
            let task = made["result"]["task"]["taskId"].as_str().unwrap().to_owned();
            let heard = client
                .until(|message| {
                    message["method"] == "notifications/tasks/status"
                        && message["params"]["taskId"] == task.as_str()
                        && message["params"]["status"] == status
                        && message["params"]["statusMessage"].as_str().is_some_and(|text| !text.is_empty())
                })
                .await;
            let at = began.elapsed() - Duration::from_nanos(moment.0.load(Ordering::Acquire));
            took.push(at.as_secs_f64() * 1e3);
            if turn == 0 {
                println!("  {name}: {}", heard["params"]["statusMessage"]);
            }
            if status == "working" {
                let cancel =
                    json!({"jsonrpc": "2.0", "id": 5000 + turn, "method": "tasks/cancel", "params": {"taskId": task}});
                client.send(cancel).await;
                client.until(|message| message["id"] == 5000 + turn).await;
            }
        }
        took.sort_by(f64::total_cmp);
        println!("{name:<20} n {} p50 {:.1} max {:.1}", took.len(), took[took.len() / 2], took[took.len() - 1]);
    }
}
