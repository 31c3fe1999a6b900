//! HTTP over a socket file.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use stentor_io::{ByteStream, Dialer, connect_to_file};

/// Connects to the socket file, whatever host a URL names.
#[derive(Debug)]
pub(super) struct SocketFile(pub(super) PathBuf);

impl Dialer for SocketFile {
    fn resolve(&self, _: &str, _: Option<u64>) -> io::Result<Vec<SocketAddr>> {
        // The path is the address. Any other one stands for it.
        Ok(vec![(Ipv4Addr::UNSPECIFIED, 0).into()])
    }

    fn connect(&self, _: SocketAddr, _: Option<u64>) -> io::Result<Arc<dyn ByteStream>> {
        connect_to_file(&self.0)
    }
}
