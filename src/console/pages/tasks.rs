//! Background tasks: their states and causes, their last beats, and what a person may do about them.

use serde_json::{Value, json};

use super::{Made, View, nothing, parsed};
use crate::console::form::encoded;
use crate::console::html::Html;
use crate::console::page::{Deed, badge, cell, facts, linked, shown, table};
use crate::engine::log::Search;

/// Rows on one page.
const ROWS: usize = 100;

/// Rows of evidence on the page of one task.
const HISTORY: usize = 50;

/// The size of a chart of beats.
const WIDTH: u64 = 120;
const HEIGHT: u64 = 28;

/// An age of a last beat that fills the chart: the default patience with a worker.
const AGE_MS: u64 = 15_000;

pub(super) fn is_unwell(row: &Value) -> bool {
    matches!(row["state"].as_str(), Some("ZOMBIE" | "DEAD"))
}

pub(super) async fn list(view: &View<'_>) -> Made {
    let mut all = view.rows("task.list", nothing()).await?;
    // What needs somebody comes first.
    all.sort_by_key(|row| !is_unwell(row));
    let from = view.asked.query.get("from").and_then(|from| from.parse::<usize>().ok());
    let from = from.filter(|from| *from < all.len()).unwrap_or(0);
    let mut main = Html::new();
    if all.is_empty() {
        main.element("p", &[], view.pick("There are no background tasks.", "没有后台任务。"));
    } else {
        rows(&mut main, view, all.iter().skip(from).take(ROWS));
        pages(&mut main, view, from, all.len());
    }
    Ok((view.pick("Tasks", "任务").to_owned(), main))
}

fn pages(main: &mut Html, view: &View<'_>, from: usize, count: usize) {
    if count <= ROWS {
        return;
    }
    main.open("nav", &[("class", "pages"), ("aria-label", view.pick("Rows", "分页"))]);
    main.text(&format!("{}–{} / {count} ", from + 1, (from + ROWS).min(count)));
    if from > 0 {
        main.link(&format!("/tasks?from={}", from.saturating_sub(ROWS)), view.pick("before", "上一页")).text(" ");
    }
    if from + ROWS < count {
        main.link(&format!("/tasks?from={}", from + ROWS), view.pick("next", "下一页"));
    }
    main.close("nav");
}

/// A table of tasks.
pub(super) fn rows<'a>(main: &mut Html, view: &View<'_>, rows: impl Iterator<Item = &'a Value>) {
    let heads = [
        view.pick("Task", "任务"),
        view.pick("State", "状态"),
        view.pick("Cause", "原因"),
        view.pick("Last beats", "最近心跳"),
        view.pick("What", "内容"),
        view.pick("Do", "操作"),
    ];
    table(
        main,
        view.pick("Background tasks", "后台任务"),
        &heads,
        rows.map(|row| {
            let task = shown(row, "task");
            let what = format!("{} {}", shown(row, "name"), row["about"].as_str().unwrap_or_default());
            let mut act = Html::new();
            deeds(&mut act, view, row);
            vec![
                linked(&format!("/tasks/{task}"), &task),
                state(view, row),
                cell(&shown(row, "cause")),
                chart(view, &task),
                cell(what.trim()),
                act,
            ]
        }),
    );
}

fn state(view: &View<'_>, row: &Value) -> Html {
    let word = shown(row, "state");
    let (class, zh) = match word.as_str() {
        "RUNNING" => ("good", "运行"),
        "ZOMBIE" => ("bad", "无响应"),
        "DEAD" => ("bad", "已消失"),
        "STOPPED" => ("", "已结束"),
        "CLEANED" => ("", "已清理"),
        _ => ("warn", ""),
    };
    badge(class, &if zh.is_empty() { word } else { view.pick(word.as_str(), &format!("{zh} {word}")).to_owned() })
}

