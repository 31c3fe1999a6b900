//! A store without its server: looked at, mended, copied, written out as lines and made of lines.
//!
//! To check and to repair a store takes its lock. To copy it and to write it out does not: what is
//! read of a store that is in use is right, or the reading fails and begins anew.
//!
//! Errors are sentences for whoever runs a command: what was tried, with what, and what to do.

use crate::rewrite::write_slices;
use crate::{Loaded, load};
use serde::Serialize;
use std::io::{self, BufRead, Write};
use std::path::Path;
use std::time::Duration;
use stentor_config::{date_of, parse_moment};
use stentor_hub::{
    ContentType, Entry, Epoch, Event, Hub, Id, Limits, Message, MessageObject, Op, Past, Pattern,
    Place, Rule, StreamForm,
};
use stentor_io::{Disk, DiskErrorKind, HostDisk, sleep, unix_s};
use stentor_log::{Damage, OpenError, Recovery};
use stentor_wire::target::TopicName;

/// What is in a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Contents {
    /// The life of its numbers.
    pub epoch: Epoch,
    /// Topics that have a value.
    pub topics: usize,
    /// The next start goes on behind this number.
    pub last: u64,
    /// Bytes of its files, with what is made ready for messages to come.
    pub bytes: u64,
    /// It was closed, and not cut short by a crash.
    pub was_closed: bool,
    /// Where something was begun and not written to its end.
    pub torn: Option<(String, u64)>,
}

/// What a check came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Checked {
    /// All of it verifies.
    Sound(Contents),
    /// Not all of it does.
    Damaged(Vec<Damage>),
}

/// Verifies a store that nobody has in use, from its first to its last byte.
///
/// # Errors
/// It is in use, it is none, or the disk failed.
pub fn check(path: &Path) -> Result<Checked, String> {
    let disk = take(path)?;
    let damages = stentor_log::check(disk.clone()).map_err(told(path))?;
    if !damages.is_empty() {
        return Ok(Checked::Damaged(damages));
    }
    Recovery::open(disk).and_then(contents).map(Checked::Sound).map_err(told(path))
}

/// Makes a store of whatever verifies, with a new EPOCH; one that is sound stays as it is. Returns
/// the damages, and what is left.
///
/// # Errors
/// As [`check`]; or there is no room for the copy.
pub fn repair(path: &Path) -> Result<(Vec<Damage>, Contents), String> {
    let disk = take(path)?;
    let damages = stentor_log::repair(&disk, Epoch::random().number()).map_err(told(path))?;
    let left = Recovery::open(disk).and_then(contents).map_err(told(path))?;
    Ok((damages, left))
}

/// Copies a store, which may be in use, into a directory that has none, and reads the copy.
///
/// # Errors
/// Either cannot be read, or the copy cannot be written.
pub fn backup(path: &Path, target: &Path) -> Result<Contents, String> {
    let from = look(path)?;
    let to = HostDisk::open(target, None).map_err(|error| told(target)(error.into()))?;
    let epoch = Epoch::random().number();
    read_in_use(&from, |recovery| stentor_log::backup(recovery, &to, epoch)).map_err(|error| {
        format!("cannot copy {} to {}: {error}", path.display(), target.display())
    })?;
    Recovery::open(to).and_then(contents).map_err(told(target))
}

/// What is in a store, to be written out as lines.
pub struct Export(Vec<Event>);

/// Reads a store, which may be in use, to write it out.
///
/// # Errors
/// It cannot be read.
pub fn export(path: &Path) -> Result<Export, String> {
    let from = look(path)?;
    let filled = read_in_use(&from, fill);
    filled.map(|(hub, _)| Export(hub.kept())).map_err(told(path))
}

impl Export {
    /// Writes JSON, a line for each message and deletion, in their order.
    ///
    /// # Errors
    /// What is written to says.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut line = Vec::new();
        for event in &self.0 {
            line.clear();
            export_line(event, &mut line);
            out.write_all(&line)?;
        }
        out.flush()
    }
}

