//! What a session seals, opens and refuses; the other end here is another session. That rustls
//! understands the same is tested with the handshake.

use proptest::prelude::*;

use super::*;
use crate::memory::Owned;
use crate::testing::{seal, sessions};

/// What comes of records, one after the other: the data of all, or the first failure.
fn open(session: &mut Owned, mut bytes: &mut [u8]) -> Result<Vec<u8>, Failure> {
    let mut data = Vec::new();
    while !bytes.is_empty() {
        let opened = session.session().open(bytes)?;
        assert!(!matches!(opened.what, What::Incomplete { .. }));
        data.extend_from_slice(opened.data(bytes));
        bytes = &mut bytes[opened.used..];
    }
    Ok(data)
}

/// Seals these contents as these types of records, and opens them on the other end.
fn send(suite: Suite, records: &[(u8, &[u8])]) -> (Owned, Result<Vec<u8>, Failure>) {
    let (mut server, mut client) = sessions(suite);
    let mut sent: Vec<u8> = Vec::new();
    for (kind, content) in records {
        sent.extend(client.session().seal_any(*kind, content));
    }
    let opened = open(&mut server, &mut sent);
    (server, opened)
}

fn header(session: &mut Owned) -> &mut Header {
    match session {
        Owned::Small(kept) => &mut kept.header,
        Owned::Medium(kept) => &mut kept.header,
        Owned::Large(kept) => &mut kept.header,
    }
}

const TLS13: [Suite; 3] = [Suite::Tls13Aes128, Suite::Tls13Aes256, Suite::Tls13ChaCha];
const TLS12: [Suite; 3] = [Suite::Tls12Aes128, Suite::Tls12Aes256, Suite::Tls12ChaCha];
const UPDATE: [u8; 5] = [KEY_UPDATE, 0, 0, 1, UPDATE_NOT_REQUESTED];
const UPDATE_PLEASE: [u8; 5] = [KEY_UPDATE, 0, 0, 1, UPDATE_REQUESTED];

proptest! {
    #[test]
    fn what_is_sealed_is_opened_whatever_parts_it_was_in(
        parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..5),
        fragment_bytes_max in 0_usize..300,
        room in SEAL_ROOM_MIN..400,
        suite in prop::sample::select(Suite::ALL.to_vec()),
    ) {
        let (mut server, mut client) = sessions(suite);
        let whole = parts.concat();
        let (mut taken, mut sent) = (0, Vec::new());
        let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut slices = &mut slices[..];
        loop {
            let mut out = vec![0xaa; room];
            let sealed = server.session().seal(slices, fragment_bytes_max, &mut out).unwrap();
            prop_assert!(sealed.taken <= fragment_bytes_max.max(1));
            prop_assert!(out[sealed.written..].iter().all(|byte| *byte == 0xaa));
            if sealed.taken == 0 {
                prop_assert_eq!(sealed.written, 0);
                break;
            }
            prop_assert_eq!(sealed.written, sealed.taken + suite.record_overhead());
            sent.extend_from_slice(&out[..sealed.written]);
            taken += sealed.taken;
            IoSlice::advance_slices(&mut slices, sealed.taken);
        }
        prop_assert_eq!(taken, whole.len());
        prop_assert_eq!(open(&mut client, &mut sent), Ok(whole));
    }
}

#[test]
fn a_record_is_as_long_as_it_may_be_and_no_longer() {
    for suite in Suite::ALL {
        let (mut server, mut client) = sessions(suite);
        let text = vec![7; 40_000];
        let mut out = vec![0; 50_000];
        let sealed = server.session().seal(&[IoSlice::new(&text)], usize::MAX, &mut out).unwrap();
        assert_eq!(sealed.taken, FRAGMENT_BYTES_MAX);
        let opened = open(&mut client, &mut out[..sealed.written]).unwrap();
        assert_eq!(opened, text[..FRAGMENT_BYTES_MAX]);
    }
}

