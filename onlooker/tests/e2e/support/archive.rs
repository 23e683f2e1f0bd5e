//! What Cassandra holds, read by a client of the test's own.

use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use std::collections::BTreeMap;

pub(crate) struct ArchiveEyes {
    session: Session,
    keyspace: String,
}

/// One row of `counts`, each cell with its timestamp.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) blob: Option<(Vec<u8>, i64)>,
    pub(crate) views: Option<(i64, i64)>,
}

type Columns = (Vec<u8>, Vec<u8>, Option<Vec<u8>>, Option<i64>, Option<i64>, Option<i64>);

impl ArchiveEyes {
    pub(crate) async fn new(address: &str, keyspace: &str) -> Self {
        let session = SessionBuilder::new().known_node(address).build().await.unwrap();
        Self { session, keyspace: keyspace.into() }
    }

    /// All rows, by `scope:site:item`.
    pub(crate) async fn rows(&self) -> BTreeMap<String, Row> {
        let query = format!(
            "SELECT item, scope, blob, writetime(blob), views, writetime(views) FROM {}.counts",
            self.keyspace
        );
        let mut rows = BTreeMap::new();
        let mut pager = self.session.query_iter(query, ()).await.unwrap().rows_stream::<Columns>().unwrap();
        while let Some(row) = futures::StreamExt::next(&mut pager).await {
            let (item, scope, blob, t, views, u) = row.unwrap();
            let key = format!("{}:{}", String::from_utf8(scope).unwrap(), String::from_utf8(item).unwrap());
            rows.insert(key, Row { blob: blob.zip(t), views: views.zip(u) });
        }
        rows
    }

    /// Puts bytes in the place of an item's sketch of all time, with this timestamp.
    #[allow(dead_code, reason = "wanted where faults are injected")]
    pub(crate) async fn put_blob(&self, item: &str, blob: &[u8], timestamp: i64) {
        let statement = format!(
            "INSERT INTO {}.counts (item, scope, log, blob) VALUES (?, ?, ?, ?) USING TIMESTAMP ?",
            self.keyspace
        );
        let values = (format!("blog:{item}").into_bytes(), b"*".to_vec(), &self.keyspace, blob, timestamp);
        self.session.query_unpaged(statement, values).await.unwrap();
    }

    /// Puts a partition's durable offset back, so that whoever asks goes on from there.
    #[allow(dead_code, reason = "wanted where faults are injected")]
    pub(crate) async fn lower_durable(&self, partition: i32, offset: i64) {
        let query = format!("SELECT partition, off, writetime(off) FROM {}.durable", self.keyspace);
        let result = self.session.query_unpaged(query, ()).await.unwrap().into_rows_result().unwrap();
        let mut rows = result.rows::<(i32, i64, i64)>().unwrap().map(Result::unwrap);
        let Some((_, off, written)) = rows.find(|(of, ..)| *of == partition) else { return };
        let statement = format!(
            "INSERT INTO {}.durable (log, partition, off) VALUES (?, ?, ?) USING TIMESTAMP ?",
            self.keyspace
        );
        let values = (&self.keyspace, partition, offset.min(off), written + 1);
        self.session.query_unpaged(statement, values).await.unwrap();
    }

    /// Durable offsets by partition.
    pub(crate) async fn durable(&self) -> BTreeMap<i32, i64> {
        let query = format!("SELECT partition, off FROM {}.durable", self.keyspace);
        let result = self.session.query_unpaged(query, ()).await.unwrap().into_rows_result().unwrap();
        result.rows::<(i32, i64)>().unwrap().map(Result::unwrap).collect()
    }
}
