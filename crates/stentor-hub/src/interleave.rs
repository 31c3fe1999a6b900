//! Points at which something else may happen: between two looks that are not one.
//!
//! Workers look at the hub several times for one purpose, and publishers run meanwhile. Each such
//! place calls one of the functions here, which do nothing. With the feature `interleave`, which is
//! for tests, they call what the test has given for its thread, and a race that a machine loses
//! once a month is lost for certain. The hooks do what shuttle and loom cannot: these see only the
//! atomics and locks that are their own, and not into papaya and arc-swap.

#[cfg(any(test, feature = "interleave"))]
pub(crate) use hooks::{inside, point};
#[cfg(any(test, feature = "interleave"))]
pub use hooks::{with_hook, with_hook_inside};

/// Anything may happen here: the hub holds no lock.
#[cfg(not(any(test, feature = "interleave")))]
#[inline(always)]
pub(crate) fn point() {}

/// Anybody may read here: somebody is in the sequencing point, and the hub may hold its locks.
#[cfg(not(any(test, feature = "interleave")))]
#[inline(always)]
pub(crate) fn inside() {}

#[cfg(any(test, feature = "interleave"))]
mod hooks {
    use std::cell::RefCell;
    use std::thread::LocalKey;

    type Hook = RefCell<Option<Box<dyn FnMut()>>>;

    thread_local! {
        static POINT: Hook = const { RefCell::new(None) };
        static INSIDE: Hook = const { RefCell::new(None) };
    }

    /// Runs `act`; at each point at which the hub holds no lock, `hook` is called. What that does
    /// with the hub passes further points in silence.
    pub fn with_hook<R>(hook: impl FnMut() + 'static, act: impl FnOnce() -> R) -> R {
        with(&POINT, Box::new(hook), act)
    }

    /// The same for points inside the sequencing point: `hook` may read, or wait for another
    /// thread, but not publish.
    pub fn with_hook_inside<R>(hook: impl FnMut() + 'static, act: impl FnOnce() -> R) -> R {
        with(&INSIDE, Box::new(hook), act)
    }

    pub(crate) fn point() {
        call(&POINT);
    }

    pub(crate) fn inside() {
        call(&INSIDE);
    }

