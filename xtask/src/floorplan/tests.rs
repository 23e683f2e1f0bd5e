//! The checker on real workspaces: this one, and one with each kind of fault.

use std::fs;
use std::path::Path;

use super::{house::House, rules::faults};

/// A workspace whose collector reaches a database through a library, whose counter imports an adapter, and
/// whose executable names one outside its wiring.
fn broken_house(root: &Path) {
    let members = ["lib/event", "collector", "counter", "adapters/redis", "onlooker", "vendor/scylla"];
    let listed = members.map(|member| format!("\"{member}\"")).join(", ");
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("created");
        fs::write(path, text).expect("written");
    };
    write("Cargo.toml", &format!("[workspace]\nresolver = \"3\"\nmembers = [{listed}]\n"));
    let krate = |folder: &str, name: &str, dependencies: &str| {
        let head = format!("[package]\nname = \"{name}\"\nversion = \"1.0.0\"\nedition = \"2024\"\n");
        write(&format!("{folder}/Cargo.toml"), &format!("{head}[dependencies]\n{dependencies}"));
        write(&format!("{folder}/src/lib.rs"), "");
    };
    krate("vendor/scylla", "scylla", "");
    krate("lib/event", "event", "scylla = { path = \"../../vendor/scylla\" }\n");
    krate("collector", "collector", "event = { path = \"../lib/event\" }\n");
    krate("adapters/redis", "the-redis", "");
    krate("counter", "counter", "the-redis = { path = \"../adapters/redis\" }\n");
    krate("onlooker", "onlooker", "the-redis = { path = \"../adapters/redis\" }\n");
    write("onlooker/src/wiring/mod.rs", "use the_redis as _;\n");
    write("onlooker/src/config/redis.rs", "use the_redis as _;\n");
}

#[test]
fn every_fault_of_a_broken_house_is_found() {
    let root = tempfile::tempdir().expect("a folder");
    broken_house(root.path());
    let mut found = faults(&House::read(root.path()).expect("read"));
    found.sort();
    assert_eq!(
        found,
        [
            "collector has scylla in its dependency tree",
            "counter imports the-redis (adapters/redis)",
            "event imports scylla (vendor/scylla)",
            "event imports the driver scylla; only adapters/scylla may",
            "onlooker/src/config/redis.rs names the_redis; only onlooker/src/wiring may",
            "scylla lies in vendor/scylla, which is no place of the floor plan",
        ]
    );
}

#[test]
fn this_house_is_in_order() {
    super::check().expect("the floor plan holds");
}
