//! Several rounds of one figure.

use std::fmt;

/// Least, middle and largest of some rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    /// The least.
    pub(crate) min: f64,
    /// The middle; of an even number of rounds the mean of the middle two.
    pub(crate) median: f64,
    /// The largest.
    pub(crate) max: f64,
}

impl Spread {
    /// Of at least one round; without any, all three are NaN, which tables show as such.
    pub(crate) fn of(rounds: impl IntoIterator<Item = f64>) -> Self {
        let mut rounds: Vec<f64> = rounds.into_iter().collect();
        rounds.sort_by(f64::total_cmp);
        let (Some(min), Some(max)) = (rounds.first(), rounds.last()) else {
            return Self { min: f64::NAN, median: f64::NAN, max: f64::NAN };
        };
        let half = rounds.len() / 2;
        let median =
            if rounds.len() % 2 == 1 { rounds[half] } else { (rounds[half - 1] + rounds[half]) / 2.0 };
        Self { min: *min, median, max: *max }
    }

    /// Round by round `a / b`: what was measured next to each other is compared with each other.
    pub(crate) fn ratio(a: &[f64], b: &[f64]) -> Self {
        Self::of(a.iter().zip(b).map(|(a, b)| a / b))
    }
}

/// `median (min to max)`, with digits enough for two or three significant ones.
impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { min, median, max } = *self;
        write!(f, "{} ({} to {})", number(median), number(min), number(max))
    }
}

/// A figure with two or three significant digits, thousands set apart.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        return "none".into();
    }
    if size >= 1000.0 {
        return thousands(value);
    }
    let digits = if size >= 100.0 {
        0
    } else if size >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.digits$}")
}

fn thousands(value: f64) -> String {
    let text = format!("{value:.0}");
    let (sign, digits) = text.strip_prefix('-').map_or(("", text.as_str()), |rest| ("-", rest));
    let mut out = sign.to_owned();
    for (i, digit) in digits.char_indices() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn middle_of_odd_and_even() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Spread { min: 1.0, median: 2.0, max: 3.0 });
        assert_eq!(Spread::of([4.0, 1.0]).median, 2.5);
        assert_eq!(Spread::ratio(&[2.0, 9.0], &[1.0, 3.0]), Spread { min: 2.0, median: 2.5, max: 3.0 });
        assert_eq!(Spread::of([]).to_string(), "none (none to none)");
    }

    #[test]
    fn figures_have_few_digits() {
        let shown = [0.123, 1.239, 12.34, 123.4, 1234.5, -1_234_567.0].map(number);
        assert_eq!(shown, ["0.12", "1.24", "12.3", "123", "1,234", "-1,234,567"]);
    }
}
