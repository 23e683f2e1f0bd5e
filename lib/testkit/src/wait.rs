//! Waiting for a condition: the one way in which a test lets time pass.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

const INTERVAL: Duration = Duration::from_millis(20);

/// Polls `condition` every 20 ms until it gives something, which is returned.
///
/// # Errors
/// `timeout` has passed; the message says `what` was waited for. `condition` is tried at least once.
pub fn wait_for<T>(what: &str, timeout: Duration, mut condition: impl FnMut() -> Option<T>) -> Result<T> {
    let start = Instant::now();
    loop {
        if let Some(value) = condition() {
            return Ok(value);
        }
        if start.elapsed() >= timeout {
            bail!("waited {} ms in vain for {what}", start.elapsed().as_millis());
        }
        std::thread::sleep(INTERVAL);
    }
}

/// [`wait_for`], for a condition that is true or false.
///
/// # Errors
/// `timeout` has passed; the message says `what` was waited for.
pub fn wait_until(what: &str, timeout: Duration, mut condition: impl FnMut() -> bool) -> Result<()> {
    wait_for(what, timeout, || condition().then_some(()))
}

/// [`wait_until`] for async tests: `condition` is called again after each `false`.
///
/// # Errors
/// `timeout` has passed (a `condition` that hangs is cut off then); the message says `what` was waited for.
pub async fn wait_until_async<F>(
    what: &str,
    timeout: Duration,
    mut condition: impl FnMut() -> F,
) -> Result<()>
where
    F: Future<Output = bool>,
{
    let poll = async {
        while !condition().await {
            tokio::time::sleep(INTERVAL).await;
        }
    };
    match tokio::time::timeout(timeout, poll).await {
        Ok(()) => Ok(()),
        Err(_) => bail!("waited {} ms in vain for {what}", timeout.as_millis()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_what_the_condition_gave() {
        let mut left = 3;
        let got = wait_for("three tries", Duration::from_secs(5), || {
            left -= 1;
            (left == 0).then_some("done")
        });
        assert_eq!(got.unwrap(), "done");
    }

    #[test]
    fn says_what_did_not_come() {
        let error = wait_until("the end of days", Duration::ZERO, || false).unwrap_err();
        assert!(error.to_string().ends_with("in vain for the end of days"), "{error}");
    }

    #[tokio::test]
    async fn async_condition_that_hangs_is_cut_off() {
        let hang = wait_until_async("a reply", Duration::from_millis(1), std::future::pending).await;
        assert!(hang.unwrap_err().to_string().ends_with("for a reply"));
        let mut left = 2;
        let ok = wait_until_async("two tries", Duration::from_secs(5), || {
            left -= 1;
            std::future::ready(left == 0)
        });
        ok.await.unwrap();
    }
}
