//! Understanding, as `interlock match` shows it: the shipped set, sentences that must come to nothing, and the figures
//! that the corpus is held to (`tests/data/corpus/README.md` says what they are worth).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use interlock::cli::match_verb;
use interlock::config::{commands, lexicon};
use interlock_domain::command::cascade::{Stages, Step, Walk};
use interlock_domain::command::decide::Thresholds;
use interlock_domain::command::definition::{Definition, Slot, SlotKind};
use interlock_domain::command::resolution::{Likeness, Outcome, Resolution, SlotValue};
use interlock_domain::command::template::{Part, Template};
use interlock_domain::command::understanding::{Learned, Understanding};
use interlock_domain::learn::gate::{Base, Example, Policy, Proposal, Verdict, review};
use interlock_domain::risk::Risk;
use serde_json::Value;

fn shipped() -> Understanding {
    match_verb::load(None).expect("the embedded set compiles")
}

fn ask(understanding: &Understanding, text: &str) -> Resolution {
    match Walk::new(understanding, text, Stages::PURE).next() {
        Step::Done(resolution) => resolution,
        Step::Classify(_) | Step::Retrieve(_) => panic!("neither stage is on"),
    }
}

/// The command of the resolution, incomplete or not.
fn meant(resolution: &Resolution) -> Option<&str> {
    match &resolution.outcome {
        Outcome::Command(one) | Outcome::Incomplete { understood: one, .. } => Some(&one.command),
        Outcome::Sequence(_) | Outcome::Knowledge | Outcome::Ambiguous | Outcome::Rejected(_) => None,
    }
}

/// Sentences of a template in which each choice is taken once, with a value in each slot.
fn sentences(parts: &[Part], command: &Definition) -> Vec<String> {
    let mut all = vec![String::new()];
    for part in parts {
        let pieces: Vec<String> = match part {
            Part::Text(text) => vec![text.clone()],
            Part::Slot(name) => vec![said(command.slot(name).expect("a declared slot").kind).0.to_owned()],
            Part::Choice { branches, optional } => {
                let mut pieces: Vec<String> = branches.iter().flat_map(|branch| sentences(branch, command)).collect();
                if *optional {
                    pieces.push(String::new());
                }
                pieces
            }
        };
        all = all.iter().flat_map(|before| pieces.iter().map(move |piece| format!("{before}{piece}"))).collect();
    }
    all
}

fn said(kind: SlotKind) -> (&'static str, SlotValue) {
    match kind {
        SlotKind::DeviceNo => ("三号", SlotValue::Number(3.0)),
        SlotKind::Number => ("二十五", SlotValue::Number(25.0)),
        SlotKind::Percent => ("百分之四十", SlotValue::Number(40.0)),
        SlotKind::Duration => ("一小时三十分钟", SlotValue::Number(5400.0)),
        SlotKind::Digits => ("幺洞拐", SlotValue::Text("107".to_owned())),
        SlotKind::Zone => ("泵房", SlotValue::Text("泵房".to_owned())),
        SlotKind::List | SlotKind::Free => ("某处", SlotValue::Text("某处".to_owned())),
    }
}

