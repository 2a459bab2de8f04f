//! Loom's threads and its search under `--cfg steady_loom`, plain threads and one run otherwise.

pub(crate) use imp::{Arc, block_on, search, spawn};

/// Every interleaving: for two threads.
pub(crate) const ALL: Option<usize> = None;

/// The interleavings with at most this many preemptions: for three threads.
pub(crate) const fn preemptions(most: usize) -> Option<usize> {
    Some(most)
}

/// The models of a file: each with its bound and the mutants that it must kill. What a model does is the function of its
/// name beside the table.
macro_rules! models {
    ($($name:ident: $bound:expr, kills $mutants:expr;)*) => {
        mod models {
            use super::*;
            $(
                #[test]
                fn $name() {
                    let name = concat!(module_path!(), "::", stringify!($name));
                    $crate::shim::search(name, $bound, &$mutants, super::$name);
                }
            )*
        }
    };
}
pub(crate) use models;

#[cfg(steady_loom)]
mod imp {
    pub(crate) use loom::future::block_on;
    pub(crate) use loom::sync::Arc;
    pub(crate) use loom::thread::spawn;

    use std::sync::Arc as Shared;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Instant;

    #[expect(clippy::print_stdout, reason = "the search reports its size")]
    pub(crate) fn search(name: &str, bound: Option<usize>, mutants: &[&str], model: fn()) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = bound;
        builder.max_branches = 10_000;
        // A search that one of these ends counts as passed: the environment must not set them.
        builder.max_duration = None;
        builder.max_permutations = None;
        let (count, started) = (Shared::new(AtomicU64::new(0)), Instant::now());
        let counted = Shared::clone(&count);
        builder.check(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            model();
        });
        let (iterations, millis) = (count.load(Ordering::Relaxed), started.elapsed().as_millis());
        let (_, name) = name.split_once("::").expect("the crate, then the path");
        let bound = bound.map_or_else(|| "all".to_owned(), |most| most.to_string());
        println!("loom-model {name} bound={bound} iterations={iterations} ms={millis} kills={}", mutants.join(","));
        assert!(iterations > 1, "{name}: one interleaving is no search");
    }
}

#[cfg(not(steady_loom))]
mod imp {
    pub(crate) use std::sync::Arc;
    pub(crate) use std::thread::spawn;

    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Wake, Waker};
    use std::thread::Thread;

    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
        let waker: Waker = Arc::new(Unpark(std::thread::current())).into();
        let (mut cx, mut future) = (Context::from_waker(&waker), pin!(future));
        loop {
            match future.as_mut().poll(&mut cx) {
                Poll::Ready(output) => return output,
                Poll::Pending => std::thread::park(),
            }
        }
    }

    pub(crate) fn search(_: &str, _: Option<usize>, mutants: &[&str], model: fn()) {
        assert!(!mutants.is_empty(), "a model that kills no mutant may be blind");
        model();
    }
}
