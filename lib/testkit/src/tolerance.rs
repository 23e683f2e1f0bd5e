//! How wrong an estimate may be before a test may call it a fault.

/// How far a sketch's count may be from the `n` different members that it was given, where each test run hashes them
/// with a key of its own: six standard errors and five more.
///
/// A small sketch errs where members meet in one of the 16,384 registers. Its standard error is that of linear
/// counting, `√(m (eᵗ - t - 1))` with `t = n / m` (Whang, Vander-Zanden, Taylor, "A linear-time probabilistic counting
/// algorithm for database applications", 1990), and what it lacks is a Poisson number, whose tail is longer than a
/// normal one's: hence the five. A right sketch of any size is outside less than once in 100 million times, so that a
/// test may compare thousands of them.
#[must_use]
pub fn sketch_tolerance(n: u64) -> f64 {
    const M: f64 = 16_384.0;
    let n = n as f64;
    let t = n / M;
    let linear = (M * (t.exp() - t - 1.0)).sqrt();
    6.0 * linear.min(0.0081 * n) + 5.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Occupied registers are drawn and counted back to members, as linear counting does; both the spread and its
    /// tail are then what the formula says.
    #[test]
    fn right_sketches_are_inside_and_lost_members_are_not() {
        let mut state = 1u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % 16_384
        };
        for n in [1, 20, 121, 400, 2_000, 8_000] {
            let mut worst = 0.0_f64;
            for _ in 0..500 {
                let mut taken = vec![false; 16_384];
                (0..n).for_each(|_| taken[random()] = true);
                let free = taken.iter().filter(|taken| !**taken).count();
                worst = worst.max((16_384.0 * (16_384.0 / free as f64).ln() - n as f64).abs());
            }
            let tolerance = sketch_tolerance(n);
            assert!(worst <= tolerance, "{n}: {worst} of {tolerance}");
            assert!(tolerance <= 3.0 * worst + 6.0, "{n}: {worst} of {tolerance}");
        }
    }
}
