//! This machine, one line a check: what `interlock doctor` says.

use std::sync::Arc;

use serde_json::Value;

use super::{Made, View, nothing};
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
    let status = view.one("status", nothing()).await?;
    receivers(&mut main, view, &status["export"]);
    Ok((view.pick("Health", "健康").to_owned(), main))
}

/// The plant's own systems, and how far behind each is.
fn receivers(main: &mut Html, view: &View<'_>, export: &Value) {
    let Some(receivers) = export.as_object().filter(|receivers| !receivers.is_empty()) else { return };
    main.element("h2", &[], view.pick("Plant systems that are told", "厂内系统对接"));
    let heads = [
        view.pick("Receiver", "接收方"),
        view.pick("State", "状态"),
        view.pick("Waiting", "待发送"),
        view.pick("Left out", "已丢弃"),
        view.pick("Arrived", "已送达"),
        view.pick("Last success", "最近成功"),
        view.pick("Last error", "最近错误"),
    ];
    table(
        main,
        view.pick("Receivers", "接收方"),
        &heads,
        receivers.iter().map(|(name, standing)| {
            let (class, en, zh) = match (standing["connected"].as_bool(), standing["last_error"].is_null()) {
                (Some(true), _) => ("good", "reached", "正常"),
                (_, true) => ("warn", "not reached yet", "尚未连接"),
                (_, false) => ("bad", "not reached", "未连通"),
            };
            let error = &standing["last_error"];
            let error = if error.is_null() {
                "–".to_owned()
            } else {
                format!("{} {}", shown(error, "at"), shown(error, "why"))
            };
            let or_dash = |key: &str| if standing[key].is_null() { "–".to_owned() } else { shown(standing, key) };
            vec![
                cell(name),
                badge(class, view.pick(en, zh)),
                cell(&shown(standing, "waiting")),
                cell(&shown(standing, "dropped")),
                cell(&shown(standing, "arrived")),
                cell(&or_dash("last_success")),
                cell(&error),
            ]
        }),
    );
}
