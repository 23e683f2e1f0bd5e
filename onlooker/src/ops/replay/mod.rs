//! `onlooker replay`, `rebuild`, `recount` and `diff`: the log read again, beside live traffic.
//!
//! A **shadow** is a folder with a log, a filter's positions and an archive of its own, filled by the same filter and
//! counter as everywhere. Only what they read comes from the system that is replayed, with its offsets and append times:
//! a verdict is a function of these, and so is the same at any speed. Because positions are the shadow's own, a replay
//! that was interrupted goes on where it was.

mod args;
mod diff;
mod feed;
mod plan;
mod recount;
mod rooms;
pub(super) mod swap;
mod warm;

pub(crate) use args::{DiffArgs, RebuildArgs, ReplayArgs, diff, rebuild, replay};
pub(crate) use plan::{Judged, judged_again};
pub(crate) use recount::{RecountArgs, recount};
