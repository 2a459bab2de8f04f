//! Reads what criterion leaves behind: in each `…/new` folder one file with
//! the ids of a measurement and one with its estimates in nanoseconds.

use super::rows::Row;
use crate::error::Error;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Deserialize)]
struct Ids {
    group_id: String,
    #[serde(default)]
    function_id: Option<String>,
    #[serde(default)]
    value_str: Option<String>,
    #[serde(default)]
    throughput: Option<Value>,
}

#[derive(Deserialize)]
struct Estimates {
    median: Estimate,
}

#[derive(Deserialize)]
struct Estimate {
    point_estimate: f64,
}

/// The measurements of one case, in nanoseconds an element.
#[derive(Default)]
struct Case {
    ours: Option<f64>,
    limit: Option<f64>,
    peer: Option<f64>,
}

/// All cases below `home`, by name, each with `aim` unless its group has one
/// of its own in `aims`.
pub(crate) fn read(home: &Path, aim: f64, aims: &[(&str, f64)]) -> Result<Vec<Row>, Error> {
    let mut cases: BTreeMap<String, Case> = BTreeMap::new();
    for folder in measured(home)? {
        let ids: Ids = parse(&folder.join("benchmark.json"))?;
        let estimates: Estimates = parse(&folder.join("estimates.json"))?;
        let nanos = estimates.median.point_estimate / elements(&ids);
        let name = match &ids.value_str {
            Some(value) => format!("{}/{value}", ids.group_id),
            None => ids.group_id.clone(),
        };
        cases.entry(name).or_default().add(ids.function_id.as_deref(), nanos);
    }
    let aim_of = |name: &str| {
        let group = name.split('/').next().unwrap_or(name);
        aims.iter().find(|(named, _)| *named == group).map_or(aim, |(_, own)| *own)
    };
    let row = |(name, case): (String, Case)| {
        let aim = aim_of(&name);
        case.row(name, aim)
    };
    Ok(cases.into_iter().filter_map(row).collect())
}

impl Case {
    fn add(&mut self, id: Option<&str>, nanos: f64) {
        match id {
            Some("ours") => self.ours = Some(nanos),
            Some("limit") => self.limit = Some(nanos),
            Some(_) => self.peer = Some(self.peer.map_or(nanos, |best| best.min(nanos))),
            // A benchmark outside a group has no peers.
            None => self.ours = Some(nanos),
        }
    }

    /// A case without ours is a comparison among others: no row.
    fn row(self, name: String, aim: f64) -> Option<Row> {
        let (ours, peer, limit) = (self.ours?, self.peer, self.limit);
        let aim = peer.map(|_| aim);
        let row =
            Row { name, ours, peer, limit, ratio: None, aim, met: None, unit: "ns".into(), more_is_better: false };
        Some(row.completed())
    }
}

/// How many elements one iteration has; 1 if it does not say, or says bytes.
fn elements(ids: &Ids) -> f64 {
    let stated = ids.throughput.as_ref().and_then(|throughput| throughput.get("Elements"));
    stated.and_then(Value::as_f64).filter(|count| *count > 0.0).unwrap_or(1.0)
}

/// All folders named `new` that hold estimates.
fn measured(home: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut found = Vec::new();
    let mut folders = vec![home.to_path_buf()];
    while let Some(folder) = folders.pop() {
        if !folder.is_dir() {
            continue;
        }
        if folder.ends_with("new") && folder.join("estimates.json").exists() {
            found.push(folder);
            continue;
        }
        for entry in fs::read_dir(&folder).map_err(Error::file(&folder))? {
            folders.push(entry.map_err(Error::file(&folder))?.path());
        }
    }
    found.sort();
    Ok(found)
}

fn parse<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T, Error> {
    let text = fs::read_to_string(path).map_err(Error::file(path))?;
    serde_json::from_str(&text).map_err(|why| Error::check(format!("{}: {why}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::read;
    use std::fs;
    use std::path::Path;

    fn measure(home: &Path, group: &str, id: &str, value: &str, nanos: f64) {
        let folder = home.join(group).join(id).join(value).join("new");
        fs::create_dir_all(&folder).unwrap();
        let ids = format!(
            r#"{{"group_id":"{group}","function_id":"{id}","value_str":"{value}","throughput":{{"Elements":10}}}}"#
        );
        fs::write(folder.join("benchmark.json"), ids).unwrap();
        let estimates = format!(r#"{{"mean":{{"point_estimate":1.0}},"median":{{"point_estimate":{nanos}}}}}"#);
        fs::write(folder.join("estimates.json"), estimates).unwrap();
    }

    #[test]
    fn ours_is_set_against_the_best_peer() {
        let home = std::env::temp_dir().join(format!("steady-xtask-criterion-{}", std::process::id()));
        measure(&home, "overload", "ours", "40", 100.0);
        measure(&home, "overload", "mpsc", "40", 400.0);
        measure(&home, "overload", "array_queue", "40", 300.0);
        measure(&home, "others", "mpsc", "40", 400.0);
        let rows = read(&home, 2.0, &[("others", 9.0)]).unwrap();
        fs::remove_dir_all(&home).unwrap();
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].name, "overload/40");
        assert_eq!((rows[0].ours, rows[0].peer), (10.0, Some(30.0)));
        assert_eq!((rows[0].ratio, rows[0].met), (Some(3.0), Some(true)));
    }

    #[test]
    fn no_folder_is_no_row() {
        assert_eq!(read(Path::new("no-such-folder"), 2.0, &[]).unwrap(), []);
    }
}
