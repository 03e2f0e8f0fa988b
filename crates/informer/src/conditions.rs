//! Conditions in the status of objects.
//!
//! [`set`] is pure: it sends no request, and the time is part of the condition.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// Sets a condition in the `conditions` of a status, and returns whether that has changed anything.
///
/// A status has at most one condition of a type. If there is none, the condition is appended. Otherwise it
/// replaces the existing one, at the same position; `last_transition_time` changes only if `status` changes.
/// So the condition can be built anew in each reconcile, with the
/// [current time](crate::controller::Context::now) and the generation of the object that was reconciled, and
/// the status needs to be written only if this function returns `true`. A new `observed_generation` counts as a
/// change: it tells readers which spec the condition describes.
///
/// Corresponds to `meta.SetStatusCondition` of Kubernetes. A custom resource with `Condition` in its status
/// needs the feature `schemars` of `k8s-openapi`, or a schema of its own for that field.
///
/// ```
/// use informer::conditions;
/// use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
/// # use k8s_openapi::jiff::Timestamp;
/// # let (generation, now, later) = (Some(3), Timestamp::UNIX_EPOCH, Timestamp::MAX);
///
/// let mut conditions = Vec::new(); // usually from the status as last read
/// let mut ready = Condition {
///     type_: "Ready".to_owned(),
///     status: "False".to_owned(),
///     reason: "NoReplicas".to_owned(),
///     message: "0 of 3 replicas are ready".to_owned(),
///     observed_generation: generation, // metadata.generation of the reconciled object
///     last_transition_time: Time(now), // ctx.now() in a reconcile
/// };
/// assert!(conditions::set(&mut conditions, ready.clone()));
///
/// ready.message = "1 of 3 replicas is ready".to_owned();
/// ready.last_transition_time = Time(later);
/// assert!(conditions::set(&mut conditions, ready.clone()), "the message has changed");
/// assert_eq!(conditions[0].last_transition_time, Time(now), "but not the status");
///
/// assert!(!conditions::set(&mut conditions, ready.clone()), "nothing to write");
///
/// ready.status = "True".to_owned();
/// assert!(conditions::set(&mut conditions, ready));
/// assert_eq!(conditions[0].last_transition_time, Time(later));
/// ```
pub fn set(conditions: &mut Vec<Condition>, mut condition: Condition) -> bool {
    let Some(known) = conditions.iter_mut().find(|known| known.type_ == condition.type_) else {
        conditions.push(condition);
        return true;
    };
    if known.status == condition.status {
        condition.last_transition_time = known.last_transition_time.clone();
    }
    let is_changed = *known != condition;
    *known = condition;
    is_changed
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;

    fn condition(type_: &str, status: &str, seconds: i64) -> Condition {
        Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: "Tested".to_owned(),
            message: String::new(),
            observed_generation: Some(1),
            last_transition_time: Time(Timestamp::from_second(seconds).unwrap()),
        }
    }

    /// Sets the conditions one after the other, and returns the result as `type=status@time`, preceded by `!`
    /// for each call that changed something and `.` for each that did not.
    fn after(calls: impl IntoIterator<Item = Condition>) -> String {
        let (mut conditions, mut text) = (Vec::new(), String::new());
        for condition in calls {
            text.push(if set(&mut conditions, condition) { '!' } else { '.' });
        }
        for Condition { type_, status, last_transition_time: Time(time), .. } in conditions {
            text.extend([" ", &type_, "=", &status, "@", &time.as_second().to_string()]);
        }
        text
    }

    #[test]
    fn transition_time_changes_only_with_the_status() {
        let ready = |status, seconds| condition("Ready", status, seconds);
        assert_eq!(after([ready("False", 1)]), "! Ready=False@1");
        assert_eq!(after([ready("False", 1), ready("False", 2)]), "!. Ready=False@1");
        assert_eq!(after([ready("False", 1), ready("True", 2)]), "!! Ready=True@2");
        assert_eq!(after([ready("False", 1), ready("True", 2), ready("False", 3)]), "!!! Ready=False@3");
        // A clock that went back is not an error: the time of the transition is what the writer says.
        assert_eq!(after([ready("False", 5), ready("True", 2)]), "!! Ready=True@2");
    }

    #[test]
    fn every_other_field_is_replaced_and_counts_as_a_change() {
        let edits: [fn(&mut Condition); 4] = [
            |condition| condition.reason = "Other".to_owned(),
            |condition| condition.message = "other".to_owned(),
            |condition| condition.observed_generation = Some(2),
            |condition| condition.observed_generation = None,
        ];
        for edit in edits {
            let mut changed = condition("Ready", "True", 2);
            edit(&mut changed);
            let mut conditions = vec![condition("Ready", "True", 1)];
            assert!(set(&mut conditions, changed.clone()));
            changed.last_transition_time = condition("Ready", "True", 1).last_transition_time;
            assert_eq!(conditions, [changed]);
        }
    }

    #[test]
    fn conditions_keep_their_order_and_types_are_compared_exactly() {
        let calls = [("Ready", "True"), ("Synced", "True"), ("ready", "True"), ("Ready", "False")];
        let calls = calls.into_iter().zip(1..).map(|((name, status), time)| condition(name, status, time));
        assert_eq!(after(calls), "!!!! Ready=False@4 Synced=True@2 ready=True@3");
    }

    /// A list that contains a type twice, which only a server without a schema accepts.
    #[test]
    fn first_of_two_conditions_of_a_type_is_replaced() {
        let mut conditions = vec![condition("Ready", "True", 1), condition("Ready", "False", 2)];
        assert!(set(&mut conditions, condition("Ready", "False", 3)));
        assert_eq!(conditions, [condition("Ready", "False", 3), condition("Ready", "False", 2)]);
    }
}
