//! `GET /path` where no topic answers: a file, whole, in part, or not at all if the client has it.
//!
//! From memory if it is there, else from the disk; the answer is the same. A part is one of the
//! file as it is on the disk, never of a compressed form: what is compressed, and when, is the
//! server's affair, and a client that goes on with an interrupted download must not depend on it.

use super::listing::{self, ShownRows};
use super::publish::RETRY_SOON;
use super::value;
use super::values::NO_SNIFFING;
use crate::access::names::{INDEX, unpacked};
use crate::access::{Bearer, Denied};
use crate::exchange::{Answer, Awaits, Exchange, FileWait};
use crate::head::Field;
use crate::limits::{FILE_WAIT_MS, KEPT_FILE_WAIT_MS};
use crate::response::Part;
use std::borrow::Cow;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use stentor_config::Mount;
use stentor_files::{
    CachedFile, FileLook, Head as FileHead, NotAsked, Outline, PACKED, Tag, cache_control,
    is_whole, mount_of, read_whole,
};
use stentor_io::{File, Found};
use stentor_wire::condition::{self, Validators, Verdict, if_range};
use stentor_wire::error::{ErrorCode, Rejection};
use stentor_wire::http1::{Method, Request};
use stentor_wire::negotiate::{Acceptable, Encoding, Encodings, compressible};
use stentor_wire::range::{ByteRange, Ranges, parts_end, ranges};
use stentor_wire::rejections;
use stentor_wire::status::Status;
use stentor_wire::target::{self, NotAFile};

/// The names that a request had the loader look at, and the outcomes so far. The last look may be
/// under way.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    made: Vec<(Box<str>, Option<FileLook>)>,
    /// The rows of a list that the client is shown.
    shown: ShownRows,
}

impl Looks {
    /// The look that is under way has this outcome.
    pub(crate) fn note(&mut self, looked: FileLook) {
        if let Some((_, outcome)) = self.made.last_mut() {
            *outcome = Some(looked);
        }
    }

    /// Its share of the lists of directories, in bytes.
    pub(crate) fn own_bytes(&self) -> usize {
        let share = |(_, outcome): &(_, Option<FileLook>)| match outcome {
            Some(FileLook::List(list)) => list.share_bytes(),
            _ => 0,
        };
        self.made.iter().map(share).sum::<usize>() + self.shown.own_bytes()
    }

    /// Whether no look is under way.
    pub(crate) fn are_known(&self) -> bool {
        self.made.last().is_none_or(|(_, outcome)| outcome.is_some())
    }

    fn outcome(&self, name: &str) -> Option<&FileLook> {
        self.made.iter().find(|(of, _)| **of == *name)?.1.as_ref()
    }
}

/// Answers with the file that `path`, which is decoded and begins with a slash, leads to. A worker
/// never waits for the file system to find a file: the loader looks at it first, and the answer
/// comes when it has.
pub(crate) fn get(x: &mut Exchange<'_>, request: &Request<'_>, path: &str, looks: Looks) -> Answer {
    let index;
    let name = if path.ends_with('/') {
        index = format!("{path}{INDEX}");
        index.as_str()
    } else {
        path
    };
    if let Err(denied) = judge(x, path, name) {
        return x.deny(&denied);
    }
    let memory = from_memory(x, request, name, &looks);
    if memory == Memory::Answered {
        return Answer::Now;
    }
    // What is in memory has a name that is good.
    match target::check_file(path) {
        Err(NotAFile::Refused(rejection)) => return x.reject(&rejection),
        Err(NotAFile::Hidden) => return not_found(x),
        Ok(()) => {}
    }
    let mounts = &x.settings.mounts;
    if mounts.iter().any(|mount| mount.path.strip_suffix('/') == Some(path)) {
        match x.may_send(&format!("{path}/")) {
            Ok(()) => redirect(x, request),
            Err(denied) => drop(x.deny(&denied)),
        }
        return Answer::Now;
    }
    let Some((index, mount, rest)) = mount_of(mounts, name) else { return not_found(x) };
    let place = Place { mount, name, rest };
    match from_disk(x, request, &place, &looks) {
        Outcome::Answered => Answer::Now,
        Outcome::Unknown => look(x, request, name, looks),
        outcome if !path.ends_with('/') => {
            // Whether there is such a directory is asked even if there is none: the answers are
            // the same then.
            if x.may_tell(&format!("{path}/")) && matches!(outcome, Outcome::Directory) {
                redirect(x, request);
                return Answer::Now;
            }
            fall_back(x, request, (index, mount), path, looks)
        }
        Outcome::Directory | Outcome::NotThere => list(x, request, (index, mount), path, looks),
    }
}

