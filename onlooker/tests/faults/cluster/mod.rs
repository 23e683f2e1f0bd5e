//! On real Kafka, Redis and Cassandra.

mod damage;
mod ends;
mod field;
mod inflict;
mod kinds;
mod load;

use crate::reader::Reader;
use crate::schedule::{Planned, Tally, Timeline, plan};
use crate::wish::Wish;
use field::Field;
use kinds::{ALL, Kind, ROUNDS_A_FIELD, Shape, is_last_of_field, of_round};
use load::Load;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

const SPAN: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread")]
async fn faults_on_a_cluster_lose_and_repeat_nothing() {
    let wish = Wish::or(2_026, 6);
    let kinds: Vec<Kind> = ALL.into_iter().filter(|kind| wish.wants(kind)).collect();
    assert!(!kinds.is_empty(), "no kind begins with {}: {ALL:?}", wish.only);
    let (mut tally, mut views) = (Tally::default(), 0);
    let mut present: Option<(Shape, Field)> = None;
    for round in wish.first..wish.first + wish.rounds {
        let (shape, kinds_here) = of_round(&kinds, round);
        if round.is_multiple_of(ROUNDS_A_FIELD) || present.as_ref().is_some_and(|(of, _)| *of != shape) {
            present = None;
        }
        let (_, field) = match &mut present {
            Some(present) => present,
            none => none.insert((shape, Field::new(shape, &kinds).await)),
        };
        let timeline = Timeline::new(round, wish.again("cluster", round));
        let faults = plan(&kinds_here, wish.seed, round, SPAN);
        let begun = Instant::now();
        let known = field.acknowledged.len();
        let done = match faults.iter().find(|fault| fault.kind.is_last()) {
            Some(last) => {
                let load = Load::start(&field.system);
                sleep_until(begun + last.at).await;
                field.acknowledged.extend(load.end().await);
                ends::end(field, last, &timeline).await;
                std::slice::from_ref(last)
            }
            None => {
                lasting(field, &faults, begun, &timeline).await;
                &faults[..]
            }
        };
        views += field.acknowledged.len() - known;
        done.iter().for_each(|fault| tally.add(&fault.kind));
        let names: Vec<String> = done.iter().map(|fault| format!("{:?}", fault.kind)).collect();
        eprintln!("round {round} ({shape:?}): {} in {} s", names.join(", "), begun.elapsed().as_secs());
        if done.iter().any(|fault| fault.kind.is_last()) || is_last_of_field(round) {
            present = None;
        }
    }
    tally.tell("cluster", wish.rounds, views);
}

/// A round after which the same field goes on.
async fn lasting(field: &mut Field, faults: &[Planned<Kind>], begun: Instant, timeline: &Timeline) {
    let load = Load::start(&field.system);
    let supervisor = field.supervise();
    let reader = {
        let (url, client) = (field.system.counts_url(), reqwest::Client::new());
        Reader::start((0..5).map(|n| format!("item {n}")).collect(), move |items| {
            let request =
                client.post(format!("{url}/v1/counts")).json(&json!({ "site": "blog", "items": items }));
            async move {
                let mut answer: Value = request.send().await.ok()?.json().await.ok()?;
                serde_json::from_value(answer["counts"].take()).ok()
            }
        })
    };
    let (alone, together): (Vec<_>, Vec<_>) = faults.iter().partition(|fault| fault.kind.is_alone());
    let targets: BTreeMap<String, Mutex<()>> =
        together.iter().filter_map(|fault| Some((field.target(fault)?, Mutex::default()))).collect();
    let (here, locks) = (&*field, &targets);
    let all = together.into_iter().map(|fault| async move {
        sleep_until(begun + fault.at).await;
        let target = here.target(fault);
        // Several at once, but one after the other to one thing.
        let _one = match &target {
            Some(target) => Some(locks[target].lock().await),
            None => None,
        };
        here.inflict(fault, timeline).await;
    });
    futures::future::join_all(all).await;
    for fault in alone {
        field.inflict(fault, timeline).await;
    }
    sleep_until(begun + SPAN).await;
    field.acknowledged.extend(load.end().await);
    field.check(timeline).await;
    reader.end().await;
    match supervisor.again.load(Ordering::Relaxed) {
        0 => {}
        again => {
            eprintln!("{again} processes took a disturbed handshake for a refusal, and were started again")
        }
    }
}
