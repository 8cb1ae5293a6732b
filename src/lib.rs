//! The map.
#![deny(unsafe_code)]

pub mod agents;
pub mod cli;
pub mod config;
pub mod engine;
pub mod mcp;
pub mod plant;
pub mod sys;
pub mod tool;
