//! A PostgreSQL server of our own, for as long as this process lives: on a Unix socket, as an unprivileged user, in a
//! temporary folder that goes with it. Or one that `STEADY_TEST_PG` names, as a libpq string of a superuser.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Where a server of an installed package may be, the newest first.
fn folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = std::env::var_os("STEADY_PG_BIN").map(PathBuf::from).into_iter().collect();
    let mut found: Vec<(u32, PathBuf)> = ["/usr/lib/postgresql", "/usr/local/lib/postgresql"]
        .iter()
        .filter_map(|root| fs::read_dir(root).ok())
        .flatten()
        .filter_map(|entry| {
            let entry = entry.ok()?;
            Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin")))
        })
        .collect();
    found.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    folders.extend(found.into_iter().map(|(_, folder)| folder));
    folders.extend(std::env::var_os("PATH").iter().flat_map(std::env::split_paths));
    folders
}

/// The folder of the server's programs.
fn programs() -> Option<PathBuf> {
    folders().into_iter().find(|folder| ["initdb", "pg_ctl", "postgres"].iter().all(|name| folder.join(name).exists()))
}

/// User and group to run the server as; none if that is this process's own.
fn user() -> Option<(u32, u32)> {
    let root = fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    if !root {
        return None;
    }
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let find = |name: &str| {
        let mut fields = passwd.lines().find(|line| line.split(':').next() == Some(name))?.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    find("postgres").or_else(|| find("nobody"))
}

/// A server.
pub(crate) struct Cluster {
    folder: PathBuf,
    programs: PathBuf,
    /// Ends the server and removes its folder once this process is gone, however it goes.
    keeper: Child,
}

impl Cluster {
    /// Starts one; none if there is no PostgreSQL here.
    pub(crate) fn start() -> Option<Self> {
        let programs = programs()?;
        let folder = tempfile::Builder::new().prefix("steady-pg").tempdir().unwrap().keep();
        if let Some((user, group)) = user() {
            chown(&folder, Some(user), Some(group)).unwrap();
        }
        let keep = "read -r _; kill -QUIT \"$(head -1 data/postmaster.pid)\" 2>/dev/null; sleep 0.2; rm -rf \"$PWD\"";
        let keeper = plain("sh", &folder).args(["-c", keep]).stdin(Stdio::piped()).spawn().unwrap();
        let cluster = Self { folder, programs, keeper };
        let initdb = ["-D", "data", "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8", "--locale=C"];
        cluster.run("initdb", initdb);
        cluster.up();
        Some(cluster)
    }

    /// Starts the server, and waits until it answers.
    pub(crate) fn up(&self) {
        self.up_with("");
    }

    /// As [`Cluster::up`], with more settings, which come last.
    pub(crate) fn up_with(&self, more: &str) {
        let settings = "-c listen_addresses= -c max_connections=200 -c shared_buffers=64MB -c max_wal_size=256MB \
                        -c deadlock_timeout=100ms -c log_min_messages=fatal -c logging_collector=off";
        let socket = format!("{settings} -c unix_socket_directories={} {more}", self.folder.display());
        self.run("pg_ctl", ["-D", "data", "-l", "log", "-w", "-t", "60", "-o", &socket, "start"]);
    }

    /// As a power cut would: nothing is written any more.
    pub(crate) fn down(&self) {
        self.run("pg_ctl", ["-D", "data", "-m", "immediate", "-w", "stop"]);
    }

    /// Runs one of the server's programs to its end, in the folder.
    pub(crate) fn run<'a>(&self, program: &str, arguments: impl IntoIterator<Item = &'a str>) {
        let mut command = plain(self.programs.join(program), &self.folder);
        let done = command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let done = done.spawn().unwrap().wait_with_output().unwrap();
        let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        assert!(done.status.success(), "{program}: {}\n{log}", String::from_utf8_lossy(&done.stderr));
    }

    /// How to connect to this database as a superuser.
    pub(crate) fn config(&self, database: &str) -> String {
        format!("host={} user=postgres dbname={database}", self.folder.display())
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(mut stdin) = self.keeper.stdin.take() {
            drop(stdin.write_all(b"\n"));
        }
        drop(self.keeper.wait());
    }
}

/// A program in a folder, as the user that the server runs as.
pub(crate) fn plain(program: impl AsRef<OsStr>, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder);
    if let Some((user, group)) = user() {
        command.uid(user).gid(group);
    }
    command
}

/// The server that all tests of this program share.
fn shared() -> Option<&'static Cluster> {
    static SHARED: OnceLock<Option<Cluster>> = OnceLock::new();
    SHARED.get_or_init(Cluster::start).as_ref()
}

/// Says that a test is not run, or fails where that may not be.
pub(crate) fn skip(test: &str, what: &str) {
    assert!(std::env::var_os("STEADY_PG_REQUIRED").is_none(), "{test} needs {what}");
    println!("skipped: {test} needs {what}");
}

/// Runs SQL on the shared server; none if there is none.
pub(crate) fn sql(database: Option<&str>, sql: &str) -> Option<String> {
    let server = std::env::var("STEADY_TEST_PG").ok().or_else(|| shared().map(|shared| shared.config("postgres")))?;
    let config = database.map_or_else(|| server.clone(), |name| format!("{server} dbname={name}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(&config, tokio_postgres::NoTls).await.unwrap();
        let connection = tokio::spawn(connection);
        client.batch_execute(sql).await.unwrap();
        drop(client);
        connection.await.unwrap().unwrap();
    });
    Some(server)
}

/// A new, empty database on the shared server, for a test of this name; none if the test is to be skipped.
pub(crate) fn database(test: &str) -> Option<String> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("steady_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let Some(server) = sql(None, &format!("CREATE DATABASE {name}")) else {
        skip(test, "PostgreSQL 14 or newer, or STEADY_TEST_PG");
        return None;
    };
    Some(format!("{server} dbname={name}"))
}
