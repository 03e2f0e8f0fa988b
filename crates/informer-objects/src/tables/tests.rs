//! Tables compared with recorded ones and with the output of the Kubernetes printers for objects of every
//! kind.

use std::collections::{BTreeMap, BTreeSet};

use informer_schema::RESOURCES;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::*;

/// Kinds for which Kubernetes has no printer, or does not use it.
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

fn named<'a>(group: &'a str, kind: &'a str) -> TableKind<'a> {
    TableKind { group, kind, custom: None }
}

/// Returns the built-in kind that a path requests; `None` for custom kinds.
fn requested_kind(path: &str) -> Option<TableKind<'static>> {
    let path = path.split('?').next().unwrap_or_default();
    let segments: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let (group, version, rest) = match segments.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return None,
    };
    let (["namespaces", _, plural, ..] | [plural, ..]) = rest else { return None };
    let row =
        RESOURCES.iter().find(|row| (row.group, row.version, row.plural) == (group, version, *plural))?;
    Some(named(row.group, row.kind))
}

/// Returns every table in a recorded response, including watch frames.
fn tables_in(value: &Value) -> Vec<&Value> {
    match value {
        Value::Object(map) if map.get("kind") == Some(&json!("Table")) => vec![value],
        Value::Object(map) => map.values().flat_map(tables_in).collect(),
        Value::Array(list) => list.iter().flat_map(tables_in).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn columns_equal_those_of_recorded_tables() {
    let mut checked = BTreeSet::new();
    for file in RECORDINGS {
        for step in recording(&format!("{file}.json")).as_array().into_iter().flatten() {
            let path = step.pointer("/request/path").and_then(Value::as_str).unwrap_or_default();
            let Some(resource) = requested_kind(path) else { continue };
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

/// Collects every whole object in a recording by uid and version.
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
fn cells_equal_those_of_recorded_rows() {
    let mut checked = 0;
    for file in RECORDINGS {
        let steps = recording(&format!("{file}.json"));
        let mut known = BTreeMap::new();
        objects_in(&steps, &mut known);
        for step in steps.as_array().into_iter().flatten() {
            let Some(resource) = requested_kind(fields::text(step, "/request/path")) else { continue };
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
                // The rows were requested at most two seconds after the creation of the object.
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
fn custom_kind_without_columns_shows_name_and_age() {
    let steps = recording("crd.json");
    let is_match = |step: &&Value| step["name"] == "cluster-scoped-table-default-columns";
    let step = steps.as_array().and_then(|steps| steps.iter().find(is_match)).unwrap();
    let table = &step["response"]["body"];
    let version = Version::read(&json!({}), &json!({"name": "v1"}));
    let custom = TableKind { custom: Some(&version), ..named("rec2.example.com", "Gizmo") };
    assert_eq!(table["columnDefinitions"], json!(columns(custom)));
    let object = &table["rows"][0]["object"];
    let now = object["metadata"]["creationTimestamp"].as_str().unwrap().parse().unwrap();
    assert_eq!(table["rows"][0]["cells"], json!(cells(custom, object, now)));
}

#[test]
fn cells_equal_the_output_of_the_kubernetes_printers() {
    let printed = recording("tables.json");
    let now = printed["now"].as_str().unwrap().parse().unwrap();
    let mut mismatches = Vec::new();
    for case in printed["cases"].as_array().unwrap() {
        let object = match case["file"].as_str() {
            Some(file) => recording(&format!("kinds/{file}")),
            None => case["object"].clone(),
        };
        let resource = named(case["group"].as_str().unwrap(), case["kind"].as_str().unwrap());
        let shown = json!(cells(resource, &object, now));
        if shown != case["cells"] {
            mismatches.push(format!("{}\n  expected {}\n  actual   {shown}", resource.kind, case["cells"]));
        }
        let actual = conditions(resource, &object).unwrap_or_default();
        assert_eq!(actual, case["conditions"], "{object}");
    }
    assert!(mismatches.is_empty(), "{} rows:\n{}", mismatches.len(), mismatches.join("\n"));
}

#[test]
fn kinds_without_a_printer_show_name_and_creation() {
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let mut plain = BTreeSet::new();
    for row in RESOURCES.iter().filter(|row| !row.storage_hash.is_empty()) {
        let resource = named(row.group, row.kind);
        let [columns, cells] = [columns(resource), cells(resource, &json!({}), now)].map(|row| row.len());
        let cells_without_column = usize::from(row.kind == "IPAddress");
        assert_eq!(columns + cells_without_column, cells, "{}", row.kind);
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
fn api_service_shows_its_service_and_availability() {
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
fn flow_schemas_are_sorted_by_precedence() {
    let flow = json!({"spec": {"matchingPrecedence": 7}});
    assert_eq!(sort_key(named("flowcontrol.apiserver.k8s.io", "FlowSchema"), &flow), 7);
    assert_eq!(sort_key(named("", "Pod"), &flow), 0);
}

/// Returns copies of an object in which one value has another type.
fn with_wrong_types(object: &Value) -> Vec<Value> {
    let mut all = Vec::new();
    pointers(object, String::new(), &mut all);
    let replacements =
        [json!(null), json!([]), json!([{}]), json!({}), json!("x"), json!(-1), json!(i64::MAX)];
    let mut out = Vec::new();
    for pointer in all {
        for replacement in &replacements {
            let mut copy = object.clone();
            *copy.pointer_mut(&pointer).unwrap() = replacement.clone();
            out.push(copy);
        }
    }
    out
}

fn pointers(value: &Value, current: String, out: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                pointers(value, format!("{current}/{}", key.replace('~', "~0").replace('/', "~1")), out);
            }
        }
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                pointers(value, format!("{current}/{index}"), out);
            }
        }
        _ => {}
    }
    out.push(current);
}

#[test]
fn values_of_wrong_types_do_not_change_the_number_of_cells() {
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let printed = recording("tables.json");
    for case in printed["cases"].as_array().unwrap() {
        let resource = named(case["group"].as_str().unwrap(), case["kind"].as_str().unwrap());
        let expected = case["cells"].as_array().unwrap().len();
        for object in with_wrong_types(&case["object"]) {
            assert_eq!(cells(resource, &object, now).len(), expected, "{object}");
        }
    }
}
