//! Who reads what together, how far each group is, and which generation may commit.

use super::format::{FORGOTTEN, Kept, LOG_START};
use onlooker_ports::{Committed, GroupState, GroupView, Topic};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A member of a group in one of its generations. A transaction that carries it is refused once the group has moved on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbeddedMembership {
    pub(crate) group: String,
    pub(crate) topic: Topic,
    pub(crate) member: u64,
    pub(crate) generation: u64,
}

/// What a member is told.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum News {
    Assigned(Vec<i32>, EmbeddedMembership),
    Revoked(Vec<i32>),
}

#[derive(Debug, Clone)]
struct Held {
    offset: i64,
    note: String,
    /// What would be there after a loss of power: retention goes by this.
    durable: Option<i64>,
}

#[derive(Debug, Default)]
struct Member {
    /// What it is to have, and what it was told that it has.
    target: BTreeSet<u32>,
    told: BTreeSet<u32>,
    told_generation: u64,
}

#[derive(Debug, Default)]
struct Group {
    generation: u64,
    members: BTreeMap<u64, Member>,
    offsets: BTreeMap<u32, Held>,
}

#[derive(Debug, Default)]
struct Inner {
    /// By topic and name.
    groups: BTreeMap<(u8, String), Group>,
    members: u64,
    /// Written and not yet known to be durable.
    undurable: BTreeSet<(u8, String, u32)>,
}

/// All groups of a log.
#[derive(Debug)]
pub(crate) struct Groups {
    partitions: u32,
    inner: Mutex<Inner>,
}

fn key(topic: Topic, group: &str) -> (u8, String) {
    (super::config::topic_code(topic), group.to_owned())
}

