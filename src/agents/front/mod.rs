//! The two transports: bytes in, bytes out. No MCP meaning beyond the choice of the era and the rules of the transport.

pub mod answer;
pub mod body;
pub mod door;
pub mod http;
pub mod rate;
pub mod stdio;
pub mod stream;
mod turn;
