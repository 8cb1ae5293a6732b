//! The text format of Prometheus (version 0.0.4), by its conventions: base units, `_total` for what only rises.

use std::fmt::Write as _;

/// The type that is said in the head of a scrape.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What a figure does.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    /// It only rises; its name ends in `_total`.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// A page as it grows. All samples of one name stand together, below its help.
#[derive(Debug, Default)]
pub(super) struct Page {
    text: String,
}

impl Page {
    /// A name, and its samples: labels in the form (name, value), and the figure.
    pub(super) fn family<'a>(
        &mut self,
        (name, kind, help): (&str, Kind, &str),
        samples: impl IntoIterator<Item = (Vec<(&'a str, &'a str)>, f64)>,
    ) {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return;
        }
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, figure) in samples {
            self.text.push_str(name);
            for (at, (label, value)) in labels.iter().enumerate() {
                let _ = write!(self.text, "{}{label}=\"{}\"", if at == 0 { '{' } else { ',' }, escaped(value));
            }
            let _ = writeln!(self.text, "{} {figure}", if labels.is_empty() { "" } else { "}" });
        }
    }

    /// A name with one sample.
    pub(super) fn one(&mut self, head: (&str, Kind, &str), figure: f64) {
        self.family(head, [(Vec::new(), figure)]);
    }

    pub(super) fn text(self) -> String {
        self.text
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// A count as a figure. Above 2^53 the last digits are lost, as they are in every scrape.
#[expect(clippy::cast_precision_loss, reason = "the format has floating-point figures only")]
pub(super) fn count(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_help_type_and_samples_with_escaped_labels() {
        let mut page = Page::default();
        page.one(("a_seconds", Kind::Gauge, "How long."), 0.25);
        page.family(("b_total", Kind::Counter, "How often."), [(vec![("x", "a\"b\\c\nd"), ("y", "é")], 3.0)]);
        page.family(("nothing", Kind::Gauge, "Never."), []);
        let expected = "# HELP a_seconds How long.\n# TYPE a_seconds gauge\na_seconds 0.25\n# HELP b_total How often.\n\
                        # TYPE b_total counter\nb_total{x=\"a\\\"b\\\\c\\nd\",y=\"é\"} 3\n";
        assert_eq!(page.text(), expected);
    }
}
