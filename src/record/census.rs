//! What the tools of MCP servers say about their effects: the tables of the paper's census, for the servers that are
//! configured here, with the paper's own numbers beside them.
//!
//! Only definitions are counted; no tool is called. A hint that is there need not be anybody's intent (it may be a
//! default of a library), and what a tool does beyond its definition is not seen.

use std::collections::BTreeMap;

use interlock_domain::surface::contract::{Contract, Effect, OutcomeBy, Visibility};
use serde_json::{Value, json};

use super::contract;

/// The hints, in the order of a signature.
const HINTS: [&str; 4] = ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"];

/// `_meta` of a tool: its contract.
const META_CONTRACT: &str = "interlock/contract";

/// What can be had against one anomaly from what a definition says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Against {
    /// The tool says that it leaves no effect: there is nothing to exclude, if that is so.
    pub no_effect: usize,
    /// Its contract has what excludes the anomaly.
    pub excluded: usize,
    /// Only a hint says something, and not enough.
    pub limited: usize,
    /// Nothing says anything.
    pub open: usize,
}

/// The counts.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Census {
    servers: usize,
    tools: usize,
    tools_of_server: Vec<usize>,
    any: usize,
    all: usize,
    set: [usize; 4],
    destructive_applies: usize,
    destructive: usize,
    idle_pair: usize,
    signatures: BTreeMap<[Option<bool>; 4], usize>,
    /// Servers with several tools and some hint; those of them with several signatures.
    varied: (usize, usize),
    dominant: Vec<f64>,
    contracts: usize,
    against: [Against; 8],
}

/// The paper's own numbers (official registry, 2026-07-27: 98,291 tools of 4,838 servers), in percent.
const PAPER: [(&str, f64); 12] = [
    ("any_hint", 74.0),
    ("all_four_hints", 61.7),
    ("no_hint", 26.0),
    ("most_frequent_signature", 39.9),
    ("three_most_frequent", 75.8),
    ("destructive_set", 65.8),
    ("destructive_applies", 12.9),
    ("destructive_declared", 3.1),
    ("read_only_with_destructive", 52.8),
    ("servers_with_several_signatures", 76.7),
    ("dominant_signature_median", 79.4),
    ("signatures_of_81", 66.0),
];

impl Census {
    /// Counts the definitions of each server.
    #[must_use]
    pub fn of(servers: &BTreeMap<String, Vec<Value>>) -> Census {
        let mut census = Census { servers: servers.len(), ..Census::default() };
        for tools in servers.values() {
            census.tools_of_server.push(tools.len());
            let mut own: BTreeMap<[Option<bool>; 4], usize> = BTreeMap::new();
            for tool in tools {
                *own.entry(census.count(tool)).or_default() += 1;
            }
            let has_hint = own.keys().any(|signature| signature.iter().any(Option::is_some));
            if has_hint && tools.len() > 1 {
                census.varied.0 += 1;
                census.varied.1 += usize::from(own.len() > 1);
            }
            if has_hint {
                let most = own.values().max().copied().unwrap_or_default();
                census.dominant.push(percent(most, tools.len()));
            }
        }
        census.tools_of_server.sort_unstable();
        census.dominant.sort_by(f64::total_cmp);
        census
    }

    fn count(&mut self, tool: &Value) -> [Option<bool>; 4] {
        let signature = HINTS.map(|hint| tool["annotations"][hint].as_bool());
        let [read_only, destructive, idempotent, _] = signature;
        self.tools += 1;
        self.any += usize::from(signature.iter().any(Option::is_some));
        self.all += usize::from(signature.iter().all(Option::is_some));
        for (set, hint) in self.set.iter_mut().zip(signature) {
            *set += usize::from(hint.is_some());
        }
        self.destructive_applies += usize::from(destructive.is_some() && read_only != Some(true));
        self.destructive += usize::from(destructive == Some(true) && read_only != Some(true));
        self.idle_pair += usize::from(destructive.is_some() && read_only == Some(true));
        *self.signatures.entry(signature).or_default() += 1;
        let declared = &tool["_meta"][META_CONTRACT];
        let contract = declared.is_object().then(|| contract::from_json(declared));
        self.contracts += usize::from(contract.is_some());
        let no_effect = match &contract {
            Some(contract) => !contract.changes(),
            None => read_only == Some(true),
        };
        for (at, against) in self.against.iter_mut().enumerate() {
            // A hint of idempotence helps against a duplicate only; a closed world says nothing about who looks.
            let limited = at == 0 && idempotent == Some(true);
            match &contract {
                _ if no_effect => against.no_effect += 1,
                Some(contract) if excludes(contract, at) => against.excluded += 1,
                Some(_) | None if limited => against.limited += 1,
                Some(_) | None => against.open += 1,
            }
        }
        signature
    }

