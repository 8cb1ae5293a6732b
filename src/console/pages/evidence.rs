//! The evidence: found, read row by row, and held against its hashes.

use std::sync::{Arc, PoisonError};

use serde_json::{Value, json};

use super::{Made, View, number};
use crate::console::Console;
use crate::console::act::VERIFY;
use crate::console::html::Html;
use crate::console::page::{Deed, cell, facts, linked, shown, table};
use crate::record::rfc3339;
use crate::sys::clock;

/// Rows on one page.
const ROWS: u64 = 100;

/// What is known of the last verification that somebody asked for.
#[derive(Debug, Default)]
pub(in crate::console) struct Verification {
    is_running: bool,
    /// When it ended, and what it found.
    last: Option<(String, Result<Value, String>)>,
}

/// Begins one, unless one is under way.
pub(in crate::console) fn verify(console: &Arc<Console>) {
    {
        let mut known = console.verification.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_running {
            return;
        }
        known.is_running = true;
    }
    let console = Arc::clone(console);
    tokio::spawn(async move {
        let found = console.context.log.verify().await.map_err(|error| error.to_string());
        let ended = (rfc3339(clock::wall()), found);
        *console.verification.lock().unwrap_or_else(PoisonError::into_inner) =
            Verification { is_running: false, last: Some(ended) };
        console.live.stir();
    });
}

pub(super) async fn page(view: &View<'_>) -> Made {
    let query = &view.asked.query;
    let mut args = json!({ "limit": ROWS });
    for key in ["text", "kind", "run", "call", "task"] {
        if let Some(value) = query.get(key) {
            args[key] = value.trim().into();
        }
    }
    if let Some(since) = query.get("since") {
        args["since"] = number(since.trim())?.into();
    }
    let mut found = view.rows("evidence.query", args).await?;
    found.reverse();
    let mut main = Html::new();
    search(&mut main, view);
    rows(&mut main, view, &found);
    verification(&mut main, view);
    Ok((view.pick("Evidence", "证据").to_owned(), main))
}

fn search(main: &mut Html, view: &View<'_>) {
    main.open("form", &[("method", "get"), ("action", "/evidence"), ("class", "card search"), ("role", "search")]);
    for (name, en, zh) in [
        ("text", "Text", "文本"),
        ("kind", "What", "事件"),
        ("run", "Run", "运行"),
        ("task", "Task", "任务"),
        ("since", "From row", "起始行"),
    ] {
        let value = view.asked.query.get(name).unwrap_or_default();
        main.raw("<div>").element("label", &[("for", name)], view.pick(en, zh));
        main.open("input", &[("id", name), ("name", name), ("value", value), ("maxlength", "200")]).raw("</div>");
    }
    main.element("button", &[("class", "primary")], view.pick("Search", "搜索")).close("form");
}

/// A table of rows.
pub(super) fn rows(main: &mut Html, view: &View<'_>, rows: &[Value]) {
    let heads = [
        view.pick("Row", "行号"),
        view.pick("Time", "时间"),
        view.pick("What", "事件"),
        view.pick("Of", "所属"),
        view.pick("To", "状态"),
        view.pick("Cause", "原因"),
        view.pick("What it says", "内容"),
    ];
    table(
        main,
        view.pick("Rows", "记录"),
        &heads,
        rows.iter().map(|row| {
            let seq = shown(row, "seq");
            let of = match (row["run"].as_str(), row["task"].as_str()) {
                (Some(run), _) => linked(&format!("/runs/{run}"), run),
                (None, Some(task)) => linked(&format!("/tasks/{task}"), task),
                (None, None) => cell("–"),
            };
            vec![
                linked(&format!("/evidence/{seq}"), &seq),
                cell(&shown(row, "time")),
                cell(&shown(row, "kind")),
                of,
                cell(&shown(row, "to")),
                cell(&shown(row, "cause")),
                super::runs::said(&row["detail"]),
            ]
        }),
    );
}

fn verification(main: &mut Html, view: &View<'_>) {
    main.element("h2", &[], view.pick("Verification", "校验"));
    let known = view.console.verification.lock().unwrap_or_else(PoisonError::into_inner);
    let told = match (&known.last, known.is_running) {
        (_, true) => view.pick("Under way in the background.", "正在后台校验。").to_owned(),
        (None, false) => view.pick("Nobody asked for one since the start.", "启动以来未请求过校验。").to_owned(),
        (Some((when, Ok(found))), false) => {
            format!("{when}: {} · {} {}", shown(found, "verdict"), view.pick("rows", "行数"), shown(found, "rows"))
        }
        (Some((when, Err(error))), false) => format!("{when}: {error}"),
    };
    drop(known);
    main.element("p", &[("role", "status")], &told);
    let label = view.pick("Verify now", "立即校验");
    view.deed(main, &Deed { path: VERIFY, fields: &[], class: "", label, about: "" });
}

/// One row, whole.
pub(super) async fn row(view: &View<'_>, seq: &str) -> Made {
    let row = view.one("evidence.show", json!({ "seq": number(seq)? })).await?;
    let mut main = Html::new();
    let mut known: Vec<(&str, String)> = Vec::new();
    for key in ["time", "time_quality", "kind", "run", "call", "task", "from", "to", "cause", "boot_id", "hash"] {
        if !row[key].is_null() {
            known.push((key, shown(&row, key)));
        }
    }
    facts(&mut main, &known);
    let detail = serde_json::to_string_pretty(&row["detail"]).unwrap_or_default();
    main.open("pre", &[("tabindex", "0")]).text(&detail).close("pre");
    if let Some(run) = row["run"].as_str() {
        main.open("p", &[]).link(&format!("/runs/{run}"), view.pick("The whole run", "整个运行")).close("p");
    }
    Ok((format!("{} {seq}", view.pick("Row", "记录")), main))
}
