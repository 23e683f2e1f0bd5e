//! Tables for people.

/// Lines up cells; numbers to the right. The first row is the heading.
pub(super) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let numeric = |column: usize| {
        let mut cells = rows.iter().skip(1).filter_map(|row| row.get(column)).filter(|cell| *cell != "-");
        cells.clone().next().is_some()
            && cells.all(|cell| cell.starts_with(|c: char| c.is_ascii_digit() || "+~≤-".contains(c)))
    };
    let right: Vec<bool> = (0..columns).map(numeric).collect();
    let mut out = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).zip(&right);
        let line: Vec<String> = cells
            .map(|((cell, w), right)| if *right { format!("{cell:>w$}") } else { format!("{cell:<w$}") })
            .collect();
        out.push_str(line.join("  ").trim_end());
        out.push('\n');
    }
    out
}

/// A row of what can be shown.
macro_rules! row {
    ($($cell:expr),* $(,)?) => { vec![$($cell.to_string()),*] };
}
pub(super) use row;

/// A value, or a dash.
pub(super) fn maybe(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_right_and_words_left() {
        let text = table(&[row!["item", "views"], row!["a", 5], row!["longer", 1_234], row!["c", "-"]]);
        assert_eq!(text, "item    views\na           5\nlonger   1234\nc           -\n");
    }
}
