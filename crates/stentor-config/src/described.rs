//! The forms of values, as data.

use serde::Serialize;

/// The form of a value.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ValueForm {
    /// A text.
    Text,
    /// `true` or `false`.
    Flag,
    /// One of these texts.
    Words {
        /// All of them.
        words: Vec<&'static str>,
    },
    /// A number.
    Number {
        /// The smallest.
        min: u64,
        /// The largest.
        max: u64,
    },
    /// A number of bytes, or text such as "64 KiB".
    Size {
        /// The smallest, in bytes.
        min: u64,
        /// The largest, in bytes.
        max: u64,
    },
    /// A number of seconds, or text such as "15s".
    Duration {
        /// The shortest, in milliseconds.
        min: u64,
        /// The longest, in milliseconds.
        max: u64,
    },
    /// A date or a moment, as a text or as TOML writes it.
    Moment,
    /// One or a list of these.
    OneOrMany {
        /// The form of each.
        of: Box<ValueForm>,
    },
    /// This, or "auto".
    AutoOr {
        /// The form of another value than "auto".
        of: Box<ValueForm>,
    },
}

/// A way of writing a value that can say what may be written.
pub(crate) trait Described {
    /// Whether a table may lack the key.
    const IS_OPTIONAL: bool = false;

    fn form() -> ValueForm;
}

/// A kind of text. It may be one of a few words.
pub(crate) trait Worded {
    fn words() -> Vec<&'static str> {
        Vec::new()
    }
}

impl Described for bool {
    fn form() -> ValueForm {
        ValueForm::Flag
    }
}

impl<F: Described> Described for Option<F> {
    const IS_OPTIONAL: bool = true;

    fn form() -> ValueForm {
        F::form()
    }
}
