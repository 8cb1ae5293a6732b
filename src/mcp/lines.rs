//! Lines of bounded length out of a byte stream. A line that is too long costs nothing but itself: what is read of it is
//! thrown away, and the next line is read. The one place of this room that waits: both ends of a pipe need it.

use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes that are read at once.
const CHUNK_LEN: usize = 16 << 10;

/// Lines of bounded length out of a byte stream.
#[derive(Debug)]
pub struct Lines<R> {
    reader: R,
    chunk: Box<[u8]>,
    /// What of the chunk is not used yet.
    unread: std::ops::Range<usize>,
    line: Vec<u8>,
    /// Longest line that is kept.
    bound: usize,
    /// The line at hand is too long; the rest of it is thrown away.
    is_too_long: bool,
}

/// One line.
#[derive(Debug)]
pub enum Line {
    /// Without its end.
    Whole(Vec<u8>),
    /// Longer than a message may be; it was thrown away.
    TooLong,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// Of that stream, of at most `bound` bytes each.
    #[must_use]
    pub fn new(reader: R, bound: usize) -> Lines<R> {
        let chunk = vec![0; CHUNK_LEN].into_boxed_slice();
        Lines { reader, chunk, unread: 0..0, line: Vec::new(), bound, is_too_long: false }
    }

    /// The next line that is not blank; none at the end. A last line without its end counts. May be dropped and called
    /// again without losing bytes.
    ///
    /// # Errors
    /// When reading fails.
    pub async fn next(&mut self) -> std::io::Result<Option<Line>> {
        loop {
            let unread = &self.chunk[self.unread.clone()];
            match unread.iter().position(|byte| *byte == b'\n') {
                Some(len) => {
                    let start = self.unread.start;
                    self.take(start..start + len);
                    self.unread.start = start + len + 1;
                    if let Some(line) = self.finished() {
                        return Ok(Some(line));
                    }
                }
                None => {
                    let rest = self.unread.clone();
                    self.take(rest);
                    self.unread = 0..0;
                    let len = self.reader.read(&mut self.chunk).await?;
                    if len == 0 {
                        return Ok(self.finished());
                    }
                    self.unread = 0..len;
                }
            }
        }
    }

    fn take(&mut self, range: std::ops::Range<usize>) {
        // One byte more than a message may have, for the carriage return.
        if self.line.len() + range.len() > self.bound + 1 {
            self.is_too_long = true;
            self.line = Vec::new();
        }
        if !self.is_too_long {
            self.line.extend_from_slice(&self.chunk[range]);
        }
    }

    fn finished(&mut self) -> Option<Line> {
        let mut line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.is_too_long) {
            return Some(Line::TooLong);
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        (!line.iter().all(u8::is_ascii_whitespace)).then_some(Line::Whole(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::rpc;

    /// The lengths of the lines, 0 for one that is too long.
    async fn lens(input: &[u8]) -> Vec<usize> {
        let mut lines = Lines::new(input, rpc::MESSAGE_LEN_MAX);
        let mut lens = Vec::new();
        while let Some(line) = lines.next().await.expect("a slice reads") {
            lens.push(match line {
                Line::Whole(bytes) => bytes.len(),
                Line::TooLong => 0,
            });
        }
        lens
    }

    #[tokio::test]
    async fn lines_are_cut_at_their_ends_and_blank_ones_are_skipped() {
        assert_eq!(lens(b"").await, [0; 0]);
        assert_eq!(lens(b"\n\r\n  \n").await, [0; 0]);
        assert_eq!(lens(b"ab\ncde\r\nf").await, [2, 3, 1]);
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_thrown_away_and_the_next_one_is_read() {
        let max = rpc::MESSAGE_LEN_MAX;
        for (len, counted) in [(max, max), (max + 2, 0), (3 * max, 0)] {
            let mut input = vec![b'x'; len];
            input.extend_from_slice(b"\nnext\n");
            assert_eq!(lens(&input).await, [counted, 4], "{len}");
        }
    }
}
