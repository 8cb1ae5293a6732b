//! How long understanding takes: the shipped set, or a set scaled to so many commands.
//!
//! The sentences are of all kinds: templates word by word, misheard ones, other wording, and ordinary speech that
//! means nothing. The scaled commands are made of trade words; they measure size, and mean nothing.

use std::sync::Arc;
use std::time::Instant;

use interlock_domain::command::cascade::{Stages, Walk};
use interlock_domain::command::definition::{Commands, Definition, Slot, SlotKind};
use interlock_domain::command::lexicon::Lexicon;
use interlock_domain::command::sound::Confusions;
use interlock_domain::command::template::Template;
use interlock_domain::command::understanding::Understanding;
use interlock_domain::risk::Risk;
use serde_json::{Value, json};

use super::model_bench;
use crate::infer::classifier::Source;

/// Rounds over all sentences; the median of a round is steady from here on.
const ROUNDS: usize = 20;

/// Sentences of all kinds, beside the canonical text of every shipped command.
const SENTENCES: &[&str] = &[
    "启动二号水泵",
    "把一号水泵频率调到二十五赫兹",
    "起动一号水崩",
    "查询水泵出口鸭梨",
    "拉开隔里刀炸",
    "启动煮粥",
    "停止六号牌乌崩",
    "麻烦查询处理器占用一下",
    "呃那个停止主轴啊",
    "让一号皮带往回转",
    "三号小车电池还剩百分之几",
    "二车间太暗把灯开了",
    "一号皮带跑到一点五米每秒",
    "储气罐里的水放一放",
    "把三号断路器合上去",
    "不要启动一号泵",
    "一号水泵启动了吗",
    "如果启动消防泵会怎么样",
    "启动一号水泵，然后打开二号阀门",
    "打开二号，不对，三号水泵",
    "皮带跑偏应该怎么调",
    "帮我点一份红烧牛肉面",
    "北京到上海的高铁几点",
    "今天天气怎么样",
];

/// Words that the scaled commands are made of.
const BEFORE: &[&str] = &[
    "东区", "西区", "南区", "北区", "一线", "二线", "三线", "上游", "下游", "高位", "低位", "前级", "后级", "内环",
    "外环", "主路", "支路", "原水", "清水", "浊水", "热媒", "冷媒", "净化", "预热", "粗选", "精选", "初洗", "终洗",
    "甲侧", "乙侧", "丙侧", "丁侧", "高压", "低压", "中压", "常压", "连铸", "轧制", "浸渍", "涂覆",
];
const THINGS: &[&str] = &[
    "搅拌机",
    "粉碎机",
    "提升机",
    "螺旋机",
    "给料机",
    "振动筛",
    "离心机",
    "压滤机",
    "换热器",
    "冷凝器",
    "蒸发器",
    "加热器",
    "打包机",
    "码垛机",
    "贴标机",
    "烘箱",
    "喷淋塔",
    "除尘器",
    "曝气机",
    "刮泥机",
    "格栅机",
    "投药机",
    "软化器",
    "脱水机",
    "造粒机",
    "混料机",
    "切片机",
    "卷绕机",
    "牵引机",
    "放卷机",
    "收卷机",
    "分切机",
    "覆膜机",
    "印刷机",
    "模切机",
    "灌装机",
    "旋盖机",
    "封口机",
    "喷码机",
    "理瓶机",
    "洗瓶机",
    "吹瓶机",
    "注塑机",
    "压铸机",
    "抛丸机",
    "磨粉机",
    "筛分机",
    "烘干机",
    "冷却塔",
    "沉淀池",
    "反应釜",
    "结晶器",
    "过滤机",
    "均质机",
    "杀菌机",
    "浓缩机",
    "干燥塔",
    "流化床",
    "皮带秤",
    "定量秤",
    "翻转台",
    "升降台",
    "转运车",
];

/// Measures the set that `load` reads, or that set scaled to so many commands; reading the files counts as loading. The
/// model of `model` is measured beside it where ONNX Runtime is there, and the memory with it.
///
/// # Errors
/// Those of `load`.
pub fn run<E>(
    load: impl FnOnce() -> Result<(Commands, Lexicon, Confusions), E>,
    scaled: Option<usize>,
    model: &Source,
) -> Result<Value, E> {
    let before = rss_mib();
    let begun = Instant::now();
    let (mut set, words, costs) = load()?;
    if let Some(count) = scaled {
        scale(&mut set, count);
    }
    let count = set.list.len();
    let understanding = Understanding::compile(set, &words, &costs);
    let load_ms = begun.elapsed().as_secs_f64() * 1e3;
    let loaded = rss_mib();

    let texts: Vec<String> = understanding
        .commands()
        .list
        .iter()
        .step_by((count / 141).max(1))
        .map(|command| command.text.clone())
        .chain(SENTENCES.iter().map(|text| (*text).to_owned()))
        .collect();
    let all = timed(&understanding, &texts, Stages::PURE);
    let patterns = timed(&understanding, &texts, Stages { pinyin: false, ..Stages::PURE });
    let by_model = model_bench::run(model, &texts);
    let with_model = rss_mib();
    let (model_micros, model_load, provider) = match by_model {
        Ok(found) => (rounded(found.micros_p50), rounded(found.load_ms), Value::from(found.provider)),
        Err(error) => (Value::Null, Value::Null, Value::from(format!("off: {error}"))),
    };
    Ok(json!({
        "commands": count,
        "queries": texts.len(),
        "micros_p50": percentile(&all, 50),
        "micros_p99": percentile(&all, 99),
        "pattern_micros_p50": percentile(&patterns, 50),
        "model_micros_p50": model_micros,
        "model_load_ms": model_load,
        "model_provider": provider,
        "model_rss_mib": rounded((with_model - loaded).max(0.0)),
        "load_ms": (load_ms * 100.0).round() / 100.0,
        "rss_mib": ((loaded - before).max(0.0) * 100.0).round() / 100.0,
    }))
}

