//! Lines while standard error takes them, blocks, or fails.

use super::*;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::scope;

/// A standard error that takes a write for each permit.
struct Gate {
    permits: Receiver<io::Result<()>>,
    written: SyncSender<Vec<u8>>,
}

impl Write for Gate {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Without a sender it takes everything.
        self.permits.recv().unwrap_or(Ok(()))?;
        let _ = self.written.send(bytes.to_vec());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A log with its thread, which lives as long as the test's process.
fn log() -> (&'static EventLog, SyncSender<io::Result<()>>, Receiver<Vec<u8>>) {
    let log: &'static EventLog = Box::leak(Box::default());
    let ((permit, permits), (written, lines)) = (sync_channel(1_000), sync_channel(1_000));
    thread::spawn(|| log.run(LineWriter::new(Gate { permits, written })));
    (log, permit, lines)
}

#[test]
fn a_blocked_standard_error_costs_lines_and_no_time() {
    let (log, permit, written) = log();
    let line = [b'x'; 1023].iter().chain(b"\n").copied().collect::<Vec<u8>>();
    let began_us = monotonic_us();
    let fits = (EVENT_LOG_BYTES_MAX / line.len()) as u64;
    log.push(b"first\n");
    while log.lock().writing_since_us.is_none() {
        thread::yield_now();
    }
    scope(|all| {
        for _ in 0..4 {
            all.spawn(|| (0..fits).for_each(|_| log.push(&line)));
        }
    });
    assert!(monotonic_us() - began_us < 5_000_000);
    assert_eq!(log.dropped.load(Ordering::Relaxed), 3 * fits);
    assert_eq!(log.lock().queued.len() as u64, fits * line.len() as u64);
    permit.send(Ok(())).unwrap();
    permit.send(Ok(())).unwrap();
    assert_eq!(written.recv().unwrap(), b"first\n");
    assert_eq!(written.recv().unwrap().len() as u64, fits * line.len() as u64);
    // The log reports a loss after the first write that succeeds.
    assert_eq!(log.lock().unreported, 0);
}

#[test]
fn lines_of_another_log_wait_for_room_and_leave_some() {
    let (log, permit, written) = log();
    let lines = b"0123456\n".repeat(EVENT_LOG_BYTES_MAX / 8);
    log.push(b"first\n");
    while log.lock().writing_since_us.is_none() {
        thread::yield_now();
    }
    scope(|all| {
        all.spawn(|| {
            let mut rest = &lines[..];
            while !rest.is_empty() {
                rest = &rest[log.push_patiently(rest)..];
            }
        });
        while log.lock().queued.len() <= EVENT_LOG_BYTES_MAX / 2 {
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(20));
        assert!(log.lock().queued.len() <= EVENT_LOG_BYTES_MAX * 3 / 4 + 8);
        log.push(b"event\n");
        drop(permit);
    });
    log.flush(Duration::from_secs(60));
    let text: Vec<u8> = written.try_iter().flatten().collect();
    assert_eq!(text.len(), lines.len() + 12);
    assert!(text.split(|&byte| byte == b'\n').all(|line| matches!(line.len(), 0 | 5 | 7)));
    assert_eq!(log.dropped.load(Ordering::Relaxed), 0);
}

#[test]
fn a_flush_waits_for_the_last_line_and_not_for_a_blocked_one() {
    let (log, permit, written) = log();
    permit.send(Ok(())).unwrap();
    log.push(b"one\n");
    log.flush(Duration::from_secs(60));
    assert_eq!(written.try_recv().unwrap(), b"one\n");
    log.push(b"two\n");
    let began_us = monotonic_us();
    log.flush(Duration::from_millis(50));
    assert!(monotonic_us() - began_us >= 50_000);
    // It has waited that long already.
    let began_us = monotonic_us();
    log.flush(Duration::from_millis(50));
    assert!(monotonic_us() - began_us < 40_000);
}

#[test]
fn lines_that_cannot_be_written_are_counted() {
    let (log, permit, written) = log();
    permit.send(Err(io::ErrorKind::BrokenPipe.into())).unwrap();
    log.push(b"one\ntwo\n");
    while log.dropped.load(Ordering::Relaxed) < 2 {
        thread::yield_now();
    }
    permit.send(Ok(())).unwrap();
    log.push(b"three\n");
    assert_eq!(written.recv().unwrap(), b"three\n");
}

#[test]
fn become_user_waits_for_a_blocked_log() {
    let (log, permit, written) = log();
    log.push(b"one\n");
    while log.lock().writing_since_us.is_none() {
        thread::yield_now();
    }
    let began_us = monotonic_us();
    let failed = log.become_user(&User::named("root").unwrap().unwrap()).unwrap_err();
    assert_eq!(failed.kind(), io::ErrorKind::TimedOut);
    assert!((900_000..20_000_000).contains(&(monotonic_us() - began_us)));
    // With these dropped, the thread would become root after all.
    mem::forget((permit, written));
}
