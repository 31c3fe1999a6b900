//! What the tests of several crates share.
//!
//! A test must not ask the code that it judges what is right. The decoders here follow the
//! documentation in the plainest way, and call no decoder of the product.

#![forbid(unsafe_code)]

pub mod http;
mod marks;
pub mod model;
pub mod pattern;
pub mod seeds;
mod skip;
pub mod sse;
pub mod trace;
pub mod websocket;

pub use skip::{is_root, missing, skip};
pub use stentor_io::{Rng, mark};
