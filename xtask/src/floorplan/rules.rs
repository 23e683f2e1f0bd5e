//! The rules, each with the fault that it finds. Pure: facts in, sentences out.

use std::collections::BTreeMap;

use super::house::{Crate, House};

/// Clients of the servers, each with the one adapter that may import it.
const DRIVERS: [(&str, &str); 4] = [
    ("rdkafka", "adapters/kafka"),
    ("rdkafka-sys", "adapters/kafka"),
    ("redis", "adapters/redis"),
    ("scylla", "adapters/scylla"),
];

const ROOMS: [&str; 5] = ["collector", "filter", "counter", "flusher", "counts-api"];

/// Rooms whose tests may know another room: what counter and flusher promise they promise together, so they are
/// simulated together.
const SIMULATED_TOGETHER: [(&str, &str); 1] = [("counter", "flusher")];

/// Real servers for tests: what is built from them belongs in no released crate.
const TESTKIT: &str = "lib/testkit";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// `lib/*`
    Library,
    /// `proto/`
    Messages,
    /// `schemas/`
    Schemas,
    /// A stage of the pipeline.
    Room,
    /// `adapters/*`
    Adapter,
    /// `onlooker/`: the only one that knows everybody.
    Executable,
    /// `bench/`, `xtask/`
    Tool,
}

impl Place {
    fn of(folder: &str) -> Option<Self> {
        match folder {
            "proto" => Some(Self::Messages),
            "schemas" => Some(Self::Schemas),
            "onlooker" => Some(Self::Executable),
            "bench" | "xtask" => Some(Self::Tool),
            _ if ROOMS.contains(&folder) => Some(Self::Room),
            _ if folder.starts_with("lib/") => Some(Self::Library),
            _ if folder.starts_with("adapters/") => Some(Self::Adapter),
            _ => None,
        }
    }

    fn may_import(self, other: Self) -> bool {
        match self {
            Self::Library | Self::Messages | Self::Schemas => other == Self::Library,
            Self::Room => matches!(other, Self::Library | Self::Messages),
            Self::Adapter => matches!(other, Self::Library | Self::Messages | Self::Schemas),
            Self::Executable => !matches!(other, Self::Executable | Self::Tool),
            Self::Tool => true,
        }
    }
}

/// Every fault of the house, as sentences.
pub(crate) fn faults(house: &House) -> Vec<String> {
    let folders: BTreeMap<&str, &str> =
        house.crates.iter().map(|c| (c.name.as_str(), c.folder.as_str())).collect();
    let mut faults = Vec::new();
    for one in &house.crates {
        let Some(place) = Place::of(&one.folder) else {
            faults.push(format!("{} lies in {}, which is no place of the floor plan", one.name, one.folder));
            continue;
        };
        faults.extend(imports_across_walls(one, place, &folders));
        faults.extend(testkit_in_a_release(one, place, &folders));
        faults.extend(driver_in_the_wrong_crate(one, place));
        faults.extend(driver_in_a_tree(one, place));
    }
    let unwired = house.namings.iter().filter(|(file, _)| !file.starts_with("onlooker/src/wiring"));
    faults.extend(
        unwired.map(|(file, adapter)| format!("{file} names {adapter}; only onlooker/src/wiring may")),
    );
    faults
}

fn imports_across_walls(one: &Crate, place: Place, folders: &BTreeMap<&str, &str>) -> Vec<String> {
    let ours =
        one.imports.iter().chain(&one.test_imports).filter_map(|name| folders.get_key_value(name.as_str()));
    let together = |name: &str, folder: &str| {
        SIMULATED_TOGETHER.contains(&(one.folder.as_str(), folder)) && !one.imports.contains(name)
    };
    let forbidden = ours.filter(|(name, folder)| {
        !Place::of(folder).is_some_and(|other| place.may_import(other)) && !together(name, folder)
    });
    forbidden.map(|(name, folder)| format!("{} imports {name} ({folder})", one.name)).collect()
}

fn testkit_in_a_release(one: &Crate, place: Place, folders: &BTreeMap<&str, &str>) -> Option<String> {
    let testkit = one.imports.iter().find(|name| folders.get(name.as_str()) == Some(&TESTKIT))?;
    (place != Place::Tool).then(|| format!("{} imports {testkit} outside its tests", one.name))
}

/// A room's tests need no driver either; others' look at the servers themselves, and so need their clients.
fn driver_in_the_wrong_crate(one: &Crate, place: Place) -> Vec<String> {
    let tests = (place == Place::Room).then_some(&one.test_imports);
    let names: Vec<&String> = one.imports.iter().chain(tests.into_iter().flatten()).collect();
    let foreign = DRIVERS.iter().filter(|(driver, home)| {
        place != Place::Tool && *home != one.folder && names.iter().any(|name| name == driver)
    });
    foreign
        .map(|(driver, home)| format!("{} imports the driver {driver}; only {home} may", one.name))
        .collect()
}

