//! An exhaustive search through the worlds of a model.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Visits every world that steps lead to from `first`, nearest first, and returns their number.
/// `next` makes the worlds of the next steps. `check` judges a world and the worlds that follow it.
///
/// # Errors
/// What `check` says of the first bad world, and the way to it.
pub fn search<W: Clone + Eq + Hash>(
    first: W,
    next: impl Fn(&W) -> Vec<W>,
    check: impl Fn(&W, &[W]) -> Result<(), &'static str>,
) -> Result<usize, (&'static str, Vec<W>)> {
    let mut earlier = HashMap::from([(first.clone(), None)]);
    let mut queue = VecDeque::from([first]);
    while let Some(world) = queue.pop_front() {
        assert!(earlier.len() < WORLDS_MAX, "the model has too many worlds");
        let following = next(&world);
        if let Err(reason) = check(&world, &following) {
            let mut way = vec![world];
            while let Some(Some(before)) = earlier.get(&way[way.len() - 1]) {
                way.push(W::clone(before));
            }
            way.reverse();
            return Err((reason, way));
        }
        for following in following {
            if !earlier.contains_key(&following) {
                earlier.insert(following.clone(), Some(world.clone()));
                queue.push_back(following);
            }
        }
    }
    Ok(earlier.len())
}

/// A model that has more worlds does not end.
const WORLDS_MAX: usize = 1_000_000;

#[test]
fn the_nearest_bad_world_is_found() {
    let next = |n: &u32| vec![(n * 2) % 100, (n + 1) % 100];
    let check = |n: &u32, _: &[u32]| if *n == 12 { Err("twelve") } else { Ok(()) };
    assert_eq!(search(1, next, check), Err(("twelve", vec![1, 2, 3, 6, 12])));
    assert_eq!(search(1, next, |_, _| Ok(())), Ok(100));
}
