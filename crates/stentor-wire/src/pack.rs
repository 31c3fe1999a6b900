//! State as bytes: what one process packs, the next one unpacks and goes on with.
//!
//! What has a packed form is [`Packed`]. For structs and enums [`packed!`](crate::packed) writes
//! both ways from one list of what they have. The list is complete or it does not compile, so
//! nothing that is added later is forgotten: it is packed, or it is named as what begins anew.
//!
//! Numbers are eight bytes at most, little end first; what has a length has it before it, as four
//! bytes. Whoever reads believes nothing: no length before its bytes are there, no number that
//! stands for nothing, no parts that do not fit each other. Moments are told as seen from now,
//! since the next process has another clock.
//!
//! No codec on serde, such as postcard, can take its place. Packed state depends on a clock, on
//! shared bytes and on open files, and serde hands no such context to each part. bincode did, and
//! is no longer maintained.
//!
//! What several things share, and what is no bytes, an open file, goes over beside them, once each:
//! the bytes have its place ([`Beside`]). All of it can be taken in parts, and be unpacked part by
//! part while more is packed.

use std::any::Any;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use crate::error::Rejection;
use crate::target::TopicName;

/// What has a packed form.
pub trait Packed: Sized {
    /// A hash of the form: of the names and the forms of all that is packed, in their order. Two
    /// programs with the same one read what the other has packed.
    const FORMAT: u64;

    /// Appends it.
    fn pack(&self, out: &mut Packer);

    /// Takes it off the front.
    ///
    /// # Errors
    ///
    /// One sentence, if what is there is none.
    fn unpack(input: &mut Unpacker<'_>) -> Unpacked<Self>;

    /// Appends several of them.
    fn pack_list(items: &[Self], out: &mut Packer) {
        items.iter().for_each(|item| item.pack(out));
    }

    /// Takes so many of them off the front.
    ///
    /// # Errors
    ///
    /// As above, if one of them is none.
    fn unpack_list(length: usize, input: &mut Unpacker<'_>) -> Unpacked<Vec<Self>> {
        // The list grows as they come: the length may be a lie.
        (0..length).map(|_| Self::unpack(input)).collect()
    }
}

/// The hash of a form with this description and these parts (FNV-1a).
#[must_use]
pub const fn format(description: &str, parts: &[u64]) -> u64 {
    let mut hash = hash_bytes(0xcbf2_9ce4_8422_2325, description.as_bytes());
    let mut i = 0;
    while i < parts.len() {
        hash = hash_bytes(hash, &parts[i].to_le_bytes());
        i += 1;
    }
    hash
}

const fn hash_bytes(mut hash: u64, bytes: &[u8]) -> u64 {
    let mut i = 0;
    while i < bytes.len() {
        hash = (hash ^ bytes[i] as u64).wrapping_mul(0x0100_0000_01b3);
        i += 1;
    }
    hash
}

/// The form of what a function returns, which is never called: for [`packed!`](crate::packed),
/// which knows the names of fields, and not their types.
#[must_use]
pub const fn format_of<S, T: Packed>(_: fn(S) -> T) -> u64 {
    T::FORMAT
}

/// What was unpacked, or one sentence.
pub type Unpacked<T> = Result<T, &'static str>;

/// What goes over beside the bytes.
pub type Thing = Arc<dyn Any + Send + Sync>;

/// Where state is packed to.
#[derive(Default, Debug)]
pub struct Packer {
    bytes: Vec<u8>,
    now_ms: u64,
    /// What several things share: once each, behind its length.
    shared: Vec<u8>,
    /// By address and length, its place among all that is shared.
    places: HashMap<(usize, usize), u32>,
    /// All there were, so that no other has the address of one of them.
    things: Vec<Thing>,
    /// So many of them were taken.
    things_taken: usize,
    /// By address, its place among them.
    thing_places: HashMap<usize, u32>,
}

impl Packer {
    /// Without anything yet, at this moment.
    #[must_use]
    pub fn new(now_ms: u64) -> Packer {
        Packer { now_ms, ..Packer::default() }
    }

