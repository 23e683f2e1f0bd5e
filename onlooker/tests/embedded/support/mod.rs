//! A folder under test, the processes that work on it, and what is to be true of it.

mod books;
mod client;
mod disk;
mod home;
pub(crate) mod load;
#[path = "../../e2e/support/truth.rs"]
mod truth;

pub(crate) use books::Books;
pub(crate) use client::{Client, view};
pub(crate) use disk::Disk;
pub(crate) use home::{Home, Running, text};
pub(crate) use truth::{Truth, log_file};

use std::time::Duration;

/// How long anything may take on a busy machine before a test gives up.
pub(crate) const LONG: Duration = Duration::from_secs(90);

/// The token of the site `main`, where a test names one.
pub(crate) const TOKEN: &str = "server-token-for-tests";
