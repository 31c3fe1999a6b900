//! Workers that bind one after the other, and the steering of connections that needs it.
//!
//! Listeners of one address are told apart by the order in which they began to listen. With as many
//! workers as cores, each bound to one, that is the order of the workers, and so of their cores.

use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use stentor_config::Settings;
use stentor_io::{BindError, Listener, Role, allowed_cores, narrow_card};

/// Whose turn it is.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    next: Mutex<usize>,
    moved: Condvar,
}

impl Turns {
    /// Has one worker listen when those before it do. The last one has connections steered, if
    /// that is of use.
    ///
    /// # Errors
    /// Those of `listen`.
    pub(crate) fn listen(
        &self,
        index: usize,
        settings: &Settings,
        listen: impl FnOnce() -> Result<Vec<(Listener, Role)>, BindError>,
    ) -> Result<Vec<(Listener, Role)>, BindError> {
        let listeners = self.take(index, listen)?;
        if index + 1 == settings.workers {
            steer(settings, &listeners);
        }
        Ok(listeners)
    }

    /// Waits until those before it have done the same, and lets the next one go, also behind an
    /// error or a panic.
    fn take<R>(&self, index: usize, act: impl FnOnce() -> R) -> R {
        let next = stentor_io::lock(&self.next);
        let next = self.moved.wait_while(next, |next| *next != index);
        let next = next.unwrap_or_else(PoisonError::into_inner);
        let _turn = Turn { next, moved: &self.moved };
        act()
    }
}

/// The turn of one worker, which ends when this is dropped.
struct Turn<'t> {
    next: MutexGuard<'t, usize>,
    moved: &'t Condvar,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.next += 1;
        self.moved.notify_all();
    }
}

/// Has connections come to the worker of their core, once the last one listens. Without it, the
/// kernel spreads them as before.
fn steer(settings: &Settings, listeners: &[(Listener, Role)]) {
    let Ok(cores) = allowed_cores() else { return };
    if !settings.pin || settings.workers != cores.len() || cores.len() == 1 {
        return;
    }
    // Tests come by loopback, whatever the cards are.
    if !cfg!(test)
        && let Some((card, reached)) = narrow_card(cores.len())
    {
        return tracing::info!(
            "connections are spread by chance and not by cores: {card} brings packets to \
             {reached} of {} (stentor tune says more)",
            cores.len()
        );
    }
    let ours = listeners.iter().filter(|(listener, _)| listener.is_one_of_many());
    let steered: io::Result<Vec<()>> = ours.map(|(listener, _)| listener.steer(&cores)).collect();
    match steered {
        Ok(_) => tracing::debug!("connections come to the worker of their core"),
        Err(error) => tracing::info!("connections are spread by chance, not by cores: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::resume_unwind;
    use std::thread;

    #[test]
    fn each_has_its_turn_whoever_comes_first() {
        let (turns, order) = (Turns::default(), Mutex::new(Vec::new()));
        thread::scope(|scope| {
            for index in (0..8).rev() {
                let (turns, order) = (&turns, &order);
                scope.spawn(move || turns.take(index, || order.lock().unwrap().push(index)));
            }
        });
        assert_eq!(order.into_inner().unwrap(), (0..8).collect::<Vec<_>>());
    }

    #[test]
    fn a_panic_keeps_nobody_waiting() {
        let turns = Turns::default();
        let panicked = thread::scope(|scope| {
            scope.spawn(|| turns.take(0, || resume_unwind(Box::new(())))).join().is_err()
        });
        assert!(panicked);
        turns.take(1, || ());
    }
}
