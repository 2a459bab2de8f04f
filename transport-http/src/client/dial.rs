//! A connection to a host that may have several addresses: to the first one that answers.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::task::Poll;
use std::time::Duration;

use steady_core::kernel::BoxFuture;
use tokio::net::{TcpStream, lookup_host};

use crate::clock::Clock;

/// How long one address is waited for before the next one is tried beside it (RFC 8305, section 5).
const NEXT_AFTER: Duration = Duration::from_millis(300);
/// Addresses of a host that are tried.
const MOST: usize = 16;

/// Connects to a host by whichever of its addresses answers first.
pub(super) async fn dial(clock: &Clock, host: &str, port: u16) -> io::Result<TcpStream> {
    first(clock, in_turn(lookup_host((host, port)).await?), TcpStream::connect).await
}

/// Addresses as the resolver prefers them, but both families in turn: a family without a route costs one attempt.
fn in_turn(addresses: impl Iterator<Item = SocketAddr>) -> Vec<SocketAddr> {
    let mut addresses = addresses.peekable();
    let prefers_v6 = addresses.peek().is_some_and(SocketAddr::is_ipv6);
    let (preferred, others): (Vec<_>, Vec<_>) = addresses.partition(|address| address.is_ipv6() == prefers_v6);
    let (mut preferred, mut others) = (preferred.into_iter(), others.into_iter());
    let pairs = std::iter::from_fn(|| {
        let pair = [preferred.next(), others.next()];
        pair.iter().any(Option::is_some).then_some(pair)
    });
    pairs.flatten().flatten().take(MOST).collect()
}

/// What the first attempt says that succeeds; each address is tried once those before it have failed, or a moment later.
async fn first<T, F>(clock: &Clock, addresses: Vec<SocketAddr>, connect: impl Fn(SocketAddr) -> F) -> io::Result<T>
where
    F: Future<Output = io::Result<T>>,
{
    let mut addresses = addresses.into_iter();
    let mut attempts = Vec::new();
    let mut alarm: Option<BoxFuture<()>> = None;
    let mut why = io::Error::new(io::ErrorKind::AddrNotAvailable, "the host has no address");
    poll_fn(|cx| {
        loop {
            let mut at = 0;
            while let Some(attempt) = attempts.get_mut(at) {
                match Future::poll(std::pin::Pin::as_mut(attempt), cx) {
                    Poll::Ready(Ok(made)) => return Poll::Ready(Ok(made)),
                    Poll::Ready(Err(error)) => {
                        why = error;
                        drop(attempts.swap_remove(at));
                        alarm = None;
                    }
                    Poll::Pending => at += 1,
                }
            }
            if alarm.as_mut().is_some_and(|alarm| alarm.as_mut().poll(cx).is_pending()) {
                return Poll::Pending;
            }
            match addresses.next() {
                Some(address) => attempts.push(Box::pin(connect(address))),
                None if attempts.is_empty() => {
                    return Poll::Ready(Err(std::mem::replace(&mut why, io::ErrorKind::Other.into())));
                }
                None => return Poll::Pending,
            }
            // The last one has all the time that is left.
            alarm = (addresses.len() > 0).then(|| clock.timer().sleep_until(clock.now() + NEXT_AFTER));
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::future::pending;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use steady_core::kernel::Timer;
    use steady_core::time::Instant;

    use super::*;

    /// A clock that goes on to whatever is waited for.
    #[derive(Default)]
    struct Jumps(AtomicU64);

    impl Timer for Jumps {
        fn now(&self) -> Instant {
            Instant::from_nanos(self.0.load(Ordering::Relaxed))
        }

        fn sleep_until(&self, at: Instant) -> BoxFuture<()> {
            self.0.store(at.as_nanos(), Ordering::Relaxed);
            Box::pin(std::future::ready(()))
        }
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    /// Which address was reached, which were tried, and after how long.
    async fn dialled(addresses: &[&str], answers: &str, silent: &str) -> (Option<SocketAddr>, Vec<String>, Duration) {
        let timer = Arc::new(Jumps::default());
        let clock = Clock::of(Arc::<Jumps>::clone(&timer));
        let tried = RefCell::new(Vec::new());
        let connect = |to: SocketAddr| {
            tried.borrow_mut().push(to.to_string());
            let (answers, silent) = (to.to_string() == answers, to.to_string() == silent);
            async move {
                if silent {
                    pending::<()>().await;
                }
                if answers { Ok(to) } else { Err(io::ErrorKind::ConnectionRefused.into()) }
            }
        };
        let addresses = addresses.iter().map(|text| address(text)).collect();
        let reached = first(&clock, addresses, connect).await.ok();
        (reached, tried.into_inner(), Duration::from_nanos(timer.now().as_nanos()))
    }

    #[tokio::test]
    async fn a_host_whose_first_address_is_dead_is_reached_by_the_next() {
        let (six, four) = ("[2001:db8::1]:80", "192.0.2.1:80");
        let reached = Some(address(four));
        // Without an answer, after a moment; refused, at once.
        let both = [six.to_owned(), four.to_owned()];
        assert_eq!(dialled(&[six, four], four, six).await, (reached, both.to_vec(), NEXT_AFTER));
        let (made, tried, _) = dialled(&[six, four], four, "").await;
        assert_eq!((made, tried), (reached, both.to_vec()));
        let (made, tried, _) = dialled(&[four, six], four, "").await;
        assert_eq!((made, tried), (reached, vec![four.to_owned()]), "the first that answers is the only one");
        assert_eq!(dialled(&[six, four], "", "").await.0, None);
        assert_eq!(dialled(&[], "", "").await.0, None);
    }

    #[test]
    fn the_families_take_turns_in_the_order_of_the_resolver() {
        let all = ["[2001:db8::1]:1", "[2001:db8::2]:1", "192.0.2.1:1", "[2001:db8::3]:1", "192.0.2.2:1"].map(address);
        let order = [0, 2, 1, 4, 3].map(|at| all[at]);
        assert_eq!(in_turn(all.into_iter()), order);
        let many = (0..100).map(|port| SocketAddr::from(([192, 0, 2, 1], port)));
        assert_eq!(in_turn(many.chain([all[0]])).len(), MOST);
    }
}
