//! A file ready to be sent: its head and body in each encoding there is.

use httpdate::HttpDate;
use std::io::Write;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, UNIX_EPOCH};
use stentor_io::{FileStamp, FileStatus};
use stentor_wire::negotiate::{Encoding, Encodings};
use twox_hash::XxHash3_64;

/// A strong entity tag with its quotes (RFC 9110 section 8.8.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tag {
    hash: u64,
    text: [u8; TAG_BYTES_MAX],
    length: u8,
}

impl Tag {
    /// The tag of content in memory: the same wherever and whenever it is deployed.
    pub fn of_content(content: &[u8], encoding: Encoding) -> Tag {
        Tag::new(XxHash3_64::oneshot(content), encoding)
    }

    /// The tag of a file that is too large to be read for it: it stands for this file on this
    /// host, as it was last changed.
    pub fn of_status(status: &FileStatus, encoding: Encoding) -> Tag {
        let FileStatus { device, inode, bytes, modified_ns } = *status;
        let words = [device, inode, bytes, modified_ns as u64].map(u64::to_le_bytes);
        Tag::new(XxHash3_64::oneshot(words.as_flattened()), encoding)
    }

    fn new(hash: u64, encoding: Encoding) -> Tag {
        let mut text = [0; TAG_BYTES_MAX];
        let mut rest = &mut text[..];
        // There is room for the longest suffix.
        let _ = write!(rest, "\"{hash:016x}{}\"", encoding.suffix());
        let length = (TAG_BYTES_MAX - rest.len()) as u8;
        Tag { hash, text, length }
    }

    /// The same content in another encoding.
    pub fn encoded(&self, encoding: Encoding) -> Tag {
        Tag::new(self.hash, encoding)
    }

    /// As it is sent, with its quotes.
    fn quoted(&self) -> &[u8] {
        &self.text[..usize::from(self.length)]
    }
}

impl AsRef<[u8]> for Tag {
    /// Without its quotes.
    fn as_ref(&self) -> &[u8] {
        &self.text[1..usize::from(self.length) - 1]
    }
}

/// What the fields of a file begin with.
const TAG_FIELD: &[u8] = b"ETag: ";

const TAG_BYTES_MAX: usize = 24;

/// What the head of a file's answer is written from.
#[derive(Clone, Copy, Debug)]
pub struct Outline<'a> {
    /// The validator of the content.
    pub tag: Tag,
    /// In unix seconds; never later than now (RFC 9110 section 8.8.2.1).
    pub modified_at: u64,
    /// The `Cache-Control` field.
    pub cache_control: &'a str,
    /// Whether there may be other encodings.
    pub varies: bool,
    /// The media type.
    pub content_type: &'static str,
    /// The content coding.
    pub encoding: Encoding,
    /// Bytes of content.
    pub length: u64,
}

/// The fields of a file's answer, behind those that all answers have.
#[derive(Debug)]
pub struct Head {
    bytes: Box<[u8]>,
    tag: Tag,
    content_type: &'static str,
    encoding: Encoding,
    /// What a 304 says, too, is in front of this.
    validators_end: u16,
    /// What a part of the file says, too, is in front of this: all but the length.
    fields_end: u16,
}

impl Outline<'_> {
    /// The head of an answer with this file.
    pub fn head(&self) -> Head {
        let mut bytes = Vec::with_capacity(HEAD_BYTES_USUAL);
        let modified_at = HttpDate::from(UNIX_EPOCH + Duration::from_secs(self.modified_at));
        let vary = if self.varies { "Vary: Accept-Encoding\r\n" } else { "" };
        let tag = str::from_utf8(self.tag.quoted()).unwrap_or_default();
        // Writing to a vector does not fail.
        let _ = write!(
            bytes,
            "ETag: {tag}\r\nLast-Modified: {modified_at}\r\nCache-Control: {}\r\n{vary}",
            self.cache_control
        );
        let validators_end = bytes.len() as u16;
        if self.encoding != Encoding::Identity {
            let _ = write!(bytes, "Content-Encoding: {}\r\n", self.encoding.token());
        }
        let _ = write!(
            bytes,
            "Content-Type: {}\r\nX-Content-Type-Options: nosniff\r\nAccept-Ranges: bytes\r\n",
            self.content_type
        );
        let fields_end = bytes.len() as u16;
        let _ = write!(bytes, "Content-Length: {}\r\n\r\n", self.length);
        let Outline { tag, content_type, encoding, .. } = *self;
        let bytes = bytes.into_boxed_slice();
        Head { bytes, tag, content_type, encoding, validators_end, fields_end }
    }
}

