//! What a session takes, and what sealing a record costs against copying the same bytes:
//! `cargo run --release -p stentor-tls --example session_cost`.
//!
//! Records are sealed out of the same bytes by one session after the other, as a fan-out does. The
//! time of one thread, of many short rounds the quickest: others may be at work. Read ratios.

use std::hint::black_box;
use std::io::IoSlice;
use std::time::{Duration, Instant};

use stentor_tls::{FRAGMENT_BYTES_MAX, Owned, Suite};

fn main() {
    println!(
        "{:<14} {:>6} {:>9} {:>10} {:>10} {:>10}",
        "ns", "bytes", "", "100 B", "1000 B", "4000 B"
    );
    let copy = SIZES.map(|bytes| {
        let (text, mut out) = (vec![7; bytes], vec![0; 20_000]);
        quickest(|_| {
            out[..bytes].copy_from_slice(black_box(&text));
            black_box(&out);
        })
    });
    show("copied", None, "", copy);
    for suite in Suite::ALL {
        let mut sessions: Vec<Owned> = (0..SESSIONS).map(|number| session(suite, number)).collect();
        let bytes = Some(sessions[0].bytes());
        let sealed = SIZES.map(|bytes| {
            let (text, mut out) = (vec![7; bytes], vec![0; 20_000]);
            quickest(|round| {
                let session = &mut sessions[round * 7_919 % SESSIONS];
                let parts = [IoSlice::new(black_box(&text))];
                let sealed = session.session().seal(&parts, FRAGMENT_BYTES_MAX, &mut out);
                assert_eq!(sealed.expect("there is room").taken, bytes);
            })
        });
        show(&format!("{suite:?}"), bytes, "sealed", sealed);
        let refused = SIZES.map(|bytes| {
            // One that is refused is opened as far as its tag, and costs what any record does.
            let mut packed = Vec::new();
            session(suite, 0).pack(&mut packed).expect("it has not ended");
            let mut record = vec![0; bytes + suite.record_overhead()];
            let length = u16::try_from(record.len() - 5).expect("it is short").to_be_bytes();
            record[..5].copy_from_slice(&[23, 3, 3, length[0], length[1]]);
            quickest(|_| {
                let mut session = Owned::unpack(&mut packed.clone()).expect("it is one");
                assert!(session.session().open(black_box(&mut record)).is_err());
            })
        });
        show("", None, "refused", refused);
    }
}

fn show(suite: &str, bytes: Option<usize>, what: &str, costs: [Duration; 3]) {
    let bytes = bytes.map(|bytes| bytes.to_string()).unwrap_or_default();
    let [a, b, c] = costs.map(|cost| cost.as_secs_f64() * 1e9);
    println!("{suite:<14} {bytes:>6} {what:>9} {a:>10.0} {b:>10.0} {c:>10.0}");
}

/// A session with keys of its own, as another process would have packed it.
fn session(suite: Suite, number: usize) -> Owned {
    let bytes = match suite {
        Suite::Tls13ChaCha => 128,
        Suite::Tls13Aes256 => 160,
        _ => 112,
    };
    let mut packed = vec![0; bytes];
    packed[0] = suite as u8;
    for chunk in packed[32..].chunks_exact_mut(8) {
        chunk.copy_from_slice(&number.to_le_bytes());
    }
    Owned::unpack(&mut packed).expect("it is one")
}

/// The time of one call, of the quickest round.
fn quickest(mut call: impl FnMut(usize)) -> Duration {
    let mut best = Duration::MAX;
    for round in 0..ROUNDS {
        let start = Instant::now();
        for i in 0..CALLS {
            call(round * CALLS + i);
        }
        best = best.min(start.elapsed());
    }
    best / u32::try_from(CALLS).expect("they are few")
}

const SIZES: [usize; 3] = [100, 1000, 4000];
const SESSIONS: usize = 15_000;
const ROUNDS: usize = 200;
const CALLS: usize = 500;
