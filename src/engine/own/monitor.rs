//! `monitor`: watches a value of a device for a while, on a supervised thread of its own.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use interlock_domain::effect::report::{Failure, Report};
use interlock_domain::surface::device::DeviceTable;
use interlock_domain::surface::outputs::Outputs;
use interlock_domain::surface::tool::{Annotations, BadTool, Definition, Kind, Tool};
use serde_json::{Value, json};

use super::super::supervisor::{Finished, Heart, TaskSpec};
use super::super::tasks::Tasks;
use super::schema::{name, text};
use crate::sys::clock;
use crate::tool::Tools;

/// How long a watch lasts when nobody says: a shift must not end with a hundred forgotten watches.
const DURATION_S: f64 = 3600.0;

/// The bounds of a watch, in seconds: a week, and ten readings a second.
const DURATION_S_MAX: f64 = 7.0 * 86400.0;
const PERIOD_S_MIN: f64 = 0.1;

/// How many readings in a row may fail before the watch gives up: a bus that is restarted comes back within minutes.
const FAILURES_MAX: u32 = 60;

pub(super) fn tool(devices: Arc<DeviceTable>) -> Result<Tool, BadTool> {
    Tool::new(Definition {
        name: name("monitor")?,
        title: text(["Monitor", "监测"]),
        description: text([
            "Watches a device, or one point of it, in the background. With above or below it counts how often the value was there, and ends at the first time with until_met. Gives the task's number at once.",
            "在后台监测设备或其某个测点。给出 above 或 below 时统计越限次数；until_met 为真时首次越限即结束。立即返回任务号。",
        ]),
        input_schema: json!({
            "type": "object",
            "properties": {
                "device": { "type": "string", "description": "The device's name" },
                "point": { "type": "string", "description": "One point; all of them when it is left out" },
                "above": { "type": "number" },
                "below": { "type": "number" },
                "until_met": { "type": "boolean" },
                "duration_s": { "type": "number", "exclusiveMinimum": 0, "maximum": DURATION_S_MAX },
                "period_s": { "type": "number", "minimum": PERIOD_S_MIN, "maximum": 3600 },
            },
            "required": ["device"],
            "additionalProperties": false,
        }),
        output_schema: Some(json!({
            "type": "object", "properties": { "task": { "type": "string" } }, "required": ["task"],
        })),
        annotations: Annotations {
            read_only: Some(true),
            destructive: Some(false),
            idempotent: Some(false),
            open_world: Some(false),
        },
        kind: Kind::Monitor(devices),
    })
}

/// What a watch gives back, at its end and when it is stopped.
fn promised() -> Arc<Outputs> {
    static PROMISED: LazyLock<Arc<Outputs>> = LazyLock::new(|| {
        let schema = json!({
            "type": "object",
            "properties": {
                "device": { "type": "string" },
                "point": { "type": ["string", "null"] },
                "ended": { "enum": ["duration", "met", "stopped"] },
                "samples": { "type": "integer", "minimum": 0 },
                "met": { "type": "integer", "minimum": 0 },
                "min": { "type": ["number", "null"] },
                "max": { "type": ["number", "null"] },
                "last": { "type": ["number", "boolean", "array", "object", "null"] },
            },
            "required": ["device", "point", "ended", "samples", "met", "min", "max", "last"],
            "additionalProperties": false,
        });
        #[expect(clippy::expect_used, reason = "a constant, and a test reads it")]
        Arc::new(Outputs::new(&schema).expect("a schema"))
    });
    Arc::clone(&PROMISED)
}

struct Watch {
    read: Value,
    point: Option<String>,
    above: Option<f64>,
    below: Option<f64>,
    until_met: bool,
    duration: Duration,
    period: Duration,
}

