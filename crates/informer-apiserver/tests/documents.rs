//! `OpenAPI` documents of custom resource definitions: the published schemas match those of kube-apiserver, in versions
//! 2 and 3.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use crate::common::{raw, server, with_timeout};
use serde_json::{Value, json};

fn definition() -> Value {
    let either = json!({"x-kubernetes-int-or-string": true});
    let spec = json!({"type": "object", "required": ["size", "maybe"], "properties": {
        "size": {"type": "integer"},
        "maybe": {"type": "string", "nullable": true},
        "color": {"type": "string", "default": "red"},
        "port": either,
        "bounded": {"x-kubernetes-int-or-string": true, "anyOf": [{"maximum": 3}, {"minimum": 7}]},
        "explicit": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
        "ports": {"type": "array", "items": either},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"a": {"type": "string"}}},
        "template": {"type": "object", "x-kubernetes-embedded-resource": true, "required": ["spec"],
            "properties": {"spec": {"type": "object"}}},
    }});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.o.x.io"},
        "spec": {
            "group": "o.x.io", "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
                "selectableFields": [{"jsonPath": ".spec.color"}],
            }, {
                "name": "v2", "served": true, "storage": false,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}

/// Returns the names of a schema's fields.
fn fields(schema: &Value) -> Vec<&str> {
    schema["properties"]
        .as_object()
        .map(|fields| fields.keys().map(String::as_str).collect())
        .unwrap_or_default()
}

/// Regression: the `OpenAPI` v3 document of a definition lacked list types, selectable fields, the types of
/// int-or-string fields and the fields of embedded resources, so generated clients lacked them too.
#[tokio::test(start_paused = true)]
async fn openapi_v3_describes_definition_completely() {
    with_timeout(async {
        let server = server();
        server.create(&definition()).unwrap();
        let (_, document) = raw(&server, "/openapi/v3/apis/o.x.io/v1").await;
        let schemas = &document["components"]["schemas"];
        let (foo, list) = (&schemas["io.x.o.v1.Foo"], &schemas["io.x.o.v1.FooList"]);
        let selectable = json!([{"fieldPath": "spec.color"}]);
        for schema in [foo, list] {
            assert_eq!(schema["x-kubernetes-selectable-fields"], selectable);
        }
        assert_eq!(list["properties"]["items"]["items"]["$ref"], "#/components/schemas/io.x.o.v1.Foo");
        assert_eq!(list["x-kubernetes-group-version-kind"][0]["kind"], "FooList");
        assert!(schemas["io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"].is_object());
        let listed = &document["paths"]["/apis/o.x.io/v1/foos"]["get"]["responses"]["200"];
        let reference = "#/components/schemas/io.x.o.v1.FooList";
        assert_eq!(listed["content"]["application/json"]["schema"]["$ref"], reference);

        let spec = &foo["properties"]["spec"]["properties"];
        let either = json!([{"type": "integer"}, {"type": "string"}]);
        assert_eq!(spec["port"]["anyOf"], either);
        assert_eq!(spec["ports"]["items"]["anyOf"], either);
        assert_eq!(spec["explicit"], definition_field("explicit"));
        assert_eq!(spec["bounded"]["allOf"], json!([{"anyOf": either}]));
        assert_eq!(spec["bounded"]["anyOf"], definition_field("bounded")["anyOf"]);
        assert_eq!(fields(&spec["template"]), ["apiVersion", "kind", "metadata", "spec"]);
        assert_eq!(spec["template"]["required"], json!(["spec", "kind", "apiVersion"]));
        assert_eq!(spec["color"], definition_field("color"));
    })
    .await;
}

/// Regression: the `OpenAPI` v2 document contained unsupported keywords, and listed properties where unknown fields are
/// preserved, so kubectl rejected objects that the server accepts.
#[tokio::test(start_paused = true)]
async fn openapi_v2_omits_unsupported_keywords() {
    with_timeout(async {
        let server = server();
        server.create(&definition()).unwrap();
        let (_, whole) = raw(&server, "/openapi/v2").await;
        let foo = &whole["definitions"]["io.x.o.v1.Foo"];
        let spec = &foo["properties"]["spec"];
        assert_eq!(spec["required"], json!(["size"]));
        let spec = &spec["properties"];
        assert_eq!(spec["bounded"], json!({"x-kubernetes-int-or-string": true}));
        assert_eq!(spec["maybe"], json!({}));
        assert_eq!(spec["color"], json!({"type": "string"}));
        assert_eq!(spec["free"], json!({"x-kubernetes-preserve-unknown-fields": true}));
        assert_eq!(fields(&spec["template"]), ["apiVersion", "kind", "metadata", "spec"]);
        assert!(whole["definitions"]["io.x.o.v1.FooList"].is_object());
        let mark = json!([{"group": "o.x.io", "version": "v2", "kind": "Foo"}]);
        let open = json!({"type": "object", "x-kubernetes-group-version-kind": mark});
        assert_eq!(whole["definitions"]["io.x.o.v2.Foo"], open);
    })
    .await;
}

fn definition_field(name: &str) -> Value {
    let schema = &definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["properties"]["spec"]["properties"][name].clone()
}
