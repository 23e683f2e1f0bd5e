//! The thread that writes: one transaction after the other, each with all that waits.

use super::error::gone;
use super::{Shared, cell_bytes};
use onlooker_ports::{ArchiveCell, PortError};
use std::io;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// Bytes of one transaction, about at most.
const TRANSACTION_BYTES: usize = 16 << 20;

pub(super) type Reply = oneshot::Sender<Result<(), PortError>>;

/// Something to write.
pub(super) enum Job {
    Write { cells: Vec<ArchiveCell>, reply: Reply },
    SetDurable { partition: i32, offset: i64, reply: Reply },
}

impl Job {
    fn bytes(&self) -> usize {
        match self {
            Job::Write { cells, .. } => cells.iter().map(cell_bytes).sum(),
            Job::SetDurable { .. } => 0,
        }
    }

    fn reply(self, result: Result<(), PortError>) {
        let (Job::Write { reply, .. } | Job::SetDurable { reply, .. }) = self;
        // Whoever asked may have gone.
        let _ = reply.send(result);
    }
}

#[derive(Debug)]
pub(super) struct Worker {
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    pub(super) fn start(shared: Arc<Shared>) -> io::Result<Self> {
        let (jobs, waiting) = mpsc::channel();
        let thread =
            std::thread::Builder::new().name("archive".into()).spawn(move || work(&shared, &waiting))?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Hands a job over and waits until it is on the disk.
    pub(super) async fn ask(&self, job: impl FnOnce(Reply) -> Job) -> Result<(), PortError> {
        let (reply, answer) = oneshot::channel();
        let sent = self.jobs.as_ref().is_some_and(|jobs| jobs.send(job(reply)).is_ok());
        if !sent {
            return Err(gone());
        }
        answer.await.unwrap_or_else(|_| Err(gone()))
    }
}

impl Drop for Worker {
    /// What was handed over is written, so that the file can be opened again right after.
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the archive's thread panicked");
        }
    }
}

fn work(shared: &Shared, waiting: &mpsc::Receiver<Job>) {
    while let Ok(first) = waiting.recv() {
        let mut bytes = first.bytes();
        let mut jobs = vec![first];
        while bytes < TRANSACTION_BYTES
            && let Ok(job) = waiting.try_recv()
        {
            bytes += job.bytes();
            jobs.push(job);
        }
        let result = write(shared, &jobs);
        jobs.into_iter().for_each(|job| job.reply(result.clone()));
    }
}

fn write(shared: &Shared, jobs: &[Job]) -> Result<(), PortError> {
    shared.database.write(|transaction| {
        let cells = jobs.iter().flat_map(|job| match job {
            Job::Write { cells, .. } => cells.as_slice(),
            Job::SetDurable { .. } => &[],
        });
        shared.tables.write(transaction, cells)?;
        for job in jobs {
            if let Job::SetDurable { partition, offset, .. } = job {
                shared.tables.set_durable(transaction, *partition, *offset)?;
            }
        }
        Ok(Ok(()))
    })
}
