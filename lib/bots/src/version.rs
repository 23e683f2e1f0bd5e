//! Written by data/refresh.py.

/// The number of this state of the lists. It grows with every change to a pattern or a class, also to ours.
pub const LIST_VERSION: u32 = 1;

/// The packages that the vendored lists come from: name and release.
pub const SOURCES: [(&str, &str); 2] = [("crawler-user-agents", "1.67.0"), ("isbot", "0.1.3")];
