//! The bodies of the fuzz targets: bytes in, a panic if something that must hold does not.
//!
//! The fuzz targets and the replay of their seeds include this file, so both check the same.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher;
use std::time::Duration;

use serde_json::value::RawValue;
use steady_core::coordinator::{Cancelled, Config, Effect, Event, Polled, RequestCoordinator, Start};
use steady_core::deadline::Limits;
use steady_core::id::{ProgressToken, RequestId};
use steady_core::mrtr::{Binding, Mac, Outcome, Retry, Sealer, Stamp, StateError, is_final, read_result};
use steady_core::outbound::{self, Handle, Item, Outbound, Popped, SendPermit};
use steady_core::progress::Progress;
use steady_core::rpc::{BadMessage, Body, Message, encode, parse, read_cancellation, read_progress, request_meta};
use steady_core::time::{Instant, WallTime};

const CAPABILITIES: &str = r#"{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{}},"roots":{}}"#;

/// A message is read without a panic, as JSON exactly if serde_json agrees, and what is written again is read the same.
pub(crate) fn envelope(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let json = serde_json::from_str::<&RawValue>(text).is_ok();
    match parse(text) {
        Err(BadMessage::NotJson) => assert!(!json, "JSON was refused as none"),
        Err(BadMessage::Envelope | BadMessage::Id) => assert!(json, "what is no JSON has no envelope"),
        Err(bad) => drop(bad.id().cloned()),
        Ok(message) => {
            assert!(json, "what is no JSON was read");
            read(&message);
        }
    }
}

fn read(message: &Message<'_>) {
    let mut out = Vec::new();
    match message {
        Message::Request { id, method, params } => {
            let params = params.map_or("{}", RawValue::get);
            encode::request(&mut out, id, method, params);
            let again = std::str::from_utf8(&out).expect("UTF-8");
            assert!(!again.contains('\n'), "one line");
            let Ok(Message::Request { id: again, method: same, .. }) = parse(again) else { panic!("{again}") };
            assert_eq!((id, &**method), (&again, &*same));
            let raw: &RawValue = serde_json::from_str(params).expect("JSON");
            if let Ok(meta) = request_meta(method, Some(raw)) {
                assert!(serde_json::from_str::<&RawValue>(meta.client_capabilities).is_ok());
            }
            let _retry: Result<_, _> = Retry::read(params);
            let _binding: Result<_, _> = Binding::of("p", method, params);
        }
        Message::Notification { params: Some(params), .. } => {
            if let Some(cancellation) = read_cancellation(params.get()) {
                encode::cancelled(&mut out, &cancellation.id, cancellation.reason.as_deref());
                let again = String::from_utf8(out).expect("UTF-8");
                let Ok(Message::Notification { params: Some(params), .. }) = parse(&again) else { panic!("{again}") };
                assert_eq!(read_cancellation(params.get()), Some(cancellation));
            }
            let _progress: Option<_> = read_progress(params.get());
        }
        Message::Response { body: Body::Result(result), .. } => result_of_a_call(result.get()),
        Message::Notification { params: None, .. } | Message::Response { .. } => {}
    }
}

fn result_of_a_call(result: &str) {
    let Ok(outcome) = read_result("tools/call", CAPABILITIES, result) else { return };
    assert_eq!(is_final(result), outcome == Outcome::Final, "I5");
    let Outcome::Input(input) = outcome else { return };
    let answers: Vec<(&str, &str)> = input.requests.iter().map(|request| (&*request.key, "{}")).collect();
    let mut out = Vec::new();
    input.retry(&mut out, (&1.into(), &2.into()), "tools/call", "{}", &answers).expect("all is answered");
    let text = std::str::from_utf8(&out).expect("UTF-8");
    let Ok(Message::Request { params: Some(params), .. }) = parse(text) else { panic!("{text}") };
    let _retry = Retry::read(params.get());
}

/// A keyed digest that needs no dependency.
struct ToyMac;

impl Mac for ToyMac {
    fn mac(&self, message: &[u8]) -> [u8; 32] {
        let mut out = [0; 32];
        for (lane, place) in out.chunks_mut(8).enumerate() {
            let mut hasher = std::hash::DefaultHasher::new();
            hasher.write_usize(lane);
            hasher.write(message);
            place.copy_from_slice(&hasher.finish().to_be_bytes());
        }
        out
    }
}

