//! Definitions and their objects compared with recorded responses of kube-apiserver, and with results of its
//! code.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::status::{Status, StatusCause};

const KIND: &str = "Widget";
const API_VERSION: &str = "rec.example.com/v1";

/// Returns the steps of a recording by name.
fn recording() -> BTreeMap<String, Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/recordings/crd.json");
    let steps: Vec<Value> = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    steps.into_iter().map(|step| (step["name"].as_str().unwrap().to_owned(), step)).collect()
}

/// Returns the recorded definition and its first version.
fn widgets(steps: &BTreeMap<String, Value>) -> (Value, Version) {
    let definition = steps["create"]["request"]["body"].clone();
    let version = Version::read(&definition, &definition["spec"]["versions"][0]);
    (definition, version)
}

/// Returns the causes of a response as text, sorted: kube-apiserver visits fields in random order.
fn recorded_causes(step: &Value) -> Vec<String> {
    let causes = step["response"]["body"]["details"]["causes"].as_array().cloned().unwrap_or_default();
    let text = |cause: &Value, name: &str| cause[name].as_str().unwrap_or_default().to_owned();
    let mut texts: Vec<String> = causes
        .iter()
        .map(|cause| {
            format!("{} {}: {}", text(cause, "reason"), text(cause, "field"), text(cause, "message"))
        })
        .collect();
    texts.sort();
    texts
}

fn show(causes: &[StatusCause]) -> Vec<String> {
    let mut texts: Vec<String> =
        causes.iter().map(|cause| format!("{} {}: {}", cause.reason, cause.field, cause.message)).collect();
    texts.sort();
    texts
}

fn subject() -> Subject<'static> {
    Subject { kind: KIND, api_version: API_VERSION, status_only: false }
}

/// Processes a body and returns the warnings, the object and the causes.
fn process(version: &Version, body: &Value) -> Result<(Vec<String>, Value, Vec<StatusCause>), String> {
    let mut object = body.clone();
    let mut unknown = decode(&mut object)?;
    if object["kind"] == KIND {
        unknown.extend(prune(&version.schema, &mut object));
        default(&version.schema, &mut object);
    }
    if version.status {
        object.as_object_mut().unwrap().remove("status");
    }
    normalize(&mut object);
    let causes = validate(version, subject(), &object, None, Vec::new());
    Ok((unknown, object, causes))
}

#[test]
fn created_objects_equal_those_of_kube_apiserver() {
    let steps = recording();
    let (_, version) = widgets(&steps);
    let mut checked = 0;
    for (name, step) in &steps {
        let is_create = name.starts_with("bad-") || name.starts_with("create-");
        let path = step["request"]["path"].as_str().unwrap_or_default();
        let body = &step["request"]["body"];
        if !is_create || !path.contains("/v1/namespaces/rec-crd/widgets") || !body.is_object() {
            continue;
        }
        let status = step["response"]["status"].as_u64().unwrap();
        let response = &step["response"]["body"];
        match (name.as_str(), process(&version, body)) {
            // The type of an object, its name and permissions are checked elsewhere.
            ("bad-version" | "bad-no-type" | "bad-name" | "create-object-while-terminating", _) => continue,
            (_, Err(why)) => {
                assert_eq!(status, 400, "{name}");
                assert!(response["message"].as_str().unwrap().ends_with(&why), "{name}: {why}");
            }
            ("create-unknown-strict", Ok((unknown, ..))) => assert_eq!(unknown, ["spec.nothing"]),
            (_, Ok((unknown, mut object, causes))) => {
                assert_eq!(show(&causes), recorded_causes(step), "{name}");
                assert_eq!(causes.is_empty(), status == 201, "{name}");
                if status == 201 {
                    object["metadata"] = response["metadata"].clone();
                    assert_eq!(&object, response, "{name}");
                }
                let warnings = match &step["response"]["headers"]["warning"] {
                    Value::Array(list) if !list.is_empty() => list.len(),
                    Value::String(_) => 1,
                    _ => 0,
                };
                if warnings > 0 {
                    assert_eq!(unknown.len(), warnings, "{name}: {unknown:?}");
                }
            }
        }
        checked += 1;
    }
    assert!(checked >= 30, "{checked}");
}

#[test]
fn unknown_fields_are_reported_in_order() {
    let steps = recording();
    let (_, version) = widgets(&steps);
    let (unknown, ..) = process(&version, &steps["create-pruned"]["request"]["body"]).unwrap();
    assert_eq!(unknown, ["extra", "spec.nothing", "spec.parts[0].extra"]);
}

