//! The map.
#![deny(unsafe_code)]

pub mod bench;
pub mod config;
pub mod engine;
pub mod sys;
