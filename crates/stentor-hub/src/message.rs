//! A message: what was published, its place in the order, and the forms it is sent in.
//!
//! A [`Draft`] is what a publisher hands in, checked and measured before the sequencing point. A
//! [`Message`] is a draft that has its place. It never changes, and each form (the head of the
//! value response, each content coding) is rendered when first wanted, and then serves every reader
//! while the cache of rendered messages holds it (`rendered.rs`). There may be millions of
//! messages, most of them small and never read: the size is asserted below.

use std::fmt;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use httpdate::HttpDate;
use serde::de::IgnoredAny;
use stentor_wire::deflate::Inflater;
use stentor_wire::lookup::{json_escaped, json_string_len};
use stentor_wire::negotiate::{Encoding, Encodings};

use crate::encode::{self, Encoder, GzipError};
use crate::field::{self, CacheControl, ContentType, EventName};
use crate::id::{Epoch, Id, Life};
use crate::rendered::{RenderCache, RenderedBytes, RenderedCell, RenderedGuard, RenderedKind};
use crate::rules::{Keep, Rule, Terms};

/// Data shorter than this is never compressed: with a head of its own size in front of it there
/// is next to nothing to win. In bytes.
pub(crate) const COMPRESS_BYTES_MIN: usize = 256;

/// A message before it has its place in the order.
#[derive(Debug, Default)]
pub struct Draft {
    data: Box<[u8]>,
    /// `ContentType::into_parts`; the text of an uncommon one is among the extras.
    content_type: u8,
    compressible: bool,
    extras: Option<Box<Extras>>,
}

/// U+FEFF at the beginning of a text in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// What few messages have.
#[derive(Debug, Default)]
struct Extras {
    content_type: Option<Box<str>>,
    event: Option<EventName>,
    cache_control: Option<CacheControl>,
    /// The body that the publisher compressed.
    gzip: Option<Box<[u8]>>,
    /// Of a deletion: the number of the topic's last value.
    last_seq: u64,
}

/// What a publisher chose of a message: what is written down of it.
pub(crate) struct Parts<'a> {
    pub(crate) data: &'a [u8],
    /// As in [`Draft`].
    pub(crate) content_type: u8,
    pub(crate) other_type: Option<&'a str>,
    pub(crate) event: Option<&'a str>,
    pub(crate) cache_control: Option<&'a str>,
    /// The body that the publisher compressed.
    pub(crate) gzip: Option<&'a [u8]>,
}

impl<'a> Parts<'a> {
    fn of(data: &'a [u8], content_type: u8, extras: Option<&'a Extras>) -> Parts<'a> {
        Parts {
            data,
            content_type,
            other_type: extras.and_then(|extras| extras.content_type.as_deref()),
            event: extras.and_then(|extras| extras.event.as_ref()).map(EventName::as_str),
            cache_control: extras
                .and_then(|extras| extras.cache_control.as_ref())
                .map(CacheControl::as_str),
            gzip: extras.and_then(|extras| extras.gzip.as_deref()),
        }
    }
}

impl Draft {
    /// A message with this data, of type `application/octet-stream`, without event name and
    /// Cache-Control.
    #[must_use]
    pub fn new(data: impl Into<Box<[u8]>>) -> Draft {
        Draft { data: data.into(), ..Draft::default() }
    }

    /// A message from a body that the publisher compressed with gzip. It is unpacked here, once,
    /// to at most `data_bytes_max` bytes; the compressed body is kept and sent to readers who
    /// take gzip. A body of several gzip members is accepted but not kept: browsers stop after
    /// the first.
    ///
    /// # Errors
    ///
    /// If the body is not gzip from its first to its last byte, or unpacks to too much.
    pub fn from_gzip(
        inflater: &mut Inflater,
        body: impl Into<Box<[u8]>>,
        data_bytes_max: usize,
    ) -> Result<Draft, GzipError> {
        let body = body.into();
        let unpacked = encode::gunzip(inflater, &body, data_bytes_max)?;
        let draft = Draft::new(unpacked.data);
        Ok(if unpacked.members == 1 { draft.with_gzip(body) } else { draft })
    }

    /// The same with what its data is compressed.
    pub(crate) fn with_gzip(mut self, body: Box<[u8]>) -> Draft {
        self.extras.get_or_insert_default().gzip = Some(body);
        self
    }

