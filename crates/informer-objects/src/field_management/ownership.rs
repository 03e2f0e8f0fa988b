//! Who owns what after a write: the rules of updating and of applying.
//!
//! Objects come in valid by the schema and without regard to how they are stored. Versions of one kind are taken to have the same
//! fields: nothing is converted.

use serde_json::Value;

use super::Manager;
use super::compare::Diff;
use super::element::{Element, Path, same};
use super::entries::{Id, Operation, Owned, Owners};
use super::fields::{fitted, named_by, with_named};
use super::merge::{merged, removed};
use super::schema_position::SchemaPosition;
use super::set::Set;

/// Fields that nobody owns.
const UNMANAGED_FIELDS: &[&[&str]] = &[
    &["apiVersion"],
    &["kind"],
    &["metadata"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "creationTimestamp"],
    &["metadata", "selfLink"],
    &["metadata", "uid"],
    &["metadata", "clusterName"],
    &["metadata", "generation"],
    &["metadata", "managedFields"],
    &["metadata", "resourceVersion"],
];

/// Where a write happens.
#[derive(Clone, Copy)]
pub(super) struct ApplyContext<'a> {
    pub(super) position: SchemaPosition<'a>,
    pub(super) manager: &'a Manager<'a>,
    /// What cannot be written here, and is not looked at.
    pub(super) reset: &'a Set,
}

/// An update: what changed is the manager's now, and nobody else's. Both objects come without `managedFields`.
pub(super) fn update(door: ApplyContext<'_>, old: &Value, new: &Value, owners: &mut Owners) {
    fit(door.position, owners);
    let diff = Diff::between(door.position, old, new).without(door.reset);
    let taken = diff.modified.union(&diff.added);
    let lost = taken.union(&diff.removed);
    owners.0.retain(|_, owned| {
        owned.set = owned.set.difference(&lost);
        !owned.set.is_empty()
    });

    let mine = taken.difference(&unmanaged_fields());
    // The time says when the manager last took something, so an update that only removes leaves it.
    if !mine.is_empty() {
        let version = door.manager.api_version.to_owned();
        let new = Owned { version, time: None, set: Set::default() };
        let owned = owners.0.entry(Id::new(door.manager, Operation::Update)).or_insert(new);
        owned.set.extend(&mine);
        owned.time = Some(door.manager.time.to_owned());
    }
    owners.cap();
}

/// A path that another manager owns, after how that manager is described.
pub(super) type FieldConflict = (String, Path);

/// An apply: gives the object as it is then. On conflicts the owners are left in any state.
pub(super) fn apply(
    door: ApplyContext<'_>,
    live: &Value,
    config: &Value,
    owners: &mut Owners,
    force: bool,
) -> Result<Value, Vec<FieldConflict>> {
    let ApplyContext { position: place, manager, reset } = door;
    fit(place, owners);
    let id = Id::new(manager, Operation::Apply);
    let set = named_by(place, config).without(reset);
    let version = manager.api_version.to_owned();
    let last = owners.0.get(&id).cloned();
    let time = last.as_ref().and_then(|last| last.time.clone());
    owners.0.insert(id.clone(), Owned { version, time, set });

    let mut object = merged(place, live, config);
    if let Some(last) = last.filter(|last| !last.set.is_empty()) {
        object = pruned(place, &object, owners, &last.set);
    }
    let diff = Diff::between(place, live, &object).without(reset);
    take_from_others(&id, &diff, owners, force)?;

    let changed = !same(live, &object);
    if let Some(owned) = owners.0.get_mut(&id) {
        owned.set = owned.set.difference(&unmanaged_fields());
        // As long as nothing changes, whoever applies keeps the time, and who is new has none.
        if changed {
            owned.time = Some(manager.time.to_owned());
        }
    }
    owners.0.retain(|_, owned| !owned.set.is_empty());
    Ok(if changed { object } else { live.clone() })
}

/// What an update from nothing to `object` would own.
pub(super) fn everything(door: ApplyContext<'_>, object: &Value) -> Owners {
    let mut owners = Owners::default();
    update(door, &door.position.blank(object), object, &mut owners);
    owners
}

/// A set of dotted paths.
pub(super) fn paths(dotted: &[&str]) -> Set {
    let mut set = Set::default();
    for path in dotted {
        set.insert(&path.split('.').map(Element::field).collect::<Path>());
    }
    set
}

fn unmanaged_fields() -> Set {
    let mut set = Set::default();
    for path in UNMANAGED_FIELDS {
        set.insert(&path.iter().map(|name| Element::field(name)).collect::<Path>());
    }
    set
}

/// Sets may have been written when the schema was another.
fn fit(place: SchemaPosition<'_>, owners: &mut Owners) {
    for owned in owners.0.values_mut() {
        owned.set = fitted(place, &owned.set);
    }
}

/// What an apply changes, others own no longer; without force that is a conflict. What it removes, nobody owns.
fn take_from_others(
    id: &Id,
    diff: &Diff,
    owners: &mut Owners,
    force: bool,
) -> Result<(), Vec<FieldConflict>> {
    let taken = diff.modified.union(&diff.added);
    let mut conflicts = Vec::new();
    for (other, owned) in owners.0.iter_mut().filter(|(other, _)| *other != id) {
        let disputed = owned.set.intersection(&taken);
        conflicts.extend(disputed.paths().into_iter().map(|path| (other.described(), path)));
        owned.set = owned.set.difference(&disputed).difference(&diff.removed);
    }
    if force || conflicts.is_empty() { Ok(()) } else { Err(conflicts) }
}

/// The merged object without what the manager applied last time, and now neither names nor anybody else owns.
///
/// Taking a field out takes everything below it, also what is owned. So what is owned comes back, and then what had no
/// owner at all but went with something else.
fn pruned(place: SchemaPosition<'_>, object: &Value, owners: &Owners, last: &Set) -> Value {
    let last = with_named(place, last);
    let all = with_named(place, &named_by(place, object));
    let left = |value: &Value| with_named(place, &named_by(place, value));

    let without_last = removed(place, object, &last);
    let mut keep = left(&without_last);
    for owned in owners.0.values() {
        keep.extend(&with_named(place, &owned.set));
    }
    let with_owned = removed(place, object, &all.difference(&keep));
    removed(place, object, &all.difference(&left(&with_owned)).intersection(&last))
}
