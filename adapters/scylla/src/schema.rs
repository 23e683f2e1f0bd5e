//! Creates the archive's keyspace and tables, and checks what is there.

use crate::config::ScyllaConfig;
use crate::error::{failed, from_execution, misconfigured};
use crate::session::{data_centres, open};
use crate::tls::client_config;
use onlooker_ports::PortError;
use onlooker_schemas::cql;
use scylla::client::session::Session;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::{Duration, Instant};

/// What was done and what was found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SchemaReport {
    /// Keyspace and tables that did not exist before.
    pub created: Vec<String>,
    /// Where what exists differs from what is expected. Nothing that exists is ever altered.
    pub drift: Vec<Drift>,
}

impl SchemaReport {
    /// True if something differs that the counting rests on.
    pub fn is_broken(&self) -> bool {
        self.drift.iter().any(|drift| drift.breaks)
    }
}

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift {
    /// What differs: `counts.views type`, for example.
    pub subject: String,
    /// What this version wants.
    pub expected: String,
    /// What the cluster has.
    pub found: String,
    /// True: the archive cannot be trusted so. False: an operator may have chosen it.
    pub breaks: bool,
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: expected {}, found {}", self.subject, self.expected, self.found)
    }
}

/// Table, column, kind and place in the key, type.
const COLUMNS: [(&str, &str, &str, i32, &str); 11] = [
    ("counts", "item", "partition_key", 0, "blob"),
    ("counts", "scope", "clustering", 0, "blob"),
    ("counts", "log", "clustering", 1, "text"),
    ("counts", "blob", "regular", -1, "blob"),
    ("counts", "views", "regular", -1, "bigint"),
    ("durable", "log", "partition_key", 0, "text"),
    ("durable", "partition", "clustering", 0, "int"),
    ("durable", "off", "regular", -1, "bigint"),
    ("logs", "log", "partition_key", 0, "text"),
    ("logs", "topic_id", "regular", -1, "text"),
    ("logs", "partitions", "regular", -1, "int"),
];

/// Creates what is missing, then checks everything. May be repeated.
///
/// # Errors
/// `Denied` if the user may not create tables, `Misconfigured` if the keyspace is missing and no replication is
/// configured, `Unavailable` while no node answers.
pub async fn apply(config: &ScyllaConfig) -> Result<SchemaReport, PortError> {
    let session = connect(config).await?;
    let mut created = Vec::new();
    if replication(&session, &config.keyspace).await?.is_none() {
        let replication = replication_literal(config, &session)?;
        let made =
            session.query_unpaged(cql::statement(cql::KEYSPACE, &config.keyspace, &replication), ()).await;
        made.map_err(|error| match from_execution(&error) {
            PortError::Misconfigured { .. } => misconfigured(format!("archive.replication: {error}")),
            other => other,
        })?;
        created.push(format!("keyspace {}", config.keyspace));
    }
    let tables = tables(&session, &config.keyspace).await?;
    for (name, text) in cql::TABLES {
        if !tables.contains_key(name) {
            define(&session, &cql::statement(text, &config.keyspace, "")).await?;
            created.push(format!("table {name}"));
        }
    }
    if !created.is_empty() && !agreed(&session, config.request_timeout()).await? {
        tracing::warn!("nodes do not agree on the schema yet, some may refuse requests for a while");
    }
    Ok(SchemaReport { created, drift: drift(config, &session).await? })
}

/// Checks what is there and creates nothing.
///
/// # Errors
/// As for [`apply`]. A missing keyspace or table is drift and no error.
pub async fn check(config: &ScyllaConfig) -> Result<SchemaReport, PortError> {
    let session = connect(config).await?;
    Ok(SchemaReport { created: Vec::new(), drift: drift(config, &session).await? })
}

async fn connect(config: &ScyllaConfig) -> Result<Session, PortError> {
    if let Some(fault) = config.faults().into_iter().next() {
        return Err(misconfigured(fault));
    }
    let tls = config.tls.as_ref().map(client_config).transpose().map_err(misconfigured)?;
    open(config, tls).await
}

