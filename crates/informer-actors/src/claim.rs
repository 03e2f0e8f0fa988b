//! Which objects a controller controls: those with its controller reference, and those without a controller
//! that its selector selects, which it adopts.
//!
//! An object that the selector does not select any more is released.

use std::collections::BTreeSet;
use std::sync::Arc;

use informer_apiserver::Status;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::mirror::ObjectChange;
use crate::object::{
    at, controller, controller_reference, is_controlled_by, is_terminating, key, namespace, owner_references,
    selects, text, uid,
};

/// A resource that is controlled by others, and the objects of it that have no controller.
#[derive(Debug)]
pub(crate) struct Claims {
    api_version: &'static str,
    plural: &'static str,
    /// Namespaces and names of the objects without a controller.
    orphans: BTreeSet<(String, String)>,
}

impl Claims {
    pub(crate) fn new(api_version: &'static str, plural: &'static str) -> Self {
        Claims { api_version, plural, orphans: BTreeSet::new() }
    }

    /// Updates the set of objects without a controller.
    pub(crate) fn observe(&mut self, change: &ObjectChange) {
        let is_orphan = |object: &Arc<Value>| controller(object).is_none() && !is_terminating(object);
        let key = (change.namespace.clone(), change.name.clone());
        if change.after.as_ref().is_some_and(is_orphan) {
            self.orphans.insert(key);
        } else {
            self.orphans.remove(&key);
        }
    }

    /// Returns the objects that `owner` controls after adopting and releasing some.
    pub(crate) fn claim(&self, cluster: &mut Cluster<'_>, owner: &Value) -> Result<Vec<Arc<Value>>, Status> {
        let selector = &owner["spec"]["selector"];
        for orphan in self.orphans_of(cluster, owner) {
            let mut references = owner_references(&orphan).to_vec();
            references.push(controller_reference(owner));
            cluster.merge(&orphan, &json!({"metadata": {"ownerReferences": references}}))?;
        }
        let mut controlled = Vec::new();
        for object in cluster.dependents_of(uid(owner), self.api_version, self.plural) {
            if !is_controlled_by(&object, uid(owner)) {
                continue;
            }
            if is_terminating(&object) || selects(selector, at(&object, "/metadata/labels")) {
                controlled.push(object);
                continue;
            }
            let references = owner_references(&object).iter();
            let others: Vec<&Value> = references.filter(|other| text(other, "/uid") != uid(owner)).collect();
            cluster.merge(&object, &json!({"metadata": {"ownerReferences": others}}))?;
        }
        Ok(controlled)
    }

    /// Returns the objects without a controller that the selector of `owner` selects.
    fn orphans_of(&self, cluster: &Cluster<'_>, owner: &Value) -> Vec<Arc<Value>> {
        let scope = namespace(owner).to_owned();
        let from = (scope.clone(), String::new());
        let orphans = self.orphans.range(from..).take_while(|(namespace, _)| *namespace == scope);
        let objects = orphans.filter_map(|(namespace, name)| {
            cluster.get(self.api_version, self.plural, Some(namespace), name)
        });
        objects
            .filter(|object| controller(object).is_none() && !is_terminating(object))
            .filter(|object| selects(&owner["spec"]["selector"], at(object, "/metadata/labels")))
            .collect()
    }
}

/// Returns the keys of the objects of a resource that may want to control the changed object: its controllers
/// before and after the change, and those that select it if it has none.
pub(crate) fn concerned(
    cluster: &Cluster<'_>,
    change: &ObjectChange,
    (api_version, plural, kind): (&str, &str, &str),
) -> Vec<(String, String)> {
    let mut keys = Vec::new();
    for state in [&change.before, &change.after].into_iter().flatten() {
        if let Some(owner) = controller(state).filter(|owner| owner["kind"] == kind) {
            keys.push((change.namespace.clone(), text(owner, "/name").to_owned()));
        }
    }
    if let Some(after) = change.after.as_ref().filter(|after| controller(after).is_none()) {
        for owner in cluster.list(api_version, plural, Some(&change.namespace)) {
            if selects(&owner["spec"]["selector"], at(after, "/metadata/labels")) {
                keys.push(key(&owner));
            }
        }
    }
    keys
}
