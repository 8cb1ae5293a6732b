//! Markup that cannot be forgotten to escape: what is written at run time is text, and only what stands in this program
//! is markup.

use interlock_domain::request::shown::hides;

/// A piece of a page.
#[derive(Debug, Default, Clone)]
pub(super) struct Html(String);

impl Html {
    pub(super) fn new() -> Html {
        Html::default()
    }

    /// Markup, which stands in this program.
    pub(super) fn raw(&mut self, markup: &'static str) -> &mut Html {
        self.0.push_str(markup);
        self
    }

    /// Text, whoever wrote it. What would hide something from a reader is shown as a replacement.
    pub(super) fn text(&mut self, text: &str) -> &mut Html {
        for letter in text.chars() {
            match letter {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                '\n' => self.0.push('\n'),
                _ if hides(letter) => self.0.push('\u{fffd}'),
                _ => self.0.push(letter),
            }
        }
        self
    }

    /// A piece that was made so.
    pub(super) fn put(&mut self, piece: &Html) -> &mut Html {
        self.0.push_str(&piece.0);
        self
    }

    /// The begin of an element, with attributes.
    pub(super) fn open(&mut self, tag: &'static str, attributes: &[(&'static str, &str)]) -> &mut Html {
        self.raw("<").raw(tag);
        for (name, value) in attributes {
            self.raw(" ").raw(name).raw("=\"").text(value).raw("\"");
        }
        self.raw(">")
    }

    /// Its end.
    pub(super) fn close(&mut self, tag: &'static str) -> &mut Html {
        self.raw("</").raw(tag).raw(">")
    }

    /// An element around a text.
    pub(super) fn element(&mut self, tag: &'static str, attributes: &[(&'static str, &str)], text: &str) -> &mut Html {
        self.open(tag, attributes).text(text).close(tag)
    }

    pub(super) fn link(&mut self, to: &str, text: &str) -> &mut Html {
        self.element("a", &[("href", to)], text)
    }

    pub(super) fn into_string(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_at_run_time_is_text_in_every_place() {
        let mut html = Html::new();
        html.element("p", &[("title", "\"><script>alert(1)</script>")], "<b>&'\u{202e}\u{7}");
        assert_eq!(
            html.into_string(),
            "<p title=\"&quot;&gt;&lt;script&gt;alert(1)&lt;/script&gt;\">&lt;b&gt;&amp;&#39;\u{fffd}\u{fffd}</p>"
        );
    }
}