/// The best time of each sentence over all rounds, in microseconds, sorted.
fn timed(understanding: &Understanding, texts: &[String], stages: Stages) -> Vec<f64> {
    let mut best = vec![f64::MAX; texts.len()];
    for _ in 0..ROUNDS {
        for (text, best) in texts.iter().zip(&mut best) {
            let begun = Instant::now();
            let step = Walk::new(understanding, text, stages).next();
            let micros = begun.elapsed().as_secs_f64() * 1e6;
            std::hint::black_box(step);
            *best = best.min(micros);
        }
    }
    best.sort_by(f64::total_cmp);
    best
}

fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).map_or(0.0, |micros| (micros * 100.0).round() / 100.0)
}

fn rounded(value: f64) -> Value {
    Value::from((value * 100.0).round() / 100.0)
}

/// Adds made-up commands until there are `count`.
fn scale(set: &mut Commands, count: usize) {
    const KINDS: &[(&str, &str, Risk)] = &[
        ("start", "(启动|打开|开启)[{device}]", Risk::Operate),
        ("stop", "(停止|关闭|关掉)[{device}]", Risk::Operate),
        ("status", "[(查看|查询|看一下)][{device}]", Risk::Read),
        ("reset", "(复位|清除)[{device}]", Risk::Operate),
    ];
    const SAID: &[&str] = &["启动", "停止", "查看", "复位"];
    let wanted = count.saturating_sub(set.list.len());
    let names = BEFORE.iter().flat_map(|before| THINGS.iter().map(move |thing| format!("{before}{thing}")));
    let every = names.flat_map(|name| (0..KINDS.len()).map(move |kind| (name.clone(), kind)));
    for (number, (name, kind)) in every.take(wanted).enumerate() {
        let (verb, before, risk) = KINDS[kind];
        let tail = if risk == Risk::Read { "状态" } else { "" };
        let Ok(pattern) = Template::parse(&format!("{before}{name}{tail}")) else { continue };
        set.list.push(Arc::new(Definition {
            id: format!("scaled_{number}_{verb}"),
            text: format!("{}{name}{tail}", SAID[kind]),
            aliases: Vec::new(),
            patterns: vec![pattern],
            fallback: Vec::new(),
            slots: vec![Slot::of("device", SlotKind::DeviceNo, false)],
            category: "scaled".to_owned(),
            risk,
            protective: false,
            bind: Vec::new(),
        }));
    }
}

/// Resident memory of this process; 0 where there is no /proc.
fn rss_mib() -> f64 {
    const PAGE: f64 = 4096.0;
    let pages = std::fs::read_to_string("/proc/self/statm").ok().and_then(|text| text.split(' ').nth(1)?.parse().ok());
    pages.map_or(0.0, |pages: f64| pages * PAGE / 1024.0 / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::infer::classifier::Bytes;

    #[test]
    fn a_scaled_set_is_as_large_as_asked() {
        let mut set = Commands::default();
        scale(&mut set, 1000);
        assert_eq!(set.list.len(), 1000);
        assert_eq!((set.list[0].text.as_str(), set.list[5].text.as_str()), ("启动东区搅拌机", "停止东区粉碎机"));
        // Measured without optimization, a large set takes minutes.
        let load = || Ok::<_, ()>((Commands::default(), Lexicon::default(), Confusions::default()));
        let none = Bytes::Embedded(b"");
        let source = Source {
            name: "no model".to_owned(),
            model: none.clone(),
            model_sha256: String::new(),
            labels: none,
            labels_sha256: String::new(),
            pieces: None,
        };
        let figures = run(load, Some(12), &source).expect("loads");
        assert_eq!(figures["commands"], 12);
        assert_eq!(figures["model_micros_p50"], Value::Null);
        assert!(figures["model_provider"].as_str().is_some_and(|why| why.starts_with("off: ")));
    }
}
