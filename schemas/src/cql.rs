//! The archive's keyspace and tables, as CQL.

/// Creates the keyspace. Placeholders: `{keyspace}` and `{replication}`.
pub const KEYSPACE: &str = include_str!("../cql/keyspace.cql");

/// Each table's name and what creates it. Placeholder: `{keyspace}`.
pub const TABLES: [(&str, &str); 3] = [
    ("counts", include_str!("../cql/counts.cql")),
    ("durable", include_str!("../cql/durable.cql")),
    ("logs", include_str!("../cql/logs.cql")),
];

/// A file's one statement without comments and semicolon, its placeholders filled. Neither value is escaped: the caller
/// has checked that the keyspace is a plain name.
pub fn statement(text: &str, keyspace: &str, replication: &str) -> String {
    let bare: Vec<&str> = text
        .lines()
        .map(|line| line.split_once("--").map_or(line, |(code, _)| code).trim_end())
        .filter(|line| !line.is_empty())
        .collect();
    let bare = bare.join("\n").replace("{keyspace}", keyspace).replace("{replication}", replication);
    bare.trim_end_matches(';').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_become_single_statements() {
        let keyspace = statement(KEYSPACE, "onlooker", "{'class': 'X'}");
        assert_eq!(keyspace, "CREATE KEYSPACE IF NOT EXISTS onlooker\nWITH replication = {'class': 'X'}");
        for (name, text) in TABLES {
            let made = statement(text, "onlooker", "");
            assert!(made.starts_with(&format!("CREATE TABLE IF NOT EXISTS onlooker.{name} (")), "{made}");
            assert!(!made.contains("--") && !made.contains(';'), "{made}");
        }
    }

    #[test]
    fn no_counter_columns_and_no_windows() {
        for (name, text) in TABLES {
            let made = statement(text, "onlooker", "").to_lowercase();
            // A retried increment counts twice; absolute values with timestamps of their own do not.
            assert!(!made.contains("counter"), "{name} has a counter column");
            assert!(!made.contains("timewindow"), "{name} is compacted by windows of time");
        }
    }
}
