//! Decides the sizes of the replica sets of a deployment, with the rules of Kubernetes.
//!
//! Pure: all inputs are parameters. Invariants of a rolling update: there are never more pods than replicas and
//! surge together, and available pods are removed only while enough others are available.

use serde_json::Value;

use crate::object::{number, text};

/// A replica set: its size, and the number of its available pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Set {
    pub(crate) replicas: i64,
    pub(crate) available: i64,
}

/// The numbers in the spec of a deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) replicas: i64,
    pub(crate) max_surge: i64,
    pub(crate) max_unavailable: i64,
    is_recreate: bool,
    is_paused: bool,
}

impl Limits {
    /// Reads the numbers from a deployment.
    pub(crate) fn of(deployment: &Value) -> Self {
        let replicas = number(deployment, "/spec/replicas").unwrap_or(1);
        let rolling = |field: &str| deployment["spec"]["strategy"]["rollingUpdate"].get(field);
        let max_surge = resolve(rolling("maxSurge"), replicas, Rounding::Up);
        let max_unavailable = resolve(rolling("maxUnavailable"), replicas, Rounding::Down);
        let is_recreate = text(deployment, "/spec/strategy/type") == "Recreate";
        Limits {
            replicas,
            max_surge: if is_recreate { 0 } else { max_surge },
            max_unavailable: match max_unavailable {
                _ if is_recreate => replicas,
                // Otherwise the update could never start.
                0 if max_surge == 0 => 1.min(replicas),
                max_unavailable => max_unavailable.min(replicas),
            },
            is_recreate,
            is_paused: deployment["spec"]["paused"] == Value::Bool(true),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rounding {
    Up,
    Down,
}

/// Returns a number of pods that is given as a number or in percent.
fn resolve(value: Option<&Value>, replicas: i64, rounding: Rounding) -> i64 {
    let Some(value) = value else { return 0 };
    let percent = value.as_str().and_then(|text| text.strip_suffix('%')?.parse::<i64>().ok());
    match percent {
        Some(percent) => {
            let hundredths = replicas.saturating_mul(percent);
            if rounding == Rounding::Up { hundredths.saturating_add(99) / 100 } else { hundredths / 100 }
        }
        None => value.as_i64().unwrap_or(0),
    }
}

/// Returns the sets to resize, as indexes and new sizes. `sets` are ordered by age, oldest first; `new` is the
/// index of the set with the current template.
pub(crate) fn sizes(
    limits: &Limits,
    sets: &[Set],
    new: Option<usize>,
    has_old_pods: bool,
) -> Vec<(usize, i64)> {
    if limits.is_paused {
        // Scaling a paused deployment scales its only set with pods.
        let mut active = sets.iter().enumerate().filter(|(_, set)| set.replicas > 0);
        return match (active.next(), active.next()) {
            (Some((index, set)), None) if set.replicas != limits.replicas => vec![(index, limits.replicas)],
            _ => Vec::new(),
        };
    }
    let Some(new) = new else { return Vec::new() };
    let mut resized: Vec<Set> = sets.to_vec();
    if limits.is_recreate {
        for (index, set) in resized.iter_mut().enumerate() {
            set.replicas = if index != new {
                0
            } else if has_old_pods {
                set.replicas
            } else {
                limits.replicas
            };
        }
    } else {
        grow_new(limits, &mut resized, new);
        // As in Kubernetes, old sets shrink only in a sync in which the new one does not change.
        if resized == sets {
            shrink_old(limits, &mut resized, new);
        }
    }
    let changed = sets.iter().zip(&resized).enumerate();
    changed
        .filter(|(_, (before, after))| before.replicas != after.replicas)
        .map(|(index, (_, after))| (index, after.replicas))
        .collect()
}

/// Sets the size of the new set, as far as the surge allows.
fn grow_new(limits: &Limits, sets: &mut [Set], new: usize) {
    let total: i64 = sets.iter().map(|set| set.replicas).sum();
    let Some(set) = sets.get_mut(new) else { return };
    if set.replicas > limits.replicas {
        set.replicas = limits.replicas;
        return;
    }
    let allowed = limits.replicas.saturating_add(limits.max_surge) - total;
    set.replicas += allowed.min(limits.replicas - set.replicas).max(0);
}

/// Shrinks the old sets: pods that are not available first, then as many as are not needed.
fn shrink_old(limits: &Limits, sets: &mut [Set], new: usize) {
    let total: i64 = sets.iter().map(|set| set.replicas).sum();
    let min_available = limits.replicas - limits.max_unavailable;
    let new_unavailable = sets.get(new).map_or(0, |set| (set.replicas - set.available).max(0));
    let mut removable = total - min_available - new_unavailable;
    let mut available: i64 = sets.iter().map(|set| set.available).sum();
    let mut old = |removable: &mut i64, count: &mut dyn FnMut(&Set) -> i64| {
        for (index, set) in sets.iter_mut().enumerate() {
            if index != new {
                let removed = count(set).min(*removable).max(0);
                set.replicas -= removed;
                *removable -= removed;
            }
        }
    };
    old(&mut removable, &mut |set| set.replicas - set.available);
    old(&mut removable, &mut |set| {
        let removed = set.replicas.min(available - min_available).max(0);
        available -= removed;
        removed
    });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn limits(replicas: i64, surge: &Value, unavailable: &Value) -> Limits {
        Limits::of(&json!({"spec": {
            "replicas": replicas,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}},
        }}))
    }

    fn check(limits: &Limits, sets: &[(i64, i64)], expected: &[(usize, i64)]) {
        let sets: Vec<Set> = sets
            .iter()
            .map(|(replicas, available)| Set { replicas: *replicas, available: *available })
            .collect();
        assert_eq!(sizes(limits, &sets, Some(sets.len() - 1), false), expected, "{sets:?}");
    }

    #[test]
    fn percentages_are_rounded_as_in_kubernetes() {
        let quarter = json!("25%");
        let found = limits(5, &quarter, &quarter);
        assert_eq!((found.max_surge, found.max_unavailable), (2, 1));
        let found = limits(3, &json!(0), &json!("25%"));
        assert_eq!((found.max_surge, found.max_unavailable), (0, 1), "an update must be possible");
        assert_eq!(limits(0, &json!(0), &json!(0)).max_unavailable, 0);
    }

    #[test]
    fn update_replaces_pods_within_the_limits() {
        let limits = limits(4, &json!(1), &json!(1));
        check(&limits, &[(0, 0)], &[(0, 4)]);
        check(&limits, &[(4, 4), (0, 0)], &[(1, 1)]);
        check(&limits, &[(4, 4), (1, 0)], &[(0, 3)]);
        check(&limits, &[(3, 3), (1, 0)], &[(1, 2)]);
        check(&limits, &[(3, 3), (2, 0)], &[]);
        check(&limits, &[(3, 3), (2, 1)], &[(0, 2)]);
        check(&limits, &[(0, 0), (4, 4)], &[]);
    }

    #[test]
    fn pods_that_are_not_available_are_removed_first() {
        let limits = limits(4, &json!(1), &json!(1));
        check(&limits, &[(2, 0), (2, 2), (1, 1)], &[(0, 0)]);
        check(&limits, &[(4, 0), (0, 0)], &[(1, 1)]);
        check(&limits, &[(4, 0), (1, 0)], &[(0, 3)]);
    }

    #[test]
    fn scaling_changes_the_only_set() {
        let limits = limits(2, &json!("25%"), &json!("25%"));
        check(&limits, &[(0, 0), (5, 5)], &[(1, 2)]);
        check(&limits, &[(0, 0), (1, 1)], &[(1, 2)]);
    }

    #[test]
    fn recreate_waits_for_the_end_of_old_pods() {
        let limits = Limits::of(&json!({"spec": {"replicas": 3, "strategy": {"type": "Recreate"}}}));
        let sets = [Set { replicas: 3, available: 3 }, Set { replicas: 0, available: 0 }];
        assert_eq!(sizes(&limits, &sets, Some(1), true), [(0, 0)]);
        let sets = [Set { replicas: 0, available: 0 }; 2];
        assert_eq!(sizes(&limits, &sets, Some(1), true), []);
        assert_eq!(sizes(&limits, &sets, Some(1), false), [(1, 3)]);
    }

    #[test]
    fn paused_deployment_is_only_scaled() {
        let limits = Limits::of(&json!({"spec": {"replicas": 3, "paused": true}}));
        let set = |replicas| Set { replicas, available: replicas };
        assert_eq!(sizes(&limits, &[set(2), set(0)], None, false), [(0, 3)]);
        assert_eq!(sizes(&limits, &[set(2), set(1)], Some(1), false), []);
    }
}
