//! Addresses as rules look at them: the host that an HTTP client would really go to.
//!
//! A client reads an address more freely than a person: it drops blanks, takes `\` for `/`, folds full-width letters,
//! and knows four ways to write an IPv4 address (WHATWG URL, 3.5 and 4.4). A deny has to see the host behind all of
//! them; an allow holds only for an address that needs none of this.

use unicode_normalization::UnicodeNormalization;

/// What a rule must know of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url {
    /// In lower case, without a final dot; an IPv4 address in its four parts.
    pub(crate) host: String,
    /// Something stands before an `@`.
    pub(crate) has_userinfo: bool,
    /// It had to be read freely: what a person sees is not what a client reads.
    pub(crate) is_odd: bool,
}

impl Url {
    /// Reads scheme and host as an HTTP client would; `None` when it is no address of the web.
    pub(crate) fn parse(address: &str) -> Option<Url> {
        let blank = |letter: char| letter.is_ascii_control() || letter == ' ';
        let clean: String = address.trim_matches(blank).replace(['\t', '\n', '\r'], "").replace('\\', "/");
        let (scheme, rest) = clean.split_once(':')?;
        if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
            return None;
        }
        let slashes = rest.len() - rest.trim_start_matches('/').len();
        let authority = rest.trim_start_matches('/').split(['/', '?', '#']).next()?;
        let (userinfo, place) = match authority.rsplit_once('@') {
            Some((_, place)) => (true, place),
            None => (false, authority),
        };
        let written = if place.starts_with('[') { &place[..=place.find(']')?] } else { place.split(':').next()? };
        let host = host(written);
        let plain = written.trim_end_matches('.').eq_ignore_ascii_case(&host);
        let is_odd =
            clean != address || slashes != 2 || !plain || !clean.chars().all(|letter| letter.is_ascii_graphic());
        (!host.is_empty()).then_some(Url { host, has_userinfo: userinfo, is_odd })
    }
}

/// The host as a name server, or the network, gets to see it.
pub(super) fn host(written: &str) -> String {
    let decoded = percent_decoded(written);
    let folded: String = decoded.nfkc().collect::<String>().to_lowercase();
    // Invisible characters are dropped by the mapping of host names (UTS 46), and other dots count as dots.
    let visible: String = folded
        .chars()
        .filter(|letter| !matches!(letter, '\u{ad}' | '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{feff}'))
        .map(|letter| if matches!(letter, '\u{3002}' | '\u{ff0e}' | '\u{ff61}') { '.' } else { letter })
        .collect();
    let name = visible.trim_end_matches('.');
    if let Some(inner) = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        let address = inner.split('%').next().unwrap_or(inner).parse::<std::net::Ipv6Addr>();
        return match address {
            Ok(address) => address.to_ipv4_mapped().map_or_else(|| format!("[{address}]"), |mapped| mapped.to_string()),
            Err(_) => name.to_owned(),
        };
    }
    ipv4(name).map_or_else(|| name.to_owned(), |address| address.to_string())
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut left = text.as_bytes();
    while let Some((first, rest)) = left.split_first() {
        let digits = rest.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        match digits.and_then(|two| u8::from_str_radix(two, 16).ok()).filter(|_| *first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                left = &rest[2..];
            }
            None => {
                bytes.push(*first);
                left = rest;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// One to four numbers, each decimal, octal or hexadecimal; the last one fills what is left (WHATWG URL, 3.5).
fn ipv4(name: &str) -> Option<std::net::Ipv4Addr> {
    let parts: Vec<&str> = name.split('.').collect();
    if parts.len() > 4 {
        return None;
    }
    let number = |part: &str| match part.strip_prefix("0x") {
        Some("") => Some(0),
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None if part.len() > 1 && part.starts_with('0') => u64::from_str_radix(part, 8).ok(),
        None => part.parse().ok(),
    };
    let numbers = parts.iter().map(|part| number(part)).collect::<Option<Vec<u64>>>()?;
    let (last, first) = numbers.split_last()?;
    if first.iter().any(|number| *number > 255) || *last >= 1_u64 << (8 * (4 - first.len())) {
        return None;
    }
    let high = first.iter().zip([24, 16, 8]).map(|(number, shift)| number << shift).sum::<u64>();
    u32::try_from(high | last).ok().map(std::net::Ipv4Addr::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_the_one_that_a_client_goes_to() {
        // address, host, whether it is odd
        let table = [
            ("https://a.b/x", "a.b", false),
            ("HTTPS://A.B:443/x", "a.b", false),
            ("https://a.b./", "a.b", false),
            ("https://good.example@evil.example/", "evil.example", false),
            ("https://evil.example\\@good.example", "evil.example", true),
            ("https://evil.example#@good.example", "evil.example", false),
            ("http:a.b/", "a.b", true),
            ("http:////a.b/", "a.b", true),
            (" http://a.b/", "a.b", true),
            ("ht\ntp://a.b/", "a.b", true),
            ("http://a%2eb/", "a.b", true),
            ("http://a\u{3002}b/", "a.b", true),
            ("http://\u{ff41}.b/", "a.b", true),
            ("http://a\u{ad}.b/", "a.b", true),
            ("http://2130706433/", "127.0.0.1", true),
            ("http://0x7f.1/", "127.0.0.1", true),
            ("http://017700000001/", "127.0.0.1", true),
            ("http://127.0.0.1/", "127.0.0.1", false),
            ("http://[::ffff:127.0.0.1]/", "127.0.0.1", true),
            ("http://[::1]/", "[::1]", false),
            ("http://1.2.3.4.5/", "1.2.3.4.5", false),
            ("http://300.1/", "300.1", false),
        ];
        for (address, host, is_odd) in table {
            let found = Url::parse(address).unwrap();
            assert_eq!((found.host.as_str(), found.is_odd), (host, is_odd), "{address:?}");
        }
        for address in ["ftp://a.b/", "//a.b/", "a.b", "http://", "http:///", "file:///etc/passwd", "http://[::1/"] {
            assert_eq!(Url::parse(address), None, "{address:?}");
        }
    }
}