    /// The same with this content type.
    #[must_use]
    pub fn with_content_type(mut self, content_type: ContentType) -> Draft {
        self.compressible = content_type.compressible() && self.data.len() >= COMPRESS_BYTES_MIN;
        let (index, other) = content_type.into_parts();
        self.content_type = index;
        if other.is_some() || self.extras.is_some() {
            self.extras.get_or_insert_default().content_type = other;
        }
        self
    }

    /// The same with the content type of its publisher. JSON loses the byte order mark with which
    /// editors of Windows begin a file: the mark is no part of JSON (RFC 8259 section 8.1), and
    /// readers would receive the value as a string.
    #[must_use]
    pub fn published_as(mut self, content_type: ContentType) -> Draft {
        if let Some(json) = self.data.strip_prefix(BYTE_ORDER_MARK)
            && content_type.is_json()
        {
            self.data = json.into();
        }
        self.with_content_type(content_type)
    }

    /// The same with this event name.
    #[must_use]
    pub fn with_event(mut self, event: EventName) -> Draft {
        self.extras.get_or_insert_default().event = Some(event);
        self
    }

    /// The same with this Cache-Control.
    #[must_use]
    pub fn with_cache_control(mut self, cache_control: CacheControl) -> Draft {
        self.extras.get_or_insert_default().cache_control = Some(cache_control);
        self
    }

    /// What will be the message's data, never compressed.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// See [`Message::stored_bytes`].
    pub(crate) fn stored_bytes(&self) -> usize {
        stored_bytes(&self.data, self.extras.as_deref())
    }

    pub(crate) fn parts(&self) -> Parts<'_> {
        Parts::of(&self.data, self.content_type, self.extras.as_deref())
    }
}

/// When a message was published, as readers see it.
#[derive(Clone, Copy)]
pub(crate) struct PublishedAt {
    /// Unix seconds; good until 2106.
    pub(crate) unix_s: u32,
    /// See [`Message::shares_second`].
    pub(crate) shares_second: bool,
}

impl PublishedAt {
    /// The time of a message that replaces one of the time `before`.
    pub(crate) fn after(before: Option<u64>, now_unix: u64) -> PublishedAt {
        // A clock that was set back must not make the newer value look older.
        let unix_s = now_unix.max(before.unwrap_or(0));
        let unix_s = u32::try_from(unix_s).unwrap_or(u32::MAX);
        PublishedAt { unix_s, shares_second: before == Some(u64::from(unix_s)) }
    }
}

/// A published message: immutable, shared behind an `Arc` by everybody who sends it.
pub struct Message {
    seq: u64,
    terms: Arc<Terms>,
    data: Box<[u8]>,
    extras: Option<Box<Extras>>,
    rendered: RenderedCell,
    /// Unix seconds; good until 2106.
    published_at: u32,
    content_type: u8,
    /// [`COMPRESSIBLE`], [`SHARES_SECOND`], [`DELETION`].
    flags: u8,
    /// One bit per encoding: low half, a client asked for it; high half, compressing was tried.
    /// The bits of identity, which nobody needs to ask for, are [`SUPERSEDED`] and [`DROPPED`].
    asked: AtomicU8,
    /// `Embed` plus one; 0 as long as nobody wanted to know.
    embed: AtomicU8,
}

// With the two counts of its `Arc` a message takes 80 bytes beside its data.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Message>() == 64);

/// One form of the value response. Status line, `Date` and `Server` go before `head`.
#[derive(Clone, Copy, Debug)]
pub struct Form<'a> {
    /// The fields that are the message's own, each ending in CRLF, and the empty line.
    pub head: &'a [u8],
    /// The part of the head that a 304 repeats (RFC 9110 section 15.4.5): its last fields, and the
    /// empty line.
    pub unchanged: &'a [u8],
    /// The content, `Content-Length` bytes.
    pub body: &'a [u8],
    /// The content once more, for a connection to hold, if it is not part of the message.
    pub rendered: Option<&'a Arc<RenderedBytes>>,
}

/// Where the data of a message stands in a JSON document.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JsonPlace {
    /// As a member of a message object: `"data":…`, or `"data_base64":"…"` for bytes.
    Member,
    /// As a value by itself; bytes are an object with the member `data_base64`.
    Value,
}

