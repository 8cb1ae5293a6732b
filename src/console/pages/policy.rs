//! The rules that are in force, and which of them decided what.

use std::sync::Arc;

use interlock_domain::gate::rule::{Authority, Verb};
use serde_json::{Value, json};

use super::{Made, View};
use crate::console::html::Html;
use crate::console::page::{badge, cell, linked, shown, table};

/// Decisions that are shown.
const ROWS: usize = 50;

pub(super) async fn page(view: &View<'_>) -> Made {
    let rules = Arc::clone(&view.console.settings.rules.borrow());
    let mut main = Html::new();
    let heads = [view.pick("Verb", "动作"), view.pick("Rule", "规则"), view.pick("From", "来源")];
    if rules.all().is_empty() {
        let text = view.pick("No rule is written; the mode decides.", "没有编写规则，由模式决定。");
        main.element("p", &[], text);
    } else {
        table(
            &mut main,
            view.pick("Rules in force", "生效规则"),
            &heads,
            rules.all().iter().map(|rule| {
                let (class, en, zh) = match rule.verb() {
                    Verb::Allow => ("good", "allow", "允许"),
                    Verb::Ask => ("warn", "ask", "询问"),
                    Verb::Deny => ("bad", "deny", "拒绝"),
                };
                let (from, zh_from) = match rule.authority() {
                    Authority::Persistent => ("kept from an earlier answer", "先前的回答"),
                    Authority::Config => ("configuration", "配置文件"),
                    Authority::Session => ("session", "会话"),
                    Authority::Cli => ("command line", "命令行"),
                    Authority::Managed => ("fleet", "机队策略"),
                };
                vec![badge(class, view.pick(en, zh)), cell(rule.text()), cell(view.pick(from, zh_from))]
            }),
        );
    }
    let mut decisions = Vec::new();
    for kind in ["permitted", "asked", "settled"] {
        decisions.extend(view.rows("evidence.query", json!({ "kind": kind, "limit": ROWS })).await?);
    }
    // A settlement of what ran is no decision of the gate.
    decisions.retain(|row| row["kind"] != "settled" || row["detail"].get("step").is_some_and(|step| !step.is_null()));
    decisions.sort_by_key(|row| std::cmp::Reverse(row["seq"].as_u64()));
    decisions.truncate(ROWS);
    main.element("h2", &[], view.pick("Decided last", "最近裁决"));
    let heads = [
        view.pick("Row", "行号"),
        view.pick("Call", "调用"),
        view.pick("Decision", "裁决"),
        view.pick("By which rule", "依据规则"),
        view.pick("Step", "步骤"),
        view.pick("Why", "原因"),
    ];
    table(
        &mut main,
        view.pick("Decisions", "裁决"),
        &heads,
        decisions.iter().map(|row| {
            let (seq, detail) = (shown(row, "seq"), &row["detail"]);
            let (class, en, zh) = match row["kind"].as_str() {
                Some("permitted") => ("good", "allowed", "允许"),
                Some("asked") => ("warn", "asked", "询问"),
                _ => ("bad", "denied", "拒绝"),
            };
            let run = row["run"].as_str().unwrap_or_default();
            let step =
                if detail.get("step").is_some_and(Value::is_string) { shown(detail, "step") } else { shown(row, "to") };
            vec![
                linked(&format!("/evidence/{seq}"), &seq),
                linked(&format!("/runs/{run}"), &shown(row, "call")),
                badge(class, view.pick(en, zh)),
                cell(&shown(detail, "rule")),
                cell(&step),
                cell(&shown(detail, "reason")),
            ]
        }),
    );
    Ok((view.pick("Policy", "策略").to_owned(), main))
}