    /// For scripts; the paper's numbers under `paper`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let figures: serde_json::Map<String, Value> =
            self.figures().into_iter().map(|(name, value)| (name.to_owned(), rounded(value))).collect();
        let paper: serde_json::Map<String, Value> =
            PAPER.iter().map(|(name, value)| ((*name).to_owned(), rounded(*value))).collect();
        let against: Vec<Value> = (1..)
            .zip(&self.against)
            .map(|(number, it)| {
                json!({
                    "anomaly": format!("A{number}"), "no_effect": it.no_effect, "excluded": it.excluded,
                    "limited": it.limited, "open": it.open, "paper": if number == 1 { "limited" } else { "no" },
                })
            })
            .collect();
        let signatures: Vec<Value> = self
            .frequent()
            .into_iter()
            .map(|(signature, count)| json!({ "hints": told(signature), "tools": count }))
            .collect();
        json!({
            "servers": self.servers,
            "tools": self.tools,
            "tools_per_server_median": self.tools_of_server.get(self.tools_of_server.len() / 2),
            "contracts": self.contracts,
            "hints_set": HINTS.iter().zip(self.set).map(|(hint, set)| ((*hint).to_owned(), set.into()))
                .collect::<serde_json::Map<String, Value>>(),
            "percent": figures,
            "paper": { "tools": 98_291, "servers": 4_838, "percent": paper },
            "signatures": signatures,
            "against": against,
        })
    }

    /// A page for a person.
    #[must_use]
    pub fn page(&self, zh: bool) -> String {
        let pick = |en: &'static str, chinese: &'static str| if zh { chinese } else { en };
        let mut page = String::new();
        let mut line = |text: String| {
            page.push_str(text.trim_end());
            page.push('\n');
        };
        line(match zh {
            true => format!("{} 个服务器，{} 个工具；只读取定义，未调用任何工具", self.servers, self.tools),
            false => format!("{} servers, {} tools; definitions only, no tool was called", self.servers, self.tools),
        });
        line(String::new());
        line(format!("{:<36} {:>8} {:>8}", "%", pick("here", "本机"), pick("paper", "论文")));
        for (name, value) in self.figures() {
            let paper = PAPER.iter().find(|(known, _)| *known == name).map(|(_, value)| format!("{value:.1}"));
            line(format!("{name:<36} {value:>8.1} {:>8}", paper.unwrap_or_default()));
        }
        line(String::new());
        line(pick("most frequent signatures", "最常见的注解签名").to_owned());
        for (signature, count) in self.frequent().into_iter().take(5) {
            line(format!("  {count:>6}  {}", told(signature)));
        }
        line(String::new());
        let head = [
            pick("no effect", "无效应"),
            pick("excluded", "可排除"),
            pick("limited", "有限"),
            pick("open", "不可排除"),
        ];
        line(format!("{:<10} {:>10} {:>10} {:>10} {:>10}", "", head[0], head[1], head[2], head[3]));
        for (number, it) in (1..).zip(&self.against) {
            line(format!(
                "{:<10} {:>10} {:>10} {:>10} {:>10}",
                format!("A{number}"),
                it.no_effect,
                it.excluded,
                it.limited,
                it.open
            ));
        }
        line(
            pick(
                "\"no effect\" is the tool's own claim; no hint gives evidence, lifecycle or coordination",
                "“无效应”只是工具自己的声明；注解不提供证据、生命周期或协调能力",
            )
            .to_owned(),
        );
        page
    }

    fn frequent(&self) -> Vec<([Option<bool>; 4], usize)> {
        let mut all: Vec<_> = self.signatures.iter().map(|(signature, count)| (*signature, *count)).collect();
        all.sort_by_key(|(signature, count)| (std::cmp::Reverse(*count), *signature));
        all
    }

    fn figures(&self) -> Vec<(&'static str, f64)> {
        let frequent = self.frequent();
        let top = |count: usize| frequent.iter().take(count).map(|(_, tools)| tools).sum::<usize>();
        let of_tools = |count| percent(count, self.tools);
        vec![
            ("any_hint", of_tools(self.any)),
            ("all_four_hints", of_tools(self.all)),
            ("no_hint", of_tools(self.tools - self.any)),
            ("most_frequent_signature", of_tools(top(1))),
            ("three_most_frequent", of_tools(top(3))),
            ("destructive_set", of_tools(self.set[1])),
            ("destructive_applies", of_tools(self.destructive_applies)),
            ("destructive_declared", of_tools(self.destructive)),
            ("read_only_with_destructive", of_tools(self.idle_pair)),
            ("servers_with_several_signatures", percent(self.varied.1, self.varied.0)),
            ("dominant_signature_median", self.dominant.get(self.dominant.len() / 2).copied().unwrap_or_default()),
            ("with_contract", of_tools(self.contracts)),
        ]
    }
}

