//! Who is ready, and who is alive.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

/// The register of a process's components. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Health(Arc<Mutex<Vec<Arc<Entry>>>>);

/// One component's handle. Clones speak for the same component.
#[derive(Clone, Debug)]
pub struct Component(Arc<Entry>);

#[derive(Debug)]
struct Entry {
    name: String,
    state: Mutex<State>,
    /// A copy of `state == Ready`, so that saying "ready" once more costs a load and no lock.
    ready: AtomicBool,
    /// It has been ready: from then on, not to be is news.
    was_ready: AtomicBool,
    deadline: Option<Deadline>,
}

#[derive(Debug)]
struct Deadline {
    max_age: Duration,
    epoch: Instant,
    /// Milliseconds from `epoch` to the last beat.
    last_beat_ms: AtomicU64,
    stall_logged: AtomicBool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Unready(Cow<'static, str>),
    Ready,
    Failed(Cow<'static, str>),
}

/// What a probe is told about one component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ComponentReport {
    /// As given at registration.
    pub name: String,
    /// The component's condition.
    pub status: Status,
    /// Why it is not ready; absent when it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A component's condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Does its work.
    Ready,
    /// Waits for something outside, and goes on by itself when it is there.
    Unready,
    /// Its heartbeat is older than it promised: only a restart helps.
    Stalled,
    /// Said so itself: only a restart helps.
    Failed,
}

/// What a probe is told about the process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Everybody is ready, at least one is registered, and no shutdown was requested.
    pub ready: bool,
    /// Nobody has failed or stalled. Shutdown does not touch it: a draining process must not be killed.
    pub live: bool,
    /// Shutdown was requested.
    pub shutting_down: bool,
    /// In order of registration.
    pub components: Vec<ComponentReport>,
}

impl Health {
    /// An empty register, which is live and not ready.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a component, not ready with the reason "starting". A name that is registered
    /// already gives the same component again, in the state that it is in.
    pub fn component(&self, name: impl Into<String>) -> Component {
        self.register(name.into(), None)
    }

    /// Registers a component that promises to [`beat`](Component::beat) at least every `max_age`,
    /// from now on. Beat on progress and when there is nothing to do; not when there is work and
    /// none of it gets done.
    pub fn component_with_deadline(&self, name: impl Into<String>, max_age: Duration) -> Component {
        let deadline = Deadline {
            max_age,
            epoch: Instant::now(),
            last_beat_ms: AtomicU64::new(0),
            stall_logged: AtomicBool::new(false),
        };
        self.register(name.into(), Some(deadline))
    }

    fn register(&self, name: String, deadline: Option<Deadline>) -> Component {
        let mut entries = lock(&self.0);
        if let Some(entry) = entries.iter().find(|entry| entry.name == name) {
            return Component(Arc::clone(entry));
        }
        let state = Mutex::new(State::Unready("starting".into()));
        let entry = Arc::new(Entry {
            name,
            state,
            ready: AtomicBool::new(false),
            was_ready: AtomicBool::new(false),
            deadline,
        });
        entries.push(Arc::clone(&entry));
        Component(entry)
    }

    /// The state of everybody now.
    pub fn report(&self, shutting_down: bool) -> Report {
        let components: Vec<_> = lock(&self.0).iter().map(|entry| entry.report()).collect();
        let ready = !shutting_down
            && !components.is_empty()
            && components.iter().all(|component| component.status == Status::Ready);
        let live = components.iter().all(|c| matches!(c.status, Status::Ready | Status::Unready));
        Report { ready, live, shutting_down, components }
    }
}

impl Component {
    /// It does its work. Free to be called in a loop. A failed component stays failed.
    pub fn ready(&self) {
        if !self.0.ready.load(Ordering::Relaxed) && self.0.change(State::Ready) {
            self.0.was_ready.store(true, Ordering::Relaxed);
            tracing::info!(component = self.0.name, "component is ready");
        }
    }

    /// It waits for something, named by the reason, and goes on by itself. Keep changing numbers out
    /// of the reason: each new one is a log line. A failed component stays failed.
    pub fn unready(&self, reason: impl Into<Cow<'static, str>>) {
        let reason = reason.into();
        if !self.0.change(State::Unready(reason.clone())) {
            return;
        }
        if self.0.was_ready.load(Ordering::Relaxed) {
            tracing::warn!(component = self.0.name, %reason, "component is not ready");
        } else {
            tracing::info!(component = self.0.name, %reason, "component is not ready yet");
        }
    }