#[test]
fn every_bit_that_flips_is_a_failure_and_the_end() {
    for suite in Suite::ALL {
        let (mut server, mut client) = sessions(suite);
        let record = seal(&mut client, b"ten bytes.");
        let mut packed = Vec::new();
        server.pack(&mut packed).unwrap();
        for bit in 0..record.len() * 8 {
            let mut server = Owned::unpack(&mut packed.clone()).unwrap();
            let mut changed = record.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let opened = server.session().open(&mut changed);
            match opened {
                // The length has grown: it waits for what does not come.
                Ok(Opened { used: 0, what: What::Incomplete { needs } }) => {
                    assert!((24..40).contains(&bit) && needs > record.len(), "{suite:?} {bit}");
                }
                Ok(opened) => panic!("{suite:?}, bit {bit}: {opened:?}"),
                Err(failure) => {
                    assert!(failure.alert().is_some());
                    let mut good = record.clone();
                    assert_eq!(server.session().open(&mut good), Err(Failure::Ended));
                    let parts = [IoSlice::new(b"x")];
                    let sealed = server.session().seal(&parts, 9, &mut [0; 100]);
                    assert_eq!(sealed, Err(SealError::Ended));
                }
            }
        }
    }
}

#[test]
fn records_count_once_and_in_order() {
    for suite in Suite::ALL {
        for (order, is_good) in
            [([0, 1, 2], true), ([0, 0, 1], false), ([1, 0, 2], false), ([0, 2, 1], false)]
        {
            let (mut server, mut client) = sessions(suite);
            let records: Vec<Vec<u8>> =
                [b"a", b"b", b"c"].iter().map(|text| seal(&mut client, *text)).collect();
            let mut sent: Vec<u8> = order.iter().flat_map(|i| records[*i].clone()).collect();
            let opened = open(&mut server, &mut sent);
            let expected = if is_good { Ok(b"abc".to_vec()) } else { Err(Failure::NotAuthentic) };
            assert_eq!(opened, expected, "{suite:?} {order:?}");
        }
    }
}

#[test]
fn a_record_that_is_not_whole_changes_nothing() {
    for suite in Suite::ALL {
        let (mut server, mut client) = sessions(suite);
        let record = seal(&mut client, b"ten bytes.");
        for len in 0..record.len() {
            let mut part = record[..len].to_vec();
            let opened = server.session().open(&mut part).unwrap();
            let needs = if len < 5 { 5 } else { record.len() };
            assert_eq!(opened, Opened { used: 0, what: What::Incomplete { needs } });
            assert_eq!(part, record[..len]);
        }
        assert_eq!(open(&mut server, &mut record.clone()), Ok(b"ten bytes.".to_vec()));
    }
}

#[test]
fn what_is_too_long_or_of_another_kind_is_refused_by_its_header() {
    let check = |suite: Suite, header: [u8; 5], expected: Failure| {
        let (mut server, _) = sessions(suite);
        assert_eq!(server.session().open(&mut header.clone()), Err(expected), "{header:?}");
    };
    let longest = |suite: Suite| u16::try_from(suite.sealed_bytes_max()).unwrap();
    for suite in Suite::ALL {
        let [high, low] = (longest(suite) + 1).to_be_bytes();
        check(suite, [23, 3, 3, high, low], Failure::RecordTooLong);
        check(suite, [23, 3, 3, 0, 15], Failure::NotAuthentic);
        for kind in [0, 19, 20, 24, 25, 255] {
            check(suite, [kind, 3, 3, 0, 50], Failure::Unexpected);
        }
        let (mut server, _) = sessions(suite);
        let [high, low] = longest(suite).to_be_bytes();
        let needs = 5 + suite.sealed_bytes_max();
        let opened = server.session().open(&mut [23, 3, 3, high, low]).unwrap();
        assert_eq!(opened.what, What::Incomplete { needs });
    }
    for suite in TLS13 {
        // All are sealed, and look like data.
        check(suite, [21, 3, 3, 0, 50], Failure::Unexpected);
        check(suite, [22, 3, 3, 0, 50], Failure::Unexpected);
    }
    for suite in TLS12 {
        check(suite, [23, 3, 1, 0, 50], Failure::Version);
        check(suite, [23, 2, 3, 0, 50], Failure::Version);
    }
    check(Suite::Tls12Aes128, [23, 3, 3, 0, 23], Failure::NotAuthentic);
}

