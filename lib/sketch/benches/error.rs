//! How far off the counts are: `cargo bench -p onlooker-sketch --bench error`, about a minute.

use onlooker_sketch::{Sketch, bounds, hash};

const MEMBERS: u64 = 1_000_000_000;

fn main() {
    println!(
        "{:>8}{:>10}{:>12}{:>12}{:>10}{:>10}{:>16}",
        "members", "sketches", "mean error", "std. error", "exact", "within 1", "outside bounds"
    );
    let mut next = 0_u64;
    for n in [10, 18, 50, 100, 300, 500, 1000, 3000, 16_000, 50_000, 100_000, 200_000, 500_000] {
        let sketches = (MEMBERS / n).clamp(1000, 20_000);
        let counts: Vec<u64> = (0..sketches)
            .map(|_| {
                let mut sketch = Sketch::new_dense();
                for _ in 0..n {
                    next += 1;
                    sketch.add_hash(hash(&next.to_le_bytes()));
                }
                sketch.count()
            })
            .collect();
        report(n, &counts);
    }
}

fn report(n: u64, counts: &[u64]) {
    let of_all = |sum: f64| sum / counts.len() as f64 * 100.0;
    let share =
        |holds: &dyn Fn(u64) -> bool| of_all(counts.iter().filter(|&&count| holds(count)).count() as f64);
    let errors = || counts.iter().map(|&count| count as f64 / n as f64 - 1.0);
    let mean = of_all(errors().sum());
    let deviation = (errors().map(|error| error * error).sum::<f64>() / counts.len() as f64).sqrt() * 100.0;
    let exact = share(&|count| count == n);
    let within_1 = share(&|count| count.abs_diff(n) <= 1);
    let outside = share(&|count| n < bounds(count).0 || bounds(count).1 < n);
    println!(
        "{n:>8}{:>10}{mean:>10.3} %{deviation:>10.3} %{exact:>8.1} %{within_1:>8.1} %{outside:>14.2} %",
        counts.len()
    );
}
