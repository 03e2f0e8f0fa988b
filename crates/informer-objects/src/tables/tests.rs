//! Tables against what Kubernetes shows: the recorded ones, and what its printers make of objects of every kind.

use std::collections::{BTreeMap, BTreeSet};

use informer_schema::RESOURCES;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::*;

/// Kinds that Kubernetes has no printer for, or that it shows without it.
const WITHOUT_COLUMNS: &[&str] = &[
    "/LimitRange",
    "apiextensions.k8s.io/CustomResourceDefinition",
    "rbac.authorization.k8s.io/ClusterRole",
    "rbac.authorization.k8s.io/Role",
    "storage.k8s.io/CSIStorageCapacity",
];

const RECORDINGS: &[&str] =
    &["list", "patch", "delete", "watch", "leases_events", "crd", "crud", "namespaces"];

fn recording(name: &str) -> Value {
    let path = format!("{}/../../testdata/recordings/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn named<'a>(group: &'a str, kind: &'a str) -> Of<'a> {
    Of { group, kind, custom: None }
}

/// The kind that a path asks for; none if it is a custom one.
fn asked(path: &str) -> Option<Of<'static>> {
    let path = path.split('?').next().unwrap_or_default();
    let words: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let (group, version, rest) = match words.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return None,
    };
    let (["namespaces", _, plural, ..] | [plural, ..]) = rest else { return None };
    let row =
        RESOURCES.iter().find(|row| (row.group, row.version, row.plural) == (group, version, *plural))?;
    Some(named(row.group, row.kind))
}

