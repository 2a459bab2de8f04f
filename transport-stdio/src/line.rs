//! Newline framing over any pair of byte streams (rules S1 and S2).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use steady_core::id::RequestId;
use steady_core::kernel::{BadFrame, Link, Received, Skim};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Smallest free space that a read is given, in bytes; also what the buffer starts with.
const CHUNK: usize = 16 << 10;
/// Largest buffer that is kept while nothing is in it, in bytes.
const RETAINED: usize = 1 << 20;

/// How far to read ahead at least, in bytes: more than a pipe holds, so that its end is seen behind what it holds.
const AHEAD: usize = 1 << 20;

/// A link of lines. An over-long line is skipped as it comes, so the buffer never grows beyond the limit.
pub(crate) struct LineLink<R, W> {
    reader: R,
    writer: W,
    limit: usize,
    buffer: Vec<u8>,
    /// Where the current line starts.
    start: usize,
    /// Up to where the current line is known to hold no newline.
    scanned: usize,
    /// Up to where the buffer is filled.
    filled: usize,
    /// What is known of the current line, which is too long and thrown away; after its end, of the last such line.
    skimmed: Skim,
    skipping: bool,
    ended: bool,
}

/// What the buffer holds next.
enum Next {
    Line(usize, usize),
    TooLong,
    More,
}

impl<R, W> LineLink<R, W> {
    /// `limit` is the longest line that is accepted, in bytes, without its newline.
    pub(crate) fn new(reader: R, writer: W, limit: usize) -> Self {
        Self {
            reader,
            writer,
            limit,
            buffer: Vec::new(),
            start: 0,
            scanned: 0,
            filled: 0,
            skimmed: Skim::default(),
            skipping: false,
            ended: false,
        }
    }

    /// Lets go of the writer, which closes it.
    #[cfg(feature = "client")]
    pub(crate) fn into_reader(self) -> R {
        self.reader
    }

    /// Finds the next line in what is buffered.
    fn next(&mut self) -> Next {
        loop {
            let Some(found) = memchr::memchr(b'\n', &self.buffer[self.scanned..self.filled]) else {
                self.scanned = self.filled;
                if self.skipping || self.filled - self.start > self.limit {
                    self.skim(self.start, self.filled);
                    self.skipping = true;
                    self.scanned = self.start;
                    self.filled = self.start;
                }
                return Next::More;
            };
            let (start, end) = (self.start, self.scanned + found);
            self.start = end + 1;
            self.scanned = self.start;
            if self.skipping || end - start > self.limit {
                self.skim(start, end);
                self.skipping = false;
                return Next::TooLong;
            }
            let line = trim(&self.buffer[start..end]);
            if !line.is_empty() {
                return Next::Line(start, start + line.len());
            }
        }
    }

    /// What is left when the input ends without a newline.
    fn rest(&mut self) -> Next {
        let (start, end) = (self.start, self.filled);
        self.start = end;
        self.scanned = end;
        if std::mem::take(&mut self.skipping) {
            self.skimmed.feed(&self.buffer[start..end]);
            return Next::TooLong;
        }
        let line = trim(&self.buffer[start..end]);
        if line.is_empty() { Next::More } else { Next::Line(start, start + line.len()) }
    }

    /// Passes over a part of a line that is too long.
    fn skim(&mut self, start: usize, end: usize) {
        if !self.skipping {
            self.skimmed = Skim::default();
        }
        self.skimmed.feed(&self.buffer[start..end]);
    }

    fn lend(&self, next: Next) -> Option<Received<'_>> {
        match next {
            Next::More => None,
            Next::TooLong => Some(Received::Bad(BadFrame::TooLong)),
            Next::Line(start, end) => Some(match str::from_utf8(&self.buffer[start..end]) {
                Ok(text) => Received::Message(text),
                Err(_) => Received::Bad(BadFrame::NotUtf8),
            }),
        }
    }

    /// Makes room for a read.
    fn reserve(&mut self) {
        if self.start == self.filled {
            (self.start, self.scanned, self.filled) = (0, 0, 0);
            if self.buffer.len() > RETAINED {
                self.buffer = Vec::new();
            }
        }
        if self.buffer.len() - self.filled >= CHUNK {
            return;
        }
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.filled, 0);
            self.scanned -= self.start;
            self.filled -= self.start;
            self.start = 0;
        }
        if self.buffer.len() - self.filled < CHUNK {
            // Doubling, but never much beyond the longest line that can be in the buffer.
            let most = self.limit.max(AHEAD).saturating_add(2 * CHUNK);
            let size = (2 * self.buffer.len()).clamp(CHUNK, most.max(CHUNK)).max(self.filled + CHUNK);
            self.buffer.resize(size, 0);
        }
    }
}

/// Without the carriage return of a peer that writes text mode, and without JSON's other blanks at the end.
fn trim(line: &[u8]) -> &[u8] {
    let end = line.iter().rposition(|byte| !matches!(byte, b' ' | b'\t' | b'\r'));
    &line[..end.map_or(0, |last| last + 1)]
}

