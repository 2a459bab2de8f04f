//! The SSE codec: tables for the rules, and properties against a parser that sees the whole stream at once.

use proptest::prelude::*;
use steady_http::sse::{self, Counts, Item, LineBreak, Parser, Rejected};

#[derive(Clone, Debug, PartialEq, Eq)]
enum Owned {
    Event(String),
    Rejected(Rejected),
}

fn own(item: Item<'_>) -> Owned {
    match item {
        Item::Event(text) => Owned::Event(text.to_owned()),
        Item::Rejected(why) => Owned::Rejected(why),
    }
}

fn parse<'a>(chunks: impl IntoIterator<Item = &'a [u8]>, limit: usize) -> (Vec<Owned>, Counts) {
    let mut parser = Parser::new(limit);
    let mut items = Vec::new();
    for mut chunk in chunks {
        while let Some(item) = parser.next(&mut chunk) {
            items.push(own(item));
        }
        assert!(chunk.is_empty());
    }
    (items, parser.counts())
}

fn events(text: &str) -> Vec<String> {
    let (items, _) = parse([text.as_bytes()], 1000);
    items
        .into_iter()
        .map(|item| match item {
            Owned::Event(text) => text,
            Owned::Rejected(why) => panic!("{why}"),
        })
        .collect()
}

#[test]
fn the_format_by_example() {
    let table: [(&str, &[&str]); 14] = [
        ("data: a\n\n", &["a"]),
        ("data:a\n\n", &["a"]),
        ("data:  a\n\n", &[" a"]),
        ("data: a\r\n\r\ndata: b\r\rdata: c\n\n", &["a", "b", "c"]),
        ("data: a\ndata: b\n\n", &["a\nb"]),
        ("data: a\r\ndata\r\ndata: b\r\n\r\n", &["a\n\nb"]),
        ("data\n\n", &[""]),
        ("data:\n\n", &[""]),
        (": note\n\n:\n\ndata: a\n\n", &["a"]),
        (": x\ndata: a\n: y\ndata: b\n\n", &["a\nb"]),
        ("id: 7\nretry: 1\nevent: message\ndata: a\n\n", &["a"]),
        ("\u{feff}data: a\n\n", &["a"]),
        ("datum: x\ndat: x\nDATA: x\n data: x\n\n", &[]),
        ("data: unfinished\n", &[]),
    ];
    for (text, expected) in table {
        assert_eq!(events(text), expected, "{text:?}");
    }
}

#[test]
fn what_is_ignored_is_counted() {
    let text = ": c\nid\nid: 1\nretry: 2\nretrying: 3\nevent: message\nlongname\ndata: a\n\n";
    let (items, counts) = parse([text.as_bytes()], 100);
    assert_eq!(items, [Owned::Event("a".to_owned())]);
    let expected = Counts { events: 1, rejected: 0, comments: 1, ids: 2, retries: 1, others: 3 };
    assert_eq!(counts, expected);
}

#[test]
fn a_bad_event_costs_that_event_only() {
    let long = "x".repeat(9);
    let text = format!("data: {long}\n\ndata: a\n\ndata: 12345\ndata: 67\n\ndata: 12345\ndata: 678\n\n");
    let (items, counts) = parse([text.as_bytes(), b"data: \xFF\n\ndata: b\n\n"], 8);
    let long = Owned::Rejected(Rejected::TooLong { limit: 8 });
    let expected = [
        long.clone(),
        Owned::Event("a".to_owned()),
        Owned::Event("12345\n67".to_owned()),
        long,
        Owned::Rejected(Rejected::NotUtf8),
        Owned::Event("b".to_owned()),
    ];
    assert_eq!(items, expected);
    assert_eq!((counts.events, counts.rejected), (3, 3));
}

#[test]
fn a_long_comment_or_unknown_field_is_no_event_and_not_kept() {
    let text = format!(":{}\n{}: x\ndata: a\n\n", "c".repeat(10_000), "f".repeat(10_000));
    let (items, counts) = parse([text.as_bytes()], 4);
    assert_eq!(items, [Owned::Event("a".to_owned())]);
    assert_eq!((counts.comments, counts.others), (1, 1));
}

#[test]
fn an_event_that_lies_whole_in_the_chunk_is_borrowed_from_it() {
    let text = b"data: hello\n\ndata: there\r\n\r\n";
    let range = text.as_ptr_range();
    let mut parser = Parser::new(100);
    let mut chunk = text.as_slice();
    let mut seen = 0;
    while let Some(Item::Event(data)) = parser.next(&mut chunk) {
        assert!(range.contains(&data.as_ptr()));
        seen += 1;
    }
    assert_eq!(seen, 2);
}

#[test]
fn a_stream_cut_within_an_event_says_so() {
    for (text, cut) in [("data: a\n\n", false), ("data: a\n", true), ("da", true), ("data: a\n\n:", true), ("", false)]
    {
        let mut parser = Parser::new(100);
        let mut chunk = text.as_bytes();
        while parser.next(&mut chunk).is_some() {}
        assert_eq!(parser.is_mid_event(), cut, "{text:?}");
    }
}

