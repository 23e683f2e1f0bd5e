//! Requests and answers in few words, for timelines.

use super::actors::{Actor, Op};
use crate::words::Answer;
use onlooker_event::CountKey;
use onlooker_flusher::round;
use onlooker_ports::{Apply, ApplyOutcome, ArchiveCell, Archived, CountLookup, NumberRead, SketchRead};
use std::fmt;

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Counter(at) => write!(f, "counter {at}"),
            Self::Flusher(at) => write!(f, "flusher {at}"),
        }
    }
}

fn names(keys: &[CountKey]) -> String {
    keys.iter().map(name).collect::<Vec<_>>().join(" ")
}

fn name(key: &CountKey) -> String {
    String::from_utf8_lossy(key.as_bytes()).into_owned()
}

fn cell(cell: &ArchiveCell) -> String {
    match cell {
        ArchiveCell::Number { key, n, u } => format!("{} has {n} below {u}", name(key)),
        ArchiveCell::Sketch { key, t, .. } => format!("the sketch of {} below {t}", name(key)),
    }
}

fn step(apply: &Apply) -> String {
    let numbers = apply.numbers.iter().map(|(key, n)| format!("{} = {} below {}", name(key), n.n, n.u));
    let sketches = apply.sketches.iter().map(|s| {
        let base = s.base.as_ref().map(|b| match &b.blob {
            Some(_) => format!(" on a base of {}", b.ts),
            None => " on nothing".to_owned(),
        });
        format!(
            "{} + {:?}{}",
            name(&s.key),
            s.members.iter().map(|m| m[0]).collect::<Vec<_>>(),
            base.unwrap_or_default()
        )
    });
    let all: Vec<String> = numbers.chain(sketches).collect();
    format!("apply {}..{}: {}", apply.from, apply.to, all.join(", "))
}

impl Op {
    pub(super) fn brief(&self) -> String {
        match self {
            Self::Applied => "where does the store stand".to_owned(),
            Self::Init { durable, .. } => format!("init at {durable}"),
            Self::Lookup { from, keys } => format!("look up at {from}: {}", names(keys)),
            Self::Apply(apply) => step(apply),
            Self::Durable => "what is durable".to_owned(),
            Self::Read(keys) => format!("read from the archive: {}", names(keys)),
            Self::Begin | Self::BeginAgain(_) => "begin".to_owned(),
            Self::ReadNumbers { applied, keys } | Self::ReadNumbersAgain { applied, keys, .. } => {
                format!("read numbers at {applied}: {}", names(keys))
            }
            Self::ReadSketches { applied, keys } => format!("read sketches at {applied}: {}", names(keys)),
            Self::Write(written) => format!("write: {}", cell(written)),
            Self::SettleNumbers(numbers) => {
                let all = numbers.iter().map(|(key, n)| format!("{} below {}", name(key), n.u));
                format!("settle {}", all.collect::<Vec<_>>().join(", "))
            }
            Self::SettleSketches(sketches) => {
                let all = sketches.iter().map(|(key, t)| format!("the sketch of {} below {t}", name(key)));
                format!("settle {}", all.collect::<Vec<_>>().join(", "))
            }
            Self::SetDurable(offset) => format!("durable is {offset}"),
        }
    }
}

pub(super) fn answer(answer: &Answer) -> String {
    let row = |row: &Archived| {
        let sketch = row.sketch.as_ref().map(|(_, t)| *t);
        format!("{:?} sketch {sketch:?}", row.number)
    };
    match answer {
        Answer::Applied(at) => format!("{at:?}"),
        Answer::Durable(at) => format!("{at:?}"),
        Answer::Initialised(at) => format!("{at}"),
        Answer::Found(CountLookup::Gap(at)) | Answer::Outcome(ApplyOutcome::Gap(at)) => format!("gap {at:?}"),
        Answer::Found(CountLookup::Found(found)) => {
            let all = found.iter().map(|h| {
                let number = h.number.map(|n| (n.n, n.u));
                format!("{number:?}{}", if h.sketch { "" } else { " no sketch" })
            });
            all.collect::<Vec<_>>().join(", ")
        }
        Answer::Archived(rows) => rows.iter().map(row).collect::<Vec<_>>().join(", "),
        other => format!("{other:?}"),
    }
}

pub(super) fn round_answer(answer: &round::Answer) -> String {
    match answer {
        round::Answer::Began(Some(dirty)) => {
            format!(
                "{}, numbers {}, sketches {}",
                dirty.applied,
                names(&dirty.numbers),
                names(&dirty.sketches)
            )
        }
        round::Answer::Numbers(Some(numbers)) => {
            let all = numbers.iter().map(|n| match n {
                NumberRead::Found(n) => format!("{} below {}", n.n, n.u),
                other => format!("{other:?}"),
            });
            all.collect::<Vec<_>>().join(", ")
        }
        round::Answer::Sketches(Some(sketches)) => {
            let all = sketches.iter().map(|s| match s {
                SketchRead::Found { t, .. } => format!("below {t}"),
                other => format!("{other:?}"),
            });
            all.collect::<Vec<_>>().join(", ")
        }
        other => format!("{other:?}"),
    }
}
