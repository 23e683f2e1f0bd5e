//! Reading answers without a copy of what can be moved out of them.

use onlooker_ports::PortError;
use redis::Value;

use crate::error::unexpected;

/// Reads the answers of one command of one server; an answer of the wrong shape is an error that names both.
#[derive(Clone, Copy)]
pub(crate) struct Reader {
    pub(crate) server: &'static str,
    pub(crate) command: &'static str,
}

impl Reader {
    pub(crate) fn wrong(self, value: &Value) -> PortError {
        unexpected(self.server, self.command, value)
    }

    pub(crate) fn array(self, value: Value) -> Result<Vec<Value>, PortError> {
        match value {
            Value::Array(items) => Ok(items),
            other => Err(self.wrong(&other)),
        }
    }

    /// An array of exactly `len` items.
    pub(crate) fn array_of(self, value: Value, len: usize) -> Result<Vec<Value>, PortError> {
        let items = self.array(value)?;
        if items.len() != len {
            let detail = format!("{} answered {} items for {len}", self.command, items.len());
            return Err(PortError::Failed { server: self.server, detail });
        }
        Ok(items)
    }

    /// A whole number, written as an integer or as text.
    pub(crate) fn number(self, value: &Value) -> Result<i64, PortError> {
        self.maybe_number(value)?.ok_or_else(|| self.wrong(value))
    }

    /// The same, or nothing where there is none.
    pub(crate) fn maybe_number(self, value: &Value) -> Result<Option<i64>, PortError> {
        match value {
            Value::Nil => Ok(None),
            Value::Int(number) => Ok(Some(*number)),
            Value::BulkString(text) => parse(text).map(Some).ok_or_else(|| self.wrong(value)),
            _ => Err(self.wrong(value)),
        }
    }

    /// A byte string, or nothing where there is none.
    pub(crate) fn bytes(self, value: Value) -> Result<Option<Vec<u8>>, PortError> {
        match value {
            Value::Nil => Ok(None),
            Value::BulkString(bytes) => Ok(Some(bytes)),
            other => Err(self.wrong(&other)),
        }
    }
}

fn parse(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}
