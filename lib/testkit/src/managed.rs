//! A server that can be killed, paused and started again in the same place.

use std::fmt;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::process::{Process, Program};

type Ready = Box<dyn Fn() -> bool + Send + Sync>;

/// A server's process over its restarts. Killed when the value is dropped, and with this process.
pub struct Managed {
    program: Program,
    start_timeout: Duration,
    ready: Ready,
    process: Mutex<Option<Process>>,
}

impl Managed {
    /// What is not yet running; `ready` says whether the server answers, `start_timeout` how long that may take.
    pub fn new(
        program: Program,
        start_timeout: Duration,
        ready: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        Self { program, start_timeout, ready: Box::new(ready), process: Mutex::new(None) }
    }

    /// Starts it without waiting until it is ready, for servers that wait for each other.
    ///
    /// # Errors
    /// The executable cannot be run.
    pub fn launch(&self) -> Result<()> {
        let mut slot = self.slot();
        // The old process has to be gone before its port and its files are used again.
        drop(slot.take());
        *slot = Some(self.program.start()?);
        Ok(())
    }

    /// Waits until it is ready.
    ///
    /// # Errors
    /// It ended, or its time-out has passed; the message has the end of its log.
    pub fn wait_ready(&self) -> Result<()> {
        self.running(&mut self.slot())?.wait_ready(self.start_timeout, &self.ready)
    }

    /// Kills it if it runs, starts it again on the same ports and waits until it is ready.
    ///
    /// # Errors
    /// It ended at its start, or did not get ready in time; the message has the end of its log.
    pub fn restart(&self) -> Result<()> {
        self.launch()?;
        self.wait_ready()
    }

    /// The process id.
    ///
    /// # Errors
    /// It does not run.
    pub fn pid(&self) -> Result<u32> {
        Ok(self.running(&mut self.slot())?.pid())
    }

    /// Whether it runs; a paused one does.
    pub fn is_alive(&self) -> bool {
        self.slot().as_mut().is_some_and(Process::is_alive)
    }

    /// SIGKILL, then waits until it is gone. Does nothing to one that does not run.
    ///
    /// # Errors
    /// The operating system refuses.
    pub fn kill(&self) -> Result<()> {
        match self.slot().take() {
            Some(mut process) => process.kill(),
            None => Ok(()),
        }
    }

    /// SIGTERM, then waits until it has ended by itself.
    ///
    /// # Errors
    /// It does not run, or not end within `timeout` (it then still runs).
    pub fn stop(&self, timeout: Duration) -> Result<()> {
        let mut slot = self.slot();
        self.running(&mut slot)?.stop(timeout)?;
        *slot = None;
        Ok(())
    }

    /// SIGSTOP: connections stay open and nothing is answered.
    ///
    /// # Errors
    /// It does not run.
    pub fn pause(&self) -> Result<()> {
        self.running(&mut self.slot())?.signal(libc::SIGSTOP)
    }

    /// SIGCONT: what was sent meanwhile is carried out now.
    ///
    /// # Errors
    /// It does not run.
    pub fn resume(&self) -> Result<()> {
        self.running(&mut self.slot())?.signal(libc::SIGCONT)
    }

    /// Everything that it has printed so far, over all its starts.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.program.log).unwrap_or_default()).into_owned()
    }

    fn running<'a>(&self, slot: &'a mut Option<Process>) -> Result<&'a mut Process> {
        slot.as_mut().with_context(|| format!("{} does not run", self.program.name))
    }

    fn slot(&self) -> MutexGuard<'_, Option<Process>> {
        // A test that panicked while it held the lock leaves a process that is still good to kill.
        self.process.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl fmt::Debug for Managed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Managed").field("program", &self.program).finish_non_exhaustive()
    }
}
