//! The open database, which is opened anew after an I/O error.

use onlooker_ports::PortError;
use redb::{Database, Durability, WriteTransaction};
use std::sync::{PoisonError, RwLock};

use super::error::port_error;
use super::rows::{Tables, flatten};

/// Opens the database. Called again after an error, when nobody uses the one before.
pub(super) type Open = Box<dyn Fn() -> Result<Database, PortError> + Send + Sync>;

/// After an I/O error redb answers nothing but that there was one, because what it has in memory may differ from what
/// lies on the disk. So the database is closed then and opened again, which recovers the last commit.
pub(super) struct Reopening {
    open: Open,
    /// None: closed after an error.
    database: RwLock<Option<Database>>,
}

impl Reopening {
    pub(super) fn new(open: Open) -> Result<Self, PortError> {
        let this = Self { open, database: RwLock::new(None) };
        this.with(|_| Ok(Ok(())))?;
        Ok(this)
    }

    /// Does something with the open database.
    pub(super) fn with<T>(
        &self,
        act: impl FnOnce(&Database) -> Result<Result<T, PortError>, redb::Error>,
    ) -> Result<T, PortError> {
        loop {
            let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
            let Some(open) = database.as_ref() else {
                drop(database);
                self.open()?;
                continue;
            };
            let result = act(open);
            drop(database);
            if let Err(redb::Error::Io(_) | redb::Error::PreviousIo | redb::Error::LockPoisoned(_)) = &result
            {
                *self.database.write().unwrap_or_else(PoisonError::into_inner) = None;
            }
            return flatten(result);
        }
    }

    /// Does something in one durable write transaction.
    pub(super) fn write<T>(
        &self,
        act: impl FnOnce(&WriteTransaction) -> Result<Result<T, PortError>, redb::Error>,
    ) -> Result<T, PortError> {
        self.with(|database| {
            let mut transaction = database.begin_write()?;
            // Never less: what is acknowledged has to survive a power loss.
            transaction.set_durability(Durability::Immediate)?;
            let result = act(&transaction)?;
            if result.is_ok() {
                transaction.commit()?;
            }
            Ok(result)
        })
    }

    fn open(&self) -> Result<(), PortError> {
        let mut database = self.database.write().unwrap_or_else(PoisonError::into_inner);
        if database.is_some() {
            return Ok(());
        }
        let opened = (self.open)()?;
        let prepared = opened.begin_write().map_err(redb::Error::from).and_then(|transaction| {
            let prepared = Tables::prepare(&transaction)?;
            if prepared.is_ok() {
                transaction.commit()?;
            }
            Ok(prepared)
        });
        prepared.map_err(port_error)??;
        *database = Some(opened);
        Ok(())
    }
}
