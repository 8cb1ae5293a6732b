//! Bytes, cut anywhere, into whole frames: Server-Sent Events (HTML Living Standard, 9.2), JSON lines, or one JSON body.
//!
//! It works on bytes and never decodes a piece: a network chunk may end inside a character, an escape or a line end.
//! What it holds is bounded by the longest frame. A frame that is lost must fail the turn, so nothing is skipped in
//! silence but comments and fields that the standard says to ignore.

/// The longest frame, in bytes: room for a picture in base 64 or a whole answer that was not streamed.
pub(super) const FRAME_LEN_MAX: usize = 16 << 20;
/// As much of a line that is no frame as a message needs.
const STRAY_LEN_MAX: usize = 200;

/// One frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    /// The event's name; empty when it has none.
    pub(super) event: &'a str,
    /// What it carries.
    pub(super) data: &'a [u8],
}

/// Why no further frame can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Broken {
    /// Longer than [`FRAME_LEN_MAX`].
    TooLong,
    /// A JSON text with a line end inside a string, or a bracket too many.
    Json,
}

/// What the bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Nothing but blanks so far.
    Undecided,
    /// Lines of Server-Sent Events.
    Events,
    /// JSON values, one after another or as members of one array.
    Values,
}

/// Takes bytes and gives frames.
#[derive(Debug)]
pub(super) struct Frames {
    form: Form,
    /// How much of a byte-order mark was seen at the very beginning.
    mark: usize,
    line: Vec<u8>,
    after_cr: bool,
    data: Vec<u8>,
    has_data: bool,
    event: String,
    depth: usize,
    in_string: bool,
    escaped: bool,
    in_array: bool,
    stray: Vec<u8>,
}

const MARK: [u8; 3] = [0xEF, 0xBB, 0xBF];

impl Frames {
    pub(super) fn new() -> Frames {
        Frames {
            form: Form::Undecided,
            mark: 0,
            line: Vec::new(),
            after_cr: false,
            data: Vec::new(),
            has_data: false,
            event: String::new(),
            depth: 0,
            in_string: false,
            escaped: false,
            in_array: false,
            stray: Vec::new(),
        }
    }

