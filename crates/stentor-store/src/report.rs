//! The store's figures, and whether it lets requests in.

use crate::intake::StoreState;
use serde_json::Value;
use std::sync::Arc;
use stentor_hub::Hub;
use stentor_io::Times;
use stentor_order::{OrderKind, Report, Sequencer, metrics};
use stentor_wire::error::{ErrorCode, Rejection};
use stentor_wire::rejections;

impl Report for StoreState {
    fn order(&self) -> (OrderKind, Arc<dyn Sequencer>) {
        (OrderKind::Store, self.intake.clone())
    }

    fn name(&self) -> &'static str {
        "store"
    }

    fn figures(&self, hub: &Hub) -> Vec<(&'static str, Value)> {
        let stats = &self.intake.stats;
        vec![
            ("failure", self.intake.failure().into()),
            ("entries", stats.entries.value().into()),
            ("bytes_written", stats.bytes.value().into()),
            ("unsynced", self.unsynced(hub).into()),
            ("stalled_s", self.stalled_s().into()),
            ("syncs", Times::of(&stats.syncs).count().into()),
            ("errors", stats.errors.value().into()),
            ("log_bytes", stats.log_bytes.value().into()),
            ("snapshot_bytes", stats.snapshot_bytes.value().into()),
            ("snapshot_unix_s", stats.snapshot_unix_s.value().into()),
        ]
    }

    metrics! { |self, hub|
        /// Whether the store takes messages: 0 while its disk is full or has failed.
        Gauge store_up [=> self.intake.failure().is_none()];
        /// Messages and deletions stored.
        Counter store_entries_total [=> self.intake.stats.entries.value()];
        /// Bytes written to the log of the store, without snapshots.
        Counter store_written_bytes_total [=> self.intake.stats.bytes.value()];
        /// Of the latest messages and deletions, those that are not on the disk yet.
        Gauge store_unsynced [=> self.unsynced(hub)];
        /// For how many seconds the store's disk has not answered; 0: it answers.
        Gauge store_stalled_seconds [=> self.stalled_s()];
        /// Failures of the store's disk.
        Counter store_errors_total [=> self.intake.stats.errors.value()];
        /// Bytes of the log behind the last snapshot.
        Gauge store_log_bytes [=> self.intake.stats.log_bytes.value()];
        /// Bytes of the last snapshot.
        Gauge store_snapshot_bytes [=> self.intake.stats.snapshot_bytes.value()];
        /// When the last snapshot was made, in seconds since 1970; 0: not since the start.
        Gauge store_snapshot_timestamp_seconds [=> self.intake.stats.snapshot_unix_s.value()];
        /// How long it took to bring a batch of messages to the disk.
        Histogram store_sync_seconds [=> &Times::of(&self.intake.stats.syncs)];
    }

    fn may_answer(&self) -> Result<(), Rejection> {
        let is_over = self.reading.is_over().then_some(());
        is_over.ok_or(LOADING)
    }

    fn complaint(&self) -> Option<Rejection> {
        let loading = || Rejection::because(ErrorCode::StoreLoading, self.reading.to_string());
        (!self.reading.is_over()).then(loading)
    }

    fn publish_complaints(&self) -> Vec<Rejection> {
        let failed = self.intake.failure();
        let failed = failed.map(|it| {
            let detail = format!("Nothing can be stored, so nothing is taken: {it}.");
            Rejection::because(ErrorCode::StoreFailed, detail)
        });
        let stalled = Some(self.stalled_s()).filter(|stalled_s| *stalled_s > 0);
        let stalled = stalled.map(|it| {
            let detail =
                format!("The disk of the store has not answered for {it} s: publishers wait.");
            Rejection::because(ErrorCode::StoreOverloaded, detail)
        });
        failed.into_iter().chain(stalled).collect()
    }
}

rejections! {
    LOADING: StoreLoading = "The store is being read: try again in a while.";
}

impl StoreState {
    /// How many of the latest numbers are not on the disk yet.
    fn unsynced(&self, hub: &Hub) -> u64 {
        hub.seq().saturating_sub(self.intake.synced_seq())
    }

    /// For how many seconds the disk has not answered.
    fn stalled_s(&self) -> u64 {
        self.intake.stalled_ms() / 1_000
    }
}
