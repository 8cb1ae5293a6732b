//! What MCP says on the wire, as pure functions on JSON values: JSON-RPC messages, the two eras of the protocol, and
//! the header rules of the newer one, event streams, names, and the words between a tool and its caller.
//!
//! Nothing in here waits, reads or writes: a rule is a function of the bytes and headers that came, so that a table
//! can test it. Messages stay raw `Value`s on purpose. Typed models of the protocol drop the members that they do not
//! know, and a tool of tomorrow must come through unchanged.

pub mod era;
pub mod header;
pub mod lines;
pub mod name;
pub mod rpc;
pub mod shape;
pub mod sse;
pub mod upward;
