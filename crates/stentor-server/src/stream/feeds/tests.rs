//! What a feed promises its readers.

