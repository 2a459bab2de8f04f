//! A crate outside the workspace, as a user has it: it depends on one
//! transport alone, builds a server, and answers. What came along with that
//! one dependency is counted.

use super::context::Context;
use super::dialogue::Dialogue;
use super::served::Served;
use crate::error::Error;
use crate::process::Command;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// A crate that is built outside of the workspace.
struct Outside {
    /// The folder of the transport that it depends on, from the root of the workspace.
    transport: &'static str,
    /// Its program.
    program: &'static str,
    /// What must not come along.
    absent: &'static [&'static str],
    talk: fn(&mut Context, &Command) -> Result<(), Error>,
}

const CRATES: [Outside; 2] = [
    Outside {
        transport: "transport-stdio",
        program: "outside",
        absent: &["mcp-steady-http", "mcp-steady-ledger", "mcp-steady-sim", "hyper", "http", "rusqlite"],
        talk: over_stdio,
    },
    Outside {
        transport: "transport-http",
        program: "outside-http",
        absent: &["mcp-steady-stdio", "mcp-steady-ledger", "mcp-steady-sim", "axum", "tower", "tracing", "rusqlite"],
        talk: over_http,
    },
];

/// What stands in a template for the path of the dependency.
const PLACE: &str = "@MCP_STEADY@";

/// Where the templates are, from the root of the workspace.
pub(crate) fn templates() -> [String; 2] {
    CRATES.map(|outside| format!("{}/tests/outside-crate", outside.transport))
}

/// The step.
pub(crate) fn run(cx: &mut Context) -> Result<(), Error> {
    CRATES.iter().try_for_each(|outside| outside.run(cx))
}

impl Outside {
    fn run(&self, cx: &mut Context) -> Result<(), Error> {
        let folder = cx.workspace.scratch("outside")?.join(self.program);
        self.fill(&cx.workspace.root, &folder)?;
        // The target folder is shared, so what the workspace has built is not
        // built again.
        let target = cx.workspace.target.clone();
        let manifest = folder.join("Cargo.toml");
        cx.run(&Command::line("cargo build --manifest-path").arg(&manifest).args(["--target-dir"]).arg(&target))?;
        let program = Command::new(cx.workspace.program(self.program));
        cx.announce(&program.to_string());
        (self.talk)(cx, &program)?;
        let tree = Command::line("cargo tree -e normal --prefix none --manifest-path").arg(&manifest);
        let tree = cx.run(&tree)?.stdout;
        let crates = crate_names(&tree);
        cx.say(&format!("{}: {} crates with the server itself", self.transport, crates.len()));
        let came = self.absent.iter().filter(|name| crates.contains(**name));
        Error::unless_empty(came.map(|name| format!("{name} came along: `cargo tree -i {name}` says why")).collect())
    }

    /// Copies the template and points it at the checkout.
    fn fill(&self, root: &Path, folder: &Path) -> Result<(), Error> {
        let transport = root.join(self.transport);
        let template = transport.join("tests/outside-crate");
        let read = |path: &Path| fs::read_to_string(path).map_err(Error::file(path));
        let manifest = filled(&read(&template.join("Cargo.toml.template"))?, &transport)?;
        let source = read(&template.join("src/main.rs"))?;
        // The same versions as in the workspace, and no need to ask a registry.
        let lock = read(&root.join("Cargo.lock"))?;
        let src = folder.join("src");
        fs::create_dir_all(&src).map_err(Error::file(&src))?;
        for (path, text) in
            [(folder.join("Cargo.toml"), manifest), (src.join("main.rs"), source), (folder.join("Cargo.lock"), lock)]
        {
            fs::write(&path, text).map_err(Error::file(&path))?;
        }
        Ok(())
    }
}

fn filled(template: &str, path: &Path) -> Result<String, Error> {
    if !template.contains(PLACE) {
        return Err(Error::check(format!("the template has no {PLACE} for the path of the dependency")));
    }
    let path = path.display().to_string().replace('\\', "/");
    Ok(template.replace(PLACE, &path))
}

fn over_stdio(cx: &mut Context, program: &Command) -> Result<(), Error> {
    let mut server = Dialogue::start(program)?;
    talk(|method, params| server.ask(method, params))?;
    let took = server.close()?;
    cx.say(&format!("discover, list and call answered; exit {} ms after end of input", took.as_millis()));
    Ok(())
}

fn over_http(cx: &mut Context, program: &Command) -> Result<(), Error> {
    let mut server = Served::start(program)?;
    talk(|method, params| server.ask(method, params))?;
    cx.say("discover, list and call answered");
    Ok(())
}

/// Asks a server what any client asks.
fn talk(mut ask: impl FnMut(&str, Value) -> Result<Value, Error>) -> Result<(), Error> {
    let found = ask("server/discover", json!({}))?;
    let versions = found.get("supportedVersions").and_then(Value::as_array);
    if !versions.is_some_and(|versions| versions.contains(&json!("2026-07-28"))) {
        return Err(Error::check(format!("server/discover does not name revision 2026-07-28: {found}")));
    }
    let listed = ask("tools/list", json!({}))?;
    if listed.pointer("/tools/0/name") != Some(&json!("echo")) {
        return Err(Error::check(format!("tools/list does not list the tool `echo`: {listed}")));
    }
    let answer = ask("tools/call", json!({ "name": "echo", "arguments": { "text": "from outside" } }))?;
    if answer.pointer("/content/0/text") != Some(&json!("from outside")) {
        return Err(Error::check(format!("tools/call does not echo its text: {answer}")));
    }
    Ok(())
}

/// The names in `cargo tree --prefix none`, each once.
fn crate_names(tree: &str) -> BTreeSet<&str> {
    tree.lines().filter_map(|line| line.split_whitespace().next()).collect()
}

#[cfg(test)]
mod tests {
    use super::{crate_names, filled};
    use std::path::Path;

    #[test]
    fn crates_are_counted_once() {
        let tree = "outside v0.0.0 (/w/outside)\nserde v1.0.0\ntokio v1.0.0\nserde v1.0.0 (*)\n\n";
        assert_eq!(crate_names(tree).into_iter().collect::<Vec<_>>(), ["outside", "serde", "tokio"]);
    }

    #[test]
    fn the_template_must_have_a_place_for_the_path() {
        let manifest = filled("x = { path = \"@MCP_STEADY@\" }", Path::new("/w/transport-stdio")).unwrap();
        assert_eq!(manifest, "x = { path = \"/w/transport-stdio\" }");
        assert!(filled("x = 1", Path::new("/w")).is_err());
    }
}
