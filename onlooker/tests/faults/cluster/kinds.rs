//! What is done to a cluster, and which cluster it is done to.

/// What is done to the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// kill -9 of one of our processes, which is started again.
    Kill,
    /// SIGTERM under load.
    Stop,
    /// SIGSTOP for longer than the session time-out, then SIGCONT: an owner who does not know that it is none any more.
    Zombie,
    /// One more instance comes and goes, in peace or by kill -9.
    Guest,
    /// A server is killed and started again.
    ServerKill,
    /// A server stands still for a while.
    ServerPause,
    /// One of three brokers is killed and started again.
    BrokerKill,
    /// One of three brokers stands still until another leads its partitions, and goes on.
    BrokerPause,
    DedupFlush,
    CountersFlush,
    /// A replica takes over that lacks the last writes.
    DedupFailover,
    CountersFailover,
    /// Memory for a few sketches only, for a while.
    Eviction,
    /// The wire to one of the servers is cut in the middle of messages.
    Cut,
    /// The wire to one of the servers is slow.
    Slow,
    /// Bits of what goes over a wire are turned over, in both directions; all wires are encrypted.
    Flip,
    /// The wall clock of one process, or of all, is stepped by seconds to days, and back.
    ClockStep,
    /// Records that no program of ours wrote: null, empty, garbage, a newer version's, and large ones.
    Poison,
    /// Bytes that are no sketch in a sketch's place; then FLUSHALL, which is always a safe cure.
    Corruption,
    /// Five hundred views, and the same once more with the same ids.
    Repeats,
    /// Bytes that are no sketch in the archive, and FLUSHALL, so that they are needed; then the cure that the counter's
    /// README names.
    ArchiveDamage,
    /// Topics are deleted and made again under everybody's feet. Nothing that was counted goes on after that.
    TopicAnew,
    /// Topics get more partitions. Nothing that was counted goes on after that.
    MorePartitions,
}

use Kind::*;

pub(super) const ALL: [Kind; 23] = [
    Kill,
    Stop,
    Zombie,
    Guest,
    ServerKill,
    ServerPause,
    BrokerKill,
    BrokerPause,
    DedupFlush,
    CountersFlush,
    DedupFailover,
    CountersFailover,
    Eviction,
    Cut,
    Slow,
    Flip,
    ClockStep,
    Poison,
    Corruption,
    Repeats,
    ArchiveDamage,
    TopicAnew,
    MorePartitions,
];

impl Kind {
    /// After it the system's log is another one: such a fault ends a field.
    pub(super) fn is_last(self) -> bool {
        matches!(self, TopicAnew | MorePartitions)
    }

    /// It waits for what the system does about it, so that nothing else may be wrong meanwhile.
    pub(super) fn is_alone(self) -> bool {
        matches!(self, ArchiveDamage)
    }
}

/// Servers and wires of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// One of each server.
    Plain,
    /// Three brokers; what is written is on two at least.
    Brokers,
    /// Every wire is encrypted: any altered byte ends the connection.
    Encrypted,
}

impl Shape {
    fn has(self, kind: Kind) -> bool {
        match kind {
            BrokerKill | BrokerPause => self == Shape::Brokers,
            Flip => self == Shape::Encrypted,
            // A step of days would leave the time for which the certificates are good.
            ClockStep => self != Shape::Encrypted,
            _ => true,
        }
    }
}

/// The shape of the field that a round has, and the kinds that can be done there: functions of the round's number.
pub(super) fn of_round(kinds: &[Kind], round: u64) -> (Shape, Vec<Kind>) {
    let shapes = [Shape::Plain, Shape::Brokers, Shape::Encrypted];
    // Where only a few kinds are wanted, only where there are most of them.
    let special = |shape: &Shape| kinds.iter().all(|kind| kind.is_last() || shape.has(*kind));
    let mut fit: Vec<Shape> = shapes.into_iter().filter(special).collect();
    if fit.is_empty() {
        fit = shapes.into_iter().filter(|shape| kinds.iter().any(|kind| shape.has(*kind))).collect();
    }
    let shape = fit[usize::try_from(round / ROUNDS_A_FIELD).unwrap() % fit.len()];
    let last = is_last_of_field(round) || kinds.iter().all(|kind| kind.is_last());
    let lasting: Vec<Kind> = kinds.iter().copied().filter(|kind| kind.is_last()).collect();
    if last && !lasting.is_empty() {
        return (shape, lasting);
    }
    (shape, kinds.iter().copied().filter(|kind| !kind.is_last() && shape.has(*kind)).collect())
}

/// Rounds on one set of topics: what is checked after each grows with them.
pub(super) const ROUNDS_A_FIELD: u64 = 12;

pub(super) fn is_last_of_field(round: u64) -> bool {
    (round + 1).is_multiple_of(ROUNDS_A_FIELD)
}
