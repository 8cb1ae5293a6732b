//! The map.
#![deny(unsafe_code)]

pub mod agents;
pub mod bench;
pub mod boot;
pub mod cli;
pub mod config;
pub mod control;
pub mod engine;
pub mod mcp;
pub mod plant;
pub mod record;
pub mod store;
pub mod sys;
pub mod tool;