#[test]
fn contents_are_at_most_16_kib_with_all_that_pads_them() {
    for suite in Suite::ALL {
        let longest = [1; FRAGMENT_BYTES_MAX];
        assert_eq!(send(suite, &[(23, &longest)]).1.unwrap().len(), FRAGMENT_BYTES_MAX);
        let longer = [1; FRAGMENT_BYTES_MAX + 1];
        assert_eq!(send(suite, &[(23, &longer)]).1, Err(Failure::RecordTooLong));
    }
    // RFC 8446 section 5.4. `seal_any` writes the type behind what is padding here.
    for suite in TLS13 {
        let padded = |len: usize| {
            let mut content = vec![b'a', APPLICATION_DATA];
            content.resize(len, 0);
            send(suite, &[(0, &content)]).1
        };
        assert_eq!(padded(2), Ok(b"a".to_vec()));
        assert_eq!(padded(300), Ok(b"a".to_vec()));
        assert_eq!(padded(FRAGMENT_BYTES_MAX), Ok(b"a".to_vec()));
        assert_eq!(padded(FRAGMENT_BYTES_MAX + 1), Err(Failure::RecordTooLong));
        assert_eq!(send(suite, &[(0, &[0; 40])]).1, Err(Failure::Unexpected), "no type at all");
        assert_eq!(send(suite, &[(0, &[])]).1, Err(Failure::Unexpected), "no type at all");
    }
}

#[test]
fn types_that_have_no_place_are_refused() {
    for suite in Suite::ALL {
        for kind in [1, 20, 24, 25, 255] {
            assert_eq!(send(suite, &[(kind, b"x")]).1, Err(Failure::Unexpected), "{kind}");
        }
        // RFC 8446 section 5.4.
        assert_eq!(send(suite, &[(HANDSHAKE, b"")]).1, Err(Failure::Unexpected));
        assert_eq!(send(suite, &[(ALERT, b"")]).1, Err(Failure::Unexpected));
    }
}

#[test]
fn empty_records_have_an_end_unless_something_comes_between() {
    let budget = usize::from(FRUITLESS_MAX);
    for suite in Suite::ALL {
        let empty: (u8, &[u8]) = (APPLICATION_DATA, b"");
        let mut records = vec![empty; budget];
        records.push((APPLICATION_DATA, b"a"));
        records.extend(vec![empty; budget]);
        records.push((APPLICATION_DATA, b"b"));
        assert_eq!(send(suite, &records).1, Ok(b"ab".to_vec()));
        records.extend(vec![empty; budget + 1]);
        assert_eq!(send(suite, &records).1, Err(Failure::Fruitless));
    }
}

#[test]
fn alerts_are_understood() {
    let check = |suite: Suite, alert: &[u8], expected: Result<(), Failure>| {
        let (_, opened) = send(suite, &[(ALERT, alert), (APPLICATION_DATA, b"a")]);
        assert_eq!(opened, expected.map(|()| b"a".to_vec()), "{suite:?} {alert:?}");
    };
    let peer = |alert: u8| Err(Failure::Peer(PeerAlert(alert)));
    for suite in Suite::ALL {
        check(suite, &[FATAL, 40], peer(40));
        check(suite, &[FATAL, 20], peer(20));
        check(suite, &[3, 40], Err(Failure::Illegal));
        check(suite, &[0, 0], Err(Failure::Illegal));
        check(suite, &[FATAL], Err(Failure::Unreadable));
        check(suite, &[FATAL, 40, 0], Err(Failure::Unreadable));
        check(suite, &[WARNING, 0, WARNING, 0], Err(Failure::Unreadable));
        check(suite, &[WARNING, USER_CANCELED], Ok(()));
    }
    for suite in TLS13 {
        // The level means nothing.
        check(suite, &[FATAL, USER_CANCELED], Ok(()));
        check(suite, &[WARNING, 112], peer(112));
        check(suite, &[WARNING, 100], peer(100));
    }
    for suite in TLS12 {
        check(suite, &[WARNING, 112], Ok(()));
        check(suite, &[FATAL, USER_CANCELED], peer(90));
        let warning: (u8, &[u8]) = (ALERT, &[WARNING, 112]);
        let (_, opened) = send(suite, &vec![warning; usize::from(FRUITLESS_MAX) + 1]);
        assert_eq!(opened, Err(Failure::Fruitless));
    }
}

#[test]
fn nothing_counts_behind_close_notify_and_this_end_can_still_speak() {
    for suite in Suite::ALL {
        for level in [WARNING, FATAL] {
            let (mut server, mut client) = sessions(suite);
            let mut sent = seal(&mut client, b"a");
            sent.extend(client.session().seal_any(ALERT, &[level, CLOSE_NOTIFY]));
            let end = sent.len();
            sent.extend(b"anything at all");
            assert_eq!(open(&mut server, &mut sent[..end]), Ok(b"a".to_vec()));
            assert!(server.session().peer_has_closed());
            let behind = server.session().open(&mut sent[end..]).unwrap();
            assert_eq!(behind, Opened { used: 15, what: What::Closed });
            let mut answer = seal(&mut server, b"b");
            assert_eq!(open(&mut client, &mut answer), Ok(b"b".to_vec()));
        }
    }
}

