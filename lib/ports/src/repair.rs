//! Putting counts right that are not what the log gives.

use crate::PortError;
use bytes::Bytes;
use onlooker_event::CountKey;
use std::future::Future;
use std::time::Duration;

/// How an attempt to hold a partition went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// It is held for whoever asked, from now on for as long as was asked.
    Ours {
        /// Where the counters stand: every record below this offset is in, and none above.
        at: i64,
    },
    /// Somebody else holds it.
    Taken,
    /// The store stands nowhere: it lost everything, or never began.
    Nowhere,
}

/// A count as the log gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Put {
    /// Which.
    pub key: CountKey,
    /// The sketch in Redis's format, valid; an empty one where the log has no views of it.
    pub sketch: Bytes,
    /// The views.
    pub n: u64,
    /// Seconds since 1970, as in [`Number::changed_s`](crate::Number::changed_s).
    pub changed_s: u32,
}

/// The counters, for who replaces counts under a counter that goes on counting.
///
/// Every step of a counter, a flusher or a janitor asks where the store stands. While a partition is held it stands
/// nowhere for them, as after a total loss: `lookup` and `apply` answer a gap, `begin` and the reads that the round is
/// over, and `applied` and `init` wait until the hold has ended. Readers and observers see no hold: they are told where the
/// partition stood when it began, and all counts.
///
/// After a put no batch fits before some counter has asked by `applied` where the store stands, even one that was sent
/// before the hold. A counter asks only when it knows nothing: so it has forgotten every number and register, all of which
/// may rest on a wrong count, before it goes on. What is left is a batch of a former owner that arrives later still, if the
/// put moved no offset: so look again afterwards.
///
/// A hold is no lock that correctness rests on. What is put is the log's below the offset that it is put at, and the step
/// that puts it first asks whether the hold is still this one.
///
/// What is lost: a hold whose holder died ends by itself, and the store stands where it stood. A total loss takes hold
/// and puts along. A failover to a replica that lacks the put brings back what was there: that, too, is seen afterwards.
pub trait CountRepair: Send + Sync + 'static {
    /// Holds the partition for `lasts`, or for so much longer if it is `holder`'s already. Changes no count. One atomic
    /// step; after a time-out ask again, or let it end by itself.
    fn hold(
        &self,
        partition: i32,
        holder: &str,
        lasts: Duration,
    ) -> impl Future<Output = Result<Hold, PortError>> + Send;

    /// Puts counts in place of what there is of their keys, if anything, marks them as changed since they were archived,
    /// and ends the hold: the store stands at `at` then, and so do the puts. One atomic step. False, and nothing is
    /// changed, if the hold is no longer `holder`'s.
    ///
    /// `at` is where the store stood, or any higher offset below which the log has no further record. Without puts this
    /// ends the hold alone. `PortError::Full`: nothing was changed, and the hold stands. After a time-out it may have
    /// happened or not.
    fn put_and_release(
        &self,
        partition: i32,
        holder: &str,
        at: i64,
        puts: &[Put],
    ) -> impl Future<Output = Result<bool, PortError>> + Send;
}
