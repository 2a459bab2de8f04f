//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Looks into a ledger of mcp-steady, settles what is in doubt, checks, collects and copies it.
///
/// All of it works while the program that owns the ledger runs. No command creates a ledger, changes its schema, or runs an
/// operation. Stored results are printed by `reconcile --result` alone.
#[derive(Parser)]
#[command(
    name = "steady-ledger",
    version,
    about,
    after_help = "Exit codes: 0 done; 1 the answer is no (nothing is known of the key, the file is not sound); 2 it could \
                  not be done.\n\nStart with: steady-ledger inspect FILE"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Print one JSON object for machines.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// A file with the 64 hexadecimal digits of the ledger's secret, if the program that owns it configures one.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) secret_file: Option<PathBuf>,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Shows how many keys, messages and tasks there are, by state, and lists the messages and tasks that wait for
    /// somebody's decision, at most 100 of each. The program that owns the ledger decides about those.
    #[command(
        after_help = "Examples:\n  steady-ledger inspect shop.db\n  steady-ledger inspect shop.db --keys --state in_doubt"
    )]
    Inspect {
        /// The ledger: a file, or postgres://..
        file: PathBuf,
        /// List keys too.
        #[arg(long)]
        keys: bool,
        /// Only keys in this state.
        #[arg(long, requires = "keys", value_parser = ["started", "committed", "rejected", "in_doubt", "expired"])]
        state: Option<String>,
        /// Only keys of this caller.
        #[arg(long, requires = "keys", value_name = "NAME")]
        principal: Option<String>,
        /// Only keys of this operation.
        #[arg(long, requires = "keys", value_name = "NAME")]
        operation: Option<String>,
        /// At most so many keys.
        #[arg(long, requires = "keys", default_value_t = 100, value_name = "N")]
        limit: u32,
    },
    /// Shows what is known of a key. Exit code 1 if nothing is.
    Reconcile {
        /// The ledger: a file, or postgres://..
        file: PathBuf,
        #[command(flatten)]
        key: KeyArgs,
        /// Print the stored result too. It can hold what only its caller may see.
        #[arg(long)]
        result: bool,
    },
    /// Gives a key in doubt the outcome that somebody found out. Its callers get that outcome from then on.
    ///
    /// Ask the other system first, by the upstream key that `reconcile` shows. The decision is written down with who made it
    /// and why, and cannot be changed.
    #[command(
        after_help = "Example:\n  steady-ledger resolve shop.db --principal acme --operation charge order-7 \\\n      \
                            --committed '{\"charge\":\"ch_1\"}' --actor ops@example.com --note 'seen in the dashboard'"
    )]
    Resolve {
        /// The ledger: a file, or postgres://..
        file: PathBuf,
        #[command(flatten)]
        key: KeyArgs,
        #[command(flatten)]
        outcome: Outcome,
        /// Who decides.
        #[arg(long, value_name = "NAME")]
        actor: String,
        /// What the decision rests on.
        #[arg(long, value_name = "TEXT")]
        note: String,
    },
    /// Deletes results that are past the retention of the program that owns the ledger, and tasks whose time is over; their
    /// keys stay and are refused. What is open is put in doubt once its lease is over, and never deleted. Unused pages are
    /// given back to the file system.
    Gc {
        /// The ledger: a file, or postgres://..
        file: PathBuf,
        /// At most so many rows.
        #[arg(long, default_value_t = u32::MAX, hide_default_value = true, value_name = "N")]
        limit: u32,
    },
    /// Checks the whole file: pages, references, and every result against its digest. Exit code 1 if it is not sound.
    Verify {
        /// The ledger: a file, or postgres://..
        file: PathBuf,
    },
    /// Copies the ledger to a new file, while it is used.
    ///
    /// The copy does not know what ran after it: restored, it would run those keys again.
    Backup {
        /// The ledger: a file, or postgres://..
        file: PathBuf,
        /// The new file.
        to: PathBuf,
    },
    /// Moves a ledger from a file to an empty one on PostgreSQL, offline: the file is locked meanwhile. Every row is read
    /// back; the numbers and the digests of both sides are printed. The application's own tables stay where they are.
    ///
    /// Stop the program first, and never start it on the file again: what runs in the database would run once more there.
    #[cfg(feature = "postgres")]
    #[command(after_help = "Example:\n  steady-ledger migrate shop.db postgres://steady@/shop?host=/run/postgresql")]
    Migrate {
        /// The file.
        file: PathBuf,
        /// The database: postgres://..
        url: PathBuf,
    },
}

/// Which key.
#[derive(Args)]
pub(crate) struct KeyArgs {
    /// Who called.
    #[arg(long, value_name = "NAME")]
    pub(crate) principal: String,
    /// What was called.
    #[arg(long, value_name = "NAME")]
    pub(crate) operation: String,
    /// The idempotency key.
    pub(crate) key: String,
}

/// What became of a call.
#[derive(Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Outcome {
    /// It was done: the result for its callers, as JSON.
    #[arg(long, value_name = "JSON")]
    pub(crate) committed: Option<String>,
    /// It was not done and never will be: the refusal for its callers, as JSON.
    #[arg(long, value_name = "JSON")]
    pub(crate) rejected: Option<String>,
}
