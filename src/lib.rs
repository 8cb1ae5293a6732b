//! The map.
#![deny(unsafe_code)]

pub mod config;
pub mod sys;
pub mod plant;
pub mod tool;
