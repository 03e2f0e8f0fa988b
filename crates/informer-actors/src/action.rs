//! The log of writes that actors have made or tried.
//!
//! The log holds at most `MAX_ACTIONS` entries; beyond that, the oldest are dropped. It contains nothing that
//! differs between runs with equal seeds and times.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use informer_apiserver::Status;
use jiff::Timestamp;

/// Maximum number of actions in a log that is not taken.
const MAX_ACTIONS: usize = 10_000;

/// A write by an actor, from [`Actors::take_actions`](crate::Actors::take_actions).
///
/// The display form is one line of a timeline, for example `scheduler: bind Pod default/web-0`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Action {
    /// The time of the step in which the actor wrote.
    pub time: Timestamp,
    /// The name of the actor.
    pub actor: Arc<str>,
    /// The kind of write.
    pub verb: ActionVerb,
    /// The kind of the object.
    pub kind: String,
    /// The namespace of the object; empty for a cluster-scoped object.
    pub namespace: String,
    /// The name of the object; a generated name if the server has generated one.
    pub name: String,
    /// The error of the server if the server rejected the write.
    pub rejected: Option<Status>,
}

/// The kind of write of an [`Action`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ActionVerb {
    /// Creates an object.
    Create,
    /// Replaces an object, except for its status.
    Update,
    /// Replaces the status of an object.
    UpdateStatus,
    /// Deletes an object, or marks it as terminating.
    Delete,
    /// Binds a pod to a node.
    Bind,
    /// Removes the finalizer of an empty namespace.
    Finalize,
}

impl ActionVerb {
    /// Returns the name of the verb, for example `update status`.
    pub fn name(self) -> &'static str {
        match self {
            ActionVerb::Create => "create",
            ActionVerb::Update => "update",
            ActionVerb::UpdateStatus => "update status",
            ActionVerb::Delete => "delete",
            ActionVerb::Bind => "bind",
            ActionVerb::Finalize => "finalize",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {} {} ", self.actor, self.verb.name(), self.kind)?;
        if !self.namespace.is_empty() {
            write!(out, "{}/", self.namespace)?;
        }
        out.write_str(&self.name)?;
        match &self.rejected {
            Some(status) => write!(out, ": rejected with {}: {status}", status.code),
            None => Ok(()),
        }
    }
}

/// The actions that were not taken yet.
#[derive(Debug, Default)]
pub(crate) struct ActionLog(VecDeque<Action>);

impl ActionLog {
    pub(crate) fn push(&mut self, action: Action) {
        if self.0.len() == MAX_ACTIONS {
            self.0.pop_front();
        }
        self.0.push_back(action);
    }

    pub(crate) fn take(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.0).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(name: &str, rejected: Option<Status>) -> Action {
        Action {
            time: Timestamp::UNIX_EPOCH,
            actor: "kubelet".into(),
            verb: ActionVerb::UpdateStatus,
            kind: "Pod".to_owned(),
            namespace: "default".to_owned(),
            name: name.to_owned(),
            rejected,
        }
    }

    #[test]
    fn action_is_displayed_on_one_line() {
        assert_eq!(action("a", None).to_string(), "kubelet: update status Pod default/a");
        let rejected = action("a", Some(Status::not_found("", "pods", "a")));
        let expected = r#"kubelet: update status Pod default/a: rejected with 404: pods "a" not found"#;
        assert_eq!(rejected.to_string(), expected);
    }

    #[test]
    fn log_drops_the_oldest_actions() {
        let mut log = ActionLog::default();
        for number in 0..=MAX_ACTIONS {
            log.push(action(&number.to_string(), None));
        }
        let taken = log.take();
        assert_eq!((taken.len(), taken[0].name.as_str()), (MAX_ACTIONS, "1"));
        assert!(log.take().is_empty());
    }
}