/// Starts the worker and gives its number.
pub(super) async fn start(input: &Value, tasks: &Tasks, tools: Arc<Tools>) -> Report {
    let device = input["device"].as_str().unwrap_or_default();
    let point = input["point"].as_str().map(str::to_owned);
    let number = |key: &str| input[key].as_f64();
    if point.is_none() && (number("above").is_some() || number("below").is_some()) {
        return failed("bad_input", "above and below are about one point: name it");
    }
    let mut read = json!({ "device": device, "action": "read" });
    if let Some(point) = &point {
        read["point"] = point.as_str().into();
    }
    let watch = Watch {
        read,
        above: number("above"),
        below: number("below"),
        until_met: input["until_met"].as_bool().unwrap_or(false),
        duration: Duration::from_secs_f64(number("duration_s").unwrap_or(DURATION_S).min(DURATION_S_MAX)),
        period: Duration::from_secs_f64(number("period_s").unwrap_or(1.0).clamp(PERIOD_S_MIN, 3600.0)),
        point,
    };
    let what = watch.point.as_deref().map_or_else(|| device.to_owned(), |point| format!("{device}.{point}"));
    let about = format!("watches {what} for {} s", watch.duration.as_secs());
    let runtime = tokio::runtime::Handle::current();
    let spec = TaskSpec::new(format!("monitor {what}"), about);
    match tasks.spawn(spec, promised(), move |heart| watch.run(&heart, &tools, &runtime)).await {
        Ok(Ok(key)) => Report::Done(json!({ "task": key.task.to_string() })),
        Ok(Err(refused)) => failed("spawn_refused", refused.to_string()),
        Err(error) => failed("no_supervisor", error.to_string()),
    }
}

fn failed(code: &'static str, message: impl Into<String>) -> Report {
    Report::Failed(Failure { code, message: message.into() })
}

impl Watch {
    /// The worker. A read has its own time-out, which is far below tau; so a silent worker is a stuck one.
    fn run(&self, heart: &Heart, tools: &Tools, runtime: &tokio::runtime::Handle) -> Finished {
        let begun = clock::now();
        let (mut samples, mut met, mut failures, mut last) = (0_u64, 0_u64, 0_u32, Value::Null);
        let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
        let mut ended = "duration";
        loop {
            while heart.paused() {}
            if heart.should_stop() {
                return Finished::Stopped(self.summary("stopped", samples, met, least, most, last));
            }
            match runtime.block_on(tools.device.run(&self.read)) {
                Report::Done(output) => {
                    failures = 0;
                    samples += 1;
                    heart.progress(samples);
                    last = output["value"].clone();
                    if let Some(value) = last.as_f64() {
                        (least, most) = (least.min(value), most.max(value));
                        if self.above.is_some_and(|limit| value > limit)
                            || self.below.is_some_and(|limit| value < limit)
                        {
                            met += 1;
                        }
                    }
                    if last.is_null() {
                        last = output["points"].clone();
                    }
                }
                Report::Failed(failure) => {
                    failures += 1;
                    if failures >= FAILURES_MAX {
                        return Finished::Failed(format!(
                            "{FAILURES_MAX} readings in a row failed: {}",
                            failure.message
                        ));
                    }
                }
                Report::Lost(loss) => {
                    failures += 1;
                    if failures >= FAILURES_MAX {
                        return Finished::Failed(format!("{FAILURES_MAX} readings in a row were lost: {loss:?}"));
                    }
                }
            }
            if met > 0 && self.until_met {
                ended = "met";
                break;
            }
            let left = self.duration.saturating_sub(clock::now().since(begun));
            if left.is_zero() {
                break;
            }
            heart.rest(self.period.min(left));
        }
        Finished::Done(self.summary(ended, samples, met, least, most, last))
    }

    fn summary(&self, ended: &str, samples: u64, met: u64, least: f64, most: f64, last: Value) -> Value {
        let finite = |value: f64| if value.is_finite() { json!(value) } else { Value::Null };
        json!({
            "device": self.read["device"], "point": self.point, "ended": ended, "samples": samples, "met": met,
            "min": finite(least), "max": finite(most), "last": last,
        })
    }
}