    /// Takes the next bytes; each frame that they complete goes to `take`, in order.
    ///
    /// # Errors
    /// When no further frame can be read. Nothing more may be fed then.
    pub(super) fn feed(&mut self, mut bytes: &[u8], take: &mut dyn FnMut(Frame<'_>)) -> Result<(), Broken> {
        while !bytes.is_empty() {
            let eaten = match self.form {
                Form::Undecided => self.decide(bytes),
                Form::Events => self.events(bytes, take)?,
                Form::Values => self.values(bytes, take)?,
            };
            bytes = &bytes[eaten..];
        }
        Ok(())
    }

    /// No more bytes come. A last frame whose blank line is missing still goes to `take`; what is left over of a frame
    /// is told.
    pub(super) fn finish(&mut self, take: &mut dyn FnMut(Frame<'_>)) -> Result<Left, Broken> {
        match self.form {
            Form::Undecided => Ok(Left::Nothing),
            Form::Events => {
                if !self.line.is_empty() {
                    let line = std::mem::take(&mut self.line);
                    self.event_line(&line, take)?;
                }
                self.dispatch(take);
                Ok(Left::Nothing)
            }
            Form::Values if self.depth > 0 || self.in_array => Ok(Left::Half),
            Form::Values => Ok(Left::Nothing),
        }
    }

    /// The first line that was no frame and no comment, for a message.
    pub(super) fn stray(&self) -> &[u8] {
        &self.stray
    }

    fn decide(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        if self.mark < MARK.len() {
            while at < bytes.len() && self.mark < MARK.len() && bytes[at] == MARK[self.mark] {
                self.mark += 1;
                at += 1;
            }
            if at == bytes.len() {
                return at;
            }
            self.mark = MARK.len();
        }
        let blanks = bytes[at..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        at += blanks;
        match bytes.get(at) {
            None => {}
            Some(b'{' | b'[') => self.form = Form::Values,
            Some(_) => self.form = Form::Events,
        }
        at
    }

    // ---- Server-Sent Events ----

    fn events(&mut self, bytes: &[u8], take: &mut dyn FnMut(Frame<'_>)) -> Result<usize, Broken> {
        let mut at = 0;
        while at < bytes.len() {
            if std::mem::take(&mut self.after_cr) && bytes[at] == b'\n' {
                at += 1;
                continue;
            }
            let rest = &bytes[at..];
            let Some(len) = line_len(rest) else {
                self.grow(rest)?;
                return Ok(bytes.len());
            };
            self.after_cr = rest[len] == b'\r';
            if self.line.is_empty() {
                self.event_line(&rest[..len], take)?;
            } else {
                self.grow(&rest[..len])?;
                let mut line = std::mem::take(&mut self.line);
                self.event_line(&line, take)?;
                line.clear();
                self.line = line;
            }
            at += len + 1;
        }
        Ok(at)
    }

    fn grow(&mut self, piece: &[u8]) -> Result<(), Broken> {
        if self.line.len() + piece.len() > FRAME_LEN_MAX {
            return Err(Broken::TooLong);
        }
        self.line.extend_from_slice(piece);
        Ok(())
    }

    fn event_line(&mut self, line: &[u8], take: &mut dyn FnMut(Frame<'_>)) -> Result<(), Broken> {
        let Some(first) = line.first() else {
            self.dispatch(take);
            return Ok(());
        };
        match first {
            b':' => return Ok(()),
            // A server that answers an event stream with bare JSON in the middle: an error, as a rule.
            b'{' | b'[' => {
                self.dispatch(take);
                take(Frame { event: "", data: line });
                return Ok(());
            }
            _ => {}
        }
        let colon = line.iter().position(|byte| *byte == b':');
        let (field, value) = colon.map_or((line, &line[..0]), |at| (&line[..at], &line[at + 1..]));
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                if self.data.len() + value.len() >= FRAME_LEN_MAX {
                    return Err(Broken::TooLong);
                }
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.has_data = true;
                self.data.extend_from_slice(value);
            }
            b"event" => self.event = String::from_utf8_lossy(&value[..value.len().min(STRAY_LEN_MAX)]).into_owned(),
            // Some servers put the name of the event where the field's name belongs.
            b"error" => {
                self.dispatch(take);
                take(Frame { event: "error", data: value });
            }
            b"id" | b"retry" => {}
            _ if self.stray.is_empty() => self.stray.extend_from_slice(&line[..line.len().min(STRAY_LEN_MAX)]),
            _ => {}
        }
        Ok(())
    }

    fn dispatch(&mut self, take: &mut dyn FnMut(Frame<'_>)) {
        if self.has_data {
            take(Frame { event: &self.event, data: &self.data });
        }
        self.has_data = false;
        self.data.clear();
        self.event.clear();
    }

    // ---- JSON values ----

    fn values(&mut self, bytes: &[u8], take: &mut dyn FnMut(Frame<'_>)) -> Result<usize, Broken> {
        let mut begin = 0;
        for (at, &byte) in bytes.iter().enumerate() {
            if self.depth == 0 {
                match byte {
                    b'{' => {
                        self.depth = 1;
                        begin = at;
                    }
                    b'[' if !self.in_array => self.in_array = true,
                    b']' if self.in_array => self.in_array = false,
                    b',' if self.in_array => {}
                    _ if byte.is_ascii_whitespace() => {}
                    _ if self.in_array => return Err(Broken::Json),
                    // Lines of events after a JSON value.
                    _ => {
                        self.form = Form::Events;
                        return Ok(at);
                    }
                }
            } else if self.in_string {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_string = false,
                    b'\n' | b'\r' => return Err(Broken::Json),
                    _ => {}
                }
            } else {
                match byte {
                    b'"' => self.in_string = true,
                    b'{' | b'[' => self.depth += 1,
                    b'}' | b']' => self.depth -= 1,
                    _ => {}
                }
                if self.depth == 0 {
                    let last = &bytes[begin..=at];
                    if self.line.is_empty() {
                        take(Frame { event: "", data: last });
                    } else {
                        self.grow(last)?;
                        take(Frame { event: "", data: &self.line });
                        self.line.clear();
                    }
                }
            }
        }
        if self.depth > 0 {
            self.grow(&bytes[begin..])?;
        }
        Ok(bytes.len())
    }
}

/// How long the first line is, without its end; `None` where no end has come.
fn line_len(bytes: &[u8]) -> Option<usize> {
    /// Bytes that are looked at together: without a way out in the middle, the compiler compares them at once.
    const TOGETHER: usize = 32;
    let ends = |byte: &u8| matches!(byte, b'\n' | b'\r');
    let mut at = 0;
    for block in bytes.chunks_exact(TOGETHER) {
        if block.iter().fold(false, |found, byte| found | ends(byte)) {
            break;
        }
        at += TOGETHER;
    }
    bytes[at..].iter().position(ends).map(|len| at + len)
}

/// What the end of the bytes left over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    /// Nothing.
    Nothing,
    /// The beginning of a value.
    Half,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The frames of a text, as `event|data`, whatever way it is cut.
    fn check(text: &str, want: &[&str], left: Result<Left, Broken>) {
        let bytes = text.as_bytes();
        for cut in 0..=bytes.len() {
            let mut frames = Frames::new();
            let mut got: Vec<String> = Vec::new();
            let mut take =
                |frame: Frame<'_>| got.push(format!("{}|{}", frame.event, String::from_utf8_lossy(frame.data)));
            let mut fed = frames.feed(&bytes[..cut], &mut take);
            if fed.is_ok() {
                fed = frames.feed(&bytes[cut..], &mut take);
            }
            let ended = fed.and_then(|()| frames.finish(&mut take));
            assert_eq!(
                (got, ended),
                (want.iter().map(|frame| (*frame).to_owned()).collect(), left),
                "{text:?} cut at {cut}"
            );
        }
    }

    #[test]
    fn events_are_framed_as_the_standard_says() {
        let whole = Ok(Left::Nothing);
        check("", &[], whole);
        check("data: a\n\ndata:b\r\n\r\ndata:  c\r\r", &["|a", "|b", "| c"], whole);
        check("data: a\r\n\ndata: b\n\r\n", &["|a", "|b"], whole);
        check(": comment\nevent: x\ndata: 1\ndata\ndata:2\nid: 7\nretry: 1\n\n", &["x|1\n\n2"], whole);
        check("event: x\n\ndata: a\n\n", &["|a"], whole);
        check("\u{feff}data: a\n\n", &["|a"], whole);
        check("\n\n\ndata: a\n\n\n\n", &["|a"], whole);
        check("data: 承認\n\n", &["|承認"], whole);
        // The blank line that should end the last event may be missing.
        check("data: a\n\ndata: [DONE]", &["|a", "|[DONE]"], whole);
        check("data: a\n\ndata: [DONE]\r", &["|a", "|[DONE]"], whole);
        // Bare JSON between events, and the event's name as a field.
        check("data: a\n\n{\"error\":1}\ndata: b\n\n", &["|a", "|{\"error\":1}", "|b"], whole);
        check("data: a\n\nerror: {\"m\":1}\n\n", &["|a", "error|{\"m\":1}"], whole);
        check("upstream error\n\n", &[], whole);
    }

    #[test]
    fn json_is_framed_by_its_brackets() {
        let whole = Ok(Left::Nothing);
        check("{\"a\":1}\n{\"b\":\"}\\\"\"}\n", &["|{\"a\":1}", "|{\"b\":\"}\\\"\"}"], whole);
        check(" [{\"a\":[1,{}]},\r\n {\"b\":2}\n]\n", &["|{\"a\":[1,{}]}", "|{\"b\":2}"], whole);
        check("{\n  \"a\": 1\n}", &["|{\n  \"a\": 1\n}"], whole);
        check("{\"a\":1}\ndata: x\n\n", &["|{\"a\":1}", "|x"], whole);
        check("{\"a\":", &[], Ok(Left::Half));
        check("[{\"a\":1}", &["|{\"a\":1}"], Ok(Left::Half));
        check("{\"a\":\"x\n{\"b\":1}\n", &[], Err(Broken::Json));
        check("[1]", &[], Err(Broken::Json));
    }

    #[test]
    fn a_line_without_an_end_does_not_fill_the_memory() {
        let mut frames = Frames::new();
        let piece = vec![b'x'; 1 << 20];
        let fed = (0..64).try_for_each(|_| frames.feed(&piece, &mut |_| {}));
        assert_eq!(fed, Err(Broken::TooLong));
        let mut frames = Frames::new();
        frames.feed(b"{\"", &mut |_| {}).unwrap();
        let fed = (0..64).try_for_each(|_| frames.feed(&piece, &mut |_| {}));
        assert_eq!(fed, Err(Broken::TooLong));
        let mut frames = Frames::new();
        let line = [b"data: ".as_slice(), &piece, b"\n"].concat();
        let fed = (0..64).try_for_each(|_| frames.feed(&line, &mut |_| {}));
        assert_eq!(fed, Err(Broken::TooLong));
    }
}
