//! Plain tables: columns as wide as their widest cell, two spaces between.

/// A table under construction; the first row is the heading.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    pub(crate) fn new(heading: &[&str]) -> Self {
        Self { rows: vec![heading.iter().map(ToString::to_string).collect()] }
    }

    /// Adds a row; missing cells stay empty.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The text, without a line end after the last row.
    pub(crate) fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(|column| self.width(column)).collect();
        let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
        let mut lines: Vec<String> = self.rows.iter().map(|row| render_row(row, &widths)).collect();
        lines.insert(1, render_row(&rule, &widths));
        lines.join("\n")
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    }
}

fn render_row(row: &[String], widths: &[usize]) -> String {
    let mut line = String::new();
    for (cell, width) in row.iter().zip(widths) {
        line.push_str(cell);
        line.push_str(&" ".repeat(width - cell.chars().count() + 2));
    }
    line.trim_end().to_string()
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn columns_are_aligned_and_lines_have_no_tail() {
        let mut table = Table::new(&["step", "result"]);
        table.row(["fmt".to_string(), "ok".to_string()]);
        table.row(["bench-smoke".to_string(), "skipped: größer".to_string()]);
        let expected = "\
step         result
-----------  ---------------
fmt          ok
bench-smoke  skipped: größer";
        assert_eq!(table.render(), expected);
    }

    #[test]
    fn a_short_row_leaves_the_rest_empty() {
        let mut table = Table::new(&["a", "b"]);
        table.row(["only".to_string()]);
        assert_eq!(table.render(), "a     b\n----  -\nonly");
    }
}
