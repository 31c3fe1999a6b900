//! The cache of rendered messages: response heads, compressed bodies, events and frames.
//!
//! All readers of a message are sent the same bytes, so they are rendered once and cached beside
//! the message. Readers decide what is rendered, so the cache has a limit of its own: it never
//! takes memory from values and history. Over the limit, the cache evicts what was rendered of the
//! message that has been in it longest, unless a reader has used that since the cache last looked
//! at it.
//!
//! A message that its topic has dropped is *detached*: only connections still hold it. Rendered
//! bytes that the cache has evicted and connections still hold are detached, too. Both are counted
//! until the last connection drops them: see [`Hub::detached_bytes`](crate::Hub::detached_bytes).

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use arc_swap::{ArcSwapOption, Guard};
use stentor_wire::negotiate::Encoding;

use crate::lock::lock;
use crate::message::Message;

/// The cache of a hub. All messages of the hub refer to it.
#[derive(Clone, Debug, Default)]
pub(crate) struct RenderCache(Arc<CacheState>);

#[derive(Debug)]
struct CacheState {
    /// The memory of what is cached, in bytes.
    cached: AtomicUsize,
    /// The memory of messages and rendered bytes that only connections hold, in bytes.
    detached: AtomicUsize,
    /// The limit of `cached`.
    max: AtomicUsize,
    /// Messages of which something was rendered, in the order of eviction.
    queue: Mutex<VecDeque<Weak<Message>>>,
}

impl Default for CacheState {
    fn default() -> CacheState {
        CacheState {
            cached: AtomicUsize::new(0),
            detached: AtomicUsize::new(0),
            max: AtomicUsize::new(usize::MAX),
            queue: Mutex::default(),
        }
    }
}

/// The cache is no part of what terms say.
impl PartialEq for RenderCache {
    fn eq(&self, _: &RenderCache) -> bool {
        true
    }
}

impl Eq for RenderCache {}

impl RenderCache {
    /// The memory of what is cached, in bytes.
    pub(crate) fn cached(&self) -> usize {
        self.0.cached.load(Ordering::Relaxed)
    }

    /// See [`Hub::detached_bytes`](crate::Hub::detached_bytes).
    pub(crate) fn detached(&self) -> usize {
        self.0.detached.load(Ordering::Relaxed)
    }

    /// The limit, in bytes.
    pub(crate) fn max(&self) -> usize {
        self.0.max.load(Ordering::Relaxed)
    }

    /// Sets the limit and evicts what is above it.
    pub(crate) fn set_max(&self, bytes: usize) {
        self.0.max.store(bytes, Ordering::Relaxed);
        while self.cached() > bytes && self.evict_next(|_| false) {}
    }

