//! Sets compared with a reference model, and invariants of applying.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::element::{Element, Item, Path};
use super::super::set::Set;
use super::super::{ApplyError, Manager, applied, fields_text, updated};
use super::{manager, structural};
use crate::schema::{Node, Structural};

fn element() -> impl Strategy<Value = Element> {
    let scalar = prop_oneof![
        (-3i64..500).prop_map(Value::from),
        "[a-c<&\"\\\\\n]{0,3}".prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        Just(json!(1.5)),
        Just(Value::Null),
    ];
    let key = prop::collection::btree_map("[a-c]", scalar.clone(), 1..3);
    prop_oneof![
        3 => "[a-c./~:]{0,3}".prop_map(Element::Field),
        1 => key.prop_map(|key| Element::Key(key.into_iter().map(|(name, value)| (name, Item::new(&value))).collect())),
        1 => scalar.prop_map(|value| Element::Value(Item::new(&value))),
        1 => (0i64..3).prop_map(Element::Index),
    ]
}

/// Paths with few different elements, so that sets overlap.
fn paths() -> impl Strategy<Value = BTreeSet<Path>> {
    prop::collection::vec(element(), 4..7).prop_flat_map(|elements| {
        let path = prop::collection::vec(prop::sample::select(elements), 1..4);
        prop::collection::btree_set(path, 0..12)
    })
}

fn two() -> impl Strategy<Value = (BTreeSet<Path>, BTreeSet<Path>)> {
    paths().prop_flat_map(|all| {
        let all: Vec<Path> = all.into_iter().collect();
        let some = prop::sample::subsequence(all.clone(), 0..=all.len()).prop_map(BTreeSet::from_iter);
        (some.clone(), some)
    })
}

fn set(paths: &BTreeSet<Path>) -> Set {
    let mut set = Set::default();
    for path in paths {
        set.insert(path);
    }
    set
}

fn model(set: &Set) -> BTreeSet<Path> {
    set.paths().into_iter().collect()
}

proptest! {
    #[test]
    fn set_round_trips_through_json(paths in paths()) {
        let set = set(&paths);
        let fields = set.to_value();
        prop_assert_eq!(&Set::parse(&fields).unwrap(), &set);
        let text = fields_text(&fields);
        prop_assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), fields);
        prop_assert_eq!(model(&set), paths);
    }

    #[test]
    fn sets_equal_the_reference_model((one, other) in two()) {
        let (a, b) = (set(&one), set(&other));
        prop_assert_eq!(model(&a.union(&b)), one.union(&other).cloned().collect::<BTreeSet<_>>());
        prop_assert_eq!(model(&a.intersection(&b)), one.intersection(&other).cloned().collect::<BTreeSet<_>>());
        prop_assert_eq!(model(&a.difference(&b)), one.difference(&other).cloned().collect::<BTreeSet<_>>());
        let is_outside = |path: &&Path| !other.iter().any(|prefix| path.starts_with(prefix));
        prop_assert_eq!(model(&a.without(&b)), one.iter().filter(is_outside).cloned().collect::<BTreeSet<_>>());
        for path in one.union(&other) {
            prop_assert_eq!(a.has(path), one.contains(path));
        }
        let empty = a.difference(&a);
        prop_assert!(empty.is_empty());
    }
}

/// A schema with every type of ownership.
fn schema() -> Structural {
    structural(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "plain": {"type": "integer"},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "integer"}},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "integer"}},
        "list": {"type": "array", "items": {"type": "integer"}},
        "free": {"x-kubernetes-preserve-unknown-fields": true},
        "keyed": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "p"],
            "items": {"type": "object", "properties": {"k": {"type": "integer"},
                "p": {"type": "string", "default": "TCP"}, "v": {"type": "integer"},
                "map": {"type": "object", "additionalProperties": {"type": "integer"}}}}},
    }}}}))
}

fn spec() -> impl Strategy<Value = Value> {
    let number = 0u8..3;
    let map = prop::collection::btree_map("[ab]", number.clone(), 0..3);
    let list = prop::collection::btree_set(0u8..4, 0..4).prop_map(Vec::from_iter).prop_shuffle();
    let entry =
        (prop::option::of(Just("UDP")), prop::option::of(number.clone()), prop::option::of(map.clone()));
    let keyed = prop::collection::btree_map(number.clone(), entry, 0..3).prop_map(|entries| {
        let entries = entries
            .into_iter()
            .map(|(k, (p, v, map))| without_nulls(json!({"k": k, "p": p, "v": v, "map": map})));
        entries.collect::<Vec<_>>()
    });
    let free = prop_oneof![
        number.clone().prop_map(|n| json!(n)),
        list.clone().prop_map(|list| json!(list)),
        map.clone().prop_map(|map| json!({"x": map})),
    ];
    let parts = (
        prop::option::of(number),
        prop::option::of(map.clone()),
        prop::option::of(map),
        prop::option::of(list.clone()),
        prop::option::of(list),
        prop::option::of(free),
        prop::option::of(keyed.prop_shuffle()),
    );
    parts.prop_map(|(plain, map, whole, set, list, free, keyed)| {
        without_nulls(json!({"plain": plain, "map": map, "whole": whole, "set": set, "list": list, "free": free, "keyed": keyed}))
    })
}

