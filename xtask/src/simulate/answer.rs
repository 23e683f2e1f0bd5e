//! What a program says its histories came to.

use anyhow::{Context, Result};

/// Figures of one or more runs of a protocol.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) histories: u64,
    pub(crate) steps: u64,
    /// Processor time of the programs, in microseconds.
    pub(crate) micros: u64,
    pub(crate) violations: u64,
    /// Kinds of faults, and how many of each.
    pub(crate) faults: Vec<(String, u64)>,
    /// The first history that went wrong, and what there is to tell of it.
    pub(crate) seed: Option<u64>,
    pub(crate) told: Vec<String>,
}

impl Answer {
    /// Reads lines of a name, a tab and a value.
    pub(crate) fn read(text: &str) -> Result<Self> {
        let mut answer = Self::default();
        for line in text.lines() {
            let (name, value) = line.split_once('\t').with_context(|| format!("not understood: {line}"))?;
            let number = || value.parse::<u64>().with_context(|| format!("no number: {line}"));
            match name {
                "histories" => answer.histories = number()?,
                "steps" => answer.steps = number()?,
                "micros" => answer.micros = number()?,
                "violations" => answer.violations = number()?,
                "seed" => answer.seed = Some(number()?),
                "told" => answer.told.push(value.to_owned()),
                _ => {
                    let kind =
                        name.strip_prefix("fault ").with_context(|| format!("not understood: {line}"))?;
                    answer.faults.push((kind.to_owned(), number()?));
                }
            }
        }
        Ok(answer)
    }

    /// Adds another run, which comes later unless its seed is lower.
    pub(crate) fn add(&mut self, other: Self) {
        self.histories += other.histories;
        self.steps += other.steps;
        self.micros += other.micros;
        self.violations += other.violations;
        if self.faults.is_empty() {
            self.faults = other.faults;
        } else {
            self.faults.iter_mut().zip(&other.faults).for_each(|(all, more)| all.1 += more.1);
        }
        if other.seed.is_some() && self.seed.is_none_or(|seed| other.seed < Some(seed)) {
            (self.seed, self.told) = (other.seed, other.told);
        }
    }

    /// Histories that a processor that does nothing else lives through in a second.
    pub(crate) fn a_second(&self) -> u64 {
        self.histories * 1_000_000 / self.micros.max(1)
    }
}

/// What became of a condition that was left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caught {
    pub(crate) name: String,
    pub(crate) removed: String,
    pub(crate) then: String,
    pub(crate) histories: u64,
    pub(crate) micros: u64,
    /// The seed of the history that noticed, and what it says.
    pub(crate) by: Option<(u64, String)>,
}

impl Caught {
    /// Reads a line for each.
    pub(crate) fn read(text: &str) -> Result<Vec<Self>> {
        text.lines()
            .map(|line| {
                let parts: Vec<&str> = line.split('\t').collect();
                let [name, removed, then, histories, micros, seed, why] = parts[..] else {
                    anyhow::bail!("not understood: {line}");
                };
                let by =
                    (!seed.is_empty()).then(|| anyhow::Ok((seed.parse()?, why.to_owned()))).transpose()?;
                let (histories, micros) = (histories.parse()?, micros.parse()?);
                Ok(Self {
                    name: name.to_owned(),
                    removed: removed.to_owned(),
                    then: then.to_owned(),
                    histories,
                    micros,
                    by,
                })
            })
            .collect()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn runs_add_up_and_the_first_violation_stays() {
        let text = |seed| {
            format!(
                "histories\t5\nsteps\t9\nmicros\t1000\nviolations\t1\nfault crash\t2\nseed\t{seed}\ntold\tone\ttwo\n"
            )
        };
        let mut sum = Answer::default();
        sum.add(Answer::read(&text(7)).unwrap());
        sum.add(Answer::read(&text(3)).unwrap());
        sum.add(
            Answer::read("histories\t5\nsteps\t1\nmicros\t1000\nviolations\t0\nfault crash\t1\n").unwrap(),
        );
        assert_eq!((sum.histories, sum.steps, sum.violations, sum.seed), (15, 19, 2, Some(3)));
        assert_eq!(sum.faults, [("crash".to_owned(), 5)]);
        assert_eq!((sum.told, sum.micros), (vec!["one\ttwo".to_owned()], 3000));
        assert!(Answer::read("what").is_err());
    }

    #[test]
    fn what_noticed_is_read() {
        let all = Caught::read("a\tb\tc\t9\t10\t8\twhy\nd\te\tf\t5\t6\t\t\n").unwrap();
        assert_eq!(all[0].by, Some((8, "why".to_owned())));
        assert_eq!((all[1].histories, &all[1].by), (5, &None));
    }
}
