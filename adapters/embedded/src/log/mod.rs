//! The partitioned log: segments, group commit, groups and their offsets.
