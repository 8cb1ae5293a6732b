//! Shell strings at the gate: no panic, no hang, and what is refused stays refused whatever allows it.
#![no_main]

use interlock_domain::gate::check::check;
use interlock_domain::surface::shell::Script;
use libfuzzer_sys::fuzz_target;
use serde_json::json;

fuzz_target!(|text: &str| {
    let script = Script::parse(text);
    let _ = (script.commands().len(), script.path_words());
    let line = |allow: &[&str]| {
        json!({
            "id": 1, "cwd": "/ws", "home": "/home/u", "work_dirs": ["/ws"], "mode": "default",
            "rules": {"allow": allow, "ask": [], "deny": ["Bash(rm:*)"]},
            "call": {"tool": "Bash", "input": {"command": text}},
        })
    };
    let verdict = |allow: &[&str]| check(&line(allow), &[]).ok().map(|checked| checked.decision.verdict.word());
    let plain = verdict(&[]);
    if plain == Some("deny") {
        assert_eq!(verdict(&["Bash(*)"]), Some("deny"));
    }
});
