//! The map.
#![deny(unsafe_code)]

pub mod config;
