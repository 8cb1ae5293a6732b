//! Command sets of others: Home Assistant's intents, tables of a plant, and phrases that are too near to each other.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/ha-intents").join(name)
}

fn interlock(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_interlock")).args(args).env("LANG", "C").output().expect("runs")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

/// The names that the fixtures give to areas and to everything else.
fn names(what: &str) -> String {
    let text = std::fs::read_to_string(data("fixtures/zh-cn.fixtures.yaml")).expect("the fixtures");
    let (areas, entities) = text.split_once("entities:").expect("areas, then entities");
    let part = if what == "area" { areas } else { entities };
    let names = part.lines().filter_map(|line| line.trim().strip_prefix("- name: "));
    names.map(|name| name.trim_matches('"')).collect::<Vec<_>>().join(",")
}

fn imported(folder: &Path, lists: bool) -> PathBuf {
    let out = folder.join("home.toml");
    let sentences = data("sentences/zh-cn");
    let mut args =
        vec!["commands", "import", sentences.to_str().expect("UTF-8"), "--out", out.to_str().expect("UTF-8")];
    let (area, name) = (format!("area={}", names("area")), format!("name={}", names("name")));
    if lists {
        args.extend(["--list", &area, "--list", &name]);
    }
    let output = interlock(&args);
    assert!(output.status.success(), "{}", stderr(&output));
    out
}

/// Right, of how many, and wrong.
fn figures(set: &Path, tests: &str) -> (u64, u64, u64) {
    let tests = data(tests);
    let output =
        interlock(&["commands", "test", tests.to_str().expect("UTF-8"), "--commands", set.to_str().expect("UTF-8")]);
    let text = stdout(&output);
    let last: Value = serde_json::from_str(text.lines().last().unwrap_or_default()).expect("figures");
    let count = |key: &str| last[key].as_u64().unwrap_or_default();
    let all = ["right", "asked", "missed", "wrong"].map(count).iter().sum();
    (count("right"), all, count("wrong"))
}

#[test]
fn home_assistants_own_tests_and_their_homophones_are_understood() {
    let folder = tempfile::tempdir().expect("a folder");
    let set = imported(folder.path(), true);
    let (right, all, wrong) = figures(&set, "zh-cn.tests.jsonl");
    assert!(right * 100 >= all * 95 && all == 116 && wrong == 0, "{right} of {all}, {wrong} wrong");
    let (right, all, wrong) = figures(&set, "zh-cn.tests.homophone.jsonl");
    assert!(right * 100 >= all * 90 && all == 50 && wrong == 0, "{right} of {all}, {wrong} wrong");
    // Without the lists a slot takes any text.
    let set = imported(folder.path(), false);
    let output = interlock(&["match", "--json", "--commands", set.to_str().expect("UTF-8"), "打开储物间灯"]);
    let found: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert_eq!(found["command"], "HassTurnOn", "{found}");
    let held = found["slots"].as_object().expect("slots");
    assert!(held.values().any(|value| value.as_str().is_some_and(|text| text.starts_with("储物间"))), "{found}");
}

#[test]
fn a_table_of_a_plant_is_imported_and_a_mistake_names_its_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let table = folder.path().join("plant.csv");
    let write = |text: &str| std::fs::write(&table, text).expect("written");
    let head = "id,text,risk,aliases,patterns,device,action\n";
    write(&format!("{head}mixer_start,启动搅拌机,operate,开搅拌,启动[{{device}}]搅拌机,mixer,start\n"));
    let path = table.to_str().expect("UTF-8");
    let output = interlock(&["commands", "import", path]);
    assert!(output.status.success(), "{}", stderr(&output));
    let set = folder.path().join("plant.toml");
    std::fs::write(&set, stdout(&output)).expect("written");
    let set = set.to_str().expect("UTF-8");
    let found = interlock(&["match", "--json", "--commands", set, "把二号搅拌机启动一下"]);
    let found: Value = serde_json::from_str(&stdout(&found)).expect("JSON");
    assert_eq!(
        (found["command"].as_str(), found["slots"]["device"].as_u64()),
        (Some("mixer_start"), Some(2)),
        "{found}"
    );

    write(&format!("{head}mixer_start,启动搅拌机,operate,,,mixer,start\nmixer_stop,停止搅拌机,often,,,mixer,stop\n"));
    let output = interlock(&["commands", "import", path]);
    assert_eq!(output.status.code(), Some(78));
    assert!(stderr(&output).contains("plant.csv:3:1: the risk \"often\" is not known"), "{}", stderr(&output));
    let output = interlock(&["commands", "import", "/nonexistent"]);
    assert_eq!(output.status.code(), Some(66), "{}", stderr(&output));
    let output = interlock(&["commands", "import", path, "--list", "area"]);
    assert_eq!(output.status.code(), Some(64), "{}", stderr(&output));
}

