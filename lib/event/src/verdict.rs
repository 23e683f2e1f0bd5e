//! What becomes of a view: exactly one outcome each.

/// The one outcome of a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It counts: one record in `views.counted`.
    Counted,
    /// It does not count, for this reason: one record in `views.ignored`.
    Ignored(Reason),
    /// It could not be judged: one record in `views.dead`.
    Dead(DeadReason),
}

macro_rules! closed_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $code:literal, $text:literal;)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            /// Every value, for metrics and documentation.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// The number on the wire. Numbers are never reused.
            pub fn code(self) -> u32 {
                match self { $($name::$variant => $code,)* }
            }

            /// Reads a number from the wire.
            pub fn from_code(code: u32) -> Option<Self> {
                match code { $($code => Some($name::$variant),)* _ => None }
            }

            /// The name in metrics, answers and logs.
            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }
        }
    };
}

closed_enum! {
    /// Why a view does not count.
    Reason {
        /// The same viewer's view of the item was counted less than a window away.
        RecentView = 1, "recent_view";
        /// The client's id was already counted: a retry.
        DuplicateId = 2, "duplicate_id";
        /// The browser fetched or prerendered the page ahead of anybody looking.
        Prefetch = 3, "prefetch";
        /// The item's owner looked at their own item.
        SelfView = 4, "self_view";
    }
}

closed_enum! {
    /// Why a record could not be judged.
    DeadReason {
        /// The record has no value or an empty one.
        Empty = 1, "empty";
        /// The value is no message of ours.
        Malformed = 2, "malformed";
        /// The value's version is newer than this program knows.
        NewerVersion = 3, "newer_version";
        /// A field breaks a limit that the collector enforces, so something else wrote it.
        InvalidField = 4, "invalid_field";
        /// The site is not in the configuration.
        UnknownSite = 5, "unknown_site";
    }
}
