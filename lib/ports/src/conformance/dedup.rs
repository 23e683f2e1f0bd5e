//! What every `DedupStore` keeps.
//!
//! The functions panic where a promise is broken. Each uses one partition that nobody used before.

mod random;

pub use random::random_steps_agree_with_a_model;

use crate::{Applied, Claim, ClaimOutcome, DedupStore, InstallOutcome, Lookup, Remembered};
use onlooker_event::Digest128;
use std::future::Future;

/// A store and what happens to it.
pub trait DedupUnderTest: Sync {
    /// The store.
    type Store: DedupStore;

    /// One client of it.
    fn store(&self) -> &Self::Store;

    /// It loses everything.
    fn lose(&self) -> impl Future<Output = ()> + Send;
}

/// Partitions that `all` uses, from 0.
pub const PARTITIONS: u32 = 16;

/// All of the suite, on an empty store of at least [`PARTITIONS`] partitions.
pub async fn all<D: DedupUnderTest>(test: &D) {
    let store = test.store();
    without_a_state_everything_is_a_gap(store, 0).await;
    an_empty_state_is_installed(store, 1).await;
    claims_are_remembered_by_slice(store, 2).await;
    lookups_keep_to_their_bounds(store, 3).await;
    claims_stand_on_exactly_their_state(store, 4).await;
    slices_are_dropped_and_no_others(store, 5).await;
    staged_parts_come_in_order_and_stay_hidden(store, 6).await;
    an_installation_replaces_everything(store, 7).await;
    an_installation_never_goes_back(store, 8).await;
    one_of_many_claimers_wins(store, 9).await;
    partitions_share_nothing(store, 10).await;
    large_batches_are_one_step(store, 12).await;
    for seed in 0..3 {
        random_steps_agree_with_a_model(test, 13 + seed, u64::try_from(seed).unwrap_or(0)).await;
    }
    a_loss_is_noticed_and_rebuilt(test, 0).await;
}

