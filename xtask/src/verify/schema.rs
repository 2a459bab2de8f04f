//! Every message that our servers and our client send, against the official
//! JSON schema: the conformance suite, the rows of `compare` and the clients
//! and servers of other SDKs are run once more, with a recorder between both
//! sides. The schemas are not part of the repository: a variable names their
//! folder, else `shared/schema` beside the checkout is used.

use super::context::Context;
use super::{compare, conformance, interop};
use crate::error::Error;
use crate::process::Command;
use std::fs;
use std::path::{Path, PathBuf};

/// The variable that names the folder with the schemas.
const VARIABLE: &str = "STEADY_SCHEMAS";
/// The schemas in it: of the protocol, and of its extension for tasks.
const SCHEMAS: [&str; 2] = ["mcp-2026-07-28.json", "tasks-draft.json"];
/// Reads the records.
const VALIDATOR: &str = "xtask/schema/validate.py";
/// The folder beside the checkout, as others may have it.
const BESIDE: &str = "shared/schema";
/// Succeeds if the schema is there. It runs at the root of the workspace.
pub(crate) const PROBE: &[&str] = &[
    "sh",
    "-c",
    r#"cd "${STEADY_SCHEMAS-../shared/schema}" && test -f mcp-2026-07-28.json && test -f tasks-draft.json"#,
];

/// The step.
pub(crate) fn run(cx: &mut Context) -> Result<(), Error> {
    let folder =
        folder(&cx.workspace.root).ok_or_else(|| Error::check(format!("no folder of schemas: set {VARIABLE}")))?;
    let records = cx.workspace.root.join(cx.workspace.scratch("schema")?);
    fs::remove_dir_all(&records).and_then(|()| fs::create_dir_all(&records)).map_err(Error::file(&records))?;
    conformance::record(cx, &records.join("server-conformance"), &records.join("client-conformance"))?;
    compare::record(cx, &records.join("server-compared"))?;
    let python = interop::record(cx, &records.join("server-interop"), &records.join("client-interop"))?;
    validate(cx, &python, &folder, &records)
}

/// The folder that the variable names, else the one beside the checkout.
fn folder(root: &Path) -> Option<PathBuf> {
    let beside = || root.parent().map(|parent| parent.join(BESIDE));
    let folder = std::env::var_os(VARIABLE).map(PathBuf::from).or_else(beside)?;
    SCHEMAS.iter().all(|schema| folder.join(schema).is_file()).then_some(folder)
}

fn validate(cx: &mut Context, python: &Path, folder: &Path, records: &Path) -> Result<(), Error> {
    let command = Command::new(python).args([VALIDATOR]).arg(folder).arg(records);
    let done = cx.attempt(&command)?;
    done.stdout.lines().for_each(|line| cx.show(line));
    done.checked(&command)
}

/// The beginning of a command line that records what follows it: a server, or with `--http` a client.
pub(super) fn recorder(prefix: &Path, options: &[&str]) -> Result<Vec<String>, Error> {
    let xtask: PathBuf = std::env::current_exe().map_err(Error::file("xtask"))?;
    let mut line = vec![xtask.display().to_string(), "record".to_string()];
    line.extend(options.iter().map(|option| (*option).to_string()));
    line.push(prefix.display().to_string());
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::{BESIDE, PROBE, SCHEMAS, VARIABLE};

    #[test]
    fn the_probe_looks_where_the_step_does() {
        let script = PROBE.last().unwrap();
        for part in SCHEMAS.into_iter().chain([BESIDE, VARIABLE]) {
            assert!(script.contains(part), "{part}");
        }
    }
}