    /// Appends bytes as they are.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends bytes that others may share, which are where they are until all is packed.
    pub fn share(&mut self, bytes: &[u8]) {
        let next = self.places.len() as u32;
        let key = (bytes.as_ptr() as usize, bytes.len());
        let place = *self.places.entry(key).or_insert(next);
        if place == next {
            self.shared.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            self.shared.extend_from_slice(bytes);
        }
        place.pack(self);
    }

    /// Appends the place of something that goes over beside the bytes, once for all who have it.
    pub fn attach(&mut self, thing: Thing) {
        let next = self.things.len() as u32;
        let address = Arc::as_ptr(&thing).cast::<()>() as usize;
        let place = *self.thing_places.entry(address).or_insert(next);
        if place == next {
            self.things.push(thing);
        }
        place.pack(self);
    }

    /// How many bytes were packed, and not taken.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Appends what is shared by what was packed and was not told before, for
    /// [`Beside::add_shared`].
    pub fn put_shared(&mut self) {
        self.bytes.append(&mut self.shared);
    }

    /// The bytes that were packed since this was asked last, and the things that go with them, for
    /// [`Beside::add_things`]. The next part begins when `send` returns.
    pub fn send<T>(&mut self, send: impl FnOnce(&[u8], &[Thing]) -> T) -> T {
        let sent = send(&self.bytes, &self.things[self.things_taken..]);
        self.things_taken = self.things.len();
        self.bytes.clear();
        sent
    }

    /// Appends a moment.
    #[inline]
    pub fn moment(&mut self, ms: u64) {
        (ms.wrapping_sub(self.now_ms) as i64).pack(self);
    }

    /// Appends a part with its name and its length before it.
    pub fn section(&mut self, name: u8, write: impl FnOnce(&mut Packer)) {
        let section = self.begin_section(name);
        write(self);
        self.end_section(section);
    }

    /// The same, of whatever is packed until [`Packer::end_section`].
    pub fn begin_section(&mut self, name: u8) -> Section {
        name.pack(self);
        0_u32.pack(self);
        Section { start: self.bytes.len() }
    }

    /// Ends the section that was begun last.
    pub fn end_section(&mut self, section: Section) {
        let length = (self.bytes.len() - section.start) as u32;
        let place = section.start - size_of::<u32>()..section.start;
        self.bytes[place].copy_from_slice(&length.to_le_bytes());
    }

    /// The bytes that were packed since the last [`Packer::send`]. Shared bytes are among them only
    /// after [`Packer::put_shared`].
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// A section that has been begun.
#[derive(Debug)]
#[must_use]
pub struct Section {
    start: usize,
}

/// What has come beside the bytes, of all parts so far.
#[derive(Debug, Default)]
pub struct Beside {
    shared: Vec<Arc<[u8]>>,
    things: Vec<Thing>,
}

impl Beside {
    /// Adds what is shared, as it was told.
    ///
    /// # Errors
    /// If its lengths do not fit.
    pub fn add_shared(&mut self, bytes: &[u8]) -> Unpacked<()> {
        let mut input = Unpacker::new(bytes, 0);
        while !input.is_at_end() {
            let length = length(&mut input)?;
            self.shared.push(Arc::from(input.take(length)?));
        }
        Ok(())
    }

    /// Adds things, in their order.
    pub fn add_things(&mut self, things: impl IntoIterator<Item = Thing>) {
        self.things.extend(things);
    }
}

static NOTHING: Beside = Beside { shared: Vec::new(), things: Vec::new() };

/// Where state is unpacked from.
#[derive(Debug)]
pub struct Unpacker<'a> {
    rest: &'a [u8],
    now_ms: u64,
    beside: &'a Beside,
}

impl<'a> Unpacker<'a> {
    /// At the beginning of `bytes`, at this moment.
    #[must_use]
    pub fn new(bytes: &'a [u8], now_ms: u64) -> Unpacker<'a> {
        Unpacker::with(bytes, now_ms, &NOTHING)
    }

    /// The same, with what has come beside the bytes.
    #[must_use]
    pub fn with(bytes: &'a [u8], now_ms: u64, beside: &'a Beside) -> Unpacker<'a> {
        Unpacker { rest: bytes, now_ms, beside }
    }

