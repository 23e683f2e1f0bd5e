//! Naming a group's generation.

/// A member of a group in one of its generations. A transaction that carries it is refused once the group has moved on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KafkaMembership {
    pub(crate) group: String,
    pub(crate) generation: i32,
    pub(crate) member: String,
}
