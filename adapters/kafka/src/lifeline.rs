//! Gives a client that has forgotten all brokers the configured ones again.
//!
//! A broker that was frozen for longer than its session is fenced, and answers for a moment that the cluster has no
//! brokers. The library (2.10 and later; confluentinc/librdkafka#5301) drops each broker that such an answer does not
//! name, the configured ones among them, and then has nobody to ask for ever. Several clients of one process need not
//! fare alike, so each has a line of its own.

use crate::native;
use rdkafka::ClientContext;
use rdkafka::client::Client;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The library keeps what it is given for as long as the client lives. So it is given again ever more rarely.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// A client that works may be asked so often whether it does.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// One client's way to its brokers.
#[derive(Debug)]
pub(crate) struct Lifeline {
    brokers: String,
    cut: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    asked: Option<Instant>,
    /// When the brokers may be given again, and how long to wait the next time. None: the line held.
    next: Option<(Instant, Duration)>,
}

impl Lifeline {
    /// `brokers` as in `bootstrap.servers`.
    pub(crate) fn new(brokers: String) -> Self {
        Self { brokers, cut: AtomicBool::new(false), state: Mutex::new(State { asked: None, next: None }) }
    }

    /// The client may have lost its brokers: it said so, or did not answer in time.
    pub(crate) fn cut(&self) {
        self.cut.store(true, Ordering::Relaxed);
    }

    /// True if it is cut, and long enough has passed since the last look.
    pub(crate) fn wants_mending(&self) -> bool {
        self.cut.load(Ordering::Relaxed)
            && self
                .state
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .asked
                .is_none_or(|at| at.elapsed() > ASK_EVERY)
    }

    /// Asks for a topic's metadata, and gives the client its brokers again if none answers for long. True if one did.
    /// Blocks for `wait` at most.
    pub(crate) fn mend<C: ClientContext>(&self, client: &Client<C>, topic: &str, wait: Duration) -> bool {
        let answer = client.fetch_metadata(Some(topic), wait);
        self.state.lock().unwrap_or_else(PoisonError::into_inner).asked = Some(Instant::now());
        match answer {
            Ok(metadata) if !metadata.brokers().is_empty() => {
                self.cut.store(false, Ordering::Relaxed);
                self.state.lock().unwrap_or_else(PoisonError::into_inner).next = None;
                return true;
            }
            // The very answer after which the client has no brokers.
            Ok(_) => tracing::debug!(topic, "a broker says that there are no brokers"),
            Err(error) => tracing::debug!(topic, %error, "kafka does not answer"),
        }
        self.renew(client);
        false
    }

    /// Gives the client its brokers again, if that is not too soon after the last time.
    pub(crate) fn renew<C: ClientContext>(&self, client: &Client<C>) {
        let now = Instant::now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, wait) = *state.next.get_or_insert((now + FIRST_WAIT, FIRST_WAIT));
        if now < at {
            return;
        }
        let longer = (wait * 2).min(LONGEST_WAIT);
        state.next = Some((now + longer, longer));
        drop(state);
        native::add_brokers(client, &self.brokers);
    }
}
