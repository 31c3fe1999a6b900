//! What is written of TLS, what it comes to, and what does not go together.

use super::*;

fn settings(text: &str) -> Settings {
    let settings = Settings::from_toml(text, "f").unwrap();
    settings.validate().unwrap();
    settings
}

/// What is wrong with a document that can be read.
fn refused(text: &str) -> String {
    Settings::from_toml(text, "f").unwrap().validate().unwrap_err().to_string()
}

/// What is wrong with one that cannot.
fn headline(text: &str) -> String {
    let error = Settings::from_toml(text, "f").unwrap_err().to_string();
    error.lines().next().unwrap().to_owned()
}

fn tcp(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

const PAIR: &str = "tls_cert = '/c.pem'\ntls_key = '/k.pem'\n";

#[test]
fn with_a_certificate_and_nothing_else_all_public_addresses_speak_tls() {
    let two = "listen = ['0.0.0.0:1', '0.0.0.0:2']\ncontrol = ['127.0.0.1:3', 'unix:/s']\n";
    let speak = |text: &str| {
        let settings = settings(text);
        let public = [0, 1].map(|at| settings.is_tls(&settings.listen[at]));
        (public, settings.control.iter().map(|one| one.tls).collect::<Vec<_>>())
    };
    let plain = vec![false, false];
    assert_eq!(speak(two), ([false, false], plain.clone()));
    assert_eq!(speak(&format!("{two}{PAIR}")), ([true, true], plain.clone()));
    let table = "[[tls]]\ncert = 'c'\nkey = 'k'\n";
    assert_eq!(speak(&format!("{two}{table}")), ([true, true], plain.clone()));
    // Once one is written, all are as they are written.
    let both = "listen = ['tls:0.0.0.0:1', '0.0.0.0:2']\ncontrol = ['127.0.0.1:3', 'unix:/s']\n";
    assert_eq!(speak(&format!("{both}{PAIR}")), ([true, false], plain));
    let control = "listen = ['0.0.0.0:1', '0.0.0.0:2']\ncontrol = ['tls:127.0.0.1:3', 'unix:/s']\n";
    assert_eq!(speak(&format!("{control}{PAIR}")), ([false, false], vec![true, false]));
}

#[test]
fn certificates_are_in_the_order_in_which_they_are_named() {
    let more = "[[tls]]\ncert = '/a'\nkey = '/b'\n[[tls]]\ncert = '/d'\nkey = '/d'\n";
    let pair = |certificate: &str, key: &str| PairFiles {
        certificate: certificate.into(),
        key: key.into(),
    };
    let all = [pair("/c.pem", "/k.pem"), pair("/a", "/b"), pair("/d", "/d")];
    assert_eq!(settings(&format!("{PAIR}{more}")).tls.pairs(), all);
    assert_eq!(settings(more).tls.pairs(), all[1..]);
    assert_eq!(settings("").tls.pairs(), []);
}

#[test]
fn a_whole_document_is_printed_as_what_it_means() {
    let text = format!(
        "listen = ['tls:0.0.0.0:443', '127.0.0.1:8080']\n\
         control = ['tls:10.0.0.1:8081', 'unix:/s']\ncontrol_client_ca = '/clients.pem'\n\
         {PAIR}tls_min_version = '1.3'\ntls_ticket_secret = ['/new', '/old']\n\
         redirect = '0.0.0.0:80'\nredirect_port = 444\nhsts = '1y'\n\
         [[tls]]\ncert = '/a'\nkey = '/b'\n"
    );
    let settings = settings(&text);
    assert_eq!(settings.tls.min_version, Version::Tls13);
    assert_eq!(settings.tls.ticket_secrets, [PathBuf::from("/new"), PathBuf::from("/old")]);
    assert_eq!(settings.tls.control_client_ca, Some(PathBuf::from("/clients.pem")));
    assert_eq!(settings.tls.hsts_s, 31_536_000);
    assert_eq!((&settings.redirect[..], settings.redirect_port), (&[tcp("0.0.0.0:80")][..], 444));
    let printed = settings.to_toml();
    for expected in [
        "listen = [\"tls:0.0.0.0:443\", \"127.0.0.1:8080\"]  # default",
        "control = [\"tls:10.0.0.1:8081\", \"unix:/s\"]  # default",
        "tls_min_version = \"1.3\"  # default: \"1.2\"",
        "hsts = \"8760h\"  # default: \"0ms\"",
        "[[tls]]\ncert = \"/a\"\nkey = \"/b\"\n",
    ] {
        assert!(printed.contains(expected), "{expected}\n{printed}");
    }
    let read = Settings::from_toml(&printed, "printed").unwrap();
    assert_eq!(format!("{read:?}"), format!("{settings:?}"));
}

#[test]
fn a_redirect_leads_to_the_first_address_with_tls_unless_it_is_told_otherwise() {
    let target = |text: &str| settings(&format!("{PAIR}{text}")).redirect_target();
    assert_eq!(target("listen = ['0.0.0.0:443', '0.0.0.0:8443']"), None);
    assert_eq!(target("listen = ['0.0.0.0:80', 'tls:0.0.0.0:8443']"), Some(8_443));
    assert_eq!(target("listen = '0.0.0.0:8443'\nredirect_port = 443"), None);
    assert_eq!(target("redirect_port = 444"), Some(444));
    assert_eq!(target("listen = '127.0.0.1:0'"), None);
}

#[test]
fn other_sources_replace_what_a_document_says() {
    let file = std::env::temp_dir().join(format!("stentor-tls-{}.toml", std::process::id()));
    std::fs::write(&file, format!("listen = 'tls:0.0.0.0:1'\n{PAIR}")).unwrap();
    let load = |pairs: &[(&str, &str)]| {
        let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Settings::load(Some(&file), pairs).unwrap()
    };
    let other = load(&[("STENTOR_LISTEN", "0.0.0.0:1,tls:0.0.0.0:2")]);
    assert_eq!([0, 1].map(|at| other.is_tls(&other.listen[at])), [false, true]);
    let other = load(&[("STENTOR_TLS_CERT", "/other"), ("STENTOR_TLS_MIN_VERSION", "1.3")]);
    assert_eq!(other.tls.pairs()[0].certificate, PathBuf::from("/other"));
    assert_eq!(other.tls.min_version, Version::Tls13);
    let none = load(&[("STENTOR_TLS_CERT", ""), ("STENTOR_TLS_KEY", "")]);
    assert_eq!(none.tls.pairs(), []);
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn what_does_not_go_together_is_said() {
    for (text, expected) in [
        ("tls_cert = 'c'", "tls_cert: name the file of its key by tls_key"),
        ("tls_key = 'c'", "tls_key: name its certificate by tls_cert"),
        (
            "listen = 'tls:0.0.0.0:443'",
            "tls: an address is written with tls:, and there is no certificate: name one by \
             tls_cert and tls_key, or in [[tls]]",
        ),
        (
            "listen = []\ntls_cert = 'c'\ntls_key = 'k'",
            "tls: there is a certificate, and no address to show it at: write one with tls: in \
             front of it",
        ),
        (
            "tls_cert = 'c'\ntls_key = 'k'\n[[tls]]\ncert = 'c'\nkey = 'k'",
            "tls: the certificate in c is there twice",
        ),
        (
            "tls_cert = 'c'\ntls_key = 'k'\ncontrol_client_ca = 'a'",
            "control_client_ca: certificates of clients are asked for by TLS: write the address \
             of control with tls: in front of it",
        ),
        (
            "redirect = '0.0.0.0:80'",
            "redirect: no public address speaks TLS: name a certificate by tls_cert and tls_key, \
             or in [[tls]]",
        ),
        (
            "tls_ticket_secret = 's'",
            "tls_ticket_secret: there is no certificate, so nobody has tickets",
        ),
    ] {
        assert_eq!(refused(text), expected, "{text}");
    }
    for name in ["hsts = 1", "redirect_port = 1"] {
        assert!(refused(name).contains("no public address speaks TLS"), "{name}");
    }
    let none = format!("{PAIR}tls_ticket_secret = []");
    assert!(Settings::from_toml(&none, "f").unwrap().tls.ticket_secrets.is_empty());
    let many = format!("{PAIR}tls_ticket_secret = ['1', '2', '3', '4', '5']");
    assert_eq!(refused(&many), "tls_ticket_secret: at most 4 files");
    let same = format!("{PAIR}redirect = '0.0.0.0:8080'");
    assert!(refused(&same).starts_with("listen and redirect: "), "{}", refused(&same));
    let twice = format!("{PAIR}listen = ['tls:0.0.0.0:1', '0.0.0.0:1']");
    assert_eq!(refused(&twice), "listen: 0.0.0.0:1 is there twice");
}

#[test]
fn what_is_written_wrongly_is_refused_in_its_place() {
    for (text, expected) in [
        ("listen = 'tls:1'", "f:1:10: '1' is not an address: write IP:PORT, such as 0.0.0.0:8080"),
        (
            "control = 'tls:unix:/s'",
            "f:1:11: 'tls:unix:/s': who connects to a socket file is on this host, where TLS is of \
             no use",
        ),
        (
            "tls_min_version = '1.1'",
            "f:1:19: '1.1' is not a version of TLS that is spoken: write '1.2' or '1.3'",
        ),
        ("tls_cert = '/etc/'", "f:1:12: '/etc/' is not the path of a file"),
        ("[[tls]]\ncert = ''\nkey = 'k'", "f:2:8: '' is not the path of a file"),
        (
            "[tls]\ncert = 'c'",
            "f:1:1: write [[tls]], in double brackets: there may be several of these tables",
        ),
        ("[[tls]]\ncert = 'c'", "f:1:1: missing field 'key'"),
        ("hsts = '11y'", "f:1:8: '11y' is out of range: from 0ms to 87600h"),
        ("redirect_port = 65536", "f:1:17: 65536 is out of range: from 0 to 65535"),
    ] {
        assert_eq!(headline(text), expected, "{text}");
    }
}