/// Makes a store of such lines, in a directory that has none. Lines without an id are numbered in
/// their order, and lines without a time are of now.
///
/// # Errors
/// A line is none; the error says which and why. Or the store cannot be written. Then there is
/// none.
pub fn import(path: &Path, lines: &mut dyn BufRead) -> Result<Contents, String> {
    refuse_root(path)?;
    let disk = HostDisk::open(path, None).map_err(|error| told(path)(error.into()))?;
    if let Some(file) = stentor_log::file_of_store(&disk).map_err(|e| told(path)(e.into()))? {
        return Err(format!(
            "there is a store in {} already ({file}): name an empty directory",
            path.display()
        ));
    }
    let epoch = Epoch::random();
    let hub = new_hub(epoch, keeps_all());
    let mut text = String::new();
    for number in 1.. {
        text.clear();
        let wrong = |reason: String| format!("line {number}: {reason}");
        let read = lines.read_line(&mut text);
        if read.map_err(|error| wrong(format!("it cannot be read: {error}")))? == 0 {
            break;
        }
        if !text.trim().is_empty() {
            let object = MessageObject::parse(&text).map_err(String::from);
            object.and_then(|object| apply(object, &hub)).map_err(wrong)?;
        }
    }
    let made = stentor_log::import(&disk, epoch.number(), |writer| {
        write_slices(writer, &hub)?;
        Ok(hub.seq())
    });
    made.map_err(|error| told(path)(error.into()))?;
    let read_back = Recovery::open(disk.clone()).and_then(contents).map_err(told(path));
    read_back.inspect_err(|_| {
        // No store is left that no server can read.
        let made = stentor_log::file_of_store(&disk).ok().flatten();
        let _ = made.map(|file| disk.remove(&file));
    })
}

const DAY_S: u64 = 24 * 60 * 60;

/// What an export has of a message besides the members of its envelope.
#[derive(Serialize)]
struct ExportMembers<'a> {
    published_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<&'a str>,
    /// Of a deletion, the number of the topic's last value.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_seq: Option<u64>,
}

/// Writes a message object as a line: the envelope that streams send, and the other members.
fn export_line(event: &Event, out: &mut Vec<u8>) {
    let message = &event.message;
    match is_exact(message) {
        true => event.append(StreamForm::Envelope, out),
        false => out.extend_from_slice(&event.envelope_of_bytes()),
    }
    let members = ExportMembers {
        published_at: date_of(message.published_at()),
        cache_control: message.own_cache_control(),
        last_seq: message.is_deletion().then(|| message.last_seq()),
    };
    // Strings and numbers always make JSON: an object, of which the braces are left out.
    let members = serde_json::to_string(&members).unwrap_or_default();
    out.pop();
    out.push(b',');
    out.extend_from_slice(members.trim_start_matches('{').as_bytes());
    out.push(b'\n');
}

/// Whether the envelope of a message is one line from which the same bytes are read. JSON is
/// written as it is: it may have line breaks between tokens, and white space around it is lost.
fn is_exact(message: &Message) -> bool {
    let is_json = ContentType::parse(message.content_type()).is_ok_and(|it| it.is_json());
    let data = message.data();
    let has_line_break = data.iter().any(|byte| matches!(byte, b'\n' | b'\r'));
    !is_json || !has_line_break && data.trim_ascii().len() == data.len()
}

/// Has the hub know of a message or a deletion, behind all that it knows already.
fn apply(object: MessageObject<'_>, hub: &Hub) -> Result<(), String> {
    let topic = TopicName::parse(&*object.topic)?;
    let number = match &object.id {
        None => hub.seq() + 1,
        Some(id) => id.parse::<Id>().map_err(|_| format!("'{id}' is no id"))?.seq,
    };
    if number <= hub.seq() {
        return Err(format!(
            "{number} is not behind {}: the numbers of the ids must grow from line to line",
            hub.seq()
        ));
    }
    // So many are put apart for what is published before they are on the disk.
    if number > SEQ_MAX {
        return Err(format!("{number} is more than the greatest number, {SEQ_MAX}"));
    }
    if let Some(last_seq) = object.last_seq.filter(|last_seq| *last_seq >= number) {
        return Err(format!("last_seq {last_seq} is not below the number {number}"));
    }
    let at = object.published_at.as_deref().map(parse_moment).transpose();
    let at = at.map_err(|reason| format!("published_at: {reason}"))?;
    if let Some(at) = at.filter(|at| *at > unix_s() + DAY_S) {
        return Err(format!("published_at {} is later than tomorrow", date_of(at)));
    }
    let (op, last_seq) = match (object.deleted, object.last_seq) {
        (true, last_seq) => {
            object.expect_no_data()?;
            (Op::Delete(topic), last_seq.unwrap_or(0))
        }
        (false, None) => (Op::Put(topic, object.stored_draft()?), 0),
        (false, Some(_)) => return Err("last_seq is of deletions only".to_owned()),
    };
    let entry = Entry::past(op, at.unwrap_or_else(unix_s));
    let past = Past { number, shares_second: false, last_seq };
    hub.apply(entry, Place::Was(past)).map(drop).map_err(|refusal| refusal.to_string())
}