impl Head {
    /// All of it, with the empty line.
    pub fn whole(&self) -> &[u8] {
        &self.bytes
    }

    /// All but the length and the empty line.
    pub fn fields(&self) -> &[u8] {
        &self.bytes[..usize::from(self.fields_end)]
    }

    /// The validator of the plain content.
    pub fn tag(&self) -> Tag {
        self.tag
    }

    /// The media type.
    pub fn content_type(&self) -> &'static str {
        self.content_type
    }

    /// Whether the content is compressed.
    pub fn is_encoded(&self) -> bool {
        self.encoding != Encoding::Identity
    }

    /// What a part says that has a type of its own: all but that, and the length.
    pub fn validators(&self) -> &[u8] {
        &self.bytes[..usize::from(self.validators_end)]
    }

    /// What a 304 says (RFC 9110 section 15.4.5), with the tag of the form that the client has.
    pub fn validators_of(&self, tag: &Tag) -> Vec<u8> {
        let behind_tag = &self.validators()[TAG_FIELD.len() + self.tag.quoted().len()..];
        [TAG_FIELD, tag.quoted(), behind_tag].concat()
    }
}

/// A file in one encoding, in memory.
#[derive(Debug)]
pub struct Form {
    pub head: Head,
    pub body: Box<[u8]>,
}

impl Form {
    pub fn new(outline: &Outline<'_>, body: Vec<u8>) -> Form {
        Form { head: outline.head(), body: body.into_boxed_slice() }
    }

    fn bytes(&self) -> usize {
        size_of::<Form>() + self.head.bytes.len() + self.body.len()
    }
}

/// A file of the cache. It never changes but for forms that are added to it.
#[derive(Debug)]
pub struct CachedFile {
    /// The time and the tag of the file without any encoding.
    pub modified_at: u64,
    /// The validator of the plain content.
    pub tag: Tag,
    /// The media type.
    pub content_type: &'static str,
    /// The `Cache-Control` field.
    pub cache_control: Box<str>,
    /// Whether what was there before was changed in the same second: the time does not tell the
    /// two apart.
    pub shares_second: bool,
    identity: Option<Form>,
    /// Those that are made, or were there, each in a box of its own: most files have none.
    encoded: [OnceLock<Box<Form>>; 3],
    /// Encodings that are there but too large to be kept.
    stored: Encodings,
    /// Encodings that were there and are kept.
    siblings: Encodings,
    /// Encodings that somebody would rather have: one bit for each.
    asked: AtomicU8,
    used_ms: AtomicU64,
    /// The files that it was made from.
    sources: Mutex<FileSources>,
    /// When it was last known to be true to them.
    checked_ms: AtomicU64,
    /// The time of the last early check that a worker asked for.
    early_ms: AtomicU64,
    /// The cache has dropped it: what it took then.
    detached: OnceLock<Detached>,
}

/// The stamps of the files that an entry was made from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FileSources {
    /// The file itself, and its packed siblings, by encoding. `None`: there is none.
    pub(super) stamps: [Option<FileStamp>; 4],
    /// When the stamps were taken, by the wall clock.
    pub(super) taken_ns: i64,
}

impl FileSources {
    /// Whether a file changed so shortly before that another change may have the same time.
    pub(super) fn are_recent(&self) -> bool {
        self.stamps.iter().flatten().any(|stamp| stamp.is_within(RECENT_NS, self.taken_ns))
    }
}

