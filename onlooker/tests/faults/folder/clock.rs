//! A folder whose process has a wall clock that steps. Times of append are that clock's too, so that a view may be
//! forgotten, and count again, when the clock has gone on by hours: what is expected is read off the log alone.

use super::{Field, Kind, LONG, SPAN, Timeline, plan, round};
use crate::alone::{Books, Client, Home, view};
use crate::schedule::Tally;
use crate::wish::Wish;
use onlooker_testkit::wait_until_async;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::sleep;

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    acknowledged: Mutex<HashSet<String>>,
}

/// Rounds on one folder; views that were acknowledged.
pub(super) async fn rounds(rounds: Range<u64>, kinds: &[Kind], wish: &Wish, tally: &mut Tally) -> usize {
    let field = Field::new(true);
    let shared = Arc::<Shared>::default();
    let senders: Vec<_> =
        (0..2).map(|sender| tokio::spawn(send(field.client(), sender, Arc::clone(&shared)))).collect();
    let ids = || shared.acknowledged.lock().unwrap().clone();
    let taken = || shared.acknowledged.lock().unwrap().len();
    for number in rounds {
        let timeline = Timeline::new(number, wish.again("embedded", number));
        round(&field, &plan(kinds, wish.seed, number, SPAN), &timeline, tally, &taken, &ids).await;
    }
    let running = field.home.start();
    shared.stop.store(true, Ordering::Relaxed);
    for sender in senders {
        sender.await.unwrap();
    }
    let rests = || async { tokio::task::block_in_place(|| rests(&field.home)) };
    wait_until_async("everything to be counted and archived", LONG, rests).await.unwrap();
    running.stop();
    let books = Books::of(field.home.folder()).await;
    books.check_outcomes(&ids());
    books.check_counts();
    taken()
}

fn rests(home: &Home) -> bool {
    let (lines, _) = home.ask(&["lag"]);
    lines.iter().all(|line| line["durable"] == line["end"] && line["waiting"]["records"] == 0)
}

async fn send(client: Client, sender: u64, shared: Arc<Shared>) {
    let mut random = StdRng::seed_from_u64(sender);
    for request in 0.. {
        let ids: Vec<String> =
            (0..random.random_range(1..20)).map(|n| format!("{sender}-{request}-{n}")).collect();
        let mut wire = |id: &String| {
            let item = format!("item {}", (random.random::<f64>().powi(3) * 60.0) as usize);
            let mut view = view(&item, &format!("viewer {}", random.random_range(0..400)));
            view["id"] = json!(id);
            view
        };
        let views: Vec<Value> = ids.iter().map(&mut wire).collect();
        loop {
            sleep(Duration::from_millis(12)).await;
            match client.try_send(&json!(views)).await {
                Some((202, _, answer)) => {
                    assert_eq!(answer["accepted"], ids.len(), "{answer}");
                    break;
                }
                Some((503, ..)) | None => {}
                Some((status, _, answer)) => panic!("{status} {answer}"),
            }
        }
        shared.acknowledged.lock().unwrap().extend(ids);
        if shared.stop.load(Ordering::Relaxed) {
            return;
        }
    }
}
