//! A server's process: started with a log file, signalled, and never left behind.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

use crate::wait::wait_for;

/// What to run: a program with its arguments, working folder and log file.
#[derive(Debug, Clone)]
pub struct Program {
    /// What error messages call it.
    pub name: String,
    /// Path or name of the executable.
    pub executable: OsString,
    /// Arguments after the executable.
    pub args: Vec<OsString>,
    /// The working folder; it must exist.
    pub folder: PathBuf,
    /// Receives stdout and stderr, appended.
    pub log: PathBuf,
}

impl Program {
    fn command(&self) -> Result<Command> {
        let log = OpenOptions::new().create(true).append(true).open(&self.log);
        let log: File = log.with_context(|| format!("cannot open {}", self.log.display()))?;
        let mut command = Command::new(&self.executable);
        command.args(&self.args).current_dir(&self.folder).stdin(Stdio::null());
        command.stdout(log.try_clone()?).stderr(log);
        Ok(command)
    }

    /// Starts it so that it dies with this process, however this process ends.
    ///
    /// # Errors
    /// The log file cannot be opened or the executable cannot be run.
    pub fn start(&self) -> Result<Process> {
        let mut command = self.command()?;
        // A Ctrl-C at the terminal is meant for the caller, who then ends its servers in its own order.
        command.process_group(0);
        let parent = std::process::id();
        // SAFETY: the hook runs between fork and exec and only makes async-signal-safe system calls.
        unsafe {
            command.pre_exec(move || {
                if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                    return Err(io::Error::last_os_error());
                }
                // The parent may have died before the line above: then the signal never comes.
                if libc::getppid().cast_unsigned() != parent {
                    return Err(io::Error::other("parent is gone"));
                }
                Ok(())
            });
        }
        let child =
            spawn_on_lasting_thread(command).with_context(|| format!("cannot start {}", self.name))?;
        Ok(Process { name: self.name.clone(), log: self.log.clone(), child })
    }

    /// Starts it so that it outlives this process, and returns its process id.
    ///
    /// # Errors
    /// As for [`Program::start`].
    pub fn start_daemon(&self) -> Result<u32> {
        let mut command = self.command()?;
        // SAFETY: the hook makes one async-signal-safe system call.
        unsafe {
            command.pre_exec(|| match libc::setsid() {
                -1 => Err(io::Error::last_os_error()),
                _ => Ok(()),
            });
        }
        Ok(command.spawn().with_context(|| format!("cannot start {}", self.name))?.id())
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// It cannot be run or fails; the message has the end of its log.
    pub fn run(&self) -> Result<()> {
        let status = self.command()?.status().with_context(|| format!("cannot run {}", self.name))?;
        if !status.success() {
            bail!("{} ended with {status}:\n{}", self.name, tail(&self.log));
        }
        Ok(())
    }
}

type Job = (Command, Sender<io::Result<Child>>);

/// PR_SET_PDEATHSIG fires when the *thread* that forked ends, and test threads end after every test:
/// so one thread that lasts as long as the process forks for all.
fn spawn_on_lasting_thread(command: Command) -> Result<Child> {
    static SPAWNER: LazyLock<Mutex<Sender<Job>>> = LazyLock::new(|| {
        let (jobs, inbox) = channel::<Job>();
        std::thread::spawn(move || {
            for (mut command, reply) in inbox {
                // A caller that stopped waiting cannot exist: it blocks on the reply below.
                let _ = reply.send(command.spawn());
            }
        });
        Mutex::new(jobs)
    });
    let (reply, answer) = channel();
    SPAWNER
        .lock()
        .map_err(|_| anyhow!("spawner is poisoned"))?
        .send((command, reply))
        .map_err(|_| anyhow!("spawner thread is gone"))?;
    Ok(answer.recv()??)
}

/// A running server that dies with this value, and with this process.
#[derive(Debug)]
pub struct Process {
    name: String,
    log: PathBuf,
    child: Child,
}

impl Process {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it runs (a paused one does).
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits until `ready` says true, and fails at once when the process ends before.
    ///
    /// # Errors
    /// It ended, or `timeout` has passed; the message has the end of its log.
    pub fn wait_ready(&mut self, timeout: Duration, mut ready: impl FnMut() -> bool) -> Result<()> {
        let what = format!("{} to be ready", self.name);
        let outcome = wait_for(&what, timeout, || match self.child.try_wait() {
            Ok(None) if ready() => Some(Ok(())),
            Ok(None) => None,
            Ok(Some(status)) => Some(Err(anyhow!("{} ended at its start with {status}", self.name))),
            Err(error) => Some(Err(error.into())),
        });
        outcome
            .and_then(|r| r)
            .with_context(|| format!("end of {}:\n{}", self.log.display(), tail(&self.log)))
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// The process has ended.
    pub fn signal(&mut self, signal: i32) -> Result<()> {
        // Not yet reaped, so the id cannot have been given to another process.
        if !self.is_alive() {
            bail!("{} does not run", self.name);
        }
        send(self.pid(), signal).with_context(|| format!("cannot signal {}", self.name))
    }

    /// SIGKILL, then waits until it is gone. Does nothing when it has ended already.
    ///
    /// # Errors
    /// The operating system refuses.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// SIGTERM, then waits for its exit status.
    ///
    /// # Errors
    /// It had ended before, or does not end within `timeout` (it then still runs).
    pub fn stop(&mut self, timeout: Duration) -> Result<ExitStatus> {
        self.signal(libc::SIGTERM)?;
        wait_for(&format!("{} to stop", self.name), timeout, || self.child.try_wait().transpose())?
            .map_err(Into::into)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Nothing to do about a failure here, and the parent-death signal stands behind it.
        let _ = self.kill();
    }
}

/// Asks a process to end (SIGTERM). The caller knows that the id is still that of the process it means.
///
/// # Errors
/// No such process, or not allowed.
pub fn terminate(pid: u32) -> io::Result<()> {
    send(pid, libc::SIGTERM)
}

/// Ends a process at once (SIGKILL). The caller knows that the id is still that of the process it means.
///
/// # Errors
/// No such process, or not allowed.
pub fn kill(pid: u32) -> io::Result<()> {
    send(pid, libc::SIGKILL)
}

fn send(pid: u32, signal: i32) -> io::Result<()> {
    // SAFETY: kill has no memory effects.
    match unsafe { libc::kill(pid.cast_signed(), signal) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The last 30 lines of a log, for error messages.
pub fn tail(log: &Path) -> String {
    let bytes = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}
