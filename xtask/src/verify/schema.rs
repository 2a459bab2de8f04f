//! Every message that our servers and our client send, against the official
//! JSON schema: the conformance suite, the rows of `compare` and the clients
//! and servers of other SDKs are run once more, with a recorder between both
//! sides. The schemas are not part of the repository: a variable names their
//! folder.

use super::context::Context;
use super::{compare, conformance, interop};
use crate::error::Error;
use crate::process::Command;
use std::fs;
use std::path::{Path, PathBuf};

/// The variable that names the folder with the schemas.
const VARIABLE: &str = "STEADY_SCHEMAS";
/// The schema in it.
const SCHEMA: &str = "mcp-2026-07-28.json";
/// Reads the records.
const VALIDATOR: &str = "xtask/schema/validate.py";
/// Succeeds if the schema is there.
pub(crate) const PROBE: &[&str] = &["sh", "-c", r#"test -f "$STEADY_SCHEMAS/mcp-2026-07-28.json""#];

/// The step.
pub(crate) fn run(cx: &mut Context) -> Result<(), Error> {
    let folder = std::env::var(VARIABLE).map_err(|_| Error::check(format!("{VARIABLE} is not set")))?;
    let records = cx.workspace.root.join(cx.workspace.scratch("schema")?);
    fs::remove_dir_all(&records).and_then(|()| fs::create_dir_all(&records)).map_err(Error::file(&records))?;
    conformance::record(cx, &records.join("server-conformance"))?;
    compare::record(cx, &records.join("server-compared"))?;
    let python = interop::record(cx, &records.join("server-interop"), &records.join("client-interop"))?;
    validate(cx, &python, &Path::new(&folder).join(SCHEMA), &records)
}

fn validate(cx: &mut Context, python: &Path, schema: &Path, records: &Path) -> Result<(), Error> {
    let command = Command::new(python).args([VALIDATOR]).arg(schema).arg(records);
    let done = cx.attempt(&command)?;
    done.stdout.lines().for_each(|line| cx.show(line));
    done.checked(&command)
}

/// The beginning of a command line that records the server which follows it.
pub(super) fn recorder(prefix: &Path) -> Result<Vec<String>, Error> {
    let xtask: PathBuf = std::env::current_exe().map_err(Error::file("xtask"))?;
    Ok(vec![xtask.display().to_string(), "record".to_string(), prefix.display().to_string()])
}