    /// The topic has dropped a message of so many bytes.
    pub(crate) fn detach(&self, bytes: usize) {
        self.0.detached.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A message of so many bytes that was detached is freed.
    pub(crate) fn free(&self, bytes: usize) {
        self.0.detached.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn add(&self, bytes: usize) {
        self.0.cached.fetch_add(bytes, Ordering::Relaxed);
    }

    fn subtract(&self, bytes: usize) {
        self.0.cached.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// The cache evicts other forms, because this message has a new one. If there is none, what was
    /// rendered of this message is not cached.
    fn make_room(&self, message: &Message) {
        for _ in 0..EVICTIONS_MAX {
            if self.cached() <= self.max() || !self.evict_next(Rendered::take_used) {
                break;
            }
        }
        if self.cached() > self.max() {
            message.rendered_cell().evict();
        }
    }

    /// Evicts what was rendered of the next message, unless `is_spared`: then it becomes the last.
    /// Returns false if the cache has no message.
    fn evict_next(&self, is_spared: fn(&Rendered) -> bool) -> bool {
        let Some(next) = lock(&self.0.queue).pop_front() else { return false };
        let message = next.upgrade();
        let is_spared = |message: &Arc<Message>| {
            message.rendered_cell().load().is_some_and(|rendered| is_spared(&rendered))
        };
        if message.as_ref().is_some_and(is_spared) {
            lock(&self.0.queue).push_back(next);
        } else {
            self.subtract(QUEUED_BYTES);
            message.inspect(|message| message.evict_rendered());
        }
        true
    }
}

/// The place in a message for what was rendered of it.
///
/// Most messages of a busy topic are replaced before anything is rendered of them. The
/// `ArcSwapOption` is made at first use because its drop looks at the readers of every thread, even
/// while it is empty.
#[derive(Default)]
pub(crate) struct RenderedCell(OnceLock<ArcSwapOption<Rendered>>);

impl RenderedCell {
    /// What was rendered, if it is cached.
    pub(crate) fn load(&self) -> Option<RenderedGuard> {
        let rendered = self.0.get()?.load();
        rendered.is_some().then(|| RenderedGuard(rendered))
    }

    /// What was rendered. If nothing is cached, `new` takes the place, and `Err` returns it.
    fn load_or_insert(
        &self,
        new: impl FnOnce() -> Rendered,
    ) -> Result<RenderedGuard, RenderedGuard> {
        let cell = self.0.get_or_init(ArcSwapOption::empty);
        let known = cell.load();
        if known.is_some() {
            return Ok(RenderedGuard(known));
        }
        let new = Some(Arc::new(new()));
        let known = cell.compare_and_swap(&None::<Arc<Rendered>>, new.clone());
        if known.is_some() {
            return Ok(RenderedGuard(known));
        }
        Err(RenderedGuard(Guard::from_inner(new)))
    }

    pub(crate) fn evict(&self) {
        if let Some(cell) = self.0.get() {
            cell.store(None);
        }
    }
}

/// What was rendered of a message.
pub(crate) struct Rendered {
    cache: RenderCache,
    /// The head of the value response without content coding.
    head: OnceLock<Box<[u8]>>,
    first: Link,
    /// Whether a reader has used it since the cache looked at it.
    is_used: AtomicBool,
}

type Link = OnceLock<Box<RenderedForm>>;

struct RenderedForm {
    kind: RenderedKind,
    /// `None` if the form is not worth it.
    bytes: Option<Cached>,
    next: Link,
}

/// What can be rendered of a message, beside the head of its plain value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RenderedKind {
    /// The head of the value response in this encoding.
    Head(Encoding),
    /// The value in this encoding.
    Body(Encoding),
    /// What streams are sent.
    Stream(StreamForm),
}

/// What a stream is sent of a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum StreamForm {
    /// An event of an SSE stream of one topic, in a chunk of its own (HTTP/1.1).
    SseChunk,
    /// The same event as it is (HTTP/1.0).
    Sse,
    /// A WebSocket frame with the data: text if it is text by its content type and in fact.
    Frame,
    /// The same, compressed (RFC 7692).
    FrameDeflated,
    /// The JSON that names the topic: an element of a long-poll's array.
    Envelope,
    /// An event of an SSE stream of many topics: the envelope, in a chunk of its own (HTTP/1.1).
    EnvelopeSseChunk,
    /// The same event as it is (HTTP/1.0).
    EnvelopeSse,
    /// A WebSocket text frame with the envelope.
    EnvelopeFrame,
    /// The same, compressed (RFC 7692).
    EnvelopeFrameDeflated,
}

impl StreamForm {
    /// Whether its payload is compressed.
    #[must_use]
    pub fn is_deflated(self) -> bool {
        matches!(self, StreamForm::FrameDeflated | StreamForm::EnvelopeFrameDeflated)
    }
}

impl Rendered {
    fn new(cache: &RenderCache) -> Rendered {
        let cache = cache.clone();
        cache.add(LIST_BYTES);
        let is_used = AtomicBool::new(false);
        Rendered { cache, head: OnceLock::new(), first: Link::new(), is_used }
    }

    pub(crate) fn find(&self, kind: RenderedKind) -> Option<&Arc<RenderedBytes>> {
        let mut link = &self.first;
        while let Some(form) = link.get() {
            if form.kind == kind {
                self.set_used();
                return form.bytes.as_ref().map(|bytes| &bytes.0);
            }
            link = &form.next;
        }
        None
    }

    /// Finds the form or appends it. If another thread appends at the same moment, this thread
    /// waits and then reads on.
    fn find_or_render(
        &self,
        kind: RenderedKind,
        mut render: impl FnMut() -> Option<Box<[u8]>>,
    ) -> Option<&Arc<RenderedBytes>> {
        let mut link = &self.first;
        loop {
            let form = link.get_or_init(|| {
                let bytes = render().map(|bytes| Cached::new(bytes, &self.cache));
                Box::new(RenderedForm { kind, bytes, next: Link::new() })
            });
            if form.kind == kind {
                return form.bytes.as_ref().map(|bytes| &bytes.0);
            }
            link = &form.next;
        }
    }

    fn set_used(&self) {
        // Read first: a write would take the cache line from the other workers.
        if !self.is_used.load(Ordering::Relaxed) {
            self.is_used.store(true, Ordering::Relaxed);
        }
    }

