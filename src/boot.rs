//! The only place that constructs everything, and the only start and stop order.
//!
//! Start: signals, lock and log, state, supervisor, runtime, plant, tools, mediator, listener, surfaces, READY. Stop:
//! STOPPING, surfaces stop accepting, workers are asked to stop, the mediator settles or abandons, the log flushes.

mod agent;
mod commands;
mod console;
mod export;
mod learning;
mod mcp;
pub mod model;
mod own;
mod reload;
mod sandbox;
mod surface;
pub mod update;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use interlock_domain::command::understanding::Learned;
use interlock_domain::device::table::Devices;
use interlock_domain::id::{BatchId, QuestionId, TaskId};
use interlock_domain::liveness::judge::Limits;
use interlock_domain::repair;
use interlock_domain::surface::Surface;
use serde_json::{Value, json};
use thiserror::Error;
use tokio::sync::{mpsc, watch};

use crate::agents::bridge::{bridge, watch_workers};
use crate::agents::core::{Core, Settings};
use crate::config::{self, Config, ConfigError, EvidenceHash, Tier};
use crate::control::{self, Context};
use crate::engine::agent::Handle as Models;
use crate::engine::ground::Ground;
use crate::engine::handle::Mediator;
use crate::engine::keeper;
use crate::engine::learner::{self, Learner};
use crate::engine::listener::Listener;
use crate::engine::log::Log;
use crate::engine::mediator::{Owner, Parts};
use crate::engine::own::Own;
use crate::engine::people::{KeptPerson, People};
use crate::engine::resolver;
use crate::engine::servers;
use crate::engine::supervisor::{self, Supervisor, Vital, Watchdog};
use crate::engine::tasks::{self, Tasks};
use crate::engine::workflow::Workflows;
use crate::plant;
use crate::record::event::trace;
use crate::store::chain::Algorithm;
use crate::store::error::StoreError;
use crate::store::state::State;
use crate::store::state::mcp::KeptTask;
use crate::store::{self, Store};
use crate::sys::notify::{self, Notifier};
use crate::sys::signal::{Signal, Signals};
use crate::sys::{clock, family, machine};
use crate::wyoming;

pub use commands::{Clash, CommandSet, clashes, load as load_commands};

/// Threads of the runtime: the box has few cores, and everything that may block has threads of its own.
const RUNTIME_THREADS: usize = 2;

/// Threads for file work and DNS; a flood of reads waits instead of making threads.
const BLOCKING_THREADS: usize = 16;

/// Where the daemon's things are.
#[derive(Debug, Clone)]
pub struct Places {
    /// The configuration; `None` for the embedded default.
    pub config: Option<PathBuf>,
    /// The state directory.
    pub state: PathBuf,
    /// The control socket.
    pub socket: PathBuf,
    /// The checks of the machine, for the console: of these places; true for Chinese.
    pub health: fn(&Places, bool) -> Vec<Value>,
}

/// Why there is no daemon.
#[derive(Debug, Error)]
pub enum BootError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The state directory cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The control socket cannot be made.
    #[error("socket {}: {error}", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// A port cannot be had.
    #[error("{what} cannot listen on {address}: {error}")]
    Listen {
        /// Who wanted it.
        what: &'static str,
        /// The address.
        address: SocketAddr,
        /// What the system says.
        error: std::io::Error,
    },
    /// The environment that the service manager gave is wrong.
    #[error("{0}")]
    Environment(String),
    /// The ladder reached its last rung: systemd starts the daemon anew.
    #[error("{0}")]
    Escalated(String),
    /// Anything else.
    #[error("{0:#}")]
    Other(#[from] anyhow::Error),
}

/// Whether the receivers of `[export]` could be set up, as far as whoever asks may look.
///
/// # Errors
/// The first file that is named and does not read, with the place of its name.
pub fn receivers(config: &Config) -> Result<(), ConfigError> {
    export::examine(config)
}

/// The devices that a configuration gives, and whether they are those of the embedded plant.
///
/// # Errors
/// When the embedded plant is wrong, or an interlock of the configuration does not fit it.
pub fn devices(config: &Config) -> Result<(Arc<Devices>, bool), ConfigError> {
    if !config.devices.is_empty() {
        return Ok((Arc::clone(&config.devices), false));
    }
    let (_, devices) = plant::model::Model::parse(plant::BUILT_IN, Path::new(plant::BUILT_IN_NAME))?;
    Ok((Arc::new(config::interlock::bind(devices, &config.interlocks)?), true))
}

