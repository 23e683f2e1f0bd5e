//! The smallest client of Redis that can send pipelines: what it costs is not measured, what the server costs is.

use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    /// Text without length, such as OK.
    Simple(String),
    /// An integer.
    Int(i64),
    /// Bytes; none for nil.
    Bulk(Option<Vec<u8>>),
    /// Several answers; empty for nil.
    Array(Vec<Reply>),
}

impl Reply {
    /// True unless it is nil.
    pub(crate) fn is_some(&self) -> bool {
        !matches!(self, Reply::Bulk(None))
    }

    /// The bytes of a bulk string.
    pub(crate) fn bytes(self) -> Option<Vec<u8>> {
        match self {
            Reply::Bulk(bytes) => bytes,
            _ => None,
        }
    }

    /// The parts of an array.
    pub(crate) fn parts(self) -> Vec<Reply> {
        match self {
            Reply::Array(parts) => parts,
            _ => Vec::new(),
        }
    }
}

/// Commands as they go over the wire.
#[derive(Debug, Default)]
pub(crate) struct Pipeline {
    bytes: Vec<u8>,
    commands: usize,
}

impl Pipeline {
    /// Adds a command.
    pub(crate) fn push(&mut self, words: &[&[u8]]) {
        // Writing to memory cannot fail.
        let _ = write!(self.bytes, "*{}\r\n", words.len());
        for word in words {
            let _ = write!(self.bytes, "${}\r\n", word.len());
            self.bytes.extend_from_slice(word);
            self.bytes.extend_from_slice(b"\r\n");
        }
        self.commands += 1;
    }

    /// How many commands wait.
    pub(crate) fn len(&self) -> usize {
        self.commands
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.commands = 0;
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Resp {
    reader: BufReader<TcpStream>,
}

impl Resp {
    /// Connects to a server on this machine.
    pub(crate) fn connect(port: u16) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).context("cannot reach redis")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Self { reader: BufReader::with_capacity(1 << 16, stream) })
    }

    /// Sends all commands at once and waits for all answers.
    pub(crate) fn run(&mut self, pipeline: &mut Pipeline) -> Result<Vec<Reply>> {
        self.reader.get_mut().write_all(&pipeline.bytes)?;
        let replies = (0..pipeline.commands).map(|_| self.read()).collect();
        pipeline.clear();
        replies
    }

    /// Sends one command and waits for its answer.
    pub(crate) fn call(&mut self, words: &[&[u8]]) -> Result<Reply> {
        let mut one = Pipeline::default();
        one.push(words);
        self.reader.get_mut().write_all(&one.bytes)?;
        self.read()
    }

    fn read(&mut self) -> Result<Reply> {
        let mut line = String::new();
        self.reader.read_line(&mut line)?;
        let line = line.trim_end_matches("\r\n");
        let (kind, rest) = line.split_at_checked(1).context("redis closed the connection")?;
        match kind {
            "+" => Ok(Reply::Simple(rest.to_owned())),
            ":" => Ok(Reply::Int(rest.parse()?)),
            "$" if rest == "-1" => Ok(Reply::Bulk(None)),
            "$" => {
                let mut bytes = vec![0; rest.parse::<usize>()? + 2];
                self.reader.read_exact(&mut bytes)?;
                bytes.truncate(bytes.len() - 2);
                Ok(Reply::Bulk(Some(bytes)))
            }
            "*" => (0..rest.parse::<i64>()?).map(|_| self.read()).collect::<Result<_>>().map(Reply::Array),
            "-" => bail!("redis says {rest}"),
            _ => bail!("redis answered what is no RESP"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onlooker_testkit::shared;

    #[test]
    fn answers_of_a_real_server_are_read() {
        let mut resp = Resp::connect(shared::redis().port()).unwrap();
        let mut pipeline = Pipeline::default();
        pipeline.push(&[b"SET", b"k", b"a\r\nb", b"NX", b"EX", b"60"]);
        pipeline.push(&[b"SET", b"k", b"c", b"NX", b"EX", b"60"]);
        pipeline.push(&[b"HSET", b"h", b"f", b"1"]);
        pipeline.push(&[b"MGET", b"k", b"none"]);
        assert_eq!(pipeline.len(), 4);
        let replies = resp.run(&mut pipeline).unwrap();
        let pair = Reply::Array(vec![Reply::Bulk(Some(b"a\r\nb".to_vec())), Reply::Bulk(None)]);
        assert_eq!(replies, [Reply::Simple("OK".into()), Reply::Bulk(None), Reply::Int(1), pair]);
        assert_eq!(pipeline.len(), 0);
        let error = resp.call(&[b"INCR", b"h"]).unwrap_err().to_string();
        assert!(error.contains("WRONGTYPE"), "{error}");
    }
}
