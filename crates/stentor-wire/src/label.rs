//! Enumerations whose variants have names: in figures, in logs, on the wire.
//!
//! [`labels!`](crate::labels) makes such an enumeration from one list, so that no second list has
//! to agree with it. The crate strum does the same by procedural macros; this is one rule.

/// An enumeration by which something is counted.
pub trait Label: Copy + 'static {
    /// All variants, each at the place of its number.
    const ALL: &'static [Self];

    /// The name of the variant.
    fn name(self) -> &'static str;

    /// The number of the variant.
    fn index(self) -> usize;
}

/// Makes an enumeration, the array of all its variants, and the name of each.
#[macro_export]
macro_rules! labels {
    ($(#[$meta:meta])* $vis:vis enum $type:ident {
        $($(#[$doc:meta])* $variant:ident = $name:literal,)*
    }) => {
        $(#[$meta])*
        $vis enum $type {
            $($(#[$doc])* $variant,)*
        }

        impl $type {
            /// All variants, each at the place of its number.
            $vis const ALL: [$type; [$($name),*].len()] = [$($type::$variant),*];

            /// The name of the variant.
            #[must_use]
            $vis fn name(self) -> &'static str {
                match self {
                    $($type::$variant => $name,)*
                }
            }
        }

        impl $crate::label::Label for $type {
            const ALL: &'static [$type] = &$type::ALL;

            fn name(self) -> &'static str {
                self.name()
            }

            fn index(self) -> usize {
                self as usize
            }
        }
    };
}