#[test]
fn updated_objects_are_validated_against_the_old_ones() {
    let steps = recording();
    let (_, version) = widgets(&steps);
    let old = &steps["merge-fixed"]["response"]["body"];
    for (name, before, patch) in [
        ("merge-fixed-again", old, json!({"fixed": "b"})),
        ("merge-invalid", &steps["json"]["response"]["body"], json!({"size": 100})),
        ("merge-fixed", &steps["json"]["response"]["body"], json!({"fixed": "a"})),
    ] {
        let mut new = before.clone();
        for (field, value) in patch.as_object().unwrap() {
            new["spec"][field] = value.clone();
        }
        let causes = validate(&version, subject(), &new, Some(before), Vec::new());
        assert_eq!(show(&causes), recorded_causes(&steps[name]), "{name}");
    }
}

#[test]
fn invalid_definitions_are_rejected_as_by_kube_apiserver() {
    let steps = recording();
    for name in [
        "create-no-schema",
        "create-wrong-name",
        "create-bad-schema",
        "create-no-storage-version",
        "create",
        "cluster-scoped-create",
    ] {
        let mut definition = steps[name]["request"]["body"].clone();
        complete(&mut definition);
        definition["status"] = new_status(&definition);
        let causes = check(&definition);
        assert_eq!(show(&causes), recorded_causes(&steps[name]), "{name}");
        if causes.is_empty() {
            let mut response = steps[name]["response"]["body"].clone();
            response["metadata"] = definition["metadata"].clone();
            assert_eq!(definition, response, "{name}");
        } else {
            let object_name = definition["metadata"]["name"].as_str().unwrap();
            let status =
                Status::invalid("apiextensions.k8s.io", "CustomResourceDefinition", object_name, causes);
            assert_eq!(status.message, steps[name]["response"]["body"]["message"], "{name}");
        }
    }
}

#[test]
fn invalid_definition_updates_are_rejected_as_by_kube_apiserver() {
    let steps = recording();
    let old = &steps["get-established"]["response"]["body"];
    for name in ["crd-change-scope", "crd-drop-stored-version"] {
        let mut new = steps[name]["request"]["body"].clone();
        complete(&mut new);
        new["status"] = old["status"].clone();
        note_storage_version(&mut new);
        assert_eq!(show(&check_update(old, &new)), recorded_causes(&steps[name]), "{name}");
    }
    assert_eq!(check_update(old, old), []);
}

#[test]
fn definition_is_accepted_in_two_steps() {
    let steps = recording();
    let frames = &steps["watch-crd"]["response"]["frames"];
    let recorded = |at: usize| frames[at]["event"]["object"].clone();
    let now: Timestamp = "2026-11-15T01:37:47Z".parse().unwrap();
    let mut definition = recorded(0);
    assert!(accept_names(&mut definition, &Taken::default(), now));
    assert_eq!(definition["status"], recorded(1)["status"]);
    assert!(!accept_names(&mut definition, &Taken::default(), now));
    assert!(establish(&mut definition, now));
    assert_eq!(definition["status"], recorded(2)["status"]);
    assert!(!establish(&mut definition, now));
}

#[test]
fn names_of_other_definitions_are_rejected() {
    let steps = recording();
    let now: Timestamp = "2026-11-15T01:37:47Z".parse().unwrap();
    let first = &steps["get-established"]["response"]["body"];
    let mut second = steps["create"]["response"]["body"].clone();
    second["spec"]["names"] = json!({"plural": "others", "singular": "other", "kind": "Widget", "listKind": "OtherList", "shortNames": ["wd", "ot"]});
    let taken = Taken::in_group("rec.example.com", [first]);
    assert!(accept_names(&mut second, &taken, now));
    let status = &second["status"];
    assert_eq!(status["conditions"][0]["reason"], "KindConflict");
    assert_eq!(status["conditions"][0]["message"], "\"Widget\" is already in use");
    assert_eq!(status["conditions"][1]["reason"], "NotAccepted");
    assert_eq!(status["acceptedNames"]["plural"], "others");
    assert_eq!(status["acceptedNames"]["shortNames"], Value::Null);
    assert!(!establish(&mut second, now));
}

