//! Holds `docs/configuration.md` to what the configuration really reads.

use super::{Config, Layers};
use std::collections::{BTreeMap, BTreeSet};
use toml::{Table, Value};

/// A key that nothing knows: whoever refuses it names the keys that there are.
const PROBE: &str = "no_such_key";
/// What stands for a site's name in the document.
const SITE: &str = "NAME";

/// Document: a table a section, a row a key. Section → key → default as written.
fn documented() -> BTreeMap<String, BTreeMap<String, String>> {
    let text = include_str!("../../../docs/configuration.md");
    let mut sections: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    let mut at = None;
    for line in text.lines() {
        if line.starts_with('#') {
            let section = line.split_once("`[").and_then(|(_, rest)| rest.split_once("]`"));
            at = section.map(|(name, _)| name.to_owned());
            sections.extend(at.clone().map(|name| (name, BTreeMap::new())));
        }
        let Some(section) = at.as_ref().and_then(|name| sections.get_mut(name)) else { continue };
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if let ["", key, default, _, ..] = cells[..]
            && let Some(key) = key.strip_prefix('`').and_then(|k| k.strip_suffix('`'))
        {
            let default = default.trim_matches('`').to_owned();
            assert!(section.insert(key.to_owned(), default).is_none(), "{key} stands twice");
        }
    }
    sections
}

fn tree_of(path: &[&str], leaf: Value) -> Table {
    let whole = path.iter().rev().fold(leaf, |value, key| {
        let mut table = Table::new();
        table.insert((*key).to_owned(), value);
        Value::Table(table)
    });
    whole.as_table().cloned().unwrap_or_default()
}

/// The keys of the table at a path, as the reader itself names them; none if there is no table of fixed keys.
fn keys(path: &[&str]) -> Option<Vec<String>> {
    let named = path.iter().map(|part| if *part == SITE { "name" } else { part });
    let probe: Vec<&str> = named.chain([PROBE]).collect();
    let layers = Layers { tree: tree_of(&probe, Value::Integer(1)), faults: Vec::new() };
    let faults = Config::read(&layers).err()?;
    let said = faults.0.iter().map(ToString::to_string).find(|f| f.contains("unknown field"))?;
    let (_, expected) = said.split_once("expected")?;
    Some(expected.split('`').skip(1).step_by(2).map(str::to_owned).collect())
}

/// Every section and its keys; a key that is a table of fixed keys is a section of its own.
fn known() -> BTreeMap<String, BTreeSet<String>> {
    let said = Config::read(&Layers { tree: tree_of(&[PROBE], Value::Integer(1)), faults: Vec::new() });
    let said = said.unwrap_err().to_string();
    let (_, names) = said.split_once("there are ").unwrap();
    let (names, _) = names.split_once(" and sites.").unwrap();
    let mut open: Vec<String> = names.split(", ").map(str::to_owned).collect();
    open.push(format!("sites.{SITE}"));
    let mut sections = BTreeMap::new();
    while let Some(section) = open.pop() {
        let path: Vec<&str> = section.split('.').collect();
        let mut leaves = BTreeSet::new();
        for key in keys(&path).unwrap_or_else(|| panic!("{section} names no keys")) {
            let deeper: Vec<&str> = path.iter().copied().chain([key.as_str()]).collect();
            if keys(&deeper).is_some() {
                open.push(deeper.join("."));
            } else {
                leaves.insert(key);
            }
        }
        sections.insert(section, leaves);
    }
    sections
}

fn defaults() -> Value {
    let tree = tree_of(&["sites", "name"], Value::Table(Table::new()));
    Value::try_from(Config::read(&Layers { tree, faults: Vec::new() }).unwrap()).unwrap()
}

#[test]
fn every_key_is_documented_and_no_other() {
    let documented = documented();
    let known = known();
    let names = |of: &BTreeMap<String, BTreeSet<String>>| -> BTreeSet<String> {
        of.iter().flat_map(|(s, keys)| keys.iter().map(move |key| format!("{s}.{key}"))).collect()
    };
    let written: BTreeMap<String, BTreeSet<String>> =
        documented.iter().map(|(s, keys)| (s.clone(), keys.keys().cloned().collect())).collect();
    let (known, written) = (names(&known), names(&written));
    let missing: Vec<_> = known.difference(&written).collect();
    let unknown: Vec<_> = written.difference(&known).collect();
    assert!(missing.is_empty(), "not in docs/configuration.md: {missing:#?}");
    assert!(unknown.is_empty(), "in docs/configuration.md and not in the program: {unknown:#?}");
    assert!(known.len() > 80, "{}", known.len());
}

#[test]
fn every_default_is_the_programs() {
    let defaults = defaults();
    let mut wrong = Vec::new();
    for (section, keys) in documented() {
        let path = section.replace(SITE, "name");
        let table = path.split('.').try_fold(&defaults, |at, key| at.get(key));
        for (key, written) in keys {
            // A key without a default is not there.
            let real = table.and_then(|t| t.get(&key)).map_or("none".to_owned(), ToString::to_string);
            if real != written {
                wrong.push(format!("{section}.{key}: {real}, and the document says {written}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
