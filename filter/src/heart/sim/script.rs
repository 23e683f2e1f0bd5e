//! A run that is written down: what the random ones meet too rarely.

use super::store::Store;
use super::{Broken, settings};
use crate::heart::rebuild::Verdicts;
use crate::heart::{Command, CommitEnd, Job, Machine};
use onlooker_event::{Facts, ItemId, Reason, SiteId, Verdict, View, ViewId, ViewerHash};
use onlooker_ports::{Applied, BatchBuilder, Committed, InstallOutcome, Topic};
use onlooker_proto::{decode_ignored, encode_view};
use std::sync::Arc;

/// The same viewer looks at the same item, at these times (also of appending): the second view is in slice 51 and
/// counts; the third is in slice 52, two seconds later, and is a repeat.
const TIMES_S: [i64; 3] = [1_000, 1_039, 1_041];

fn batch(offsets: std::ops::Range<usize>) -> onlooker_ports::Batch {
    let mut batch = BatchBuilder::new(0);
    for offset in offsets {
        let view = View {
            view_id: ViewId([7; 16]),
            site: SiteId::new("s").unwrap(),
            item: ItemId::new("x").unwrap(),
            viewer: ViewerHash([1; 16]),
            key_version: 1,
            event_ms: TIMES_S[offset] * 1_000,
            received_ms: TIMES_S[offset] * 1_000,
            client_id: None,
            user_agent: None,
            referrer: None,
            facts: Facts(0),
        };
        let mut payload = Vec::new();
        encode_view(&view, &mut payload);
        batch.push(i64::try_from(offset).unwrap(), TIMES_S[offset] * 1_000, Some(b"key"), Some(&payload));
    }
    batch.build()
}

/// Carries everything out at once. Verdicts go to `written`, as they would be in the log.
fn obey(
    machine: &mut Machine,
    store: &mut Store,
    committed: &mut Committed,
    written: &mut Vec<(Topic, Vec<u8>)>,
) {
    while let Some(command) = machine.next_command() {
        match command {
            Command::AskMemory { partition, attempt } => {
                machine.memory_stands(partition, attempt, store.applied, 0);
            }
            Command::AskGroup { partition, attempt } => {
                machine.group_stands(partition, attempt, Some(committed), (0, 3), 0);
            }
            Command::Lookup { partition, attempt, at_least, at_most, slice, keys } => {
                machine.looked_up(partition, attempt, store.lookup(at_least, at_most, slice, &keys), 0);
            }
            Command::Claim { partition, attempt, from, to, slice, claims, drop } => {
                let outcome = store.claim(None, (from, to), slice, &claims, drop);
                machine.claimed(partition, attempt, (to, slice), outcome, 0);
            }
            Command::Commit { outputs, positions } => {
                written.extend(outputs.iter().map(|o| (o.topic, o.payload.to_vec())));
                let position = &positions[0];
                *committed = Committed { offset: position.offset, note: position.note.clone() };
                machine.commit_ended(CommitEnd::Done, 0);
            }
            Command::Rebuild(job) => panic!("{job:?} is not in the script"),
            Command::Start { partition, start, .. } => machine.started(partition, start, 0),
            Command::Forget { .. } | Command::Stop { .. } => {}
        }
    }
}

/// The verdict of the third view, when a former owner rebuilds for the first commit after the second.
fn third(broken: Option<Broken>) -> Verdict {
    let settings = settings(broken, 12);
    let mut store = Store { applied: Some(Applied { offset: 0, slice: 0 }), ..Store::default() };
    let mut committed = Committed { offset: 0, note: String::new() };
    let mut written = Vec::new();
    let mut owner = Machine::new(Arc::clone(&settings));
    owner.assigned(&[0], 0);
    obey(&mut owner, &mut store, &mut committed, &mut written);
    for offset in 0..2 {
        owner.records(batch(offset..offset + 1), 0);
        obey(&mut owner, &mut store, &mut committed, &mut written);
    }
    assert_eq!((committed.offset, committed.note.as_str()), (2, "51/20"));

    // The former owner read the offset after the first commit, and the verdicts only now.
    let to = Applied { offset: 1, slice: 50 };
    let job = Job { partition: 0, attempt: 1, to, noted_slice_s: settings.config.slice_s };
    let mut verdicts = Verdicts::new(Arc::clone(&settings), &[job], "name");
    let mut counted = BatchBuilder::new(0);
    for (offset, (_, payload)) in (0..).zip(&written) {
        counted.push(offset, 1_050_000, Some(b"s:x"), Some(payload));
    }
    let mut parts = Vec::new();
    verdicts.take(&counted.build(), &mut parts);
    let rebuild = verdicts.finish(&mut parts).remove(0);
    store = Store::default();
    for part in &parts {
        assert!(store.stage(None, &part.name, part.part, part.slice, &part.claims));
    }
    assert_eq!(store.install(None, to, &rebuild.name, rebuild.parts), InstallOutcome::Done);

    // The owner meets a gap, catches up, and judges the third.
    written.clear();
    owner.records(batch(2..3), 0);
    obey(&mut owner, &mut store, &mut committed, &mut written);
    owner.records(batch(1..3), 0);
    obey(&mut owner, &mut store, &mut committed, &mut written);
    let [(topic, payload)] = written.as_slice() else { panic!("{} verdicts", written.len()) };
    match topic {
        Topic::Counted => Verdict::Counted,
        _ => Verdict::Ignored(decode_ignored(Some(payload)).unwrap().reason),
    }
}

#[test]
fn a_rebuild_beyond_the_committed_offset_counts_a_repeat() {
    assert_eq!(third(None), Verdict::Ignored(Reason::RecentView));
    assert_eq!(third(Some(Broken::RebuildBeyondCommitted)), Verdict::Counted);
}