#[test]
fn every_phrase_of_every_command_means_it() {
    let understanding = shipped();
    let mut wrong = Vec::new();
    let mut count = 0;
    for command in &understanding.commands().list {
        let patterns = command.patterns.iter().flat_map(|pattern| sentences(&pattern.parts, command));
        let phrases = std::iter::once(command.text.clone()).chain(command.aliases.clone()).chain(patterns);
        for phrase in phrases {
            count += 1;
            let resolution = ask(&understanding, &phrase);
            if meant(&resolution) != Some(&command.id) {
                wrong.push(format!("{phrase}: {:?}, not {}", meant(&resolution), command.id));
                continue;
            }
            let understood = match &resolution.outcome {
                Outcome::Command(one) | Outcome::Incomplete { understood: one, .. } => one,
                Outcome::Sequence(_) | Outcome::Knowledge | Outcome::Ambiguous | Outcome::Rejected(_) => continue,
            };
            for slot in &command.slots {
                let (words, value) = said(slot.kind);
                let expected = phrase.contains(words).then_some(&value);
                if understood.slots.get(&slot.name) != expected {
                    wrong.push(format!("{phrase}: {} = {:?}", slot.name, understood.slots.get(&slot.name)));
                }
            }
            if understood.confirm != (command.risk == Risk::Dangerous) {
                wrong.push(format!("{phrase}: confirm {}", understood.confirm));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {count}: {wrong:#?}", wrong.len());
    assert!(count > 5000, "{count} phrases");
}

fn check(text: &str, expected: &str) {
    let resolution = ask(&shipped(), text);
    let found = match &resolution.outcome {
        Outcome::Command(one) => format!("{} {}", one.command, slots(one)),
        Outcome::Incomplete { understood, missing } => format!("{} lacks {}", understood.command, missing.join(" ")),
        Outcome::Sequence(several) => several
            .iter()
            .map(|one| format!("{} {}", one.command, slots(one)).trim().to_owned())
            .collect::<Vec<_>>()
            .join(" then "),
        Outcome::Knowledge => "knowledge".to_owned(),
        Outcome::Ambiguous => "ambiguous".to_owned(),
        Outcome::Rejected(_) => "rejected".to_owned(),
    };
    assert_eq!(found.trim(), expected, "{text}");
}

fn slots(one: &interlock_domain::command::resolution::Understood) -> String {
    one.slots.iter().map(|(name, value)| format!("{name}={}", value.to_json())).collect::<Vec<_>>().join(" ")
}

#[test]
fn slots_are_typed() {
    check("启动二号水泵", "pump_start device=2");
    check("一号水泵频率调到二十五赫兹", "pump_set_freq device=1 value=25");
    check("小车限速设为一点五米每秒", "agv_speed value=1.5");
    check("小车限速设为1.5", "agv_speed value=1.5");
    check("进给倍率调到百分之一百二", "feed_set percent=120");
    check("阀门开度调到六成五", "valve_set percent=65");
    check("监测传感器两个半小时", "task_monitor duration=9000");
    check("调用程序洞幺五", "cnc_load program=\"015\"");
    check("派一号小车到包装区", "agv_goto device=1 zone=\"包装区\"");
    check("设置主轴转速", "spindle_speed lacks value");
    check("啟動二號水泵", "pump_start device=2");
}

#[test]
fn several_commands_come_in_order_or_not_at_all() {
    check("启动一号水泵，然后打开二号阀门", "pump_start device=1 then valve_open device=2");
    check("停止风机接着关灯", "fan_stop then light_off");
    check("启动一号和二号水泵", "pump_start device=1 then pump_start device=2");
    check("启动一号、二号水泵", "pump_start device=1 then pump_start device=2");
    check("启动水泵，然后不要打开阀门", "rejected");
    check("启动水泵然后去吃饭", "rejected");
}

#[test]
fn what_is_taken_back_is_not_done() {
    check("打开二号，不对，三号水泵", "pump_start device=3");
    check("启动一号水泵，不对，停止二号风机", "fan_stop device=2");
    check("启动一号水泵，不对", "rejected");
}

/// A character is lost at the beginning, in the middle or at the end; what is left says something else or nothing.
#[test]
fn what_was_cut_off_is_not_done() {
    for text in [
        "用打开阀门",
        "二号风机用吹了",
        "需要取消全部任务",
        "让你重启系统",
        "得启动锅炉",
        "启用用泵",
        "听加工",
        "三号水泵转手",
        "查询间度",
        "断路器跳开",
        "系统自动关闭阀门",
    ] {
        let resolution = ask(&shipped(), text);
        assert!(resolution.command().is_none_or(|one| text == "启用用泵" && one.command == "pump_standby"), "{text}");
    }
}

#[test]
fn a_hazard_executes_nothing() {
    for text in [
        "不要启动二号泵",
        "不要启动二号水泵",
        "先别停二号水泵",
        "水泵怎么启动",
        "老王说启动水泵",
        "如果满了就停止水泵",
        "十分钟后启动水泵",
        "昨天启动水泵",
        "启动水泵了吗？",
        "启动水泵？",
        "",
        "。。。",
    ] {
        let resolution = ask(&shipped(), text);
        assert!(
            matches!(resolution.outcome, Outcome::Rejected(_) | Outcome::Ambiguous),
            "{text}: {:?}",
            resolution.outcome
        );
    }
}

fn rows(file: &str) -> Vec<Value> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/corpus").join(file);
    let text = std::fs::read_to_string(path).expect("the corpus is read");
    text.lines().map(|line| serde_json::from_str(line).expect("a row")).collect()
}

fn text<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().unwrap_or_default()
}

/// The slots of a row, all as text; and those of an answer.
fn wanted_slots(row: &Value) -> BTreeMap<String, String> {
    let slots = row["slots"].as_object().cloned().unwrap_or_default();
    slots
        .into_iter()
        .map(|(name, value)| (name, value.as_str().map_or_else(|| value.to_string(), str::to_owned)))
        .collect()
}

fn found_slots(resolution: &Resolution) -> BTreeMap<String, String> {
    let slots = match &resolution.outcome {
        Outcome::Command(one) | Outcome::Incomplete { understood: one, .. } => one.slots.clone(),
        Outcome::Sequence(_) | Outcome::Knowledge | Outcome::Ambiguous | Outcome::Rejected(_) => BTreeMap::new(),
    };
    let shown = |value: &SlotValue| match value.to_json() {
        Value::String(text) => text,
        other => other.to_string(),
    };
    slots.iter().map(|(name, value)| (name.clone(), shown(value))).collect()
}

/// Understood, wrong commands executed, executed though nothing should be, slots wrong.
#[derive(Debug, Default, PartialEq)]
struct Figures {
    right: usize,
    wanted: usize,
    missed: Vec<String>,
    wrong: Vec<String>,
    executed: Vec<String>,
    slots: Vec<String>,
}

fn figures(understanding: &Understanding, rows: &[Value]) -> Figures {
    let mut figures = Figures::default();
    for row in rows.iter().filter(|row| row["query"].is_string()) {
        let query = text(row, "query");
        let resolution = ask(understanding, query);
        let executed = resolution.command().map(|one| one.command.as_str());
        if let Some(expected) = row["expected_sequence"].as_array() {
            let expected: Vec<&str> = expected.iter().filter_map(Value::as_str).collect();
            let found: Vec<&str> = match &resolution.outcome {
                Outcome::Sequence(several) => several.iter().map(|one| one.command.as_str()).collect(),
                Outcome::Command(one) => vec![&one.command],
                Outcome::Incomplete { .. } | Outcome::Knowledge | Outcome::Ambiguous | Outcome::Rejected(_) => vec![],
            };
            figures.wanted += 1;
            figures.right += usize::from(found == expected);
            if !found.is_empty() && found != expected {
                figures.wrong.push(format!("{query}: {found:?}"));
            }
            continue;
        }
        if let (Outcome::Sequence(several), None) = (&resolution.outcome, row["expected_command"].as_str()) {
            figures.executed.push(format!("{query}: {} commands", several.len()));
        }
        match row["expected_command"].as_str() {
            Some(expected) => {
                figures.wanted += 1;
                if meant(&resolution) == Some(expected) {
                    figures.right += 1;
                    if found_slots(&resolution) != wanted_slots(row) {
                        figures.slots.push(query.to_owned());
                    }
                } else {
                    figures.missed.push(format!("{query}: {:?}", resolution.outcome));
                    figures.wrong.extend(executed.map(|other| format!("{query}: {other}")));
                }
            }
            None => figures.executed.extend(executed.map(|other| format!("{query}: {other}"))),
        }
    }
    figures
}

/// At least so many right; nothing wrong, nothing executed that should not be, no slot wrong.
fn check_figures(file: &str, right: usize) {
    let figures = figures(&shipped(), &rows(file));
    assert!(figures.right >= right, "{file}: {} of {} right, not {right}", figures.right, figures.wanted);
    let none: Vec<String> = Vec::new();
    assert_eq!((&figures.wrong, &figures.executed, &figures.slots), (&none, &none, &none), "{file}");
}

#[test]
fn the_corpus_is_understood_and_nothing_else_is_executed() {
    check_figures("dev.jsonl", 223);
    check_figures("paraphrases-1.jsonl", 174);
    check_figures("paraphrases-2.jsonl", 141);
    check_figures("paraphrases-3.jsonl", 141);
    check_figures("paraphrases-4.jsonl", 129);
    check_figures("paraphrases-5.jsonl", 147);
    check_figures("fresh-1.jsonl", 214);
    check_figures("fresh-2.jsonl", 101);
    check_figures("rejects-3.jsonl", 0);
    check_figures("rejects-4.jsonl", 0);
    check_figures("rejects-5.jsonl", 1);
    check_figures("rejects-6.jsonl", 0);
}

/// The thresholds stand in the middle of a plateau and not at its edge. Prints the table that they were chosen from.
#[test]
#[expect(clippy::print_stdout, reason = "a sweep that shows nothing cannot be read")]
fn the_thresholds_stand_on_a_plateau() {
    let dev = rows("dev.jsonl");
    let chosen = Thresholds::default();
    for change in [-8.0, -4.0, -2.0, 0.0, 2.0, 4.0, 8.0, 16.0] {
        let thresholds = Thresholds { read: chosen.read + change, operate: chosen.operate + change, ..chosen };
        let found = figures(&shipped().with_thresholds(thresholds), &dev);
        let (wrong, executed) = (found.wrong.len(), found.executed.len());
        println!(
            "read {:>4} operate {:>4}: {} right, {wrong} wrong, {executed} executed",
            thresholds.read, thresholds.operate, found.right
        );
        if change.abs() <= 4.0 {
            assert_eq!((wrong, executed), (0, 0), "{change}: {found:?}");
            assert!(found.right >= 220, "{change}: {} right", found.right);
        }
    }
    for margin in [1.0, 2.0, 3.0, 4.0, 6.0] {
        let found = figures(&shipped().with_thresholds(Thresholds { margin, ..chosen }), &dev);
        println!(
            "margin {margin}: {} right, {} wrong, {} executed",
            found.right,
            found.wrong.len(),
            found.executed.len()
        );
    }
}

fn proposal(row: &Value) -> Proposal {
    let texts = |key: &str| -> Vec<String> {
        let list = row[key].as_array().cloned().unwrap_or_default();
        list.iter().filter_map(|one| one.as_str().map(str::to_owned)).collect()
    };
    let said = if row["wrong"].is_string() { text(row, "wrong") } else { text(row, "phrase") };
    let command = text(row, "command").to_owned();
    match text(row, "channel") {
        "A" => Proposal::Correction { heard: said.to_owned(), command },
        "B" => Proposal::Slang { phrase: said.to_owned(), command },
        _ => {
            let patterns: Vec<Template> =
                texts("patterns").iter().map(|pattern| Template::parse(pattern).expect("compiles")).collect();
            let zoned = patterns.iter().any(|pattern| pattern.slots().contains(&"zone"));
            let zone = Slot::of("zone", SlotKind::Zone, false);
            Proposal::New(Arc::new(Definition {
                id: command,
                text: if row["text"].is_string() { text(row, "text") } else { said }.to_owned(),
                aliases: texts("aliases"),
                patterns,
                fallback: Vec::new(),
                slots: if zoned { vec![zone] } else { Vec::new() },
                category: text(row, "category").to_owned(),
                risk: Risk::from_word(text(row, "risk")).unwrap_or(Risk::Dangerous),
                protective: false,
                bind: Vec::new(),
            }))
        }
    }
}

/// The 102-query protocol: a baseline, 49 proposals (dangerous ones approved by a person), and what is understood
/// and still rejected afterwards.
#[test]
fn learning_understands_what_was_taught_and_refuses_poison() {
    let set = commands::read(Path::new(commands::EMBEDDED_NAME), commands::EMBEDDED).expect("the embedded set");
    let words = lexicon::read(Path::new(lexicon::EMBEDDED_NAME), lexicon::EMBEDDED).expect("the lexicon");
    let costs = lexicon::read_confusions(Path::new(lexicon::EMBEDDED_CONFUSIONS_NAME), lexicon::EMBEDDED_CONFUSIONS)
        .expect("the costs");
    let base = Base { commands: &set, lexicon: &words, confusions: &costs };
    let all = rows("learning.jsonl");
    let of = |phases: &[&str]| -> Vec<Value> {
        all.iter().filter(|row| phases.contains(&text(row, "phase"))).cloned().collect()
    };
    let before = figures(&base.with(&Learned::default()), &of(&["baseline"]));
    assert!(before.right >= 38 && before.wrong.is_empty(), "before: {before:?}");

    // Every fourth sentence is enough here; the experiment replays all of them.
    let replay: Vec<Example> = rows("dev.jsonl")
        .iter()
        .filter(|row| text(row, "kind") != "new_tool")
        .step_by(4)
        .map(|row| Example {
            sentence: text(row, "query").to_owned(),
            means: row["expected_command"].as_str().map(str::to_owned),
        })
        .collect();
    let mut learned = Learned::default();
    for row in of(&["learn"]) {
        let taken = review(base, &learned, &proposal(&row), &replay, Policy::Auto);
        match taken.verdict {
            Verdict::Approve(after) => learned = after,
            Verdict::Operator(after) => {
                assert_eq!(text(&row, "risk"), "dangerous", "{row}");
                learned = after;
            }
            Verdict::Refuse => panic!("{row}: {}", taken.why),
        }
    }
    let active = base.with(&learned);
    for (phases, right) in [(&["baseline", "expanded", "extra_clean"][..], 102), (&["probe"][..], 33)] {
        let after = figures(&active, &of(phases));
        assert_eq!(
            (after.right, after.wanted, &after.slots),
            (right, right, &Vec::new()),
            "{phases:?}: {:?}",
            after.missed
        );
    }
    assert_eq!(figures(&active, &of(&["after_reject"])).executed, Vec::<String>::new());
    for row in of(&["poison"]) {
        let taken = review(base, &learned, &proposal(&row), &replay, Policy::Auto);
        let verdict = match taken.verdict {
            Verdict::Approve(_) => "approve",
            Verdict::Operator(_) => "operator",
            Verdict::Refuse => "refuse",
        };
        assert_eq!(verdict, text(&row, "expect"), "{row}: {}", taken.why);
    }
}

/// Every sentence of the corpus with one character dropped or said twice. A dangerous command is reached only where
/// what is left says just that: 别急停皮带机 without its 别.
#[test]
fn a_lost_or_doubled_character_never_reaches_a_dangerous_command() {
    let understanding = shipped();
    let mut wrong = Vec::new();
    for row in rows("dev.jsonl") {
        let chars: Vec<char> = text(&row, "query").chars().collect();
        for at in 0..chars.len() {
            let mut lost = chars.clone();
            lost.remove(at);
            let mut doubled = chars.clone();
            doubled.insert(at, chars[at]);
            for changed in [lost, doubled] {
                let changed: String = changed.iter().collect();
                let resolution = ask(&understanding, &changed);
                if let Some(one) = resolution.command()
                    && one.confirm
                    && row["expected_command"].as_str() != Some(&one.command)
                {
                    wrong.push(format!("{changed}: {}", one.command));
                }
            }
        }
    }
    let says_so = ["拉开闸: brk_open", "急停皮带机: conv_estop"];
    assert_eq!(wrong, says_so);
}

/// Half of what was said, from either end: a dangerous command only where what is left is just its phrase.
#[test]
fn half_an_utterance_never_reaches_a_dangerous_command_by_likeness() {
    let understanding = shipped();
    let mut wrong = Vec::new();
    for file in ["dev.jsonl", "paraphrases-4.jsonl", "rejects-4.jsonl", "rejects-5.jsonl"] {
        for row in rows(file) {
            let chars: Vec<char> = text(&row, "query").chars().collect();
            for at in 1..chars.len() {
                for half in [&chars[..at], &chars[at..]] {
                    let half: String = half.iter().collect();
                    if let Some(one) = ask(&understanding, &half).command()
                        && one.confirm
                        && one.likeness == Likeness::Near
                        && row["expected_command"].as_str() != Some(&one.command)
                    {
                        wrong.push(format!("{half}: {}", one.command));
                    }
                }
            }
        }
    }
    // What is left of these says just that, and waits for its confirmation like every dangerous command.
    let says_so = [
        "闸合到位: brk_close",
        "闸推上去合好: brk_close",
        "合上断路: brk_close",
        "点火锅炉: boiler_start",
        "锅炉点火需: boiler_start",
        "上打开锅炉: boiler_start",
        "打开锅炉: boiler_start",
        "开锅炉: boiler_start",
        "拉开隔离: iso_open",
        "拉开隔离刀: iso_open",
        "没电启动消防泵: fire_pump_start",
    ];
    wrong.retain(|one| !says_so.contains(&one.as_str()));
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn odd_texts_come_to_nothing_or_to_what_they_plainly_say() {
    let long = "启动水泵".repeat(2500);
    for text in [
        "",
        " \t\r\n",
        "\u{200b}\u{feff}",
        &long,
        "😀😀😀",
        "👍",
        "abc def 123",
        "1234567890123456789012345678901234567890",
        "start pump two",
        "启动 pump 二号 motor 三号",
        "۲۳۴",
        "ⅡⅢ",
        "启动\u{0}\u{1}\u{7f}",
        "水泵水泵水泵水泵水泵水泵水泵水泵水泵水泵",
        "号号号号号",
        "百分之百分之百分之",
        "点点点点",
        "十百千万亿",
        "一二三四五六七八九十一二三四五六七八九十",
        "ｑｗｅｒｔｙ",
        "а",
        "启",
        "动水泵二",
        "\u{202e}泵水号二动启",
        "合\u{301}",
        "𠀀𠀁𠀂",
    ] {
        let resolution = ask(&shipped(), text);
        assert!(resolution.command().is_none(), "{text:?}: {:?}", resolution.outcome);
    }
    // Width, script, marks that are not spoken and pictures change nothing.
    for text in ["启动２号水泵👍", "啟動二號水泵", "启\u{200b}动二号水泵。", "启动 2# 水泵 !!", "⽔泵二号启动"]
    {
        assert_eq!(meant(&ask(&shipped(), text)), Some("pump_start"), "{text:?}");
    }
}

/// What is executed of a sentence: its commands in order.
fn executed(understanding: &Understanding, text: &str) -> Vec<String> {
    match ask(understanding, text).outcome {
        Outcome::Command(one) => vec![one.command],
        Outcome::Sequence(several) => several.into_iter().map(|one| one.command).collect(),
        Outcome::Incomplete { .. } | Outcome::Knowledge | Outcome::Ambiguous | Outcome::Rejected(_) => Vec::new(),
    }
}

#[test]
fn a_thing_that_is_named_otherwise_is_not_taken_for_one_that_sounds_a_little_like_it() {
    let understanding = shipped();
    for text in ["打开冷干机组", "关闭防火门", "仓库的灯开开", "打开仓库大门的锁", "转速两万转的主轴", "启动冷却水机组"]
    {
        assert_eq!(executed(&understanding, text), Vec::<String>::new(), "{text}");
    }
    for (text, command) in [
        ("启动冷水机组", "chiller_start"),
        ("启动冷水鸡组", "chiller_start"),
        ("打开大门", "gate_open"),
        ("启动下水泵", "pump_start"),
        ("把水泵停下来", "pump_stop"),
        ("启动污水泵", "drain_start"),
        ("打开大灯", "light_on"),
    ] {
        assert_eq!(executed(&understanding, text), [command], "{text}");
    }
}

#[test]
fn a_value_that_nobody_can_have_meant_is_asked_for() {
    let understanding = shipped();
    let missing = |text: &str| match ask(&understanding, text).outcome {
        Outcome::Incomplete { understood, missing } => (understood.command, missing),
        other => panic!("{text}: {other:?}"),
    };
    for text in ["三号阀开度调成0.5", "二号阀门开度调到百分之三百"] {
        assert_eq!(missing(text), ("valve_set".to_owned(), vec!["percent".to_owned()]), "{text}");
    }
    assert_eq!(executed(&understanding, "二号阀门开度调到百分之八十"), ["valve_set"]);
    assert_eq!(executed(&understanding, "进给倍率改成百分之一百一"), ["feed_set"]);
}

#[test]
fn what_is_taken_back_with_a_break_is_taken_back_and_a_ban_stays_a_ban() {
    let understanding = shipped();
    for (text, expected) in [
        ("打开风机，不不，打开水泵", &["pump_start"][..]),
        ("关灯，哦不，开灯", &["light_on"]),
        ("空调调到二十，不是，二十五度", &["ac_set_temp"]),
        ("启动水泵，哦不要启动", &[]),
        ("不不要启动水泵", &[]),
        ("哦不要打开水泵", &[]),
        ("启动一号水泵和二号水泵", &["pump_start", "pump_start"]),
        ("启动一号水泵和二号风机", &[]),
    ] {
        assert_eq!(executed(&understanding, text), expected, "{text}");
    }
}