    fn take_used(&self) -> bool {
        self.is_used.swap(false, Ordering::Relaxed)
    }
}

impl Drop for Rendered {
    fn drop(&mut self) {
        self.cache.subtract(LIST_BYTES + self.head.get().map_or(0, |head| head.len()));
    }
}

/// Rendered bytes, which all their readers share.
#[derive(Debug)]
pub struct RenderedBytes {
    bytes: Box<[u8]>,
    cache: RenderCache,
    is_detached: AtomicBool,
}

impl RenderedBytes {
    /// Whether the cache has dropped them: only connections hold them.
    #[must_use]
    pub fn is_detached(&self) -> bool {
        self.is_detached.load(Ordering::Relaxed)
    }

    /// The memory that they take, in bytes.
    #[must_use]
    pub fn stored_bytes(&self) -> usize {
        self.bytes.len() + FORM_BYTES
    }
}

impl Deref for RenderedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// What the cache does not hold is detached.
impl Drop for RenderedBytes {
    fn drop(&mut self) {
        self.cache.free(self.stored_bytes());
    }
}

/// Rendered bytes that the cache holds.
struct Cached(Arc<RenderedBytes>);

impl Cached {
    fn new(bytes: Box<[u8]>, cache: &RenderCache) -> Cached {
        let is_detached = AtomicBool::new(false);
        let bytes = RenderedBytes { bytes, cache: cache.clone(), is_detached };
        cache.add(bytes.stored_bytes());
        Cached(Arc::new(bytes))
    }
}

impl Drop for Cached {
    fn drop(&mut self) {
        let RenderedBytes { cache, is_detached, .. } = &*self.0;
        is_detached.store(true, Ordering::Relaxed);
        cache.subtract(self.0.stored_bytes());
        cache.detach(self.0.stored_bytes());
    }
}

impl Message {
    /// The rendered bytes of this kind, rendered at the first call. `None` if `render` returns
    /// that.
    pub(crate) fn find_or_render(
        self: &Arc<Self>,
        kind: RenderedKind,
        mut render: impl FnMut() -> Option<Box<[u8]>>,
    ) -> Option<Arc<RenderedBytes>> {
        let mut is_new = false;
        let rendered = self.rendered();
        let found = rendered.find_or_render(kind, || {
            is_new = true;
            render()
        });
        if is_new {
            rendered.cache.make_room(self);
        } else {
            rendered.set_used();
        }
        found.cloned()
    }

    /// Shows `f` the head of the value response without content coding, rendered at the first call.
    pub(crate) fn with_head<R>(
        self: &Arc<Self>,
        render: impl FnOnce() -> Box<[u8]>,
        f: impl FnOnce(&[u8]) -> R,
    ) -> R {
        let rendered = self.rendered();
        if let Some(head) = rendered.head.get() {
            rendered.set_used();
            return f(head);
        }
        let head = rendered.head.get_or_init(|| {
            let head = render();
            rendered.cache.add(head.len());
            head
        });
        rendered.cache.make_room(self);
        f(head)
    }

    /// What was rendered of this message. At the first call the message enters the queue.
    fn rendered(self: &Arc<Self>) -> RenderedGuard {
        let cache = self.cache();
        match self.rendered_cell().load_or_insert(|| Rendered::new(cache)) {
            Ok(known) => known,
            Err(new) => {
                cache.add(QUEUED_BYTES);
                lock(&cache.0.queue).push_back(Arc::downgrade(self));
                new
            }
        }
    }
}

/// What was rendered of a message, even if the cache evicts it meanwhile.
pub(crate) struct RenderedGuard(Guard<Option<Arc<Rendered>>>);

impl Deref for RenderedGuard {
    type Target = Rendered;

    fn deref(&self) -> &Rendered {
        self.0.as_deref().expect("a guard is made of something")
    }
}

/// The memory of a rendered form beside its bytes: the entry of the list, the counts, and what an
/// allocator adds.
const FORM_BYTES: usize = size_of::<RenderedForm>() + size_of::<RenderedBytes>() + 64;

/// The memory of the list.
const LIST_BYTES: usize = size_of::<Rendered>() + 48;

/// The memory of an entry of the queue: it keeps the struct of a message that was freed.
const QUEUED_BYTES: usize = 2 * size_of::<Weak<Message>>() + size_of::<Message>() + 32;

/// Messages that are evicted, or spared, to make room for one form: some ten microseconds.
const EVICTIONS_MAX: usize = 64;
