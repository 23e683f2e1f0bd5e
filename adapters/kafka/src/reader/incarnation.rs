//! Whether the topic still is the one that was read first.
//!
//! Offsets of a topic that was deleted and made again mean other records. Its new log may even have grown past the old
//! offsets before anybody looks.

use crate::error::misconfigured;
use crate::native;
use onlooker_ports::PortError;
use rdkafka::ClientContext;
use rdkafka::client::Client;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Each partition asks when it looks where its log ends.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// The topic's id, as it was seen first.
#[derive(Debug, Default)]
pub(super) struct Incarnation(Mutex<Option<(String, Instant)>>);

impl Incarnation {
    /// Asks for the topic's id, unless that was done just now. Blocks.
    ///
    /// # Errors
    /// `Misconfigured` if it is another one; what the question came to if it had no answer.
    pub(super) fn check<C: ClientContext>(
        &self,
        client: &Client<C>,
        topic: &str,
        wait: Duration,
    ) -> Result<(), PortError> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if known.as_ref().is_some_and(|(_, asked)| asked.elapsed() < ASK_EVERY) {
            return Ok(());
        }
        let id = native::admin::topic_id(client, topic, wait)?;
        self.note(id, topic)
    }

    fn note(&self, id: String, topic: &str) -> Result<(), PortError> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*known {
            Some((first, _)) if *first != id => Err(misconfigured(format_args!(
                "topic {topic} was made anew: it is {id}, and was {first}; offsets of another log mean other records, so it \
                 needs a layout.generation of its own"
            ))),
            _ => {
                *known = Some((id, Instant::now()));
                Ok(())
            }
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn another_id_is_another_log_for_good() {
        let incarnation = Incarnation::default();
        incarnation.note("a".into(), "views").unwrap();
        incarnation.note("a".into(), "views").unwrap();
        for _ in 0..2 {
            let error = incarnation.note("b".into(), "views").unwrap_err();
            assert!(!error.is_transient(), "{error}");
            assert!(error.to_string().contains("topic views was made anew"), "{error}");
        }
    }
}
