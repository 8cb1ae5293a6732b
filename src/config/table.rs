//! A plain table (CSV or TSV) as a command set: what a plant's list of commands is kept in.
//!
//! The first row names the columns. `id`, `text` and `risk` are needed; `aliases`, `patterns` and `slots` hold several
//! values with `;` between them; `device`, `action`, `point`, `value` and `by` bind the command to a device. A row that
//! is not right refuses the table with its line: half a list of commands is one that nobody wrote.

use std::path::Path;
use std::sync::Arc;

use interlock_domain::command::bind;
use interlock_domain::command::definition::{Commands, Definition, Slot, SlotKind};
use interlock_domain::command::template::Template;
use interlock_domain::risk::Risk;
use serde_json::{Map, Value};

use super::ConfigError;

/// The columns that there can be.
const COLUMNS: [&str; 13] = [
    "id",
    "text",
    "risk",
    "aliases",
    "patterns",
    "slots",
    "category",
    "protective",
    "device",
    "action",
    "point",
    "value",
    "by",
];

/// Reads a table. With a tab in its first line it is TSV, else CSV (RFC 4180; `;` between columns counts too, as
/// spreadsheets of some countries write it).
///
/// # Errors
/// The first mistake, with its line.
pub fn read(file: &Path, text: &str) -> Result<Commands, ConfigError> {
    let at = |line: usize, message: String| ConfigError { line, column: 1, ..ConfigError::of_file(file, message) };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let first = text.lines().next().unwrap_or_default();
    let between = if first.contains('\t') {
        '\t'
    } else if !first.contains(',') && first.contains(';') {
        ';'
    } else {
        ','
    };
    let rows = rows(text, between).map_err(|line| {
        at(line, "a quote is not closed".to_owned())
            .hint("a cell with a comma stands in quotes; a quote in it is doubled")
    })?;
    let Some(((_, names), rows)) = rows.split_first() else {
        return Err(ConfigError::of_file(file, "the table is empty").hint("its first row names the columns"));
    };
    let names: Vec<String> = names.iter().map(|name| name.trim().to_lowercase()).collect();
    if let Some(unknown) = names.iter().find(|name| !name.is_empty() && !COLUMNS.contains(&name.as_str())) {
        return Err(at(1, format!("there is no column {unknown:?}")).hint(format!("columns: {}", COLUMNS.join(", "))));
    }
    if let Some(missing) = ["id", "text", "risk"].iter().find(|name| !names.iter().any(|known| known == *name)) {
        return Err(at(1, format!("the column {missing:?} is missing")).hint("id, text and risk are needed"));
    }
    let mut commands = Commands::default();
    for (line, cells) in rows {
        let cell = |name: &str| -> Option<&str> {
            let at = names.iter().position(|known| known == name)?;
            cells.get(at).map(|cell| cell.trim()).filter(|cell| !cell.is_empty())
        };
        if cells.iter().all(|cell| cell.trim().is_empty()) {
            continue;
        }
        let definition = definition(&cell).map_err(|fault| at(*line, fault))?;
        if commands.list.iter().any(|known| known.id == definition.id) {
            return Err(at(*line, format!("the id {:?} is taken by an earlier row", definition.id)));
        }
        commands.list.push(Arc::new(definition));
    }
    if commands.list.is_empty() {
        return Err(ConfigError::of_file(file, "the table has no commands"));
    }
    Ok(commands)
}

fn definition<'a>(cell: &impl Fn(&str) -> Option<&'a str>) -> Result<Definition, String> {
    let needed = |name: &str| cell(name).map(str::to_owned).ok_or_else(|| format!("{name} is empty"));
    // What is said has no such sign; somebody took it for the one between several values.
    for name in ["text", "aliases"] {
        if cell(name).is_some_and(|cell| cell.contains('|')) {
            return Err(format!("{name} has a | in it; several values stand with ; between them"));
        }
    }
    let several = |name: &str| -> Vec<String> {
        let parts = cell(name).into_iter().flat_map(|cell| cell.split([';', '；']));
        parts.map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
    };
    let patterns = several("patterns")
        .iter()
        .map(|pattern| Template::parse(pattern).map_err(|fault| format!("{pattern}: {fault}")))
        .collect::<Result<Vec<_>, _>>()?;
    let mut slots: Vec<Slot> = Vec::new();
    for written in several("slots") {
        let mut parts = written.splitn(3, ':');
        let (name, kind, more) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
        let kind = match kind {
            None => SlotKind::DeviceNo,
            Some(kind) => SlotKind::parse(kind).filter(|kind| *kind != SlotKind::List).ok_or_else(|| {
                format!("the slot type {kind:?} is not known; {} can be written in a table", SlotKind::NAMES)
            })?,
        };
        let required = match more {
            None => false,
            Some("required") => true,
            Some(other) => return Err(format!("{other:?} is not \"required\"")),
        };
        slots.push(Slot::of(name, kind, required));
    }
    for name in patterns.iter().flat_map(Template::slots) {
        if !slots.iter().any(|slot| slot.name == name) {
            if name != "device" {
                return Err(format!("a pattern names the slot {name:?}, which slots does not declare"));
            }
            slots.push(Slot::of(name, SlotKind::DeviceNo, false));
        }
    }
    let risk = needed("risk")?;
    let mut step = Map::new();
    for key in ["device", "action", "point", "by"] {
        if let Some(text) = cell(key) {
            step.insert(key.to_owned(), Value::from(text));
        }
    }
    if let Some(value) = cell("value") {
        let value = match value.parse::<f64>() {
            Ok(number) => Value::from(number),
            Err(_) => match value {
                "true" => Value::from(true),
                "false" => Value::from(false),
                text => Value::from(text),
            },
        };
        step.insert("value".to_owned(), value);
    }
    let bind = if step.is_empty() {
        Vec::new()
    } else {
        bind::parse(&Value::Object(step)).map_err(|error| error.to_string())?
    };
    if let Some(unknown) =
        bind.iter().flat_map(bind::Step::slots).find(|name| !slots.iter().any(|slot| slot.name == *name))
    {
        return Err(format!("the binding names the slot {unknown:?}, which slots does not declare"));
    }
    Ok(Definition {
        id: needed("id")?,
        text: needed("text")?,
        aliases: several("aliases"),
        patterns,
        fallback: Vec::new(),
        slots,
        category: cell("category").unwrap_or_default().to_owned(),
        risk: Risk::from_word(&risk)
            .ok_or_else(|| format!("the risk {risk:?} is not known: read, operate or dangerous"))?,
        protective: match cell("protective") {
            None | Some("false" | "否") => false,
            Some("true" | "是") => true,
            Some(other) => return Err(format!("protective is true or false, not {other:?}")),
        },
        bind,
    })
}

