//! Lines of web servers' access logs: Common Log Format, and the Combined format that adds referrer and user agent.

use jiff::civil::DateTime;
use std::net::IpAddr;

/// The two formats that Apache and nginx write by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// host ident user [time] "request" status bytes "referrer" "user agent"
    Combined,
    /// host ident user [time] "request" status bytes
    Common,
}

/// One request, as logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    pub(crate) host: Host<'a>,
    /// Milliseconds since 1970 (UTC).
    pub(crate) at_ms: i64,
    pub(crate) method: &'a str,
    /// The request target up to the first '?' or '#', byte for byte.
    pub(crate) path: &'a str,
    pub(crate) status: u16,
    pub(crate) referrer: Option<&'a str>,
    /// None where the log has none or "-".
    pub(crate) user_agent: Option<&'a str>,
}

/// Who asked: an address, or a name where the server looked names up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Host<'a> {
    Address(IpAddr),
    Name(&'a str),
}

/// Why a line could not be read. The text is what the summary shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
pub(crate) enum Unreadable {
    #[error("not UTF-8")]
    NotUtf8,
    #[error("empty line")]
    Empty,
    #[error("no [time]")]
    NoTime,
    #[error("time is not dd/Mon/yyyy:hh:mm:ss +hhmm")]
    BadTime,
    #[error("no quoted request")]
    NoRequest,
    #[error("request has no method and target")]
    NoTarget,
    #[error("no three-digit status")]
    NoStatus,
}

/// Reads one line without its line end.
pub(crate) fn line(bytes: &[u8], format: Format) -> Result<Line<'_>, Unreadable> {
    let text = std::str::from_utf8(bytes).map_err(|_| Unreadable::NotUtf8)?;
    let text = text.trim_end_matches(['\r', '\n']);
    if text.trim().is_empty() {
        return Err(Unreadable::Empty);
    }
    let (who, rest) = text.split_once(" [").ok_or(Unreadable::NoTime)?;
    let (time, rest) = rest.split_once(']').ok_or(Unreadable::NoTime)?;
    let at_ms = time_ms(time).ok_or(Unreadable::BadTime)?;
    let (request, rest) = quoted(rest).ok_or(Unreadable::NoRequest)?;
    let mut words = request.split(' ');
    let (method, target) = words.next().zip(words.next()).ok_or(Unreadable::NoTarget)?;
    let path = target.split(['?', '#']).next().unwrap_or_default();
    if path.is_empty() {
        return Err(Unreadable::NoTarget);
    }
    let mut fields = rest.trim_start().splitn(3, ' ');
    let status = fields.next().filter(|s| s.len() == 3).and_then(|s| s.parse().ok());
    let status = status.ok_or(Unreadable::NoStatus)?;
    let _bytes = fields.next();
    let (referrer, user_agent) = match format {
        Format::Common => (None, None),
        Format::Combined => match fields.next().and_then(quoted) {
            // A line cut off inside its quotes still tells who asked for what.
            Some((referrer, rest)) => (present(referrer), quoted(rest).and_then(|(ua, _)| present(ua))),
            None => (None, None),
        },
    };
    let name = who.split(' ').next().unwrap_or_default();
    let host = name.parse().map_or(Host::Name(name), Host::Address);
    Ok(Line { host, at_ms, method, path, status, referrer, user_agent })
}

fn present(text: &str) -> Option<&str> {
    (text != "-").then_some(text)
}

/// The next text in double quotes, in which a backslash escapes a character, and what follows it.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let inside = text.trim_start().strip_prefix('"')?;
    let mut escaped = false;
    for (at, byte) in inside.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some((&inside[..at], &inside[at + 1..])),
            _ => {}
        }
    }
    None
}

/// `25/Oct/2015:04:11:25 +0100` in milliseconds since 1970; without an offset, UTC.
fn time_ms(text: &str) -> Option<i64> {
    let (stamp, offset) = text.split_once(' ').unwrap_or((text, "+0000"));
    let time = DateTime::strptime("%d/%b/%Y:%H:%M:%S", stamp).ok()?;
    let utc = time.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_millisecond();
    let (sign, digits) = match offset.as_bytes().first()? {
        b'+' => (1, &offset[1..]),
        b'-' => (-1, &offset[1..]),
        _ => return None,
    };
    if digits.len() != 4 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let number: i64 = digits.parse().ok()?;
    let seconds = (number / 100) * 3600 + (number % 100) * 60;
    Some(utc - sign * seconds * 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"10.1.2.3 - - [25/Oct/2015:04:11:25 +0100] "GET /a%20b?x=1#y HTTP/1.1" 200 24323 "http://r/" "Mozilla \"x\" 1""#;

    #[test]
    fn combined_lines_are_read() {
        let line = line(LINE.as_bytes(), Format::Combined).unwrap();
        assert_eq!(line.host, Host::Address("10.1.2.3".parse().unwrap()));
        assert_eq!(line.at_ms, 1_445_742_685_000);
        assert_eq!((line.method, line.path, line.status), ("GET", "/a%20b", 200));
        assert_eq!((line.referrer, line.user_agent), (Some("http://r/"), Some(r#"Mozilla \"x\" 1"#)));
    }

    #[test]
    fn common_lines_have_no_user_agent() {
        let text = r#"host.example - joe [01/Jan/2020:00:00:00 -0230] "HEAD / HTTP/1.0" 304 -"#;
        let line = line(text.as_bytes(), Format::Common).unwrap();
        assert_eq!((line.host, line.user_agent, line.status), (Host::Name("host.example"), None, 304));
        assert_eq!(line.at_ms, 1_577_836_800_000 + 9_000_000);
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        let cases: [(&[u8], Unreadable); 7] = [
            (b"", Unreadable::Empty),
            (b"\xff\xfe", Unreadable::NotUtf8),
            (b"10.0.0.1 - - no time", Unreadable::NoTime),
            (b"10.0.0.1 - - [yesterday] \"GET / HTTP/1.1\" 200 1", Unreadable::BadTime),
            (b"10.0.0.1 - - [25/Oct/2015:04:11:25 +0100] GET /", Unreadable::NoRequest),
            (b"10.0.0.1 - - [25/Oct/2015:04:11:25 +0100] \"\\x16\\x03\" 400 1", Unreadable::NoTarget),
            (b"10.0.0.1 - - [25/Oct/2015:04:11:25 +0100] \"GET / HTTP/1.1\" - 1", Unreadable::NoStatus),
        ];
        for (bytes, why) in cases {
            assert_eq!(line(bytes, Format::Combined).unwrap_err(), why, "{}", String::from_utf8_lossy(bytes));
        }
    }
}
