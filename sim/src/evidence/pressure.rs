//! A slow consumer: the shipped outbound buffer while nobody reads.

use std::path::Path;

use serde_json::json;
use steady_core::outbound::Coalesce;

use super::{Failure, Record};
use crate::demo::Section;
use crate::review::overload_buffer;

const CAPACITY: usize = 64;
const REQUESTS: u32 = 128;
const REPORTS: u32 = 1000;

pub(super) fn record(_: &Path) -> Result<Record, Failure> {
    let mut section = Section::new("an overloaded buffer");
    let mut runs = Vec::new();
    for (name, coalesce) in [("same token", Coalesce::SameToken), ("adjacent", Coalesce::Adjacent)] {
        let load = overload_buffer(CAPACITY, coalesce, REQUESTS, REPORTS);
        section.event(format!(
            "coalescing by {name}: {REQUESTS} requests report {REPORTS} times each into {CAPACITY} places while nobody \
             reads, then complete; the reader then gets {} progress values and {} final responses",
            load.progress, load.finals
        ));
        section.claim(format!("{name}: the buffer holds at most its capacity"), load.highest, CAPACITY);
        section.claim(format!("{name}: every final response arrives"), load.finals, usize::try_from(REQUESTS)?);
        section.claim(format!("{name}: that something was dropped is known"), load.loss_known, true);
        runs.push(json!({"coalesce": name, "overload": load}));
    }
    Ok(Record { section, data: json!({"runs": runs}) })
}
