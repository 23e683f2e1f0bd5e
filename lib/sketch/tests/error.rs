//! How far off the counts are. Enough samples to see a mistake; `cargo bench --bench error` takes more, and
//! made the table of the README.

mod common;

use common::Random;
use onlooker_sketch::{STANDARD_ERROR, Sketch, bounds};

/// The counts of many sketches of random members, seen on their way at each of the sizes.
fn counts<const N: usize>(sizes: [u64; N], sketches: u64) -> [Vec<u64>; N] {
    let mut counts = [const { Vec::new() }; N];
    for seed in 0..sketches {
        let mut random = Random(seed << 40 | sketches);
        let (mut sketch, mut n) = (Sketch::new_dense(), 0);
        for (size, counts) in sizes.iter().zip(&mut counts) {
            (n..*size).for_each(|_| _ = sketch.add_hash(random.next()));
            n = *size;
            counts.push(sketch.count());
        }
    }
    counts
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
    let sizes = [1, 2, 5, 10, 18, 100];
    for (n, counts) in sizes.into_iter().zip(counts(sizes, 1_500)) {
        let exact = share(&counts, |count| count == n);
        let within_1 = share(&counts, |count| count.abs_diff(n) <= 1);
        let within_3 = share(&counts, |count| count.abs_diff(n) <= 3);
        println!("{n}: exact in {exact}, within 1 in {within_1}, within 3 in {within_3}");
        assert!(n > 18 || exact >= 0.985, "{n} is exact in {exact}");
        assert!(within_1 >= 0.95 && within_3 >= 0.995, "{n}: within 1 in {within_1}, within 3 in {within_3}");
    }
}

#[test]
fn the_standard_error_is_0_55_percent_of_small_and_0_8_of_large_counts() {
    let small = [(300, 0.55), (1_000, 0.55), (5_000, 0.57)];
    check_error(&small, &counts(small.map(|(n, _)| n), 400));
    let large = [(16_384, 0.62), (50_000, 0.69), (200_000, 0.78)];
    check_error(&large, &counts(large.map(|(n, _)| n), 40));
}

fn check_error(expected: &[(u64, f64)], counts: &[Vec<u64>]) {
    for (&(n, expected), counts) in expected.iter().zip(counts) {
        let errors: Vec<f64> = counts.iter().map(|&count| (count as f64 / n as f64 - 1.0) * 100.0).collect();
        let sketches = errors.len() as f64;
        let mean = errors.iter().sum::<f64>() / sketches;
        let deviation = (errors.iter().map(|error| error * error).sum::<f64>() / sketches).sqrt();
        println!("{n}: mean {mean:.3} %, standard error {deviation:.3} %");
        // Three standard errors of the two figures themselves. A small count can take few values, so that
        // rounding to whole numbers moves the mean by up to 0.3.
        let of_mean = 3.0 * expected / sketches.sqrt() + 0.3 / n as f64 * 100.0;
        let of_deviation = 3.0 * expected / (2.0 * sketches).sqrt();
        assert!(mean.abs() < of_mean, "{n}: off by {mean} % in the mean");
        assert!((deviation - expected).abs() < of_deviation, "{n}: standard error {deviation} %");
    }
}

#[test]
fn the_bounds_hold_as_often_as_they_say() {
    let small = [5, 18, 19, 61, 62, 100, 1_000];
    check_bounds(&small, &counts(small, 1_000), 0.98);
    // 95 of 100, less three standard errors of so few samples.
    let large = [10_000, 40_000, 150_000];
    check_bounds(&large, &counts(large, 50), 0.86);
}

fn check_bounds(sizes: &[u64], counts: &[Vec<u64>], least: f64) {
    for (&n, counts) in sizes.iter().zip(counts) {
        let held = share(counts, |count| {
            let (low, high) = bounds(count);
            low <= n && n <= high
        });
        println!("{n}: the bounds hold in {held} of {}", counts.len());
        assert!(held >= least, "{n}: the bounds hold in {held}");
    }
}
