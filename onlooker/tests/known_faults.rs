//! Every test that `docs/known-faults.md` names exists, in the crate that it names.
#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Crates by their short names.
fn crates() -> BTreeMap<String, PathBuf> {
    let members = fs::read_to_string(root().join("Cargo.toml")).unwrap().parse::<toml::Table>().unwrap();
    let members = members["workspace"]["members"].as_array().unwrap();
    let folders = members.iter().map(|member| root().join(member.as_str().unwrap()));
    let short = |folder: &PathBuf| {
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap().parse::<toml::Table>().unwrap();
        let name = manifest["package"]["name"].as_str().unwrap().to_owned();
        name.strip_prefix("onlooker-").unwrap_or(&name).to_owned()
    };
    folders.map(|folder| (short(&folder), folder)).collect()
}

/// All Rust text of a folder.
fn text_of(folder: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            text += &text_of(&path);
        } else if path.extension().is_some_and(|e| e == "rs") {
            text += &fs::read_to_string(&path).unwrap();
        }
    }
    text
}

/// All of the browser tests' text.
fn browser_tests() -> String {
    let files = fs::read_dir(root().join("beacon/test")).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.is_file()).map(|path| fs::read_to_string(path).unwrap()).collect()
}

/// Whether a function of this name stands right below a test's attribute.
fn has_test(text: &str, name: &str) -> bool {
    let starts: Vec<usize> = text.match_indices(&format!("fn {name}(")).map(|(at, _)| at).collect();
    starts.iter().any(|at| {
        let line = text[..*at].rfind('\n').unwrap_or(0);
        let mut above = text[..line].lines().rev().take_while(|line| line.trim_start().starts_with("#["));
        above.any(|line| line.contains("test"))
    })
}

#[test]
fn every_named_test_exists() {
    let page = fs::read_to_string(root().join("docs/known-faults.md")).unwrap();
    let crates = crates();
    let in_browser = browser_tests();
    let mut texts: BTreeMap<&str, String> = BTreeMap::new();
    let (mut rows, mut missing) = (0, Vec::new());
    for line in page.lines() {
        let cells: Vec<&str> = line.split(" | ").collect();
        let [report, wrong, here, tests] = cells[..] else { continue };
        if wrong == "what goes wrong" {
            continue;
        }
        rows += 1;
        assert!(report.contains('/') && report.contains('#') && !here.is_empty(), "{line}");
        let names: Vec<&str> = tests.split('`').filter(|word| word.contains("::")).collect();
        assert!(!names.is_empty(), "no test holds this: {line}");
        for named in names {
            let (krate, name) = named.split_once("::").unwrap();
            if krate == "beacon" {
                if !in_browser.contains(&format!("test(\"{name}\"")) {
                    missing.push(named);
                }
                continue;
            }
            let folder = crates.get(krate).unwrap_or_else(|| panic!("{named}: no such crate"));
            let text = texts.entry(krate).or_insert_with(|| text_of(folder));
            if !has_test(text, name) {
                missing.push(named);
            }
        }
    }
    assert!(rows >= 60, "{rows} rows were read");
    assert!(missing.is_empty(), "these tests do not exist: {missing:#?}");
}
