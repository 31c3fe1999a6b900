//! What the tests of several crates share.
//!
//! A test must not ask the code that it judges what is right. So the readings of the formats here
//! are written anew from their description, in the plainest way, and use nothing of the product.

#![forbid(unsafe_code)]

pub mod pattern;
pub mod seeds;
pub mod sse;

pub use stentor_io::Rng;
