//! Understanding, as `interlock match` shows it: the shipped set, and sentences that must come to nothing.

use interlock::cli::match_verb;
use interlock_domain::command::cascade::{Stages, Step, Walk};
use interlock_domain::command::definition::{Definition, Risk, SlotKind};
use interlock_domain::command::resolution::{Outcome, Resolution, SlotValue};
use interlock_domain::command::template::Part;
use interlock_domain::command::understanding::Understanding;

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
        SlotKind::Free => ("某处", SlotValue::Text("某处".to_owned())),
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