    /// Takes what [`Packer::share`] appended.
    ///
    /// # Errors
    /// If there is no such thing.
    pub fn shared(&mut self) -> Unpacked<Arc<[u8]>> {
        let place = u32::unpack(self)? as usize;
        self.beside.shared.get(place).cloned().ok_or(UNKNOWN)
    }

    /// Takes what [`Packer::attach`] told the place of.
    ///
    /// # Errors
    /// If there is no such thing, or it is something else.
    pub fn attached<T: Any + Send + Sync>(&mut self) -> Unpacked<Arc<T>> {
        let place = u32::unpack(self)? as usize;
        let thing = self.beside.things.get(place).cloned().ok_or(UNKNOWN)?;
        thing.downcast().map_err(|_| UNKNOWN)
    }

    /// What is left.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Takes so many bytes.
    ///
    /// # Errors
    /// If there are not so many left.
    #[inline]
    pub fn take(&mut self, length: usize) -> Unpacked<&'a [u8]> {
        self.rest.split_off(..length).ok_or(ENDS)
    }

    /// Takes a moment. What lies before the beginning of this clock becomes that beginning.
    ///
    /// # Errors
    /// If the bytes end before it does.
    #[inline]
    pub fn moment(&mut self) -> Unpacked<u64> {
        Ok(self.now_ms.saturating_add_signed(i64::unpack(self)?))
    }

    /// Takes the part of this name, which must come next.
    ///
    /// # Errors
    /// If it does not, or the bytes end before it does.
    pub fn section(&mut self, name: u8) -> Unpacked<Unpacker<'a>> {
        if u8::unpack(self)? != name {
            return Err("Another part of what was packed should have come here.");
        }
        let length = length(self)?;
        Ok(Unpacker { rest: self.take(length)?, now_ms: self.now_ms, beside: self.beside })
    }

    /// Whether everything was taken.
    #[inline]
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// Nothing may be left.
    ///
    /// # Errors
    /// If something is.
    pub fn end(&self) -> Unpacked<()> {
        if self.is_at_end() { Ok(()) } else { Err("More was packed than is known here.") }
    }
}

/// Implements [`Packed`] for a struct by the list of its fields, or for an enum by the list of its
/// variants and their numbers. A variant without fields may have two numbers: it takes two bytes.
///
/// Fields named behind `without` are not packed: they begin anew, with their default. A function
/// named behind `if` says whether what was unpacked fits together.
#[macro_export]
macro_rules! packed {
    (struct $name:ident $(<$of:ident>)? { $($field:ident),* $(,)? }
        $(without { $($anew:ident),* $(,)? })? $(if $fits:ident)?) => {
        impl $crate::pack::Packed for $name $(<$of>)? {
            const FORMAT: u64 = $crate::pack::format(
                concat!("struct ", stringify!($name) $(, " ", stringify!($field))*),
                &[$($crate::pack::format_of(|it: Self| it.$field)),*],
            );

            fn pack(&self, out: &mut $crate::pack::Packer) {
                let $name { $($field,)* $($($anew: _,)*)? } = self;
                $($crate::pack::Packed::pack($field, out);)*
            }

            fn unpack(
                input: &mut $crate::pack::Unpacker<'_>,
            ) -> $crate::pack::Unpacked<$name $(<$of>)?> {
                $(let $field = $crate::pack::Packed::unpack(input)?;)*
                let all = $name { $($field,)* $($($anew: Default::default(),)*)? };
                $(if !all.$fits() {
                    return Err($crate::pack::MISFIT);
                })?
                Ok(all)
            }
        }
    };
    (enum $name:ident {
        $($number:literal $($second:literal)? => $variant:ident
            $(($($item:ident),*))? $({ $($field:ident),* })?),* $(,)?
    }) => {
        impl $crate::pack::Packed for $name {
            #[allow(unreachable_patterns, reason = "there may be one variant")]
            const FORMAT: u64 = $crate::pack::format(
                concat!(
                    "enum ", stringify!($name)
                    $(, " ", $number, " " $(, $second, " ")?, stringify!($variant)
                        $($(, " ", stringify!($item))*)? $($(, " ", stringify!($field))*)?)*
                ),
                &[$(
                    $($crate::pack::format_of(|it: Self| match it {
                        $name::$variant($($item),*) => ($($item,)*),
                        _ => unreachable!(),
                    }),)?
                    $($crate::pack::format_of(|it: Self| match it {
                        $name::$variant { $($field),* } => ($($field,)*),
                        _ => unreachable!(),
                    }),)?
                )*],
            );

            fn pack(&self, out: &mut $crate::pack::Packer) {
                match self {
                    $($name::$variant $(($($item),*))? $({ $($field),* })? => {
                        out.put(&[$number $(, $second)?]);
                        $($($crate::pack::Packed::pack($item, out);)*)?
                        $($($crate::pack::Packed::pack($field, out);)*)?
                    })*
                }
            }

            fn unpack(
                input: &mut $crate::pack::Unpacker<'_>,
            ) -> $crate::pack::Unpacked<$name> {
                match <u8 as $crate::pack::Packed>::unpack(input)? {
                    $($number => {
                        $(if <u8 as $crate::pack::Packed>::unpack(input)? != $second {
                            return Err($crate::pack::UNKNOWN);
                        })?
                        $($(let $item = $crate::pack::Packed::unpack(input)?;)*)?
                        $($(let $field = $crate::pack::Packed::unpack(input)?;)*)?
                        Ok($name::$variant $(($($item),*))? $({ $($field),* })?)
                    })*
                    _ => Err($crate::pack::UNKNOWN),
                }
            }
        }
    };
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Packed for $number {
            const FORMAT: u64 = format(stringify!($number), &[]);

            #[inline]
            fn pack(&self, out: &mut Packer) {
                out.put(&self.to_le_bytes());
            }

            #[inline]
            fn unpack(input: &mut Unpacker<'_>) -> Unpacked<$number> {
                let bytes = input.take(size_of::<$number>())?;
                Ok(<$number>::from_le_bytes(bytes.try_into().map_err(|_| ENDS)?))
            }
        }
    )*};
}

