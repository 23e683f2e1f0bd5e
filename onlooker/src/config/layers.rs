//! Layers of one TOML tree: file, environment, flags.

use super::read::{Fault, Faults};
use std::path::Path;
use toml::{Table, Value};

/// What stands in place of a secret wherever configuration is printed.
pub(crate) const MASK: &str = "***";

/// Environment variables of this form set keys: `ONLOOKER_SECTION__KEY=value`, deeper tables by more `__`.
const ENV_PREFIX: &str = "ONLOOKER_";
/// Names that begin with the prefix and mean something else.
const ENV_RESERVED: [&str; 1] = ["ONLOOKER_CONFIG"];

/// The merged tree, secrets already resolved.
#[derive(Debug, Default)]
pub(crate) struct Layers {
    /// The merged tree.
    pub(crate) tree: Table,
    /// What was wrong while merging.
    pub(crate) faults: Vec<Fault>,
}

impl Layers {
    /// Merges file, environment and `section.key=value` flags, then replaces `{ file = … }` and `{ env = … }`.
    pub(crate) fn load(
        file: Option<&Path>,
        env: &[(String, String)],
        flags: &[String],
    ) -> Result<Self, Faults> {
        let mut layers = Layers::default();
        if let Some(path) = file {
            let text =
                std::fs::read_to_string(path).map_err(|e| Faults::one(path.display().to_string(), e))?;
            layers.tree = text.parse::<Table>().map_err(|e| Faults::one(path.display().to_string(), e))?;
        }
        for (name, value) in env {
            let Some(rest) = name.strip_prefix(ENV_PREFIX) else { continue };
            if ENV_RESERVED.contains(&name.as_str()) || !rest.contains("__") {
                continue;
            }
            let path: Vec<String> = rest.split("__").map(str::to_ascii_lowercase).collect();
            layers.set(&path, value, name);
        }
        for flag in flags {
            match flag.split_once('=') {
                Some((key, value)) => {
                    let path: Vec<String> = key.split('.').map(str::to_owned).collect();
                    layers.set(&path, value, "--set");
                }
                None => {
                    layers.faults.push(Fault::new("--set", format!("wants section.key=value, got {flag:?}")))
                }
            }
        }
        let mut faults = std::mem::take(&mut layers.faults);
        resolve_secrets(&mut layers.tree, "", env, &mut faults);
        layers.faults = faults;
        Ok(layers)
    }

    /// A tree that was merged before.
    #[cfg(feature = "cluster")]
    pub(crate) fn parse(text: &str) -> Result<Self, Faults> {
        let tree = text.parse::<Table>().map_err(|error| Faults::one("the configuration", error))?;
        Ok(Self { tree, faults: Vec::new() })
    }

    /// Puts another tree below this one: its keys hold where nothing else is set.
    pub(crate) fn over(mut self, below: &Table) -> Self {
        fill(&mut self.tree, below);
        self
    }

    /// Sets one key, creating tables on the way. The value is TOML where it reads as TOML, else text.
    fn set(&mut self, path: &[String], text: &str, source: &str) {
        let Some((last, tables)) = path.split_last() else { return };
        let mut at = &mut self.tree;
        for name in tables {
            let slot = at.entry(name.clone()).or_insert_with(|| Value::Table(Table::new()));
            match slot {
                Value::Table(table) => at = table,
                other => {
                    let problem = format!("{source}: {name:?} is a {}, not a table", other.type_str());
                    self.faults.push(Fault::new(path.join("."), problem));
                    return;
                }
            }
        }
        at.insert(last.clone(), as_value(text));
    }
}

fn fill(table: &mut Table, below: &Table) {
    for (key, value) in below {
        match (table.get_mut(key), value) {
            (None, value) => drop(table.insert(key.clone(), value.clone())),
            (Some(Value::Table(inner)), Value::Table(below)) => fill(inner, below),
            (Some(_), _) => {}
        }
    }
}

fn as_value(text: &str) -> Value {
    let parsed = format!("v = {text}").parse::<Table>().ok().and_then(|mut t| t.remove("v"));
    parsed.unwrap_or_else(|| Value::String(text.to_owned()))
}

/// A table of exactly one key, `file` or `env`, in place of a text, is that file's or variable's content.
fn resolve_secrets(table: &mut Table, path: &str, env: &[(String, String)], faults: &mut Vec<Fault>) {
    for (key, value) in table.iter_mut() {
        let here = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        resolve_value(value, &here, env, faults);
    }
}