/// Answers with the list of a directory if the mount has lists, once the loader has made it.
fn list(
    x: &mut Exchange<'_>,
    request: &Request<'_>,
    (index, mount): (usize, &Mount),
    path: &str,
    mut looks: Looks,
) -> Answer {
    match looks.outcome(path) {
        _ if !mount.listing => {}
        None => return look(x, request, path, looks),
        Some(FileLook::List(list)) => {
            let list = Arc::clone(list);
            if !listing::judge(x, path, &list, &mut looks.shown) {
                return await_looks(x, request, looks);
            }
            return listing::answer(x, path, &list, looks.shown);
        }
        Some(FileLook::NotMade(reason)) => {
            unavailable(x, *reason);
            return Answer::Now;
        }
        Some(_) => {}
    }
    fall_back(x, request, (index, mount), path, looks)
}

/// Has the loader look at a file, or list a directory. The request is answered when it has.
fn look(x: &mut Exchange<'_>, request: &Request<'_>, name: &str, mut looks: Looks) -> Answer {
    let file_cache = &x.shared.file_cache;
    let acceptable = Acceptable::parse(request.accept_encoding);
    let wanted = acceptable.best(Encodings::ALL).unwrap_or(Encoding::Identity);
    let outcome = if file_cache.is_hung(name) {
        Some(NO_ANSWER)
    } else {
        match x.ask_loader(name, wanted) {
            Ok(()) => None,
            Err(NotAsked::NoLoader) if name.ends_with('/') => Some(NO_ANSWER),
            // The worker finds out what there is.
            Err(NotAsked::NoLoader) => Some(FileLook::File),
            Err(NotAsked::Busy) => {
                Some(FileLook::NotMade("Too many files are asked for at once; come again."))
            }
        }
    };
    looks.made.push((name.into(), outcome));
    if looks.are_known() {
        return get_with(x, request, looks);
    }
    await_looks(x, request, looks)
}

/// Answers the request later: when the loader has looked, or in another iteration.
fn await_looks(x: &mut Exchange<'_>, request: &Request<'_>, looks: Looks) -> Answer {
    let is_kept = |(name, _): &(Box<str>, _)| x.shared.file_cache.keeps(name);
    let is_kept = looks.made.last().is_some_and(is_kept);
    let wait_ms = if is_kept { KEPT_FILE_WAIT_MS } else { FILE_WAIT_MS };
    let (request, deadline_ms) = (request.to_buf(), x.clock.now_ms + wait_ms);
    let is_judged = matches!(x.requester.bearer, Bearer::Judged);
    x.answer_later(Awaits::File(Box::new(FileWait { request, deadline_ms, looks, is_judged })))
}

/// Answers a request again, now that more is known of its file.
pub(crate) fn get_with(x: &mut Exchange<'_>, request: &Request<'_>, looks: Looks) -> Answer {
    let path = target::split(request.target).0;
    match target::decode(path) {
        // No value is sent: the token may not count any more.
        Ok(path) if matches!(x.requester.bearer, Bearer::Judged) => get(x, request, &path, looks),
        _ => value::get(x, request, path, looks),
    }
}

/// The outcome of a look that takes too long.
pub(crate) const NO_ANSWER: FileLook =
    FileLook::NotMade("The file system does not answer; come again later.");

fn unavailable(x: &mut Exchange<'_>, reason: impl Into<Cow<'static, str>>) {
    let rejection = Rejection::because(ErrorCode::FileUnavailable, reason);
    x.reply.begin(rejection.status()).reject_for(&rejection, RETRY_SOON);
}

/// Whether a file of this path may be sent, whatever else it is called; `name` is that of the file.
/// As a topic's the path was judged before.
fn judge(x: &mut Exchange<'_>, path: &str, name: &str) -> Result<(), Denied> {
    if x.settings.is_private_file(path) {
        x.may_send(path)?;
    }
    if name != path {
        x.may_send(name)?;
    }
    unpacked(path).skip(1).try_for_each(|name| x.may_send(name))
}

