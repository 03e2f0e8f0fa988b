//! Sets of paths seen through a schema: what a configuration names, and how a set fits the schema of today.
//!
//! Objects are valid by the schema, sets may be anything. Nothing here compares or changes objects.

use std::collections::BTreeMap;

use serde_json::Value;

use super::compare::entries;
use super::element::{Element, Path};
use super::schema_position::{SchemaPosition, SchemaShape, entry_of};
use super::set::{Set, Spot};

/// The paths that a configuration names: its leaves, the entries of its lists and maps, and what is empty or null.
pub(super) fn named_by(place: SchemaPosition<'_>, config: &Value) -> Set {
    let mut set = Set::default();
    collect(place, config, &mut Path::new(), &mut set);
    set
}

/// The set with every field that the schema knows by name and below which something is owned.
pub(super) fn with_named(place: SchemaPosition<'_>, set: &Set) -> Set {
    grown(Some(place), set)
}

/// The set as it is when something that used to be granular has one owner now.
pub(super) fn fitted(place: SchemaPosition<'_>, set: &Set) -> Set {
    set.keep(|element, spot| {
        let below = if spot.below.is_empty() { None } else { place.step(element) };
        match below.map(|place| (place, place.shape(None))) {
            Some((_, SchemaShape::AtomicList(_) | SchemaShape::AtomicMap)) => {
                Some(Spot { owned: true, below: Set::default() })
            }
            Some((place, _)) => Some(Spot { owned: spot.owned, below: fitted(place, &spot.below) }),
            None => Some(spot.clone()),
        }
    })
}

fn collect(place: SchemaPosition<'_>, value: &Value, path: &mut Path, set: &mut Set) {
    match place.shape(Some(value)) {
        SchemaShape::Scalar(_) | SchemaShape::AtomicList(_) | SchemaShape::AtomicMap => set.insert(path),
        SchemaShape::List(keys, items) => {
            let mut times: BTreeMap<Element, Vec<&Value>> = BTreeMap::new();
            for entry in entries(Some(value)) {
                if let Ok(element) = entry_of(keys, items, entry) {
                    times.entry(element).or_default().push(entry);
                }
            }
            for (element, found) in times {
                path.push(element);
                if let [entry] = found.as_slice() {
                    collect(items, entry, path, set);
                }
                set.insert(path);
                path.pop();
            }
        }
        SchemaShape::Map => {
            for (name, value) in value.as_object().into_iter().flatten() {
                path.push(Element::field(name));
                collect(place.below(name), value, path, set);
                let nothing = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
                if nothing || !place.names(name) {
                    set.insert(path);
                }
                path.pop();
            }
        }
    }
}

fn grown(place: Option<SchemaPosition<'_>>, set: &Set) -> Set {
    set.keep(|element, spot| {
        let named = match (place, element) {
            (Some(place), Element::Field(name)) => !spot.below.is_empty() && place.names(name),
            _ => false,
        };
        let below = grown(place.and_then(|place| place.step(element)), &spot.below);
        Some(Spot { owned: spot.owned || named, below })
    })
}
