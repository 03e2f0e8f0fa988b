//! The ownership rules of updates and applies.
//!
//! Objects match the schema (see `validate`). All versions of a kind are assumed to have the same fields:
//! nothing is converted.

use std::sync::LazyLock;

use serde_json::Value;

use super::Manager;
use super::compare::Diff;
use super::element::{Element, Path, same};
use super::entries::{Id, Operation, Owned, Owners};
use super::fields::{fitted, paths_of, with_declared_fields};
use super::merge::{merged, removed};
use super::schema_position::SchemaPosition;
use super::set::Set;

/// Fields that have no owner.
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

/// The context of a write.
#[derive(Clone, Copy)]
pub(super) struct ApplyContext<'a> {
    pub(super) position: SchemaPosition<'a>,
    pub(super) manager: &'a Manager<'a>,
    /// The paths that the write cannot change; see [`Manager::reset`].
    pub(super) reset: &'a Set,
}

/// Updates the owners after an update: the manager becomes the only owner of the changed and added fields,
/// and removed fields lose their owners.
///
/// Both objects are passed without `managedFields`.
pub(super) fn update(context: ApplyContext<'_>, old: &Value, new: &Value, owners: &mut Owners) {
    fit(context.position, owners);
    let diff = Diff::between(context.position, old, new).without(context.reset);
    let taken = diff.modified.union(&diff.added);
    let lost = taken.union(&diff.removed);
    owners.0.retain(|_, owned| {
        owned.set = owned.set.difference(&lost);
        !owned.set.is_empty()
    });

    let newly_owned = taken.difference(unmanaged_fields());
    // The time is that of the last change or addition, so an update that only removes fields keeps it.
    if !newly_owned.is_empty() {
        let version = context.manager.api_version.to_owned();
        let new = Owned { version, time: None, set: Set::default() };
        let owned = owners.0.entry(Id::new(context.manager, Operation::Update)).or_insert(new);
        owned.set.extend(&newly_owned);
        owned.time = Some(context.manager.time.to_owned());
    }
    owners.cap();
}

/// The description of another manager and the path that it owns.
pub(super) type FieldConflict = (String, Path);

/// Applies a configuration and returns the resulting object.
///
/// On conflicts the owners are left in an unspecified state.
pub(super) fn apply(
    context: ApplyContext<'_>,
    live: &Value,
    config: &Value,
    owners: &mut Owners,
    force: bool,
) -> Result<Value, Vec<FieldConflict>> {
    let ApplyContext { position, manager, reset } = context;
    fit(position, owners);
    let id = Id::new(manager, Operation::Apply);
    let set = paths_of(position, config).without(reset);
    let version = manager.api_version.to_owned();
    let last = owners.0.get(&id).cloned();
    let time = last.as_ref().and_then(|last| last.time.clone());
    owners.0.insert(id.clone(), Owned { version, time, set });

    let mut object = merged(position, live, config);
    if let Some(last) = last.filter(|last| !last.set.is_empty()) {
        object = pruned(position, &object, owners, &last.set);
    }
    let diff = Diff::between(position, live, &object).without(reset);
    take_from_others(&id, &diff, owners, force)?;

    let changed = !same(live, &object);
    if let Some(owned) = owners.0.get_mut(&id) {
        owned.set = owned.set.difference(unmanaged_fields());
        // If nothing changes, an existing entry keeps its time, and a new one has none.
        if changed {
            owned.time = Some(manager.time.to_owned());
        }
    }
    owners.0.retain(|_, owned| !owned.set.is_empty());
    Ok(if changed { object } else { live.clone() })
}

/// Returns the owners after an update from a blank object to `object`: the manager owns all fields.
pub(super) fn everything(context: ApplyContext<'_>, object: &Value) -> Owners {
    let mut owners = Owners::default();
    update(context, &context.position.blank(object), object, &mut owners);
    owners
}

/// Returns a set of dotted paths.
pub(super) fn paths(dotted: &[&str]) -> Set {
    let mut set = Set::default();
    for path in dotted {
        set.insert(&path.split('.').map(Element::field).collect::<Path>());
    }
    set
}

/// Returns [`UNMANAGED_FIELDS`] as a set.
fn unmanaged_fields() -> &'static Set {
    static SET: LazyLock<Set> = LazyLock::new(|| {
        let mut set = Set::default();
        for path in UNMANAGED_FIELDS {
            set.insert(&path.iter().map(|name| Element::field(name)).collect::<Path>());
        }
        set
    });
    &SET
}

/// Adapts the sets of the owners to the current schema.
fn fit(position: SchemaPosition<'_>, owners: &mut Owners) {
    for owned in owners.0.values_mut() {
        owned.set = fitted(position, &owned.set);
    }
}

/// Removes the fields that an apply changed, added or removed from the sets of all other owners. Without
/// `force`, each changed or added field of another owner is a conflict.
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

/// Returns the merged object without the fields that the manager applied last time but does not apply now,
/// unless another manager owns them.
///
/// Removing a field also removes everything below it. Two steps therefore keep fields: first those that a
/// manager owns, then those that are not in `last`.
fn pruned(position: SchemaPosition<'_>, object: &Value, owners: &Owners, last: &Set) -> Value {
    let last = with_declared_fields(position, last);
    let all = with_declared_fields(position, &paths_of(position, object));
    let remaining = |value: &Value| with_declared_fields(position, &paths_of(position, value));

    let without_last = removed(position, object, &last);
    let mut keep = remaining(&without_last);
    for owned in owners.0.values() {
        keep.extend(&with_declared_fields(position, &owned.set));
    }
    let with_owned = removed(position, object, &all.difference(&keep));
    removed(position, object, &all.difference(&remaining(&with_owned)).intersection(&last))
}
