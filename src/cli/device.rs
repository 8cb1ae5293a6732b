//! `interlock device`: the configured devices.

use serde_json::{Value, json};

use super::args::DeviceVerb;
use super::client::Client;
use super::error::{CliError, Exit};
use super::out::{Out, shown};
use super::say;

pub(super) fn device(verb: &DeviceVerb, client: Client, out: &Out) -> Result<(), CliError> {
    match verb {
        DeviceVerb::List(args) => client.each("device.list", json!({ "device": args.device }), |row| {
            if args.json {
                return out.json(&row);
            }
            let unit = row.get("quantity").and_then(Value::as_str).unwrap_or_default();
            out.line(&format!(
                "{:<24} {:<24} {} {unit}",
                shown(&row, "device"),
                shown(&row, "point"),
                shown(&row, "value")
            ))
        }),
        DeviceVerb::Read { device, point, json } => {
            let request = json!({ "device": device, "point": point, "lang": out.lang_word() });
            call("device.read", request, *json, client, out)
        }
        DeviceVerb::Write { device, point, value, wait, json } => {
            let value: Value = serde_json::from_str(value)
                .ok()
                .filter(|v: &Value| v.is_number() || v.is_boolean())
                .ok_or_else(|| {
                    CliError::new(Exit::Usage, format!("{value:?} is neither a number nor true or false"))
                        .hint("interlock device write pump-2 frequency 42.5")
                })?;
            let request =
                json!({ "device": device, "point": point, "value": value, "wait": wait, "lang": out.lang_word() });
            call("device.write", request, *json, client, out)
        }
    }
}

fn call(verb: &str, request: Value, as_json: bool, client: Client, out: &Out) -> Result<(), CliError> {
    let answer = client.ask(verb, request)?;
    say::told(&answer, as_json, out)
}