/// A state opens as it was sealed, and neither a changed one nor one that was never sealed opens.
pub(crate) fn sealed_state(data: &[u8]) {
    let sealer = Sealer::new(ToyMac);
    let binding = Binding::of("ann", "tools/call", r#"{"name":"order"}"#).expect("a request");
    let now = WallTime::from_unix_millis(5);
    if let Ok(text) = std::str::from_utf8(data) {
        let result = sealer.open(now, &binding, text);
        assert!(matches!(result, Err(StateError::Malformed | StateError::Forged)), "forged");
    }
    let (Some(&[high, low, change]), value) = (data.first_chunk::<3>(), data.get(3..).unwrap_or_default()) else {
        return;
    };
    let stamp = Stamp { issued: now, lifetime: Duration::from_secs(1), nonce: u128::from(change) };
    let state = sealer.seal(stamp, &binding, value);
    match sealer.open(now, &binding, &state) {
        Ok(opened) => assert_eq!(opened.value, value),
        Err(error) => {
            assert!(error == StateError::Malformed && value.len() > 1 << 15, "only what is too long: {error}")
        }
    }
    let mut bytes = state.into_bytes();
    let at = usize::from(u16::from_be_bytes([high, low])) % bytes.len();
    bytes[at] ^= change;
    if let (true, Ok(changed)) = (change != 0, std::str::from_utf8(&bytes)) {
        assert!(sealer.open(now, &binding, changed).is_err(), "a changed state opens");
    }
}

/// Bytes as a source of choices; zeros when they are spent.
struct Choices<'a>(std::slice::Iter<'a, u8>);

impl Choices<'_> {
    fn more(&self) -> bool {
        !self.0.as_slice().is_empty()
    }

    fn below(&mut self, end: u8) -> u8 {
        self.0.next().map_or(0, |byte| byte % end)
    }
}

/// What the events target knows of one connection.
struct Connection {
    coordinator: RequestCoordinator,
    outbound: Outbound,
    now: Instant,
    /// Started, and neither cancelled nor answered on the wire: their last progress, and whether a final is due.
    live: BTreeMap<Handle, (f64, bool)>,
    listens: BTreeSet<Handle>,
    /// Handlers that have not ended.
    running: Vec<Handle>,
    closed: bool,
}

const IN_FLIGHT: usize = 3;

/// A list of events through the coordinator and the outbound buffer, as the kernel connects them.
pub(crate) fn events(data: &[u8]) {
    let mut choices = Choices(data.iter());
    let limits = Limits { idle: Some(Duration::from_millis(30)), maximum: Some(Duration::from_millis(100)) };
    let config = Config {
        in_flight: IN_FLIGHT,
        stragglers: 4,
        listens: 4,
        limits,
        progress_interval: Duration::from_millis(10),
    };
    let mut connection = Connection {
        coordinator: RequestCoordinator::new(config),
        outbound: Outbound::new(outbound::Config { capacity: 4, finals: IN_FLIGHT, ..Default::default() }),
        now: Instant::ZERO,
        live: BTreeMap::new(),
        listens: BTreeSet::new(),
        running: Vec::new(),
        closed: false,
    };
    while choices.more() {
        connection.step(&mut choices);
        connection.check();
    }
}

impl Connection {
    fn step(&mut self, choices: &mut Choices<'_>) {
        match choices.below(9) {
            0 => self.start(choices),
            1 => self.cancel(id(choices)),
            2 => self.report(choices),
            3 => self.end(choices),
            4 => self.now = self.now + Duration::from_millis(u64::from(choices.below(60))),
            5 => self.timers(),
            6 => self.send(),
            7 => {
                let ended = usize::from(choices.below(8));
                if ended < self.running.len() {
                    self.coordinator.handler_ended(self.running.swap_remove(ended));
                }
            }
            _ if choices.below(8) == 0 => self.close(),
            _ => {}
        }
    }

