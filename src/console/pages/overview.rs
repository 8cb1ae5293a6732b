//! Is it safe, and what waits for me.

use serde_json::{Value, json};

use super::{Made, View, nothing, questions, tasks};
use crate::console::html::Html;
use crate::console::page::{badge, cell, linked, run as run_cell, shown, table, when};

/// The newest rows of evidence.
const ROWS: u64 = 10;

pub(super) async fn page(view: &View<'_>) -> Made {
    let waiting = view.rows("ask.list", nothing()).await?;
    let all = view.rows("task.list", nothing()).await?;
    let proposals = view.rows("learn.list", nothing()).await?;
    let status = view.one("status", nothing()).await?;
    let newest = view.rows("evidence.query", json!({ "limit": ROWS })).await?;
    let unwell: Vec<&Value> = all.iter().filter(|row| tasks::is_unwell(row)).collect();
    let mut main = Html::new();
    verdict(&mut main, view, waiting.len(), unwell.len(), proposals.len());
    main.raw("<div class=\"grid\">");
    for (to, count, en, zh, is_bad) in [
        ("/questions", waiting.len(), "questions wait", "个问题待回答", !waiting.is_empty()),
        ("/tasks", unwell.len(), "tasks are not well", "个任务异常", !unwell.is_empty()),
        ("/tasks", all.len(), "tasks in all", "个任务", false),
        ("/reviews", proposals.len(), "proposals wait for a review", "个学习提案待审核", !proposals.is_empty()),
    ] {
        let class = if is_bad { "card figure warn" } else { "card figure" };
        main.open("a", &[("href", to), ("class", class)]);
        main.element("b", &[], &count.to_string()).text(" ").text(view.pick(en, zh)).close("a");
    }
    main.raw("</div>");
    if !waiting.is_empty() {
        main.element("h2", &[], view.pick("Waits for an answer", "等待回答"));
        let points = questions::points(view, &waiting).await;
        for question in waiting.iter().take(5) {
            questions::card(&mut main, view, question, &points);
        }
    }
    if !unwell.is_empty() {
        main.element("h2", &[], view.pick("Tasks that are not well", "异常任务"));
        tasks::rows(&mut main, view, unwell.into_iter().take(20));
    }
    main.element("h2", &[], view.pick("What happened last", "最近发生"));
    let heads =
        [view.pick("Row", "行号"), view.pick("Time", "时间"), view.pick("What", "事件"), view.pick("Run", "运行")];
    table(
        &mut main,
        view.pick("Newest evidence", "最新证据"),
        &heads,
        newest.iter().map(|row| {
            let seq = shown(row, "seq");
            let run = row["run"].as_str();
            vec![
                linked(&format!("/evidence/{seq}"), &seq),
                when(row),
                cell(&shown(row, "kind")),
                run.map_or_else(|| cell("–"), |run| run_cell(&super::evidence::run_at(run, row), run)),
            ]
        }),
    );
    let liveness = &status["liveness"];
    let told = format!(
        "{} {} · {} {} · {} {} · {} {}",
        view.pick("version", "版本"),
        shown(&status, "version"),
        view.pick("deaths are noticed by", "死亡检测"),
        shown(liveness, "tier"),
        view.pick("scans", "巡检"),
        shown(liveness, "scans"),
        view.pick("living", "存活"),
        shown(liveness, "living"),
    );
    main.element("p", &[("class", "quiet")], &told);
    Ok((view.pick("Overview", "总览").to_owned(), main))
}

fn verdict(main: &mut Html, view: &View<'_>, waiting: usize, unwell: usize, proposals: usize) {
    let (class, word, text) = match (unwell, waiting + proposals) {
        (0, 0) => {
            ("good", view.pick("All well", "一切正常"), view.pick("Nothing waits for you.", "没有需要您处理的事项。"))
        }
        (0, _) => (
            "warn",
            view.pick("Waits for you", "等待处理"),
            view.pick("Nothing is wrong; somebody has to decide.", "没有异常，但有事项需要决定。"),
        ),
        _ => (
            "bad",
            view.pick("Look here", "请查看"),
            view.pick("A task does not respond or has ended without a result.", "有任务无响应，或没有结果就已结束。"),
        ),
    };
    main.open("p", &[("class", "verdict"), ("role", "status")])
        .put(&badge(class, word))
        .text(" ")
        .text(text)
        .close("p");
}
