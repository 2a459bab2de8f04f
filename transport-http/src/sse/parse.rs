//! The incremental parser. It keeps no line: a field's name is settled within six bytes, and after that every byte goes
//! to the event's data or nowhere.

/// One thing found in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// The data of one event, its lines joined by LF. Lies in the chunk if it could, else in the parser.
    Event(&'a str),
    /// An event that was dropped. The stream goes on (`SSE-4`).
    Rejected(Rejected),
}

/// Why an event was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Rejected {
    /// Its data is longer than the parser's limit.
    #[error("an event is longer than {limit} bytes")]
    TooLong {
        /// The limit in bytes.
        limit: usize,
    },
    /// Its data is not UTF-8.
    #[error("an event is not UTF-8")]
    NotUtf8,
}

/// What a stream has held so far. Saturating.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events given out.
    pub events: u64,
    /// Events dropped.
    pub rejected: u64,
    /// Comment lines.
    pub comments: u64,
    /// `id:` lines: ignored, streams are not resumable (rule H7).
    pub ids: u64,
    /// `retry:` lines: ignored, the pause is our own decision.
    pub retries: u64,
    /// Lines with other fields, `event:` among them: ignored.
    pub others: u64,
}

/// An incremental parser of one SSE stream. Its buffer holds at most its limit; as it grows by doubling, it may occupy
/// twice that. Events that lie whole in a chunk do not use it.
///
/// Give it each chunk and call [`next`](Self::next) until it returns None. Bytes left when the stream ends belong to an
/// unfinished event, which is not one: drop the parser.
#[derive(Clone, Debug)]
pub struct Parser {
    limit: usize,
    data: Vec<u8>,
    /// Whether the current event has a `data` line, kept or not.
    has_data: bool,
    /// Whether the current event is over the limit; its bytes are no longer kept.
    too_long: bool,
    /// Whether `data` was lent out and is cleared before the next byte.
    lent: bool,
    line: Line,
    /// Whether the last byte was a CR, so that an LF now belongs to it.
    after_cr: bool,
    /// How many bytes of the byte order mark were seen, or None once the stream's start is behind.
    mark: Option<usize>,
    counts: Counts,
}

/// Where in a line the parser is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// In the field's name: its first bytes, and how many.
    Name([u8; 5], usize),
    /// Just behind `data:`, where one space is skipped.
    DataStart,
    /// In the value of a `data` field.
    Data,
    /// In a line that is not data. It was counted already.
    Skip,
    /// In the name of a field, too long to be one we know.
    LongName,
}

/// What a complete field name means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Data,
    Comment,
    Id,
    Retry,
    Other,
}

const START: Line = Line::Name([0; 5], 0);
const MARK: [u8; 3] = [0xEF, 0xBB, 0xBF];

