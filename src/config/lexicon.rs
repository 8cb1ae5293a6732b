//! The lexicon and the costs of mishearing: TOML into `domain::command` words.

use std::path::Path;

use interlock_domain::command::lexicon::{Class, Lexicon};
use interlock_domain::command::number::Measure;
use interlock_domain::command::sound::Confusions;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::ConfigError;

/// The lexicon that is in the binary.
pub const EMBEDDED: &str = include_str!("../../models/lexicon/plant.toml");
/// The costs that are in the binary.
pub const EMBEDDED_CONFUSIONS: &str = include_str!("../../models/lexicon/confusions.toml");
/// Their names in messages.
pub const EMBEDDED_NAME: &str = "models/lexicon/plant.toml";
/// See [`EMBEDDED_NAME`].
pub const EMBEDDED_CONFUSIONS_NAME: &str = "models/lexicon/confusions.toml";

type Node<'a> = Spanned<DeValue<'a>>;

/// Reads a lexicon; `file` is its name for messages.
///
/// # Errors
/// The first mistake, with its place.
pub fn read(file: &Path, text: &str) -> Result<Lexicon, ConfigError> {
    let root = DeTable::parse(text).map_err(|error| ConfigError::from_toml(file, text, &error))?;
    let reader = Reader { file, text };
    let mut lexicon = Lexicon::default();
    let mut units: Vec<(String, Vec<Measure>)> = Vec::new();
    for (key, node) in root.get_ref() {
        match key.get_ref().as_ref() {
            "version" => {}
            "lead" => lexicon.lead = reader.strings(node)?,
            "trail" => lexicon.trail = reader.strings(node)?,
            "filler" => lexicon.filler = reader.strings(node)?,
            "separable" => lexicon.separable = reader.strings(node)?,
            "reason" => lexicon.reason = reader.strings(node)?,
            "query" => lexicon.query = reader.strings(node)?,
            "near" => lexicon.near = reader.triples(node)?,
            "action" => lexicon.actions = reader.classes(node)?,
            "attribute" => lexicon.attributes = reader.classes(node)?,
            "noun" => lexicon.nouns = reader.classes(node)?,
            "compound" => lexicon.compounds = reader.lists(node)?,
            "other" => lexicon.others = reader.lists(node)?.into_iter().flat_map(|(_, words)| words).collect(),
            "unit" => {
                for (name, names) in reader.lists(node)? {
                    let measures = names.iter().map(|name| measure(name)).collect::<Option<Vec<_>>>();
                    units.push((
                        name,
                        measures.ok_or_else(|| {
                            reader
                                .at(node, "a unit is not known")
                                .hint("hertz, degrees, turns, speed, percent, seconds")
                        })?,
                    ));
                }
            }
            other => {
                return Err(ConfigError::at(file, text, key.span(), format!("the key {other:?} is not known here"))
                    .hint("known keys: version, lead, trail, filler, separable, reason, query, near, action, attribute, noun, compound, other, unit"));
            }
        }
    }
    for (name, measures) in units {
        match lexicon.attributes.iter_mut().chain(&mut lexicon.nouns).find(|class| class.name == name) {
            Some(class) => class.measures = measures,
            None => {
                return Err(ConfigError::of_file(file, format!("unit.{name}: no attribute or noun has this name")));
            }
        }
    }
    Ok(lexicon)
}

/// Reads the costs of mishearing.
///
/// # Errors
/// The first mistake, with its place.
pub fn read_confusions(file: &Path, text: &str) -> Result<Confusions, ConfigError> {
    let root = DeTable::parse(text).map_err(|error| ConfigError::from_toml(file, text, &error))?;
    let reader = Reader { file, text };
    let mut confusions = Confusions::default();
    for (key, node) in root.get_ref() {
        match key.get_ref().as_ref() {
            "version" => {}
            "other" => confusions.other = reader.cost(node)?,
            "initials" => confusions.initials = reader.triples(node)?,
            "finals" => confusions.finals = reader.triples(node)?,
            other => {
                return Err(ConfigError::at(file, text, key.span(), format!("the key {other:?} is not known here"))
                    .hint("known keys: version, other, initials, finals"));
            }
        }
    }
    Ok(confusions)
}

