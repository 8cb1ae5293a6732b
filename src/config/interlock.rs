//! `[[interlock]]`: what must be read before a point may be written.
//!
//! ```toml
//! [[interlock]]
//! name = "isolator-not-under-load"
//! message = "隔离刀闸不得带负荷操作"          # for the operator, in front of the readings
//! writes = { device = "isolator-*", point = "close" }        # any value; or value = true, min, max
//! needs = [
//!     { device = "breaker-*", point = "closed", is = false },   # * is the number of the isolator
//!     { device = "line-*", point = "current", max = 5 },
//!     { any = [{ device = "meter-1", point = "power", max = 1 }, { device = "safety-1", point = "key", is = true }] },
//! ]
//! protective = true                          # holds up emergency stops too; rarely right
//! ```
//!
//! What a rule may be is decided by `domain::device::interlock`; this module reads, and points at the mistake.

use std::path::Path;

use interlock_domain::device::interlock::{Need, Rule, Test};
use interlock_domain::device::table::Devices;
use serde::Deserialize;
use serde_json::Value;
use toml::Spanned;

use super::ConfigError;

/// A rule and where it is written.
#[derive(Debug, Clone, PartialEq)]
pub struct Written {
    /// The rule.
    pub rule: Rule,
    /// Its place, for what turns out wrong when it meets the devices.
    place: ConfigError,
}

/// Reads the `[[interlock]]` tables of `text`; other tables are not looked at.
///
/// # Errors
/// With the first mistake, its line and its key.
pub fn parse(text: &str, file: &Path) -> Result<Vec<Written>, ConfigError> {
    let wire: File = toml::from_str(text).map_err(|error| ConfigError::from_toml(file, text, &error))?;
    let mut all: Vec<Written> = Vec::with_capacity(wire.interlock.len());
    for table in &wire.interlock {
        let name = table.get_ref().name.get_ref();
        let wrong = |message: String| ConfigError::at(file, text, table.get_ref().name.span(), message);
        if all.iter().any(|known| known.rule.name == *name) {
            return Err(wrong(format!("there is another interlock named {name:?}")));
        }
        let rule = rule(table.get_ref()).map_err(|fact| wrong(format!("interlock {name:?}: {fact}")))?;
        all.push(Written { rule, place: wrong(String::new()) });
    }
    Ok(all)
}

