//! Which member each range should have, with as few moves as possible.
//!
//! With `n` ranges and `m` members, each member gets `n / m` ranges, rounded up or down. A range moves only if its
//! owner is gone or has more ranges than that. So a member that joins `m` others moves at most `n / (m + 1)` ranges,
//! rounded up, and a member that leaves moves its own ones.

use super::record::RangeAssignment;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Returns the member that each range should have. `receivers` are the members that may get further ranges: all of
/// them, or those of the newest revision. In the latter case only ranges without a member move, because a second
/// move will follow when the others have ended.
pub(super) fn plan<'a>(
    ranges: &'a [RangeAssignment],
    members: &BTreeSet<&'a str>,
    receivers: &BTreeSet<&'a str>,
) -> Vec<Option<&'a str>> {
    let owner = |range: &'a RangeAssignment| range.owner.as_deref().filter(|owner| members.contains(owner));
    let mut targets: Vec<Option<&str>> = ranges.iter().map(owner).collect();
    if !members.is_empty() && members.len() == receivers.len() {
        give_up(ranges, &mut targets, members);
    }
    distribute(&mut targets, receivers);
    targets
}

/// Takes ranges from members that have too many.
fn give_up<'a>(ranges: &[RangeAssignment], targets: &mut [Option<&'a str>], members: &BTreeSet<&'a str>) {
    let mut ranges_of: BTreeMap<&str, Vec<usize>> =
        members.iter().map(|member| (*member, Vec::new())).collect();
    for (index, target) in targets.iter().enumerate() {
        if let Some(of_member) = target.and_then(|member| ranges_of.get_mut(member)) {
            of_member.push(index);
        }
    }
    let mut ranges_of: Vec<Vec<usize>> = ranges_of.into_values().collect();
    // Those that will have the most anyway get one more if the ranges cannot be divided evenly. Ranges that are being
    // released do not count, so that the order stays the same until they have moved.
    let kept =
        |of_member: &Vec<usize>| of_member.iter().filter(|index| !ranges[**index].is_releasing).count();
    ranges_of.sort_by_key(|of_member| Reverse(kept(of_member)));
    let (quota, remainder) = (targets.len() / members.len(), targets.len() % members.len());
    for (position, mut of_member) in ranges_of.into_iter().enumerate() {
        let quota = quota + usize::from(position < remainder);
        let excess = of_member.len().saturating_sub(quota);
        // Those that are being released, and then the last ones.
        of_member.sort_by_key(|index| Reverse((ranges[*index].is_releasing, *index)));
        for index in of_member.into_iter().take(excess) {
            targets[index] = None;
        }
    }
}

