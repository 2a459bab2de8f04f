//! The race explorer: every ordering of a few events of one request, computed by the shipped machines, as one page.
//!
//! Each ordering is an experiment on a [`Stage`](crate::experiment::Stage): the client machine, the kernel and a network in
//! virtual time. The page also shows the outbound buffer under overload, and a fleet's reconnects. It is one file without a
//! reference to any other; its data is JSON inside of it.

mod orders;
mod pressure;

use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

pub use orders::{Clock, Event, Ordering, Spacing, orderings};

use crate::herd::{self, Herd, HerdReport, Retry};

/// Longest page, in bytes.
pub const LONGEST_PAGE: usize = 1 << 20;

const TEMPLATE: &str = include_str!("explore/page.html");
/// Where the data goes; it stands in the template once.
const PLACE: &str = "@@DATA@@";

/// The page.
#[must_use]
pub fn page() -> String {
    let filled = lengths().into_iter().fold(TEMPLATE.to_owned(), |page, (place, length)| page.replace(place, &length));
    filled.replacen(PLACE, &embedded(&data()), 1)
}

/// The lengths of time that the page's text names, and where.
fn lengths() -> [(&'static str, String); 5] {
    let text = crate::experiment::duration_text;
    [
        ("@@LATENCY@@", text(orders::LATENCY)),
        ("@@CROSSING@@", text(Spacing::Crossing.gap())),
        ("@@APART@@", text(Spacing::Apart.gap())),
        ("@@AWAY@@", text(Herd::default().outage)),
        ("@@WINDOW@@", text(herd::WINDOW)),
    ]
}

/// JSON that is safe inside of a script element: no `<` can open a tag there or a comment, and no `&` matters to anybody.
fn embedded(value: &Value) -> String {
    value.to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

fn data() -> Value {
    let mut texts = Texts::default();
    let runs: Vec<Value> = orderings().iter().map(|ordering| run(&mut texts, ordering)).collect();
    json!({
        "runs": runs,
        // In microseconds, as the moments are.
        "latency": orders::LATENCY.as_micros(),
        // In milliseconds, as the windows are.
        "window": herd::WINDOW.as_millis(),
        "texts": texts.0,
        "buffer": pressure::buffer(),
        "herds": [
            fleet("no jitter: everybody after exactly 1 s", Retry::Fixed(Duration::from_secs(1)), Herd::default()),
            fleet("full jitter, first pause up to 250 ms (default)", Retry::Jittered, Herd::default()),
            fleet(
                "full jitter, first pause up to 2 s (for fleets)",
                Retry::Jittered,
                Herd { backoff: steady_core::backoff::Backoff::FLEET, ..Herd::default() },
            ),
        ],
    })
}

/// Texts, each once.
#[derive(Default)]
struct Texts(Vec<String>);

impl Texts {
    fn index(&mut self, text: &str) -> usize {
        // A few hundred: not worth an index of their own.
        self.0.iter().position(|known| known == text).unwrap_or_else(|| {
            self.0.push(text.to_owned());
            self.0.len() - 1
        })
    }
}

fn run(texts: &mut Texts, ordering: &Ordering) -> Value {
    let moments: Vec<Value> = ordering
        .moments
        .iter()
        .map(|moment| {
            let (text, label) = (texts.index(&moment.text), texts.index(&moment.label));
            json!([moment.at.as_micros(), moment.lane.number(), text, label, u8::from(moment.lost)])
        })
        .collect();
    json!({
        "http": ordering.is_http(),
        "crossing": ordering.spacing == Spacing::Crossing,
        "maximum": ordering.clock == Clock::Maximum,
        "order": texts.index(&ordering.name()),
        "outcome": ordering.outcome().iter().map(|line| texts.index(line)).collect::<Vec<_>>(),
        "moments": moments,
    })
}

/// A fleet whose server is away for a while.
#[derive(Serialize)]
struct Fleet {
    name: &'static str,
    clients: u32,
    /// The start of each window in milliseconds, and how many clients ask in it.
    windows: Vec<(u64, u32)>,
    busiest: u32,
}

fn fleet(name: &'static str, retry: Retry, herd: Herd) -> Fleet {
    const CLIENTS: u32 = 5000;
    let report: HerdReport = herd::run(&Herd { clients: CLIENTS, retry, ..herd });
    let mut windows = std::collections::BTreeMap::<u64, u32>::new();
    for (start, count) in report.attempts.iter().flat_map(|attempt| &attempt.windows) {
        *windows.entry(*start).or_default() += count;
    }
    let busiest = windows.values().copied().max().unwrap_or(0);
    Fleet { name, clients: CLIENTS, windows: windows.into_iter().collect(), busiest }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_one_file_and_its_data_cannot_leave_its_element() {
        assert_eq!(TEMPLATE.matches(PLACE).count(), 1);
        assert!(lengths().iter().all(|(place, _)| TEMPLATE.contains(place)));
        let page = page();
        assert!(!page.contains("@@"), "a place is left");
        assert!(page.len() < LONGEST_PAGE, "{} bytes", page.len());
        let no_namespace = page.replace("http://www.w3.org/2000/svg", "");
        for foreign in ["http://", "https://", " src=", "@import", "url("] {
            assert!(!no_namespace.contains(foreign), "{foreign}");
        }
        let data = page.split("<script type=\"application/json\" id=\"data\">").nth(1).expect("its data");
        let data = data.split("</script>").next().expect("its end");
        assert!(!data.contains('<'));
        let data: Value = serde_json::from_str(data).expect("JSON");
        assert_eq!(data["runs"].as_array().map(Vec::len), Some(orderings().len()));
    }

    #[test]
    fn whatever_is_embedded_is_read_again() {
        let value = json!({"text": "</script><!-- & \u{2028}"});
        let text = embedded(&value);
        assert!(!text.contains("</") && !text.contains("<!"));
        assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), value);
    }
}
