//! Measured claims: each prints its table and what it was made of. They take long or need root, so that each runs
//! only when it is asked for by name: `INTERLOCK_EXPERIMENT=NAME cargo test --release --test experiments -- --nocapture`.
#![cfg(test)]

mod article;
mod dialects;
mod effects;
mod evidence;
mod faults;
mod learning;
mod liveness;
mod mcp_liveness;
mod mediation;
mod power;
mod routes;
mod understanding;

/// Whether the experiment of this name was asked for.
fn asked(name: &str) -> bool {
    std::env::var("INTERLOCK_EXPERIMENT").is_ok_and(|asked| asked == name)
}

/// How often, when the variable `INTERLOCK_EXPERIMENT_COUNT` says something else than `usual`.
fn asked_count(usual: u64) -> u64 {
    std::env::var("INTERLOCK_EXPERIMENT_COUNT").ok().and_then(|count| count.parse().ok()).unwrap_or(usual)
}