/// Reads a store that may be in use, and begins anew where its server was in the way.
fn read_in_use<R>(
    disk: &HostDisk,
    mut read: impl FnMut(Recovery<HostDisk>) -> Result<R, OpenError>,
) -> Result<R, OpenError> {
    let mut left = ATTEMPTS;
    loop {
        left -= 1;
        match Recovery::open_in_use(disk.clone()).and_then(&mut read) {
            Err(OpenError::Damaged(_)) if left > 0 => {}
            Err(OpenError::Disk(error)) if left > 0 && error.kind == DiskErrorKind::Failed => {}
            done => return done,
        }
        sleep(Duration::from_millis(100));
    }
}

/// What is in a store, which is read as a server reads it.
fn contents(recovery: Recovery<HostDisk>) -> Result<Contents, OpenError> {
    fill(recovery).map(|(_, contents)| contents)
}

/// A hub with what is in a store.
fn fill(recovery: Recovery<HostDisk>) -> Result<(Hub, Contents), OpenError> {
    let bytes = recovery.bytes()?;
    let epoch = recovery.epoch().map_or_else(Epoch::random, Epoch::from_number);
    let hub = new_hub(epoch, Vec::new());
    let Loaded { recovered, .. } = load(recovery, &hub, unix_s(), |_| {})?;
    let contents = Contents {
        epoch,
        topics: hub.counts().topics,
        last: recovered.last,
        bytes,
        was_closed: recovered.was_closed,
        torn: recovered.torn,
    };
    Ok((hub, contents))
}

fn new_hub(epoch: Epoch, rules: Vec<Rule>) -> Hub {
    let limits = Limits {
        topics_max: usize::MAX,
        message_bytes_max: usize::MAX,
        stored_bytes_max: usize::MAX,
    };
    Hub::new(epoch, rules, limits)
}

/// Whatever the store has: which of it counts, the rules of a server say.
fn keeps_all() -> Vec<Rule> {
    vec![Rule { history: u32::MAX, history_bytes: usize::MAX, ..Rule::new(Pattern::any()) }]
}

/// Takes a store for itself.
fn take(path: &Path) -> Result<HostDisk, String> {
    look(path)?;
    refuse_root(path)?;
    HostDisk::open(path, None).map_err(|error| match error.kind {
        DiskErrorKind::Locked => format!(
            "the store in {} is in use: stop its server first, or copy it (stentor store backup) \
             and look at the copy",
            path.display()
        ),
        _ => told(path)(error.into()),
    })
}

/// Opens a store to read it, whoever has it.
fn look(path: &Path) -> Result<HostDisk, String> {
    let disk = HostDisk::look(path).map_err(|error| told(path)(error.into()))?;
    match stentor_log::file_of_store(&disk).map_err(|error| told(path)(error.into()))? {
        Some(_) => Ok(disk),
        None => Err(format!("there is no store in {}", path.display())),
    }
}

/// What root makes in the directory of another user, that user's server could not open.
fn refuse_root(path: &Path) -> Result<(), String> {
    let owner = stentor_io::file_state(path).map_or(0, |state| state.owner);
    if stentor_io::is_root() && owner != 0 {
        return Err(format!(
            "{} is the directory of user {owner}, who could not open what root makes there: run \
             this as that user (sudo -u '#{owner}' stentor store …)",
            path.display()
        ));
    }
    Ok(())
}

fn told(path: &Path) -> impl Fn(OpenError) -> String {
    move |error| format!("the store in {}: {error}", path.display())
}

/// So often a store that is in use is read before its errors are believed.
const ATTEMPTS: u32 = 5;

/// The greatest number of a line: far from the end of numbers, and from what JSON holds exactly.
const SEQ_MAX: u64 = 1 << 53;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_number_that_json_holds() {
        let apply = |number: u64| {
            let hub = Hub::new(Epoch::from_number(1), Vec::new(), Limits::default());
            let id = Id { epoch: Epoch::from_number(1), seq: number }.to_string();
            let line = format!("{{\"topic\":\"/a\",\"id\":\"{id}\",\"data\":\"1\"}}");
            super::apply(MessageObject::parse(&line).unwrap(), &hub)
        };
        assert_eq!(apply(1 << 53), Ok(()));
        assert!(apply((1 << 53) + 1).unwrap_err().contains("the greatest number"));
    }

    #[test]
    fn an_import_may_delete_a_topic_twice() {
        let path = std::env::temp_dir().join(format!("stentor-import-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        let line = "{\"topic\":\"/a\",\"deleted\":true}\n";
        let imported = import(&path, &mut line.repeat(2).as_bytes());
        let exported = export(&path).map(|export| {
            let mut lines = Vec::new();
            export.write(&mut lines).unwrap();
            String::from_utf8(lines).unwrap()
        });
        std::fs::remove_dir_all(&path).unwrap();
        assert_eq!(imported.map(|contents| (contents.topics, contents.last)), Ok((0, 2)));
        assert_eq!(exported.map(|lines| lines.lines().count()), Ok(1));
    }
}
