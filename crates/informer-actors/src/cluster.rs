//! What an actor may do in one step: read the objects, read what changed, and write.
//!
//! Reads come from the mirror, which contains the actor's own writes as soon as they return. Every write is
//! logged as an action, whether the server accepts it or not. A write that would change nothing is neither
//! made nor logged.

use std::sync::Arc;

use informer_apiserver::{ApiServer, DeleteParams, Propagation, ServedResource, Status};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::action::{Action, ActionLog, ActionVerb};
use crate::mirror::{Mirror, ObjectChange, ObjectKey, group_of};
use crate::object::{merge, name, namespace, text, uid};
use crate::random::Random;

/// A program that watches the objects of a cluster and writes to some of them.
///
/// An actor must be level-triggered: what it writes depends on the current objects, not on the changes that
/// led to them. It must write nothing if the objects are as it wants them. The trait is for actors of your
/// own, see [`Actors::add`](crate::Actors::add).
pub trait Actor {
    /// Returns the name, which identifies the actor in actions and errors.
    fn name(&self) -> &str;

    /// Handles what changed and what is due at [`Cluster::now`].
    ///
    /// Returns when the actor is due next, or `None` if it waits for changes only. A time that is not after
    /// now makes the actor step again in the same step of the cluster.
    fn step(&mut self, cluster: &mut Cluster<'_>) -> Option<Timestamp>;
}

/// Settings of all actors.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// Number of nodes that are created if there are none.
    pub(crate) nodes: usize,
    /// Probability that a container fails, in percent.
    pub(crate) failure_percent: u8,
    /// Length of delays, in percent of the usual length.
    pub(crate) delay_percent: u32,
    /// Whether the creation of containers is written as a state of its own.
    pub(crate) container_creation: bool,
}

/// The cluster as an actor sees it in one step.
#[derive(Debug)]
pub struct Cluster<'a> {
    pub(crate) server: &'a ApiServer,
    pub(crate) mirror: &'a mut Mirror,
    pub(crate) actions: &'a mut ActionLog,
    pub(crate) random: &'a mut Random,
    pub(crate) options: &'a Options,
    pub(crate) actor: &'a Arc<str>,
    pub(crate) now: Timestamp,
    /// The changes that the actor has not seen, as sequence numbers of the mirror's log; `None` in its first
    /// step.
    pub(crate) unseen: Option<(u64, u64)>,
}