#[test]
fn what_was_said_last_is_last() {
    for suite in Suite::ALL {
        let (mut server, mut client) = sessions(suite);
        let mut out = [0; 100];
        let room = server.session().end(Alert::CloseNotify, &mut [0; SEAL_ROOM_MIN - 1]);
        assert_eq!(room, Err(SealError::NoRoom));
        let written = server.session().end(Alert::CloseNotify, &mut out).unwrap();
        assert_eq!(open(&mut client, &mut out[..written]), Ok(Vec::new()));
        assert!(client.session().peer_has_closed());
        let parts = [IoSlice::new(b"x")];
        assert_eq!(server.session().seal(&parts, 9, &mut out), Err(SealError::Ended));
        let again = server.session().end(Alert::InternalError, &mut out);
        assert_eq!(again, Err(SealError::Ended));
        // What the client says meanwhile is heard.
        assert_eq!(open(&mut server, &mut seal(&mut client, b"c")), Ok(b"c".to_vec()));
    }
}

#[test]
fn a_failure_is_followed_by_its_alert_once() {
    for suite in Suite::ALL {
        let (mut server, mut client) = sessions(suite);
        let failure = server.session().open(&mut [99, 3, 3, 0, 50]).unwrap_err();
        let mut out = [0; 100];
        let alert = failure.alert().unwrap();
        let written = server.session().end(alert, &mut out).unwrap();
        let heard = open(&mut client, &mut out[..written]);
        assert_eq!(heard, Err(Failure::Peer(PeerAlert(10))));
        assert_eq!(server.session().end(alert, &mut out), Err(SealError::Ended));
        assert_eq!(server.session().open(&mut [0; 9]), Err(Failure::Ended));
    }
}

#[test]
fn too_little_room_changes_nothing() {
    for suite in Suite::ALL {
        let (mut server, mut client) = sessions(suite);
        let parts = [IoSlice::new(b"x")];
        let mut out = [0; SEAL_ROOM_MIN];
        let few = &mut out[..SEAL_ROOM_MIN - 1];
        assert_eq!(server.session().seal(&parts, 9, few), Err(SealError::NoRoom));
        assert_eq!(server.session().settle(few), Err(SealError::NoRoom));
        // With all that may stand in front of it there is room for data.
        header(&mut server).flags |= OWES_UPDATE;
        let sealed = server.session().seal(&parts, 9, &mut out).unwrap();
        assert_eq!(sealed.taken, 1);
        let opened = open(&mut client, &mut out[..sealed.written]);
        assert_eq!(opened, Ok(b"x".to_vec()), "a KeyUpdate may stand in front");
    }
}

#[test]
fn keys_are_updated_both_ways_and_a_request_is_answered_once() {
    for suite in TLS13 {
        let (mut server, mut client) = sessions(suite);
        for _ in 0..3 {
            let mut sent = client.session().seal_any(HANDSHAKE, &UPDATE_PLEASE);
            advance_tx(&mut client);
            sent.extend(client.session().seal_any(HANDSHAKE, &UPDATE_PLEASE));
            advance_tx(&mut client);
            sent.extend(seal(&mut client, b"a"));
            assert!(!server.session().owes());
            assert_eq!(open(&mut server, &mut sent), Ok(b"a".to_vec()));
            assert!(server.session().owes());
            let mut answer = seal(&mut server, b"b");
            assert!(!server.session().owes());
            let lengths = suite.record_overhead() * 2 + UPDATE.len() + 1;
            assert_eq!(answer.len(), lengths, "one KeyUpdate, and the data behind it");
            assert_eq!(open(&mut client, &mut answer), Ok(b"b".to_vec()));
            assert!(!client.session().owes(), "none was asked for in return");
        }
        // It can be settled without data.
        let mut sent = client.session().seal_any(HANDSHAKE, &UPDATE_PLEASE);
        assert_eq!(open(&mut server, &mut sent), Ok(Vec::new()));
        let mut out = [0; 100];
        let written = server.session().settle(&mut out).unwrap();
        assert!(written > 0);
        assert_eq!(server.session().settle(&mut out[written..]), Ok(0));
        assert_eq!(open(&mut client, &mut out[..written]), Ok(Vec::new()));
        assert_eq!(open(&mut client, &mut seal(&mut server, b"c")), Ok(b"c".to_vec()));
    }
}