/// With a page that answers for all others: that page, unless something with a dot in its name, as
/// scripts and pictures have, was asked for. They are better told to be missing.
fn fall_back(
    x: &mut Exchange<'_>,
    request: &Request<'_>,
    (index, mount): (usize, &Mount),
    path: &str,
    mut looks: Looks,
) -> Answer {
    let last = path.rsplit('/').next().unwrap_or_default();
    let Some(fallback) = mount.fallback.as_deref().filter(|_| !last.contains('.')) else {
        return not_found(x);
    };
    let name = format!("{}{fallback}", mount.path);
    // Another mount may have that path; the file is this one's all the same.
    let is_shadowed = mount_of(&x.settings.mounts, &name).is_none_or(|(of, ..)| of != index);
    let is_judged = !is_shadowed || x.settings.access.topics.is_private(&name);
    // mutation: private-page
    if is_judged && let Err(denied) = x.may_send(&name) {
        return x.deny(&denied);
    }
    if !is_shadowed && from_memory(x, request, &name, &looks) == Memory::Answered {
        return Answer::Now;
    }
    if is_shadowed && looks.outcome(&name).is_none() {
        // The loader goes by names, and this one is another mount's.
        looks.made.push((name.as_str().into(), Some(FileLook::File)));
    }
    let place = Place { mount, name: &name, rest: fallback };
    match from_disk(x, request, &place, &looks) {
        Outcome::Answered => Answer::Now,
        Outcome::Unknown => look(x, request, &name, looks),
        Outcome::Directory | Outcome::NotThere => not_found(x),
    }
}

fn not_found(x: &mut Exchange<'_>) -> Answer {
    let head = x.reply.begin(NOT_FOUND.status());
    head.field(Field::VARY, "Accept").reject(&NOT_FOUND);
    Answer::Now
}

/// To the page that a program brings which has this server within.
pub(crate) fn lead_to(x: &mut Exchange<'_>, page: &str) {
    let head = x.reply.begin(Status::MOVED_PERMANENTLY).field(Field::LOCATION, page);
    head.field(Field::CACHE_CONTROL, "no-cache").sentence("The page is elsewhere.");
}

/// To the same path with a slash, under which the links of a directory's page are right. The
/// location is relative: a proxy may have taken a part of the path away.
fn redirect(x: &mut Exchange<'_>, request: &Request<'_>) {
    let (path, query) = target::split(request.target);
    let last = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    // Without the dot, a colon in the name would make it a scheme (RFC 3986 section 4.2).
    let mut location = [b"./", last, b"/"].concat();
    if let Some(query) = query {
        location.push(b'?');
        location.extend_from_slice(query);
    }
    let head = x.reply.begin(Status::MOVED_PERMANENTLY).field(Field::LOCATION, location);
    head.field(Field::CACHE_CONTROL, "no-cache").sentence("This is a directory: with a slash.");
}

/// Answers from memory, if the file is there in a form that will do.
fn from_memory(x: &mut Exchange<'_>, request: &Request<'_>, name: &str, looks: &Looks) -> Memory {
    let shared = x.shared;
    // The loader has just checked it, or cannot.
    let may_be_old = matches!(looks.outcome(name), Some(FileLook::File | FileLook::NotMade(_)));
    shared.file_cache.with_entry(name, x.clock.now_ms, may_be_old, |entry| {
        let Some(entry) = entry else { return Memory::NotThere };
        let encoding = match request.accept_encoding {
            Some(field) if request.range.is_none() => select(x, entry, name, field),
            _ => Encoding::Identity,
        };
        let Some(form) = entry.form(encoding) else { return Memory::NotThere };
        let stats = x.reply.stats;
        if looks.made.is_empty() {
            stats.file_hits.add(1)
        } else {
            stats.file_misses.add(1)
        }
        let mut tags = Vec::new();
        if is_conditional(request) {
            tags.push(entry.tag);
            tags.extend(entry.forms().map(|form| form.head.tag()));
            tags.extend(tags_of_packed(&entry.tag, entry.content_type));
        }
        let file = Representation {
            head: &form.head,
            tags,
            modified_at: entry.modified_at,
            dates_tell: !entry.shares_second,
            body: Source::Cached { entry, encoding, body: &form.body },
        };
        respond(x, request, &file);
        Memory::Answered
    })
}

/// Whether it matters which other tags the file has.
fn is_conditional(request: &Request<'_>) -> bool {
    request.if_none_match.is_some() || request.if_match.is_some()
}