fn measure(name: &str) -> Option<Measure> {
    Some(match name {
        "hertz" => Measure::Hertz,
        "degrees" => Measure::Degrees,
        "turns" => Measure::Turns,
        "speed" => Measure::Speed,
        "percent" => Measure::Percent,
        "seconds" => Measure::Seconds,
        _ => return None,
    })
}

struct Reader<'a> {
    file: &'a Path,
    text: &'a str,
}

impl Reader<'_> {
    fn at(&self, node: &Node<'_>, message: impl Into<String>) -> ConfigError {
        ConfigError::at(self.file, self.text, node.span(), message)
    }

    fn wrong(&self, node: &Node<'_>, expected: &str) -> ConfigError {
        self.at(node, format!("expected {expected}, found {}", node.get_ref().type_str()))
    }

    fn strings(&self, node: &Node<'_>) -> Result<Vec<String>, ConfigError> {
        let items = node.get_ref().as_array().ok_or_else(|| self.wrong(node, "an array"))?;
        items
            .iter()
            .map(|item| match item.get_ref().as_str() {
                Some(text) if !text.is_empty() => Ok(text.to_owned()),
                Some(_) => Err(self.at(item, "an empty text")),
                None => Err(self.wrong(item, "a string")),
            })
            .collect()
    }

    fn lists(&self, node: &Node<'_>) -> Result<Vec<(String, Vec<String>)>, ConfigError> {
        let table = node.get_ref().as_table().ok_or_else(|| self.wrong(node, "a table"))?;
        table.iter().map(|(key, words)| Ok((key.get_ref().to_string(), self.strings(words)?))).collect()
    }

    fn classes(&self, node: &Node<'_>) -> Result<Vec<Class>, ConfigError> {
        let lists = self.lists(node)?;
        Ok(lists.into_iter().map(|(name, words)| Class { name, words, measures: Vec::new() }).collect())
    }

    fn cost(&self, node: &Node<'_>) -> Result<u8, ConfigError> {
        let number = node.get_ref().as_integer().and_then(|number| number.as_str().parse::<u8>().ok());
        number.filter(|cost| *cost <= 100).ok_or_else(|| self.at(node, "expected a cost from 0 to 100"))
    }

    fn triples(&self, node: &Node<'_>) -> Result<Vec<(String, String, u8)>, ConfigError> {
        let items = node.get_ref().as_array().ok_or_else(|| self.wrong(node, "an array"))?;
        items
            .iter()
            .map(|item| {
                let three = item.get_ref().as_array().ok_or_else(|| self.wrong(item, "an array"))?;
                match (three.first(), three.get(1), three.get(2)) {
                    (Some(a), Some(b), Some(cost)) => {
                        let text = |node: &Node<'_>| {
                            node.get_ref().as_str().map(str::to_owned).ok_or_else(|| self.wrong(node, "a string"))
                        };
                        Ok((text(a)?, text(b)?, self.cost(cost)?))
                    }
                    _ => Err(self.at(item, "expected two names and a cost")),
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_files_load() {
        let lexicon = read(Path::new(EMBEDDED_NAME), EMBEDDED).expect("the embedded lexicon");
        assert!(lexicon.actions.len() > 40 && lexicon.nouns.len() > 60);
        let confusions =
            read_confusions(Path::new(EMBEDDED_CONFUSIONS_NAME), EMBEDDED_CONFUSIONS).expect("the embedded costs");
        assert_eq!(confusions.other, 60);
    }

    fn check(text: &str, expected: &str) {
        assert_eq!(read(Path::new("l.toml"), text).expect_err("refused").to_string(), expected);
    }

    #[test]
    fn a_mistake_names_its_place() {
        check("[verb]\nA = [\"开\"]\n", "l.toml:1:2: verb: the key \"verb\" is not known here");
        check("lead = \"请\"\n", "l.toml:1:8: lead: expected an array, found string");
        check("[noun]\nA = [\"\"]\n", "l.toml:2:6: noun.A: an empty text");
        check("near = [[\"A\", \"B\", 300]]\n", "l.toml:1:20: near: expected a cost from 0 to 100");
        check("[unit]\nA = [\"hertz\"]\n", "l.toml: unit.A: no attribute or noun has this name");
    }
}
