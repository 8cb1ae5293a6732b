//! The rules that are in force, and which of them decided what.

use std::sync::Arc;

use interlock_domain::gate::rule::{Authority, Verb};

use super::evidence::run_at;
use super::{Looked, Made, View};
use crate::console::html::Html;
use crate::console::page::{Lang, badge, cell, linked, shown, table};
use crate::engine::log::Search;

/// Decisions that are shown.
const ROWS: usize = 25;

/// How a settlement says that it is a denial.
const DENIED: &str = "\"denied\":true";

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
    // A denial has no row of its own kind: it is a settlement that says so.
    let denied = Search { kinds: vec!["settled".to_owned()], text: Some(DENIED.to_owned()), ..search() };
    let allowed = Search { kinds: vec!["permitted".to_owned(), "asked".to_owned()], ..search() };
    let (denied, allowed) = tokio::join!(view.look(denied), view.look(allowed));
    let denied = only_denied(denied?);
    table_of(&mut main, view, view.pick("Denied last", "最近拒绝"), &denied);
    table_of(&mut main, view, view.pick("Allowed and asked last", "最近允许与询问"), &allowed?);
    Ok((view.pick("Policy", "策略").to_owned(), main))
}

fn search() -> Search {
    Search { limit: ROWS, ..Search::default() }
}

/// What the words of somebody else say is no member.
fn only_denied(mut found: Looked) -> Looked {
    found.rows.retain(|row| row["detail"]["denied"] == true);
    found
}

fn table_of(main: &mut Html, view: &View<'_>, title: &str, decisions: &Looked) {
    main.element("h2", &[], title);
    if let (Some(rest), true) = (decisions.rest, decisions.rows.len() < ROWS) {
        let text = match view.asked.lang {
            Lang::En => format!("Rows {rest} and older were not looked at."),
            Lang::Zh => format!("未查找行 {rest} 及更早的记录。"),
        };
        main.element("p", &[("class", "quiet")], &text);
    }
    if decisions.rows.is_empty() {
        main.element("p", &[], view.pick("None.", "无。"));
        return;
    }
    let heads = [
        view.pick("Row", "行号"),
        view.pick("Call", "调用"),
        view.pick("Decision", "裁决"),
        view.pick("By which rule", "依据规则"),
        view.pick("Step", "步骤"),
        view.pick("Why", "原因"),
    ];
    table(
        main,
        title,
        &heads,
        decisions.rows.iter().map(|row| {
            let (seq, detail) = (shown(row, "seq"), &row["detail"]);
            let (class, en, zh) = match row["kind"].as_str() {
                Some("permitted") => ("good", "allowed", "允许"),
                Some("asked") => ("warn", "asked", "询问"),
                _ => ("bad", "denied", "拒绝"),
            };
            let run = row["run"].as_str().unwrap_or_default();
            // A permission says its step as its cause; a person's no is no step of the gate.
            let step = if detail["step"].is_string() { shown(detail, "step") } else { shown(row, "cause") };
            let why =
                if detail["reason"].is_string() { view.reason(detail, "reason") } else { shown(detail, "message") };
            vec![
                linked(&format!("/evidence/{seq}"), &seq),
                linked(&run_at(run, row), &shown(row, "call")),
                badge(class, view.pick(en, zh)),
                cell(&shown(detail, "rule")),
                cell(step_word(view, &step)),
                cell(&why),
            ]
        }),
    );
}

/// A step of the gate; another word stays as it is.
fn step_word<'t>(view: &View<'_>, step: &'t str) -> &'t str {
    let zh = match step {
        "precondition" => "前置检查",
        "plan" => "计划模式",
        "immune" => "保护项",
        "rule" => "规则",
        "scope" => "工作范围",
        "mode" => "模式",
        "denied_by_person" => "由人拒绝",
        _ => return step,
    };
    view.pick(step, zh)
}
