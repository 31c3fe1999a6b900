//! Tests of permits, of work queues, and of what they charge.

use super::*;

impl AsMut<Budget> for Budget {
    fn as_mut(&mut self) -> &mut Budget {
        self
    }
}

fn budget() -> Budget {
    let mut budget = Budget::default();
    budget.begin_turn(false);
    budget
}

/// Whether the class is admitted; if so, the work costs this.
fn spend(budget: &mut Budget, class: WorkClass, cost: usize) -> bool {
    admitted(budget, class, |budget, _| budget.cost += cost).is_some()
}

fn peer(number: u32) -> Peer {
    Peer::from_index(number)
}

#[test]
fn no_connection_passes_those_that_wait() {
    let mut budget = budget();
    assert!(WorkClass::ALL.iter().all(|&class| spend(&mut budget, class, 1)));
    budget.enter(WorkClass::Commands, peer(7), peer(7));
    assert!(!spend(&mut budget, WorkClass::Commands, 1));
    assert!(spend(&mut budget, WorkClass::CatchUp, 1));
    let mut served = None;
    let is_served = serve_next(&mut budget, WorkClass::Commands, |budget, peer| {
        served = Some(peer);
        // What it does is part of its visit, though others wait.
        budget.enter(WorkClass::Commands, peer, peer);
        assert!(spend(budget, WorkClass::Commands, 1));
    });
    assert!(is_served && served == Some(peer(7)) && !spend(&mut budget, WorkClass::Commands, 1));
    assert!(serve_next(&mut budget, WorkClass::Commands, |_, _| ()) && budget.is_idle());
    assert!(!serve_next(&mut budget, WorkClass::Commands, |_, _| panic!("no connection waits")));
}

#[test]
fn a_visit_is_charged_once() {
    let mut budget = budget();
    budget.enter(WorkClass::CatchUp, peer(1), peer(1));
    serve_next(&mut budget, WorkClass::CatchUp, |budget, _| {
        assert!(spend(budget, WorkClass::CatchUp, 1_000));
        assert!(spend(budget, WorkClass::Requests, 300));
        budget.cost += 500;
        assert!(spend(budget, WorkClass::CatchUp, LINE_COST_PER_TURN - 1_800));
        assert!(!spend(budget, WorkClass::CatchUp, 1), "its class is used up within the visit");
    });
    assert_eq!(budget.total(WorkClass::CatchUp), LINE_COST_PER_TURN as u64);
    assert_eq!(budget.total(WorkClass::Requests), 300);
    assert!(!spend(&mut budget, WorkClass::CatchUp, 1));
    budget.enter(WorkClass::Commands, peer(1), peer(1));
    serve_next(&mut budget, WorkClass::Commands, |_, _| ());
    assert_eq!(budget.total(WorkClass::Commands), QUEUE_VISIT_COST as u64);
}

#[test]
fn small_work_charges_no_class() {
    let mut budget = budget();
    assert!(admitted(&mut budget, None, |budget, _| budget.cost += 1 << 30).is_some());
    assert!(WorkClass::ALL.iter().all(|&class| budget.total(class) == 0));
    assert!(budget.is_over_share());
}

#[test]
fn a_large_step_is_paid_for_over_many_iterations() {
    for (is_sweeping, turns) in [(false, 4), (true, 16)] {
        let mut budget = budget();
        budget.begin_turn(is_sweeping);
        spend(&mut budget, WorkClass::Requests, 4 * LINE_COST_PER_TURN);
        let waits = (0..100).take_while(|_| {
            budget.begin_turn(is_sweeping);
            !spend(&mut budget, WorkClass::Requests, 0)
        });
        assert_eq!(waits.count(), turns - 1, "sweeping: {is_sweeping}");
        for _ in 0..100 {
            budget.begin_turn(is_sweeping);
        }
        spend(&mut budget, WorkClass::Requests, LINE_COST_PER_TURN);
        assert!(!spend(&mut budget, WorkClass::Requests, 0), "nothing is saved up");
    }
}

#[test]
fn a_carrier_has_one_share_for_all_its_streams() {
    let mut budget = budget();
    for visit in 0..4 {
        budget.begin_visit(peer(1));
        assert!(!budget.is_over_share(), "in visit {visit}");
        budget.cost += TURN_COST_MAX / 4;
    }
    budget.begin_visit(peer(1));
    assert!(budget.is_over_share());
    budget.begin_visit(peer(2));
    assert!(!budget.is_over_share());
    budget.begin_turn(false);
    budget.begin_visit(peer(1));
    assert!(!budget.is_over_share());
}

#[test]
fn shares_become_smaller_once_many_had_theirs() {
    let mut budget = budget();
    let share = |budget: &mut Budget| {
        budget.begin_share(None);
        budget.share()
    };
    assert_eq!(share(&mut budget), TURN_COST_MAX);
    budget.cost += TURN_COST_USUAL;
    assert!(share(&mut budget) < TURN_COST_MAX);
    budget.begin_turn(false);
    assert_eq!(share(&mut budget), TURN_COST_MAX);
}

#[test]
fn readers_that_catch_up_take_smaller_steps_during_a_fan_out() {
    let mut budget = budget();
    let step_bytes = budget.step_bytes();
    budget.begin_turn(true);
    assert_eq!(budget.step_bytes(), step_bytes / 4);
    budget.begin_turn(false);
    assert_eq!(budget.step_bytes(), step_bytes);
}

#[test]
fn the_order_of_a_queue_survives_packing() {
    let mut before = budget();
    for number in [9, 4, 7] {
        before.enter(WorkClass::CatchUp, peer(number), peer(number));
    }
    let mut out = Packer::new(0);
    before.pack(&mut out);
    let bytes = out.into_bytes();
    let mut after = Budget::unpack(&mut Unpacker::new(&bytes, 0)).unwrap();
    let queue = after.take_queue(WorkClass::CatchUp);
    assert_eq!(queue.peers().map(Peer::index).collect::<Vec<_>>(), [9, 4, 7]);
    assert!(after.is_idle());
}
