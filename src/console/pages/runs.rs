//! One run from its beginning to its end: who asked, what the gate said, what was done, what came back.

use interlock_domain::id::NotAnId;
use serde_json::Value;

use super::{Made, View, row_of};
use crate::console::html::Html;
use crate::console::page::{Lang, cell, linked, one_line, shown, table};
use crate::control::wire::{Kind, Trouble};
use crate::engine::log::{Search, Seq};

/// Rows of one run that are shown at once.
const ROWS: usize = 500;

/// How many rows after the one that somebody came from are looked at: what a run does next stands near it.
const AHEAD: u64 = 20_000;

pub(super) async fn page(view: &View<'_>, run: &str) -> Made {
    let id = run.parse().map_err(|error: NotAnId| Trouble::new(Kind::Usage, error.to_string()))?;
    let query = &view.asked.query;
    let until = row_of(query.get("until"))?.or(row_of(query.get("row"))?.map(|row| Seq(row.0.saturating_add(AHEAD))));
    let search = Search { until, run: Some(id), begin: Some("run_opened"), limit: ROWS, ..Search::default() };
    let found = view.look(search).await?;
    let (mut rows, rest) = (found.rows, found.rest);
    rows.reverse();
    let Some(first) = rows.first() else {
        return nothing_yet(view, run, rest);
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
            let call = shown(row, "call");
            let after = row["mono_ns"].as_u64().unwrap_or(begun).saturating_sub(begun) / 1000;
            vec![
                linked(&format!("/evidence/{seq}"), &seq),
                one_line(&format!("{}.{:03} ms", after / 1000, after % 1000)),
                // Within its run: the run stands above.
                cell(call.strip_prefix(run).map_or(call.as_str(), |rest| rest.trim_start_matches('.'))),
                cell(&shown(row, "kind")),
                cell(&shown(row, "to")),
                cell(&shown(row, "cause")),
                said(&row["detail"]),
            ]
        }),
    );
    if let Some(rest) = rest {
        further(&mut main, view, run, rest, view.pick("The run may have older rows.", "该运行可能还有更早的记录。"));
    }
    Ok((format!("{} {run}", view.pick("Run", "运行")), main))
}

/// Nothing of it was found, as far as was looked.
fn nothing_yet(view: &View<'_>, run: &str, rest: Option<u64>) -> Made {
    let Some(rest) = rest else {
        let text = match view.asked.lang {
            Lang::En => format!("the log has nothing of run {run}"),
            Lang::Zh => format!("日志中没有运行 {run} 的记录"),
        };
        return Err(Trouble::new(Kind::NotFound, text).hint("interlock trace list"));
    };
    let mut main = Html::new();
    further(&mut main, view, run, rest, view.pick("The newest rows have nothing of it.", "最新的记录中没有该运行。"));
    Ok((format!("{} {run}", view.pick("Run", "运行")), main))
}

fn further(main: &mut Html, view: &View<'_>, run: &str, rest: u64, text: &str) {
    main.open("p", &[("class", "pages")]).text(text).text(" ");
    main.link(&format!("/runs/{run}?until={rest}"), view.pick("Look further back", "继续向前查找")).close("p");
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