/// What a KeyUpdate that was sealed by hand does to its sender.
fn advance_tx(session: &mut Owned) {
    let session = session.session();
    let suite = session.suite();
    let (tx_key, rest) = session.keys.split_at_mut(suite.key_bytes());
    let secret = &mut rest[..suite.secret_bytes()];
    keys::advance_secret(suite, secret);
    let derived = RecordKeys::derive(suite, secret);
    tx_key.copy_from_slice(derived.key());
    session.header.tx_iv = *derived.iv;
    session.header.tx_seq = 0;
}

#[test]
fn a_key_update_may_come_in_parts_with_nothing_between() {
    for suite in TLS13 {
        for cut in 1..5 {
            let (mut server, mut client) = sessions(suite);
            let (first, second) = UPDATE.split_at(cut);
            let mut sent = client.session().seal_any(HANDSHAKE, first);
            sent.extend(client.session().seal_any(HANDSHAKE, second));
            advance_tx(&mut client);
            sent.extend(seal(&mut client, b"a"));
            assert_eq!(open(&mut server, &mut sent), Ok(b"a".to_vec()));
            for between in [(APPLICATION_DATA, &b"a"[..]), (ALERT, &[1, 0])] {
                let (_, opened) = send(suite, &[(HANDSHAKE, first), between]);
                assert_eq!(opened, Err(Failure::Unexpected));
            }
        }
        let bytes: Vec<(u8, &[u8])> = UPDATE.chunks(1).map(|byte| (HANDSHAKE, byte)).collect();
        assert_eq!(send(suite, &bytes).1, Ok(Vec::new()));
    }
}

#[test]
fn key_updates_that_are_none_are_refused() {
    let check = |message: &[u8], expected: Failure| {
        for suite in TLS13 {
            assert_eq!(send(suite, &[(HANDSHAKE, message)]).1, Err(expected), "{message:?}");
        }
    };
    check(&[KEY_UPDATE, 0, 0, 1, 2], Failure::Illegal);
    check(&[KEY_UPDATE, 0, 0, 1, 255], Failure::Illegal);
    check(&[KEY_UPDATE, 0, 0, 0], Failure::Unreadable);
    check(&[KEY_UPDATE, 0, 0, 2, 0, 0], Failure::Unreadable);
    check(&[KEY_UPDATE, 0, 1, 1, 0], Failure::Unreadable);
    check(&[KEY_UPDATE, 1, 0, 1, 0], Failure::Unreadable);
    // A key must not change within a record.
    check(&[UPDATE, UPDATE].concat(), Failure::Unexpected);
    check(&[&UPDATE[..], &[KEY_UPDATE]].concat(), Failure::Unexpected);
    // NewSessionTicket, Certificate, Finished, ClientHello, EndOfEarlyData, HelloRequest.
    for kind in [4, 11, 20, 1, 5, 0] {
        check(&[kind, 0, 0, 1, 0], Failure::Unexpected);
    }
}

#[test]
fn a_peer_that_only_updates_its_key_has_a_budget() {
    for suite in TLS13 {
        let (mut server, mut client) = sessions(suite);
        let mut update = |server: &mut Owned, data: &[u8]| {
            let mut sent = client.session().seal_any(HANDSHAKE, &UPDATE_PLEASE);
            advance_tx(&mut client);
            sent.extend(seal(&mut client, data));
            open(server, &mut sent)
        };
        for _ in 0..FRUITLESS_MAX {
            assert_eq!(update(&mut server, b""), Ok(Vec::new()));
        }
        assert_eq!(update(&mut server, b""), Err(Failure::Fruitless));
        let (mut server, mut client) = sessions(suite);
        for _ in 0..2 * FRUITLESS_MAX {
            let mut sent = client.session().seal_any(HANDSHAKE, &UPDATE);
            advance_tx(&mut client);
            sent.extend(seal(&mut client, b"a"));
            assert_eq!(open(&mut server, &mut sent), Ok(b"a".to_vec()));
        }
    }
}

#[test]
fn a_key_that_has_sealed_much_is_left_before_it_has_sealed_too_much() {
    for suite in TLS13 {
        let (mut server, mut client) = sessions(suite);
        header(&mut server).tx_seq = UPDATE_AFTER - 1;
        header(&mut client).rx_seq = UPDATE_AFTER - 1;
        let before = seal(&mut server, b"a").len();
        let mut second = seal(&mut server, b"b");
        assert!(second.len() > before, "a KeyUpdate stands in front");
        assert_eq!(header(&mut server).tx_seq, 1);
        header(&mut client).rx_seq = UPDATE_AFTER;
        assert_eq!(open(&mut client, &mut second), Ok(b"b".to_vec()));
        assert_eq!(open(&mut client, &mut seal(&mut server, b"c")), Ok(b"c".to_vec()));
    }
}

