//! What the tests of the archive share.

use onlooker_scylla::{ScyllaArchive, ScyllaConfig, apply};
use onlooker_testkit::cassandra::DATA_CENTRE;
use std::collections::BTreeMap;

/// For these nodes.
pub(crate) fn config(nodes: Vec<String>, copies: u16) -> ScyllaConfig {
    ScyllaConfig {
        nodes,
        replication: BTreeMap::from([(DATA_CENTRE.to_owned(), copies)]),
        local_dc: Some(DATA_CENTRE.to_owned()),
        // Creating tables takes a busy machine longer than writing a row.
        request_timeout_ms: 10_000,
        ..ScyllaConfig::default()
    }
}

/// An archive on tables that are made if they do not exist.
pub(crate) async fn archive(config: &ScyllaConfig) -> ScyllaArchive {
    let report = apply(config).await.unwrap();
    assert_eq!(report.drift, [], "what was just created is what is expected");
    ScyllaArchive::new(config, "test").unwrap()
}
