//! Conditions in the status of objects.
//!
//! A reconcile builds its conditions anew, [sets](set) them in the status that it has read, and writes the
//! status if something has changed. The functions are pure: they send no request, and the time is part of the
//! condition. A custom resource with `Condition` in its status needs the feature `schemars` of `k8s-openapi`,
//! or a schema of its own for that field.
//!
//! ```
//! use informer::conditions::{self, ConditionChange};
//! use informer::controller::{Context, Controller, Outcome};
//! use informer::recorder::{EventRecorder, EventType};
//! use informer::{Error, Key, SharedInformerFactory};
//! use k8s_openapi::api::core::v1::Service;
//! use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
//!
//! async fn reconcile(key: Key, ctx: Context<EventRecorder>) -> Result<Outcome, Error> {
//!     let Some(service) = ctx.lister::<Service>().get_by_key(&key) else { return Ok(Outcome::Done) };
//!     let mut status = service.typed()?.status.clone().unwrap_or_default();
//!     let addresses = status.load_balancer.iter().flat_map(|balancer| balancer.ingress.iter().flatten());
//!     let (ready, reason) = if addresses.count() > 0 { ("True", "HasAddress") } else { ("False", "NoAddress") };
//!     let condition = Condition {
//!         type_: "Ready".to_owned(),
//!         status: ready.to_owned(),
//!         reason: reason.to_owned(),
//!         message: String::new(),
//!         observed_generation: service.generation(), // tells readers which spec the condition describes
//!         last_transition_time: Time(ctx.now()),     // kept if the status of the condition is the same
//!     };
//!     let change = conditions::set(status.conditions.get_or_insert_default(), condition);
//!     if change.is_changed() {
//!         ctx.patch_status(&service, &status).await?; // a conflict is retried
//!     }
//!     if change == ConditionChange::Transitioned {
//!         ctx.state().record(&service, EventType::Normal, reason, "Check", &format!("ready: {ready}"));
//!     }
//!     Ok(Outcome::Done)
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = informer_apiserver::ApiServer::new();
//! # let client = server.client();
//! # server.create(&serde_json::json!({"apiVersion": "v1", "kind": "Service",
//! #     "metadata": {"name": "web", "namespace": "default"}, "spec": {"ports": [{"port": 80}]}}))?;
//! let factory = SharedInformerFactory::new(client.clone());
//! let controller = Controller::new::<Service>(&factory)
//!     .state(EventRecorder::new(client, "services"))
//!     .reconcile(reconcile);
//! # let services = factory.informer::<Service>();
//! # let written = async {
//! #     let mut events = services.event_stream();
//! #     while let Some(event) = events.next().await {
//! #         if event.object().name() != "web" { continue }
//! #         let status = event.object().typed().unwrap().status.clone().unwrap_or_default();
//! #         if let Some(ready) = conditions::find(&status.conditions.unwrap_or_default(), "Ready") {
//! #             assert_eq!(ready.reason, "NoAddress");
//! #             break;
//! #         }
//! #     }
//! # };
//! # controller.run_until(written).await?;
//! # Ok(())
//! # }
//! ```

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// The change that [`set`] made to a list of conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use = "the status has to be written if it has changed"]
pub enum ConditionChange {
    /// The list had this condition already.
    Unchanged,
    /// The condition has another reason, message or observed generation, but its status is the same.
    Updated,
    /// The condition has another status, or the list had no condition of its type.
    Transitioned,
}

impl ConditionChange {
    /// Returns whether the list has changed, so that the status has to be written.
    #[must_use]
    pub fn is_changed(self) -> bool {
        self != Self::Unchanged
    }
}

/// Returns the condition of a type.
///
/// Corresponds to `meta.FindStatusCondition` of Kubernetes.
pub fn find<'a>(conditions: &'a [Condition], condition_type: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == condition_type)
}

