//! How far off the counts are. Enough samples to see a mistake; `cargo bench --bench error` takes more, and
//! made the table of the README.

mod common;

use common::Random;
use onlooker_sketch::{STANDARD_ERROR, Sketch, bounds};

/// The counts of many sketches of `n` random members each.
fn counts(n: u64, sketches: u64) -> Vec<u64> {
    (0..sketches)
        .map(|seed| {
            let mut random = Random(seed << 40 | n);
            let mut sketch = if n > 2_000 { Sketch::new_dense() } else { Sketch::new() };
            (0..n).for_each(|_| _ = sketch.add_hash(random.next()));
            sketch.count()
        })
        .collect()
}

fn share(counts: &[u64], holds: impl Fn(u64) -> bool) -> f64 {
    counts.iter().filter(|&&count| holds(count)).count() as f64 / counts.len() as f64
}

#[test]
fn a_million_named_members_stay_within_three_standard_errors() {
    for name in ["viewer", "an id of some length "] {
        let (mut sketch, mut last) = (Sketch::new(), 0);
        for n in 1..=1_000_000_u64 {
            sketch.add(format!("{name}{n}").as_bytes());
            if n > 500 && n % 3_001 != 0 {
                continue;
            }
            let count = sketch.count();
            assert!(count >= last, "{count} after {last} at {n}");
            last = count;
            let off = count.abs_diff(n);
            assert!(off as f64 <= (3.0 * STANDARD_ERROR * n as f64).max(1.0), "{count} for {n} of {name}");
        }
    }
}

#[test]
fn small_counts_are_nearly_exact() {
    for n in [1, 2, 5, 10, 18] {
        let exact = share(&counts(n, 4_000), |count| count == n);
        assert!(exact >= 0.985, "{n} is exact in {exact}");
    }
    let hundred = counts(100, 4_000);
    let near = share(&hundred, |count| count.abs_diff(100) <= 1);
    println!("100 is off by at most 1 in {near}");
    assert!(near >= 0.95, "100 is off by at most 1 in {near}");
    let near = share(&hundred, |count| count.abs_diff(100) <= 3);
    assert!(near >= 0.998, "100 is off by at most 3 in {near}");
}

#[test]
fn the_standard_error_is_0_55_percent_of_small_and_0_81_of_large_counts() {
    for (n, sketches, expected) in [
        (300, 2_000, 0.55),
        (1_000, 1_500, 0.55),
        (5_000, 300, 0.57),
        (16_384, 100, 0.62),
        (50_000, 50, 0.69),
        (200_000, 12, 0.78),
    ] {
        let counts = counts(n, sketches);
        let errors: Vec<f64> =
            counts.iter().map(|&count| (count as f64 - n as f64) / n as f64 * 100.0).collect();
        let mean = errors.iter().sum::<f64>() / errors.len() as f64;
        let deviation = (errors.iter().map(|error| error * error).sum::<f64>() / errors.len() as f64).sqrt();
        println!("{n}: mean {mean:.3} %, standard error {deviation:.3} %");
        // Three standard errors of the two figures themselves. A small count can take few values, so that
        // rounding to whole numbers moves the mean by up to 0.3.
        let of_mean = 3.0 * expected / (sketches as f64).sqrt() + 0.3 / n as f64 * 100.0;
        let of_deviation = 3.0 * expected / (2.0 * sketches as f64).sqrt();
        assert!(mean.abs() < of_mean, "{n}: off by {mean} % in the mean");
        assert!((deviation - expected).abs() < of_deviation, "{n}: standard error {deviation} %");
    }
}

#[test]
fn the_bounds_hold_as_often_as_they_say() {
    for (n, sketches, least) in [
        (5, 2_000, 0.99),
        (18, 4_000, 0.985),
        (19, 2_000, 0.99),
        (61, 2_000, 0.99),
        (62, 2_000, 0.99),
        (100, 2_000, 0.99),
        (1_000, 1_500, 0.99),
        (10_000, 200, 0.97),
        (40_000, 50, 0.92),
    ] {
        let held = share(&counts(n, sketches), |count| {
            let (low, high) = bounds(count);
            low <= n && n <= high
        });
        println!("{n}: the bounds hold in {held} of {sketches}");
        assert!(held >= least, "{n}: the bounds hold in {held}");
    }
}