/// The tags that the packed forms of a text have or will have: who has one of them has the file,
/// also if the server has forgotten that form.
fn tags_of_packed(tag: &Tag, content_type: &str) -> impl Iterator<Item = Tag> {
    let packed = if compressible(content_type) { &PACKED[..] } else { &[] };
    packed.iter().map(|&encoding| tag.encoded(encoding))
}

/// The outcome of looking into memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Memory {
    Answered,
    NotThere,
}

/// The best encoding there is; a better one that could be made is asked for.
fn select(x: &Exchange<'_>, entry: &Arc<CachedFile>, name: &str, accept: &[u8]) -> Encoding {
    let acceptable = Acceptable::parse(Some(accept));
    let available = entry.available();
    if compressible(entry.content_type)
        && let Some(wanted) = acceptable.best(Encodings::ALL)
        && !available.contains(wanted)
    {
        x.shared.file_cache.pack(name, entry, wanted);
    }
    acceptable.best(available).unwrap_or(Encoding::Identity)
}

/// The outcome of looking on the disk.
enum Outcome {
    Answered,
    /// The loader has to look first.
    Unknown,
    Directory,
    NotThere,
}

/// Where a file may be.
struct Place<'a> {
    mount: &'a Mount,
    /// The whole path.
    name: &'a str,
    /// What of it is beneath the root.
    rest: &'a str,
}

/// Answers from the disk, once the loader has looked: then the file system answers.
fn from_disk(
    x: &mut Exchange<'_>,
    request: &Request<'_>,
    place: &Place<'_>,
    looks: &Looks,
) -> Outcome {
    match looks.outcome(place.name) {
        None => return Outcome::Unknown,
        Some(FileLook::File) => {}
        Some(FileLook::Directory | FileLook::List(_)) => return Outcome::Directory,
        Some(FileLook::Nothing) => return Outcome::NotThere,
        Some(FileLook::Failed(error)) => {
            refuse(x, error);
            return Outcome::Answered;
        }
        Some(FileLook::NotMade(reason)) => {
            unavailable(x, *reason);
            return Outcome::Answered;
        }
    }
    match x.resources.files.find(place.mount, place.rest, x.clock.unix_s) {
        Ok(Found::File(file)) => {
            x.reply.stats.file_misses.add(1);
            let result = send(x, request, place, file);
            result.unwrap_or_else(|error| refuse(x, &error));
            Outcome::Answered
        }
        Ok(Found::Directory) => Outcome::Directory,
        Ok(Found::Special) => Outcome::NotThere,
        Err(error) if FileLook::is_nothing(&error) => Outcome::NotThere,
        Err(error) => {
            refuse(x, &error);
            Outcome::Answered
        }
    }
}

fn refuse(x: &mut Exchange<'_>, error: &io::Error) {
    match error.kind() {
        ErrorKind::PermissionDenied => {
            x.reply.reject(&UNREADABLE);
        }
        // Out of files or memory, most likely.
        _ => {
            unavailable(x, format!("The file cannot be read now: {error}."));
        }
    }
}

/// Sends a file that was found, or its packed sibling.
fn send(
    x: &mut Exchange<'_>,
    request: &Request<'_>,
    place: &Place<'_>,
    file: File,
) -> io::Result<()> {
    let Place { mount, rest, .. } = *place;
    let kind = x.settings.files.content_type(rest);
    let status = file.status();
    let acceptable = Acceptable::parse(request.accept_encoding);
    let mut forms = siblings(x, place, &file);
    let varies = compressible(kind) || !forms.is_empty();
    forms.push((Encoding::Identity, file));
    let available = forms.iter().map(|(encoding, _)| *encoding).collect();
    let best = acceptable.best(available).filter(|_| request.range.is_none());
    let wanted = best.unwrap_or(Encoding::Identity);
    // The file itself is the last.
    let at = forms.iter().position(|(form, _)| *form == wanted).unwrap_or(forms.len() - 1);
    let (encoding, file) = forms.swap_remove(at);
    let outline = Outline {
        tag: Tag::of_status(&file.status(), encoding),
        modified_at: status.modified_unix_s().min(x.clock.unix_s),
        cache_control: cache_control(mount, rest),
        varies,
        content_type: kind,
        encoding,
        length: file.status().bytes,
    };
    if file.status().bytes <= x.settings.files.small_bytes_max as u64 {
        let Some((_, content)) = read_whole(&file)? else { return being_written(x) };
        // Reading is work, even if none of it is sent.
        *x.reply.cost += content.len();
        let tag = Tag::of_content(&content, encoding);
        let outline = Outline { tag, length: content.len() as u64, ..outline };
        answer(x, request, &outline, &forms, Source::Read(&content))
    } else {
        if !is_whole(&file)? {
            return being_written(x);
        }
        let shared = x.resources.files.share(file);
        let length = outline.length;
        answer(x, request, &outline, &forms, Source::Stored { file: &shared, length })
    }
}

