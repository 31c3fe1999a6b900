//! What the automation and the tests of tidiness share: a look at the project's own text.

#![forbid(unsafe_code)]

pub mod metrics;
pub mod source;
pub mod syntax;