#[test]
fn scale_is_read_and_written_back() {
    let steps = recording();
    let (_, version) = widgets(&steps);
    let paths = version.scale.unwrap();
    let object = &steps["update-metadata-only"]["response"]["body"];
    assert_eq!(scale(&paths, object).unwrap(), steps["get-scale"]["response"]["body"]);
    let mut changed = object.clone();
    let mut wanted = scale_to_change(&paths, object).unwrap();
    wanted["spec"]["replicas"] = json!(5);
    write_scale(&paths, &mut changed, &wanted).unwrap();
    assert_eq!(changed["spec"]["replicas"], 5);
    let mut bare = json!({"metadata": {"name": "x"}});
    let none = scale_to_change(&paths, &bare).unwrap();
    let error = write_scale(&paths, &mut bare, &none).unwrap_err();
    assert_eq!(error.message, "the spec replicas field \".spec.replicas\" cannot be empty");
}

#[test]
fn tables_equal_those_of_kube_apiserver() {
    let steps = recording();
    let (definition, version) = widgets(&steps);
    let now: Timestamp = "2026-11-15T01:37:50Z".parse().unwrap();
    let table = &steps["list-table"]["response"]["body"];
    for (column, recorded) in
        version.columns.iter().zip(table["columnDefinitions"].as_array().unwrap().iter().skip(1))
    {
        let actual = json!({
            "name": column.name, "type": column.kind, "format": column.format, "description": column.description,
            "priority": column.priority,
        });
        assert_eq!(&actual, recorded);
    }
    let objects = steps["list"]["response"]["body"]["items"].as_array().unwrap();
    for (object, row) in objects.iter().zip(table["rows"].as_array().unwrap()) {
        let mut row_cells = vec![object["metadata"]["name"].clone()];
        row_cells.extend(cells(&version.columns, object, now));
        assert_eq!(json!(row_cells), row["cells"]);
    }
    let plain = columns(&definition["spec"]["versions"][1]);
    let recorded = &steps["cluster-scoped-table-default-columns"]["response"]["body"]["columnDefinitions"][1];
    assert_eq!(
        (plain[0].name.as_str(), plain[0].description.as_str()),
        ("Age", recorded["description"].as_str().unwrap())
    );
    let alpha = Version::read(&definition, &definition["spec"]["versions"][1]);
    let warning = steps["get-object-alpha"]["response"]["headers"]["warning"].as_str().unwrap();
    assert_eq!(warning, format!("299 - \"{}\"", alpha.warning.unwrap()));
}

/// Cases in `testdata/definitions.json`, whose results were produced by the code of apiextensions 0.36.4,
/// called without a server.
fn cases() -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/definitions.json");
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn expected_causes(case: &Value) -> Vec<String> {
    recorded_causes(&json!({"response": {"body": {"details": {"causes": case["causes"]}}}}))
}

/// Compares one case with its recorded result; the error describes the difference.
fn compare(case: &Value) -> Result<(), String> {
    let compare_values = |what: &str, actual: &Value, expected: &Value| {
        if actual == expected {
            Ok(())
        } else {
            Err(format!("{what}\n   actual {actual}\n expected {expected}"))
        }
    };
    if case.get("definition").is_some() {
        let mut new = case["definition"].clone();
        complete(&mut new);
        let causes = match case.get("old") {
            None => {
                new["status"] = new_status(&new);
                check(&new)
            }
            Some(old) => {
                let mut old = old.clone();
                complete(&mut old);
                new["status"] = old["status"].clone();
                note_storage_version(&mut new);
                check_update(&old, &new)
            }
        };
        return compare_values("causes", &json!(show(&causes)), &json!(expected_causes(case)));
    }
    if case.get("meta").is_some() {
        let mut object = json!({"metadata": case["meta"]});
        return match decode(&mut object) {
            Err(why) => compare_values("error", &json!(why), &case["error"]),
            Ok(unknown) => {
                compare_values("error", &Value::Null, case.get("error").unwrap_or(&Value::Null))?;
                compare_values("unknown", &json!(unknown), case.get("unknown").unwrap_or(&json!([])))?;
                compare_values("metadata", &object["metadata"], case.get("result").unwrap_or(&json!({})))
            }
        };
    }
    if case.get("columns").is_some() {
        let columns = columns(&json!({"additionalPrinterColumns": case["columns"]}));
        let mut actual = vec![case["object"]["metadata"]["name"].clone()];
        actual.extend(cells(&columns, &case["object"], Timestamp::UNIX_EPOCH));
        return compare_values("cells", &json!(actual), &case["cells"]);
    }
    let version =
        json!({"schema": {"openAPIV3Schema": case["schema"]}, "subresources": {"scale": case["scale"]}});
    let version = Version::read(&json!({}), &version);
    let prepared = |object: &Value| {
        let mut object = object.clone();
        let unknown = prune(&version.schema, &mut object);
        default(&version.schema, &mut object);
        (unknown, object)
    };
    let (unknown, object) = prepared(&case["object"]);
    let old = case.get("oldObject").map(|old| prepared(old).1);
    let subject = Subject { kind: "Thing", api_version: "example.com/v1", status_only: false };
    let causes = validate(&version, subject, &object, old.as_ref(), Vec::new());
    compare_values("causes", &json!(show(&causes)), &json!(expected_causes(case)))?;
    compare_values("unknown", &json!(unknown), case.get("unknown").unwrap_or(&json!([])))?;
    let (mut actual, mut expected) = (object, case["result"].clone());
    normalize(&mut actual);
    normalize(&mut expected);
    compare_values("object", &actual, &expected)
}

