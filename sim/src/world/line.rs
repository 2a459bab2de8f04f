//! One end of a link that carries one message a line, over two pipes: the shape of stdio.

use std::io;
use std::task::{Context, Poll, ready};

use steady_core::kernel::{BadFrame, Link, Received};

use super::pipe::{Arrived, Pipe};

/// Sees what crosses one end of a link.
pub trait Observer: Send {
    /// The first byte of a message leaves: a mark of that moment.
    fn starts(&mut self) -> u64;

    /// A message has left whole that had started at `mark`.
    fn wrote(&mut self, mark: u64, line: &str);

    /// A message has come; whether this end takes it.
    fn read(&mut self, line: &str) -> bool;

    /// What is written instead of this message, of an end that is broken on purpose. `None`: nothing else.
    fn forge(&mut self, _line: &str) -> Option<Vec<String>> {
        None
    }

    /// Whether this end is broken on purpose, so that what it writes has to be looked at before.
    fn forges(&self) -> bool {
        false
    }

    /// This end is gone.
    fn gone(&mut self) {}
}

/// Where lines come together.
#[derive(Debug, Default)]
pub(super) struct Lines {
    bytes: Vec<u8>,
    start: usize,
    looked: usize,
}

impl Lines {
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Moves the next whole line into `into`.
    pub(super) fn take(&mut self, into: &mut Vec<u8>) -> bool {
        let from = self.looked.max(self.start);
        let Some(found) = self.bytes.get(from..).and_then(|rest| rest.iter().position(|byte| *byte == b'\n')) else {
            self.looked = self.bytes.len();
            if self.start > 0 {
                self.bytes.drain(..self.start);
                (self.looked, self.start) = (self.looked - self.start, 0);
            }
            return false;
        };
        let end = from + found;
        into.clear();
        into.extend_from_slice(self.bytes.get(self.start..end).unwrap_or_default());
        (self.start, self.looked) = (end + 1, end + 1);
        true
    }
}

/// One end: what comes in by one pipe and goes out by the other. Dropping it ends what it writes and leaves what it reads.
pub struct LineEnd<O: Observer> {
    input: Pipe,
    output: Pipe,
    lines: Lines,
    current: Vec<u8>,
    /// The start of a message that has not left whole, and when it started to.
    half: Vec<u8>,
    mark: u64,
    /// Of an end that is broken on purpose: what it has still to write.
    forged: Vec<u8>,
    observer: O,
}

impl<O: Observer> LineEnd<O> {
    /// An end of a fresh link.
    pub const fn new(input: Pipe, output: Pipe, observer: O) -> Self {
        let lines = Lines { bytes: Vec::new(), start: 0, looked: 0 };
        Self { input, output, lines, current: Vec::new(), half: Vec::new(), mark: 0, forged: Vec::new(), observer }
    }

    fn note(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.half.is_empty() {
                self.mark = self.observer.starts();
            }
            let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
                self.half.extend_from_slice(bytes);
                return;
            };
            let (line, rest) = bytes.split_at(end);
            if self.half.is_empty() {
                self.observer.wrote(self.mark, str::from_utf8(line).unwrap_or_default());
            } else {
                self.half.extend_from_slice(line);
                self.observer.wrote(self.mark, str::from_utf8(&self.half).unwrap_or_default());
                self.half.clear();
            }
            bytes = rest.get(1..).unwrap_or_default();
        }
    }

    fn poll_forged(&mut self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        while !self.forged.is_empty() {
            let count = ready!(self.output.poll_write(cx, &self.forged))?;
            let written: Vec<u8> = self.forged.drain(..count).collect();
            self.note(&written);
        }
        Poll::Ready(Ok(()))
    }

    /// Takes whole lines, and writes what the observer makes of them.
    fn poll_forge(&mut self, cx: &Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_forged(cx))?;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let text = str::from_utf8(line).unwrap_or_default().trim_end_matches('\n');
            for line in self.observer.forge(text).unwrap_or_else(|| vec![text.to_owned()]) {
                self.forged.extend_from_slice(line.as_bytes());
                self.forged.push(b'\n');
            }
        }
        if let Poll::Ready(Err(error)) = self.poll_forged(cx) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(bytes.len()))
    }
}

impl<O: Observer> Link for LineEnd<O> {
    const BEFORE: &'static [u8] = b"";
    const AFTER: &'static [u8] = b"\n";

    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Received<'_>> {
        loop {
            if self.lines.take(&mut self.current) {
                let text = str::from_utf8(&self.current).unwrap_or_default();
                if !self.observer.read(text) {
                    continue;
                }
                return Poll::Ready(match str::from_utf8(&self.current) {
                    Ok(text) => Received::Message(text),
                    Err(_) => Received::Bad(BadFrame::NotUtf8),
                });
            }
            match ready!(self.input.poll_read(cx, self.lines.buffer())) {
                Arrived::Bytes => {}
                // A message of which the end never came is none.
                Arrived::End => return Poll::Ready(Received::Closed),
                Arrived::Cut => return Poll::Ready(Received::Failed(io::ErrorKind::ConnectionReset.into())),
            }
        }
    }

    fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            match ready!(self.input.poll_read(cx, self.lines.buffer())) {
                Arrived::Bytes => {}
                Arrived::End | Arrived::Cut => return Poll::Ready(()),
            }
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.observer.forges() {
            return self.poll_forge(cx, bytes);
        }
        let count = ready!(self.output.poll_write(cx, bytes))?;
        self.note(bytes.get(..count).unwrap_or_default());
        Poll::Ready(Ok(count))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_forged(cx)
    }
}

impl<O: Observer> Drop for LineEnd<O> {
    fn drop(&mut self) {
        self.output.end();
        self.input.leave();
        self.observer.gone();
    }
}
