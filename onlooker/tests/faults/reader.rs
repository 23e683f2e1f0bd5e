//! Somebody who looks at counts all the while: a number that was said to be whole never falls.

use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;

pub(crate) struct Reader {
    stop: Arc<AtomicBool>,
    looking: JoinHandle<()>,
}

impl Reader {
    /// `ask` gives the counts of the items, or nothing while nobody answers.
    pub(crate) fn start<F>(items: Vec<String>, mut ask: impl FnMut(Vec<String>) -> F + Send + 'static) -> Self
    where
        F: Future<Output = Option<Vec<Value>>> + Send,
    {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let looking = tokio::spawn(async move {
            let mut seen: BTreeMap<String, u64> = BTreeMap::new();
            while !stopped.load(Ordering::Relaxed) {
                tokio::time::sleep(Duration::from_millis(50)).await;
                let Some(counts) = ask(items.clone()).await else { continue };
                for count in counts.iter().filter(|count| count["status"] == "ok") {
                    let (item, views) = (count["item"].as_str().unwrap(), count["views"].as_u64().unwrap());
                    let before = seen.insert(item.to_owned(), views).unwrap_or(0);
                    assert!(views >= before, "{item} was {before} and is {views}: {count}");
                }
            }
        });
        Self { stop, looking }
    }

    pub(crate) async fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.looking.await.unwrap();
    }
}