impl Parser {
    /// A parser at the start of a stream that drops events with more than `limit` bytes of data.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self {
            limit,
            data: Vec::new(),
            has_data: false,
            too_long: false,
            lent: false,
            line: START,
            after_cr: false,
            mark: Some(0),
            counts: Counts { events: 0, rejected: 0, comments: 0, ids: 0, retries: 0, others: 0 },
        }
    }

    /// What the stream has held so far.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether a stream that ended here ended within an event, which is then lost.
    #[must_use]
    pub const fn is_mid_event(&self) -> bool {
        let fresh_line = matches!(self.line, Line::Name(_, 0));
        self.has_data && !self.lent || !fresh_line
    }

    /// The next item in `chunk`, which is advanced past what was read. None: the chunk is used up.
    ///
    /// Never fails and never panics, whatever the bytes are.
    pub fn next<'a, 'c: 'a>(&'a mut self, chunk: &mut &'c [u8]) -> Option<Item<'a>> {
        if self.lent {
            self.forget_event();
        }
        self.skip_mark(chunk);
        loop {
            if self.after_cr && !chunk.is_empty() {
                self.after_cr = false;
                if let Some(rest) = chunk.strip_prefix(b"\n") {
                    *chunk = rest;
                }
            }
            if chunk.is_empty() {
                return None;
            }
            if let Some(payload) = self.whole_event(chunk) {
                return Some(self.judge_borrowed(payload));
            }
            let rest: &'c [u8] = chunk;
            let Some(end) = memchr::memchr2(b'\n', b'\r', rest) else {
                self.take(rest);
                *chunk = &[];
                return None;
            };
            let (part, tail) = rest.split_at(end);
            self.take(part);
            self.after_cr = tail.first() == Some(&b'\r');
            *chunk = tail.get(1..).unwrap_or_default();
            if self.end_line() && self.has_data {
                return Some(self.judge_kept());
            }
        }
    }

    /// The common case: one `data` line and its blank line, both complete in the chunk. Takes them from it.
    fn whole_event<'c>(&mut self, chunk: &mut &'c [u8]) -> Option<&'c [u8]> {
        if self.line != START || self.has_data {
            return None;
        }
        let value = chunk.strip_prefix(b"data:")?;
        let end = memchr::memchr2(b'\n', b'\r', value)?;
        let (payload, tail) = value.split_at(end);
        let payload = payload.strip_prefix(b" ").unwrap_or(payload);
        let tail = tail.strip_prefix(b"\r\n").or_else(|| tail.get(1..))?;
        let (blank, rest) = tail.split_first()?;
        if !matches!(blank, b'\n' | b'\r') || payload.len() > self.limit {
            return None;
        }
        self.after_cr = *blank == b'\r';
        *chunk = rest;
        Some(payload)
    }

    fn judge_borrowed<'c>(&mut self, payload: &'c [u8]) -> Item<'c> {
        judge(&mut self.counts, payload)
    }

    fn judge_kept(&mut self) -> Item<'_> {
        self.lent = true;
        if self.too_long {
            bump(&mut self.counts.rejected);
            Item::Rejected(Rejected::TooLong { limit: self.limit })
        } else {
            judge(&mut self.counts, &self.data)
        }
    }

    fn forget_event(&mut self) {
        self.data.clear();
        self.has_data = false;
        self.too_long = false;
        self.lent = false;
    }

    /// Skips a byte order mark at the start of the stream, in whatever pieces it comes.
    fn skip_mark(&mut self, chunk: &mut &[u8]) {
        while let Some(seen) = self.mark {
            let Some((first, rest)) = chunk.split_first() else {
                return;
            };
            if MARK.get(seen) == Some(first) {
                *chunk = rest;
                self.mark = (seen + 1 < MARK.len()).then_some(seen + 1);
            } else {
                // Part of a mark begins a field name that nobody knows.
                if seen > 0 {
                    self.line = Line::LongName;
                }
                self.mark = None;
            }
        }
    }

    /// Takes bytes of one line, without its end.
    fn take(&mut self, mut part: &[u8]) {
        while let Some((first, rest)) = part.split_first() {
            match self.line {
                Line::Name(name, length) => {
                    part = rest;
                    self.name_byte(name, length, *first);
                }
                Line::LongName => match memchr::memchr(b':', part) {
                    Some(_) => {
                        self.field(Field::Other);
                        return;
                    }
                    None => return,
                },
                Line::DataStart => {
                    self.line = Line::Data;
                    if *first == b' ' {
                        part = rest;
                    }
                }
                Line::Data => {
                    self.keep(part);
                    return;
                }
                Line::Skip => return,
            }
        }
    }

    fn name_byte(&mut self, mut name: [u8; 5], length: usize, byte: u8) {
        if byte == b':' {
            let known = name.get(..length).map_or(Field::Other, field);
            self.field(known);
        } else if let Some(slot) = name.get_mut(length) {
            *slot = byte;
            self.line = Line::Name(name, length + 1);
        } else {
            self.line = Line::LongName;
        }
    }

    /// A field's name is complete: counts it and starts its value.
    fn field(&mut self, field: Field) {
        self.line = Line::Skip;
        match field {
            Field::Data => {
                self.line = Line::DataStart;
                if self.has_data {
                    self.keep(b"\n");
                }
                self.has_data = true;
            }
            Field::Comment => bump(&mut self.counts.comments),
            Field::Id => bump(&mut self.counts.ids),
            Field::Retry => bump(&mut self.counts.retries),
            Field::Other => bump(&mut self.counts.others),
        }
    }

    /// A line ended. Returns whether it was blank, which ends the event.
    fn end_line(&mut self) -> bool {
        match core::mem::replace(&mut self.line, START) {
            Line::Name(_, 0) => return true,
            // A line without a colon is a field with an empty value.
            Line::Name(name, length) => {
                self.field(name.get(..length).map_or(Field::Other, field));
                self.line = START;
            }
            Line::LongName => bump(&mut self.counts.others),
            Line::DataStart | Line::Data | Line::Skip => {}
        }
        false
    }

    fn keep(&mut self, part: &[u8]) {
        if self.too_long {
            return;
        }
        if part.len() > self.limit.saturating_sub(self.data.len()) {
            self.too_long = true;
            self.data.clear();
        } else {
            self.data.extend_from_slice(part);
        }
    }
}

fn field(name: &[u8]) -> Field {
    match name {
        b"" => Field::Comment,
        b"data" => Field::Data,
        b"id" => Field::Id,
        b"retry" => Field::Retry,
        _ => Field::Other,
    }
}

fn judge<'a>(counts: &mut Counts, payload: &'a [u8]) -> Item<'a> {
    match core::str::from_utf8(payload) {
        Ok(text) => {
            bump(&mut counts.events);
            Item::Event(text)
        }
        Err(_) => {
            bump(&mut counts.rejected);
            Item::Rejected(Rejected::NotUtf8)
        }
    }
}

fn bump(count: &mut u64) {
    *count = count.saturating_add(1);
}