/// What stands beside a file packed and is whole. A link does not count, unless the file is behind
/// one, too: that is how it is in memory.
fn siblings(x: &mut Exchange<'_>, place: &Place<'_>, file: &File) -> Vec<(Encoding, File)> {
    let sibling = |encoding: Encoding| {
        let beside = format!("{}{}", place.rest, encoding.suffix());
        let found = x.resources.files.find(place.mount, &beside, x.clock.unix_s);
        let Ok(Found::File(found)) = found else { return None };
        let counts = file.through_symlink() || !found.through_symlink();
        (counts && is_whole(&found).unwrap_or(false)).then_some((encoding, found))
    };
    PACKED.into_iter().filter_map(sibling).collect()
}

/// The tags of all forms that a file has, the one of `outline` and the others: whoever has one of
/// them need not be sent another.
fn tags_of(
    x: &mut Exchange<'_>,
    outline: &Outline<'_>,
    others: &[(Encoding, File)],
) -> io::Result<Vec<Tag>> {
    let mut tags = vec![(outline.encoding, outline.tag)];
    for (encoding, file) in others {
        if file.status().bytes > x.settings.files.small_bytes_max as u64 {
            tags.push((*encoding, Tag::of_status(&file.status(), *encoding)));
        } else {
            *x.reply.cost += file.status().bytes as usize;
            let read = read_whole(file)?;
            tags.extend(read.map(|(_, content)| (*encoding, Tag::of_content(&content, *encoding))));
        }
    }
    let identity = tags.iter().find(|(encoding, _)| *encoding == Encoding::Identity);
    let packed = identity.map(|(_, tag)| tags_of_packed(tag, outline.content_type));
    let packed: Vec<Tag> = packed.into_iter().flatten().collect();
    Ok(tags.into_iter().map(|(_, tag)| tag).chain(packed).collect())
}

#[expect(clippy::unnecessary_wraps, reason = "it is how sending ends")]
fn being_written(x: &mut Exchange<'_>) -> io::Result<()> {
    unavailable(x, "The file is being written; come again when that is done.");
    Ok(())
}

/// Answers with what was just found on the disk; `others` are the forms that are not sent.
fn answer(
    x: &mut Exchange<'_>,
    request: &Request<'_>,
    outline: &Outline<'_>,
    others: &[(Encoding, File)],
    body: Source<'_>,
) -> io::Result<()> {
    let tags = if is_conditional(request) { tags_of(x, outline, others)? } else { Vec::new() };
    let modified_at = outline.modified_at;
    let ready = outline.head();
    respond(
        x,
        request,
        &Representation { head: &ready, tags, modified_at, dates_tell: true, body },
    );
    Ok(())
}

/// What a request may be answered with.
struct Representation<'a> {
    head: &'a FileHead,
    /// Whoever has a form with one of these need not be sent another.
    tags: Vec<Tag>,
    modified_at: u64,
    /// Whether a client that has what was there at that time has this.
    dates_tell: bool,
    body: Source<'a>,
}

/// Where its bytes are.
enum Source<'a> {
    /// In the cache.
    Cached { entry: &'a Arc<CachedFile>, encoding: Encoding, body: &'a [u8] },
    /// Just read.
    Read(&'a [u8]),
    /// On the disk.
    Stored { file: &'a Arc<File>, length: u64 },
}

impl<'a> Source<'a> {
    fn length(&self) -> u64 {
        match self {
            Source::Cached { body, .. } | Source::Read(body) => body.len() as u64,
            Source::Stored { length, .. } => *length,
        }
    }

    fn part(&self, from: u64, length: u64) -> Part<'a> {
        let within = from as usize..(from + length) as usize;
        match *self {
            Source::Cached { entry, encoding, body } => {
                Part::Cached { entry, encoding, from: from as u32, bytes: &body[within] }
            }
            Source::Read(body) => Part::Bytes(&body[within]),
            Source::Stored { file, .. } => Part::Stored { file, from, length },
        }
    }
}

