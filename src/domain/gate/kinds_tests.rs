//! The kinds of commands, paths and rules by which gates were got around, each in many spellings.
//!
//! `tests/data/gate/kinds.jsonl` has one row a line: `mode` (default when it is not there), the rules, a `command` or a
//! `tool` with its `input`, and `want`: the decision, several of them with `|` between, or with `!` in front anything
//! but that one. Where a row wants `ask` or `deny` a wrong `allow` is what somebody would have paid for.

use serde_json::{Map, Value, json};

use super::check;

fn line(row: &Map<String, Value>) -> Value {
    let mut rules = Map::new();
    for verb in ["allow", "ask", "deny"] {
        rules.extend(row.get(verb).map(|list| (verb.to_owned(), list.clone())));
    }
    let mut line = json!({"cwd": "/ws", "home": "/home/u", "work_dirs": ["/ws"], "mode": "default", "rules": rules});
    for (key, value) in row {
        match key.as_str() {
            "command" => line["call"] = json!({"tool": "Bash", "input": {"command": value}}),
            "tool" => line["call"] = json!({"tool": value, "input": row["input"]}),
            "server" | "input" | "want" | "allow" | "ask" | "deny" => {}
            _ => line[key.as_str()] = value.clone(),
        }
    }
    if let Some(server) = row.get("server") {
        line["call"]["server"] = server.clone();
    }
    line
}

#[test]
fn every_spelling_of_every_kind_is_decided_as_it_should_be() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for text in include_str!("../../../tests/data/gate/kinds.jsonl").lines() {
        let row: Map<String, Value> = serde_json::from_str(text).unwrap();
        let want = row["want"].as_str().unwrap();
        let said = check(&line(&row), &[]).unwrap().decision;
        let word = said.verdict.word();
        let right = match want.strip_prefix('!') {
            Some(not) => word != not,
            None => want.split('|').any(|want| want == word),
        };
        if !right {
            wrong.push(format!("{word} ({}, {}): {text}", said.step.word(), said.reason));
        }
        seen += 1;
    }
    assert!(wrong.is_empty(), "{} of {seen} are wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(seen > 4000, "{seen} rows");
}

/// Texts that make a parser, or what looks at its commands, work: each as often as it fits.
const HOSTILE: &[&str] = &[
    "(",
    "$(",
    "`",
    "${",
    "\"$(",
    "<(",
    "((",
    "{ ",
    "a;",
    "<<a\n",
    "${x:-",
    "sed '1e a b' ",
    "git -c a='b c' ",
    "sh -c 'sh -c ",
    "bash <<< 'bash <<< ",
    "xargs ",
    "sudo ",
    "find . -exec ",
    "docker run ",
    "python3 -c 'a \"b c\" ",
    "cat <<E | bash\nrm x\n",
    "cat <<E\nrm x\nE\n",
    "cd a; ",
    "ln -s a b; ",
    "{a,b}",
    "a{b,c}{d,e} ",
    "ssh h 'a b' ",
    "git -a -b -c ",
];

#[test]
fn hostile_texts_have_an_answer_and_none_is_a_yes() {
    for unit in HOSTILE {
        for chars in [100, 10_000] {
            let command: String = unit.chars().cycle().take(chars).collect();
            let row = json!({"command": command, "deny": ["Bash(rm:*)", "Read(a)", "Edit(b/**)"]});
            let said = check(&line(row.as_object().unwrap()), &[]).unwrap().decision;
            assert_ne!(said.verdict.word(), "allow", "{unit:?} for {chars} characters");
        }
    }
}

#[test]
fn what_stands_behind_more_than_is_looked_at_is_no_yes_in_any_mode() {
    let long = |piece: &str, times: usize, end: &str| format!("{}{end}", piece.repeat(times));
    for command in [
        format!("find . {}-exec rm x \\;", "-exec true \\; ".repeat(100)),
        long("nice ", 20, "rm x"),
        long("env ", 20, "rm x"),
        format!("sh -c '{}rm x'", "true; ".repeat(100)),
        format!("ssh h {}rm x", "true ".repeat(100)),
        long("true; ", 300, "rm x"),
        long("(", 40, "rm x"),
        format!("bash <<'E'\n{}rm x\nE", "true\n".repeat(200)),
    ] {
        for mode in ["default", "acceptEdits", "bypassPermissions", "dontAsk"] {
            let row = json!({"command": command, "mode": mode, "deny": ["Bash(rm:*)"], "allow": ["Bash(nice:*)", "Bash(true)"]});
            let said = check(&line(row.as_object().unwrap()), &[]).unwrap().decision;
            assert_ne!(said.verdict.word(), "allow", "{mode}: {command:.60}");
        }
    }
}