numbers! { u16 u32 u64 i64 }

/// A moment of the clock in milliseconds, which the next process sees on its own clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment(pub u64);

impl Packed for Moment {
    const FORMAT: u64 = format("moment", &[]);

    fn pack(&self, out: &mut Packer) {
        out.moment(self.0);
    }

    fn unpack(input: &mut Unpacker<'_>) -> Unpacked<Moment> {
        input.moment().map(Moment)
    }
}

impl Packed for u8 {
    const FORMAT: u64 = format("u8", &[]);

    #[inline]
    fn pack(&self, out: &mut Packer) {
        out.put(&[*self]);
    }

    #[inline]
    fn unpack(input: &mut Unpacker<'_>) -> Unpacked<u8> {
        input.take(1).map(|bytes| bytes[0])
    }

    fn pack_list(bytes: &[u8], out: &mut Packer) {
        out.put(bytes);
    }

    fn unpack_list(length: usize, input: &mut Unpacker<'_>) -> Unpacked<Vec<u8>> {
        input.take(length).map(<[u8]>::to_vec)
    }
}

impl Packed for usize {
    const FORMAT: u64 = format("usize as u64", &[]);

    fn pack(&self, out: &mut Packer) {
        (*self as u64).pack(out);
    }

    fn unpack(input: &mut Unpacker<'_>) -> Unpacked<usize> {
        usize::try_from(u64::unpack(input)?).map_err(|_| UNKNOWN)
    }
}

impl Packed for bool {
    const FORMAT: u64 = format("bool", &[]);

    #[inline]
    fn pack(&self, out: &mut Packer) {
        u8::from(*self).pack(out);
    }

    #[inline]
    fn unpack(input: &mut Unpacker<'_>) -> Unpacked<bool> {
        match u8::unpack(input)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(UNKNOWN),
        }
    }
}

impl<T: Packed> Packed for Option<T> {
    const FORMAT: u64 = format("option", &[T::FORMAT]);

    fn pack(&self, out: &mut Packer) {
        self.is_some().pack(out);
        self.iter().for_each(|some| some.pack(out));
    }

    fn unpack(input: &mut Unpacker<'_>) -> Unpacked<Option<T>> {
        bool::unpack(input)?.then(|| T::unpack(input)).transpose()
    }
}

