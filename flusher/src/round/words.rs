//! What a round and the servers say to each other.

use onlooker_event::CountKey;
use onlooker_ports::{ArchiveCell, Dirty, Number, NumberRead, SketchRead};

/// What has to be asked, one after the other.
#[derive(Debug, PartialEq)]
pub enum Ask<'a> {
    /// The store: what is dirty, and where do you stand? In one step: a loss between the two could hide an item.
    Begin,
    /// The store: these changed numbers, if you do not stand below `applied`.
    ReadNumbers {
        /// Where the round began.
        applied: i64,
        /// Which.
        keys: &'a [CountKey],
    },
    /// The store: these changed sketches, if you do not stand below `applied`.
    ReadSketches {
        /// Where the round began.
        applied: i64,
        /// Which.
        keys: &'a [CountKey],
    },
    /// The archive: these cells; those of an item stand next to each other.
    Write(&'a [ArchiveCell]),
    /// The store: these are archived.
    SettleNumbers(&'a [(CountKey, Number)]),
    /// The store: these are archived.
    SettleSketches(&'a [(CountKey, i64)]),
    /// The archive: everything below this offset is in.
    SetDurable(i64),
    /// Nothing: the round is over.
    End(Ending),
}

/// An answer to what was asked.
#[derive(Debug)]
pub enum Answer {
    /// To `Begin`.
    Began(Option<Dirty>),
    /// To `ReadNumbers`.
    Numbers(Option<Vec<NumberRead>>),
    /// To `ReadSketches`.
    Sketches(Option<Vec<SketchRead>>),
    /// To `Write`: which cells were acknowledged, in order.
    Written(Vec<bool>),
    /// To a `Settle`.
    Settled,
    /// To `SetDurable`.
    DurableSet,
    /// No answer, or one that says nothing. The round is given up: the next one does what is left.
    Doubt,
}

/// How a round ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// All that was dirty is archived, and everything below this offset is durable.
    Durable(i64),
    /// The store stands nowhere: it lost everything, or no counter has run yet.
    Lost,
    /// The store fell below where the round began: it lost data meanwhile.
    Stale,
    /// Some cells could not be archived; they are dirty still.
    Incomplete,
    /// A changed sketch or number is absent or damaged: a person has to look.
    Corrupt,
    /// A server did not answer.
    GivenUp,
}

impl Ending {
    /// Every ending, for metrics; the offset says nothing there.
    pub const ALL: &'static [Ending] = &[
        Ending::Durable(0),
        Ending::Lost,
        Ending::Stale,
        Ending::Incomplete,
        Ending::Corrupt,
        Ending::GivenUp,
    ];

    /// The name in metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Ending::Durable(_) => "durable",
            Ending::Lost => "lost",
            Ending::Stale => "stale",
            Ending::Incomplete => "incomplete",
            Ending::Corrupt => "corrupt",
            Ending::GivenUp => "given_up",
        }
    }
}

/// What a round did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Done {
    /// Numbers that the archive acknowledged.
    pub numbers: u64,
    /// Sketches that the archive acknowledged.
    pub sketches: u64,
    /// Their bytes.
    pub sketch_bytes: u64,
    /// Cells that it did not acknowledge.
    pub failed: u64,
    /// Keys that were dirty when the round began.
    pub dirty: u64,
    /// Keys under which a changed sketch or number is absent, or no sketch.
    pub corrupt: Vec<CountKey>,
}
