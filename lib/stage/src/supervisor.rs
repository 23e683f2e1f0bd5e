//! Runs a process's rooms side by side and stops them in a written order.

use std::any::Any;
use std::error::Error;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;

use crate::shutdown::{Shutdown, ShutdownTrigger, channel};

type BoxError = Box<dyn Error + Send + Sync>;

/// Rooms that run until shutdown is requested, and then stop in the order in which they were added:
/// each is asked to stop when all before it have returned.
///
/// A room that returns, fails or panics without being asked requests the shutdown of the whole
/// process; the others drain as usual, and [`run`](Supervisor::run) says who it was.
pub struct Supervisor {
    trigger: ShutdownTrigger,
    drain_deadline: Duration,
    rooms: Vec<Room>,
}

struct Room {
    name: String,
    stop: ShutdownTrigger,
    task: BoxFuture<'static, Result<(), BoxError>>,
}

/// The room because of which the process does not end well.
#[derive(Debug, thiserror::Error)]
#[error("room {room} stopped")]
pub struct RoomExit {
    /// Its name.
    pub room: String,
    /// What it did.
    #[source]
    pub cause: ExitCause,
}

/// How a room ended the process.
#[derive(Debug, thiserror::Error)]
pub enum ExitCause {
    /// It returned though nobody had asked it to.
    #[error("it returned without being asked to")]
    Returned,
    /// It returned an error.
    #[error(transparent)]
    Failed(BoxError),
    /// It panicked, with this message.
    #[error("it panicked: {0}")]
    Panicked(String),
    /// It was still draining when the time for the drain, of all rooms together, was over.
    #[error("it had not drained after {} ms", .0.as_millis())]
    DrainDeadline(Duration),
}

impl Supervisor {
    /// `trigger` is the process's own: the supervisor listens to it and pulls it when a room dies.
    /// `drain_deadline` counts from the request to the return of the last room.
    pub fn new(trigger: ShutdownTrigger, drain_deadline: Duration) -> Self {
        Self { trigger, drain_deadline, rooms: Vec::new() }
    }

    /// Adds a room. It is handed a [`Shutdown`] of its own, requested when its turn has come, and
    /// starts with [`run`](Self::run).
    pub fn room<F, E>(&mut self, name: impl Into<String>, start: impl FnOnce(Shutdown) -> F) -> &mut Self
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<BoxError> + 'static,
    {
        let (stop, shutdown) = channel();
        let task = start(shutdown).map(|result| result.map_err(Into::into)).boxed();
        self.rooms.push(Room { name: name.into(), stop, task });
        self
    }

    /// Runs all rooms until the last has returned. Dropping the future aborts them.
    ///
    /// # Errors
    /// [`RoomExit`] of the first room that went wrong; later ones are logged.
    pub async fn run(self) -> Result<(), RoomExit> {
        let shutdown = self.trigger.shutdown();
        let mut running = Running::spawn(self.rooms);
        let mut deadline: Option<Instant> = None;
        let mut exit: Option<RoomExit> = None;
        while !running.tasks.is_empty() {
            let cut = async {
                match deadline {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some((room, result)) = running.next_end() => {
                    match cause(result, deadline.is_some()) {
                        None => tracing::info!(room, "room stopped"),
                        Some(cause) => {
                            tracing::error!(room, error = &cause as &dyn Error, "room ended, stopping the process");
                            exit.get_or_insert(RoomExit { room, cause });
                            self.trigger.request();
                        }
                    }
                    if deadline.is_some() {
                        running.stop_next();
                    }
                }
                () = shutdown.requested(), if deadline.is_none() => {
                    deadline = Some(Instant::now() + self.drain_deadline);
                    running.stop_next();
                }
                () = cut => {
                    for room in running.waiting() {
                        tracing::error!(room, "room had not drained in time");
                    }
                    let late = running.waiting().next().unwrap_or_default().to_owned();
                    let cause = ExitCause::DrainDeadline(self.drain_deadline);
                    return Err(exit.unwrap_or(RoomExit { room: late, cause }));
                }
            }
        }
        exit.map_or(Ok(()), Err)
    }
}

/// The tasks, with the order in which to stop them.
struct Running {
    tasks: JoinSet<Result<(), BoxError>>,
    /// Those that still run, in the order in which they stop.
    order: Vec<(Id, String, ShutdownTrigger)>,
}

impl Running {
    fn spawn(rooms: Vec<Room>) -> Self {
        let mut tasks = JoinSet::new();
        let order = rooms.into_iter().map(|Room { name, stop, task }| (tasks.spawn(task).id(), name, stop));
        let order = order.collect();
        Self { tasks, order }
    }

    async fn next_end(&mut self) -> Option<(String, Result<Result<(), BoxError>, JoinError>)> {
        let (id, result) = match self.tasks.join_next_with_id().await? {
            Ok((id, result)) => (id, Ok(result)),
            Err(error) => (error.id(), Err(error)),
        };
        let position = self.order.iter().position(|(other, ..)| *other == id)?;
        Some((self.order.remove(position).1, result))
    }