#[test]
fn the_encoder_writes_no_id_and_no_retry() {
    let mut out = Vec::new();
    sse::write_event(&mut out, "{\"a\":1}");
    sse::write_keep_alive(&mut out);
    assert_eq!(sse::write_comment(&mut out, "still here"), Ok(()));
    sse::write_event(&mut out, "{\r\n}\nx\ry");
    let expected = "data: {\"a\":1}\n\n:\n\n: still here\ndata: {\ndata: }\ndata: x\ndata: y\n\n";
    assert_eq!(String::from_utf8(out.clone()).unwrap(), expected);
    let before = out.clone();
    assert_eq!(sse::write_comment(&mut out, "a\ndata: forged"), Err(LineBreak));
    assert_eq!(sse::write_comment(&mut out, "a\rb"), Err(LineBreak));
    assert_eq!(out, before);
}

/// The format once more, for a whole stream in memory, by splitting into lines.
fn reference(stream: &[u8], limit: usize) -> (Vec<Owned>, Counts) {
    let stream = stream.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(stream);
    let mut items = Vec::new();
    let mut counts = Counts::default();
    let mut data: Vec<Vec<u8>> = Vec::new();
    let mut rest = stream;
    while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
        let line = &rest[..end];
        let width = if rest[end..].starts_with(b"\r\n") { 2 } else { 1 };
        rest = &rest[end + width..];
        if line.is_empty() {
            if data.is_empty() {
                continue;
            }
            let joined = data.join(&b'\n');
            data.clear();
            let item = if joined.len() > limit {
                Owned::Rejected(Rejected::TooLong { limit })
            } else {
                String::from_utf8(joined).map_or(Owned::Rejected(Rejected::NotUtf8), Owned::Event)
            };
            match &item {
                Owned::Event(_) => counts.events += 1,
                Owned::Rejected(_) => counts.rejected += 1,
            }
            items.push(item);
            continue;
        }
        let colon = line.iter().position(|byte| *byte == b':');
        let (name, value) = colon.map_or((line, &b""[..]), |at| (&line[..at], &line[at + 1..]));
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"data" => data.push(value.to_vec()),
            b"" => counts.comments += 1,
            b"id" => counts.ids += 1,
            b"retry" => counts.retries += 1,
            _ => counts.others += 1,
        }
    }
    (items, counts)
}

/// Bytes that are likely to be a stream: pieces of the format, in any order.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        prop::sample::select(vec![
            &b"data: "[..],
            b"data:",
            b"data",
            b"dat",
            b"id: 1",
            b"retry: 2",
            b"event: e",
            b"retryx",
            b":",
            b": c",
            b" ",
            b"{\"a\":1}",
            b"\n",
            b"\n",
            b"\n\n",
            b"\r",
            b"\r\n",
            b"\r\n\r\n",
            b"\xEF\xBB\xBF",
            b"\xEF",
            b"\xFF",
            b"0123456789",
            "\u{e9}".as_bytes(),
        ])
        .prop_map(<[u8]>::to_vec),
        prop::collection::vec(any::<u8>(), 0..4),
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

fn cut<'a>(mut stream: &'a [u8], sizes: &[usize]) -> Vec<&'a [u8]> {
    let mut chunks = Vec::new();
    for size in sizes {
        let (chunk, rest) = stream.split_at((*size).min(stream.len()));
        chunks.push(chunk);
        stream = rest;
    }
    chunks.push(stream);
    chunks
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..ProptestConfig::default() })]

    /// `SSE-1`, and the parser agrees with the reference.
    #[test]
    fn any_chunking_gives_the_same_items(
        stream in stream(),
        sizes in prop::collection::vec(0_usize..6, 0..60),
        limit in 0_usize..24,
    ) {
        let whole = parse([stream.as_slice()], limit);
        prop_assert_eq!(&parse(cut(&stream, &sizes), limit), &whole);
        prop_assert_eq!(&parse(stream.chunks(1), limit), &whole);
        // The reference sees lines only, the parser counts a comment at its colon: end the last line.
        let mut ended = stream;
        ended.push(b'\n');
        prop_assert_eq!(parse([ended.as_slice()], limit), reference(&ended, limit));
    }

    /// `SSE-2`.
    #[test]
    fn encode_then_parse_is_the_identity(
        payloads in prop::collection::vec("[^\\r]{0,20}|[\\n a:\u{feff}]{0,5}", 0..5),
        sizes in prop::collection::vec(0_usize..9, 0..40),
        comments in any::<bool>(),
    ) {
        let mut out = Vec::new();
        for payload in &payloads {
            if comments {
                sse::write_keep_alive(&mut out);
                prop_assert_eq!(sse::write_comment(&mut out, "data: no"), Ok(()));
            }
            sse::write_event(&mut out, payload);
        }
        let (items, counts) = parse(cut(&out, &sizes), usize::MAX);
        let expected: Vec<_> = payloads.into_iter().map(Owned::Event).collect();
        prop_assert_eq!(counts.ids + counts.retries + counts.others, 0);
        prop_assert_eq!(items, expected);
    }

    /// A payload with CR comes back with LF in its place, which JSON does not notice.
    #[test]
    fn carriage_returns_become_line_feeds(payload in "[\\r\\na{}]{0,12}") {
        let mut out = Vec::new();
        sse::write_event(&mut out, &payload);
        let expected = payload.replace("\r\n", "\n").replace('\r', "\n");
        prop_assert_eq!(parse([out.as_slice()], 100).0, [Owned::Event(expected)]);
    }

    #[test]
    fn arbitrary_bytes_never_panic(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..10)) {
        let _ = parse(chunks.iter().map(Vec::as_slice), 16);
    }
}
