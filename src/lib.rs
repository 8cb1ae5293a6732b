//! Interlock (联锁): between whoever proposes an action and whatever acts.
//!
//! This is **the map**: what there is, in reading order, what must stay true, and why it was decided so.
//!
//! # The one idea
//!
//! **`domain` decides, the rest acts.** A decision is a plain value, made from plain values and the time that the caller
//! passes in. Acting is doing what a decision says and reporting back. No file does both.
//!
//! ```text
//!  operator: voice, command line        AI agents (MCP)
//!          |                                 |
//!       control ------------------------- agents          surfaces: bytes <-> domain words
//!            \___________________________/
//!                         v
//!                      engine                              owners: one task or thread owns one machine
//!                      |    ^
//!               Action |    | Input + now
//!                      v    |
//!           store    tool    sys                           adapters: the only code that touches the world
//!                      :
//!                mcp   record                              written forms, no I/O
//!                      :
//!                   domain                                 machines, contracts, verdicts; no I/O, no clock, no async
//! ```
//!
//! Arrows are calls. Dependencies point down; everyone may name `domain`, which names nobody. `tests/tidy/main.rs` holds the
//! table of who may import what, and fails when it is not kept.
//!
//! # The rooms, in reading order
//!
//! - [`interlock_domain`]: the chain `request, surface, gate, schedule, effect, closure, event, repair, mediator`, each
//!   naming only what stands before it; `trace` (a run's graph, from facts of the log); `device` (points, codec, plans,
//!   process interlocks), `command` (understanding), `liveness`; `agent` (the loop of a language model), `context` (what
//!   keeps its history within a window).
//! - [`boot`]: the only place that constructs everything, and the only start and stop order.
//! - [`engine`]: `mediator` carries the machine's actions out, `listener` owns the active commands and the short
//!   dialogues, `learner` what was learned and its versions, `agent` drives the runs of a language model, `supervisor`
//!   watches our threads, `tasks` turns its notices into evidence and alarms, `own` runs the tools that act on the
//!   daemon itself, `keeper` owns `state.db`, `ground` looks after the log and its disk, `resolver` finds out what became
//!   of unknown effects, `workflow` carries groups of effects with a guarantee, `watch` supervises what is not ours.
//! - [`store`]: the evidence log (one writer, group commit, hash chain, signed head), its readers, and the state.
//! - [`record`]: the one written form of an event: disk, command line and MCP share it.
//! - [`infer`]: the classifier through ONNX Runtime, and the passages of manuals. Neither ever acts.
//! - [`provider`]: the wire formats of model providers: bytes, cut anywhere, into blocks, and blocks into the next request.
//!   `domain::block` has the blocks; `domain::repair` mends a history and says what each provider would refuse of it.
//! - [`tool`]: runs an order: device (Modbus), files, shell, HTTP, tools of the MCP servers behind us (`tool::mcp`, whose
//!   place in the surface is `engine::servers`).
//! - [`sys`]: what only the kernel can say or do; `unsafe` lives here.
//! - [`control`]: the Unix socket. [`wyoming`]: voice front ends. [`console`]: pages for people. [`agents`] and [`mcp`]: MCP in both eras. [`cli`]: verbs, hints, exit codes.
//! - [`export`]: brokers and collectors are told what happens, out of the log and by its numbers (`feed`); an alarm desk is
//!   told what stands (`notice`, `webhook`), a broker what devices say (`sparkplug`); figures for whoever scrapes them.
//! - [`config`]: TOML into checked settings, unknown keys refused. [`plant`]: the embedded simulator.
//! - [`mod@bench`]: the figures of `interlock bench`.
//!
//! # How one call moves
//!
//! `Wish -> Request -> Call -> Permit -> Ticket -> Intent -> Journaled -> Order + Claim -> Outcome -> Settlement ->
//! Reply`, and one way off the line before the start: `Refusal`. Each value is made only by the station before; skipping
//! one does not compile (`tests/compile_fail`). A batch's questions are all answered before its first effect starts. The
//! intent of anything that may change the world is on the disk before the order goes out; after a crash, an intent
//! without an outcome is `unknown`, and a person or a query settles it in a row beside it, never in its place.
//!
//! # What must stay true
//!
//! - Each request has exactly one settlement; no outcome without an earlier intent in the log. The simulation
//!   (`tests/sim`) looks for it in crashed, slow and frozen worlds.
//! - What is mediated cannot approve itself: a process that a tool started gets no verb on the socket, and MCP has no
//!   tool that answers a question.
//! - The supervisor never waits for a thread that it watches, and is a plain thread started before the runtime.
//! - Every queue, buffer, file and wait has a named bound with its reason.
//! - A settlement is never rewritten; evidence rows are never updated.
//!
//! # Decisions, and where the plan was changed
//!
//! - The classifier only votes (`domain::command::vote`): alone it takes one reject in twelve for a command, at any
//!   confidence. No segmenter is loaded: pairs of syllables find every right passage of the noisy questions, words two
//!   in three.
//! - What was learned bends the classifier's head (`domain::learn::head`), and the head is derived, never stored: the same
//!   version of the learned set gives the same head, so a rollback needs nothing of its own.
//! - The larger model (a sentence encoder with a linear head) is made by `cargo xtask models` and votes like the small
//!   one. It is not the default: it knows more words and no sounds, and understands fewer misheard sentences.
//! - A repair of a tool's description or of a skill is an overlay of the learned set, in force only while the text is word
//!   for word what it was made for.
//! - Two packages: the boundary that matters is "no tokio, no SQLite, no clock at the centre", and review alone does
//!   not hold it.
//! - The mediator numbers its own records and the writer numbers the rows: the log has other customers (tasks, heard
//!   sentences), so a row's number cannot be known before it is written. A receipt joins the two.
//! - The tools that act on the daemon itself live in `engine::own`, not in `tool`: what they act on is owned there.
//! - `control` hands `interlock mcp` to the front of `agents`: one socket, one rule about who may speak.
//! - The console is one more surface over the verbs of `control`, told in the name of a person with a token; what `control`
//!   can say, it shows, and it decides nothing.
//! - The MCP front is hyper on raw JSON: no library serves both eras and their tasks.
//! - The MCP client towards other servers is raw JSON too, on the same wire types. The plan said rmcp; measured in one
//!   small program (stripped, fat LTO, `opt-level = "s"`), rmcp 3.11.0 brings it from 2.32 to 3.99 MB, its loop costs
//!   110 to 190 µs a call, and its typed models would still need three adapters to let unknown members through.
//! - A tool of another server is trusted as it was first seen; what changes later waits for a person. A change of the
//!   tools is no new epoch: an open question about a pump does not fall because a foreign server restarted.
//! - A composite call (a subagent, a workflow's commit) leaves the line when it starts, and what the law of order puts
//!   behind it waits outside the line (`schedule::hold`): a parent that waits for its child holds nothing.
//! - Facts about paths are gathered by whoever submits, before the call; the tool opens the canonical path without
//!   following links, so that what was judged is what is opened.
//! - An exporter has no queue: its queue is the log, and its place in it is a number in `state.db` that only an
//!   acknowledgement moves. Each connection is a new client with a new session, so that no library's memory counts.
//! - What stands (alarms, questions) is no row with a number: what a webhook and the journal were told of it is a ledger in
//!   `state.db`, so that each end is told once, also that of an alarm which was cleared while nobody ran.
//! - A receiver that cannot be set up is an alarm, not a daemon that does not start.
//! - Sparkplug's payload and HMAC are written by hand: a dozen fields and fifteen lines, against a code generator and one
//!   more crate. No OpenTelemetry library: its JSON is a form like the others, and its queue would be a second one.
#![deny(unsafe_code)]

pub mod agents;
pub mod bench;
pub mod boot;
pub mod cli;
pub mod config;
pub mod console;
pub mod control;
pub mod engine;
pub mod export;
pub mod infer;
pub mod mcp;
pub mod plant;
pub mod provider;
pub mod record;
pub mod store;
pub mod sys;
pub mod tool;
pub mod wyoming;