    /// Asks the first that still runs to stop, once.
    fn stop_next(&self) {
        if let Some((_, room, stop)) = self.order.first().filter(|(.., stop)| !stop.shutdown().is_requested())
        {
            tracing::info!(room, "stopping room");
            stop.request();
        }
    }

    fn waiting(&self) -> impl Iterator<Item = &str> {
        self.order.iter().map(|(_, name, _)| name.as_str())
    }
}

/// None where the room ended as it should.
fn cause(result: Result<Result<(), BoxError>, JoinError>, draining: bool) -> Option<ExitCause> {
    match result {
        Ok(Ok(())) if draining => None,
        Ok(Ok(())) => Some(ExitCause::Returned),
        Ok(Err(error)) => Some(ExitCause::Failed(error)),
        Err(error) => Some(ExitCause::Panicked(match error.try_into_panic() {
            Ok(payload) => panic_message(payload.as_ref()),
            Err(error) => error.to_string(),
        })),
    }
}

/// What a panic said, where it said it in text.
pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message").to_owned()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};

    use super::*;

    type Journal = Arc<Mutex<Vec<String>>>;

    /// A room that takes `drain` to stop and writes down when it did what.
    async fn room(name: &str, drain: Duration, stop: Shutdown, journal: Journal) -> Result<(), Infallible> {
        stop.requested().await;
        journal.lock().unwrap().push(format!("{name} asked"));
        tokio::time::sleep(drain).await;
        journal.lock().unwrap().push(format!("{name} done"));
        Ok(())
    }

    const SECOND: Duration = Duration::from_secs(1);

    fn supervisor(journal: &Journal) -> (ShutdownTrigger, Supervisor) {
        let (trigger, _) = channel();
        let mut supervisor = Supervisor::new(trigger.clone(), 10 * SECOND);
        for name in ["collector", "filter", "admin"] {
            let journal = Arc::clone(journal);
            supervisor.room(name, |stop| room(name, SECOND, stop, journal));
        }
        (trigger, supervisor)
    }

    const IN_ORDER: [&str; 6] =
        ["collector asked", "collector done", "filter asked", "filter done", "admin asked", "admin done"];

    #[tokio::test(start_paused = true)]
    async fn stops_the_rooms_in_order() {
        let journal = Journal::default();
        let (trigger, supervisor) = supervisor(&journal);
        let run = tokio::spawn(supervisor.run());
        tokio::time::sleep(60 * SECOND).await;
        assert!(!run.is_finished());
        let start = Instant::now();
        trigger.request();
        run.await.unwrap().unwrap();
        assert_eq!(*journal.lock().unwrap(), IN_ORDER);
        assert_eq!(start.elapsed(), 3 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn a_room_that_ends_takes_the_others_with_it_and_is_named() {
        for (how, text) in [
            ("returns", "it returned without being asked to"),
            ("fails", "no such topic"),
            ("panics", "it panicked: index 7"),
        ] {
            let journal = Journal::default();
            let (trigger, mut supervisor) = supervisor(&journal);
            supervisor.room("counter", |_| async move {
                tokio::time::sleep(SECOND).await;
                match how {
                    "returns" => Ok(()),
                    "fails" => Err("no such topic"),
                    _ => panic!("index {}", 7),
                }
            });
            let exit = supervisor.run().await.unwrap_err();
            assert_eq!((exit.room.as_str(), exit.cause.to_string().as_str()), ("counter", text));
            assert!(trigger.shutdown().is_requested(), "readiness has to fail as well");
            assert_eq!(*journal.lock().unwrap(), IN_ORDER);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_while_draining_is_not_lost() {
        let (trigger, _) = channel();
        let mut supervisor = Supervisor::new(trigger.clone(), 10 * SECOND);
        supervisor.room("flusher", |stop| async move {
            stop.requested().await;
            Err("the archive is away")
        });
        trigger.request();
        let exit = supervisor.run().await.unwrap_err();
        assert_eq!((exit.room.as_str(), exit.cause.to_string().as_str()), ("flusher", "the archive is away"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_deadline_cuts_the_drain_and_names_who_held_it_up() {
        let journal = Journal::default();
        let (trigger, _) = channel();
        let mut supervisor = Supervisor::new(trigger.clone(), 10 * SECOND);
        for (name, drain) in [("collector", SECOND), ("filter", 3600 * SECOND), ("admin", SECOND)] {
            let journal = Arc::clone(&journal);
            supervisor.room(name, |stop| room(name, drain, stop, journal));
        }
        let start = Instant::now();
        trigger.request();
        let exit = supervisor.run().await.unwrap_err();
        assert_eq!((exit.room.as_str(), start.elapsed()), ("filter", 10 * SECOND));
        assert!(matches!(exit.cause, ExitCause::DrainDeadline(after) if after == 10 * SECOND), "{exit:?}");
        assert_eq!(*journal.lock().unwrap(), ["collector asked", "collector done", "filter asked"]);
    }
}