macro_rules! pointers {
    ($($pointer:ident)*) => {$(
        impl<T: Packed> Packed for $pointer<T> {
            const FORMAT: u64 = T::FORMAT;

            fn pack(&self, out: &mut Packer) {
                T::pack(self, out);
            }

            fn unpack(input: &mut Unpacker<'_>) -> Unpacked<$pointer<T>> {
                T::unpack(input).map($pointer::new)
            }
        }
    )*};
}

pointers! { Box Arc }

macro_rules! tuples {
    ($(($($part:ident),*))*) => {$(
        #[expect(non_snake_case, reason = "types name the parts")]
        impl<$($part: Packed),*> Packed for ($($part,)*) {
            const FORMAT: u64 = format("tuple", &[$($part::FORMAT),*]);

            fn pack(&self, out: &mut Packer) {
                let ($($part,)*) = self;
                $($part.pack(out);)*
            }

            fn unpack(input: &mut Unpacker<'_>) -> Unpacked<($($part,)*)> {
                Ok(($($part::unpack(input)?,)*))
            }
        }
    )*};
}

tuples! { (A) (A, B) (A, B, C) (A, B, C, D) }

/// As an IPv6 address, which stands for an IPv4 address as well.
impl Packed for IpAddr {
    const FORMAT: u64 = format("address", &[]);

    fn pack(&self, out: &mut Packer) {
        match self {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets().pack(out),
            IpAddr::V6(address) => address.octets().pack(out),
        }
    }

    fn unpack(input: &mut Unpacker<'_>) -> Unpacked<IpAddr> {
        <[u8; 16]>::unpack(input).map(|octets| IpAddr::from(octets).to_canonical())
    }
}

impl<T: Packed, const N: usize> Packed for [T; N] {
    const FORMAT: u64 = format("array", &[N as u64, T::FORMAT]);

    fn pack(&self, out: &mut Packer) {
        T::pack_list(self, out);
    }

    fn unpack(input: &mut Unpacker<'_>) -> Unpacked<[T; N]> {
        T::unpack_list(N, input)?.try_into().map_err(|_| MISFIT)
    }
}

impl<T: Packed> Packed for Vec<T> {
    const FORMAT: u64 = format("list", &[T::FORMAT]);

    fn pack(&self, out: &mut Packer) {
        (self.len() as u32).pack(out);
        T::pack_list(self, out);
    }

    fn unpack(input: &mut Unpacker<'_>) -> Unpacked<Vec<T>> {
        let length = length(input)?;
        T::unpack_list(length, input)
    }
}

impl<T: Packed> Packed for Box<[T]> {
    const FORMAT: u64 = format("list", &[T::FORMAT]);

    fn pack(&self, out: &mut Packer) {
        (self.len() as u32).pack(out);
        T::pack_list(self, out);
    }

    fn unpack(input: &mut Unpacker<'_>) -> Unpacked<Box<[T]>> {
        Vec::unpack(input).map(Vec::into)
    }
}

impl Packed for String {
    const FORMAT: u64 = format("text", &[]);

    fn pack(&self, out: &mut Packer) {
        (self.len() as u32).pack(out);
        out.put(self.as_bytes());
    }

    fn unpack(input: &mut Unpacker<'_>) -> Unpacked<String> {
        String::from_utf8(Vec::unpack(input)?).map_err(|_| "A text that was packed is not UTF-8.")
    }
}

impl Packed for TopicName<'static> {
    const FORMAT: u64 = format("topic", &[]);

    fn pack(&self, out: &mut Packer) {
        self.to_string().pack(out);
    }

    fn unpack(input: &mut Unpacker<'_>) -> Unpacked<TopicName<'static>> {
        TopicName::parse(String::unpack(input)?).map_err(Rejection::fixed_text)
    }
}

/// A length. Whatever has one takes a byte at least for each of what it counts.
fn length(input: &mut Unpacker<'_>) -> Unpacked<usize> {
    let length = u32::unpack(input)? as usize;
    if length <= input.rest.len() { Ok(length) } else { Err(ENDS) }
}

/// The bytes end too early.
const ENDS: &str = "What was packed ends too early.";

/// A number stands for nothing.
pub const UNKNOWN: &str = "What was packed has a number that stands for nothing here.";

/// The parts do not fit each other.
pub const MISFIT: &str = "What was packed does not fit together.";

#[cfg(test)]
mod tests;