/// Returns whether there is a condition of a type, and its status is `True`.
///
/// The condition may describe an earlier spec; its `observed_generation` tells. Corresponds to
/// `meta.IsStatusConditionTrue` of Kubernetes.
///
/// ```
/// use informer::conditions;
/// use k8s_openapi::api::core::v1::Service;
///
/// fn is_ready(service: &Service) -> bool {
///     let conditions = service.status.as_ref().and_then(|status| status.conditions.as_deref());
///     conditions::is_true(conditions.unwrap_or_default(), "Ready")
/// }
/// # assert!(!is_ready(&Service::default()));
/// ```
pub fn is_true(conditions: &[Condition], condition_type: &str) -> bool {
    find(conditions, condition_type).is_some_and(|condition| condition.status == "True")
}

/// Sets a condition in the `conditions` of a status, and returns what that has changed.
///
/// A status has at most one condition of a type. If there is none, the condition is appended. Otherwise it
/// replaces the existing one, at the same position; `last_transition_time` changes only if `status` changes.
/// So the condition can be built anew in each reconcile, with the
/// [current time](crate::controller::Context::now) and the generation of the object that was reconciled. A
/// new `observed_generation` counts as a change: it tells readers which spec the condition describes.
///
/// Corresponds to `meta.SetStatusCondition` of Kubernetes. The [module](self) shows a whole reconcile.
///
/// ```
/// use informer::conditions::{self, ConditionChange};
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
/// assert_eq!(conditions::set(&mut conditions, ready.clone()), ConditionChange::Transitioned);
/// assert_eq!(conditions::set(&mut conditions, ready.clone()), ConditionChange::Unchanged);
///
/// ready.message = "1 of 3 replicas is ready".to_owned();
/// ready.last_transition_time = Time(later);
/// assert_eq!(conditions::set(&mut conditions, ready.clone()), ConditionChange::Updated);
/// assert_eq!(conditions[0].last_transition_time, Time(now), "the status is the same");
///
/// ready.status = "True".to_owned();
/// assert!(conditions::set(&mut conditions, ready).is_changed());
/// assert_eq!(conditions[0].last_transition_time, Time(later));
/// ```
pub fn set(conditions: &mut Vec<Condition>, mut condition: Condition) -> ConditionChange {
    let Some(known) = conditions.iter_mut().find(|known| known.type_ == condition.type_) else {
        conditions.push(condition);
        return ConditionChange::Transitioned;
    };
    let has_transitioned = known.status != condition.status;
    if !has_transitioned {
        condition.last_transition_time = known.last_transition_time.clone();
    }
    let is_changed = *known != condition;
    *known = condition;
    match (has_transitioned, is_changed) {
        (true, _) => ConditionChange::Transitioned,
        (false, true) => ConditionChange::Updated,
        (false, false) => ConditionChange::Unchanged,
    }
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
    /// for each call that was a transition, `~` for each other change, and `.` for each call without a change.
    fn after(calls: impl IntoIterator<Item = Condition>) -> String {
        let (mut conditions, mut text) = (Vec::new(), String::new());
        for condition in calls {
            text.push(match set(&mut conditions, condition) {
                ConditionChange::Transitioned => '!',
                ConditionChange::Updated => '~',
                ConditionChange::Unchanged => '.',
            });
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
            assert_eq!(set(&mut conditions, changed.clone()), ConditionChange::Updated);
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
        assert!(set(&mut conditions, condition("Ready", "False", 3)).is_changed());
        assert_eq!(conditions, [condition("Ready", "False", 3), condition("Ready", "False", 2)]);
    }

    #[test]
    fn conditions_are_found_by_their_exact_type() {
        let conditions = [condition("Ready", "True", 1), condition("Synced", "Unknown", 2)];
        assert_eq!(find(&conditions, "Synced"), Some(&conditions[1]));
        assert_eq!(find(&conditions, "ready"), None);
        let is_true = |condition_type| is_true(&conditions, condition_type);
        assert_eq!([is_true("Ready"), is_true("Synced"), is_true("ready")], [true, false, false]);
    }
}
