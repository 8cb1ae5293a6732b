//! The binary: the library does everything.

fn main() {}
