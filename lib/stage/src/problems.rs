//! One component whose parts may each have something the matter: a room with many partitions.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::Component;

/// A part's name: a partition and which of its sides it is.
pub type Part = (i32, &'static str);

/// What is the matter with the parts of a component: it is ready while there is nothing, and else says
/// the first. Clones speak for the same component.
#[derive(Clone, Debug)]
pub struct Problems {
    component: Component,
    found: Arc<Mutex<BTreeMap<Part, Cow<'static, str>>>>,
}

impl Problems {
    /// None yet. The component is told with the first change.
    pub fn new(component: Component) -> Self {
        Self { component, found: Arc::default() }
    }

    /// The part waits for something. Keep changing numbers out of the reason: each new one is a log line.
    pub fn set(&self, part: Part, reason: impl Into<Cow<'static, str>>) {
        self.change(|found| _ = found.insert(part, reason.into()));
    }

    /// The part does its work, or is no longer ours.
    pub fn clear(&self, part: Part) {
        self.change(|found| _ = found.remove(&part));
    }

    /// All sides of a partition that is no longer ours.
    pub fn clear_partition(&self, partition: i32) {
        self.change(|found| found.retain(|(other, _), _| *other != partition));
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<Part, Cow<'static, str>>)) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut found);
        // Under the lock, or an older state could be told last.
        match found.values().next() {
            None => self.component.ready(),
            Some(reason) => self.component.unready(reason.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Health;

    #[test]
    fn ready_while_nothing_is_the_matter() {
        let health = Health::new();
        let problems = Problems::new(health.component("counter"));
        assert!(!health.report(false).ready, "nobody has said anything yet");
        problems.clear((0, "store"));
        assert!(health.report(false).ready);
        problems.set((3, "store"), "the store is away");
        problems.set((1, "log"), "records are lost");
        let reason = || health.report(false).components[0].reason.clone();
        assert_eq!(reason().as_deref(), Some("records are lost"));
        problems.clear((1, "log"));
        assert_eq!(reason().as_deref(), Some("the store is away"));
        problems.clear_partition(3);
        assert!(health.report(false).ready);
    }
}