/// The contract has what excludes the anomaly (effects, section 5).
fn excludes(contract: &Contract, at: usize) -> bool {
    let evidence = match contract.outcome {
        OutcomeBy::Query | OutcomeBy::Ack | OutcomeBy::ResendOriginal { .. } => true,
        OutcomeBy::None => false,
    };
    let (stageable, reversible) = match &contract.effect {
        Effect::Stageable { .. } => (true, false),
        Effect::Reversible { precondition, .. } => (false, precondition.is_some()),
        Effect::None | Effect::Irreversible => (false, false),
    };
    match at {
        0..=2 => evidence,
        3 => stageable || (reversible && evidence),
        4 | 5 => stageable,
        6 => !contract.commutes.is_empty(),
        _ => contract.visibility != Visibility::Open,
    }
}

/// `+readOnly -destructive`: hints that are not given are left out.
fn told(signature: [Option<bool>; 4]) -> String {
    let word = |(hint, value): (&str, Option<bool>)| {
        let sign = if value? { '+' } else { '-' };
        Some(format!("{sign}{}", hint.trim_end_matches("Hint")))
    };
    let words: Vec<String> = HINTS.into_iter().zip(signature).filter_map(word).collect();
    if words.is_empty() { "none".to_owned() } else { words.join(" ") }
}

fn percent(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

fn rounded(value: f64) -> Value {
    ((value * 10.0).round() / 10.0).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_counted_as_the_paper_counts_them() {
        let hints = |read: bool, destructive: bool, idempotent: bool, open: bool| {
            json!({ "name": "t", "annotations": {
                "readOnlyHint": read, "destructiveHint": destructive, "idempotentHint": idempotent, "openWorldHint": open,
            } })
        };
        let contract =
            json!({ "op_kind": "x", "outcome": "query", "effect": { "stageable_s": 9 }, "visibility": "private" });
        let servers = BTreeMap::from([
            (
                "a".to_owned(),
                vec![hints(true, false, true, true), hints(true, false, true, true), json!({ "name": "n" })],
            ),
            ("b".to_owned(), vec![hints(false, true, true, false)]),
            ("c".to_owned(), vec![json!({ "name": "p", "_meta": { META_CONTRACT: contract } })]),
        ]);
        let census = Census::of(&servers).to_json();
        assert_eq!((&census["servers"], &census["tools"], &census["contracts"]), (&json!(3), &json!(5), &json!(1)));
        let percent = &census["percent"];
        let expected = [
            ("any_hint", 60.0),
            ("all_four_hints", 60.0),
            ("no_hint", 40.0),
            ("most_frequent_signature", 40.0),
            ("three_most_frequent", 100.0),
            ("destructive_set", 60.0),
            ("destructive_applies", 20.0),
            ("destructive_declared", 20.0),
            ("read_only_with_destructive", 40.0),
            ("servers_with_several_signatures", 100.0),
            ("dominant_signature_median", 100.0),
            ("with_contract", 20.0),
        ];
        for (name, value) in expected {
            assert_eq!(percent[name], value, "{name}");
        }
        assert_eq!(census["paper"]["percent"]["any_hint"], 74.0);
        let against: Vec<String> = census["against"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| {
                format!("{} {} {} {} {}", it["anomaly"], it["no_effect"], it["excluded"], it["limited"], it["open"])
            })
            .collect();
        let open = |name: &str| format!("\"{name}\" 2 0 0 3");
        let full = |name: &str| format!("\"{name}\" 2 1 0 2");
        let first = "\"A1\" 2 1 1 1".to_owned();
        let rest = [full("A2"), full("A3"), full("A4"), full("A5"), full("A6"), open("A7"), full("A8")];
        assert_eq!(against, std::iter::once(first).chain(rest).collect::<Vec<_>>());
        let most = json!({ "hints": "+readOnly -destructive +idempotent +openWorld", "tools": 2 });
        assert!(census["signatures"].as_array().unwrap().contains(&most), "{}", census["signatures"]);
    }

    #[test]
    fn a_census_of_nothing_has_a_page_too() {
        let page = Census::of(&BTreeMap::new()).page(false);
        assert!(page.starts_with("0 servers, 0 tools"), "{page}");
    }
}
