//! Owners of replicas, transferred between an object and its `scale`.
//!
//! A scale is written like any object, with owners of its own. Before the write, the scale gets the owners of
//! the object's replicas; after the write, the owners of the scale become those of the replicas. An owner
//! that the object does not have yet gets no time, as in kube-apiserver.

use serde_json::Value;

use super::entries::{Owned, Owners};
use super::managed_fields;
use super::ownership::paths;
use super::set::Set;

const SCALE_VERSION: &str = "autoscaling/v1";
const SCALE_REPLICAS: &str = "spec.replicas";

/// Returns the `managedFields` of an object's scale. `replicas` is the dotted path of the object's replicas.
pub fn owners_of_scale(object: &Value, replicas: &str) -> Option<Value> {
    let mut owners = Owners::read(managed_fields(object)).unwrap_or_default();
    owners.0.retain(|_, owned| owns(owned, replicas));
    for owned in owners.0.values_mut() {
        SCALE_VERSION.clone_into(&mut owned.version);
        owned.set = paths(&[SCALE_REPLICAS]);
    }
    owners.write()
}

/// Returns the `managedFields` of an object, written through `api_version`, after its scale was written.
pub fn owners_after_scale(object: &Value, scale: &Value, api_version: &str, replicas: &str) -> Option<Value> {
    let mut owners = Owners::read(managed_fields(object)).unwrap_or_default();
    let mut scale_owners = Owners::read(managed_fields(scale)).unwrap_or_default();
    let set: Set = paths(&[replicas]);
    for (id, owned) in owners.0.iter_mut().filter(|(_, owned)| owns(owned, replicas)) {
        if scale_owners.0.remove(id).is_none() {
            owned.set = owned.set.difference(&set);
        }
    }
    scale_owners.0.retain(|_, owned| owns(owned, SCALE_REPLICAS));
    for id in scale_owners.0.into_keys() {
        let time = owners.0.get(&id).and_then(|owned| owned.time.clone());
        owners.0.insert(id, Owned { version: api_version.to_owned(), time, set: set.clone() });
    }
    owners.0.retain(|_, owned| !owned.set.is_empty());
    owners.write()
}

fn owns(owned: &Owned, path: &str) -> bool {
    !owned.set.intersection(&paths(&[path])).is_empty()
}
