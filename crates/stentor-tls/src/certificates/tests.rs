//! What is read out of files, and what is refused, in which words.

use rcgen::{CertificateParams, CustomExtension, ExtendedKeyUsagePurpose, date_time_ymd};

use super::*;
use crate::authority::{Authority, Issued};

const NOW: u64 = 1_800_000_000;

fn read(issued: &[&Issued]) -> Certificates {
    Certificates::new(issued.iter().map(|issued| Pair::read(&issued.pem(), NOW).unwrap()).collect())
}

/// What is wrong with one pair.
fn problem(certificate: &str, key: &str) -> String {
    let pem = PemPair {
        certificate: (Path::new("certificate.pem"), certificate.as_bytes()),
        key: (Path::new("key.pem"), key.as_bytes()),
    };
    Pair::read(&pem, NOW).err().unwrap().to_string()
}

#[test]
fn names_are_read_from_the_certificates() {
    let authority = Authority::new();
    let names = ["A.example", "*.b.example", "192.0.2.1", "f*.c.example", "*", "a.example"];
    let one = authority.issue(KeyKind::Ecdsa, &names);
    let certificates = read(&[&one]);
    assert_eq!(certificates.pairs()[0].names(), ["a.example", "*.b.example"]);
    assert_eq!(certificates.pairs()[0].key_kind(), KeyKind::Ecdsa);
    assert_eq!(certificates.pairs()[0].file(), Path::new("certificate.pem"));
}

#[test]
fn a_name_of_its_own_comes_first_then_one_label_of_a_wildcard_then_the_first_pair() {
    let authority = Authority::new();
    let issue = |kind, name| authority.issue(kind, &[name]);
    let pairs = [
        issue(KeyKind::Rsa, "first.example"),
        issue(KeyKind::Ecdsa, "first.example"),
        issue(KeyKind::Ecdsa, "*.b.example"),
        issue(KeyKind::Ed25519, "x.b.example"),
        issue(KeyKind::Rsa, "*.b.example"),
        issue(KeyKind::Ecdsa, "x.b.example"),
        issue(KeyKind::Ecdsa, "first.example"),
    ];
    let certificates = read(&pairs.iter().collect::<Vec<_>>());
    let places = |name: Option<&str>| -> Vec<usize> {
        let same = |pair: &Pair| certificates.pairs().iter().position(|p| std::ptr::eq(p, pair));
        certificates.candidates(name).map(|pair| same(pair).unwrap()).collect()
    };
    let fallback = vec![1, 6, 0];
    assert_eq!(places(Some("first.example")), fallback);
    assert_eq!(places(Some("X.B.Example")), [5, 3]);
    assert_eq!(places(Some("y.b.example")), [2, 4]);
    for name in ["b.example", "z.y.b.example", ".b.example", "other.example", "", "first.example."]
    {
        assert_eq!(places(Some(name)), fallback, "{name}");
    }
    assert_eq!(places(None), fallback);
    assert_eq!(Certificates::new(Vec::new()).candidates(None).count(), 0);
}

#[test]
fn what_is_wrong_is_said_of_the_file_in_which_it_is() {
    let authority = Authority::new();
    let good = authority.issue(KeyKind::Ecdsa, &["a.example"]);
    let other = authority.issue(KeyKind::Ecdsa, &["a.example"]);
    let (certificate, key) = (&good.certificate_pem, &good.key_pem);
    for (certificate, key, expected) in [
        ("", &key[..], "certificate.pem: there is no certificate in it (in PEM)"),
        (key, key, "certificate.pem: there is no certificate in it (in PEM)"),
        (certificate, "", "key.pem: there is no private key in it (in PEM)"),
        (certificate, certificate, "key.pem: there is no private key in it (in PEM)"),
        (
            certificate,
            &other.key_pem,
            "key.pem: it is not the key of the certificate in certificate.pem",
        ),
        (
            certificate,
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
            "key.pem: its private key is encrypted: store it without a passphrase",
        ),
    ] {
        assert_eq!(problem(certificate, key), expected);
    }
    let starts = |certificate: &str, key: &str, expected: &str| {
        let problem = problem(certificate, key);
        assert!(problem.starts_with(expected), "{problem}");
    };
    let text = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    starts(text, key, "certificate.pem: what is in place 1 cannot be read: ");
    let second = certificate.clone() + text;
    let problem = problem(&second[..], key);
    assert!(problem.contains("place 3"), "{problem}");
    let cut = &certificate[..certificate.len() - 40];
    starts(cut, key, "certificate.pem: what is in place 2 cannot be read: ");
    let text = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    starts(certificate, text, "key.pem: its private key cannot be used: ");
    let text = "-----BEGIN PRIVATE KEY-----\n%%%%\n-----END PRIVATE KEY-----\n";
    starts(certificate, text, "key.pem: what is in place 1 cannot be read: ");
}

