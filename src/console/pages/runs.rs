//! One run from its beginning to its end: who asked, what the gate said, what was done, what came back.

use serde_json::{Value, json};

use super::{Made, View};
use crate::console::html::Html;
use crate::console::page::{cell, linked, shown, table};
use crate::control::wire::{Kind, Trouble};

/// Rows of one run that are shown; the evidence has the rest.
const ROWS: usize = 500;

pub(super) async fn page(view: &View<'_>, run: &str) -> Made {
    let rows = view.rows("evidence.query", json!({ "run": run, "since": 1, "limit": ROWS })).await?;
    let Some(first) = rows.first() else {
        return Err(
            Trouble::new(Kind::NotFound, format!("the log has nothing of run {run}")).hint("interlock trace list")
        );
    };
    let begun = first["mono_ns"].as_u64().unwrap_or(0);
    let mut main = Html::new();
    main.element("p", &[], &shown(first, "time"));
    let heads = [
        view.pick("Row", "行号"),
        view.pick("After", "耗时"),
        view.pick("Call", "调用"),
        view.pick("What", "事件"),
        view.pick("To", "状态"),
        view.pick("Cause", "原因"),
        view.pick("What it says", "内容"),
    ];
    table(
        &mut main,
        view.pick("The run as its trace", "运行轨迹"),
        &heads,
        rows.iter().map(|row| {
            let seq = shown(row, "seq");
            let after = row["mono_ns"].as_u64().unwrap_or(begun).saturating_sub(begun) / 1000;
            vec![
                linked(&format!("/evidence/{seq}"), &seq),
                cell(&format!("{}.{:03} ms", after / 1000, after % 1000)),
                cell(&shown(row, "call")),
                cell(&shown(row, "kind")),
                cell(&shown(row, "to")),
                cell(&shown(row, "cause")),
                said(&row["detail"]),
            ]
        }),
    );
    if rows.len() == ROWS {
        let text = view.pick("The run has more rows; this is its beginning.", "该运行还有更多记录，这里只是开头。");
        main.element("p", &[("class", "quiet")], text);
    }
    Ok((format!("{} {run}", view.pick("Run", "运行")), main))
}

/// The members of a detail, one beside the other.
pub(super) fn said(detail: &Value) -> Html {
    let mut text = Html::new();
    match detail {
        Value::Object(members) => {
            for (name, value) in members.iter().filter(|(_, value)| !value.is_null()) {
                let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                let cut: String = shown.chars().take(200).collect();
                text.raw("<span class=\"pair\"><b>").text(name).raw("</b> ").text(&cut);
                text.text(if cut.len() < shown.len() { "…" } else { "" }).raw("</span> ");
            }
        }
        Value::Null => {}
        other @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            text.text(&other.to_string());
        }
    }
    text
}