/// Waits until all nodes have the schema. The driver waits as well, but only for nodes that it is connected to already.
/// False: one is down, or slow.
async fn agreed(session: &Session, limit: Duration) -> Result<bool, PortError> {
    let start = Instant::now();
    while start.elapsed() < limit {
        let local = "SELECT CAST(schema_version AS text) FROM system.local WHERE key = 'local'";
        let mut all = versions(session, local).await?;
        all.extend(versions(session, "SELECT CAST(schema_version AS text) FROM system.peers").await?);
        if all.windows(2).all(|pair| pair[0] == pair[1]) {
            return Ok(true);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(false)
}

async fn versions(session: &Session, text: &str) -> Result<Vec<Option<String>>, PortError> {
    let answer = session.query_unpaged(text, ()).await.map_err(|e| from_execution(&e))?;
    let rows = answer.into_rows_result().map_err(failed)?;
    let versions = rows.rows::<(Option<String>,)>().map_err(failed)?;
    versions.map(|row| row.map(|(version,)| version).map_err(failed)).collect()
}

fn replication_literal(config: &ScyllaConfig, session: &Session) -> Result<String, PortError> {
    if config.replication.is_empty() {
        let known = data_centres(session).join(", ");
        return Err(misconfigured(format!(
            "replication: say how many copies each data centre keeps; the cluster has {known}"
        )));
    }
    let per_dc: Vec<String> = config.replication.iter().map(|(dc, n)| format!("'{dc}': {n}")).collect();
    Ok(format!("{{'class': 'NetworkTopologyStrategy', {}}}", per_dc.join(", ")))
}

async fn define(session: &Session, text: &str) -> Result<(), PortError> {
    // The driver waits until all nodes agree on the schema, so that the next statement finds the table everywhere.
    session.query_unpaged(text, ()).await.map(drop).map_err(|e| from_execution(&e))
}

async fn replication(
    session: &Session,
    keyspace: &str,
) -> Result<Option<BTreeMap<String, String>>, PortError> {
    let text = "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?";
    let answer = session.query_unpaged(text, (keyspace,)).await.map_err(|e| from_execution(&e))?;
    let row = crate::rows::first::<(BTreeMap<String, String>,)>(answer)?;
    Ok(row.map(|(map,)| map))
}

/// Each table's compaction class and default time to live, in seconds.
async fn tables(session: &Session, keyspace: &str) -> Result<HashMap<String, (String, i32)>, PortError> {
    let text = "SELECT table_name, compaction, default_time_to_live FROM system_schema.tables \
        WHERE keyspace_name = ?";
    let answer = session.query_unpaged(text, (keyspace,)).await.map_err(|e| from_execution(&e))?;
    let rows = answer.into_rows_result().map_err(failed)?;
    let mut tables = HashMap::new();
    for row in rows.rows::<(String, BTreeMap<String, String>, Option<i32>)>().map_err(failed)? {
        let (name, mut compaction, ttl) = row.map_err(failed)?;
        tables.insert(name, (compaction.remove("class").unwrap_or_default(), ttl.unwrap_or(0)));
    }
    Ok(tables)
}

type Columns = HashMap<(String, String), (String, i32, String)>;

async fn columns(session: &Session, keyspace: &str) -> Result<Columns, PortError> {
    let text = "SELECT table_name, column_name, kind, position, type FROM system_schema.columns \
        WHERE keyspace_name = ?";
    let answer = session.query_unpaged(text, (keyspace,)).await.map_err(|e| from_execution(&e))?;
    let rows = answer.into_rows_result().map_err(failed)?;
    let mut columns = HashMap::new();
    for row in rows.rows::<(String, String, String, i32, String)>().map_err(failed)? {
        let (table, column, kind, position, kind_of_value) = row.map_err(failed)?;
        columns.insert((table, column), (kind, position, kind_of_value));
    }
    Ok(columns)
}

async fn drift(config: &ScyllaConfig, session: &Session) -> Result<Vec<Drift>, PortError> {
    let mut all = Vec::new();
    let Some(mut replication) = replication(session, &config.keyspace).await? else {
        all.push(drift_of(format!("keyspace {}", config.keyspace), "present", "absent", true));
        return Ok(all);
    };
    replication.remove("class");
    if let Some(sync) = commitlog_sync(session).await?
        && let Some(lax) = lax_commit_log(&replication, &sync)
    {
        all.push(lax);
    }
    let mut add = |subject: String, expected: String, found: String, breaks: bool| {
        all.push(drift_of(subject, expected, found, breaks));
    };
    let wanted: BTreeMap<String, String> =
        config.replication.iter().map(|(dc, n)| (dc.clone(), n.to_string())).collect();
    if !wanted.is_empty() && wanted != replication {
        add("replication".into(), format!("{wanted:?}"), format!("{replication:?}"), false);
    }
    let (tables, columns) =
        futures::try_join!(tables(session, &config.keyspace), columns(session, &config.keyspace))?;
    for (name, _) in cql::TABLES {
        let Some((compaction, ttl)) = tables.get(name) else {
            add(format!("table {name}"), "present".into(), "absent".into(), true);
            continue;
        };
        if *ttl != 0 {
            add(format!("{name} default_time_to_live"), "0".into(), ttl.to_string(), true);
        }
        // The windows would be cut by offsets, as if they were microseconds: all data in one window of 1970.
        if compaction.contains("TimeWindow") {
            add(format!("{name} compaction"), "no windows of time".into(), compaction.clone(), true);
        }
        column_drift(name, &columns, &mut add);
    }
    Ok(all)
}

fn drift_of(
    subject: impl Into<String>,
    expected: impl Into<String>,
    found: impl Into<String>,
    breaks: bool,
) -> Drift {
    Drift { subject: subject.into(), expected: expected.into(), found: found.into(), breaks }
}

/// When the node that was asked puts its commit log on disk; none where it does not tell (ScyllaDB).
async fn commitlog_sync(session: &Session) -> Result<Option<String>, PortError> {
    let text = "SELECT value FROM system_views.settings WHERE name = 'commitlog_sync'";
    match session.query_unpaged(text, ()).await.map_err(|e| from_execution(&e)) {
        Ok(answer) => Ok(crate::rows::first::<(Option<String>,)>(answer)?.and_then(|(value,)| value)),
        Err(PortError::Misconfigured { .. } | PortError::Denied { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Cassandra's default acknowledges before a write is safe: the replay after a crash stops at the log's last marker, and
/// those are 100 ms apart. With several copies the others have the write; with one it is gone, after it was counted as
/// archived.
fn lax_commit_log(replication: &BTreeMap<String, String>, sync: &str) -> Option<Drift> {
    let single = replication.iter().any(|(_, copies)| copies == "1");
    let lax = single && sync == "periodic";
    lax.then(|| drift_of("commitlog_sync with one copy", "batch or group", sync, true))
}

fn column_drift(table: &str, columns: &Columns, add: &mut impl FnMut(String, String, String, bool)) {
    let show = |kind: &str, position: i32, value: &str| format!("{value}, {kind} {position}");
    for (_, column, kind, position, value) in COLUMNS.iter().filter(|c| c.0 == table) {
        let expected = show(kind, *position, value);
        let found = match columns.get(&(table.to_owned(), (*column).to_owned())) {
            Some((k, p, v)) => show(k, *p, v),
            None => "absent".to_owned(),
        };
        if found != expected {
            add(format!("{table}.{column}"), expected, found, true);
        }
    }
    // A further column does no harm, since every statement names the columns that it means.
    for (_, column) in columns.keys().filter(|(t, _)| t == table) {
        if !COLUMNS.iter().any(|c| c.0 == table && c.1 == column) {
            add(format!("{table}.{column}"), "absent".into(), "present".into(), false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lax_commit_log_is_a_fault_where_there_is_one_copy() {
        let copies = |n: &str| BTreeMap::from([("dc1".to_owned(), n.to_owned())]);
        assert!(lax_commit_log(&copies("1"), "periodic").is_some_and(|drift| drift.breaks));
        assert_eq!(lax_commit_log(&copies("1"), "batch"), None);
        assert_eq!(lax_commit_log(&copies("3"), "periodic"), None);
    }
}