fn deeds(page: &mut Html, view: &View<'_>, row: &Value) {
    let task = shown(row, "task");
    let (stop, clean) = (view.pick("Stop", "停止"), view.pick("Clean", "清理"));
    let (pause, resume) = (view.pick("Pause", "暂停"), view.pick("Resume", "继续"));
    let deeds: &[(&'static str, &str, &'static str)] = match shown(row, "state").as_str() {
        "RUNNING" => &[("/task/stop", stop, "danger"), ("/task/pause", pause, ""), ("/task/resume", resume, "")],
        "ZOMBIE" => &[("/task/stop", stop, "danger")],
        "DEAD" | "STOPPED" => &[("/task/clean", clean, "")],
        _ => &[],
    };
    for &(path, label, class) in deeds {
        view.deed(page, &Deed { path, fields: &[("task", &task)], class, label, about: &task });
    }
}

/// How long ago the last beat was, second by second: a saw while it beats, a slope while it is silent.
fn chart(view: &View<'_>, task: &str) -> Html {
    let ages = view.console.beats.of(task);
    let mut svg = Html::new();
    let Some(newest) = ages.last() else { return cell("–") };
    let told = format!(
        "{} {:.1} s",
        view.pick("last beat before", "距上次心跳"),
        std::time::Duration::from_millis(*newest).as_secs_f64()
    );
    svg.open(
        "svg",
        &[
            ("class", "beats"),
            ("viewBox", &format!("0 0 {WIDTH} {HEIGHT}")),
            ("width", &WIDTH.to_string()),
            ("height", &HEIGHT.to_string()),
            ("role", "img"),
            ("aria-label", &told),
        ],
    );
    let points: Vec<String> = (0u64..)
        .zip(&ages)
        .map(|(at, age)| format!("{},{}", at * 2, HEIGHT - (*age).min(AGE_MS) * (HEIGHT - 2) / AGE_MS))
        .collect();
    svg.open("polyline", &[("points", &points.join(" "))]).close("polyline").close("svg");
    svg.raw(" <small>").text(&told).raw("</small>");
    svg
}

/// One task, with the diagnosis of one that is stuck.
pub(super) async fn one(view: &View<'_>, task: &str) -> Made {
    let row = view.one("task.show", json!({ "task": task })).await?;
    let search = Search { task: parsed(Some(task))?, limit: HISTORY, ..Search::default() };
    let history = view.look(search).await?;
    let mut main = Html::new();
    main.open("p", &[("class", "verdict")]).put(&state(view, &row)).text(" ").text(&shown(&row, "advice")).close("p");
    main.open("div", &[("class", "card")]);
    facts(
        &mut main,
        &[
            (view.pick("Cause", "原因"), shown(&row, "cause")),
            (view.pick("Diagnosis", "诊断"), shown(&row, "diagnosis")),
            (
                view.pick("What", "内容"),
                format!("{} {}", shown(&row, "name"), row["about"].as_str().unwrap_or_default()),
            ),
            (view.pick("Last beat", "上次心跳"), format!("{} ms", shown(&row, "last_beat_ms"))),
            (view.pick("Progress", "进度"), shown(&row, "progress")),
            (view.pick("Said last", "最后输出"), shown(&row, "said")),
            (
                view.pick("Thread", "线程"),
                format!("{} ({} {})", shown(&row, "tid"), view.pick("life", "第几次"), shown(&row, "generation")),
            ),
            (view.pick("Started", "开始"), shown(&row, "started")),
            (view.pick("Outcome", "结果"), shown(&row, "outcome")),
            (view.pick("Output", "输出"), shown(&row, "output")),
        ],
    );
    main.put(&chart(view, task));
    main.open("div", &[("class", "deeds")]);
    deeds(&mut main, view, &row);
    main.raw("</div></div>");
    main.element("h2", &[], view.pick("What is recorded", "记录"));
    super::evidence::rows(&mut main, view, &history.rows);
    if let Some(rest) = history.rest {
        let to = format!("/evidence?task={}&until={rest}", encoded(task));
        main.open("p", &[("class", "pages")]).link(&to, view.pick("Look further back", "继续向前查找")).close("p");
    }
    Ok((format!("{} {task}", view.pick("Task", "任务")), main))
}