impl Cluster<'_> {
    /// Returns the time of the step.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Returns the actor's random number generator.
    pub fn random(&mut self) -> &mut Random {
        self.random
    }

    /// Returns a random time between `low` and `high` milliseconds after now, scaled by
    /// [`Actors::delay_percent`](crate::Actors::delay_percent).
    pub fn after_delay(&mut self, low: i64, high: i64) -> Timestamp {
        let delay =
            self.random.between(low, high).saturating_mul(i64::from(self.options.delay_percent)) / 100;
        self.now.saturating_add(SignedDuration::from_millis(delay)).unwrap_or(Timestamp::MAX)
    }

    /// Returns the changes since the actor's previous step, in order. In the first step, all objects count as
    /// created.
    pub fn changes(&self) -> Vec<Arc<ObjectChange>> {
        match self.unseen {
            Some((from, to)) => self.mirror.changes(from, to).to_vec(),
            None => self.mirror.creations(),
        }
    }

    /// Returns all served resources, including custom ones.
    pub fn resources(&self) -> Vec<Arc<ServedResource>> {
        self.mirror.resources().cloned().collect()
    }

    /// Returns an object, or `None` if the object does not exist or its resource is not served.
    ///
    /// Objects are in the preferred version of their resource: only the group of `api_version` matters. They have no
    /// `managedFields`.
    pub fn get(
        &self,
        api_version: &str,
        plural: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> Option<Arc<Value>> {
        self.mirror.get(group_of(api_version), plural, namespace.unwrap_or_default(), name).cloned()
    }

    /// Returns the objects of a resource in one namespace, or in all, ordered by namespace and name.
    pub fn list(&self, api_version: &str, plural: &str, namespace: Option<&str>) -> Vec<Arc<Value>> {
        self.mirror.list(group_of(api_version), plural, namespace).cloned().collect()
    }

    /// Returns the objects of all resources in a namespace.
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<Value>> {
        self.mirror.in_namespace(namespace).map(|(_, object)| object.clone()).collect()
    }

    /// Returns the object with a uid.
    pub fn by_uid(&self, uid: &str) -> Option<Arc<Value>> {
        self.mirror.get_key(self.mirror.key_of_uid(uid)?).cloned()
    }

    /// Returns the objects of all resources that have an owner reference with this uid.
    pub fn dependents(&self, uid: &str) -> Vec<Arc<Value>> {
        self.mirror.dependents(uid).filter_map(|key| self.mirror.get_key(key)).cloned().collect()
    }

    /// Returns the objects of one resource that have an owner reference with this uid.
    pub fn dependents_of(&self, uid: &str, api_version: &str, plural: &str) -> Vec<Arc<Value>> {
        let group = group_of(api_version);
        let fits = |key: &&ObjectKey| key.resource.plural == plural && key.resource.group == group;
        self.mirror.dependents(uid).filter(fits).filter_map(|key| self.mirror.get_key(key)).cloned().collect()
    }

    /// Creates an object and returns it as stored.
    pub fn create(&mut self, object: Value) -> Result<Arc<Value>, Status> {
        let id = LoggedObject::of(&object);
        let created = self.server.create_value(object);
        let id = LoggedObject { name: created.as_ref().unwrap_or(&id.name).clone(), ..id };
        let resource = self.mirror.resource_of_kind(&id.api_version, &id.kind).cloned();
        let key = (id.namespace.clone(), id.name.clone());
        self.log(ActionVerb::Create, id, created.as_ref().err());
        let name = created?;
        let not_found = || Status::not_found("", "objects", &name);
        let resource = resource.ok_or_else(not_found)?;
        // As on the server, the namespace defaults to `default`.
        let namespace = match key.0.as_str() {
            "" if resource.namespaced => "default",
            namespace => namespace,
        };
        let stored = self.mirror.get(&resource.group, &resource.plural, namespace, &key.1);
        stored.cloned().ok_or_else(not_found)
    }

    /// Replaces an object, except for its status.
    pub fn update(&mut self, object: Value) -> Result<(), Status> {
        let id = LoggedObject::of(&object);
        let updated = self.server.update_value(object);
        self.log(ActionVerb::Update, id, updated.as_ref().err());
        updated
    }

    /// Replaces the status of an object.
    pub fn update_status(&mut self, object: Value) -> Result<(), Status> {
        let id = LoggedObject::of(&object);
        let updated = self.server.update_status_value(object);
        self.log(ActionVerb::UpdateStatus, id, updated.as_ref().err());
        updated
    }

    /// Applies a merge patch (RFC 7396) to an object and updates the object if this changes it.
    pub fn merge(&mut self, object: &Value, patch: &Value) -> Result<(), Status> {
        let mut merged = object.clone();
        merge(&mut merged, patch);
        if merged == *object {
            return Ok(());
        }
        self.update(merged)
    }

    /// Applies a merge patch (RFC 7396) to the status of an object and updates the status if this changes it.
    pub fn merge_status(&mut self, object: &Value, patch: &Value) -> Result<(), Status> {
        let mut status = object["status"].clone();
        merge(&mut status, patch);
        if status == object["status"] {
            return Ok(());
        }
        let mut merged = object.clone();
        merged["status"] = status;
        self.update_status(merged)
    }

    /// Applies a merge patch to the status of an object like [`Cluster::merge_status`], without validation and
    /// field management by the server, which take most of the time of a write. For the built-in actors, whose
    /// tests check that their statuses are valid.
    pub(crate) fn put_status(&mut self, object: &Value, patch: &Value) -> Result<(), Status> {
        let mut status = object["status"].clone();
        merge(&mut status, patch);
        if status == object["status"] {
            return Ok(());
        }
        let id = LoggedObject::of(object);
        let written = json!({
            "apiVersion": object["apiVersion"], "kind": object["kind"], "status": status,
            "metadata": {
                "name": id.name, "namespace": id.namespace,
                "resourceVersion": object["metadata"]["resourceVersion"],
            },
        });
        let updated = self.server.set_status_unchecked(written);
        self.log(ActionVerb::UpdateStatus, id, updated.as_ref().err());
        updated
    }

    /// Deletes an object gracefully: with the grace period of a pod, and with propagation policy `Background`.
    pub fn delete(&mut self, object: &Value) -> Result<(), Status> {
        self.delete_with(object, DeleteParams::new().propagation(Propagation::Background))
    }

    /// Deletes an object without a grace period.
    pub fn delete_now(&mut self, object: &Value) -> Result<(), Status> {
        let params = DeleteParams::new().propagation(Propagation::Background).grace_period_seconds(0);
        self.delete_with(object, params)
    }

    /// Deletes an object with options. The object must still have its uid.
    pub fn delete_with(&mut self, object: &Value, params: DeleteParams) -> Result<(), Status> {
        let kind = (text(object, "/apiVersion"), text(object, "/kind"));
        let resource = self.mirror.resource_of_kind(kind.0, kind.1).cloned();
        let params = params.uid(uid(object));
        let scope = Some(namespace(object)).filter(|namespace| !namespace.is_empty());
        let deleted = match resource {
            Some(resource) => {
                self.server.delete_with(&resource.api_version, &resource.plural, scope, name(object), &params)
            }
            None => Err(Status::not_found(group_of(kind.0), kind.1, name(object))),
        };
        self.log(ActionVerb::Delete, LoggedObject::of(object), deleted.as_ref().err());
        deleted.map(|_| ())
    }

    /// Binds a pod to a node.
    pub fn bind_pod(&mut self, pod: &Value, node: &str) -> Result<(), Status> {
        let bound = self.server.bind_pod(namespace(pod), name(pod), node);
        self.log(ActionVerb::Bind, LoggedObject::of(pod), bound.as_ref().err());
        bound
    }

    /// Removes the finalizers in the spec of a namespace.
    pub fn finalize_namespace(&mut self, object: &Value) -> Result<(), Status> {
        let finalized = self.server.finalize_namespace(name(object)).map(|_| ());
        self.log(ActionVerb::Finalize, LoggedObject::of(object), finalized.as_ref().err());
        finalized
    }

    /// Logs a write, and brings its effects into the mirror.
    fn log(&mut self, verb: ActionVerb, object: LoggedObject, rejected: Option<&Status>) {
        self.actions.push(Action {
            time: self.now,
            actor: self.actor.clone(),
            verb,
            kind: object.kind,
            namespace: object.namespace,
            name: object.name,
            rejected: rejected.cloned(),
        });
        self.mirror.refresh();
    }
}

/// The identity of a written object.
struct LoggedObject {
    api_version: String,
    kind: String,
    namespace: String,
    /// The name, or the prefix of a name that is generated.
    name: String,
}

impl LoggedObject {
    fn of(object: &Value) -> Self {
        let name = match name(object) {
            "" => text(object, "/metadata/generateName"),
            name => name,
        };
        LoggedObject {
            api_version: text(object, "/apiVersion").to_owned(),
            kind: text(object, "/kind").to_owned(),
            namespace: namespace(object).to_owned(),
            name: name.to_owned(),
        }
    }
}