/// Runs the daemon until it is told to stop.
///
/// # Errors
/// Why it could not be started.
pub fn run(places: Places) -> Result<(), BootError> {
    crate::engine::journal::start();
    let mut config = config::load(places.config.as_deref())?;
    let in_force = update::settle(&mut config, &places.state);
    let commands = load_commands(&config)?;
    // Before any thread: each inherits the blocked signals.
    let signals = Signals::take().map_err(|error| BootError::Other(error.into()))?;
    if let Err(error) = family::become_subreaper() {
        tracing::warn!(%error, "not the subreaper: a process that forks twice could leave the family");
    }
    let variable = |name: &str| std::env::var(name).ok();
    let environment = |error: notify::NotifyError| BootError::Environment(error.to_string());
    let notifier = Notifier::new(variable("NOTIFY_SOCKET").as_deref()).map_err(environment)?;
    let period = notify::watchdog_period(
        variable("WATCHDOG_USEC").as_deref(),
        variable("WATCHDOG_PID").as_deref(),
        std::process::id(),
    )
    .map_err(environment)?;

    let starting = own::Starting::begin(notifier.another().map_err(environment)?)
        .map_err(|error| BootError::Other(error.into()))?;
    let opened = Store::open(&store::Settings {
        state: places.state.clone(),
        boot_id: machine::boot_id().unwrap_or_else(|| "unknown".to_owned()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        clock: crate::engine::stamp::now,
        limits: store::Limits { log_len_max: config.evidence_quota, ..store::Limits::default() },
        algorithm: match config.evidence_hash {
            EvidenceHash::Sha256 => Algorithm::Sha256,
            EvidenceHash::Sm3 => Algorithm::Sm3,
        },
    })?;
    let begin = |state: &mut State| {
        Ok(Numbers {
            batch: BatchId(state.set_aside("batch", u64::from(u32::MAX))?),
            question: QuestionId(state.set_aside("question", 16)?),
            task: TaskId(state.set_aside("task", tasks::ASIDE)?),
        })
    };
    let (state, numbers, not_kept) = State::open_or_remember(&places.state, clock::wall(), begin)?;
    let learned = learned(&state)?;
    let remembered =
        Remembered { approved: state.approved_tools()?, tasks: state.kept_tasks()?, people: state.kept_people()? };
    let (keeper, keeper_thread) = keeper::start(state).map_err(|error| BootError::Other(error.into()))?;
    let writer = opened.store.writer();
    own::note_previous(&writer, opened.previous_ended, opened.previous_head);
    own::note_restored(&writer, &places.state);
    in_force.note(&places.state, &writer);
    own::forget_ground_alarms(&keeper);

    // Before the runtime: a wedged runtime must not stop the supervisor.
    let (offer, notices) = tasks::channel();
    let turns = writer.clone();
    let watchdog = match period {
        None => None,
        Some(period) => Some(Watchdog {
            notifier: notifier.another().map_err(environment)?,
            period,
            vital: Some(Vital { name: "evidence", count: Box::new(move || turns.turns()) }),
        }),
    };
    let (end_process, escalated) = own::end_process();
    let supervisor = Supervisor::start(
        supervisor::Settings {
            limits: Limits { scan: config.scan, tau: config.tau, ..Limits::default() },
            tier: match config.tier {
                Tier::Auto => None,
                Tier::Pidfd => Some(supervisor::Tier::Pidfd),
                Tier::Tryjoin => Some(supervisor::Tier::Tryjoin),
                Tier::Sentinel => Some(supervisor::Tier::Sentinel),
                Tier::Proc => Some(supervisor::Tier::Proc),
            },
            first_task: numbers.task,
            reap_orphans: true,
            watchdog,
            end_process: Some(end_process),
            ..supervisor::Settings::default()
        },
        Box::new(move |notice| {
            offer.try_send(notice).map_err(|error| match error {
                mpsc::error::TrySendError::Full(notice) | mpsc::error::TrySendError::Closed(notice) => notice,
            })
        }),
    )
    .map_err(|error| BootError::Environment(error.to_string()))?;

    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(RUNTIME_THREADS)
        .max_blocking_threads(BLOCKING_THREADS)
        .enable_all()
        .build()
        .map_err(|error| BootError::Other(error.into()))?;
    let mends = repair::mend(opened.open_calls.iter().filter_map(trace));
    let (tasks, tasks_owner) = Tasks::new(supervisor.clone(), notices, writer.clone(), keeper.clone(), numbers.task);
    let tasks_running = tasks_owner.start().map_err(|error| BootError::Other(error.into()))?;
    let (status, said) = watch::channel("ready".to_owned());
    let ground = Ground {
        state: places.state.clone(),
        writer: writer.clone(),
        keeper: keeper.clone(),
        notifier: notifier.another().map_err(environment)?,
        status,
        not_kept,
        known: Default::default(),
    };
    own::start(&supervisor, runtime.handle(), config.tau, ground);
    let made = Made {
        places,
        config,
        in_force,
        commands,
        learned,
        notifier,
        signals,
        writer: writer.clone(),
        keeper,
        tasks,
        numbers,
        mends,
        remembered,
        starting,
        said,
        escalated,
    };
    let served = runtime.block_on(serve(made));
    // Nothing that still blocks may hold the end up: its call is written down as unknown already.
    runtime.shutdown_timeout(Duration::from_secs(1));
    supervisor.end();
    // What the supervisor said last is in the log before its last row.
    if tasks_running.join().is_err() {
        tracing::error!("the owner of the tasks panicked");
    }
    let why = match &served {
        Ok(()) => "asked to".to_owned(),
        Err(error) => error.to_string(),
    };
    own::note_end(&writer, &why);
    drop(writer);
    let ended = opened.store.close();
    if ended.unwritten > 0 || ended.panicked {
        tracing::error!(unwritten = ended.unwritten, panicked = ended.panicked, "the evidence log did not close whole");
    }
    drop(keeper_thread);
    served
}

#[derive(Clone, Copy)]
struct Numbers {
    batch: BatchId,
    question: QuestionId,
    task: TaskId,
}

/// What was made before the runtime.
struct Made {
    places: Places,
    config: Config,
    in_force: update::InForce,
    commands: CommandSet,
    learned: (Learned, u64),
    notifier: Notifier,
    signals: Signals,
    writer: store::queue::Writer,
    keeper: keeper::Keeper,
    tasks: Tasks,
    numbers: Numbers,
    mends: Vec<repair::Mend>,
    remembered: Remembered,
    starting: own::Starting,
    /// What the status line says.
    said: watch::Receiver<String>,
    /// Why the ladder wants the process to end.
    escalated: mpsc::Receiver<String>,
}

/// What `state.db` has of MCP's last life.
struct Remembered {
    approved: BTreeMap<(String, String), String>,
    tasks: Vec<KeptTask>,
    people: Vec<KeptPerson>,
}

async fn serve(made: Made) -> Result<(), BootError> {
    let Made {
        places,
        config,
        in_force,
        commands,
        learned,
        notifier,
        signals,
        writer,
        keeper,
        tasks,
        numbers,
        mends,
        remembered,
        starting,
        said,
        mut escalated,
    } = made;
    let plant = if config.devices.is_empty() { Some(start_plant().await?) } else { None };
    let devices = match &plant {
        None => Arc::clone(&config.devices),
        Some(plant) => Arc::new(config::interlock::bind(plant.devices.clone(), &config.interlocks)?),
    };
    let (model_sender, model_receiver) = watch::channel(None);
    let grounds = surface::grounds(&config, &places.state, model_receiver.clone());
    let access = mcp::access(&config)?;
    let settings = mcp::servers(&config, &places.state)?;
    let (down, updates) = crate::tool::mcp::Servers::new();
    let tools = surface::tools(&config, Arc::clone(&devices), &grounds, down.clone())?;
    let base = surface::base(&devices, &config)?;
    let visible = Surface::new(base.clone());
    let log = Log::new(places.state.clone());
    let (stop, stopped) = watch::channel(false);
    let (surface_sender, surface_receiver) = watch::channel(visible.clone());
    sandbox::tell();
    let (grounds_sender, grounds_receiver) = watch::channel(Arc::new(grounds));
    let (mediator, inbox) = Mediator::new(numbers.batch, surface_receiver, grounds_receiver.clone());
    let (questions, mut asked) = watch::channel(numbers.question);
    let (looks, sought) = mpsc::channel(resolver::WAITING_MAX);
    let (devices_sender, devices_receiver) = watch::channel(Arc::clone(&devices));
    let resolver = resolver::Resolver::new(sought, mediator.clone(), devices_receiver);
    let resolver_running = tokio::spawn(resolver.run());
    let workflows = Workflows::open(mediator.clone(), keeper.clone(), log.clone(), writer.clone()).await;
    let workflows = Arc::new(workflows.map_err(|error| BootError::Other(error.into()))?);
    let (recipes_sender, recipes) = watch::channel(Arc::clone(&config.recipes));
    let own =
        Own::new(tasks.clone(), keeper.clone(), log.clone(), places.state.clone(), Arc::clone(&workflows), recipes);
    let own = Arc::new(own);
    let model = agent::settings(&config, &grounds_receiver.borrow()).unwrap_or_else(|error| {
        // The plant does not stop for it.
        tracing::error!(kind = "MODEL_OFF", "{error}; there is no language model until the next reload");
        None
    });
    model_sender.send_replace(model);
    let (state, evidence) = (places.state.clone(), writer.clone());
    let told = watch::Sender::new(Arc::from(learned.0.told.as_slice()));
    let models = Models::new(mediator.clone(), evidence, log.clone(), state, model_receiver, told.subscribe());
    let told_tools = told.subscribe();
    let open = mends.len();
    let owner = Owner::new(Parts {
        inbox,
        writer: writer.clone(),
        tools,
        own,
        agent: models.clone(),
        surface: visible,
        settings: surface::settings(&config, &places),
        first_question: numbers.question,
        mends,
        looks,
        questions,
    });
    let mediator_running = tokio::spawn(owner.run());
    if open > 0 {
        tracing::warn!(calls = open, "calls that the last run left open were settled; see `interlock ask list`");
    }
    let later = model::later(&config, &in_force, &places, tasks.supervisor().clone(), writer.clone(), models.clone())?;
    let (librarian, inference) = (later.librarian.clone(), later.inference.clone());
    let (learner, learner_inbox) = Learner::new(keeper.clone());
    let basis = commands.basis(Arc::clone(&devices));
    let ears = basis.ears(&learned.0, learned.1).map_err(|error| BootError::Other(error.into()))?;
    let (listener, ears) = Listener::new(ears, mediator.clone(), writer.clone(), learner.clone(), later);
    let listener_running = tokio::spawn(ears.run());
    let learner_owner =
        learner::Owner::new(learner_inbox, basis, learned, keeper.clone(), writer.clone(), listener.clone(), told);
    let learner_running = tokio::spawn(learner_owner.run());
    let (servers, servers_owner) = servers::new(
        down,
        updates,
        servers::Parts {
            keeper: keeper.clone(),
            writer: writer.clone(),
            mediator: mediator.clone(),
            surface: surface_sender.clone(),
            approved: remembered.approved,
            told: told_tools,
        },
    );
    let servers_running = tokio::spawn(servers_owner.run());
    let tools_running = tokio::spawn(learning::watch_tools(surface_sender.subscribe(), learner.clone()));
    servers.configure(base, Arc::clone(&config.rules), settings).await;
    let (profiles_sender, profiles) = watch::channel(Arc::new(mcp::profiles(&config.mcp)));
    let (engine, bridge) = bridge(mediator.clone(), tasks.clone(), servers.clone(), profiles);
    let bridge_running = tokio::spawn(bridge.run());
    let core = Core::new(engine, Settings { access, ..Settings::default() });
    mcp::restore(&core, remembered.tasks);
    let keeping = tokio::spawn(mcp::keep_tasks(Arc::clone(&core), keeper.clone(), stopped.clone()));
    let workers_running = tokio::spawn(watch_workers(Arc::clone(&core), tasks.clone(), stopped.clone()));

    let (mcp_address, mcp_running) = match config.mcp.listen {
        None => (None, None),
        Some(address) => {
            let listening = tokio::net::TcpListener::bind(address).await;
            let listening = listening.map_err(|error| BootError::Listen { what: "MCP", address, error })?;
            let bound = listening.local_addr().map_err(|error| BootError::Listen { what: "MCP", address, error })?;
            let front = crate::agents::front::http::serve(listening, Arc::clone(&core), stopped.clone());
            (Some(bound), Some(tokio::spawn(front)))
        }
    };
    let mut voice_running = Vec::new();
    let wyoming_address = match config.wyoming_listen {
        None => None,
        Some(address) => {
            let refused = |error| BootError::Listen { what: "Wyoming", address, error };
            let listening = tokio::net::TcpListener::bind(address).await.map_err(refused)?;
            let bound = listening.local_addr().map_err(refused)?;
            voice_running.push(tokio::spawn(wyoming::serve_tcp(listening, listener.clone(), stopped.clone())));
            Some(bound)
        }
    };
    if let Some(path) = &config.wyoming_socket {
        let refused = |error| BootError::Socket { path: path.clone(), error };
        let listening = control::bind(path).map_err(refused)?;
        voice_running.push(tokio::spawn(wyoming::serve_unix(listening, listener.clone(), stopped.clone())));
    }
    let voice_socket = config.wyoming_socket.clone();
    let sources = export::Sources {
        log: log.clone(),
        keeper: keeper.clone(),
        acks: writer.acks(),
        ears: listener.clone(),
        stop: stopped.clone(),
    };
    let measured = export::Measured {
        tasks: tasks.clone(),
        mediator: mediator.clone(),
        servers: servers.clone(),
        models: models.clone(),
        writer: writer.clone(),
    };
    let exports = export::start(&config, sources, measured).await?;
    let (rules_sender, rules) = watch::channel(Arc::clone(&config.rules));
    let (console_sender, console_access) = watch::channel(console::access(&config)?);
    let console_settings = console::settings(console_access, &places, rules);
    let console_listener = console::listen(&config).await?;
    let console_address = console_listener.as_ref().and_then(|listener| listener.local_addr().ok());
    let socket =
        control::bind(&places.socket).map_err(|error| BootError::Socket { path: places.socket.clone(), error })?;
    let (reload, mut reloads) = mpsc::channel(1);
    let updates_told = watch::Sender::new(in_force.to_json());
    let context = Arc::new(Context {
        listener: listener.clone(),
        mediator: mediator.clone(),
        tasks: tasks.clone(),
        workflows,
        learner: learner.clone(),
        log,
        people: People::new(keeper.clone(), writer.clone(), remembered.people),
        mcp: Arc::clone(&core),
        models,
        servers: servers.clone(),
        status: status(
            &places,
            mcp_url(&core, mcp_address),
            wyoming_address,
            console::url(&config, console_address),
            plant.as_ref().map(|plant| plant.address),
            exports.metrics,
        ),
        receivers: exports.receivers.clone(),
        updates: updates_told.subscribe(),
        reload,
    });
    let console_running = console_listener
        .map(|listener| console::start(listener, Arc::clone(&context), console_settings, stopped.clone()));
    let control_running = tokio::spawn(control::serve(socket, context, stopped));
    let mut reloader = reload::Reloader {
        places: places.clone(),
        config,
        learner,
        librarian,
        inference,
        updates_told,
        writer,
        mediator: mediator.clone(),
        servers: servers.clone(),
        surface_sender,
        grounds_sender,
        model_sender,
        devices_sender,
        recipes_sender,
        profiles_sender,
        rules_sender,
        console_sender,
        mcp: Arc::clone(&core),
        plant: plant.as_ref().map(|plant| plant.devices.clone()),
    };

    drop(starting);
    notifier.ready(&said.borrow());
    tracing::info!(
        socket = %places.socket.display(),
        mcp = mcp_url(&core, mcp_address).as_deref().unwrap_or("off"),
        state = %places.state.display(),
        "ready"
    );
    machine::give_memory_back();
    let mut signals = carry_signals(signals)?;
    let mut aside = numbers.question.0 + 16;
    let mut ended = Ok(());
    loop {
        tokio::select! {
            signal = signals.recv() => match signal {
                Some(Signal::End) => break,
                Some(Signal::Reload) => {
                    notifier.reloading(clock::now());
                    let reloaded = reloader.reload().await;
                    reload::tell(&notifier, &reloaded, &said.borrow());
                }
                // The thread is gone: the service manager has stronger means.
                None => std::future::pending().await,
            },
            Some(back) = reloads.recv() => {
                notifier.reloading(clock::now());
                let reloaded = reloader.reload().await;
                reload::tell(&notifier, &reloaded, &said.borrow());
                let _ = back.send(reloaded);
            }
            Some(why) = escalated.recv() => {
                ended = Err(BootError::Escalated(why));
                break;
            }
            Ok(()) = asked.changed() => {
                // Numbers are set aside ahead of use, so that none is used twice after a crash.
                let newest = asked.borrow_and_update().0;
                if newest + 8 >= aside && keeper.with(|state| state.set_aside("question", 16).map(|_| ())).await.is_ok() {
                    aside += 16;
                }
            }
        }
    }
    notifier.stopping("stopping");
    tracing::info!("stopping");
    let _ = stop.send(true);
    core.stop();
    control_running.await.ok();
    if let Some(running) = console_running {
        running.await.ok();
    }
    for running in voice_running {
        running.await.ok();
    }
    if let Some(running) = mcp_running {
        running.await.ok();
    }
    let _ = tasks.supervisor().stop_all().await;
    mediator.stop().await;
    mediator_running.await.ok();
    servers.stop().await;
    keeping.await.ok();
    exports.ended().await;
    drop(reloader);
    tools_running.abort();
    learner_running.abort();
    listener_running.abort();
    bridge_running.abort();
    servers_running.abort();
    workers_running.abort();
    resolver_running.abort();
    let _ = std::fs::remove_file(&places.socket);
    if let Some(path) = voice_socket {
        let _ = std::fs::remove_file(path);
    }
    ended
}

/// The learned set that is active, and its version. One that does not read is told of and left out: a box that
/// understands what it was shipped with is better than one that does not start.
fn learned(state: &State) -> Result<(Learned, u64), StoreError> {
    let Some(version) = state.versions()?.pop() else { return Ok((Learned::default(), 0)) };
    let number = version.version;
    Ok(match learner::read(&version) {
        Ok(learned) => (learned, number),
        Err(error) => {
            tracing::error!(%error, "nothing learned is active; see `interlock learn list --versions`");
            (Learned::default(), number)
        }
    })
}

/// Where agents reach us.
fn mcp_url(core: &Core, address: Option<SocketAddr>) -> Option<String> {
    let scheme = if core.access().tls.is_some() { "https" } else { "http" };
    address.map(|address| format!("{scheme}://{address}/mcp"))
}

async fn start_plant() -> Result<plant::server::Plant, BootError> {
    let started = plant::server::start(plant::BUILT_IN, Path::new(plant::BUILT_IN_NAME), 0).await;
    started.map_err(|error| BootError::Other(anyhow::anyhow!("the embedded plant: {error}")))
}

/// Carries signals into the runtime from a thread of its own, which ends with the process: it waits in the kernel.
fn carry_signals(signals: Signals) -> Result<mpsc::Receiver<Signal>, BootError> {
    let (sender, receiver) = mpsc::channel(4);
    let carry = move || {
        use std::os::fd::AsFd;
        loop {
            let mut wait = [nix::poll::PollFd::new(signals.as_fd(), nix::poll::PollFlags::POLLIN)];
            // Interrupted or not: look what has come.
            let _ = nix::poll::poll(&mut wait, nix::poll::PollTimeout::NONE);
            while let Ok(Some(signal)) = signals.next() {
                if sender.blocking_send(signal).is_err() {
                    return;
                }
            }
        }
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(carry)
        .map_err(|error| BootError::Other(error.into()))?;
    Ok(receiver)
}

fn status(
    places: &Places,
    mcp: Option<String>,
    wyoming: Option<SocketAddr>,
    console: Option<String>,
    plant: Option<SocketAddr>,
    metrics: Option<SocketAddr>,
) -> Value {
    let sandbox = crate::sys::sandbox::support();
    json!({
        "pid": std::process::id(),
        "state": places.state.display().to_string(),
        "socket": places.socket.display().to_string(),
        "mcp": mcp,
        "wyoming": wyoming.map(|address| format!("tcp://{address}")),
        "console": console,
        "plant": plant.map(|address| format!("tcp://{address}")),
        "metrics": metrics.map(|address| format!("http://{address}/metrics")),
        "version": env!("CARGO_PKG_VERSION"),
        "sandbox": { "landlock": sandbox.landlock, "seccomp": sandbox.seccomp },
        "ready": true,
    })
}
