//! The end of what a child writes to its standard error.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, ReadBuf};

/// A stream of which the last bytes are kept.
pub(super) struct Tail<R> {
    reader: Option<R>,
    /// Twice the limit at most, and a read more: the front is cut off now and then, not with each read.
    kept: Vec<u8>,
    limit: usize,
}

impl<R: AsyncRead + Unpin> Tail<R> {
    pub(super) fn new(reader: Option<R>, limit: usize) -> Self {
        Self { reader, kept: Vec::new(), limit }
    }

    /// Reads what is there. Ready once the stream has ended.
    pub(super) fn poll_pump(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // A child that writes without end must not keep the others of this task waiting.
        for _ in 0..16 {
            let Some(reader) = &mut self.reader else { return Poll::Ready(()) };
            let mut bytes = [0; 4096];
            let mut free = ReadBuf::new(&mut bytes);
            match Pin::new(reader).poll_read(cx, &mut free) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) if !free.filled().is_empty() => {
                    self.kept.extend_from_slice(free.filled());
                    if self.kept.len() > self.limit.saturating_mul(2) {
                        self.kept.drain(..self.kept.len() - self.limit);
                    }
                }
                Poll::Ready(_) => self.reader = None,
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// What is kept, as text. A character that was cut in two shows as a replacement.
    pub(super) fn text(&self) -> String {
        let beyond = self.kept.len().saturating_sub(self.limit);
        String::from_utf8_lossy(&self.kept[beyond..]).trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    #[test]
    fn the_end_is_kept_and_no_more() {
        let mut long: Vec<u8> = (0..10_000).flat_map(|n| format!("line {n}\n").into_bytes()).collect();
        long.extend_from_slice(b"\xff last\n\n");
        let mut tail = Tail::new(Some(&*long), 18);
        while tail.poll_pump(&mut Context::from_waker(Waker::noop())).is_pending() {
            assert!(tail.kept.len() <= 2 * 18 + 4096, "{}", tail.kept.len());
        }
        assert_eq!(tail.text(), "line 9999\n\u{fffd} last");
        let none: Option<&[u8]> = None;
        assert_eq!(Tail::new(none, 20).text(), "");
    }
}
