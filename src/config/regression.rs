//! The regression set of learning: sentences, and what they mean or that they mean nothing.

use std::path::Path;

use interlock_domain::learn::gate::Example;

use super::ConfigError;

/// The set that is in the binary.
pub const EMBEDDED: &str = include_str!("../../models/regression/sentences.tsv");

/// Its name in messages.
pub const EMBEDDED_NAME: &str = "models/regression/sentences.tsv";

/// Reads a set: a line a sentence, a tab, and its command or `-`; `#` begins a remark.
///
/// # Errors
/// The first line that is not like that.
pub fn read(file: &Path, text: &str) -> Result<Vec<Example>, ConfigError> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    lines
        .map(|(at, line)| match line.split_once('\t') {
            Some((sentence, command)) if !sentence.is_empty() && !command.is_empty() => {
                Ok(Example { sentence: sentence.to_owned(), means: (command != "-").then(|| command.to_owned()) })
            }
            _ => Err(ConfigError {
                line: at + 1,
                column: 1,
                ..ConfigError::of_file(file, "the line is no sentence, tab and command")
            }
            .hint("启动水泵<tab>pump_start, or 去吃饭<tab>- for a sentence that must come to nothing")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_set_reads_and_a_bad_line_is_named() {
        let set = read(Path::new(EMBEDDED_NAME), EMBEDDED).expect("reads");
        assert!(set.len() > 900, "{}", set.len());
        assert!(set.iter().filter(|example| example.means.is_none()).count() > 400);
        let error = read(Path::new("r.tsv"), "# a\n启动水泵\tpump_start\n启动水泵\n").expect_err("refused");
        assert_eq!(error.to_string(), "r.tsv:3:1: the line is no sentence, tab and command");
    }
}
