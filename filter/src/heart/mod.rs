//! The heart: what the room decides, without I/O, without a clock and without async.
//!
//! [`Machine`] owns every partition of an instance. It is told what happened (an assignment, records, an answer, the
//! end of a transaction) and says what is to be done next, as [`Command`]s. The loop carries them out on real servers,
//! the simulation in `sim` on a model that loses, delays and repeats whatever it can.

mod chunk;
mod command;
mod decide;
mod machine;
mod note;
mod overlay;
mod partition;
mod plan;
mod rebuild;
#[cfg(test)]
pub(crate) mod sim;

pub use command::{Cause, Command, CommitEnd, Notice, Refusal, Tally};
pub use machine::Machine;
pub use note::Note;
pub use rebuild::{Job, Part, Rebuild, Verdicts};

use crate::config::{FilterConfig, Sites};

/// What the heart is told once.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The room's section.
    pub config: FilterConfig,
    /// The configured sites.
    pub sites: Sites,
    /// The condition of the protocol that is left out, to show that the simulation notices.
    #[cfg(test)]
    pub(crate) broken: Option<sim::Broken>,
}

impl Settings {
    /// The settings of a process.
    pub fn new(config: FilterConfig, sites: Sites) -> Self {
        Self {
            config,
            sites,
            #[cfg(test)]
            broken: None,
        }
    }

    #[cfg(test)]
    pub(crate) fn breaks(&self, condition: sim::Broken) -> bool {
        self.broken == Some(condition)
    }

    /// The slice of an append time (milliseconds since 1970), whatever came before it.
    fn slice_of(&self, append_ms: i64) -> i64 {
        append_ms.div_euclid(1_000).div_euclid(i64::from(self.config.slice_s.max(1)))
    }
}