fn without_nulls(mut value: Value) -> Value {
    value.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    value
}

fn object(spec: &Value) -> Value {
    json!({"apiVersion": "x/v1", "kind": "X", "metadata": {"name": "x"}, "spec": spec})
}

fn by(name: &str) -> Manager<'_> {
    manager(name, "x/v1", "X")
}

proptest! {
    #[test]
    fn apply_is_idempotent(before in spec(), config in spec(), other in spec()) {
        let schema = schema();
        let node = Node::Custom(&schema);
        let mut live = object(&before);
        updated(node, None, &mut live, &by("someone"));
        let live = applied(node, Some(&live), &object(&other), &by("other"), true).unwrap();
        let once = applied(node, Some(&live), &object(&config), &by("me"), true).unwrap();
        let twice = applied(node, Some(&once), &object(&config), &by("me"), false).unwrap();
        prop_assert_eq!(&twice, &once);
        // The object contains the configuration.
        let again = applied(node, Some(&once), &object(&config), &by("third"), false);
        prop_assert!(again.is_ok(), "{again:?}");
    }

    /// Without the untyped field: a value that changes its type there removes its previous contents.
    #[test]
    fn apply_without_conflict_changes_no_fields_of_others(mut one in spec(), mut other in spec()) {
        one.as_object_mut().unwrap().remove("free");
        other.as_object_mut().unwrap().remove("free");
        let schema = schema();
        let node = Node::Custom(&schema);
        let live = applied(node, None, &object(&one), &by("one"), false).unwrap();
        match applied(node, Some(&live), &object(&other), &by("two"), false) {
            Err(ApplyError::Conflicts(conflicts)) => prop_assert!(!conflicts.is_empty()),
            Err(error) => prop_assert!(false, "{error:?}"),
            Ok(both) => {
                // The first manager lost nothing: its configuration is still applied, possibly in another
                // order.
                let again = applied(node, Some(&both), &object(&one), &by("one"), false).unwrap();
                prop_assert_eq!(&again["metadata"], &both["metadata"]);
            }
        }
    }

    #[test]
    fn applying_an_empty_configuration_removes_the_owner(spec in spec()) {
        let schema = schema();
        let node = Node::Custom(&schema);
        let live = applied(node, None, &object(&spec), &by("me"), false).unwrap();
        // An empty list has no owner; an object without any owners gets one first.
        prop_assume!(live["metadata"].get("managedFields").is_some());
        let bare = json!({"apiVersion": "x/v1", "kind": "X", "metadata": {"name": "x"}});
        let after = applied(node, Some(&live), &bare, &by("me"), false).unwrap();
        prop_assert!(after["metadata"].get("managedFields").is_none(), "{after}");
    }

    /// Reference model: the owner of a field is the last manager that changed it.
    #[test]
    fn updates_own_the_fields_they_change(maps in prop::collection::vec(prop::collection::btree_map("[a-d]", 0u8..3, 0..4), 1..6)) {
        let schema = schema();
        let node = Node::Custom(&schema);
        let mut owners: std::collections::BTreeMap<String, String> = std::collections::BTreeMap::new();
        let mut last: Option<Value> = None;
        for (at, map) in maps.iter().enumerate() {
            let name = format!("m{at}");
            let mut new = object(&json!({"map": map}));
            updated(node, last.as_ref(), &mut new, &by(&name));
            let before = last.as_ref().map_or(&Value::Null, |last| &last["spec"]["map"]);
            owners.retain(|field, _| map.contains_key(field));
            for (field, value) in map {
                if before.get(field) != Some(&json!(value)) {
                    owners.insert(field.clone(), name.clone());
                }
            }
            for entry in new["metadata"]["managedFields"].as_array().into_iter().flatten() {
                let fields = entry["fieldsV1"]["f:spec"]["f:map"].as_object().into_iter().flatten();
                for (field, _) in fields.filter(|(field, _)| *field != ".") {
                    prop_assert_eq!(owners.get(&field[2..]).map(String::as_str), entry["manager"].as_str());
                }
            }
            let owned = new["metadata"]["managedFields"].as_array().into_iter().flatten();
            let count: usize = owned
                .filter_map(|entry| entry["fieldsV1"]["f:spec"]["f:map"].as_object())
                .map(|fields| fields.keys().filter(|name| *name != ".").count())
                .sum();
            prop_assert_eq!(count, owners.len());
            last = Some(new);
        }
    }
}
