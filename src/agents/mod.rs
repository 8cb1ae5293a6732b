//! The MCP server: what an AI agent reaches of us, over stdio and Streamable HTTP, in both eras of the protocol.
//!
//! This room turns messages into requests to the engine and endings into results. It decides nothing: a call that
//! an agent sends walks the same path as one that an operator speaks, and there is no way from here to answer a
//! question of the gate but the person behind the client (elicitation). An agent cannot approve itself: no tool and
//! no method of this room approves anything.
//!
//! Everything is bounded: the length of a message, the messages that wait for a slow reader, the calls in flight, the
//! sessions, the connections. A client that misbehaves loses its own message, stream or session, and nobody else's.

pub mod ask;
pub mod bridge;
pub mod call;
pub mod core;
pub mod ctx;
pub mod engine;
pub mod front;
pub mod list;
pub mod listen;
pub mod outcome;
pub mod parked;
pub mod session;
pub mod tasks;