/// A key that differs from those of other numbers in every byte.
pub fn digest(n: u32) -> Digest128 {
    let mut bytes = [0; 16];
    for (i, chunk) in bytes.chunks_exact_mut(4).enumerate() {
        let word = n.wrapping_mul(2_654_435_769).rotate_left(8 * u32::try_from(i).unwrap_or(0));
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    Digest128(bytes)
}

fn claim(n: u32, values: &[u32]) -> Claim {
    Claim { key: digest(n), values: values.into() }
}

fn remembered(older: &[u32], newer: &[u32]) -> Remembered {
    Remembered { older: older.to_vec(), newer: newer.to_vec() }
}

fn up<T>(outcome: Result<T, crate::PortError>) -> T {
    outcome.expect("the store is up")
}

/// The state of a first start: nothing is claimed below `offset`.
async fn begin<D: DedupStore>(store: &D, partition: i32, offset: i64, slice: i64) {
    let outcome = up(store.install(partition, offset, slice, "begin", 0).await);
    assert_eq!(outcome, InstallOutcome::Done);
}

async fn look<D: DedupStore>(
    store: &D,
    partition: i32,
    at: i64,
    slice: i64,
    keys: &[u32],
) -> Vec<Remembered> {
    let keys: Vec<_> = keys.iter().map(|n| digest(*n)).collect();
    match up(store.lookup(partition, at, at, slice, &keys).await) {
        Lookup::Found(found) => found,
        Lookup::Gap(at) => panic!("the state is {at:?}"),
    }
}

/// Claims into `slice` and drops nothing.
async fn claim_one<D: DedupStore>(
    store: &D,
    partition: i32,
    from: i64,
    to: i64,
    slice: i64,
    claims: &[Claim],
) {
    let outcome = up(store.claim(partition, from, to, slice, claims, slice..slice).await);
    assert_eq!(outcome, ClaimOutcome::Done);
}

/// A state that is gone is told apart from one that is empty, and nothing is written without one.
pub async fn without_a_state_everything_is_a_gap<D: DedupStore>(store: &D, partition: i32) {
    assert_eq!(up(store.applied(partition).await), None);
    assert_eq!(up(store.lookup(partition, 0, i64::MAX, 5, &[digest(1)]).await), Lookup::Gap(None));
    let claims = [claim(1, &[100])];
    assert_eq!(up(store.claim(partition, 0, 9, 5, &claims, 0..0).await), ClaimOutcome::Gap(None));
    assert_eq!(up(store.applied(partition).await), None);
    begin(store, partition, 0, 5).await;
    assert_eq!(
        look(store, partition, 0, 5, &[1]).await,
        [Remembered::default()],
        "the refused claim left nothing"
    );
}

/// No staged part at all is a valid state: the first start.
pub async fn an_empty_state_is_installed<D: DedupStore>(store: &D, partition: i32) {
    begin(store, partition, 0, 1_000).await;
    assert_eq!(up(store.applied(partition).await), Some(Applied { offset: 0, slice: 1_000 }));
    assert_eq!(look(store, partition, 0, 1_000, &[]).await, []);
    assert_eq!(look(store, partition, 0, 1_000, &[1, 2]).await, vec![Remembered::default(); 2]);
}

/// What was counted in a slice is seen from it and from the next one, in the order of the keys.
pub async fn claims_are_remembered_by_slice<D: DedupStore>(store: &D, partition: i32) {
    begin(store, partition, 10, 50).await;
    claim_one(store, partition, 10, 20, 50, &[claim(1, &[7]), claim(2, &[0, 5, u32::MAX])]).await;
    assert_eq!(up(store.applied(partition).await), Some(Applied { offset: 20, slice: 50 }));
    let (one, two) = (remembered(&[], &[7]), remembered(&[], &[0, 5, u32::MAX]));
    let nothing = Remembered::default();
    let seen = look(store, partition, 20, 50, &[2, 3, 1, 2]).await;
    assert_eq!(seen, [two.clone(), nothing.clone(), one, two], "in order, repetitions included");

    claim_one(store, partition, 20, 30, 51, &[claim(1, &[8, 9]), claim(3, &[1])]).await;
    let seen = look(store, partition, 30, 51, &[1, 2, 3]).await;
    assert_eq!(seen, [remembered(&[7], &[8, 9]), remembered(&[0, 5, u32::MAX], &[]), remembered(&[], &[1])]);

    // A claim carries the complete list of its slice.
    claim_one(store, partition, 30, 40, 51, &[claim(3, &[1, 2])]).await;
    assert_eq!(look(store, partition, 40, 51, &[3]).await, [remembered(&[], &[1, 2])]);
    // Nothing counted for a while: the slices before are out of sight.
    claim_one(store, partition, 40, 41, 53, &[]).await;
    assert_eq!(look(store, partition, 41, 53, &[1, 2, 3]).await, vec![nothing; 3]);
}

/// Below the bounds claims are missing, above them the views under decision have been claimed.
pub async fn lookups_keep_to_their_bounds<D: DedupStore>(store: &D, partition: i32) {
    begin(store, partition, 100, 5).await;
    let keys = [digest(1)];
    let at = Some(Applied { offset: 100, slice: 5 });
    for (least, most) in [(100, 100), (0, 100), (100, 200), (99, 101)] {
        let found = up(store.lookup(partition, least, most, 5, &keys).await);
        assert_eq!(found, Lookup::Found(vec![Remembered::default()]), "{least} to {most}");
    }
    for (least, most) in [(101, 200), (0, 99)] {
        assert_eq!(
            up(store.lookup(partition, least, most, 5, &keys).await),
            Lookup::Gap(at),
            "{least} to {most}"
        );
    }
}

/// A claim that comes twice, too early or too late changes nothing.
pub async fn claims_stand_on_exactly_their_state<D: DedupStore>(store: &D, partition: i32) {
    begin(store, partition, 0, 5).await;
    claim_one(store, partition, 0, 10, 5, &[claim(1, &[1])]).await;
    let at = Some(Applied { offset: 10, slice: 5 });
    for (from, to) in [(0, 10), (9, 20), (11, 20), (0, 30)] {
        let outcome = up(store.claim(partition, from, to, 6, &[claim(1, &[2]), claim(2, &[2])], 0..6).await);
        assert_eq!(outcome, ClaimOutcome::Gap(at), "{from} to {to}");
    }
    assert_eq!(up(store.applied(partition).await), at);
    assert_eq!(look(store, partition, 10, 6, &[1, 2]).await, [remembered(&[1], &[]), Remembered::default()]);
}

/// Old slices go; the two that verdicts are made from stay, whatever else is asked for.
pub async fn slices_are_dropped_and_no_others<D: DedupStore>(store: &D, partition: i32) {
    begin(store, partition, 0, 10).await;
    claim_one(store, partition, 0, 1, 10, &[claim(1, &[10])]).await;
    claim_one(store, partition, 1, 2, 11, &[claim(1, &[11])]).await;
    assert_eq!(up(store.claim(partition, 2, 3, 12, &[claim(1, &[12])], 0..11).await), ClaimOutcome::Done);
    assert_eq!(look(store, partition, 3, 12, &[1]).await, [remembered(&[11], &[12])]);
    assert_eq!(look(store, partition, 3, 11, &[1]).await, [remembered(&[], &[11])], "slice 10 is gone");
    // A long silence.
    assert_eq!(up(store.claim(partition, 3, 4, 900, &[claim(1, &[90])], 11..899).await), ClaimOutcome::Done);
    assert_eq!(look(store, partition, 4, 900, &[1]).await, [remembered(&[], &[90])]);
    assert_eq!(look(store, partition, 4, 12, &[1]).await, [Remembered::default()]);
}

/// A part that is missing or comes twice is refused, and nothing staged is seen before it is installed.
pub async fn staged_parts_come_in_order_and_stay_hidden<D: DedupStore>(store: &D, partition: i32) {
    begin(store, partition, 5, 20).await;
    let stage = async |name: &str, part, slice, n| {
        up(store.stage(partition, name, part, slice, &[claim(n, &[n])]).await)
    };
    assert!(!stage("a", 1, 20, 1).await, "the first part is number 0");
    assert!(stage("a", 0, 20, 1).await);
    assert!(!stage("a", 0, 20, 2).await, "it came before");
    assert!(stage("b", 0, 20, 3).await, "another name is another state");
    assert!(stage("a", 1, 19, 4).await);
    assert_eq!(look(store, partition, 5, 20, &[1, 3, 4]).await, vec![Remembered::default(); 3]);
    for parts in [0, 1, 3] {
        assert_eq!(
            up(store.install(partition, 9, 20, "a", parts).await),
            InstallOutcome::Gap,
            "{parts} parts"
        );
    }
    assert_eq!(up(store.applied(partition).await), Some(Applied { offset: 5, slice: 20 }));
    assert_eq!(up(store.install(partition, 9, 20, "a", 2).await), InstallOutcome::Done);
    let seen = look(store, partition, 9, 20, &[1, 2, 3, 4]).await;
    let nothing = Remembered::default();
    assert_eq!(seen, [remembered(&[], &[1]), nothing.clone(), nothing, remembered(&[4], &[])]);
    assert_eq!(up(store.install(partition, 99, 20, "a", 2).await), InstallOutcome::Gap, "it was used up");
    staged_values_are_appended(store, partition).await;
}

/// A key may be staged in several parts, so that nobody has to hold a whole slice to stage it.
async fn staged_values_are_appended<D: DedupStore>(store: &D, partition: i32) {
    let parts: [&[Claim]; 3] =
        [&[claim(1, &[5, 6]), claim(2, &[7])], &[claim(3, &[1]), claim(1, &[2])], &[claim(1, &[9, 5])]];
    for (part, claims) in (0..).zip(parts) {
        assert!(up(store.stage(partition, "more", part, 21, claims).await));
    }
    assert_eq!(up(store.install(partition, 199, 21, "more", 3).await), InstallOutcome::Done);
    let seen = look(store, partition, 199, 21, &[1, 2, 3]).await;
    assert_eq!(seen, [remembered(&[], &[5, 6, 2, 9, 5]), remembered(&[], &[7]), remembered(&[], &[1])]);
}

/// What was there before is gone, also from a slice that got no part.
pub async fn an_installation_replaces_everything<D: DedupStore>(store: &D, partition: i32) {
    begin(store, partition, 0, 30).await;
    claim_one(store, partition, 0, 1, 30, &[claim(1, &[30]), claim(2, &[30])]).await;
    claim_one(store, partition, 1, 2, 31, &[claim(1, &[31])]).await;
    assert!(up(store.stage(partition, "new", 0, 31, &[claim(2, &[77])]).await));
    assert_eq!(up(store.install(partition, 50, 31, "new", 1).await), InstallOutcome::Done);
    assert_eq!(up(store.applied(partition).await), Some(Applied { offset: 50, slice: 31 }));
    assert_eq!(
        look(store, partition, 50, 31, &[1, 2]).await,
        [Remembered::default(), remembered(&[], &[77])]
    );
    // Into other slices than the old ones.
    assert!(up(store.stage(partition, "later", 0, 40, &[claim(3, &[3])]).await));
    assert_eq!(up(store.install(partition, 60, 41, "later", 1).await), InstallOutcome::Done);
    assert_eq!(look(store, partition, 60, 41, &[2, 3]).await, [Remembered::default(), remembered(&[3], &[])]);
    assert_eq!(
        look(store, partition, 60, 31, &[2]).await,
        [Remembered::default()],
        "the old slices are gone"
    );
    claim_one(store, partition, 60, 61, 41, &[claim(4, &[4])]).await;
    assert_eq!(look(store, partition, 61, 41, &[3, 4]).await, [remembered(&[3], &[]), remembered(&[], &[4])]);
}

/// A state at or beyond the offset stays; one below is replaced.
pub async fn an_installation_never_goes_back<D: DedupStore>(store: &D, partition: i32) {
    begin(store, partition, 100, 7).await;
    claim_one(store, partition, 100, 110, 7, &[claim(1, &[1])]).await;
    for offset in [50, 109, 110] {
        assert!(up(store.stage(partition, "late", 0, 7, &[claim(1, &[9])]).await));
        let outcome = up(store.install(partition, offset, 7, "late", 1).await);
        assert_eq!(outcome, InstallOutcome::Discarded, "at {offset}");
        assert_eq!(look(store, partition, 110, 7, &[1]).await, [remembered(&[], &[1])]);
    }
    assert!(
        up(store.stage(partition, "late", 0, 7, &[claim(1, &[9])]).await),
        "a discarded state leaves its name"
    );
    assert_eq!(up(store.install(partition, 111, 7, "late", 1).await), InstallOutcome::Done);
    assert_eq!(look(store, partition, 111, 7, &[1]).await, [remembered(&[], &[9])]);
}

/// However many believe that they own the partition, one claim follows each state.
pub async fn one_of_many_claimers_wins<D: DedupStore>(store: &D, partition: i32) {
    begin(store, partition, 0, 1).await;
    for round in 0..20i64 {
        let claimers = [1u32, 2, 3, 4].map(|who| {
            let claims = [claim(who, &[who])];
            async move {
                let to = round * 10 + 10;
                up(store.claim(partition, round * 10, to, 1, &claims, 1..1).await)
            }
        });
        let [a, b, c, d] = claimers;
        let outcomes = tokio::join!(a, b, c, d);
        let outcomes = [outcomes.0, outcomes.1, outcomes.2, outcomes.3];
        let won = outcomes.iter().filter(|outcome| **outcome == ClaimOutcome::Done).count();
        assert_eq!(won, 1, "round {round}: {outcomes:?}");
    }
}

/// Uses this partition and the next one.
pub async fn partitions_share_nothing<D: DedupStore>(store: &D, partition: i32) {
    begin(store, partition, 0, 1).await;
    begin(store, partition + 1, 500, 9).await;
    claim_one(store, partition, 0, 5, 1, &[claim(1, &[1])]).await;
    claim_one(store, partition + 1, 500, 501, 9, &[claim(1, &[2])]).await;
    assert_eq!(look(store, partition, 5, 1, &[1]).await, [remembered(&[], &[1])]);
    assert_eq!(look(store, partition + 1, 501, 9, &[1]).await, [remembered(&[], &[2])]);
}

/// Batches of more keys than any limit of a scripting language.
pub async fn large_batches_are_one_step<D: DedupStore>(store: &D, partition: i32) {
    begin(store, partition, 0, 3).await;
    let numbers: Vec<u32> = (0..20_000).collect();
    let claims: Vec<_> = numbers.iter().map(|n| claim(*n, &[*n, n + 1])).collect();
    claim_one(store, partition, 0, 20_000, 3, &claims).await;
    let seen = look(store, partition, 20_000, 4, &numbers).await;
    assert!(seen.iter().zip(&numbers).all(|(seen, n)| *seen == remembered(&[*n, n + 1], &[])));
    assert!(up(store.stage(partition, "big", 0, 3, &claims).await));
    // One key with very many values: an item that a viewer returns to by imports of past times.
    let values: Vec<u32> = (0..50_000).collect();
    assert!(up(store.stage(partition, "big", 1, 4, &[claim(1, &values)]).await));
    assert_eq!(up(store.install(partition, 30_000, 4, "big", 2).await), InstallOutcome::Done);
    assert_eq!(look(store, partition, 30_000, 4, &[1]).await, [remembered(&[1, 2], &values)]);
}

/// After a loss nothing passes until the state was rebuilt. Loses everything, of all partitions.
pub async fn a_loss_is_noticed_and_rebuilt<D: DedupUnderTest>(test: &D, partition: i32) {
    let store = test.store();
    let offset = up(store.applied(partition).await).map_or(0, |at| at.offset) + 1_000;
    begin(store, partition, offset, 60).await;
    claim_one(store, partition, offset, offset + 1, 60, &[claim(1, &[1])]).await;
    assert!(up(store.stage(partition, "cut", 0, 60, &[claim(2, &[2])]).await));
    test.lose().await;
    without_a_state_everything_is_a_gap(store, partition + 1).await;
    assert_eq!(up(store.applied(partition).await), None);
    let late = up(store.claim(partition, offset + 1, offset + 2, 60, &[claim(3, &[3])], 0..0).await);
    assert_eq!(late, ClaimOutcome::Gap(None));
    assert_eq!(
        up(store.install(partition, offset + 1, 60, "cut", 1).await),
        InstallOutcome::Gap,
        "its parts are gone"
    );
    assert!(up(store.stage(partition, "again", 0, 60, &[claim(1, &[1])]).await));
    assert_eq!(up(store.install(partition, offset + 1, 60, "again", 1).await), InstallOutcome::Done);
    assert_eq!(look(store, partition, offset + 1, 60, &[1, 2, 3]).await[0], remembered(&[], &[1]));
}
