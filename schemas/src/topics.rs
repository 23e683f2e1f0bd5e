//! The topics, as data.

use serde::Deserialize;

/// All topics, by role.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topics {
    /// Every accepted view.
    pub views: TopicSpec,
    /// Every counted view.
    pub counted: TopicSpec,
    /// Every ignored view.
    pub ignored: TopicSpec,
    /// Every record that could not be judged.
    pub dead: TopicSpec,
}

/// One topic.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopicSpec {
    /// Partitions at creation. More can be added to `views` later; to `counted` never, since a key must keep its
    /// partition.
    pub partitions: u32,
    /// Copies of each partition.
    pub replication: u16,
    /// How long records are kept. Hours.
    pub retention_hours: u64,
    /// How long records go into one file; retention removes whole files. Hours.
    pub segment_hours: u64,
}

/// The topics of `topics.toml`.
///
/// # Errors
/// The file that was compiled in is not well formed; a test keeps that from happening.
pub fn topics() -> Result<Topics, toml::de::Error> {
    toml::from_str(include_str!("../topics.toml"))
}

impl TopicSpec {
    /// Copies that must have a record before it is acknowledged: a majority, so that the loss of any one machine of
    /// three loses nothing and stops nothing.
    pub fn min_insync(&self) -> u16 {
        self.replication / 2 + 1
    }

    /// The topic's settings at the broker, names and values as Kafka writes them.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let ms = |hours: u64| (hours * 3_600_000).to_string();
        vec![
            ("cleanup.policy", "delete".to_owned()),
            ("message.timestamp.type", "LogAppendTime".to_owned()),
            ("min.insync.replicas", self.min_insync().to_string()),
            ("retention.bytes", "-1".to_owned()),
            ("retention.ms", ms(self.retention_hours)),
            ("segment.ms", ms(self.segment_hours)),
            ("unclean.leader.election.enable", "false".to_owned()),
        ]
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn file_is_well_formed() {
        let topics = topics().unwrap();
        assert_eq!(topics.views.partitions, topics.counted.partitions);
        // A counter that is down longer than the records are kept loses views.
        assert!(topics.counted.retention_hours >= topics.views.retention_hours);
    }

    #[test]
    fn one_of_three_copies_may_be_lost() {
        let mut spec = topics().unwrap().views;
        assert_eq!((spec.replication, spec.min_insync()), (3, 2));
        spec.replication = 1;
        assert_eq!(spec.min_insync(), 1);
        assert!(spec.settings().contains(&("retention.ms", "604800000".to_owned())));
    }
}