/// Judges the conditions and sends what is due: all, some or nothing.
fn respond(x: &mut Exchange<'_>, request: &Request<'_>, file: &Representation<'_>) {
    let Representation { modified_at, dates_tell, .. } = *file;
    let named = |list: &[u8], comparison| condition::named(list, &file.tags, comparison);
    let validators = Validators { named, modified_at, dates_tell };
    match condition::judge(request, &validators, x.clock.unix_s) {
        Verdict::Send => {}
        Verdict::NotModified(which) => {
            let theirs = which.map_or(file.head.tag(), |which| file.tags[which]);
            let head = x.reply.begin(Status::NOT_MODIFIED);
            head.rendered(&file.head.validators_of(&theirs)).end();
            return;
        }
        Verdict::Mismatch => {
            return x.reply.reject(&OTHER_FILE);
        }
        Verdict::Newer => {
            return x.reply.reject(&NEWER_FILE);
        }
    }
    let length = file.body.length();
    let wanted = match request.range {
        // Range means something with GET only (RFC 9110 section 14.2).
        Some(range) if request.method == Method::Get && unchanged(x, request, file) => {
            ranges(range, length)
        }
        _ => Ranges::Whole,
    };
    match wanted {
        Ranges::Whole => {
            x.reply.file(file.head);
            if file.head.is_encoded() {
                x.reply.stats.answers_compressed.add(1);
            }
            x.reply.part(file.body.part(0, length));
        }
        Ranges::Unsatisfiable => {
            let detail = format!("The file has {length} bytes, and none of those asked for.");
            let rejection = Rejection::because(ErrorCode::RangeNotSatisfiable, detail);
            let head = x.reply.begin(rejection.status());
            head.field(Field::CONTENT_RANGE, format!("bytes */{length}")).reject(&rejection);
        }
        Ranges::Parts(parts) => match *parts {
            [part] => one_part(x, file, part, length),
            ref parts => many_parts(x, file, parts, length),
        },
    }
}

/// Whether the client that asks for parts has others of the same file (RFC 9110 section 13.1.5).
fn unchanged(x: &Exchange<'_>, request: &Request<'_>, file: &Representation<'_>) -> bool {
    let tag = file.head.tag();
    request
        .if_range
        .is_none_or(|condition| if_range(condition, tag.as_ref(), file.modified_at, x.clock.unix_s))
}

fn one_part(x: &mut Exchange<'_>, file: &Representation<'_>, part: ByteRange, length: u64) {
    let ByteRange { first, last } = part;
    let head = x.reply.begin(Status::PARTIAL_CONTENT).rendered(file.head.fields());
    head.field(Field::CONTENT_RANGE, format!("bytes {first}-{last}/{length}"))
        .end_with_length(part.length());
    x.reply.part(file.body.part(first, part.length()));
}

/// Several parts, each with a head of its own (RFC 9110 section 14.6).
fn many_parts(x: &mut Exchange<'_>, file: &Representation<'_>, parts: &[ByteRange], length: u64) {
    // Chance, so that no file can hold it on purpose.
    let boundary = format!("{:016x}{:016x}", x.rng.next_u64(), x.rng.next_u64());
    let kind = file.head.content_type();
    let heads: Vec<String> = parts.iter().map(|part| part.head(&boundary, kind, length)).collect();
    let end = parts_end(&boundary);
    let heads_bytes: usize = heads.iter().map(String::len).sum();
    let bytes: u64 = parts.iter().map(|part| part.length()).sum();
    let head = x.reply.begin(Status::PARTIAL_CONTENT).rendered(file.head.validators());
    head.field(Field::CONTENT_TYPE, format!("multipart/byteranges; boundary={boundary}"))
        .field(Field::NO_SNIFFING, NO_SNIFFING)
        .field(Field::ACCEPT_RANGES, "bytes")
        .end_with_length(bytes + (heads_bytes + end.len()) as u64);
    for (head, part) in heads.iter().zip(parts) {
        x.reply.part(Part::Bytes(head.as_bytes()));
        x.reply.part(file.body.part(part.first, part.length()));
    }
    x.reply.part(Part::Bytes(end.as_bytes()));
}

rejections! {
    NOT_FOUND: FileNotFound = "There is neither a value nor a file here.";
    UNREADABLE: FileForbidden = "The server is not allowed to read this file.";
    OTHER_FILE: PreconditionFailed = "The file is another one by now (If-Match).";
    NEWER_FILE: PreconditionFailed = "The file is newer than that (If-Unmodified-Since).";
}
