//! The devices with what they say now, read through the gate like every other reading.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use interlock_domain::time::Tick;
use serde_json::Value;

use super::{Made, View, nothing};
use crate::console::html::Html;
use crate::console::page::{cell, shown, table};
use crate::control::wire::Trouble;
use crate::sys::clock;

/// How long a reading is good: each is one through the gate, and a row of evidence with all values. A page that fetches
/// itself again, each time a task gets on, would fill the log.
const GOOD_BY_ITSELF: Duration = Duration::from_secs(60);
/// The same for what a person decides by.
pub(super) const FRESH: Duration = Duration::from_secs(5);

/// The last reading, for whoever asks next.
pub(in crate::console) type Readings = Mutex<Option<(Tick, Arc<[Value]>)>>;

/// Forgets a reading that nobody would be given any more: with all points of a plant it is not small.
pub(in crate::console) fn forget(readings: &Readings, now: Tick) {
    let mut last = readings.lock().unwrap_or_else(PoisonError::into_inner);
    if last.as_ref().is_some_and(|(at, _)| now >= at.after(GOOD_BY_ITSELF)) {
        *last = None;
    }
}

/// The points of all devices, with their values.
pub(super) async fn points(view: &View<'_>, good_for: Duration) -> Result<Arc<[Value]>, Trouble> {
    let now = clock::now();
    let last = view.console.readings.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some((_, points)) = last.filter(|(at, _)| now < at.after(good_for)) {
        return Ok(points);
    }
    let points: Arc<[Value]> = view.rows("device.list", nothing()).await?.into();
    *view.console.readings.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, Arc::clone(&points)));
    Ok(points)
}

pub(super) async fn page(view: &View<'_>) -> Made {
    let points = points(view, if view.asked.by_itself { GOOD_BY_ITSELF } else { FRESH }).await?;
    let mut main = Html::new();
    let why = view.pick(
        "Each reading goes through the gate and stands in the evidence. A page that is open reads once a minute at \
         most; load it again for newer values.",
        "每次读取都经过闸门并记入证据。页面打开时最多每分钟读取一次；需要最新数值请重新加载。",
    );
    main.element("p", &[("class", "quiet")], why);
    let heads = [
        view.pick("Point", "点位"),
        view.pick("Value", "数值"),
        view.pick("Zone", "区域"),
        view.pick("Register", "寄存器"),
    ];
    let mut devices: Vec<&str> = points.iter().filter_map(|point| point["device"].as_str()).collect();
    devices.dedup();
    for device in devices {
        main.element("h2", &[], device);
        let of_it = points.iter().filter(|point| point["device"] == device);
        table(
            &mut main,
            device,
            &heads,
            of_it.map(|point| {
                let register = format!(
                    "{} {} ({} {})",
                    shown(point, "kind"),
                    shown(point, "address"),
                    shown(point, "bus"),
                    shown(point, "unit")
                );
                vec![cell(&shown(point, "point")), cell(&value(point)), cell(&shown(point, "zone")), cell(&register)]
            }),
        );
    }
    Ok((view.pick("Devices", "设备").to_owned(), main))
}

fn value(point: &Value) -> String {
    match point.get("error").and_then(Value::as_str) {
        Some(error) => error.to_owned(),
        None => shown(point, "value"),
    }
}
