//! Tables, as a document and a terminal both show them.

use super::answer::Answer;

/// Rows under a heading, with columns as wide as what stands in them. Numbers stand on the right.
pub(crate) fn table(heading: &[&str], rows: &[Vec<String>]) -> String {
    let number = |text: &String| text.chars().all(|c| c.is_ascii_digit() || c == ',' || c == '-');
    let mut columns = Vec::new();
    for (at, title) in heading.iter().enumerate() {
        let cells = rows.iter().filter_map(|row| row.get(at));
        let width =
            cells.clone().map(|text| text.chars().count()).max().unwrap_or(0).max(title.chars().count());
        columns.push((width, !rows.is_empty() && cells.clone().all(number)));
    }
    let line = |cells: &[String]| {
        let cells = cells.iter().zip(&columns).map(|(text, (width, right))| {
            let room = " ".repeat(width - text.chars().count());
            if *right { format!(" {room}{text} ") } else { format!(" {text}{room} ") }
        });
        format!("|{}|\n", cells.collect::<Vec<_>>().join("|"))
    };
    let titles: Vec<String> = heading.iter().map(|title| (*title).to_owned()).collect();
    let rule = columns.iter().map(|(width, right)| {
        if *right { format!("{}:", "-".repeat(width + 1)) } else { "-".repeat(width + 2) }
    });
    let rule = format!("|{}|\n", rule.collect::<Vec<_>>().join("|"));
    let rows: String = rows.iter().map(|row| line(row)).collect();
    format!("{}{rule}{rows}", line(&titles))
}

/// A number with commas.
pub(crate) fn number(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Histories and faults of protocols.
pub(crate) fn of_answers(answers: &[(&str, &Answer)]) -> String {
    let rows: Vec<Vec<String>> = answers
        .iter()
        .map(|(name, a)| {
            let faults = a.faults.iter().map(|(_, n)| n).sum();
            let mut row = vec![(*name).to_owned()];
            row.extend([a.histories, a.steps, faults, a.a_second(), a.violations].map(number));
            row
        })
        .collect();
    let heading = ["protocol", "histories", "steps", "faults", "histories a CPU second", "violations"];
    let mut text = table(&heading, &rows);
    for (name, answer) in answers {
        let rows: Vec<Vec<String>> =
            answer.faults.iter().map(|(kind, n)| vec![kind.clone(), number(*n)]).collect();
        text.push_str(&format!("\n{}", table(&[&format!("{name}: fault"), "times"], &rows)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_on_the_right() {
        let row = |name: &str, n| vec![name.to_owned(), number(n)];
        let table = table(&["name", "n"], &[row("a", 1_234_567), row("longer", 12)]);
        assert_eq!(
            table,
            "| name   |         n |\n|--------|----------:|\n| a      | 1,234,567 |\n| longer |        12 |\n"
        );
    }
}
