//! The store at a start: read into the hub, or taken over from the process before.

use super::{Server, StartError};
use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;
use stentor_config::OrAuto;
use stentor_io::{Disk, DiskErrorKind, HostDisk};
use stentor_log::{OpenError, Recovered, Recovery, Settings as StoreSettings, Store, Tip};
use stentor_store::{Loaded, Reading, TOO_LARGE, Writer, load};

impl Server {
    /// Fills the hub from the store, and has what is published from now on written to it.
    pub(super) fn read_store(&self, recovery: Recovery<HostDisk>) -> Result<(), StartError> {
        let Some(store) = self.service.store() else { return Ok(()) };
        let path = self.settings.store.path.clone().unwrap_or_default();
        let hub = &self.shared.hub;
        let since_us = stentor_io::monotonic_us();
        let mut told_us = since_us;
        let loaded = load(recovery, hub, stentor_io::unix_s(), |progress| {
            store.reading.note(progress);
            if is_due(&mut told_us, stentor_io::monotonic_us()) {
                tracing::info!("{}", store.reading);
            }
        });
        let told = |error| match &error {
            OpenError::Refused { reason, .. } if reason == TOO_LARGE => {
                StartError(self.why_too_large(&store.reading))
            }
            _ => self.store_error(error),
        };
        let Loaded { recovered, upto_generation } = loaded.map_err(told)?;
        let evicted = hub.stored().evicted_total;
        if evicted > 0 {
            let (max, why) = self.settings.limits.stored_bytes_max.resolve();
            tracing::warn!(
                "the store fills limits.stored_bytes_max, which is {} MiB{why}: history was \
                 evicted, all values are here messages={evicted}",
                max >> 20
            );
        }
        if let Some((file, offset)) = &recovered.torn {
            tracing::warn!(
                "{file} ends at offset {offset} with something unfinished, which nobody was \
                 promised: it is left out"
            );
        }
        let took_ms = (stentor_io::monotonic_us() - since_us) / 1_000;
        let topics = hub.counts().topics;
        tracing::info!("the store in {} was read in {took_ms} ms: {topics} topics", path.display());
        self.begin_store(recovered, upto_generation)
    }

    /// The sentence on a store that is too large: how much memory it needs, and how much there is.
    fn why_too_large(&self, reading: &Reading) -> String {
        let path = self.settings.store.path.clone().unwrap_or_default();
        let (max, why) = self.settings.limits.stored_bytes_max.resolve();
        let (values, percent) = (self.shared.hub.stored().values >> 20, reading.percent() as usize);
        let needed = needed_mib(values, percent);
        format!(
            "the store in {} does not fit into memory: {percent} % of it have values of {values} \
             MiB, so it needs {needed} MiB, and limits.stored_bytes_max is {} MiB{why}: raise it, \
             or give the server more memory",
            path.display(),
            max >> 20,
        )
    }

    /// Another process has handed over the hub, and its store ends here. From now on changes are
    /// taken, as far as numbers are reserved.
    pub(super) fn expect_store(&self, tip: &Tip, lost: Vec<RangeInclusive<u64>>) {
        let Some(store) = self.service.store() else { return };
        self.shared.hub.continue_after(tip.last, lost);
        store.intake.continue_at(tip.last, tip.reserved);
        store.attach(&self.shared.hub);
        store.reading.end();
    }

    /// This process serves: begins its part of the store, on the thread that writes.
    pub(super) fn take_store_over(&self, tip: Tip) -> io::Result<()> {
        let (Some(store), Some(path)) = (self.service.store(), self.settings.store.path.clone())
        else {
            return Ok(());
        };
        let (hub, sizes_of) = (Arc::clone(&self.shared.hub), self.settings.store.clone());
        let intake = Arc::clone(&store.intake);
        self.start_writer(move || {
            let continued = HostDisk::open(&path, None).map_err(OpenError::from).and_then(|disk| {
                Ok((sizes(&disk, &sizes_of), Recovery::open(disk)?.continue_at(tip)?))
            });
            let (settings, recovered) = continued.map_err(|error| {
                StartError::of_store(&path, &error).to_string() + "; restart the server"
            })?;
            let begun = Store::begin(recovered, settings, hub.epoch().number());
            Ok(Writer::new(begun, intake, hub))
        })
    }

    fn begin_store(
        &self,
        recovered: Recovered<HostDisk>,
        upto_generation: u64,
    ) -> Result<(), StartError> {
        let Some(store) = self.service.store() else { return Ok(()) };
        let hub = &self.shared.hub;
        let settings = sizes(recovered.disk(), &self.settings.store);
        let begun = Store::begin(recovered, settings, hub.epoch().number());
        // On a full disk readers are served, and the writer tries again.
        if let (false, Some(error)) = (begun.has_begun(), begun.refusal())
            && error.kind != DiskErrorKind::Full
        {
            return Err(self.store_error(error.clone().into()));
        }
        store.attach(hub);
        hub.continue_by(&self.settings.rules(), upto_generation);
        let writer = Writer::new(begun, Arc::clone(&store.intake), Arc::clone(hub));
        self.start_writer(move || Ok(writer))?;
        store.reading.end();
        Ok(())
    }

    /// Why the store cannot be begun.
    fn store_error(&self, error: OpenError) -> StartError {
        let path = self.settings.store.path.clone().unwrap_or_default();
        match (error, &self.settings.user) {
            (OpenError::Disk(error), Some(user)) => StartError(format!(
                "the store in {}: {error}; the directory and its files must belong to user \
                 '{user}', as whom the server runs",
                path.display()
            )),
            (error, _) => StartError::of_store(&path, &error),
        }
    }
}

/// The sizes of a store: those of the settings, or such that fit the volume.
fn sizes(disk: &HostDisk, settings: &stentor_config::Store) -> StoreSettings {
    let volume_bytes = disk.volume_bytes().unwrap_or(u64::MAX);
    let mut sizes = StoreSettings::default().fit(volume_bytes);
    if let OrAuto::Set(bytes) = settings.log_bytes {
        sizes.log_bytes_min = bytes as u64;
    }
    if let OrAuto::Set(bytes) = settings.segment_bytes {
        sizes.segment_bytes = bytes as u64;
    }
    sizes
}

/// How much a store needs, as far as the part that was read tells.
fn needed_mib(read_mib: usize, percent: usize) -> String {
    match read_mib * 100 / percent.max(1) {
        _ if percent < ESTIMATE_PERCENT_MIN => format!("more than {read_mib}"),
        about => format!("about {about}"),
    }
}

/// Whether the log says again how far the store has been read. `told_us` is the time of the last
/// such line.
fn is_due(told_us: &mut u64, now_us: u64) -> bool {
    let is_due = now_us - *told_us > READING_LOG_US;
    if is_due {
        *told_us = now_us;
    }
    is_due
}

/// The least part of a store, in percent, from which its size is estimated.
const ESTIMATE_PERCENT_MIN: usize = 5;

/// How often the log says how far the store has been read, in microseconds.
const READING_LOG_US: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_part_of_a_store_tells_little() {
        assert_eq!([4, 50].map(|percent| needed_mib(100, percent)), ["more than 100", "about 200"]);
    }

    #[test]
    fn reading_is_logged_once_a_second() {
        let mut told_us = 500;
        let times_us = (0..=10).map(|tenth| 500 + tenth * 300_000);
        let logged: Vec<u64> = times_us.filter(|&now_us| is_due(&mut told_us, now_us)).collect();
        assert_eq!(logged, [1_200_500, 2_400_500]);
    }
}