    fn with<R>(key: &'static LocalKey<Hook>, hook: Box<dyn FnMut()>, act: impl FnOnce() -> R) -> R {
        /// Also if `act` panics.
        struct Reset(&'static LocalKey<Hook>);
        impl Drop for Reset {
            fn drop(&mut self) {
                self.0.set(None);
            }
        }
        key.set(Some(hook));
        let _reset = Reset(key);
        act()
    }

    /// The hook is away while it runs, and so is not called by what it does.
    fn call(key: &'static LocalKey<Hook>) {
        // A thread that has ended drops its hub after its hooks.
        if let Ok(Some(mut hook)) = key.try_with(RefCell::take) {
            hook();
            key.set(Some(hook));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::hub::tests::name;
    use std::cell::Cell;
    use std::rc::Rc;
    use std::sync::Arc;

    use super::*;
    use crate::{
        Draft, Epoch, Event, Filter, Hub, Limits, Mode, Pattern, Precondition, Rule, Share, Span,
    };

    /// What is done to the topics while somebody looks: names with a minus are deleted.
    type Changes = &'static [&'static str];

    /// A way to read history. Returns its steps: how many events were found before each, and the
    /// newest loss that it reported.
    type Look = fn(&Hub, Span, &mut Vec<Event>) -> Vec<(usize, u64)>;

    const LOOKS: [Look; 6] = [
        |hub, span, out| vec![(0, hub.missed("/t/a", span, usize::MAX, out).lost_seq)],
        |hub, span, out| {
            let (pattern, mut after, mut lost_seq) = (Pattern::parse("/t/*").unwrap(), None, 0);
            loop {
                let share = Share { steps: 1, bytes: usize::MAX };
                let last = after.as_deref();
                let page = hub.missed_by_pattern(&pattern, span, last, share, out);
                lost_seq = lost_seq.max(page.missed.lost_seq);
                after = page.next;
                if after.is_none() {
                    return vec![(0, lost_seq)];
                }
            }
        },
        |hub, span, out| look_at_changes(hub, "/t/a", usize::MAX, span, out),
        |hub, span, out| look_at_changes(hub, "/t/*", usize::MAX, span, out),
        |hub, span, out| look_at_changes(hub, "/t/*", 65, span, out),
        |hub, span, out| look_at_changes(hub, "/t/*", 130, span, out),
    ];

    /// Reads the latest changes of a filter, at most `bytes` in a step.
    fn look_at_changes(
        hub: &Hub,
        filter: &str,
        bytes: usize,
        mut span: Span,
        out: &mut Vec<Event>,
    ) -> Vec<(usize, u64)> {
        let (filter, mut steps) = (Filter::parse(filter).unwrap(), Vec::new());
        let share = Share { steps: usize::MAX, bytes };
        while span.since < span.upto {
            let mut found = Vec::new();
            let missed = hub.missed_lately(&[&filter], span, share, &mut found).unwrap();
            assert!(missed.upto > span.since, "each step advances");
            steps.push((out.len(), missed.lost_seq));
            out.append(&mut found);
            span.since = missed.upto;
        }
        steps
    }

    fn change(hub: &Hub, changes: Changes) {
        for change in changes {
            match change.strip_prefix('-') {
                Some(topic) => drop(hub.delete(name(topic), Precondition::None, 0)),
                None => drop(hub.publish(name(change), Draft::new(*b"x"), Precondition::None, 0)),
            }
        }
    }

    fn hub_after(changes: Changes) -> Arc<Hub> {
        let rule = Rule { history: 2, ..Rule::default() };
        let hub = Hub::new(Epoch::random(), vec![rule], Limits::default());
        change(&hub, changes);
        Arc::new(hub)
    }

    /// The message of `/t/a` at `seq` was found, or a step reported its loss. A step reports a loss
    /// before the events that it found, so these must be newer, and those of earlier steps older.
    fn check_found(seq: u64, found: &[Event], steps: &[(usize, u64)], told: &str) {
        if found.iter().any(|event| event.seq() == seq) {
            return;
        }
        let loss = steps.iter().find(|(_, lost_seq)| *lost_seq >= seq);
        let (found_before, _) = *loss.unwrap_or_else(|| panic!("{seq} is missing: {told}"));
        for (index, event) in found.iter().enumerate().filter(|(_, e)| e.topic() == "/t/a") {
            assert_eq!(event.seq() > seq, index >= found_before, "{seq} in {steps:?}: {told}");
        }
    }

    /// Wherever others come in between: what was missed is found, or it is said that it is lost.
    #[test]
    fn nothing_slips_away_between_two_looks() {
        let before: [Changes; 6] = [
            &["/t/a", "/t/a", "/t/a", "-/t/a"],
            &["/t/a", "/t/a", "/t/a"],
            &["/t/a", "-/t/a", "/t/a", "/t/b"],
            &["/t/b", "/t/a", "/t/b", "-/t/a"],
            &["/t/a", "/t/a", "/t/a", "/t/b"],
            &["/t/b", "/t/a", "/t/a", "/t/b", "/t/b", "/t/a"],
        ];
        let meanwhile: [Changes; 5] =
            [&["/t/a"], &["-/t/a"], &["/t/a", "-/t/a"], &["/t/a", "/t/a"], &["-/t/a", "/t/a"]];
        let mut runs = 0;
        for (before, meanwhile, look) in before.into_iter().flat_map(|before| {
            let of_look = move |look| meanwhile.map(|meanwhile| (before, meanwhile, look));
            LOOKS.into_iter().flat_map(of_look)
        }) {
            for nth in 0.. {
                let hub = hub_after(before);
                let span = Span { since: 1, upto: hub.seq(), mode: Mode::All };
                let points = Rc::new(Cell::new(0));
                let (own, of_hook) = (Arc::clone(&hub), Rc::clone(&points));
                let at_nth = move || {
                    if of_hook.replace(of_hook.get() + 1) == nth {
                        change(&own, meanwhile);
                    }
                };
                let mut found = Vec::new();
                let steps = with_hook(at_nth, || look(&hub, span, &mut found));
                hub.check();
                for (seq, changed) in (1..).zip(before).skip(1) {
                    if changed.ends_with("/a") {
                        let told = format!("{before:?}, {meanwhile:?} at {nth}: {found:?}");
                        check_found(seq, &found, &steps, &told);
                    }
                }
                runs += 1;
                if points.get() <= nth {
                    break;
                }
            }
        }
        assert!(runs > 200, "{runs}");
    }

    /// Whoever looks in the middle of a publish finds what was there before it.
    #[test]
    fn a_value_and_its_history_change_at_once() {
        let hub = hub_after(&["/t/a"]);
        let looks = Rc::new(Cell::new(0));
        for _ in 0..3 {
            let (own, of_hook, upto) = (Arc::clone(&hub), Rc::clone(&looks), hub.seq());
            let look = move || {
                let mut found = Vec::new();
                let span = Span { since: upto - 1, upto, mode: Mode::All };
                let missed = own.missed("/t/a", span, usize::MAX, &mut found);
                assert_eq!(found.iter().map(Event::seq).collect::<Vec<_>>(), [upto]);
                assert!(missed.lost_seq < upto);
                of_hook.set(of_hook.get() + 1);
            };
            with_hook_inside(look, || change(&hub, &["/t/a"]));
        }
        assert!(looks.get() >= 3 * 3, "before the value changes, and before it is told");
    }
}