/// The bytes of an entry that the cache has dropped, counted until nothing holds the entry.
#[derive(Debug)]
struct Detached {
    counter: Arc<AtomicUsize>,
    bytes: usize,
}

impl Drop for Detached {
    fn drop(&mut self) {
        self.counter.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl CachedFile {
    /// An entry of a file that `outline` speaks of. `identity` is its content, unless that is too
    /// large to be kept; `siblings` is what stood beside it packed, and `stored` what did but was
    /// too large.
    pub(super) fn new(
        outline: &Outline<'_>,
        identity: Option<Vec<u8>>,
        siblings: Vec<(Encoding, Vec<u8>)>,
        stored: Encodings,
        sources: FileSources,
    ) -> CachedFile {
        let entry = CachedFile {
            modified_at: outline.modified_at,
            tag: outline.tag,
            content_type: outline.content_type,
            cache_control: outline.cache_control.into(),
            shares_second: false,
            identity: identity.map(|body| Form::new(outline, body)),
            encoded: Default::default(),
            stored,
            siblings: siblings.iter().map(|(encoding, _)| *encoding).collect(),
            asked: AtomicU8::new(0),
            used_ms: AtomicU64::new(0),
            sources: Mutex::new(sources),
            checked_ms: AtomicU64::new(0),
            early_ms: AtomicU64::new(0),
            detached: OnceLock::new(),
        };
        for (encoding, body) in siblings {
            entry.add(encoding, Tag::of_content(&body, encoding), body);
        }
        entry
    }

    /// Whether the two were made from the same.
    pub(super) fn is_same(&self, other: &CachedFile) -> bool {
        let tag = |entry: &CachedFile, encoding| entry.form(encoding).map(|form| form.head.tag());
        self.tag == other.tag
            && self.modified_at == other.modified_at
            && self.stored == other.stored
            && self.siblings == other.siblings
            && Encoding::ALL.into_iter().all(|encoding| {
                !self.siblings.contains(encoding) || tag(self, encoding) == tag(other, encoding)
            })
    }

    /// The files that it was made from.
    pub(super) fn sources(&self) -> FileSources {
        *stentor_io::lock(&self.sources)
    }

    /// The files have other stamps, and still the same content.
    pub(super) fn set_sources(&self, sources: FileSources) {
        *stentor_io::lock(&self.sources) = sources;
    }

    /// It was true to its files at this time.
    pub(super) fn note_check(&self, now_ms: u64) {
        self.checked_ms.store(now_ms, Ordering::Relaxed);
    }

    /// The time since the last check. The clocks of workers may differ.
    fn age_ms(&self, now_ms: u64) -> u64 {
        now_ms.abs_diff(self.checked_ms.load(Ordering::Relaxed))
    }

    /// Whether it may be served without another check.
    pub(super) fn is_fresh(&self, now_ms: u64) -> bool {
        self.age_ms(now_ms) < CHECK_MS
    }

    /// Whether the last check is so long ago that another one is of use.
    pub(super) fn needs_check(&self, now_ms: u64) -> bool {
        self.age_ms(now_ms) >= EARLY_CHECK_MS
    }

    /// Whether the worker should have it checked now, before it is stale: then no request for a
    /// file in use waits for a check. True once in half a second.
    pub(super) fn begins_early_check(&self, now_ms: u64) -> bool {
        let early_ms = self.early_ms.load(Ordering::Relaxed);
        let order = Ordering::Relaxed;
        self.needs_check(now_ms)
            && self.is_fresh(now_ms)
            && now_ms.abs_diff(early_ms) >= EARLY_CHECK_MS
            && self.early_ms.compare_exchange(early_ms, now_ms, order, order).is_ok()
    }

    /// The early check could not be asked for: the next request asks for one.
    pub(super) fn repeat_early_check(&self) {
        self.early_ms.store(0, Ordering::Relaxed);
    }

    /// The file in that encoding, if it is in memory.
    pub fn form(&self, encoding: Encoding) -> Option<&Form> {
        match encoding {
            Encoding::Identity => self.identity.as_ref(),
            encoded => self.encoded[slot(encoded)].get().map(|form| &**form),
        }
    }

    /// The forms in memory.
    pub fn forms(&self) -> impl Iterator<Item = &Form> {
        Encoding::ALL.into_iter().filter_map(|encoding| self.form(encoding))
    }

    /// The encodings there are, in memory or on the disk.
    pub fn available(&self) -> Encodings {
        let is_there =
            |&encoding: &Encoding| self.stored.contains(encoding) || self.form(encoding).is_some();
        Encoding::ALL.into_iter().filter(is_there).collect()
    }

    /// Notes that somebody would rather have this encoding. True the first time.
    pub fn ask(&self, encoding: Encoding) -> bool {
        let bit = bit(encoding);
        // Read first: a write would take the cache line from every other worker.
        self.asked.load(Ordering::Relaxed) & bit == 0
            && self.asked.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    /// Takes an ask back: the next one counts as the first.
    pub fn forget(&self, encoding: Encoding) {
        self.asked.fetch_and(!bit(encoding), Ordering::Relaxed);
    }

    /// The encodings that were asked for.
    pub fn asked(&self) -> Encodings {
        let asked = self.asked.load(Ordering::Relaxed);
        Encoding::ALL.into_iter().filter(|&encoding| asked & bit(encoding) != 0).collect()
    }

    /// Adds a form that was made of the file. If there is one already, that stays.
    pub fn add(&self, encoding: Encoding, tag: Tag, body: Vec<u8>) {
        let outline = Outline {
            tag,
            modified_at: self.modified_at,
            cache_control: &self.cache_control,
            varies: true,
            content_type: self.content_type,
            encoding,
            length: body.len() as u64,
        };
        let _ = self.encoded[slot(encoding)].set(Box::new(Form::new(&outline, body)));
    }

    /// On the path of every answer: the line is written to once a millisecond at most.
    pub fn note_use(&self, now_ms: u64) {
        if self.used_ms.load(Ordering::Relaxed) != now_ms {
            self.used_ms.store(now_ms, Ordering::Relaxed);
        }
    }

    /// When the file was last asked for, in milliseconds.
    pub fn used_ms(&self) -> u64 {
        self.used_ms.load(Ordering::Relaxed)
    }

    /// The cache has dropped it: counts it until nothing holds it.
    pub(super) fn detach(&self, counter: &Arc<AtomicUsize>) {
        self.detached.get_or_init(|| {
            let (counter, bytes) = (Arc::clone(counter), self.bytes());
            counter.fetch_add(bytes, Ordering::Relaxed);
            Detached { counter, bytes }
        });
    }

    /// Its bytes at the moment when the cache dropped it; 0 while the cache keeps it.
    pub fn detached_bytes(&self) -> usize {
        self.detached.get().map_or(0, |detached| detached.bytes)
    }

    /// What it takes of memory, bodies and heads included.
    pub fn bytes(&self) -> usize {
        let forms: usize = self.forms().map(Form::bytes).sum();
        size_of::<CachedFile>() + self.cache_control.len() + forms
    }
}

/// Where an encoding has its place in `CachedFile::encoded`.
fn slot(encoding: Encoding) -> usize {
    debug_assert!(encoding != Encoding::Identity);
    encoding as usize - 1
}

/// The bit of an encoding in `CachedFile::asked`.
fn bit(encoding: Encoding) -> u8 {
    1 << encoding as u8
}

/// Room for a usual head: an estimate that saves growing, not a limit.
const HEAD_BYTES_USUAL: usize = 320;

/// An entry is never served for longer without a check.
const CHECK_MS: u64 = 1_000;

/// A worker asks for a check so early. It serves the entry meanwhile.
const EARLY_CHECK_MS: u64 = CHECK_MS / 2;

/// The coarsest resolution of times of files: two seconds, on FAT.
const RECENT_NS: u64 = 2_000_000_000;