impl<R: AsyncRead + Unpin, W> LineLink<R, W> {
    /// Reads once into the buffer.
    fn fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.reserve();
        let mut free = ReadBuf::new(&mut self.buffer[self.filled..]);
        match ready!(Pin::new(&mut self.reader).poll_read(cx, &mut free)) {
            Ok(()) => {
                let read = free.filled().len();
                self.ended = read == 0;
                self.filled += read;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // A socket whose peer was killed says so with a reset; to us that is the end of input.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => self.ended = true,
            Err(error) => return Poll::Ready(Err(error)),
        }
        Poll::Ready(Ok(()))
    }
}

impl<R: AsyncRead + Unpin + Send, W: AsyncWrite + Unpin + Send> Link for LineLink<R, W> {
    const BEFORE: &'static [u8] = b"";
    const AFTER: &'static [u8] = b"\n";

    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Received<'_>> {
        loop {
            let next = self.next();
            if !matches!(next, Next::More) {
                return Poll::Ready(self.lend(next).unwrap_or(Received::Closed));
            }
            if self.ended {
                let rest = self.rest();
                return Poll::Ready(self.lend(rest).unwrap_or(Received::Closed));
            }
            if let Err(error) = ready!(self.fill(cx)) {
                return Poll::Ready(Received::Failed(error));
            }
        }
    }

    fn oversize_answer(&mut self) -> Option<RequestId> {
        self.skimmed.id()
    }

    fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.ended {
            if self.filled - self.start > self.limit.max(AHEAD) {
                return Poll::Pending;
            }
            if ready!(self.fill(cx)).is_err() {
                return Poll::Ready(());
            }
        }
        Poll::Ready(())
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.writer).poll_write(cx, bytes)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.writer).poll_flush(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::task::Waker;

    /// A reader that gives its chunks one by one.
    struct Chunks(VecDeque<Vec<u8>>);

    impl AsyncRead for Chunks {
        fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            if let Some(mut chunk) = self.0.pop_front() {
                let fits = chunk.len().min(out.remaining());
                out.put_slice(&chunk[..fits]);
                if fits < chunk.len() {
                    self.0.push_front(chunk.split_off(fits));
                }
            }
            Poll::Ready(Ok(()))
        }
    }

    fn all(input: &[u8], chunk: usize, limit: usize) -> Vec<String> {
        let chunks = input.chunks(chunk).map(<[u8]>::to_vec).collect();
        let mut link = LineLink::new(Chunks(chunks), tokio::io::sink(), limit);
        let mut seen = Vec::new();
        loop {
            match link.poll_recv(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Received::Message(text)) => seen.push(text.to_owned()),
                Poll::Ready(Received::Bad(bad)) => seen.push(format!("{bad:?}")),
                // Lines have no streams of their own.
                Poll::Ready(Received::Unanswered(..)) => panic!("there is no such end of a line"),
                Poll::Ready(Received::Closed) => return seen,
                Poll::Ready(Received::Failed(error)) => panic!("{error}"),
                Poll::Pending => panic!("the reader is never pending"),
            }
        }
    }

    #[test]
    fn lines_do_not_depend_on_the_chunks() {
        let long = "x".repeat(40);
        let input = format!("one\r\n\n  \ntwo\n{long}\nthree\n\u{e9}\nlast");
        let mut bytes = input.into_bytes();
        bytes.splice(0..0, *b"\xff\xfe\n");
        let expected = ["NotUtf8", "one", "two", "TooLong", "three", "\u{e9}", "last"];
        for chunk in 1..bytes.len() + 1 {
            assert_eq!(all(&bytes, chunk, 20), expected, "chunks of {chunk}");
        }
    }

    #[test]
    fn a_line_at_the_limit_passes_and_one_byte_more_does_not() {
        for chunk in [1, 7, 1 << 20] {
            assert_eq!(all(b"12345\n123456\n1\n", chunk, 5), ["12345", "TooLong", "1"]);
            assert_eq!(all(b"123456", chunk, 5), ["TooLong"]);
        }
    }

    #[test]
    fn the_id_of_an_answer_that_is_too_long_is_found_whatever_the_chunks() {
        let long = "x".repeat(100);
        let input = format!("{{\"id\":1,\"result\":\"{long}\"}}\n{{\"result\":\"{long}\",\"id\":2}}\n{long}\nshort\n");
        for chunk in 1..=input.len() {
            let chunks = input.as_bytes().chunks(chunk).map(<[u8]>::to_vec).collect();
            let mut link = LineLink::new(Chunks(chunks), tokio::io::sink(), 50);
            for expected in [Some(1.into()), Some(2.into()), None] {
                let next = link.poll_recv(&mut Context::from_waker(Waker::noop()));
                assert!(matches!(next, Poll::Ready(Received::Bad(BadFrame::TooLong))), "chunks of {chunk}");
                assert_eq!(link.oversize_answer(), expected, "chunks of {chunk}");
            }
            let next = link.poll_recv(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(next, Poll::Ready(Received::Message("short"))), "chunks of {chunk}");
        }
    }

    #[test]
    fn an_endless_line_does_not_grow_the_buffer() {
        let chunks = std::iter::repeat_n(vec![b'x'; 64 << 10], 100).collect();
        let mut link = LineLink::new(Chunks(chunks), tokio::io::sink(), 100 << 10);
        let end = link.poll_recv(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(end, Poll::Ready(Received::Bad(BadFrame::TooLong))));
        assert!(link.buffer.len() <= (100 << 10) + 2 * CHUNK, "{}", link.buffer.len());
    }
}