impl JsonPlace {
    /// What stands before and after the data.
    fn around(self, embed: Embed) -> [&'static [u8]; 2] {
        match (self, embed) {
            (JsonPlace::Member, Embed::Json) => [br#""data":"#, b""],
            (JsonPlace::Member, Embed::Text) => [br#""data":""#, b"\""],
            (JsonPlace::Member, Embed::Bytes) => [br#""data_base64":""#, b"\""],
            (JsonPlace::Value, Embed::Json) => [b"", b""],
            (JsonPlace::Value, Embed::Text) => [b"\"", b"\""],
            (JsonPlace::Value, Embed::Bytes) => [br#"{"data_base64":""#, br#""}"#],
        }
    }
}

/// How a message's data goes into a JSON document.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Embed {
    /// As it is: the content type says JSON and the data is exactly one JSON value.
    Json,
    /// As a JSON string: the content type says otherwise, and the data is UTF-8.
    Text,
    /// In base64: anything else.
    Bytes,
}

impl Message {
    /// Gives a draft its place. Called at the sequencing point, so it does nothing slow.
    pub(crate) fn new(draft: Draft, seq: u64, terms: Arc<Terms>, at: PublishedAt) -> Message {
        let Draft { data, content_type, compressible, extras } = draft;
        let flags = if compressible { COMPRESSIBLE } else { 0 }
            | if at.shares_second { SHARES_SECOND } else { 0 };
        Message {
            seq,
            terms,
            data,
            extras,
            rendered: RenderedCell::default(),
            published_at: at.unix_s,
            content_type,
            flags,
            asked: AtomicU8::new(0),
            embed: AtomicU8::new(0),
        }
    }

    /// A document of the program itself, answered as values are though it is in no hub. Its id is
    /// the number 0, which no message has that was published, of the epoch `named`: a name for
    /// its data, so that every server that has the same tags it alike.
    #[must_use]
    pub fn fixed(draft: Draft, named: Epoch, now_unix_s: u64) -> Message {
        let life = Life { epoch: named, base: 0 };
        let cache = RenderCache::default();
        let terms = Terms { life, generation: 0, rule: Rule::default(), cache };
        Message::new(draft, 0, Arc::new(terms), PublishedAt::after(None, now_unix_s))
    }

    /// The message that says that its topic was deleted, whose value until then was `last_seq`.
    pub(crate) fn deletion(seq: u64, terms: Arc<Terms>, at: PublishedAt, last_seq: u64) -> Message {
        let extras = Some(Box::new(Extras { last_seq, ..Extras::default() }));
        let mut deletion = Message::new(Draft { extras, ..Draft::default() }, seq, terms, at);
        deletion.flags |= DELETION;
        deletion
    }

    /// Its place in the order of all messages.
    #[must_use]
    pub fn id(&self) -> Id {
        self.terms.life.id(self.seq)
    }

    /// Its number in this process: see [`Life`].
    #[must_use]
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// The life of the sequence that it has its id from.
    pub(crate) fn life(&self) -> Life {
        self.terms.life
    }

    /// What becomes of it when the process ends.
    #[must_use]
    pub fn keep(&self) -> Keep {
        self.terms().keep()
    }

    /// Whether it says that its topic was deleted: then it has no data.
    #[must_use]
    pub fn is_deletion(&self) -> bool {
        self.flags & DELETION != 0
    }

    /// Whether the rule it was published under keeps one message only: readers who name no mode
    /// are then sent the newest, not all.
    #[must_use]
    pub fn conflates(&self) -> bool {
        self.terms.conflates()
    }

    pub(crate) fn terms(&self) -> &Arc<Terms> {
        &self.terms
    }

    /// Of a deletion: the number of the topic's last value. 0 for any other message.
    #[must_use]
    pub fn last_seq(&self) -> u64 {
        self.extras.as_ref().map_or(0, |extras| extras.last_seq)
    }

    /// What its publisher chose.
    pub(crate) fn parts(&self) -> Parts<'_> {
        Parts::of(&self.data, self.content_type, self.extras.as_deref())
    }

    /// When it was published, in unix seconds.
    #[must_use]
    pub fn published_at(&self) -> u64 {
        u64::from(self.published_at)
    }

    /// As published.
    #[must_use]
    pub fn content_type(&self) -> &str {
        let other = || self.extras.as_ref()?.content_type.as_deref();
        let common = ContentType::common(self.content_type);
        common.or_else(other).expect("a type that is not common is among the extras")
    }

    /// The event name it was published with.
    #[must_use]
    pub fn event(&self) -> Option<&str> {
        Some(self.extras.as_ref()?.event.as_ref()?.as_str())
    }

    /// The Cache-Control it was published with.
    #[must_use]
    pub fn own_cache_control(&self) -> Option<&str> {
        Some(self.extras.as_ref()?.cache_control.as_ref()?.as_str())
    }

    /// As published, else as the topic's rule says, else `no-cache`; `None` if the rule leaves that
    /// out.
    #[must_use]
    pub fn cache_control(&self) -> Option<&str> {
        let rule = &self.terms.rule;
        let default = || (!rule.leave_out.cache_control).then_some("no-cache");
        let of_rule = || rule.cache_control.as_ref().map(CacheControl::as_str);
        self.own_cache_control().or_else(of_rule).or_else(default)
    }

    /// The data, never compressed.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// Shows `f` the value response in that encoding, if there is one: identity always, the others
    /// once [`Message::compress`] has made them, while they are cached, or if the publisher did.
    pub fn with_form<R>(
        self: &Arc<Self>,
        encoding: Encoding,
        f: impl FnOnce(Form<'_>) -> R,
    ) -> Option<R> {
        if encoding == Encoding::Identity {
            let head = || self.render_head(encoding, self.data.len());
            return Some(self.with_head(head, |head| f(Form::new(head, &self.data, None))));
        }
        let rendered = self.known(RenderedKind::Body(encoding));
        let body = self.own_body(encoding).or(rendered.as_deref().map(|body| &**body))?;
        let head = self.find_or_render(RenderedKind::Head(encoding), || {
            Some(self.render_head(encoding, body.len()))
        })?;
        Some(f(Form::new(&head, body, rendered.as_ref())))
    }

    /// The value in that encoding, if it is part of the message and not rendered.
    #[must_use]
    pub fn own_body(&self, encoding: Encoding) -> Option<&[u8]> {
        match encoding {
            Encoding::Identity => Some(&self.data),
            Encoding::Gzip => self.parts().gzip,
            _ => None,
        }
    }

    /// The encodings that [`Message::with_form`] has by now.
    #[must_use]
    pub fn available(&self) -> Encodings {
        let rendered = self.rendered.load();
        let is_there = |encoding: &Encoding| {
            let of_kind = |it: &RenderedGuard| it.find(RenderedKind::Body(*encoding)).is_some();
            self.own_body(*encoding).is_some() || rendered.as_ref().is_some_and(of_kind)
        };
        Encoding::ALL.into_iter().filter(is_there).collect()
    }

    /// Whether compressing is worth trying: by its content type, and at least
    /// 256 bytes.
    #[must_use]
    pub fn compressible(&self) -> bool {
        self.flags & COMPRESSIBLE != 0
    }

    /// Whether the value before was of the same second, or what was there before it may have been:
    /// `Last-Modified` then does not tell the two apart (RFC 9110, 8.8.2.2), and must not be
    /// compared. Ask [`Hub::dates_tell`](crate::Hub::dates_tell), which knows more.
    #[must_use]
    pub(crate) fn shares_second(&self) -> bool {
        self.flags & SHARES_SECOND != 0
    }

    /// Notes that a client would rather have this encoding. True if the caller should now have
    /// [`Message::compress`] run: the first time, unless it was done already or is not worth it.
    pub fn ask(&self, encoding: Encoding) -> bool {
        let bit = bit(encoding);
        // Read first: on the hot path the bit is set already, and a write would take the cache
        // line from every other worker that serves this message.
        if self.asked.load(Ordering::Relaxed) & bit != 0 || encoding == Encoding::Identity {
            return false;
        }
        let before = self.asked.fetch_or(bit, Ordering::Relaxed);
        let first = before & bit == 0;
        let tried = before & (bit << TRIED_SHIFT) != 0;
        first && !tried && self.compressible() && !self.available().contains(encoding)
    }

    /// Takes an ask back, when the caller could not have it compressed: the next client's ask
    /// counts as the first.
    pub fn forget(&self, encoding: Encoding) {
        self.asked.fetch_and(!bit(encoding), Ordering::Relaxed);
    }

    /// The encodings clients have asked for, whether they exist or not.
    #[must_use]
    pub fn asked(&self) -> Encodings {
        let asked = self.asked.load(Ordering::Relaxed);
        COMPRESSED.into_iter().filter(|encoding| asked & bit(*encoding) != 0).collect()
    }

    /// Makes the form in that encoding, if the message is compressible and still its topic's
    /// value: slow, so not for a worker thread. The form is kept only if it is smaller than the
    /// data; that it was tried is remembered, and it is not tried again.
    pub fn compress(self: &Arc<Self>, encoder: &mut Encoder, encoding: Encoding) {
        let tried = bit(encoding) << TRIED_SHIFT;
        let done = self.asked.load(Ordering::Relaxed) & (tried | SUPERSEDED) != 0;
        if done || !self.compressible() || self.available().contains(encoding) {
            return;
        }
        if let Some(body) = encoder.encode(encoding, &self.data)
            && body.len() < self.data.len()
        {
            // Compressed by now: no reader waits for that.
            self.find_or_render(RenderedKind::Body(encoding), || Some(body.into()));
        }
        self.asked.fetch_or(tried, Ordering::Relaxed);
    }

    /// The topic has a newer value: nobody will be sent this one compressed any more.
    pub(crate) fn supersede(&self) {
        self.asked.fetch_or(SUPERSEDED, Ordering::Relaxed);
    }

    /// Whether it still is its topic's value: no newer one has come, and the topic exists.
    #[must_use]
    pub fn is_value(&self) -> bool {
        self.asked.load(Ordering::Relaxed) & (SUPERSEDED | DROPPED) == 0
    }

    /// Its topic no longer keeps it: it is detached until the last connection drops it.
    pub(crate) fn set_dropped(&self) {
        if self.asked.fetch_or(DROPPED, Ordering::Relaxed) & DROPPED == 0 {
            self.cache().detach(self.stored_bytes());
        }
    }

    /// Whether its topic no longer keeps it, not even as history.
    #[must_use]
    pub fn is_dropped(&self) -> bool {
        self.asked.load(Ordering::Relaxed) & DROPPED != 0
    }

    /// What it takes to keep it, roughly: many empty messages are not nothing. In bytes.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        self.data.len() + FRAMING_BYTES
    }

    /// The memory that it takes, in bytes, without what was rendered of it.
    pub(crate) fn stored_bytes(&self) -> usize {
        stored_bytes(&self.data, self.extras.as_deref())
    }

    /// How the data goes into a JSON document. Found out once, in time linear in the data and
    /// without recursion, so deep nesting does no harm.
    #[must_use]
    pub(crate) fn embed(&self) -> Embed {
        match self.embed.load(Ordering::Relaxed) {
            0 => {
                let embed = self.classify();
                self.embed.store(embed as u8 + 1, Ordering::Relaxed);
                embed
            }
            known if known == Embed::Json as u8 + 1 => Embed::Json,
            known if known == Embed::Text as u8 + 1 => Embed::Text,
            _ => Embed::Bytes,
        }
    }

    /// Appends the data as JSON, where `place` says: what is JSON by its content type and parses is
    /// written as it is, other text as a string, and everything else in base64 (standard alphabet,
    /// padded).
    pub fn write_json(&self, place: JsonPlace, out: &mut Vec<u8>) {
        self.write_json_part(place, 0, usize::MAX, out);
    }

    /// Appends the part of that JSON which at most so many bytes of the data make, from this one
    /// on. Returns where the next part begins; `None` if this was the last.
    pub fn write_json_part(
        &self,
        place: JsonPlace,
        from: usize,
        bytes_max: usize,
        out: &mut Vec<u8>,
    ) -> Option<usize> {
        // Three bytes make a group of base64.
        let to = from.saturating_add((bytes_max / 3).max(1) * 3).min(self.data.len());
        let (part, is_first, is_last) = (&self.data[from..to], from == 0, to == self.data.len());
        let [before, after] = place.around(self.embed());
        if is_first {
            out.extend_from_slice(before);
        }
        match self.embed() {
            Embed::Json => out.extend_from_slice(part),
            Embed::Text => json_escaped(out, part),
            Embed::Bytes => out.extend_from_slice(STANDARD.encode(part).as_bytes()),
        }
        if is_last {
            out.extend_from_slice(after);
        }
        (!is_last).then_some(to)
    }

    /// How many bytes [`Message::write_json`] appends: never fewer than the data has. Found out
    /// without writing them.
    #[must_use]
    pub fn json_len(&self, place: JsonPlace) -> usize {
        let data = match self.embed() {
            Embed::Json => self.data.len(),
            // The quotes are around it.
            Embed::Text => json_string_len(str::from_utf8(&self.data).unwrap_or_default()) - 2,
            Embed::Bytes => self.data.len().div_ceil(3) * 4,
        };
        let [before, after] = place.around(self.embed());
        before.len() + data + after.len()
    }

    fn classify(&self) -> Embed {
        // The JSON parser skips strings without looking at their encoding: UTF-8 comes first.
        match std::str::from_utf8(&self.data) {
            Err(_) => Embed::Bytes,
            Ok(text) => {
                match field::is_json(self.content_type()) {
                    false => Embed::Text,
                    true if serde_json::from_str::<IgnoredAny>(text).is_ok() => Embed::Json,
                    // As a string it would be read as JSON.
                    true => Embed::Bytes,
                }
            }
        }
    }

    fn render_head(&self, encoding: Encoding, content_length: usize) -> Box<[u8]> {
        let leave_out = self.terms.rule.leave_out;
        let published_at = UNIX_EPOCH + Duration::from_secs(self.published_at());
        // With `Accept: text/event-stream` the same address answers with a stream.
        let also = if self.varies() { ", Accept-Encoding" } else { "" };
        let mut head = vec![0; UNCHANGED_AT_BYTES];
        head.reserve_exact(HEAD_BYTES_USUAL);
        // Writing to a vector cannot fail. What a publisher sent is never taken for more than its
        // type says.
        let _ = write!(
            head,
            "Content-Type: {}\r\nX-Content-Type-Options: nosniff\r\n\
             Content-Length: {content_length}\r\n",
            self.content_type()
        );
        if encoding != Encoding::Identity {
            let _ = write!(head, "Content-Encoding: {}\r\n", encoding.token());
        }
        if !leave_out.last_modified {
            let _ = write!(head, "Last-Modified: {}\r\n", HttpDate::from(published_at));
        }
        // A 304 repeats the fields from here on.
        let unchanged_at = (head.len() - UNCHANGED_AT_BYTES) as u16;
        let _ = write!(head, "ETag: \"{}{}\"\r\n", self.id(), encoding.suffix());
        if let Some(event) = self.event() {
            let _ = write!(head, "Stentor-Event: {event}\r\n");
        }
        if let Some(directives) = self.cache_control() {
            let _ = write!(head, "Cache-Control: {directives}\r\n");
        }
        if self.says_vary() {
            let _ = write!(head, "Vary: Accept{also}\r\n");
        }
        head.extend_from_slice(b"\r\n");
        head[..UNCHANGED_AT_BYTES].copy_from_slice(&unchanged_at.to_le_bytes());
        head.into_boxed_slice()
    }

    /// Whether a head says what the answer depends on. A rule may leave that out, and is heeded
    /// only where no cache can give one client what is meant for another: where there is one
    /// encoding, and caches ask before each use. A client that wants a stream is then sent one.
    fn says_vary(&self) -> bool {
        let asks_first = || self.cache_control().is_some_and(field::asks_first);
        !self.terms.rule.leave_out.vary || self.varies() || !asks_first()
    }

    /// Whether the answer may depend on Accept-Encoding: it must say so in every form, even
    /// before the others exist (RFC 9110, 12.5.5).
    #[must_use]
    pub(crate) fn varies(&self) -> bool {
        self.compressible() || self.parts().gzip.is_some()
    }

    /// Rendered bytes, if they are cached.
    pub(crate) fn known(&self, kind: RenderedKind) -> Option<Arc<RenderedBytes>> {
        self.rendered.load()?.find(kind).cloned()
    }

    pub(crate) fn rendered_cell(&self) -> &RenderedCell {
        &self.rendered
    }

    pub(crate) fn cache(&self) -> &RenderCache {
        &self.terms.cache
    }

    /// Drops what was rendered. A body is compressed again when the next client asks for it.
    pub(crate) fn evict_rendered(&self) {
        self.rendered.evict();
        self.asked.fetch_and(SUPERSEDED | DROPPED, Ordering::Relaxed);
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        if self.is_dropped() {
            self.cache().free(self.stored_bytes());
        }
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Message({}, {}, {} bytes)", self.id(), self.content_type(), self.data.len())
    }
}

/// The memory of a message.
fn stored_bytes(data: &[u8], extras: Option<&Extras>) -> usize {
    STORED_BYTES_PER_MESSAGE + data.len() + extras.map_or(0, Extras::stored_bytes)
}

impl Extras {
    fn stored_bytes(&self) -> usize {
        let texts = [
            self.content_type.as_ref().map(|text| text.len()),
            self.event.as_ref().map(|event| event.as_str().len()),
            self.cache_control.as_ref().map(|directives| directives.as_str().len()),
            self.gzip.as_ref().map(|body| body.len()),
        ];
        let texts: usize = texts.into_iter().flatten().map(|len| len + ALLOCATION_BYTES).sum();
        size_of::<Extras>() + ALLOCATION_BYTES + texts
    }
}

/// The memory of a message beside its data: the struct with the counts of its `Arc`, and what an
/// allocator adds to it and to the data.
const STORED_BYTES_PER_MESSAGE: usize = size_of::<Message>() + 16 + 2 * ALLOCATION_BYTES;

/// What an allocator adds to an allocation, on average, in bytes.
const ALLOCATION_BYTES: usize = 16;

impl<'a> Form<'a> {
    /// A form with a head as [`Message::render_head`] has rendered it: where the part begins that a
    /// 304 repeats, in two bytes, and the head itself.
    fn new(head: &'a [u8], body: &'a [u8], rendered: Option<&'a Arc<RenderedBytes>>) -> Form<'a> {
        let (unchanged_at, head) = head.split_at(UNCHANGED_AT_BYTES);
        let unchanged_at = u16::from_le_bytes([unchanged_at[0], unchanged_at[1]]);
        Form { head, unchanged: &head[usize::from(unchanged_at)..], body, rendered }
    }
}

const UNCHANGED_AT_BYTES: usize = size_of::<u16>();

/// The bit of an encoding in `Message::asked`.
fn bit(encoding: Encoding) -> u8 {
    1 << encoding as u8
}

const COMPRESSED: [Encoding; 3] = [Encoding::Gzip, Encoding::Br, Encoding::Zstd];

// Where `bit` puts them, and that both halves of `Message::asked` fit. With a fifth encoding they
// do not: its bit would be that of `DROPPED`.
const _: () = {
    assert!(Encoding::ALL.len() == 1 + COMPRESSED.len());
    assert!(Encoding::ALL.len() <= TRIED_SHIFT as usize && 2 * TRIED_SHIFT <= u8::BITS);
    assert!(Encoding::Identity as u8 == 0 && Encoding::Gzip as u8 == 1);
    assert!(Encoding::Br as u8 == 2 && Encoding::Zstd as u8 == 3);
};

const TRIED_SHIFT: u32 = 4;

const SUPERSEDED: u8 = 1 << Encoding::Identity as u8;
const DROPPED: u8 = SUPERSEDED << TRIED_SHIFT;

/// What a message costs beside its data: an estimate.
const FRAMING_BYTES: usize = 64;

/// Bits of `Message::flags`.
const COMPRESSIBLE: u8 = 1;
const SHARES_SECOND: u8 = 2;
const DELETION: u8 = 4;

/// Room for a usual head: an estimate that saves growing, not a limit.
const HEAD_BYTES_USUAL: usize = 256;

/// Head and body of a form, for tests.
#[cfg(test)]
impl Message {
    pub(crate) fn form(self: &Arc<Self>, encoding: Encoding) -> Option<(String, Vec<u8>)> {
        let text = |head: &[u8]| String::from_utf8(head.to_vec()).expect("a head is text");
        self.with_form(encoding, |form| (text(form.head), form.body.to_vec()))
    }
}

#[cfg(test)]
mod tests;