    /// It cannot go on: liveness fails until the process is restarted.
    pub fn failed(&self, reason: impl Into<Cow<'static, str>>) {
        let reason = reason.into();
        if self.0.change(State::Failed(reason.clone())) {
            tracing::error!(component = self.0.name, %reason, "component failed");
        }
    }

    /// It made progress, or had nothing to do. Nothing where no deadline was registered.
    pub fn beat(&self) {
        if let Some(deadline) = &self.0.deadline {
            deadline.last_beat_ms.store(deadline.now_ms(), Ordering::Relaxed);
        }
    }
}

impl Entry {
    /// Whether that was a change.
    fn change(&self, to: State) -> bool {
        let mut state = lock(&self.state);
        if *state == to || matches!(*state, State::Failed(_)) {
            return false;
        }
        self.ready.store(to == State::Ready, Ordering::Relaxed);
        *state = to;
        true
    }

    fn report(&self) -> ComponentReport {
        let name = self.name.clone();
        let (status, reason) = match &*lock(&self.state) {
            State::Failed(reason) => (Status::Failed, Some(reason.to_string())),
            state => match (self.stalled(), state) {
                (Some(reason), _) => (Status::Stalled, Some(reason)),
                (None, State::Unready(reason)) => (Status::Unready, Some(reason.to_string())),
                (None, _) => (Status::Ready, None),
            },
        };
        ComponentReport { name, status, reason }
    }

    fn stalled(&self) -> Option<String> {
        let deadline = self.deadline.as_ref()?;
        let age_ms = deadline.now_ms().saturating_sub(deadline.last_beat_ms.load(Ordering::Relaxed));
        let max_age_ms = millis(deadline.max_age);
        if age_ms <= max_age_ms {
            deadline.stall_logged.store(false, Ordering::Relaxed);
            return None;
        }
        // Probes come every few seconds: the log hears of a stall once.
        if !deadline.stall_logged.swap(true, Ordering::Relaxed) {
            tracing::error!(component = self.name, age_ms, max_age_ms, "component makes no progress");
        }
        Some(format!("no progress for {} s", age_ms / 1000))
    }
}

impl Deadline {
    fn now_ms(&self) -> u64 {
        millis(self.epoch.elapsed())
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing here panics while it holds a lock, and a probe should answer even if it did.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statuses(health: &Health) -> Vec<(String, Status, Option<String>)> {
        health.report(false).components.into_iter().map(|c| (c.name, c.status, c.reason)).collect()
    }

    #[test]
    fn ready_when_all_are_and_shutdown_was_not_requested() {
        let health = Health::new();
        assert!(!health.report(false).ready, "nobody has registered yet");
        let dedup = health.component("filter.dedup");
        let log = health.component("filter.log");
        assert!(!health.report(false).ready);
        dedup.ready();
        assert!(!health.report(false).ready);
        log.ready();
        assert!(health.report(false).ready);
        let draining = health.report(true);
        assert_eq!((draining.ready, draining.live), (false, true));

        dedup.unready("redis is away");
        assert_eq!(
            statuses(&health),
            [
                ("filter.dedup".into(), Status::Unready, Some("redis is away".into())),
                ("filter.log".into(), Status::Ready, None),
            ]
        );
        assert!(health.report(false).live, "waiting is no reason for a restart");
        dedup.ready();
        assert!(health.report(false).ready);
    }

    #[test]
    fn a_failed_component_stays_failed() {
        let health = Health::new();
        let component = health.component("counter");
        component.ready();
        component.failed("corrupt sketch");
        component.ready();
        component.unready("later");
        let report = health.report(false);
        assert_eq!((report.ready, report.live), (false, false));
        assert_eq!(statuses(&health), [("counter".into(), Status::Failed, Some("corrupt sketch".into()))]);
    }

    #[test]
    fn one_name_is_one_component() {
        let health = Health::new();
        health.component("log").ready();
        health.component("log").unready("no broker");
        assert_eq!(statuses(&health), [("log".into(), Status::Unready, Some("no broker".into()))]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_heartbeat_ends_liveness_until_the_next_one() {
        let health = Health::new();
        let component = health.component_with_deadline("counter.progress", Duration::from_secs(30));
        component.ready();
        tokio::time::advance(Duration::from_secs(30)).await;
        assert!(health.report(false).live);
        component.beat();
        tokio::time::advance(Duration::from_secs(31)).await;
        let report = health.report(false);
        assert_eq!((report.ready, report.live), (false, false));
        assert_eq!(
            statuses(&health),
            [("counter.progress".into(), Status::Stalled, Some("no progress for 31 s".into()))]
        );
        component.beat();
        let report = health.report(false);
        assert_eq!((report.ready, report.live), (true, true));
    }
}
