//! What a client knows about its brokers, gathered from the library's callbacks.

use crate::config::KafkaConfig;
use crate::error::{denied, failed, is_refusal, unavailable};
use crate::lifeline::Lifeline;
use onlooker_ports::PortError;
use rdkafka::ClientContext;
use rdkafka::client::Client;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// After a client has worked, a refusal has to last this long before it is believed: a broker that goes down in the
/// middle of a handshake looks just like a wrong certificate.
const REFUSAL_BELIEVED: Duration = Duration::from_secs(10);

/// Shared between a client's callbacks and the code that uses it.
#[derive(Debug)]
pub(crate) struct Health {
    /// Which client, for logs.
    client: &'static str,
    /// False in the common case, so that a success costs no lock.
    troubled: AtomicBool,
    state: Mutex<State>,
    refused: Notify,
}

#[derive(Debug, Default)]
struct State {
    worked: bool,
    /// No broker is reached: what the client saw.
    down: Option<String>,
    /// What became of the last broker that was tried, by address.
    last: Option<String>,
    refusal: Option<(Instant, String)>,
    fatal: Option<String>,
}

impl Health {
    pub(crate) fn new(client: &'static str) -> Arc<Self> {
        // The first success has to be noted too.
        let troubled = AtomicBool::new(true);
        Arc::new(Self { client, troubled, state: Mutex::default(), refused: Notify::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A broker answered.
    pub(crate) fn works(&self) {
        if !self.troubled.load(Ordering::Relaxed) {
            return;
        }
        let mut state = self.state();
        let (was_down, was_refused) = (state.down.take().is_some(), state.refusal.take().is_some());
        if was_down || was_refused {
            tracing::info!(client = self.client, "kafka answers again");
        }
        state.worked = true;
        self.troubled.store(state.fatal.is_some(), Ordering::Relaxed);
    }

    /// The library reported an error of the client as a whole, or a caller saw one.
    pub(crate) fn saw(&self, code: RDKafkaErrorCode, reason: &str) {
        let mut state = self.state();
        if is_refusal(code) {
            if state.refusal.is_none() {
                tracing::error!(client = self.client, reason, "kafka refuses the login");
                state.refusal = Some((Instant::now(), reason.to_owned()));
            }
        } else if code == RDKafkaErrorCode::Fatal {
            if state.fatal.is_none() {
                tracing::error!(client = self.client, reason, "kafka client is beyond repair");
                state.fatal = Some(reason.to_owned());
            }
        } else if matches!(code, RDKafkaErrorCode::AllBrokersDown | RDKafkaErrorCode::MessageTimedOut) {
            if state.down.is_none() {
                // The library's own words say how many brokers it misses, and neither which nor why.
                let reason = state.last.take().unwrap_or_else(|| reason.to_owned());
                tracing::warn!(client = self.client, reason, "kafka is out of reach");
                state.down = Some(reason);
            }
        } else {
            // One broker of several, one request of many: the library goes on by itself.
            tracing::debug!(client = self.client, %code, reason, "kafka client reports");
            if matches!(code, RDKafkaErrorCode::BrokerTransportFailure | RDKafkaErrorCode::Resolve) {
                state.last = Some(reason.to_owned());
            }
            return;
        }
        self.troubled.store(true, Ordering::Relaxed);
        drop(state);
        self.refused.notify_waiters();
    }

    /// True if no broker can be reached, or none lets us in.
    pub(crate) fn is_down(&self) -> bool {
        self.troubled.load(Ordering::Relaxed) && {
            let state = self.state();
            state.down.is_some() || state.refusal.is_some() || state.fatal.is_some()
        }
    }

    /// True once a broker has answered, ever.
    pub(crate) fn has_worked(&self) -> bool {
        self.state().worked
    }

    /// True if the client has to be replaced.
    pub(crate) fn is_fatal(&self) -> bool {
        self.troubled.load(Ordering::Relaxed) && self.state().fatal.is_some()
    }

    /// An error that waiting does not put right.
    pub(crate) fn permanent(&self) -> Option<PortError> {
        if !self.troubled.load(Ordering::Relaxed) {
            return None;
        }
        let state = self.state();
        if let Some(reason) = &state.fatal {
            return Some(failed(reason));
        }
        let (since, reason) = state.refusal.as_ref()?;
        (!state.worked || since.elapsed() > REFUSAL_BELIEVED).then(|| denied(reason))
    }

    /// Any error of the client as a whole.
    pub(crate) fn problem(&self) -> Option<PortError> {
        if let Some(permanent) = self.permanent() {
            return Some(permanent);
        }
        let state = self.state();
        let reason = state.down.as_ref().or(state.refusal.as_ref().map(|(_, reason)| reason))?;
        Some(unavailable(reason))
    }

    /// Ends when [`Health::permanent`] has something to say.
    pub(crate) async fn until_permanent(&self) -> PortError {
        loop {
            let refused = self.refused.notified();
            if let Some(error) = self.permanent() {
                return error;
            }
            refused.await;
        }
    }

    /// Asks for a topic's metadata, which proves that a broker answers and knows us. Blocks.
    pub(crate) fn probe<C: ClientContext>(
        &self,
        lifeline: &Lifeline,
        client: &Client<C>,
        topic: &str,
        wait: Duration,
    ) {
        if lifeline.mend(client, topic, wait) {
            self.works();
        }
    }

    /// What a broker's library line is worth. Connection trouble is told once, by the functions above.
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        match level {
            RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical => {
                tracing::error!(client = self.client, facility, message, "librdkafka");
            }
            _ => tracing::debug!(client = self.client, facility, message, "librdkafka"),
        }
    }
}

/// The callbacks of a client without any of its own.
#[derive(Debug, Clone)]
pub(crate) struct Watched {
    health: Arc<Health>,
    lifeline: Arc<Lifeline>,
}

impl Watched {
    pub(crate) fn new(config: &KafkaConfig, health: &Arc<Health>) -> Self {
        Self { health: Arc::clone(health), lifeline: Arc::new(Lifeline::new(config.brokers.join(","))) }
    }

    /// The client's own, to be mended by whoever has the client.
    pub(crate) fn lifeline(&self) -> &Arc<Lifeline> {
        &self.lifeline
    }
}

impl ClientContext for Watched {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.health.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail);
        if code == RDKafkaErrorCode::AllBrokersDown {
            self.lifeline.cut();
        }
        self.health.saw(code, reason);
    }
}