fn resolve_value(value: &mut Value, here: &str, env: &[(String, String)], faults: &mut Vec<Fault>) {
    match value {
        Value::Table(inner) => match indirection(inner) {
            None => resolve_secrets(inner, here, env, faults),
            Some((kind, name)) => {
                let found = if kind == "file" {
                    std::fs::read_to_string(&name).map_err(|e| format!("file {name}: {e}"))
                } else {
                    let set = env.iter().find(|(n, _)| *n == name).map(|(_, v)| v.clone());
                    set.ok_or_else(|| format!("environment variable {name} is not set"))
                };
                match found {
                    Ok(text) => *value = Value::String(text.trim_end_matches(['\r', '\n']).to_owned()),
                    Err(problem) => {
                        faults.push(Fault::new(here, problem));
                        // Keeps the key's type right, so that one fault is not reported twice.
                        *value = Value::String(String::new());
                    }
                }
            }
        },
        Value::Array(items) => {
            for (i, item) in items.iter_mut().enumerate() {
                resolve_value(item, &format!("{here}[{i}]"), env, faults);
            }
        }
        _ => {}
    }
}

fn indirection(table: &Table) -> Option<(&'static str, String)> {
    if table.len() != 1 {
        return None;
    }
    let kind = if table.contains_key("file") { "file" } else { "env" };
    Some((kind, table.get(kind)?.as_str()?.to_owned()))
}

/// Keys whose values are never printed.
fn is_secret(key: &str) -> bool {
    matches!(key, "password" | "token" | "secret")
}

/// A copy of the tree with every secret replaced.
pub(crate) fn masked(table: &Table) -> Table {
    table
        .iter()
        .map(|(key, value)| {
            let shown = if is_secret(key) { Value::String(MASK.into()) } else { masked_value(value) };
            (key.clone(), shown)
        })
        .collect()
}

fn masked_value(value: &Value) -> Value {
    match value {
        Value::Table(t) => Value::Table(masked(t)),
        Value::Array(items) => Value::Array(items.iter().map(masked_value).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn env(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
    }

    #[test]
    fn later_layers_win() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        write!(file, "[collector]\nlisten = \"1\"\nmax_items = 5\n[filter]\nround = 1\n").unwrap();
        let env =
            env(&[("ONLOOKER_COLLECTOR__LISTEN", "2"), ("ONLOOKER_FILTER__ROUND", "7"), ("OTHER", "x")]);
        let layers = Layers::load(Some(file.path()), &env, &["filter.round=9".into()]).unwrap();
        assert_eq!(layers.tree["collector"]["listen"].as_integer(), Some(2));
        assert_eq!(layers.tree["collector"]["max_items"].as_integer(), Some(5));
        assert_eq!(layers.tree["filter"]["round"].as_integer(), Some(9));
    }

    #[test]
    fn what_lies_below_fills_gaps() {
        let layers = Layers::load(None, &[], &["filter.a=1".into(), "counter=7".into()]).unwrap();
        let below: Table = "[filter]\na = 2\nb = 3\n[counter]\nc = 4\n[admin]\nd = 5".parse().unwrap();
        let tree = layers.over(&below).tree;
        let expected: Table = "counter = 7\n[filter]\na = 1\nb = 3\n[admin]\nd = 5".parse().unwrap();
        assert_eq!(tree, expected);
    }

    #[test]
    fn secrets_come_from_files_and_environment_and_are_masked() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "s3cret").unwrap();
        let env = env(&[("PW", "other")]);
        let flags = vec![
            format!("dedup.password={{ file = {:?} }}", file.path().display().to_string()),
            "archive.password={ env = \"PW\" }".to_owned(),
            "log.password={ env = \"MISSING\" }".to_owned(),
        ];
        let layers = Layers::load(None, &env, &flags).unwrap();
        assert_eq!(layers.tree["dedup"]["password"].as_str(), Some("s3cret"));
        assert_eq!(layers.tree["archive"]["password"].as_str(), Some("other"));
        assert_eq!(layers.faults.len(), 1);
        assert_eq!(layers.faults[0].to_string(), "log.password: environment variable MISSING is not set");
        let shown = masked(&layers.tree).to_string();
        assert!(!shown.contains("s3cret") && !shown.contains("other"), "{shown}");
    }
}