/// The devices with these rules in front of them.
///
/// # Errors
/// The first rule that does not fit the devices.
pub fn bind(mut devices: Devices, rules: &[Written]) -> Result<Devices, ConfigError> {
    for written in rules {
        if let Err(why) = devices.interlock(&written.rule) {
            let message = format!("interlock {:?}: {why}", written.rule.name);
            return Err(ConfigError { message, ..written.place.clone() });
        }
    }
    Ok(devices)
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    interlock: Vec<Spanned<InterlockTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InterlockTable {
    name: Spanned<String>,
    message: Option<String>,
    writes: WritesTable,
    needs: Vec<NeedTable>,
    #[serde(default)]
    protective: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WritesTable {
    device: String,
    point: String,
    value: Option<Value>,
    min: Option<f64>,
    max: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NeedTable {
    device: Option<String>,
    point: Option<String>,
    is: Option<Value>,
    min: Option<f64>,
    max: Option<f64>,
    any: Option<Vec<NeedTable>>,
}

fn rule(table: &InterlockTable) -> Result<Rule, String> {
    let writes = &table.writes;
    let values = match (&writes.value, writes.min, writes.max) {
        (None, None, None) => None,
        (value, min, max) => Some(test(value.as_ref(), "value", min, max)?),
    };
    Ok(Rule {
        name: table.name.get_ref().clone(),
        message: table.message.clone().unwrap_or_default(),
        device: writes.device.clone(),
        point: writes.point.clone(),
        values,
        needs: table.needs.iter().map(needs).collect::<Result<_, _>>()?,
        protective: table.protective,
    })
}

/// One entry of `needs`: a reading, or several of which one is enough.
fn needs(table: &NeedTable) -> Result<Vec<Need>, String> {
    match &table.any {
        None => Ok(vec![need(table)?]),
        Some(_) if table.device.is_some() || table.point.is_some() => {
            Err("any stands alone: its readings stand inside of it".to_owned())
        }
        Some(any) => any.iter().map(need).collect(),
    }
}

fn need(table: &NeedTable) -> Result<Need, String> {
    match (&table.device, &table.point, &table.any) {
        (Some(device), Some(point), None) => Ok(Need {
            device: device.clone(),
            point: point.clone(),
            test: test(table.is.as_ref(), "is", table.min, table.max)?,
        }),
        (_, _, Some(_)) => Err("any inside of any: write one list".to_owned()),
        (None, ..) | (_, None, None) => Err("a reading has a device and a point".to_owned()),
    }
}

fn test(is: Option<&Value>, key: &str, min: Option<f64>, max: Option<f64>) -> Result<Test, String> {
    match (is, min, max) {
        (Some(value), None, None) => Ok(Test::Is(value.clone())),
        (None, None, None) => Err(format!("it says of a point neither {key}, min nor max")),
        (None, min, max) => Ok(Test::Within { min, max }),
        (Some(_), ..) => Err(format!("{key} and a limit do not go together")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rule_is_read_whole() {
        let text = r#"
            [[interlock]]
            name = "a"
            message = "不得带负荷操作"
            writes = { device = "isolator-*", point = "close", value = true }
            needs = [{ device = "breaker-*", point = "closed", is = false }, { any = [{ device = "x", point = "y", max = 5 }] }]
            protective = true
        "#;
        let need = |device: &str, point: &str, test| Need { device: device.to_owned(), point: point.to_owned(), test };
        let expected = Rule {
            name: "a".to_owned(),
            message: "不得带负荷操作".to_owned(),
            device: "isolator-*".to_owned(),
            point: "close".to_owned(),
            values: Some(Test::Is(json!(true))),
            needs: vec![
                vec![need("breaker-*", "closed", Test::Is(json!(false)))],
                vec![need("x", "y", Test::Within { min: None, max: Some(5.0) })],
            ],
            protective: true,
        };
        let read = parse(text, Path::new("a.toml")).unwrap();
        assert_eq!(read.iter().map(|written| &written.rule).collect::<Vec<_>>(), [&expected]);
    }

    #[test]
    fn a_mistake_is_named_with_its_line() {
        let check = |body: &str, want: &str| {
            let text = format!("[[interlock]]\nname = \"a\"\n{body}\n");
            let error = parse(&text, Path::new("a.toml")).map(|_| ()).unwrap_err().to_string();
            assert!(error.starts_with(want), "{body}: {error}");
        };
        let writes = "writes = { device = \"d\", point = \"p\" }\n";
        let needs = |inside: &str| format!("{writes}needs = [{inside}]");
        let at = "a.toml:2:8: interlock.name: interlock \"a\": ";
        check(&needs("{ device = \"d\" }"), &format!("{at}a reading has a device and a point"));
        check(&needs("{ device = \"d\", point = \"p\" }"), &format!("{at}it says of a point neither is, min nor max"));
        check(&needs("{ device = \"d\", point = \"p\", is = 1, max = 2 }"), &format!("{at}is and a limit"));
        check(&needs("{ device = \"d\", any = [] }"), &format!("{at}any stands alone"));
        check(&needs("{ any = [{ any = [] }] }"), &format!("{at}any inside of any"));
        check(&needs("{ devise = \"d\" }"), "a.toml:4:12: interlock.needs: unknown field `devise`");
        check(&format!("{}\nprotect = true", needs("")), "a.toml:5:1: interlock.protect: unknown field `protect`");
        let twice = format!("{}\n[[interlock]]\nname = \"a\"\n{}", needs(""), needs(""));
        check(&twice, "a.toml:6:8: interlock.name: there is another interlock named \"a\"");
    }
}
