//! What cargo knows about the checkout: its root, its target folder, its members.

use crate::error::Error;
use crate::process::Command;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// The workspace, as `cargo metadata` tells it.
#[derive(Debug, Deserialize)]
pub(crate) struct Workspace {
    #[serde(rename = "workspace_root")]
    pub(crate) root: PathBuf,
    /// Relative to the root if it lies there.
    #[serde(rename = "target_directory")]
    pub(crate) target: PathBuf,
    pub(crate) packages: Vec<Package>,
}

/// A member.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) manifest_path: PathBuf,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) targets: Vec<Target>,
}

/// What a member depends on, whatever the kind and the platform.
#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// `None` for a normal dependency, else `dev` or `build`.
    pub(crate) kind: Option<String>,
    /// Whether it is there for a feature alone.
    #[serde(default)]
    pub(crate) optional: bool,
}

/// A library, program, test or benchmark of a member.
#[derive(Debug, Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) kind: Vec<String>,
}

/// The command behind [`Workspace::enter`].
pub(crate) const METADATA: &str = "cargo metadata --format-version 1 --no-deps";

impl Workspace {
    /// Asks cargo about the workspace of the current folder and goes to its
    /// root, so that a command reads the same on every machine.
    pub(crate) fn enter() -> Result<Self, Error> {
        let done = Command::line(METADATA).capture()?;
        let mut workspace = Self::parse(&done.success_or_exit(METADATA)?)?;
        std::env::set_current_dir(&workspace.root).map_err(Error::file(&workspace.root))?;
        workspace.target = workspace.short(&workspace.target);
        Ok(workspace)
    }

    /// The path as seen from the root, where everything runs.
    fn short(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.root).unwrap_or(path).to_path_buf()
    }

    /// Reads the answer of `cargo metadata`.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        serde_json::from_str(text).map_err(|why| Error::check(format!("cargo metadata answers in a new form: {why}")))
    }

    /// A folder under `target/`, made if it is not there.
    pub(crate) fn scratch(&self, name: &str) -> Result<PathBuf, Error> {
        let path = self.target.join(name);
        std::fs::create_dir_all(&path).map_err(Error::file(&path))?;
        Ok(path)
    }

    /// The program `name` of the profile that `cargo build` uses by default.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.target.join("debug").join(format!("{name}{}", std::env::consts::EXE_SUFFIX))
    }
}

impl Package {
    /// The names of this package's benchmarks.
    pub(crate) fn benches(&self) -> impl Iterator<Item = &str> {
        let targets = self.targets.iter();
        targets.filter(|t| t.kind.iter().any(|k| k == "bench")).map(|t| t.name.as_str())
    }
}
