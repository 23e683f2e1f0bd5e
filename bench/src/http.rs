//! A keep-alive HTTP/1.1 client on a bare socket: one request, one answer, nothing parsed that is not needed.

use anyhow::{Context, Result, bail};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The status code.
    pub(crate) status: u16,
    /// The body's bytes.
    pub(crate) body: Vec<u8>,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    /// Connects; an answer that takes longer than `patience` is an error.
    pub(crate) fn open(address: SocketAddr, patience: Duration) -> Result<Self> {
        let stream = TcpStream::connect(address).with_context(|| format!("cannot reach {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        Ok(Self { stream, buffer: Vec::with_capacity(1 << 14) })
    }

    /// Sends bytes made by [`post`] or [`get`] and waits for the whole answer.
    pub(crate) fn send(&mut self, request: &[u8]) -> Result<Answer> {
        self.stream.write_all(request)?;
        self.buffer.clear();
        loop {
            let mut chunk = [0; 1 << 14];
            let n = self.stream.read(&mut chunk)?;
            if n == 0 {
                bail!("the server closed the connection");
            }
            self.buffer.extend_from_slice(&chunk[..n]);
            if let Some(answer) = parse(&self.buffer)? {
                return Ok(answer);
            }
        }
    }
}

/// A whole answer, or none if more has to come.
fn parse(bytes: &[u8]) -> Result<Option<Answer>> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(&bytes[..end])?;
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).context("no status line")?;
    let length = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .map_or(Ok(0), |(_, value)| value.trim().parse::<usize>())?;
    let body = &bytes[end + 4..];
    if body.len() < length {
        return Ok(None);
    }
    Ok(Some(Answer { status: status.parse()?, body: body[..length].to_vec() }))
}

/// A POST to `/v1/views`, with the headers that a browser's beacon has.
pub(crate) fn post(body: &str) -> Vec<u8> {
    format!(
        "POST /v1/views HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: text/plain;charset=UTF-8\r\n\
         user-agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n\
         accept: */*\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// A GET of a path with its query.
pub(crate) fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: */*\r\n\r\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_answers_are_told_from_halves() {
        let whole = b"HTTP/1.1 202 Accepted\r\nContent-Length: 3\r\nx: y\r\n\r\nabc";
        for cut in 0..whole.len() {
            assert_eq!(parse(&whole[..cut]).unwrap(), None, "{cut}");
        }
        assert_eq!(parse(whole).unwrap(), Some(Answer { status: 202, body: b"abc".to_vec() }));
        let empty = parse(b"HTTP/1.1 304 Not Modified\r\netag: z\r\n\r\n").unwrap();
        assert_eq!(empty, Some(Answer { status: 304, body: Vec::new() }));
        assert!(parse(b"no http\r\n\r\n").is_err());
    }
}
