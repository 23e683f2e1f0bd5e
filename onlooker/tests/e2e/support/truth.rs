//! The real logs and what is known of them.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// A real log of `tests/data`.
pub(crate) fn log_file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(format!("{name}_access.log.gz"))
}

/// Per path: exact viewers and exact counted views.
pub(crate) struct Truth {
    pub(crate) paths: BTreeMap<String, (u64, u64)>,
}

impl Truth {
    pub(crate) fn of(name: &str) -> Self {
        let path =
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(format!("{name}_truth.csv"));
        let text = std::fs::read_to_string(path).unwrap();
        let mut paths = BTreeMap::new();
        for line in text.lines().skip(1) {
            // path, raw, uniq, nx, slide, day, and five more: a path may hold commas, the figures do not.
            let fields: Vec<&str> = line.rsplitn(11, ',').collect();
            assert_eq!(fields.len(), 11, "{line}");
            let path = fields[10].strip_prefix('"').and_then(|p| p.strip_suffix('"')).unwrap_or(fields[10]);
            paths
                .insert(path.replace("\"\"", "\""), (fields[8].parse().unwrap(), fields[7].parse().unwrap()));
        }
        Self { paths }
    }

    pub(crate) fn total_views(&self) -> u64 {
        self.paths.values().map(|(_, nx)| nx).sum()
    }
}