#[test]
fn cases_equal_the_results_of_apiextensions() {
    let mut mismatches = Vec::new();
    for case in cases() {
        if let Err(why) = compare(&case) {
            mismatches.push(format!("{}: {why}", case["name"]));
        }
    }
    assert!(mismatches.is_empty(), "{} differ\n{}", mismatches.len(), mismatches.join("\n"));
}

#[test]
fn hostile_rules_are_aborted() {
    let list = json!({"type": "array", "items": {"type": "integer"}});
    let schema = |rule: String| {
        json!({"schema": {"openAPIV3Schema": {
            "type": "object",
            "properties": {"l": list, "s": {"type": "string"}},
            "x-kubernetes-validations": [{"rule": rule, "message": "m"}, {"rule": "false", "message": "later"}],
        }}})
    };
    let numbers: Vec<u32> = (0..300).collect();
    let object = json!({"apiVersion": "a/v1", "kind": "K", "metadata": {"name": "x"}, "l": numbers, "s": "a".repeat(1000)});
    let subject = Subject { kind: "K", api_version: "a/v1", status_only: false };
    let nested = "self.l.all(a, self.l.all(b, self.l.all(c, self.l.all(d, a + b + c + d >= 0))))".to_owned();
    let growing = format!("self.s{} == 'x'", ".replace('a', 'aaaaaaaaaa')".repeat(9));
    for rule in [nested, growing] {
        let version = Version::read(&json!({}), &schema(rule.clone()));
        let causes = validate(&version, subject, &object, None, Vec::new());
        assert_eq!(causes.len(), 1, "{rule}: {causes:?}");
        assert!(
            causes[0].message.contains("no further validation rules will be run"),
            "{}",
            causes[0].message
        );
    }
    let deep = [
        format!("{}1{} == 1", "(".repeat(59), ")".repeat(59)),
        format!("{}1{} == 1", "(".repeat(5000), ")".repeat(5000)),
        format!("{}1 == 1", "1 + ".repeat(180)),
        format!("{}1 == 1", "1 + ".repeat(4000)),
        format!("self{} == 1", ".a".repeat(8000)),
        format!("self{} == 1", ".?a".repeat(5000)),
        format!("self{} == 1", "[?1]".repeat(4000)),
        format!("{}true", "!".repeat(16000)),
        format!("{}true", "true ? true : ".repeat(1000)),
        format!("{}{} == 1", "[".repeat(59), "]".repeat(59)),
        format!("{}true{}", "self.l.all(x, ".repeat(50), ")".repeat(50)),
        format!("size('{}') > 1", "(".repeat(300)),
        "Strange{a: 1} == 1".to_owned(),
    ];
    for rule in deep {
        // Some of these rules are valid and some are not; none may crash the server.
        let version = Version::read(&json!({}), &schema(rule));
        assert!(!validate(&version, subject, &object, None, Vec::new()).is_empty());
    }
}

/// The length of all rules together was not limited. They are parsed before the response is sent, which took
/// a minute for a few megabytes.
#[test]
fn rules_of_a_definition_are_limited() {
    let definition = |rules: Vec<Value>| {
        let schema = json!({"type": "object", "properties": {
            "a": {"type": "array", "maxItems": 2, "items": {"type": "string", "x-kubernetes-validations": rules}},
        }});
        json!({"metadata": {"name": "as.g.io"}, "spec": {
            "group": "g.io", "scope": "Namespaced", "names": {"plural": "as", "kind": "A"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        }})
    };
    let why = "spec.versions: Forbidden: rules of all versions together may not be longer than 131072 bytes";
    let is_rejected = |rules| show(&check(&definition(rules))).iter().any(|cause| cause.contains(why));
    let long = json!({"rule": format!("self != '{}'", "x".repeat(8000)), "messageExpression": "'m'"});
    assert!(!is_rejected(vec![long.clone(); 16]));
    assert!(is_rejected(vec![long; 17]));
    assert!(is_rejected(vec![json!({"rule": "true"}); 4097]));
}
