//! This machine, one line a check: what `interlock doctor` says.

use std::sync::Arc;

use super::{Made, View};
use crate::console::html::Html;
use crate::console::page::{Lang, badge, cell, shown, table};
use crate::control::wire::{Kind, Trouble};

pub(super) async fn page(view: &View<'_>) -> Made {
    let (health, zh) = (Arc::clone(&view.console.settings.health), view.asked.lang == Lang::Zh);
    let lines = tokio::task::spawn_blocking(move || health(zh)).await;
    let lines = lines.map_err(|error| Trouble::new(Kind::Bug, error.to_string()))?;
    let mut main = Html::new();
    let heads = [
        view.pick("Check", "检查"),
        view.pick("Verdict", "结论"),
        view.pick("Found", "结果"),
        view.pick("What to do", "建议"),
    ];
    table(
        &mut main,
        view.pick("Checks", "检查项"),
        &heads,
        lines.iter().map(|line| {
            let (class, en, zh) = match line["verdict"].as_str() {
                Some("good") => ("good", "good", "正常"),
                Some("note") => ("warn", "note", "注意"),
                _ => ("bad", "bad", "异常"),
            };
            vec![
                cell(&shown(line, "check")),
                badge(class, view.pick(en, zh)),
                cell(&shown(line, "found")),
                cell(&shown(line, "advice")),
            ]
        }),
    );
    Ok((view.pick("Health", "健康").to_owned(), main))
}