#[test]
fn tls12_ends_before_its_key_has_sealed_too_much() {
    for suite in TLS12 {
        let (mut server, mut client) = sessions(suite);
        let last = records_max(suite) - 1;
        header(&mut server).tx_seq = last;
        header(&mut client).rx_seq = last;
        let mut sent = seal(&mut server, b"a");
        let mut out = [0; 100];
        let parts = [IoSlice::new(b"x")];
        let full = server.session().seal(&parts, 9, &mut out);
        assert_eq!(full, Err(SealError::Exhausted));
        let written = server.session().end(Alert::CloseNotify, &mut out).unwrap();
        sent.extend_from_slice(&out[..written]);
        assert_eq!(open(&mut client, &mut sent), Ok(b"a".to_vec()));
        assert!(client.session().peer_has_closed());
    }
}

#[test]
fn sequence_numbers_never_come_again() {
    for suite in Suite::ALL {
        let (mut server, _) = sessions(suite);
        header(&mut server).tx_seq = u64::MAX;
        header(&mut server).rx_seq = u64::MAX;
        let ended = server.session().end(Alert::CloseNotify, &mut [0; 100]);
        assert_eq!(ended, Err(SealError::Exhausted));
        assert_eq!(header(&mut server).tx_seq, u64::MAX);
        let (_, mut client) = sessions(suite);
        let mut record = seal(&mut client, b"x");
        assert_eq!(server.session().open(&mut record), Err(Failure::Exhausted));
        assert_eq!(header(&mut server).rx_seq, u64::MAX);
    }
}

#[test]
fn a_second_handshake_in_tls12_ends_the_session() {
    let hello: &[u8] = &[CLIENT_HELLO, 0, 0, 3, 1, 2, 3];
    for suite in TLS12 {
        for message in [hello, &hello[..1], &[HELLO_REQUEST, 0, 0, 0], &[20, 0, 0, 0], &UPDATE] {
            let (mut server, opened) = send(suite, &[(HANDSHAKE, message)]);
            assert_eq!(opened, Err(Failure::Unexpected));
            let alert = Failure::Unexpected.alert().unwrap();
            assert_eq!(alert, Alert::UnexpectedMessage);
            assert!(server.session().end(alert, &mut [0; SEAL_ROOM_MIN]).is_ok());
        }
        // A client ignores that a server requests one, for a while.
        let (mut server, client) = sessions(suite);
        let mut client = client.of_client();
        for request in 0..=FRUITLESS_MAX {
            let mut sent = server.session().seal_any(HANDSHAKE, &[HELLO_REQUEST, 0, 0, 0]);
            let expected =
                if request < FRUITLESS_MAX { Ok(Vec::new()) } else { Err(Failure::Fruitless) };
            assert_eq!(open(&mut client, &mut sent), expected);
        }
    }
}

#[test]
fn no_key_seals_with_a_nonce_twice() {
    let (mut server, _) = sessions(Suite::Tls13Aes128);
    seal(&mut server, b"a");
    header(&mut server).tx_seq = 0;
    let again = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| seal(&mut server, b"b")));
    assert!(again.is_err(), "what all tests are watched by has not seen it");
}

#[test]
fn a_peer_that_only_cancels_has_a_budget() {
    for suite in Suite::ALL {
        let canceled: (u8, &[u8]) = (ALERT, &[WARNING, USER_CANCELED]);
        let (_, opened) = send(suite, &vec![canceled; usize::from(FRUITLESS_MAX) + 1]);
        assert_eq!(opened, Err(Failure::Fruitless), "{suite:?}");
    }
}

/// RFC 8446 section 5.2 and RFC 5246 section 6.2.3.
#[test]
fn a_sealed_record_has_a_bounded_overhead() {
    for (suites, more) in [(TLS13, 256), (TLS12, 2_048)] {
        for suite in suites {
            let [high, low] = ((1_u16 << 14) + more + 1).to_be_bytes();
            let (mut server, _) = sessions(suite);
            let opened = server.session().open(&mut [23, 3, 3, high, low]);
            assert_eq!(opened, Err(Failure::RecordTooLong), "{suite:?}");
        }
    }
}