/// Rows with their lines; the line of a quote that nothing closes.
fn rows(text: &str, between: char) -> Result<Vec<(usize, Vec<String>)>, usize> {
    let mut rows = Vec::new();
    let (mut line, mut began) = (1, 1);
    let (mut row, mut cell) = (Vec::new(), String::new());
    let mut quoted: Option<usize> = None;
    let mut chars = text.chars().peekable();
    while let Some(ch) = chars.next() {
        line += usize::from(ch == '\n');
        match (quoted, ch) {
            (Some(_), '"') if chars.peek() == Some(&'"') => {
                chars.next();
                cell.push('"');
            }
            (Some(_), '"') => quoted = None,
            (Some(_), _) => cell.push(ch),
            (None, '"') if cell.is_empty() && between != '\t' => quoted = Some(line),
            (None, '\r') => {}
            (None, '\n') => {
                row.push(std::mem::take(&mut cell));
                rows.push((began, std::mem::take(&mut row)));
                began = line;
            }
            (None, _) if ch == between => row.push(std::mem::take(&mut cell)),
            (None, _) => cell.push(ch),
        }
    }
    if let Some(line) = quoted {
        return Err(line);
    }
    if !cell.is_empty() || !row.is_empty() {
        row.push(cell);
        rows.push((began, row));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_a_command_set() {
        let text = "\u{feff}id,text,risk,aliases,patterns,slots,device,action,value\r\n\
                    mixer_start,启动搅拌机,operate,开搅拌;搅拌机启动,启动[{device}]搅拌机,,mixer,start,\r\n\
                    \"mixer_speed\",\"设置\"\"搅拌\"\"速度\",operate,,搅拌速度{value},value:number:required,mixer,set,{value}\r\n\r\n";
        let set = read(Path::new("t.csv"), text).expect("reads");
        assert_eq!(set.list.len(), 2);
        assert_eq!(set.list[0].aliases, ["开搅拌", "搅拌机启动"]);
        assert_eq!(set.list[0].slots, [Slot::of("device", SlotKind::DeviceNo, false)]);
        assert_eq!(set.list[1].text, "设置\"搅拌\"速度");
        assert_eq!(set.list[1].slots, [Slot::of("value", SlotKind::Number, true)]);
        assert_eq!(set.list[1].bind.len(), 1);
        let tabs = "id\ttext\trisk\nmixer_stop\t停止搅拌机\toperate\n";
        assert_eq!(read(Path::new("t.tsv"), tabs).expect("reads").list[0].text, "停止搅拌机");
    }

    #[test]
    fn a_mistake_names_its_line() {
        let check = |text: &str, expected: &str| {
            assert_eq!(read(Path::new("t.csv"), text).expect_err("refused").to_string(), expected, "{text}");
        };
        check("", "t.csv: the table is empty");
        check("id,text\n", "t.csv:1:1: the column \"risk\" is missing");
        check("id,text,risk,colour\n", "t.csv:1:1: there is no column \"colour\"");
        check("id,text,risk\n", "t.csv: the table has no commands");
        check("id,text,risk\na,启动,odd\n", "t.csv:2:1: the risk \"odd\" is not known: read, operate or dangerous");
        check("id,text,risk\n\na,,read\n", "t.csv:3:1: text is empty");
        check(
            "id,text,risk,aliases\na,一,read,二|三\n",
            "t.csv:2:1: aliases has a | in it; several values stand with ; between them",
        );
        check("id,text,risk\na,一,read\na,二,read\n", "t.csv:3:1: the id \"a\" is taken by an earlier row");
        check("id,text,risk\na,\"一\nb\n", "t.csv:2:1: a quote is not closed");
        check(
            "id,text,risk,patterns\na,一,read,看{what}\n",
            "t.csv:2:1: a pattern names the slot \"what\", which slots does not declare",
        );
    }
}
