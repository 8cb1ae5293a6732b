//! Lines from a peer that we do not trust: bounded, and a bad one costs only itself.

use tokio::io::{AsyncBufRead, AsyncBufReadExt};

/// One line, without its end, or why there is none.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// A line of valid UTF-8 within the bound.
    Line(String),
    /// A line that was longer than the bound; it has been read past.
    TooLong,
    /// A line that is not UTF-8.
    NotText,
    /// The peer has closed its side.
    End,
}

/// Reads one line of at most `len_max` bytes. Safe to drop between calls, not during one: the bytes read so far are
/// kept in `partial`, which the caller keeps for the connection.
///
/// # Errors
/// What the stream says.
pub(super) async fn read_line<R: AsyncBufRead + Unpin>(
    reader: &mut R,
    partial: &mut Vec<u8>,
    len_max: usize,
) -> std::io::Result<Read> {
    let mut skipping = false;
    loop {
        let chunk = reader.fill_buf().await?;
        if chunk.is_empty() {
            // A last line without its end is no request: the peer may have died in the middle of it.
            return Ok(Read::End);
        }
        let (used, ended) = match chunk.iter().position(|byte| *byte == b'\n') {
            Some(at) => (at + 1, true),
            None => (chunk.len(), false),
        };
        if !skipping {
            partial.extend_from_slice(&chunk[..used - usize::from(ended)]);
        }
        reader.consume(used);
        if partial.len() > len_max {
            skipping = true;
            partial.clear();
        }
        if ended {
            let mut bytes = std::mem::take(partial);
            if skipping {
                return Ok(Read::TooLong);
            }
            if bytes.last() == Some(&b'\r') {
                bytes.pop();
            }
            return Ok(String::from_utf8(bytes).map_or(Read::NotText, Read::Line));
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::BufReader;

    use super::*;

    async fn check(input: &[u8], expected: &[Read]) {
        let mut reader = BufReader::with_capacity(3, input);
        let mut partial = Vec::new();
        for read in expected {
            assert_eq!(&read_line(&mut reader, &mut partial, 5).await.unwrap(), read, "{input:?}");
        }
    }

    #[tokio::test]
    async fn a_bad_line_costs_only_itself() {
        let line = |text: &str| Read::Line(text.to_owned());
        check(b"a\r\n\nb\n", &[line("a"), line(""), line("b"), Read::End]).await;
        check(b"123456789\n12345\n", &[Read::TooLong, line("12345"), Read::End]).await;
        check(b"\xff\xfe\nok\n", &[Read::NotText, line("ok"), Read::End]).await;
        check(b"cut", &[Read::End]).await;
    }
}