/// Every table in a recorded answer, frames included.
fn tables_in(value: &Value) -> Vec<&Value> {
    match value {
        Value::Object(map) if map.get("kind") == Some(&json!("Table")) => vec![value],
        Value::Object(map) => map.values().flat_map(tables_in).collect(),
        Value::Array(list) => list.iter().flat_map(tables_in).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn columns_are_those_of_every_recorded_table() {
    let mut checked = BTreeSet::new();
    for file in RECORDINGS {
        for step in recording(&format!("{file}.json")).as_array().into_iter().flatten() {
            let path = step.pointer("/request/path").and_then(Value::as_str).unwrap_or_default();
            let Some(resource) = asked(path) else { continue };
            for table in tables_in(&step["response"]) {
                if !table["columnDefinitions"].is_null() {
                    assert_eq!(table["columnDefinitions"], json!(columns(resource)), "{file}: {path}");
                    checked.insert(resource.kind);
                }
            }
        }
    }
    assert!(checked.len() >= 11, "{checked:?}");
}

/// Every whole object that was shown, by uid and version.
fn objects_in<'a>(value: &'a Value, out: &mut BTreeMap<(&'a str, &'a str), &'a Value>) {
    match value {
        Value::Object(map) if map.get("kind") == Some(&json!("PartialObjectMetadata")) => {}
        Value::Object(map) => {
            let key =
                (fields::text(value, "/metadata/uid"), fields::text(value, "/metadata/resourceVersion"));
            if !key.0.is_empty() {
                out.insert(key, value);
            }
            map.values().for_each(|value| objects_in(value, out));
        }
        Value::Array(list) => list.iter().for_each(|value| objects_in(value, out)),
        _ => {}
    }
}

#[test]
fn cells_are_those_of_every_recorded_row_whose_object_is_known() {
    let mut checked = 0;
    for file in RECORDINGS {
        let steps = recording(&format!("{file}.json"));
        let mut known = BTreeMap::new();
        objects_in(&steps, &mut known);
        for step in steps.as_array().into_iter().flatten() {
            let Some(resource) = asked(fields::text(step, "/request/path")) else { continue };
            for row in tables_in(&step["response"]).iter().flat_map(|table| fields::list(table, "/rows")) {
                let metadata = &row["object"]["metadata"];
                let created = fields::given(metadata, "/creationTimestamp");
                let key = (fields::text(metadata, "/uid"), fields::text(metadata, "/resourceVersion"));
                let bookmark = json!({});
                let object = match (known.get(&key), metadata.is_object() && created.is_none()) {
                    (Some(object), _) => object,
                    (None, true) => &bookmark,
                    (None, false) => continue,
                };
                // Rows that carry their object were asked for soon after it was created.
                let created: Timestamp = created.unwrap_or("2026-11-15T00:00:00Z").parse().unwrap();
                let shown = [0, 1, 2]
                    .map(|later| json!(cells(resource, object, created + SignedDuration::from_secs(later))));
                assert!(shown.contains(&row["cells"]), "{file}: {}: {row} {shown:?}", step["name"]);
                checked += 1;
            }
        }
    }
    assert!(checked >= 20, "{checked}");
}

#[test]
fn a_custom_kind_without_columns_shows_name_and_age() {
    let steps = recording("crd.json");
    let is_it = |step: &&Value| step["name"] == "cluster-scoped-table-default-columns";
    let step = steps.as_array().and_then(|steps| steps.iter().find(is_it)).unwrap();
    let table = &step["response"]["body"];
    let version = Version::read(&json!({}), &json!({"name": "v1"}));
    let custom = Of { custom: Some(&version), ..named("rec2.example.com", "Gizmo") };
    assert_eq!(table["columnDefinitions"], json!(columns(custom)));
    let object = &table["rows"][0]["object"];
    let now = object["metadata"]["creationTimestamp"].as_str().unwrap().parse().unwrap();
    assert_eq!(table["rows"][0]["cells"], json!(cells(custom, object, now)));
}

#[test]
fn objects_are_shown_as_the_printers_of_kubernetes_do() {
    let printed = recording("tables.json");
    let now = printed["now"].as_str().unwrap().parse().unwrap();
    let mut wrong = Vec::new();
    for case in printed["cases"].as_array().unwrap() {
        let object = match case["file"].as_str() {
            Some(file) => recording(&format!("kinds/{file}")),
            None => case["object"].clone(),
        };
        let resource = named(case["group"].as_str().unwrap(), case["kind"].as_str().unwrap());
        let shown = json!(cells(resource, &object, now));
        if shown != case["cells"] {
            wrong.push(format!("{}\n  theirs {}\n  ours   {shown}", resource.kind, case["cells"]));
        }
        let said = conditions(resource, &object).unwrap_or_default();
        assert_eq!(said, case["conditions"], "{object}");
    }
    assert!(wrong.is_empty(), "{} rows:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn kinds_without_a_printer_show_name_and_creation() {
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let mut plain = BTreeSet::new();
    for row in RESOURCES.iter().filter(|row| !row.storage_hash.is_empty()) {
        let resource = named(row.group, row.kind);
        let [columns, cells] = [columns(resource), cells(resource, &json!({}), now)].map(|row| row.len());
        let more = usize::from(row.kind == "IPAddress");
        assert_eq!(columns + more, cells, "{}", row.kind);
        if columns_of(row.group, row.kind) == columns_of("", "default") {
            plain.insert(format!("{}/{}", row.group, row.kind));
        }
    }
    assert_eq!(plain.iter().map(String::as_str).collect::<Vec<_>>(), WITHOUT_COLUMNS);

    let role = json!({"metadata": {"name": "r", "creationTimestamp": "2026-11-15T01:35:56Z"}});
    let roles = named("rbac.authorization.k8s.io", "Role");
    assert_eq!(cells(roles, &role, now), [json!("r"), json!("2026-11-15T01:35:56Z")]);
    assert_eq!(cells(roles, &json!({}), now), [json!(""), json!("0001-01-01T00:00:00Z")]);
}

#[test]
fn the_service_behind_a_part_of_the_api_is_shown() {
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let services = named("apiregistration.k8s.io", "APIService");
    let shown = |spec: Value, conditions: Value| {
        let object = json!({"metadata": {"name": "s"}, "spec": spec, "status": {"conditions": conditions}});
        cells(services, &object, now)[1..3].to_vec()
    };
    let condition =
        |status: &str, reason: &str| json!([{"type": "Available", "status": status, "reason": reason}]);
    let remote = || json!({"service": {"namespace": "n", "name": "s"}});
    assert_eq!(shown(json!({}), condition("True", "Local")), ["Local", "True"]);
    assert_eq!(shown(remote(), condition("False", "NoSuch")), ["n/s", "False (NoSuch)"]);
    assert_eq!(shown(remote(), condition("Unknown", "")), ["n/s", "Unknown"]);
    assert_eq!(shown(remote(), json!([])), ["n/s", "Unknown"]);
}

#[test]
fn flows_are_listed_by_precedence() {
    let flow = json!({"spec": {"matchingPrecedence": 7}});
    assert_eq!(place(named("flowcontrol.apiserver.k8s.io", "FlowSchema"), &flow), 7);
    assert_eq!(place(named("", "Pod"), &flow), 0);
}

/// Objects in which one place has something of another type.
fn broken(object: &Value) -> Vec<Value> {
    let mut places = Vec::new();
    pointers(object, String::new(), &mut places);
    let others = [json!(null), json!([]), json!([{}]), json!({}), json!("x"), json!(-1), json!(i64::MAX)];
    let mut out = Vec::new();
    for place in places {
        for other in &others {
            let mut copy = object.clone();
            *copy.pointer_mut(&place).unwrap() = other.clone();
            out.push(copy);
        }
    }
    out
}

fn pointers(value: &Value, here: String, out: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                pointers(value, format!("{here}/{}", key.replace('~', "~0").replace('/', "~1")), out);
            }
        }
        Value::Array(list) => {
            for (place, value) in list.iter().enumerate() {
                pointers(value, format!("{here}/{place}"), out);
            }
        }
        _ => {}
    }
    out.push(here);
}

#[test]
fn no_object_is_too_strange() {
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let printed = recording("tables.json");
    for case in printed["cases"].as_array().unwrap() {
        let resource = named(case["group"].as_str().unwrap(), case["kind"].as_str().unwrap());
        let many = case["cells"].as_array().unwrap().len();
        for object in broken(&case["object"]) {
            assert_eq!(cells(resource, &object, now).len(), many, "{object}");
        }
    }
}
