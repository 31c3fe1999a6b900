//! A certificate for trying out: signed by itself, for this host, and gone with the demo.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    date_time_ymd,
};

/// Writes one, and its key.
///
/// # Errors
/// Nothing can be written there.
pub(super) fn write(certificate: &Path, key: &Path, now_unix_s: u64) -> Result<(), String> {
    let pair = KeyPair::generate().map_err(|error| error.to_string())?;
    let made = params(now_unix_s)?.self_signed(&pair).map_err(|error| error.to_string())?;
    for (path, text) in [(certificate, made.pem()), (key, pair.serialize_pem())] {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        file.and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

fn params(now_unix_s: u64) -> Result<CertificateParams, String> {
    let names = NAMES.map(str::to_owned);
    let mut params = CertificateParams::new(names).map_err(|error| error.to_string())?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "stentor demo");
    params.is_ca = IsCa::ExplicitNoCa;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    // Clocks differ.
    let begin = date_time_ymd(1970, 1, 1);
    params.not_before = begin + Duration::from_secs(now_unix_s.saturating_sub(DAY_S));
    params.not_after = begin + Duration::from_secs(now_unix_s + VALID_DAYS * DAY_S);
    Ok(params)
}

const NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

const DAY_S: u64 = 24 * 60 * 60;

/// Long enough for every demo.
const VALID_DAYS: u64 = 30;