#[test]
fn a_chain_is_in_order_and_valid_today() {
    let authority = Authority::new();
    let issue = |change: &dyn Fn(&mut CertificateParams)| {
        authority.issue_with(KeyKind::Ecdsa, &["a.example"], change)
    };
    let problem = |issued: &Issued| problem(&issued.certificate_pem, &issued.key_pem);
    let expired = issue(&|params| params.not_after = date_time_ymd(2026, 12, 31));
    let said = problem(&expired);
    assert!(said.starts_with("certificate.pem: the certificate expired on 2026-12-31T"), "{said}");
    let early = issue(&|params| params.not_before = date_time_ymd(2027, 2, 1));
    let said = problem(&early);
    assert!(
        said.starts_with("certificate.pem: the certificate is valid from 2027-02-01T"),
        "{said}"
    );
    let clients = issue(&|params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    });
    let expected = "certificate.pem: the certificate may not be used by servers (extendedKeyUsage)";
    assert_eq!(problem(&clients), expected);
    let servers = issue(&|params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    });
    assert_eq!(read(&[&servers]).pairs().len(), 1);

    let good = issue(&|_| {});
    let blocks: Vec<&str> =
        good.certificate_pem.split_inclusive("-----END CERTIFICATE-----\n").collect();
    // A root behind it does no harm.
    let rooted = Issued {
        certificate_pem: good.certificate_pem.clone() + &authority.pem(),
        key_pem: good.key_pem.clone(),
    };
    assert_eq!(read(&[&rooted]).pairs().len(), 1);
    let wrong = Issued {
        certificate_pem: blocks[0].to_owned() + &authority.pem(),
        key_pem: good.key_pem.clone(),
    };
    let said = problem(&wrong);
    assert!(said.starts_with("certificate.pem: the certificate in place 2 is not the issuer"));
    let turned = Issued { certificate_pem: blocks[1].to_owned() + blocks[0], ..wrong };
    assert!(problem(&turned).contains("place 2 is not the issuer"));
}

#[test]
fn extensions_are_unique_and_well_formed() {
    let authority = Authority::new();
    let refused = |own: &[ExtendedKeyUsagePurpose], custom: &[(&[u64], &[u8])]| {
        let issued = authority.issue_with(KeyKind::Ecdsa, &["a.example"], |params| {
            params.extended_key_usages = own.to_vec();
            let extension = |(oid, content): &(&[u64], &[u8])| {
                CustomExtension::from_oid_content(oid, content.to_vec())
            };
            params.custom_extensions = custom.iter().map(extension).collect();
        });
        problem(&issued.certificate_pem, &issued.key_pem)
    };
    // It is for servers by the first, and for clients by the second.
    let usage: &[u64] = &[2, 5, 29, 37];
    let for_clients = [0x30, 0x0a, 0x06, 0x08, 0x2b, 6, 1, 5, 5, 7, 3, 2];
    let twice = refused(&[ExtendedKeyUsagePurpose::ServerAuth], &[(usage, &for_clients)]);
    assert!(twice.contains("an extension is there twice"), "{twice}");
    let names = refused(&[], &[(&[2, 5, 29, 17], &[0x30, 0x03, 0x82, 0x01, b'b'])]);
    assert!(names.contains("an extension is there twice"), "{names}");
    let unknown = refused(&[], &[(&[1, 2, 3], b"\x05\0"), (&[1, 2, 3], b"\x05\0")]);
    assert!(unknown.contains("an extension is there twice"), "{unknown}");
    let malformed = refused(&[], &[(usage, &[0x30, 0x7f])]);
    assert!(malformed.contains("the extended key usage cannot be read"), "{malformed}");
}

#[test]
fn odd_names_are_left_out() {
    let authority = Authority::new();
    let read = |content: &[u8]| {
        let issued = authority.issue_with(KeyKind::Ecdsa, &[], |params| {
            let extension = CustomExtension::from_oid_content(&[2, 5, 29, 17], content.to_vec());
            params.custom_extensions = vec![extension];
        });
        Pair::read(&issued.pem(), NOW)
    };
    // Besides a good name: one in UTF-8, an x400Address, and a registeredID beyond 32 bits.
    let content = b"\x30\x1c\x82\x03\xc3\xbc.\xa3\x02\x30\0\x82\x09a.example\
                    \x88\x06\x69\x90\x80\x80\x80\0";
    assert_eq!(read(content).unwrap().names(), ["a.example"]);
    for malformed in [&b"\x30\x03\x82\x02a"[..], b"\x30\x7f", b"\x31\0", b"\x30\0\x30\0", b""] {
        let error = read(malformed).err().unwrap();
        assert!(error.to_string().contains("the subject alternative names cannot be read"));
    }
}

#[test]
fn days_are_counted_until_a_pair_expires() {
    let authority = Authority::new();
    let until = |month, day| {
        let issued = authority.issue_with(KeyKind::Ecdsa, &["a.example"], |params| {
            params.not_after = date_time_ymd(2027, month, day);
        });
        Pair::read(&issued.pem(), NOW).unwrap()
    };
    // NOW is the 15th of January, 08:00.
    assert_eq!(until(3, 1).days_left(NOW), 44);
    let pair = until(1, 17);
    assert_eq!(pair.days_left(NOW), 1);
    assert_eq!(pair.days_left(NOW + 16 * 60 * 60), 1);
    assert_eq!(pair.days_left(NOW + 16 * 60 * 60 + 1), 0);
    assert_eq!(pair.days_left(NOW + 41 * 60 * 60), -1);
    assert!(pair.days_left(u64::MAX) < -1_000_000);
}