#[test]
fn phrases_that_are_too_near_are_told_with_their_places() {
    let folder = tempfile::tempdir().expect("a folder");
    let commands = folder.path().join("commands.toml");
    let config = folder.path().join("interlock.toml");
    std::fs::write(&config, "version = 1\n[commands]\nfiles = [\"commands.toml\"]\n").expect("written");
    let check = |second: &str| {
        let text = format!(
            "version = 1\n[[command]]\nid = \"tap_up\"\ntext = \"分接头升档\"\nrisk = \"operate\"\n\
             [[command]]\nid = \"other\"\ntext = \"{second}\"\nrisk = \"operate\"\n"
        );
        std::fs::write(&commands, text).expect("written");
        interlock(&["check", "--config", config.to_str().expect("UTF-8")])
    };
    let near = check("分接头声档");
    let told = stdout(&near);
    assert_eq!(near.status.code(), Some(1), "{told}");
    assert!(told.contains("commands.toml:4: \"分接头升档\" (tap_up)"), "{told}");
    assert!(told.contains("commands.toml:8: \"分接头声档\" (other) cannot be told apart by sound"), "{told}");
    let far = check("打开照明");
    assert_eq!(far.status.code(), Some(0), "{}", stdout(&far));
    // The shipped set is held to the same.
    let shipped = folder.path().join("shipped.toml");
    std::fs::write(&shipped, "version = 1\n").expect("written");
    let output = interlock(&["check", "--config", shipped.to_str().expect("UTF-8")]);
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
}

