//! What has to hold of every answer.

use super::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

fn asked(views: u64, reads: u64, items: u64) -> Load {
    Load { views: views as f64, reads: reads as f64, items: items as f64 }
}

fn envelope() -> Size {
    size(asked(20_000, 10_000, 1_000_000), &Prices::load(None).unwrap()).unwrap()
}

#[test]
fn the_designs_envelope_costs_less_than_ten_thousand_a_month() {
    let size = envelope();
    assert!(size.cluster.dollars_a_month <= 10_000.0, "{}", size.cluster.dollars_a_month);
    assert_eq!(size.cluster.tiers.len(), 9);
}

/// What stands in `--help` and in the document is what is answered.
#[test]
fn the_example_is_the_answer() {
    let answer = show::text(&envelope());
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/size/example.txt");
    let example = format!(
        "The load of docs/operations.md:\n\n$ onlooker size --views-per-s 20000 --reads-per-s 10000 --items 1000000\n{answer}"
    );
    if std::env::var_os("ONLOOKER_WRITE_DOCS").is_some_and(|value| value == "1") {
        std::fs::write(path, &example).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), example, "run the test with ONLOOKER_WRITE_DOCS=1");
    let document = include_str!("../../../docs/operations.md");
    assert!(document.contains(&answer), "docs/operations.md shows another answer; this one:\n{answer}");
}

#[test]
fn a_machine_that_is_too_small_is_named() {
    let mut prices = Prices::load(None).unwrap();
    prices.machines.iter_mut().for_each(|machine| machine.memory_gib = 2.0);
    let error = size(asked(10, 10, 10), &prices).unwrap_err().to_string();
    assert!(error.contains("machine: none has enough memory for Kafka"), "{error}");
}

/// Loads of all sizes, the same in each run.
fn loads() -> impl Iterator<Item = (Load, StdRng)> {
    (0..25).map(|seed| {
        let mut random = StdRng::seed_from_u64(seed);
        let mut upto = |most: f64| (random.random_range(0.0..most.ln()).exp()).floor();
        let load = Load { views: upto(5e6), reads: upto(5e6), items: upto(1e9) };
        (load, random)
    })
}

#[test]
fn one_machine_may_be_lost_and_nothing_is_too_busy() {
    let prices = Prices::load(None).unwrap();
    for (load, _) in loads() {
        let size = size(load, &prices).unwrap();
        for tier in &size.cluster.tiers {
            assert!(tier.replicas >= 2, "{load:?} {tier:?}");
            assert!(tier.busy_one_lost <= 0.7 + 1e-9, "{load:?} {tier:?}");
            assert!(tier.busy <= tier.busy_one_lost, "{load:?} {tier:?}");
            assert!(tier.dollars_a_month > 0.0, "{load:?} {tier:?}");
            let machine = prices.machines.iter().find(|machine| machine.name == tier.machine).unwrap();
            let each = tier.memory_gib / tier.replicas as f64;
            assert!(each <= machine.memory_gib * 0.8 + 1e-9, "{load:?} {tier:?}");
        }
        assert!(size.cluster.partitions >= 8);
        if let Some(fit) = &size.one_machine.fits {
            assert!(fit.busy <= 0.7, "{load:?} {fit:?}");
            let carries = size.one_machine.machines.iter().find(|most| most.machine == fit.machine).unwrap();
            assert!(carries.views_per_s >= load.views * 0.998, "{load:?}: it fits {fit:?}, {carries:?}");
        }
    }
}

#[test]
fn more_of_anything_never_costs_less() {
    let prices = Prices::load(None).unwrap();
    for (load, mut random) in loads() {
        let before = size(load, &prices).unwrap();
        let more = 1.0 + random.random_range(0.0..3.0);
        for after in [
            Load { views: load.views * more, ..load },
            Load { reads: load.reads * more, ..load },
            Load { items: (load.items * more).floor(), ..load },
        ] {
            let size = size(after, &prices).unwrap();
            for (before, after) in before.cluster.tiers.iter().zip(&size.cluster.tiers) {
                // Ranks are looked at in groups, which moves a sum over items by a little.
                assert!(after.dollars_a_month >= before.dollars_a_month * 0.999, "{before:?} {after:?}");
            }
            assert!(size.one_machine.cores >= before.one_machine.cores, "{after:?}");
        }
    }
}
