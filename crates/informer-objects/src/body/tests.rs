//! Recorded request bodies, and the errors with which kube-apiserver rejected them.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use serde_json::{Value, json};

use super::*;
use crate::text::to_yaml;

/// Decodes a body of a kind of version `v1`.
fn read(content_type: Option<&str>, bytes: &[u8], kind: &str, custom: bool) -> Result<Body, Status> {
    super::read(content_type, bytes, ("v1", kind), custom)
}

fn steps(file: &str) -> Vec<Value> {
    let path = format!("{}/../../testdata/recordings/{file}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn step(file: &str, name: &str) -> Value {
    steps(file).into_iter().find(|step| step["name"] == name).unwrap()
}

/// Returns the body of a step.
///
/// Objects are written without blanks. The recorder sent them with a blank after commas and colons, so a test
/// whose error quotes an object must not use this function.
fn sent(step: &Value) -> Vec<u8> {
    match (step["request"].get("body"), step["request"]["body_text"].as_str()) {
        (_, Some(text)) => text.as_bytes().to_vec(),
        (Some(body), None) => body.to_string().into_bytes(),
        (None, None) => Vec::new(),
    }
}

fn read_step(step: &Value, kind: &str, custom: bool) -> Result<Body, Status> {
    read(step["request"]["headers"]["content-type"].as_str(), &sent(step), kind, custom)
}

fn wire(status: &Status) -> Value {
    serde_json::from_slice(&status.to_json()).unwrap()
}

#[test]
fn rejected_bodies_return_the_recorded_status() {
    for name in [
        "create-malformed-json",
        "create-not-json",
        "create-json-array",
        "create-empty-body",
        "create-wrong-content-type",
        "create-patch-content-type",
    ] {
        let step = step("crud", name);
        let status = read_step(&step, "ConfigMap", false).unwrap_err();
        assert_eq!(wire(&status), step["response"]["body"], "{name}");
    }
    let step = step("delete", "delete-text-options");
    let status = read_step(&step, "DeleteOptions", false).unwrap_err();
    assert_eq!(wire(&status), step["response"]["body"]);
}

#[test]
fn custom_object_without_kind_is_rejected() {
    let step = step("crd", "bad-no-type");
    let bytes = br#"{"metadata": {"name": "k"}, "spec": {"size": 1}}"#;
    let status = read(None, bytes, "Widget", true).unwrap_err();
    assert_eq!(wire(&status), step["response"]["body"]);
}

#[test]
fn too_large_body_is_rejected_before_it_is_decoded() {
    for name in ["create-over-large", "over-large-put"] {
        let step = step("crud", name);
        let status = read(None, &vec![b'x'; MAX_BODY_BYTES + 1], "ConfigMap", false).unwrap_err();
        assert_eq!(wire(&status), step["response"]["body"], "{name}");
    }
    assert!(check_size(MAX_BODY_BYTES).is_ok());
}

#[test]
fn valid_bodies_are_accepted() {
    for (name, data) in [("create-charset", json!({"a": "b"})), ("create-yaml", json!({"false": "1"}))] {
        let step = step("crud", name);
        let body = read_step(&step, "ConfigMap", false).unwrap();
        assert_eq!(body.object["data"], data, "{name}");
        assert_eq!(step["response"]["body"]["data"], data, "{name}");
    }
    let number = read_step(&step("crud", "create-yaml-unquoted-number"), "ConfigMap", false).unwrap();
    assert_eq!(number.object["data"], json!({"false": 1}));
    let null = read_step(&step("crud", "create-json-null"), "ConfigMap", false).unwrap();
    assert_eq!(null.object, Value::Null);
    let options = read_step(&step("delete", "delete-yaml-options"), "DeleteOptions", false).unwrap();
    assert_eq!(options.object, json!({"propagationPolicy": "Background"}));
}

#[test]
fn numbers_of_custom_objects_are_normalized() {
    let step = step("crd", "create-rich");
    let text =
        r#"{"kind": "Widget", "n": 1.0, "big": 12345678901234567890, "ratio": 1.5, "e": 1e3, "s": -0.5}"#;
    let body = read(None, text.as_bytes(), "Widget", true).unwrap();
    let expected = &step["response"]["body"]["spec"]["free"];
    assert_eq!(body.object["n"].to_string(), expected["n"].to_string());
    assert_eq!(body.object["big"].to_string(), expected["big"].to_string());
    assert_eq!(body.object["e"].to_string(), "1000");
    assert_eq!(body.object["ratio"].to_string(), "1.5");
    // Built-in kinds are decoded by type later, which needs the number as it was written.
    let body = read(None, text.as_bytes(), "Pod", false).unwrap();
    assert_eq!(body.object["n"].to_string(), "1.0");
}

#[test]
fn duplicates_inside_unknown_fields_are_not_reported() {
    let text = r#"{"extra":{"a":1,"a":2},"extra":3,"data":{"k":"1","k":"2"}}"#;
    let body = read(None, text.as_bytes(), "ConfigMap", false).unwrap();
    let problems = body.problems(&["extra".to_owned()]);
    assert_eq!(problems, [r#"unknown field "extra""#, r#"duplicate field "data.k""#]);
    // The second occurrence of a field of a struct is merged into the first.
    let merged = read(None, br#"{"data":{"a":"1"},"data":{"b":"2"}}"#, "ConfigMap", false).unwrap();
    assert_eq!(merged.object["data"], json!({"a": "1", "b": "2"}));
}

#[test]
fn yaml_reports_duplicates_in_one_message() {
    let body = read(Some("application/yaml"), b"data:\n  a: x\n  a: y\n", "ConfigMap", false).unwrap();
    let expected = r#"error converting YAML to JSON: yaml: unmarshal errors:
  line 3: key "a" already set in map"#;
    assert_eq!(body.problems(&[]), [expected]);
    // A header cannot contain a line break.
    assert!(warning_headers(&body.problems(&[])).is_empty());
}

#[test]
fn too_many_warnings_are_truncated() {
    let long: Vec<String> = (0..40).map(|index| format!("{index:03}{}", "x".repeat(400))).collect();
    let headers = warning_headers(&long);
    assert_eq!(headers.len(), 16);
    assert!(headers.iter().all(|header| header.len() == TRUNCATED_WARNING_CHARS + "299 - \"\"".len()));
    assert_eq!(warning_headers(&["a \"b\"".to_owned()]), [r#"299 - "a \"b\"""#]);
}

#[test]
fn yaml_responses_equal_the_recorded_bytes() {
    let mut seen = 0;
    for file in ["crud", "list", "crd", "discovery"] {
        for step in steps(file) {
            let accept = step["request"]["headers"]["accept"].as_str().unwrap_or_default();
            let Some(text) = step["response"]["body_text"].as_str() else { continue };
            if !accept.starts_with("application/yaml") || step["response"]["body_truncated_to"].is_number() {
                continue;
            }
            let value = text::read_yaml(text.as_bytes()).unwrap().value;
            assert_eq!(to_yaml(&value), text, "{file}/{}", step["name"]);
            seen += 1;
        }
    }
    assert!(seen >= 5, "{seen}");
}
