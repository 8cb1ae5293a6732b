//! The map.
#![deny(unsafe_code)]

pub mod agents;
pub mod config;
pub mod mcp;
