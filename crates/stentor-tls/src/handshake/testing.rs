//! A client of rustls, for tests and fuzzing.

use std::sync::Arc;

use rustls::crypto::aws_lc_rs::default_provider;
use rustls::{ClientConfig, ClientConnection, RootCertStore, version};

use crate::suite::Version;

/// What it says first.
pub(crate) fn client_hello(version: Version) -> Vec<u8> {
    let versions = match version {
        Version::Tls12 => [&version::TLS12],
        Version::Tls13 => [&version::TLS13],
    };
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&versions)
        .expect("the provider has suites for it")
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = "fuzz.example".try_into().expect("it is a name");
    let mut client = ClientConnection::new(Arc::new(config), name).expect("it can begin");
    let mut hello = Vec::new();
    client.write_tls(&mut hello).expect("there is room");
    hello
}