impl ConsumerContext for Watched {}

/// Hands what waits in a client's own queue, log lines and errors, to its callbacks.
pub(crate) fn serve(consumer: &BaseConsumer<Watched>) {
    // One call serves one event, and does not say whether there was one.
    for _ in 0..32 {
        consumer.poll(Duration::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_counts_at_once_until_the_client_has_worked() {
        let health = Health::new("test");
        health.saw(RDKafkaErrorCode::Authentication, "wrong password");
        assert_eq!(health.permanent(), Some(denied("wrong password")));
        health.works();
        assert_eq!(health.problem(), None);
        assert!(!health.is_down());
        health.saw(RDKafkaErrorCode::SSL, "handshake cut");
        assert_eq!(health.permanent(), None);
        assert_eq!(health.problem(), Some(unavailable("handshake cut")));
    }

    #[test]
    fn one_lost_connection_is_no_outage() {
        let health = Health::new("test");
        health.saw(RDKafkaErrorCode::BrokerTransportFailure, "one of three");
        assert!(!health.is_down());
        health.saw(RDKafkaErrorCode::AllBrokersDown, "3/3");
        assert!(health.is_down());
        assert_eq!(health.permanent(), None);
        // Which broker, and why, rather than how many.
        assert_eq!(health.problem(), Some(unavailable("one of three")));
    }
}
