//! The devices with what they say now, read through the gate like every other reading.

use serde_json::Value;

use super::{Made, View, nothing};
use crate::console::html::Html;
use crate::console::page::{cell, shown, table};
use crate::control::wire::Trouble;

/// The points of all devices, with their values.
pub(super) async fn points(view: &View<'_>) -> Result<Vec<Value>, Trouble> {
    view.rows("device.list", nothing()).await
}

pub(super) async fn page(view: &View<'_>) -> Made {
    let points = points(view).await?;
    let mut main = Html::new();
    let why = view.pick(
        "Each look is a reading through the gate, and stands in the evidence.",
        "每次查看都是一次经过闸门的读取，并记入证据。",
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