impl Groups {
    pub(crate) fn new(partitions: u32) -> Self {
        Self { partitions, inner: Mutex::default() }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new member; its number.
    pub(crate) fn join(&self, topic: Topic, name: &str) -> u64 {
        let mut inner = self.inner();
        inner.members += 1;
        let member = inner.members;
        let group = inner.groups.entry(key(topic, name)).or_default();
        group.members.insert(member, Member::default());
        group.share_out(self.partitions);
        member
    }

    pub(crate) fn leave(&self, topic: Topic, name: &str, member: u64) {
        if let Some(group) = self.inner().groups.get_mut(&key(topic, name))
            && group.members.remove(&member).is_some()
        {
            group.share_out(self.partitions);
        }
    }

    /// What a member has to be told next. What it loses comes first; what it gains waits until nobody else believes to
    /// have it, and until those who only move on to the new generation know it.
    pub(crate) fn news(&self, topic: Topic, name: &str, number: u64) -> Option<News> {
        let mut inner = self.inner();
        let group = inner.groups.get_mut(&key(topic, name))?;
        let generation = group.generation;
        let member = group.members.get(&number)?;
        let lost: Vec<u32> = member.told.difference(&member.target).copied().collect();
        let gained: Vec<u32> = member.target.difference(&member.told).copied().collect();
        let renewed = member.told_generation < generation;
        let blocked = !gained.is_empty()
            && group.members.iter().any(|(other, it)| *other != number && it.has_to_hear(generation));
        let member = group.members.get_mut(&number)?;
        let numbers = |list: &[u32]| list.iter().map(|p| p.cast_signed()).collect();
        if !lost.is_empty() {
            member.told.retain(|partition| member.target.contains(partition));
            return Some(News::Revoked(numbers(&lost)));
        }
        if !renewed || blocked {
            return None;
        }
        member.told.extend(&gained);
        member.told_generation = generation;
        let membership = EmbeddedMembership { group: name.to_owned(), topic, member: number, generation };
        Some(News::Assigned(numbers(&gained), membership))
    }

    /// True if the group is still as it was when this membership was told.
    pub(crate) fn is_current(&self, membership: &EmbeddedMembership) -> bool {
        let inner = self.inner();
        inner.groups.get(&key(membership.topic, &membership.group)).is_some_and(|group| {
            group.generation == membership.generation && group.members.contains_key(&membership.member)
        })
    }

    pub(crate) fn committed(&self, topic: Topic, name: &str, partition: u32) -> Option<Committed> {
        let inner = self.inner();
        let held = inner.groups.get(&key(topic, name))?.offsets.get(&partition)?;
        Some(Committed { offset: held.offset, note: held.note.clone() })
    }

    /// Takes in what stands in the journal now. `durable`: a loss of power would not take it back.
    pub(crate) fn apply(&self, kept: Vec<Kept>, durable: bool) {
        let mut inner = self.inner();
        for Kept { group, topic, partition, offset, note } in kept {
            let name = key(topic, &group);
            let offsets = &mut inner.groups.entry(name.clone()).or_default().offsets;
            if offset == FORGOTTEN {
                offsets.remove(&partition);
                continue;
            }
            let held = offsets.entry(partition);
            let held = held.or_insert(Held { offset: 0, note: String::new(), durable: None });
            (held.offset, held.note) = (offset, note);
            if durable {
                held.durable = Some(offset);
            } else {
                inner.undurable.insert((name.0, name.1, partition));
            }
        }
    }

    /// All that was applied so far is durable.
    pub(crate) fn settle(&self) {
        let mut inner = self.inner();
        if inner.undurable.is_empty() {
            return;
        }
        for (topic, name, partition) in std::mem::take(&mut inner.undurable) {
            if let Some(group) = inner.groups.get_mut(&(topic, name))
                && let Some(held) = group.offsets.get_mut(&partition)
            {
                held.durable = Some(held.offset);
            }
        }
    }

    /// All positions, for a segment's header.
    pub(crate) fn snapshot(&self) -> Vec<Kept> {
        let inner = self.inner();
        let mut all = Vec::new();
        for ((code, name), group) in &inner.groups {
            let Some(topic) = super::config::topic_of(*code) else { continue };
            all.extend(group.offsets.iter().map(|(partition, held)| Kept {
                group: name.clone(),
                topic,
                partition: *partition,
                offset: held.offset,
                note: held.note.clone(),
            }));
        }
        all
    }

    /// A group that has not read, durably, up to this offset of the partition; none if all have. A member that has
    /// committed nothing yet still wants everything.
    pub(crate) fn behind(&self, topic: Topic, partition: u32, offset: i64) -> Option<String> {
        let inner = self.inner();
        let code = super::config::topic_code(topic);
        let mut of_topic =
            inner.groups.iter().filter(|((other, name), _)| *other == code && name != LOG_START);
        let found = of_topic.find(|(_, group)| match group.offsets.get(&partition) {
            Some(held) => held.durable.is_none_or(|durable| durable < offset),
            None => !group.members.is_empty() && offset > 0,
        });
        found.map(|((_, name), _)| name.clone())
    }

    /// A group as seen from outside.
    pub(crate) fn view(&self, topic: Topic, name: &str) -> GroupView {
        let inner = self.inner();
        let mut view = GroupView {
            name: name.to_owned(),
            state: GroupState::Unknown,
            members: 0,
            partitions: vec![(None, None); self.partitions as usize],
        };
        let Some(group) = inner.groups.get(&key(topic, name)) else { return view };
        let settled = group
            .members
            .values()
            .all(|member| member.told == member.target && member.told_generation == group.generation);
        view.members = group.members.len();
        view.state = match (group.members.is_empty(), settled) {
            (true, _) => GroupState::Empty,
            (false, true) => GroupState::Stable,
            (false, false) => GroupState::Rebalancing,
        };
        for (partition, (committed, owner)) in (0..).zip(&mut view.partitions) {
            let held = group.offsets.get(&partition);
            *committed = held.map(|held| Committed { offset: held.offset, note: held.note.clone() });
            let owning = group.members.iter().find(|(_, member)| member.told.contains(&partition));
            *owner = owning.map(|(number, _)| format!("member {number}"));
        }
        view
    }

    /// The groups that have committed anything, with their topics.
    pub(crate) fn names(&self) -> Vec<(Topic, String)> {
        let inner = self.inner();
        let known =
            inner.groups.iter().filter(|((_, name), group)| name != LOG_START && !group.offsets.is_empty());
        known.filter_map(|((code, name), _)| Some((super::config::topic_of(*code)?, name.clone()))).collect()
    }
}

impl Member {
    /// True while it has to be told of a loss, or of nothing but the new generation.
    fn has_to_hear(&self, generation: u64) -> bool {
        !self.told.is_subset(&self.target) || (self.told == self.target && self.told_generation < generation)
    }
}

impl Group {
    /// A new generation. Members keep what they have as far as the shares allow.
    fn share_out(&mut self, partitions: u32) {
        self.generation += 1;
        let count = self.members.len();
        if count == 0 {
            return;
        }
        let (share, mut larger) = (partitions as usize / count, partitions as usize % count);
        let mut free: BTreeSet<u32> = (0..partitions).collect();
        // Those who have most keep one more.
        let mut order: Vec<u64> = self.members.keys().copied().collect();
        order.sort_by_key(|number| std::cmp::Reverse(self.members[number].target.len()));
        for number in &order {
            let mut size = share;
            if larger > 0 {
                size += 1;
                larger -= 1;
            }
            if let Some(member) = self.members.get_mut(number) {
                let kept: Vec<u32> =
                    member.target.iter().copied().filter(|p| free.contains(p)).take(size).collect();
                member.target = kept.into_iter().collect();
                free.retain(|partition| !member.target.contains(partition));
            }
        }
        let mut larger = partitions as usize % count;
        for number in &order {
            let mut size = share;
            if larger > 0 {
                size += 1;
                larger -= 1;
            }
            if let Some(member) = self.members.get_mut(number) {
                while member.target.len() < size
                    && let Some(partition) = free.pop_first()
                {
                    member.target.insert(partition);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn news(groups: &Groups, member: u64) -> Option<News> {
        groups.news(Topic::Views, "g", member)
    }

    fn assigned(news: Option<News>) -> (Vec<i32>, EmbeddedMembership) {
        match news {
            Some(News::Assigned(partitions, membership)) => (partitions, membership),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_partition_is_given_only_once_it_was_taken() {
        let groups = Groups::new(4);
        let first = groups.join(Topic::Views, "g");
        let (all, old) = assigned(news(&groups, first));
        assert_eq!(all, [0, 1, 2, 3]);
        assert_eq!(news(&groups, first), None);
        let second = groups.join(Topic::Views, "g");
        assert!(!groups.is_current(&old));
        assert_eq!(news(&groups, second), None);
        assert_eq!(news(&groups, first), Some(News::Revoked(vec![2, 3])));
        assert_eq!(news(&groups, second), None);
        let (gained, renewed) = assigned(news(&groups, first));
        assert_eq!(gained, Vec::<i32>::new());
        let (gained, _) = assigned(news(&groups, second));
        assert_eq!(gained, [2, 3]);
        assert!(groups.is_current(&renewed));
        groups.leave(Topic::Views, "g", first);
        assert!(!groups.is_current(&renewed));
        assert_eq!(assigned(news(&groups, second)).0, [0, 1]);
    }

    #[test]
    fn retention_waits_for_what_is_durable() {
        let groups = Groups::new(1);
        let at = |offset| Kept {
            group: "g".into(),
            topic: Topic::Views,
            partition: 0,
            offset,
            note: String::new(),
        };
        assert_eq!(groups.behind(Topic::Views, 0, 5), None);
        let member = groups.join(Topic::Views, "g");
        assert_eq!(groups.behind(Topic::Views, 0, 5), Some("g".into()));
        groups.apply(vec![at(5)], false);
        assert_eq!(groups.behind(Topic::Views, 0, 5), Some("g".into()));
        groups.settle();
        assert_eq!(groups.behind(Topic::Views, 0, 5), None);
        groups.leave(Topic::Views, "g", member);
        assert_eq!(groups.behind(Topic::Views, 0, 6), Some("g".into()));
    }
}
