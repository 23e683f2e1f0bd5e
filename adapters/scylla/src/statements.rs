//! Every statement on the archive's tables.
//!
//! **Each write says USING TIMESTAMP.** One write with a default timestamp (microseconds since 1970) would beat every
//! offset for ever, so that nothing could be archived for its row any more. The one exception is `logs`, whose rows are
//! written once, by a conditional insert, which takes no timestamp.
//!
//! Columns are always named: a column that is added while statements are prepared must not move the others.

use crate::error::from_prepare;
use onlooker_ports::PortError;
use scylla::client::session::Session;
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::{Consistency, SerialConsistency};

/// Rows of several items in the same scopes.
const READ_MANY: &str = "SELECT item, scope, blob, WRITETIME(blob), views, WRITETIME(views) \
    FROM {keyspace}.counts WHERE item IN ? AND scope IN ? AND log = ?";

/// Rows of one item: the driver knows its replicas, and asks one of them.
const READ_ONE: &str = "SELECT item, scope, blob, WRITETIME(blob), views, WRITETIME(views) \
    FROM {keyspace}.counts WHERE item = ? AND scope IN ? AND log = ?";

/// Every row of every log, a page at a time: a log has no index of its own. For exports.
const SCAN: &str =
    "SELECT item, scope, log, blob, WRITETIME(blob), views, WRITETIME(views) FROM {keyspace}.counts";

/// A row is at most about 12 KB.
const SCAN_PAGE: i32 = 200;

/// A sketch; the views of the row stay as they are, with their own timestamp.
const WRITE_SKETCH: &str = "INSERT INTO {keyspace}.counts (item, scope, log, blob) VALUES (?, ?, ?, ?) \
    USING TIMESTAMP ?";

/// A number; the sketch of the row stays as it is.
const WRITE_NUMBER: &str = "INSERT INTO {keyspace}.counts (item, scope, log, views) VALUES (?, ?, ?, ?) \
    USING TIMESTAMP ?";

const READ_DURABLE: &str = "SELECT off FROM {keyspace}.durable WHERE log = ? AND partition = ?";

/// Timestamp: the offset + 1, so that it never goes back, whoever is late.
const WRITE_DURABLE: &str = "INSERT INTO {keyspace}.durable (log, partition, off) VALUES (?, ?, ?) \
    USING TIMESTAMP ?";

const READ_LOG: &str = "SELECT topic_id, partitions FROM {keyspace}.logs WHERE log = ?";

const CLAIM_LOG: &str =
    "INSERT INTO {keyspace}.logs (log, topic_id, partitions) VALUES (?, ?, ?) IF NOT EXISTS";

/// The statements, prepared once per session.
pub(crate) struct Prepared {
    pub(crate) read_many: PreparedStatement,
    pub(crate) read_one: PreparedStatement,
    pub(crate) write_sketch: PreparedStatement,
    pub(crate) write_number: PreparedStatement,
    pub(crate) read_durable: PreparedStatement,
    pub(crate) write_durable: PreparedStatement,
    pub(crate) read_log: PreparedStatement,
    pub(crate) claim_log: PreparedStatement,
    pub(crate) scan: PreparedStatement,
}

impl Prepared {
    pub(crate) async fn new(session: &Session, keyspace: &str) -> Result<Self, PortError> {
        let prepare = async |text: &str| {
            let text = text.replace("{keyspace}", keyspace);
            let mut statement = session.prepare(text).await.map_err(|e| from_prepare(&e))?;
            // All of them may be repeated; the driver asks the next node only where it was told so.
            statement.set_is_idempotent(true);
            Ok(statement)
        };
        let (read_many, read_one, write_sketch, write_number) = futures::try_join!(
            prepare(READ_MANY),
            prepare(READ_ONE),
            prepare(WRITE_SKETCH),
            prepare(WRITE_NUMBER)
        )?;
        let (read_durable, write_durable, mut read_log, mut claim_log, mut scan) = futures::try_join!(
            prepare(READ_DURABLE),
            prepare(WRITE_DURABLE),
            prepare(READ_LOG),
            prepare(CLAIM_LOG),
            prepare(SCAN)
        )?;
        scan.set_page_size(SCAN_PAGE);
        // A serial read sees a conditional insert that timed out and was applied after all.
        read_log.set_consistency(Consistency::LocalSerial);
        claim_log.set_serial_consistency(Some(SerialConsistency::LocalSerial));
        Ok(Self {
            read_many,
            read_one,
            write_sketch,
            write_number,
            read_durable,
            write_durable,
            read_log,
            claim_log,
            scan,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const ALL: [&str; 9] = [
        READ_MANY,
        READ_ONE,
        SCAN,
        WRITE_SKETCH,
        WRITE_NUMBER,
        READ_DURABLE,
        WRITE_DURABLE,
        READ_LOG,
        CLAIM_LOG,
    ];

    #[test]
    fn every_write_carries_its_timestamp() {
        for text in ALL {
            assert!(!text.contains('*'), "columns are named: {text}");
            if text.starts_with("SELECT ") {
                continue;
            }
            let once_by_condition = text.contains(".logs ") && text.ends_with(" IF NOT EXISTS");
            assert!(text.contains(" USING TIMESTAMP ?") || once_by_condition, "{text}");
            assert!(!text.contains("USING TTL") && !text.contains("DELETE"), "{text}");
        }
    }

    #[test]
    fn no_statement_stands_anywhere_else() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let verbs = ["INSERT ", "UPDATE ", "DELETE ", "TRUNCATE ", "BEGIN "];
        let mut files = 0;
        for entry in std::fs::read_dir(source).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let this = path.file_name().is_some_and(|name| name == "statements.rs");
            files += 1;
            for (number, line) in text.lines().enumerate() {
                let found = verbs.iter().find(|verb| line.contains(&format!("\"{verb}")));
                if let Some(verb) = found
                    && !this
                {
                    panic!("{}:{}: {verb} outside the list that is checked", path.display(), number + 1);
                }
            }
        }
        assert!(files > 5, "the source was not found");
        // And this file's own list is complete.
        let own = include_str!("statements.rs");
        assert_eq!(own.matches(": &str = \"").count() + own.matches(": &str =\n    \"").count(), ALL.len());
    }
}
