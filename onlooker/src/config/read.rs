//! From a TOML tree to typed sections, reporting every fault at once.

use serde::de::DeserializeOwned;
use std::fmt;
use toml::{Table, Value};

/// One fault: which key, and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    key: String,
    problem: String,
}

impl Fault {
    pub(crate) fn new(key: impl Into<String>, problem: impl fmt::Display) -> Self {
        Self { key: key.into(), problem: problem.to_string() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.problem)
    }
}

/// All faults of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Faults(pub(crate) Vec<Fault>);

impl Faults {
    pub(crate) fn one(key: impl Into<String>, problem: impl fmt::Display) -> Self {
        Self(vec![Fault::new(key, problem)])
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the configuration has {} fault(s)", self.0.len())?;
        self.0.iter().try_for_each(|fault| write!(f, "\n  {fault}"))
    }
}

impl std::error::Error for Faults {}

/// Reads one section. After a fault the offending key is taken out and the rest is read again, so that one run reports
/// them all.
pub(crate) fn section<T: DeserializeOwned>(name: &str, table: &Table, faults: &mut Vec<Fault>) -> Option<T> {
    let mut rest = Value::Table(table.clone());
    let mut clean = true;
    loop {
        let error = match serde_path_to_error::deserialize::<_, T>(rest.clone()) {
            Ok(value) => return clean.then_some(value),
            Err(error) => error,
        };
        clean = false;
        let path: Vec<String> = error.path().iter().map(ToString::to_string).collect();
        let message = error.inner().to_string();
        let message = message.trim().lines().next().unwrap_or_default().to_owned();
        // serde names an unknown field in its message and not always in the path.
        let unknown =
            message.strip_prefix("unknown field `").and_then(|m| m.split('`').next()).map(str::to_owned);
        let mut full = path.clone();
        if let Some(field) = unknown
            && full.last() != Some(&field)
        {
            full.push(field);
        }
        let key = std::iter::once(name.to_owned()).chain(full.clone()).collect::<Vec<_>>().join(".");
        faults.push(Fault::new(key.trim_matches('.'), message));
        if !remove(&mut rest, &full) {
            return None;
        }
    }
}

/// Takes a key out of the tree; false if there is none (a missing field, or a fault of the whole section).
fn remove(value: &mut Value, path: &[String]) -> bool {
    match (value, path) {
        (Value::Table(t), [last]) => t.remove(last).is_some(),
        (Value::Table(t), [first, rest @ ..]) => t.get_mut(first).is_some_and(|v| remove(v, rest)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Inner {
        size: u32,
        name: String,
    }

    impl Default for Inner {
        fn default() -> Self {
            Self { size: 1, name: "n".into() }
        }
    }

    #[derive(Debug, Deserialize, Default)]
    #[serde(deny_unknown_fields, default)]
    struct Outer {
        inner: Inner,
        flag: bool,
    }

    #[test]
    fn all_faults_come_at_once() {
        let table: Table = "flag = 3\nunknwon = 1\n[inner]\nsize = -1\nnmae = 2".parse().unwrap();
        let mut faults = Vec::new();
        assert!(section::<Outer>("room", &table, &mut faults).is_none());
        let keys: Vec<_> = faults.iter().map(|f| f.key.as_str()).collect();
        for key in ["room.flag", "room.unknwon", "room.inner.size", "room.inner.nmae"] {
            assert!(keys.contains(&key), "{key} in {faults:#?}");
        }
        assert_eq!(faults.len(), 4);
    }

    #[test]
    fn a_clean_section_is_read() {
        let table: Table = "flag = true\n[inner]\nsize = 4".parse().unwrap();
        let mut faults = Vec::new();
        let outer = section::<Outer>("room", &table, &mut faults).unwrap();
        assert!(outer.flag && outer.inner.size == 4 && outer.inner.name == "n" && faults.is_empty());
    }
}
