//! Topics, messages, history and the one order they are published in.
//!
//! A [`Hub`] maps names to topics. Publishing turns a [`Draft`] into a [`Message`]: immutable,
//! numbered, shared behind an `Arc`, and rendered once per form for all its readers.
//! Reading a value takes no lock, and reading history takes short ones. Every publish passes one
//! sequencing point, so that all readers of any set of topics see messages in the same order.
//!
//! What is not here: sockets, files, threads and the clock. `now` is a parameter, and the slow
//! part (compression) is a method that the caller runs on a thread of its choice.
//!
//! | module | holds |
//! |---|---|
//! | `id` | [`Epoch`], [`Id`]: the cursor common to every way of reading |
//! | `field` | [`ContentType`], [`EventName`], [`CacheControl`]: values checked once |
//! | `message` | [`Draft`], [`Message`] and its renderings |
//! | `encode` | [`Encoder`]: gzip, br, zstd; and unpacking with a bound |
//! | `pattern`, `rules` | which topics a [`Rule`] speaks of, and what it says |
//! | `filter`, `subscribers` | [`Filter`], [`Filters`], [`Subscriber`]: who is told of what |
//! | `event`, `form` | [`Event`], [`Span`], [`StreamForm`]: what streams carry, byte for byte |
//! | `rendered` | [`RenderedBytes`] and the cache of them |
//! | `topic`, `tombstones` | one topic: its value and its history; deletions remembered |
//! | `entry` | [`Op`], [`Entry`], [`Place`]: changes on their way into the order |
//! | `codec` | entries as bytes |
//! | `hub` | the table, the names, the sequencing point; history; following; snapshots; memory |
//! | `interleave` | where tests let others come in between |
//! | `lock` | locks that a panic does not poison |

#![forbid(unsafe_code)]

mod codec;
mod encode;
mod entry;
mod event;
mod field;
mod filter;
mod form;
mod hub;
mod id;
mod interleave;
mod lock;
mod message;
mod object;
mod pack;
mod pattern;
mod rendered;
mod rules;
mod subscribers;
mod tombstones;
mod topic;

#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;

pub use codec::{
    ENTRY_VERSION, decode_entry, encode_entry, encode_event, encode_rules, entry_topic,
};
pub use encode::{Encoder, GzipError};
pub use entry::{Applied, Entry, Op, Past, Place, Precondition, Published, Refusal};
pub use event::{Event, Missed, Mode, Span};
pub use field::{CacheControl, ContentType, EventName};
pub use filter::{Filter, Filters};
pub use hub::snapshot::{Restore, Restored, Snapshot, Unwritable};
pub use hub::{Adopted, Counts, Hub, Limits, NotAdopted, Page, Share, Shortage, Stored, TopicInfo};
pub use id::{Epoch, Id, IdText, InvalidId, Life};
#[cfg(any(test, feature = "interleave"))]
pub use interleave::{with_hook, with_hook_inside};
pub use message::{Draft, Form, JsonPlace, Message};
pub use object::MessageObject;
pub use pattern::{Pattern, PatternRef};
pub use rendered::{RenderedBytes, StreamForm};
pub use rules::{AccessList, Guard, Keep, LeaveOut, Rule, access_list};
pub use subscribers::{Subscriber, SubscriberId};
