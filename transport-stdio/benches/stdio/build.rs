//! What must be built first: the peer's server, and the smallest server of ours, whose clean build is itself measured.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::measure::Program;

/// The workspace's own target folder.
fn target() -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    // target/release/deps/stdio-…
    own.ancestors().nth(3).map_or_else(|| PathBuf::from("target"), Path::to_path_buf)
}

fn cargo(folder: &Path, arguments: &[&str], target: &Path) -> io::Result<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let done = Command::new(cargo).args(arguments).current_dir(folder).env("CARGO_TARGET_DIR", target).output()?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    let why = String::from_utf8_lossy(&done.stderr).into_owned();
    Err(io::Error::other(format!("cargo {} in {}: {why}", arguments.join(" "), folder.display())))
}

/// The peer's server, if its harness is there.
pub(crate) fn rmcp() -> io::Result<Option<Program>> {
    let Some(folder) = std::env::var_os("STEADY_RMCP_BENCH").map(PathBuf::from) else {
        println!("skipped: the rows against rmcp (STEADY_RMCP_BENCH names no folder of a harness)");
        return Ok(None);
    };
    let target = target().join("rmcp-bench");
    cargo(&folder, &["build", "--release", "--locked", "--bin", "bserver"], &target)?;
    Ok(Some(Program { path: target.join("release/bserver"), mode: "pipes" }))
}

/// What the smallest server costs.
pub(crate) struct Cost {
    pub(crate) crates: f64,
    /// Seconds of CPU for a clean build.
    pub(crate) cpu: f64,
    /// Of the stripped program, in MB.
    pub(crate) size: f64,
}

const SERVER: &str = r#"use steady_stdio::{Reply, Tools, run_stdio};

fn main() -> std::process::ExitCode {
    run_stdio(Tools::new("minimal", "1.0.0").tool("echo", "Echoes.", r'{"type":"object"}', |call, _cx| async move {
        Ok(Reply::text(call.raw_arguments()))
    }))
}
"#;

/// Builds it from nothing, in a workspace of its own with cargo's default profile, as a user would.
pub(crate) fn minimal() -> io::Result<Cost> {
    let folder = target().join("minimal-server");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    std::fs::create_dir_all(folder.join("src"))?;
    let package = format!(
        "[package]\nname = \"minimal\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[dependencies]\nmcp-steady-stdio = {{ \
         path = {:?} }}\n\n[profile.release]\nstrip = true\n\n[workspace]\n",
        env!("CARGO_MANIFEST_DIR")
    );
    std::fs::write(folder.join("Cargo.toml"), package)?;
    // A raw string in a raw string.
    std::fs::write(folder.join("src/main.rs"), SERVER.replace("r'", "r#\"").replace("}',", "}\"#,"))?;
    let built = folder.join("target");
    cargo(&folder, &["fetch"], &built)?;
    let before = children_cpu()?;
    cargo(&folder, &["build", "--release"], &built)?;
    let cpu = children_cpu()? - before;
    let tree = cargo(&folder, &["tree", "-e", "normal", "--prefix", "none", "--no-dedupe"], &built)?;
    let crates: std::collections::BTreeSet<&str> =
        tree.lines().filter_map(|line| line.split(" (").next()).filter(|line| !line.is_empty()).collect();
    let size = std::fs::metadata(built.join("release/minimal"))?.len();
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    Ok(Cost { crates: crates.len() as f64, cpu, size: size as f64 / 1e6 })
}

/// Seconds of CPU of all children that have ended.
fn children_cpu() -> io::Result<f64> {
    /// The kernel's clock ticks a second in this file.
    const TICKS: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // After the name, which may hold anything, `cutime` and `cstime` are the 14th and 15th.
    let after = stat.rsplit(')').next().unwrap_or_default();
    let ticks: f64 = after.split_whitespace().skip(13).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    Ok(ticks / TICKS)
}
