//! A ledger on PostgreSQL, asked from a program without futures; and how one comes there. No message names its URL, which
//! can hold a password.

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use steady_ledger::{Imported, Opening, PgLedger, PgOptions, Secret};
use tokio::runtime::{Builder, Runtime};

use crate::bar::{advance, bar};
use crate::show::{print, table};
use crate::store::{is_database, open_file};

pub(crate) struct Database {
    pub(crate) runtime: Runtime,
    pub(crate) ledger: PgLedger,
}

impl Database {
    pub(crate) fn open(url: &Path, secret: Option<Secret>) -> Result<Self, Box<dyn Error>> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let options = PgOptions { opening: Opening::Existing, secret, ..PgOptions::default() };
        let url = url.to_str().ok_or("the URL of the database is no UTF-8")?;
        let ledger = runtime.block_on(PgLedger::open(url, options))?;
        Ok(Self { runtime, ledger })
    }
}

#[derive(Serialize)]
struct Moved {
    tables: Vec<Imported>,
}

/// Moves a ledger from a file to a database.
pub(crate) fn migrate(json: bool, file: &Path, url: &Path, secret: Option<Secret>) -> Result<ExitCode, Box<dyn Error>> {
    if is_database(file) || !is_database(url) {
        return Err("give the file first, and then the URL of the database: postgres://..".into());
    }
    let ledger = open_file(file, secret)?;
    let url = url.to_str().ok_or("the URL of the database is no UTF-8")?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let bar = bar("rows");
    let import = PgLedger::import(url, &ledger, PgOptions::default(), |done, all| advance(&bar, done, all));
    let (_, tables) = runtime.block_on(import)?;
    bar.finish_and_clear();
    print(json, &Moved { tables }, |Moved { tables }| {
        let mut rows = vec![["table", "rows", "digest"].map(str::to_owned).to_vec()];
        rows.extend(tables.iter().map(|one| vec![one.table.to_owned(), one.rows.to_string(), one.digest.clone()]));
        let mut text = table(&rows);
        let next = "all rows are there; from now on let nobody use the file: its keys would run again there";
        writeln!(text, "{next}").unwrap_or_default();
        text
    })?;
    Ok(ExitCode::SUCCESS)
}
