//! From what an operator said to what a tool is asked.

pub mod bind;
