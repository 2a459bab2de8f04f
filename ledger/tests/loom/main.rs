//! Every interleaving of callers and the writer around the queue and an answer: what was taken in comes out, nothing is
//! taken in after the end, and nobody sleeps through an answer.
//!
//! SQLite cannot run under loom, so the two machines are compiled in here by themselves, from the files of the library.
//! `cargo xtask loom` searches the models and runs each under the mutants that it must kill. Without `--cfg steady_loom`
//! they run once each, as plain threads.

mod answers;
mod calls;
#[path = "../../src/mutant.rs"]
mod mutant;
#[path = "../../src/writer/queue.rs"]
mod queue;
#[path = "../../src/writer/reply.rs"]
mod reply;
#[path = "../../../core/tests/loom/shim.rs"]
mod shim;
#[path = "../../src/sync.rs"]
mod sync;
