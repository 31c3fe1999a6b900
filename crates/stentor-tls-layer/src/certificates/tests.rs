//! Real files: what is wrong with them, and what becomes of those that change.

use super::*;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, PKCS_RSA_SHA256,
    date_time_ymd,
};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use stentor_io::RETRY_S;

/// The 15th of January 2027.
const NOW: u64 = 1_800_000_000;

const DAY_S: u64 = 24 * 60 * 60;

/// A directory that goes with the test.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("stentor-certificates-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Place(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file that is its owner's alone.
    fn write(&self, name: &str, text: &str) {
        let _ = fs::remove_file(self.path(name));
        fs::write(self.path(name), text).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// Writes a certificate and its key.
    fn write_pair(&self, name: &str, days: u64) {
        let (certificate, key) = pair(name, days);
        self.write("c.pem", &certificate);
        self.write("k.pem", &key);
    }

    fn tls(&self) -> Tls {
        Tls { cert: Some(self.path("c.pem")), key: Some(self.path("k.pem")), ..Tls::default() }
    }

    /// Reads them; errors without the name of the directory.
    fn read(&self, tls: &Tls) -> Result<Prepared, String> {
        let own = format!("{}/", self.0.display());
        Prepared::read(tls, NOW, MissingTickets::Left, None)
            .map_err(|error| error.to_string().replace(&own, ""))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A certificate for that name with so many days left, and its key.
fn pair(name: &str, days: u64) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new([name.to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = date_time_ymd(2020, 1, 1);
    let not_after = Duration::from_secs(NOW + days * DAY_S);
    params.not_after = date_time_ymd(1970, 1, 1) + not_after;
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

fn names(acceptors: &Acceptors) -> Vec<String> {
    let acceptor = acceptors.public().unwrap();
    acceptor.certificates().pairs().iter().flat_map(|pair| pair.names().to_vec()).collect()
}

/// Acceptors of a pair, and whoever looks after it.
fn looked_after(place: &Place) -> (Arc<Acceptors>, Looker) {
    let tls = place.tls();
    let prepared = place.read(&tls).unwrap();
    let acceptors = Arc::new(Acceptors::new(prepared.clone()));
    let looker = Looker::new(tls, &acceptors, &prepared);
    (acceptors, looker)
}

/// Two looks: what changed is read when it was the same for both.
fn look(looker: &mut Looker, now_unix_s: u64) {
    looker.look(now_unix_s);
    looker.look(now_unix_s);
}

#[test]
fn without_certificates_nothing_is_read() {
    let prepared = Prepared::read(&Tls::default(), NOW, MissingTickets::Left, None).unwrap();
    let acceptors = Acceptors::new(prepared);
    assert!(acceptors.public().is_none() && acceptors.control().is_none());
    assert_eq!(acceptors.report(NOW), None);
    assert!(
        start_thread(&Tls::default(), &Arc::default(), &Prepared::default()).unwrap().is_none()
    );
}

#[test]
fn what_is_wrong_is_said_of_its_file() {
    let place = Place::new();
    let tls = place.tls();
    let error = || place.read(&tls).unwrap_err();
    assert_eq!(error(), "c.pem: there is no such file; k.pem: there is no such file");
    place.write("c.pem", "");
    fs::create_dir(place.path("k.pem")).unwrap();
    assert_eq!(error(), "c.pem: it is empty; k.pem: it is a directory, and a file is needed");
    fs::remove_dir(place.path("k.pem")).unwrap();
    let (certificate, key) = pair("a.example", 80);
    place.write("c.pem", &key);
    place.write("k.pem", &key);
    assert_eq!(error(), "c.pem: there is no certificate in it (in PEM)");
    place.write("c.pem", &certificate);
    place.write("k.pem", &certificate);
    assert_eq!(error(), "k.pem: there is no private key in it (in PEM)");
    place.write("k.pem", &pair("a.example", 80).1);
    assert_eq!(error(), "k.pem: it is not the key of the certificate in c.pem");
    place.write("k.pem", &" ".repeat((1 << 20) + 1));
    assert_eq!(error(), "k.pem: it is larger than a certificate, a key or a token: at most 1 MiB");
    let (other, _) = pair("b.example", 80);
    place.write("c.pem", &(certificate.clone() + &other));
    place.write("k.pem", &key);
    assert!(
        error().starts_with("c.pem: the certificate in place 2 is not the issuer"),
        "{}",
        error()
    );
    place.write("c.pem", &certificate);
    let late =
        Prepared::read(&tls, NOW + 81 * DAY_S, MissingTickets::Left, None).unwrap_err().to_string();
    assert!(late.contains("c.pem: the certificate expired on 2027-04-05"), "{late}");
    assert!(place.read(&tls).is_ok());
}

#[test]
fn a_file_that_may_not_be_read_is_told_apart() {
    if stentor_io::is_root() {
        // Root may read everything.
        return;
    }
    let place = Place::new();
    place.write_pair("a.example", 80);
    fs::set_permissions(place.path("k.pem"), fs::Permissions::from_mode(0o000)).unwrap();
    let expected = "k.pem: whoever runs the server must be able to read it, and may not";
    assert_eq!(place.read(&place.tls()).unwrap_err(), expected);
}

#[test]
fn all_that_is_wrong_is_said_at_once() {
    let place = Place::new();
    place.write_pair("a.example", 80);
    place.write("short", "too short");
    place.write("ca.pem", "nothing");
    let gone = PairFiles { certificate: place.path("gone"), key: place.path("k.pem") };
    let tls = Tls { more: vec![gone], ..place.tls() };
    let gone = format!("{}: there is no such file", place.path("gone").display());
    assert_eq!(place.read(&tls).unwrap().unusable().unwrap().0, [gone]);
    let tls = Tls { ticket_secrets: vec![place.path("short")], ..place.tls() };
    let expected = "short: a secret of tickets has at least 32 bytes";
    assert_eq!(place.read(&tls).unwrap_err(), expected);
    let tls = Tls { control_client_ca: Some(place.path("ca.pem")), ..place.tls() };
    assert_eq!(place.read(&tls).unwrap_err(), "ca.pem: there is no certificate in it (in PEM)");
}

#[test]
fn several_certificates_are_shown_by_their_names() {
    let place = Place::new();
    place.write_pair("a.example", 80);
    let rsa = KeyPair::generate_for(&PKCS_RSA_SHA256).unwrap();
    let mut params = CertificateParams::new(["a.example".to_owned()]).unwrap();
    params.not_after = date_time_ymd(2027, 2, 1);
    place.write("rsa.pem", &(params.self_signed(&rsa).unwrap().pem() + &rsa.serialize_pem()));
    let file = place.path("rsa.pem");
    let both = PairFiles { certificate: file.clone(), key: file };
    let tls = Tls { more: vec![both], ..place.tls() };
    let prepared = place.read(&tls).unwrap();
    let shown = prepared.shown(NOW);
    let kinds: Vec<_> = shown.iter().map(|one| (one.key, one.days_left)).collect();
    assert_eq!(kinds, [("ecdsa", 80), ("rsa", 16)]);
    assert!(shown[1].to_string().ends_with("rsa.pem for a.example (rsa): 16 days left"));
    let report = Acceptors::new(prepared).report(NOW).unwrap();
    assert_eq!((report.days_left, report.certificates.len()), (16, 2));
}

#[test]
fn what_works_but_should_not_be_so_is_told() {
    let place = Place::new();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(Vec::<String>::new()).unwrap();
    place.write("c.pem", &params.self_signed(&key).unwrap().pem());
    place.write("k.pem", &key.serialize_pem());
    fs::set_permissions(place.path("k.pem"), fs::Permissions::from_mode(0o644)).unwrap();
    let prepared = place.read(&place.tls()).unwrap();
    let [readable, nameless] = prepared.warnings() else { panic!("{:?}", prepared.warnings()) };
    assert!(readable.ends_with("can read this private key (mode 0644)"), "{readable}");
    assert!(nameless.contains("c.pem: the certificate has no name"), "{nameless}");
    fs::set_permissions(place.path("k.pem"), fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(place.read(&place.tls()).unwrap().warnings().len(), 1);
}

#[test]
fn what_changes_is_shown_from_then_on_whichever_way_it_changed() {
    let place = Place::new();
    place.write_pair("a.example", 80);
    let (acceptors, mut looker) = looked_after(&place);
    let before = acceptors.public().unwrap();
    look(&mut looker, NOW);
    assert_eq!(
        (names(&acceptors), acceptors.report(NOW).unwrap().reloads),
        (vec!["a.example".to_owned()], 0)
    );
    place.write_pair("b.example", 70);
    looker.look(NOW);
    assert_eq!(names(&acceptors), ["a.example"], "it may still be written to");
    looker.look(NOW);
    assert_eq!(names(&acceptors), ["b.example"]);
    assert_eq!(before.certificates().pairs()[0].names(), ["a.example"], "it does not change");
    assert_eq!(acceptors.report(NOW).unwrap().reloads, 1);
    look(&mut looker, NOW);
    assert_eq!(acceptors.report(NOW).unwrap().reloads, 1, "nothing has changed since");
}

/// Settings of two pairs, of which the second is in `d.pem` and `l.pem`.
fn two_pairs(place: &Place) -> Tls {
    place.write_pair("b.example", 70);
    fs::rename(place.path("c.pem"), place.path("d.pem")).unwrap();
    fs::rename(place.path("k.pem"), place.path("l.pem")).unwrap();
    place.write_pair("a.example", 80);
    let more = vec![PairFiles { certificate: place.path("d.pem"), key: place.path("l.pem") }];
    Tls { more, ..place.tls() }
}

#[test]
fn a_pair_that_is_no_good_stops_no_other_at_a_start() {
    let place = Place::new();
    let tls = two_pairs(&place);
    let shown = |now_unix_s| {
        let prepared = Prepared::read(&tls, now_unix_s, MissingTickets::Left, None)?;
        let names = prepared.shown(now_unix_s).into_iter().flat_map(|shown| shown.names);
        Ok::<_, Unusable>((names.collect::<Vec<_>>().join(" "), prepared.unusable.len()))
    };
    assert_eq!(shown(NOW).unwrap(), ("a.example b.example".to_owned(), 0));
    assert_eq!(shown(NOW + 75 * DAY_S).unwrap(), ("a.example".to_owned(), 1), "one has expired");
    assert_eq!(shown(NOW + 85 * DAY_S).unwrap_err().0.len(), 2, "both have");
    fs::remove_file(place.path("c.pem")).unwrap();
    assert_eq!(shown(NOW).unwrap(), ("b.example".to_owned(), 1));
    let acceptors = Acceptors::new(Prepared::read(&tls, NOW, MissingTickets::Left, None).unwrap());
    let failure = acceptors.report(NOW).unwrap().failure.unwrap();
    assert!(failure.ends_with("c.pem: there is no such file"), "{failure}");
    fs::remove_file(place.path("l.pem")).unwrap();
    assert_eq!(shown(NOW).unwrap_err().0.len(), 2);
}

#[test]
fn a_pair_that_is_no_good_at_a_start_is_read_again() {
    let place = Place::new();
    let tls = two_pairs(&place);
    let prepared = Prepared::read(&tls, NOW + 75 * DAY_S, MissingTickets::Left, None).unwrap();
    let acceptors = Arc::new(Acceptors::new(prepared));
    assert_eq!(names(&acceptors), ["a.example"]);
    let prepared = acceptors.state().current.clone();
    let mut looker = Looker::new(tls, &acceptors, &prepared);
    // No file changes, but by the clock it can be used now.
    look(&mut looker, NOW);
    assert_eq!(names(&acceptors), ["a.example", "b.example"]);
    assert_eq!(acceptors.report(NOW).unwrap().failure, None);
}

#[test]
fn a_pair_that_is_no_good_stays_as_it_was_while_others_are_renewed() {
    let place = Place::new();
    let tls = two_pairs(&place);
    let acceptors = Arc::new(Acceptors::new(place.read(&tls).unwrap()));
    let prepared = acceptors.state().current.clone();
    let mut looker = Looker::new(tls.clone(), &acceptors, &prepared);
    look(&mut looker, NOW);
    place.write("l.pem", "");
    place.write_pair("c.example", 80);
    look(&mut looker, NOW);
    assert_eq!(names(&acceptors), ["c.example", "b.example"]);
    let report = acceptors.report(NOW).unwrap();
    assert_eq!((report.reloads, report.reload_failures), (1, 1));
    assert!(report.failure.unwrap().ends_with("l.pem: it is empty"));
    // It is tried again and again, and told once.
    look(&mut looker, NOW + RETRY_S);
    look(&mut looker, NOW + 2 * RETRY_S);
    let report = acceptors.report(NOW).unwrap();
    assert_eq!((report.reloads, report.reload_failures), (1, 1));
    // A reload is rejected as long as clients are shown a valid certificate of that file.
    let error = acceptors.reread(&tls, NOW).unwrap_err().to_string();
    assert!(error.ends_with("l.pem: it is empty"), "{error}");
    let expired = NOW + 90 * DAY_S;
    assert_eq!(acceptors.state().current.left_out(NOW), []);
    assert_eq!(acceptors.state().current.left_out(expired), tls.pairs());
    let absent = PairFiles { certificate: place.path("e.pem"), key: place.path("e.pem") };
    let next = Tls { more: vec![tls.more[0].clone(), absent], ..tls.clone() };
    assert!(acceptors.reread(&next, NOW).is_err());
    let other_key = PairFiles { key: place.path("e.pem"), ..tls.more[0].clone() };
    let next = Tls { more: vec![other_key], ..tls.clone() };
    assert!(acceptors.reread(&next, NOW).is_err(), "a new key of a known certificate");
    let (certificate, key) = pair("d.example", 80);
    place.write("d.pem", &certificate);
    place.write("l.pem", &key);
    look(&mut looker, NOW);
    assert_eq!(names(&acceptors), ["c.example", "d.example"]);
    assert_eq!(acceptors.report(NOW).unwrap().failure, None);
}

/// As certbot does it: files of the name are links into an archive, and so do volumes of
/// Kubernetes, where a link on the way is exchanged.
#[test]
fn links_that_lead_elsewhere_are_followed() {
    let place = Place::new();
    for (number, name) in [(1, "a.example"), (2, "b.example")] {
        place.write_pair(name, 80);
        let archive = place.path(&format!("archive-{number}"));
        fs::create_dir(&archive).unwrap();
        for file in ["c.pem", "k.pem"] {
            fs::rename(place.path(file), archive.join(file)).unwrap();
        }
    }
    symlink("archive-1", place.path("live")).unwrap();
    for file in ["c.pem", "k.pem"] {
        symlink(format!("live/{file}"), place.path(file)).unwrap();
    }
    let (acceptors, mut looker) = looked_after(&place);
    assert_eq!(names(&acceptors), ["a.example"]);
    symlink("archive-2", place.path("new")).unwrap();
    fs::rename(place.path("new"), place.path("live")).unwrap();
    look(&mut looker, NOW);
    assert_eq!(names(&acceptors), ["b.example"]);
}

#[test]
fn what_is_no_good_changes_nothing_and_is_tried_again() {
    let place = Place::new();
    place.write_pair("a.example", 80);
    let (acceptors, mut looker) = looked_after(&place);
    let (certificate, key) = pair("b.example", 70);
    place.write("c.pem", &certificate);
    look(&mut looker, NOW);
    assert_eq!(names(&acceptors), ["a.example"]);
    let report = acceptors.report(NOW).unwrap();
    assert!(report.failure.unwrap().contains("it is not the key of the certificate"));
    assert_eq!((report.reloads, report.reload_failures), (0, 1));
    // The same again is not told again.
    look(&mut looker, NOW + RETRY_S);
    assert_eq!(acceptors.report(NOW).unwrap().reload_failures, 1);
    fs::remove_file(place.path("k.pem")).unwrap();
    look(&mut looker, NOW + RETRY_S);
    assert_eq!(acceptors.report(NOW).unwrap().reload_failures, 2);
    assert_eq!(names(&acceptors), ["a.example"]);
    place.write("k.pem", &key);
    look(&mut looker, NOW + RETRY_S);
    assert_eq!(names(&acceptors), ["b.example"]);
    let report = acceptors.report(NOW).unwrap();
    assert_eq!((report.reloads, report.failure), (1, None));
}

/// What was no good may be so without any change of a file.
#[test]
fn what_becomes_good_by_itself_is_taken() {
    let place = Place::new();
    place.write_pair("a.example", 80);
    let (acceptors, mut looker) = looked_after(&place);
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(["b.example".to_owned()]).unwrap();
    params.not_before = date_time_ymd(2027, 1, 16);
    place.write("c.pem", &params.self_signed(&key).unwrap().pem());
    place.write("k.pem", &key.serialize_pem());
    look(&mut looker, NOW);
    assert!(acceptors.report(NOW).unwrap().failure.unwrap().contains("is valid from 2027-01-16"));
    look(&mut looker, NOW + RETRY_S - 1);
    assert_eq!(names(&acceptors), ["a.example"]);
    assert_eq!(looker.watcher.failed_unix_s(), Some(NOW), "it is not read at every look");
    look(&mut looker, NOW - DAY_S);
    assert_eq!(looker.watcher.failed_unix_s(), Some(NOW - DAY_S), "the clock was set back");
    look(&mut looker, NOW + DAY_S);
    assert_eq!(names(&acceptors), ["b.example"]);
}

#[test]
fn one_that_expires_is_shown_on_and_told_of_once_a_day() {
    let place = Place::new();
    place.write_pair("a.example", 16);
    let (acceptors, mut looker) = looked_after(&place);
    let mut told = Vec::new();
    for hour in 0..20 * 24 {
        let before = looker.told_days;
        looker.look(NOW + hour * 60 * 60);
        if looker.told_days != before {
            told.push(looker.told_days.unwrap());
        }
    }
    assert_eq!(told, (-4..WARN_DAYS).rev().collect::<Vec<_>>());
    assert_eq!(names(&acceptors), ["a.example"]);
    let report = acceptors.report(NOW + 17 * DAY_S).unwrap();
    assert_eq!((report.days_left, report.failure), (-1, None));
    assert!(report.certificates[0].to_string().ends_with("(ecdsa): it has expired"));
    let left =
        |hours: u64| acceptors.report(NOW + hours * 60 * 60).unwrap().certificates[0].to_string();
    assert!(left(16 * 24 - 1).ends_with(": less than a day left"));
    assert!(left(15 * 24 - 1).ends_with(": 1 day left"));
}

#[test]
fn reload_with_unusable_certificate_is_rejected() {
    let place = Place::new();
    place.write_pair("a.example", 80);
    let (acceptors, _) = looked_after(&place);
    let running = place.tls();
    let next = Tls { min_version: stentor_tls::Version::Tls13, ..place.tls() };
    assert!(acceptors.reread(&next, NOW).is_ok());
    fs::remove_file(place.path("k.pem")).unwrap();
    for tls in [next, running] {
        let error = acceptors.reread(&tls, NOW).unwrap_err();
        assert!(error.to_string().ends_with("k.pem: there is no such file"), "{error}");
    }
    assert_eq!(acceptors.report(NOW).unwrap().failure, None);
    assert_eq!(names(&acceptors), ["a.example"]);
}

/// A thread that is on its way out may be in the middle of a look.
#[test]
fn who_looks_after_files_that_do_not_count_any_more_changes_nothing() {
    let (place, other) = (Place::new(), Place::new());
    place.write_pair("a.example", 80);
    other.write_pair("b.example", 80);
    let (acceptors, mut looker) = looked_after(&place);
    acceptors.set(other.read(&other.tls()).unwrap(), NOW);
    place.write_pair("c.example", 80);
    look(&mut looker, NOW);
    assert_eq!(names(&acceptors), ["b.example"]);
}

/// A client that comes back after a reload or a renewal resumes.
#[test]
fn random_keys_of_tickets_live_as_long_as_the_process() {
    let place = Place::new();
    place.write_pair("a.example", 80);
    let (acceptors, mut looker) = looked_after(&place);
    let keys = |of: &Prepared| of.random_tickets.clone().unwrap();
    let first = keys(&acceptors.state().current);
    let reread = acceptors.reread(&place.tls(), NOW).unwrap();
    assert!(Arc::ptr_eq(&keys(&reread), &first));
    acceptors.set(reread, NOW);
    place.write_pair("b.example", 80);
    look(&mut looker, NOW);
    assert_eq!(names(&acceptors), ["b.example"]);
    assert!(Arc::ptr_eq(&keys(&acceptors.state().current), &first));
    place.write("tickets", &"s".repeat(TICKET_SECRET_BYTES_MIN));
    let tls = Tls { ticket_secrets: vec![place.path("tickets")], ..place.tls() };
    let reread = acceptors.reread(&tls, NOW).unwrap();
    assert!(reread.random_tickets.is_none(), "a file has them");
}

#[test]
fn a_secret_of_tickets_is_made_once_and_is_its_owners_alone() {
    let place = Place::new();
    place.write_pair("a.example", 80);
    let secret = place.path("tickets");
    let tls = Tls { ticket_secrets: vec![secret.clone()], ..place.tls() };
    Prepared::read(&tls, NOW, MissingTickets::Left, None).unwrap();
    assert!(!secret.exists(), "whoever only looks makes nothing");
    Prepared::read(&tls, NOW, MissingTickets::Made(None), None).unwrap();
    let first = fs::read(&secret).unwrap();
    assert_eq!(first.len(), TICKET_SECRET_BYTES_MIN);
    assert_ne!(first, vec![0; first.len()]);
    assert_eq!(fs::metadata(&secret).unwrap().mode() & 0o777, 0o600);
    Prepared::read(&tls, NOW, MissingTickets::Made(None), None).unwrap();
    assert_eq!(fs::read(&secret).unwrap(), first);
    assert_eq!(fs::read_dir(&place.0).unwrap().count(), 3, "nothing else is left there");
    let tls = Tls { ticket_secrets: vec![place.path("not/there")], ..place.tls() };
    let error =
        Prepared::read(&tls, NOW, MissingTickets::Made(None), None).unwrap_err().to_string();
    assert!(error.contains("not/there: it cannot be made: "), "{error}");
}

#[test]
fn an_authority_of_operators_makes_acceptors_of_both_kinds() {
    let place = Place::new();
    place.write_pair("a.example", 80);
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    place.write("ca.pem", &issuer.pem());
    let tls = Tls { control_client_ca: Some(place.path("ca.pem")), ..place.tls() };
    let acceptors = Acceptors::new(place.read(&tls).unwrap());
    assert!(acceptors.control().is_some() && acceptors.public().is_some());
}