/// A room has no driver by way of others, either: the collector touches no store, the counts API no database.
fn driver_in_a_tree(one: &Crate, place: Place) -> Vec<String> {
    let drivers = DRIVERS.iter().map(|(driver, _)| driver);
    let linked = drivers.filter(|driver| place == Place::Room && one.tree.contains(**driver));
    linked.map(|driver| format!("{} has {driver} in its dependency tree", one.name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn krate(folder: &str, imports: &[&str]) -> Crate {
        let name = format!("onlooker-{}", folder.rsplit('/').next().unwrap_or(folder));
        let imports = imports.iter().map(|name| (*name).to_owned()).collect();
        Crate { name, folder: folder.to_owned(), imports, ..Crate::default() }
    }

    fn faults_of(crates: Vec<Crate>) -> Vec<String> {
        faults(&House { crates, namings: Vec::new() })
    }

    #[test]
    fn only_a_test_may_look_into_the_next_room() {
        let mut counter = krate("counter", &[]);
        counter.test_imports.insert("onlooker-flusher".to_owned());
        assert_eq!(faults_of(vec![counter.clone(), krate("flusher", &[])]), Vec::<String>::new());
        counter.imports.insert("onlooker-flusher".to_owned());
        assert!(!faults_of(vec![counter, krate("flusher", &[])]).is_empty());
        let mut flusher = krate("flusher", &[]);
        flusher.test_imports.insert("onlooker-counter".to_owned());
        assert_eq!(faults_of(vec![flusher, krate("counter", &[])]).len(), 1);
    }

    #[test]
    fn house_in_order_has_no_fault() {
        let mut room = krate("filter", &["onlooker-event", "onlooker-proto", "tokio"]);
        room.test_imports.insert("onlooker-testkit".to_owned());
        let mut executable = krate("onlooker", &["onlooker-filter", "onlooker-redis"]);
        executable.test_imports.insert("redis".to_owned());
        let house = House {
            crates: vec![
                krate("lib/event", &[]),
                krate("lib/testkit", &[]),
                krate("proto", &["onlooker-event"]),
                room,
                krate("adapters/redis", &["onlooker-event", "redis"]),
                executable,
                krate("bench", &["onlooker-testkit", "redis"]),
            ],
            namings: vec![("onlooker/src/wiring/redis.rs".to_owned(), "onlooker_redis".to_owned())],
        };
        assert_eq!(faults(&house), Vec::<String>::new());
    }

    #[test]
    fn walls_are_not_to_be_walked_through() {
        let house = |folder: &str, import: &str| {
            let others = ["lib/event", "lib/testkit", "proto", "counter", "adapters/kafka", "onlooker"];
            let others = others.iter().filter(|other| **other != folder).map(|other| krate(other, &[]));
            faults_of(others.chain([krate(folder, &[import])]).collect())
        };
        assert_eq!(
            house("filter", "onlooker-counter"),
            ["onlooker-filter imports onlooker-counter (counter)"]
        );
        assert_eq!(
            house("filter", "onlooker-kafka"),
            ["onlooker-filter imports onlooker-kafka (adapters/kafka)"]
        );
        assert_eq!(
            house("lib/event", "onlooker-kafka"),
            ["onlooker-event imports onlooker-kafka (adapters/kafka)"]
        );
        assert_eq!(
            house("lib/event", "onlooker-counter"),
            ["onlooker-event imports onlooker-counter (counter)"]
        );
        assert_eq!(
            house("adapters/redis", "onlooker-counter"),
            ["onlooker-redis imports onlooker-counter (counter)"]
        );
        assert_eq!(
            house("adapters/redis", "onlooker-kafka"),
            ["onlooker-redis imports onlooker-kafka (adapters/kafka)"]
        );
        assert_eq!(
            house("counter", "onlooker-onlooker"),
            ["onlooker-counter imports onlooker-onlooker (onlooker)"]
        );
        assert_eq!(
            house("filter", "onlooker-testkit"),
            ["onlooker-filter imports onlooker-testkit outside its tests"]
        );
    }

    #[test]
    fn tests_keep_the_walls_too() {
        let mut room = krate("filter", &[]);
        room.test_imports.extend(["onlooker-kafka".to_owned(), "redis".to_owned()]);
        assert_eq!(
            faults_of(vec![krate("adapters/kafka", &["rdkafka"]), room]),
            [
                "onlooker-filter imports onlooker-kafka (adapters/kafka)",
                "onlooker-filter imports the driver redis; only adapters/redis may"
            ]
        );
    }

    #[test]
    fn driver_belongs_to_its_adapter() {
        assert_eq!(
            faults_of(vec![krate("onlooker", &["scylla"]), krate("adapters/kafka", &["redis"])]),
            [
                "onlooker-onlooker imports the driver scylla; only adapters/scylla may",
                "onlooker-kafka imports the driver redis; only adapters/redis may"
            ]
        );
    }

    #[test]
    fn driver_is_found_behind_another_crate() {
        let mut room = krate("counts-api", &["innocent"]);
        room.tree.extend(["innocent".to_owned(), "scylla".to_owned()]);
        assert_eq!(faults_of(vec![room]), ["onlooker-counts-api has scylla in its dependency tree"]);
    }

    #[test]
    fn crate_outside_the_plan_and_adapter_outside_the_wiring() {
        let naming = ("onlooker/src/config.rs".to_owned(), "onlooker_kafka".to_owned());
        let house = House { crates: vec![krate("attic", &[])], namings: vec![naming] };
        assert_eq!(
            faults(&house),
            [
                "onlooker-attic lies in attic, which is no place of the floor plan",
                "onlooker/src/config.rs names onlooker_kafka; only onlooker/src/wiring may"
            ]
        );
    }
}
