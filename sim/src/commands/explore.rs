//! `steady-sim explore`: the race explorer, one page for a browser.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use steady_sim::explore;

use crate::show;

/// Writes the race explorer: one self-contained page that works without a network.
///
/// Every ordering of progress, completion, cancellation, a deadline and (over HTTP) a break of the stream, for one request,
/// on both transports, computed by the shipped machines. Pick one, and see who wins at either end, what crossed the wire,
/// and what was suppressed or ignored. Beside it: the outbound buffer under overload, and a fleet's reconnects with and
/// without jitter. The same bytes each time.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The file to write; one that is there is replaced. `-` is standard output.
    #[arg(long, value_name = "FILE.html")]
    out: PathBuf,
    /// Say what was written as one JSON object for machines.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> ExitCode {
    let page = explore::page();
    let mut stdout = io::stdout().lock();
    if args.out.as_os_str() == "-" {
        if args.json {
            return show::failed("--json says where the page is, and --out - puts it where that would be said");
        }
        return show::finished(stdout.write_all(page.as_bytes()));
    }
    let name = args.out.display();
    if let Err(error) = fs::write(&args.out, &page) {
        return show::failed(&format!("{name}: cannot be written: {error}"));
    }
    let (orderings, bytes) = (explore::orderings().len(), page.len());
    show::finished(if args.json {
        let file = args.out.to_string_lossy();
        let told = serde_json::json!({ "holds": true, "file": file, "bytes": bytes, "orderings": orderings });
        show::json(&mut stdout, &told)
    } else {
        writeln!(stdout, "{name}: {orderings} orderings, {bytes} bytes; open it in a browser")
    })
}
