//! Results as Markdown.

use std::fmt;

/// A table; its first column is text, the others are figures.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table with these columns.
    pub(crate) fn new<const N: usize>(head: [&str; N]) -> Self {
        Self { head: head.map(str::to_owned).to_vec(), rows: Vec::new() }
    }

    /// Adds a row; what is missing stays empty.
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.to_vec());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |f: &mut fmt::Formatter<'_>, cells: &[String]| {
            (0..self.head.len()).try_for_each(|i| write!(f, "| {} ", cells.get(i).map_or("", |c| c)))?;
            writeln!(f, "|")
        };
        line(f, &self.head)?;
        writeln!(f, "|---{}|", "|---:".repeat(self.head.len().saturating_sub(1)))?;
        self.rows.iter().try_for_each(|row| line(f, row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_markdown() {
        let mut table = Table::new(["what", "µs"]);
        table.row(["ours".into(), "1.2".into()]);
        table.row(["theirs".into()]);
        assert_eq!(table.to_string(), "| what | µs |\n|---|---:|\n| ours | 1.2 |\n| theirs |  |\n");
    }
}
