//! One integration binary, modules inside.

mod mcp;
