//! What an operator asks a system, on a cluster and on one machine.
//!
//! A question (`Ask`) is data, and so is each line of its answer: a command asks in its own process where it can reach the
//! servers or open the folder, and sends the same question to the admin listener where a process has the folder open. What
//! people see is made of the lines by the command alone.

mod at;
mod check;
mod dead;
mod explain;
mod finding;
mod inspect;
mod lag;
mod ledger;
mod look;
mod raw;
mod record;
mod replay;
mod route;
mod sight;
mod status;
mod table;
mod tail;
mod topics;
mod verify;

pub(crate) use at::Told;
pub(crate) use check::{CheckArgs, run as check};
pub(crate) use dead::{DeadArgs, run as dead};
pub(crate) use explain::{ExplainArgs, run as explain};
#[cfg(feature = "cluster")]
pub(crate) use finding::in_time;
pub(crate) use finding::{Finding, Level, bytes};
pub(crate) use inspect::{InspectArgs, run as inspect};
pub(crate) use lag::{LagArgs, run as lag};
#[cfg(all(test, feature = "cluster"))]
pub(crate) use ledger::described_metrics;
pub(crate) use ledger::{LedgerArgs, LedgerConfig, keep as keep_ledger, run as ledger};
pub(crate) use replay::{
    DiffArgs, Judged, RebuildArgs, RecountArgs, ReplayArgs, diff, judged_again, rebuild, recount, replay,
};
pub(crate) use route::route;
pub(crate) use sight::{JudgedBy, Sight};
pub(crate) use status::{StatusArgs, run as status};
pub(crate) use tail::{TailArgs, run as tail};
pub(crate) use topics::{TopicsViewArgs, run as topics};
pub(crate) use verify::{VerifyArgs, run as verify};

use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::process::ExitCode;
use tokio::sync::mpsc;

/// The command worked, and what it found wants somebody's attention.
pub(crate) const ALARM: u8 = 3;

/// A question.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub(crate) enum Ask {
    Lag(lag::Ask),
    Tail(tail::Ask),
    Topics(topics::Ask),
    Inspect(inspect::Ask),
    Explain(explain::Ask),
    Dead(dead::Ask),
    Ledger(ledger::Ask),
    Status(status::Ask),
    Check(check::Ask),
    Verify(verify::Ask),
    Raw(raw::Ask),
    Swap(replay::swap::Ask),
}

/// Where the lines of an answer go.
#[derive(Debug, Clone)]
pub(crate) struct Out(mpsc::Sender<Value>);

impl Out {
    /// Waits while nobody takes what was sent before. An error if nobody ever will.
    pub(crate) async fn line(&self, line: &impl Serialize) -> Result<()> {
        let line = serde_json::to_value(line)?;
        self.0.send(line).await.map_err(|_| anyhow::anyhow!("nobody takes the answer any more"))
    }

    /// True if nobody takes lines any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

/// Answers a question with lines.
pub(crate) async fn answer<S: Sight>(sight: &S, ask: Ask, out: Out) -> Result<()> {
    match ask {
        Ask::Lag(ask) => lag::answer(sight, ask, out).await,
        Ask::Tail(ask) => tail::answer(sight, ask, out).await,
        Ask::Topics(ask) => topics::answer(sight, ask, out).await,
        Ask::Inspect(ask) => inspect::answer(sight, ask, out).await,
        Ask::Explain(ask) => explain::answer(sight, ask, out).await,
        Ask::Dead(ask) => dead::answer(sight, ask, out).await,
        Ask::Ledger(ask) => ledger::answer(sight, ask, out).await,
        Ask::Status(ask) => status::answer(sight, ask, out).await,
        Ask::Check(ask) => check::answer(sight, ask, out).await,
        Ask::Verify(ask) => verify::answer(sight, ask, out).await,
        Ask::Raw(ask) => raw::answer(sight, ask, out).await,
        Ask::Swap(ask) => replay::swap::answer(sight, ask, out).await,
    }
}

/// How a command that asks ends.
pub(crate) fn exit(alarm: bool) -> ExitCode {
    if alarm { ExitCode::from(ALARM) } else { ExitCode::SUCCESS }
}