#[test]
fn words_to_skip_may_stand_anywhere_and_take_no_hazard_along() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("home.yaml");
    let text = "language: zh-cn\nskip_words: [小爱, 给我整, 千万不要]\nintents:\n  HassTurnOn:\n    data:\n      - sentences:\n          \
                - \"打开客厅灯\"\n  HassTurnOff:\n    data:\n      - sentences:\n          - \"关闭客厅灯\"\n";
    std::fs::write(&file, text).expect("written");
    let set = folder.path().join("home.toml");
    let (file, set) = (file.to_str().expect("UTF-8"), set.to_str().expect("UTF-8"));
    let output = interlock(&["commands", "import", file, "--out", set]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("home.yaml:2: skip_words: 千万不要 is left out"), "{}", stderr(&output));
    for (said, expected) in [
        ("打开小爱客厅给我整灯", Some("HassTurnOn")),
        ("小爱千万不要打开客厅灯", None),
        ("打开客厅不小爱要灯", None),
        ("小爱", None),
    ] {
        let output = interlock(&["match", "--json", "--commands", set, said]);
        let found: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
        assert_eq!(found["command"].as_str(), expected, "{found}");
    }
    // A set that a person writes may not skip them either.
    std::fs::write(set, "version = 1\nskip_words = [\"请\", \"别\"]\n").expect("written");
    let output = interlock(&["commands", "list", "--commands", set]);
    assert!(
        stderr(&output).contains("home.toml:2:20: skip_words: \"别\" is a negation and cannot be skipped"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_phrase_that_needs_a_value_is_held_against_the_others_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let commands = folder.path().join("commands.toml");
    let config = folder.path().join("interlock.toml");
    std::fs::write(&config, "version = 1\n[commands]\nfiles = [\"commands.toml\"]\n").expect("written");
    let check = |second: &str| {
        let slots = "slots = [{ name = \"value\", type = \"number\", required = true }]\n";
        let text = format!(
            "version = 1\n[[command]]\nid = \"mixer_set\"\ntext = \"设置搅拌机转速\"\nrisk = \"operate\"\n{slots}\
             [[command]]\nid = \"other\"\ntext = \"{second}\"\nrisk = \"operate\"\n{slots}"
        );
        std::fs::write(&commands, text).expect("written");
        interlock(&["check", "--config", config.to_str().expect("UTF-8")])
    };
    let near = check("设定搅拌机转速");
    assert_eq!(near.status.code(), Some(1), "{}", stdout(&near));
    assert!(stdout(&near).contains("(mixer_set) and"), "{}", stdout(&near));
    let far = check("设置搅拌机温度");
    assert_eq!(far.status.code(), Some(0), "{}", stdout(&far));
}

#[test]
fn hotwords_are_what_people_say() {
    let output = interlock(&["commands", "list", "--hotwords"]);
    let words: Vec<String> = stdout(&output).lines().map(str::to_owned).collect();
    for word in ["泵房", "启动水泵", "断路器合闸"] {
        assert!(words.iter().any(|one| one == word), "{word}");
    }
    let output = interlock(&["commands", "list", "--hotwords", "--json"]);
    let found: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert!(found["transcript_names"].as_array().is_some_and(|names| names.len() == 16), "{found}");
    assert!(found["transcript_terms"].as_array().is_some_and(|terms| terms.len() > 300), "{found}");
}

#[test]
fn a_description_is_held_against_its_schema() {
    let folder = tempfile::tempdir().expect("a folder");
    let tools = folder.path().join("tools.json");
    let text = r#"{"tools": [
        {"name": "read_level", "description": "Reads a level. `tank` (string, required).",
         "inputSchema": {"type": "object", "properties": {"tank": {"type": "string"}}, "required": ["tank"]}},
        {"name": "set_level", "description": "Read-only. Sets `tnk` to `value`, a string.",
         "inputSchema": {"type": "object", "properties": {"tank": {"type": "string"}, "value": {"type": "number"}},
                         "required": ["tank", "value"]},
         "annotations": {"readOnlyHint": false}}]}"#;
    std::fs::write(&tools, text).expect("written");
    let skill = folder.path().join("level");
    std::fs::create_dir(&skill).expect("made");
    std::fs::write(skill.join("SKILL.md"), "---\nname: levels\ndescription: Levels.\n---\nThe tool `read_levle`.\n")
        .expect("written");
    let output = interlock(&[
        "learn",
        "describe",
        tools.to_str().expect("UTF-8"),
        skill.join("SKILL.md").to_str().expect("UTF-8"),
    ]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let rows: Vec<Value> = stdout(&output).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(rows[0]["faults"].as_array().map(Vec::len), Some(0), "{}", rows[0]);
    let faults = rows[1]["faults"].to_string();
    assert!(faults.contains("tnk") && faults.contains("change nothing") && faults.contains("a string"), "{faults}");
    assert!(
        rows[1]["repaired"].as_str().is_some_and(|text| text.contains("`value` (number, required)")),
        "{}",
        rows[1]
    );
    assert_eq!(rows[2]["faults"].as_array().map(Vec::len), Some(2), "{}", rows[2]);
    assert!(
        rows[2]["repaired"]
            .as_str()
            .is_some_and(|text| text.contains("name: level\n") && text.contains("`read_level`"))
    );
}
