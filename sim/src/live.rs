//! What needs real processes and a runtime: the server itself, and a session with it over real pipes.

mod session;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use steady_http::steady_core::kernel::tasks::TaskFeed;
use steady_http::{Hub, HubConfig, Kinds, ServeConfig, run_http_with};
use steady_ledger::Background;
use steady_sim::lab::{Inventory, StockWatch, inventory_server_with, inventory_tasks, restock_worker};
use steady_stdio::{StdioConfig, run_stdio_with};

pub(crate) use session::session;

/// How often the ledger is looked at for what other processes change, while somebody is subscribed.
const LOOK: Duration = Duration::from_millis(250);
/// How long a task waits for a worker that is lost: short, so that a restart can be watched.
const LEASE: Duration = Duration::from_secs(2);

/// Serves the inventory over HTTP at this address, or over standard input and output.
pub(crate) fn serve(http: Option<&str>, ledger: &Path, principal: &str) -> ExitCode {
    let inventory = match Inventory::open(ledger, principal) {
        Ok(inventory) => inventory,
        Err(error) => return crate::show::failed(&format!("{}: {error}", ledger.display())),
    };
    let worker = restock_worker(&inventory, &format!("{principal}-{}", std::process::id()), LEASE);
    let working = Background::start("restock", |timer, stop| async move { worker.run(&timer, stop).await });
    // It ends with the process: what it has begun goes on in the next one.
    let _working = match working {
        Ok(working) => working,
        Err(error) => return crate::show::failed(&format!("no thread for the worker: {error}")),
    };
    let hub = Hub::with_config(HubConfig { offers: Kinds::CORE | Kinds::TASKS, ..HubConfig::default() });
    let feed = TaskFeed::new(&inventory_tasks(&inventory), hub.clone(), LOOK);
    let publishing = Background::start("feed", |timer, stop| async move { feed.run(&timer, stop).await });
    let _publishing = match publishing {
        Ok(publishing) => publishing,
        Err(error) => return crate::show::failed(&format!("no thread for the changes of tasks: {error}")),
    };
    let mut watch = StockWatch::new(inventory.clone(), hub.clone());
    // It ends with the process; a ledger that cannot be read for a while is looked at again.
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(LOOK);
            let _changed_or_unread = watch.look();
        }
    });
    let shop = inventory_server_with(inventory, &hub);
    match http {
        None => {
            let mut config = StdioConfig::default();
            config.server.principal = Some(principal.into());
            run_stdio_with(shop, config)
        }
        Some(address) => {
            let mut config = ServeConfig::default();
            config.http.server.principal = Some(principal.into());
            run_http_with(shop, address, config)
        }
    }
}