/// Gives each range without a member to a receiver that has few. Neighbours stay together as far as possible.
fn distribute<'a>(targets: &mut [Option<&'a str>], receivers: &BTreeSet<&'a str>) {
    let mut counts: BTreeMap<&str, (usize, usize)> = receivers.iter().map(|name| (*name, (0, 0))).collect();
    for target in targets.iter().flatten() {
        if let Some((count, _)) = counts.get_mut(target) {
            *count += 1;
        }
    }
    for _ in targets.iter().filter(|target| target.is_none()) {
        let least = counts.values_mut().min_by_key(|(count, added)| *count + *added);
        if let Some((_, added)) = least {
            *added += 1;
        }
    }
    let mut added = counts.iter().flat_map(|(name, (_, added))| std::iter::repeat_n(*name, *added));
    for target in targets.iter_mut().filter(|target| target.is_none()) {
        *target = added.next();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn owned(owner: Option<usize>) -> RangeAssignment {
        RangeAssignment::new(owner.map(|owner| format!("m{owner}")), 1, false)
    }

    proptest! {
        #[test]
        fn ranges_are_balanced_with_as_few_moves_as_possible(
            owners in prop::collection::vec(prop::option::of(0..8_usize), 64),
            members in prop::collection::btree_set(0..8_usize, 1..8),
        ) {
            let ranges: Vec<RangeAssignment> = owners.iter().map(|owner| owned(*owner)).collect();
            let names: Vec<String> = members.iter().map(|member| format!("m{member}")).collect();
            let names: BTreeSet<&str> = names.iter().map(String::as_str).collect();
            let targets = plan(&ranges, &names, &names);
            let quota = 64 / names.len();
            let mut held: Vec<usize> = Vec::new();
            for name in &names {
                let planned = targets.iter().filter(|target| **target == Some(*name)).count();
                prop_assert!((quota..=64_usize.div_ceil(names.len())).contains(&planned), "{} has {}", name, planned);
                held.push(ranges.iter().filter(|range| range.owner.as_deref() == Some(*name)).count());
            }
            // The minimum: ranges without a member, and what each member has above its quota, where the largest
            // quotas belong to those that have the most.
            held.sort_unstable_by_key(|held| Reverse(*held));
            let above = held.iter().enumerate().map(|(position, held)| {
                held.saturating_sub(quota + usize::from(position < 64 % names.len()))
            });
            let minimum = above.sum::<usize>() + 64 - held.iter().sum::<usize>();
            let moves = targets.iter().zip(&ranges).filter(|(target, range)| **target != range.owner.as_deref());
            prop_assert_eq!(moves.count(), minimum);
        }

        /// Ranges move one after the other, in any order; meanwhile the plan for the others stays the same, so that no
        /// range moves that the first plan did not contain.
        #[test]
        fn plan_is_stable_while_ranges_move(
            owners in prop::collection::vec(0..4_usize, 32),
            order in Just((0..32_usize).collect::<Vec<_>>()).prop_shuffle(),
        ) {
            let names = ["m0", "m1", "m2", "m3", "m4"];
            let names: BTreeSet<&str> = names.into_iter().collect();
            let mut ranges: Vec<RangeAssignment> = owners.iter().map(|owner| owned(Some(*owner))).collect();
            let first = ranges.clone();
            let moving: Vec<usize> = changed(&plan(&first, &names, &names), &first);
            for index in &moving {
                ranges[*index].is_releasing = true;
            }
            for index in order.iter().filter(|index| moving.contains(index)) {
                let now = ranges.clone();
                let targets = plan(&now, &names, &names);
                let mut releasing: Vec<usize> = (0..32).filter(|index| now[*index].is_releasing).collect();
                releasing.sort_unstable();
                prop_assert_eq!(changed(&targets, &now), releasing);
                ranges[*index] = RangeAssignment::new(targets[*index].map(str::to_owned), 2, false);
            }
            prop_assert!(changed(&plan(&ranges, &names, &names), &ranges).is_empty());
        }
    }

    fn changed(targets: &[Option<&str>], ranges: &[RangeAssignment]) -> Vec<usize> {
        (0..ranges.len()).filter(|index| targets[*index] != ranges[*index].owner.as_deref()).collect()
    }

    /// In a rolling update, each range moves when its owner ends, to a member of the new revision, and once more to
    /// balance them.
    #[test]
    fn ranges_move_at_most_twice_in_a_rolling_update() {
        for members in 1..=9 {
            let mut names: BTreeSet<String> = (0..members).map(|index| format!("old{index}")).collect();
            let mut ranges = vec![RangeAssignment::default(); 64];
            let mut moves = vec![0; 64];
            let mut update = |names: &BTreeSet<String>, receiver: &str, moves: &mut Vec<u32>| {
                let all: BTreeSet<&str> = names.iter().map(String::as_str).collect();
                let newest: BTreeSet<&str> =
                    all.iter().copied().filter(|name| name.contains(receiver)).collect();
                let before = ranges.clone();
                for (index, target) in plan(&before, &all, &newest).into_iter().enumerate() {
                    if target != before[index].owner.as_deref() {
                        ranges[index].owner = target.map(str::to_owned);
                        moves[index] += 1;
                    }
                }
            };
            update(&names, "old", &mut moves);
            moves.fill(0);
            for index in 0..members {
                names.insert(format!("new{index}"));
                update(&names, "new", &mut moves);
                names.remove(&format!("old{index}"));
                update(&names, "new", &mut moves);
            }
            assert!(moves.iter().all(|moves| *moves <= 2), "{members} members: {moves:?}");
        }
    }
}
