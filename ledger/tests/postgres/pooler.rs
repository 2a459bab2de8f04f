//! Behind pgbouncer in transaction mode, where each transaction may have another connection to the server.

use std::fs;
use std::process::{Child, Command, Stdio};

use steady_ledger::{LedgerError, PgLedger, PgOptions, TaskSpec};

use crate::cluster::{Cluster, plain, skip};
use crate::runtime;
use crate::shop::{charge_on, options, scope};

struct Pooler(Child);

impl Drop for Pooler {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// pgbouncer in front of a server, with two connections to it for everybody.
fn start(cluster: &Cluster) -> Option<Pooler> {
    let program = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer", "/usr/local/bin/pgbouncer"]
        .into_iter()
        .find(|path| fs::exists(path).unwrap_or(false))?;
    let folder = cluster.folder();
    let socket = folder.display();
    let settings = format!(
        "[databases]\n* = host={socket} port=5432 user=postgres\n[pgbouncer]\npool_mode = transaction\n\
         listen_addr =\nlisten_port = 6543\nunix_socket_dir = {socket}\nauth_type = any\nlogfile = {socket}/pooler.log\n\
         default_pool_size = 2\nmax_client_conn = 100\nignore_startup_parameters = extra_float_digits\n"
    );
    fs::write(folder.join("pooler.ini"), settings).unwrap();
    let quiet = Stdio::null;
    let mut command: Command = plain(program, folder);
    let child = command.arg("pooler.ini").stdin(quiet()).stdout(quiet()).stderr(quiet()).spawn().unwrap();
    Some(Pooler(child))
}

#[test]
fn it_works_behind_pgbouncer_in_transaction_mode() {
    let name = "it_works_behind_pgbouncer_in_transaction_mode";
    let Some(cluster) = Cluster::start() else { return skip(name, "PostgreSQL with its server programs") };
    let Some(pooler) = start(&cluster) else { return skip(name, "pgbouncer") };
    let config = format!("{} port=6543", cluster.config("postgres"));
    runtime().block_on(async {
        let ledger = loop {
            match PgLedger::open(&config, options()).await {
                Ok(ledger) => break ledger,
                // It is about to listen.
                Err(LedgerError::Storage(_)) => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        };
        let other = PgLedger::open(&config, PgOptions { ..options() }).await.unwrap();
        let mut callers = Vec::new();
        for caller in 0..16 {
            let ledger = if caller % 2 == 0 { ledger.clone() } else { other.clone() };
            callers.push(tokio::spawn(async move {
                let mut fresh = 0;
                for number in 0..20 {
                    loop {
                        match charge_on(&ledger, &format!("order-{number}")).await {
                            Ok(done) => {
                                fresh += usize::from(!done.is_replay());
                                break;
                            }
                            Err(LedgerError::InFlight { .. } | LedgerError::Busy { .. }) => {
                                tokio::task::yield_now().await;
                            }
                            Err(error) => panic!("{error}: {:?}", std::error::Error::source(&error)),
                        }
                    }
                }
                fresh
            }));
        }
        let mut fresh = 0;
        for caller in callers {
            fresh += caller.await.unwrap();
        }
        assert_eq!(fresh, 20);
        let direct = cluster.config("postgres");
        assert_eq!(crate::shop::number(&direct, "SELECT count(*) FROM effect").await, 20);
        ledger.tasks().create_keyless(&scope(), TaskSpec::default()).await.unwrap();
        ledger.collect(10).await.unwrap();
        // Nothing was left on the connections that others use.
        let held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";
        assert_eq!(crate::shop::number(&direct, held).await, 0);
    });
    drop(pooler);
}