    fn start(&mut self, choices: &mut Choices<'_>) {
        let start = Start {
            id: id(choices),
            token: (choices.below(2) == 1).then(|| ProgressToken(id(choices))),
            listen: choices.below(4) == 1,
        };
        let (listen, known) = (start.listen, self.coordinator.knows(&start.id));
        let Ok(handle) = self.coordinator.start(self.now, start, |request| request) else { return };
        assert!(!known && !self.closed, "COORD-2: admitted beside its namesake, or after the end");
        self.outbound.open(handle, "p");
        self.coordinator.arm_deadline(handle);
        assert_eq!(self.live.insert(handle, (0.0, true)), None, "a handle is used once");
        self.running.push(handle);
        if listen {
            self.listens.insert(handle);
        }
    }

    fn cancel(&mut self, id: RequestId) {
        match self.coordinator.cancel(self.now, &id) {
            Cancelled::Ended(handle, _) => self.forget(handle),
            Cancelled::TooLate(handle) => assert!(self.live.get(&handle).is_some_and(|(_, due)| !due)),
            Cancelled::Unknown => {}
        }
    }

    fn forget(&mut self, handle: Handle) {
        self.outbound.purge(handle);
        assert!(self.live.remove(&handle).is_some_and(|(_, due)| due), "REQ-1");
    }

    fn pick(&self, choices: &mut Choices<'_>) -> Option<Handle> {
        let nth = usize::from(choices.below(u8::try_from(IN_FLIGHT).unwrap_or(1)));
        self.coordinator.handles().nth(nth)
    }

    fn report(&mut self, choices: &mut Choices<'_>) {
        let (Some(handle), value) = (self.pick(choices), f64::from(choices.below(50))) else { return };
        let Some(progress) = Progress::new(value) else { return };
        let event = if choices.below(2) == 0 { Event::Report(progress) } else { Event::ReportNow(progress) };
        let Some(request) = self.coordinator.seat(handle) else { return };
        let effect = request.handle(self.now, event);
        let wake_at = request.wake_at();
        if effect == Effect::Forward {
            let _pushed = self.outbound.progress(handle, value, None, "");
        }
        self.settle(handle, effect);
        if let Some(at) = wake_at {
            self.coordinator.arm(handle, at);
        }
    }

    fn end(&mut self, choices: &mut Choices<'_>) {
        let Some(handle) = self.pick(choices) else { return };
        let effect = if choices.below(4) == 0 {
            match self.coordinator.end_listen(self.now, handle) {
                Ok(end) => end.effect,
                Err(_) => {
                    let open = self.live.get(&handle).is_some_and(|(_, due)| *due);
                    assert!(!open || !self.listens.contains(&handle), "COORD-5");
                    return;
                }
            }
        } else {
            let Some(request) = self.coordinator.seat(handle) else { return };
            request.handle(self.now, Event::Complete)
        };
        self.settle(handle, effect);
    }

    fn settle(&mut self, handle: Handle, effect: Effect) {
        if let Effect::Respond { permit, .. } | Effect::Expired { permit, .. } = effect {
            self.answer(handle, permit);
        }
    }

    fn answer(&mut self, handle: Handle, permit: SendPermit) {
        let due = self.live.get_mut(&handle).map(|(_, due)| std::mem::take(due));
        assert_eq!((permit.handle(), due), (handle, Some(true)), "REQ-2");
        self.outbound.finish(permit, b"final".to_vec()).expect("admission kept its place");
    }

    fn timers(&mut self) {
        loop {
            match self.coordinator.poll(self.now) {
                Polled::Acted(handle, effect) => self.settle(handle, effect),
                Polled::Idle { wake_at } => {
                    assert!(wake_at.is_none_or(|at| at > self.now), "COORD-4");
                    return;
                }
            }
        }
    }

    fn send(&mut self) {
        let popped =
            self.outbound.pop(|item| if let Item::Progress { progress, .. } = item { Some(progress) } else { None });
        let Some((Popped { handle: Some(handle), last }, progress)) = popped else { return };
        let state = self.live.get_mut(&handle).expect("nothing of a cancelled or answered request leaves");
        if let Some(progress) = progress {
            assert!(progress >= state.0, "PROG-1");
            state.0 = progress;
        }
        if last {
            assert_eq!(self.live.remove(&handle).map(|(_, due)| due), Some(false));
            assert!(self.coordinator.release(handle).is_some());
        }
    }

    fn close(&mut self) {
        self.closed = true;
        for (handle, _) in self.coordinator.close(self.now, Event::Lost) {
            self.forget(handle);
        }
    }

