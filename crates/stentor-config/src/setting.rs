//! The rows of the tables of settings. A row has the field of a setting and its default, its key
//! and form, and whether a change needs a restart. The structures follow from the rows, and so do
//! the reader of documents and of the environment, the output of `stentor config`, and the tests of
//! the reference. A reload takes from the rows which settings it cannot change.
//!
//! The library `confique` derives such a table too, but reads the environment itself, does not see
//! misspelt variables, and takes an empty one for none; `figment` and `config` lose lines and
//! columns.

use serde::{Deserialize, Deserializer};
use toml::Value;
use toml::de::{Error, ValueDeserializer};

use crate::described::ValueForm;

/// A setting that has one value or a list of them, of the settings `S`.
pub(crate) struct Setting<S: 'static> {
    /// The table of the document; empty for the top level.
    pub(crate) table: &'static str,
    pub(crate) key: &'static str,
    /// The keys of its table without which no other setting there has an effect, if it has some.
    pub(crate) switches: &'static [&'static str],
    pub(crate) shape: ValueShape,
    /// The form of its value.
    pub(crate) form: fn() -> ValueForm,
    /// The lines of its description.
    pub(crate) help: &'static [&'static str],
    /// Whether its value, or what is written in its place, may be a secret. Errors do not show it.
    pub(crate) is_secret: bool,
    /// Whether a change counts from the next start only.
    pub(crate) needs_restart: bool,
    /// Takes the value of a document.
    pub(crate) read: Read<S>,
    /// The value as a document would say it.
    pub(crate) show: fn(&S) -> Value,
    /// Copies the value from the first settings to the second.
    pub(crate) copy: fn(&S, &mut S),
}

/// Takes a value of a document into settings.
pub(crate) type Read<S> = fn(ValueDeserializer<'_>, &mut S) -> Result<(), Error>;

/// How the environment, which has only text, writes a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ValueShape {
    /// The text itself. Quantities are read from text too, so `1234` may be a name or a number.
    Text,
    /// Texts with commas between them; nothing for an empty list.
    List,
    /// `true` or `false`.
    Flag,
}

/// How a value of type `T` is written.
pub(crate) trait Form<T>: for<'de> Deserialize<'de> {
    const SHAPE: ValueShape = ValueShape::Text;
    const IS_SECRET: bool = false;

    fn value(self) -> T;

    /// The value as a document would say it.
    fn show(value: &T) -> Value;

    fn read<'de, D: Deserializer<'de>>(source: D) -> Result<T, D::Error> {
        Self::deserialize(source).map(Self::value)
    }
}

/// Declares a structure with its settings, in groups that are printed together. A group says what
/// its table is switched `on` by: one of these keys, or `[]` if it always has an effect. A row is
/// `field: Type = default, key: Form;`, and `key(restart)` if a change needs a restart. After `in`
/// stands the type of all settings, and the place of the structure in it. Fields after `and` are no
/// rows of the table.
macro_rules! settings {
    (
        $(#[$meta:meta])*
        pub struct $name:ident in $all:ident $place:tt {
            $($group:ident: $table:literal on $switches:tt {$(
                $(#[doc = $help:literal])*
                $field:ident: $type:ty = $default:expr, $key:ident $(($restart:ident))?: $form:ty;
            )*})*
        }
        $(and {$(
            $(#[$other_doc:meta])*
            $other:ident: $other_type:ty = $other_default:expr;
        )*})?
    ) => {
        $(#[$meta])*
        pub struct $name {
            $($($(#[doc = $help])* pub $field: $type,)*)*
            $($($(#[$other_doc])* pub $other: $other_type,)*)?
        }

        impl Default for $name {
            fn default() -> $name {
                $name { $($($field: $default,)*)* $($($other: $other_default,)*)? }
            }
        }

        $(crate::setting::rows! {
            $group in $all $place: $table on $switches {
                $($(#[doc = $help])* $field: $type, $key $(($restart))?: $form;)*
            }
        })*
    };
}

/// The rows of settings whose structure is declared elsewhere.
macro_rules! rows {
    ($group:ident in $all:ident $place:tt: $table:literal on $switches:tt {$(
        $(#[doc = $help:literal])*
        $field:ident: $type:ty, $key:ident $(($restart:ident))?: $form:ty;
    )*}) => {
        pub(crate) const $group: &[crate::setting::Setting<$all>] = &[$({
            use crate::setting::{Form, Setting, at};
            Setting {
                table: $table,
                key: stringify!($key),
                switches: crate::setting::names!($switches),
                shape: <$form as Form<$type>>::SHAPE,
                form: <$form as crate::described::Described>::form,
                help: &[$($help),*],
                is_secret: <$form as Form<$type>>::IS_SECRET,
                needs_restart: !<[&str]>::is_empty(&[$(stringify!($restart))?]),
                read: |value, settings| {
                    at!(settings, $place, $field) = <$form as Form<$type>>::read(value)?;
                    Ok(())
                },
                show: |settings| <$form as Form<$type>>::show(&at!(settings, $place, $field)),
                copy: |from, to| {
                    at!(to, $place, $field).clone_from(&at!(from, $place, $field));
                },
            }
        }),*];
    };
}

/// The names of keys.
macro_rules! names {
    ([$($key:ident)*]) => { &[$(stringify!($key)),*] };
}

/// A field of the structure at that place in the settings.
macro_rules! at {
    ($settings:ident, ($($place:ident)*), $field:ident) => { $settings$(.$place)*.$field };
}

pub(crate) use {at, names, rows, settings};

impl<S> Setting<S> {
    /// Its name in messages and in the reference.
    pub(crate) fn name(&self) -> String {
        let dot = if self.table.is_empty() { "" } else { "." };
        format!("{}{dot}{}", self.table, self.key)
    }

    /// Its name in the environment.
    pub(crate) fn variable(&self) -> String {
        format!("STENTOR_{}", self.name().replace('.', "_").to_ascii_uppercase())
    }

    /// Whether a running server has it as these settings say, until it is started again.
    pub(crate) fn waits(&self, running: &S, next: &S) -> bool {
        self.needs_restart && (self.show)(running) != (self.show)(next)
    }
}
