//! A row of a benchmark, and what follows from its numbers.

use crate::error::Error;
use crate::table::Table;
use serde::{Deserialize, Serialize};

/// One measured case. A benchmark gives `name`, `ours` and `unit`; the rest
/// is given or follows.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) ours: f64,
    /// The best of the others.
    #[serde(default)]
    pub(crate) peer: Option<f64>,
    /// What the machine or the rule allows at best.
    #[serde(default)]
    pub(crate) limit: Option<f64>,
    /// How many times better than the peer, or else than the limit.
    #[serde(default)]
    pub(crate) ratio: Option<f64>,
    /// The ratio to reach.
    #[serde(default)]
    pub(crate) aim: Option<f64>,
    /// Whether it is reached.
    #[serde(default)]
    pub(crate) met: Option<bool>,
    pub(crate) unit: String,
    /// Whether a larger number is the better one, as for a throughput.
    #[serde(default, skip_serializing)]
    pub(crate) more_is_better: bool,
}

impl Row {
    /// Fills in what follows from the numbers and was not given.
    pub(crate) fn completed(mut self) -> Self {
        let better = |other: f64| if self.more_is_better { self.ours / other } else { other / self.ours };
        self.ratio = self.ratio.or_else(|| self.peer.or(self.limit).map(better)).filter(|ratio| ratio.is_finite());
        let reached = self.ratio.zip(self.aim).map(|(ratio, aim)| ratio >= aim);
        self.met = self.met.or(reached);
        self
    }
}

/// Reads JSON lines; an empty line is no row.
pub(crate) fn from_lines(text: &str) -> Result<Vec<Row>, Error> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let row = |line: &str| {
        let row: Result<Row, _> = serde_json::from_str(line);
        row.map(Row::completed).map_err(|why| Error::check(format!("not a row of a benchmark ({why}): {line}")))
    };
    lines.map(row).collect()
}

/// The form for programs.
pub(crate) fn to_json(rows: &[Row]) -> String {
    // Strings and finite numbers: there is nothing in it that can fail.
    serde_json::to_string_pretty(rows).unwrap_or_default()
}

/// The form for people.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut table = Table::new(&["case", "ours", "best peer", "limit", "unit", "ratio", "aim", "met"]);
    for row in rows {
        let times = |value: Option<f64>| value.map(|value| format!("{value:.2}x")).unwrap_or_default();
        let met = row.met.map(|met| if met { "yes" } else { "NO" });
        table.row([
            row.name.clone(),
            number(Some(row.ours)),
            number(row.peer),
            number(row.limit),
            row.unit.clone(),
            times(row.ratio),
            times(row.aim),
            met.unwrap_or_default().to_string(),
        ]);
    }
    table.render()
}

/// Three digits that count.
fn number(value: Option<f64>) -> String {
    match value {
        None => String::new(),
        Some(value) if value.abs() >= 100.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 10.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{from_lines, table, to_json};

    #[test]
    fn what_follows_is_filled_in() {
        let rows = from_lines(
            r#"{"name":"push","ours":10,"peer":30,"aim":2,"unit":"ns"}

{"name":"calls","ours":900,"peer":300,"aim":4,"unit":"1/s","more_is_better":true}
{"name":"exit","ours":5,"limit":50,"unit":"ms"}
{"name":"given","ours":5,"peer":50,"ratio":7,"met":false,"unit":"ms"}
{"name":"alone","ours":5,"unit":"ms"}
"#,
        )
        .unwrap();
        let follows: Vec<_> = rows.iter().map(|row| (row.ratio, row.met)).collect();
        let expected = [
            (Some(3.0), Some(true)),
            (Some(3.0), Some(false)),
            (Some(10.0), None),
            (Some(7.0), Some(false)),
            (None, None),
        ];
        assert_eq!(follows, expected);
    }

    #[test]
    fn both_forms_have_every_column() {
        let rows = from_lines(r#"{"name":"push","ours":10,"peer":130,"aim":2,"unit":"ns"}"#).unwrap();
        let json: serde_json::Value = serde_json::from_str(&to_json(&rows)).unwrap();
        let keys: Vec<&str> = json[0].as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["aim", "limit", "met", "name", "ours", "peer", "ratio", "unit"]);
        assert!(table(&rows).ends_with("push  10.0  130               ns    13.00x  2.00x  yes"), "{}", table(&rows));
    }

    #[test]
    fn a_line_that_is_no_row_is_shown() {
        assert!(from_lines("{\"name\":1}").unwrap_err().to_string().contains("{\"name\":1}"));
        assert_eq!(from_lines("").unwrap(), []);
    }
}