    fn check(&self) {
        assert!(self.coordinator.in_flight() <= IN_FLIGHT, "COORD-1");
        assert_eq!(self.coordinator.in_flight(), self.live.len(), "COORD-3");
        let stragglers = self.running.iter().filter(|handle| !self.live.contains_key(handle)).count();
        assert_eq!(self.coordinator.stragglers(), stragglers);
    }
}

fn id(choices: &mut Choices<'_>) -> RequestId {
    let nth = choices.below(6);
    if nth.is_multiple_of(2) {
        RequestId::Integer(i64::from(nth / 2))
    } else {
        RequestId::from(["0", "1", "2"][usize::from(nth / 2)])
    }
}

const STREAMS: usize = 4;

/// Operations on the outbound buffer against what they must leave behind.
pub(crate) fn outbound(data: &[u8]) {
    let mut choices = Choices(data.iter());
    let config = outbound::Config {
        capacity: 1 + usize::from(choices.below(5)),
        bytes: 64,
        finals: 2,
        kept_bytes: 256,
        lossless: 2,
        lossless_bytes: 64,
        refusals: 1,
        coalesce: if choices.below(2) == 0 { outbound::Coalesce::SameToken } else { outbound::Coalesce::Adjacent },
    };
    let mut buffer = Outbound::new(config);
    // Of each stream: its generation (counted from 1), its newest value, the last that left, and whether its final waits.
    let mut streams = [(1u32, 0.0f64, 0.0f64, false); STREAMS];
    while choices.more() {
        let index = choices.below(4);
        let stream = &mut streams[usize::from(index)];
        let handle = Handle::new(u32::from(index), stream.0);
        let len = usize::from(choices.below(80));
        match choices.below(9) {
            0 if !stream.3 => {
                *stream = (stream.0 + 1, 0.0, 0.0, false);
                buffer.open(Handle::new(u32::from(index), stream.0), "p");
            }
            1 | 2 => {
                stream.1 += 1.0;
                let _pushed = buffer.progress(handle, stream.1, None, &"m".repeat(len));
            }
            3 => {
                stream.1 += 1.0;
                let _room = buffer.lossless(handle, stream.1.to_string().as_bytes());
            }
            4 if !stream.3 => {
                let permit = permit(handle);
                match buffer.finish(permit, vec![b'f'; len]) {
                    Ok(()) => stream.3 = true,
                    Err(refused) => assert_eq!((refused.permit.handle(), refused.body.len()), (handle, len)),
                }
            }
            // A request whose final waits is not cancelled: the coordinator says that it is too late.
            5 if !stream.3 => {
                buffer.purge(handle);
                *stream = (stream.0 + 1, 0.0, 0.0, false);
            }
            6 => drop(buffer.take_lost()),
            7 => assert!(buffer.can_refuse() == buffer.refuse(vec![b'r'; len])),
            _ => pop(&mut buffer, &mut streams),
        }
        assert!(buffer.evictable() <= config.capacity, "OUT-1");
        assert!(buffer.finals() <= config.finals, "OUT-1");
    }
    while !buffer.is_empty() {
        pop(&mut buffer, &mut streams);
    }
    assert!(streams.iter().all(|stream| !stream.3), "OUT-2");
}

fn pop(buffer: &mut Outbound, streams: &mut [(u32, f64, f64, bool); STREAMS]) {
    let popped = buffer.pop(|item| match item {
        Item::Progress { progress, .. } => Some(progress),
        Item::Text(text) => std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()),
    });
    let Some((Popped { handle: Some(handle), last }, value)) = popped else { return };
    let stream = &mut streams[handle.index() as usize];
    assert_eq!(handle, Handle::new(handle.index(), stream.0), "OUT-3: of a stream that is gone");
    if last {
        assert!(stream.3, "OUT-2");
        *stream = (stream.0 + 1, 0.0, 0.0, false);
    } else if let Some(value) = value {
        assert!(value > stream.2, "OUT-4");
        stream.2 = value;
    }
}

/// The permit of a request that completes under this handle.
fn permit(handle: Handle) -> SendPermit {
    use steady_core::coordinator::ServedRequest;
    let mut request = ServedRequest::start(Instant::ZERO, handle, Limits::default(), false, Duration::ZERO);
    let Effect::Respond { permit, .. } = request.handle(Instant::ZERO, Event::Complete) else { panic!("in flight") };
    permit
}
