//! Malformed requests must not write, delete or return anything unintended. Each test starts with the bug it covers.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use crate::common::{configmap, definition, pod, raw_with, server, with_timeout};
use http::Request;
use http_body_util::BodyExt;
use informer_apiserver::{AccessControl, ApiServer, User};
use serde_json::{Value, json};
use tower::ServiceExt;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";

/// Sends a request; returns the status code and the body.
async fn send_request(
    server: &ApiServer,
    method: &str,
    path: &str,
    kind: &str,
    body: &Value,
) -> (u16, Value) {
    let accept = format!("{JSON}{}{kind}", crate::common::CONTENT_TYPE);
    raw_with(server, method, path, &accept, Some(body.to_string().into_bytes())).await
}

/// Regression: a patch that set another kind was decoded as that kind; the data was lost, and the response was 200.
#[tokio::test(start_paused = true)]
async fn patch_cannot_change_the_type_of_an_object() {
    with_timeout(async {
        let server = server();
        server.create(&configmap("a", "1")).unwrap();
        let path = format!("{MAPS}/a");
        let cases = [
            (json!({"kind": "Deployment", "apiVersion": "apps/v1"}), "converting (v1.Deployment) to (core.ConfigMap): unknown conversion"),
            (json!({"kind": "Pod"}), "converting (v1.Pod) to (core.ConfigMap): unknown conversion"),
            (json!({"kind": "Nope"}), "no kind \"Nope\" is registered for version \"v1\" in scheme"),
            (json!({"apiVersion": "v2"}), "no kind \"ConfigMap\" is registered for version \"v2\" in scheme"),
            (json!({"kind": 5}), "cannot unmarshal number into Go struct field .kind of type string"),
            (json!({"apiVersion": "a/b/c"}), "unexpected GroupVersion string: a/b/c"),
        ];
        for (patch, why) in cases {
            let (code, body) = send_request(&server, "PATCH", &path, MERGE, &patch).await;
            assert_eq!(code, 422, "{patch}: {body}");
            assert!(body["message"].as_str().unwrap().contains(why), "{patch}: {}", body["message"]);
        }
        let json = json!([{"op": "replace", "path": "/kind", "value": "Secret"}]);
        assert_eq!(send_request(&server, "PATCH", &path, "application/json-patch+json", &json).await.0, 422);
        // A strategic merge patch ignores `kind` and `apiVersion`.
        let strategic = json!({"kind": "Deployment", "apiVersion": "apps/v1", "data": {"z": "1"}});
        let (code, body) = send_request(&server, "PATCH", &path, "application/strategic-merge-patch+json", &strategic).await;
        assert_eq!((code, &body["kind"], &body["data"]), (200, &json!("ConfigMap"), &json!({"k": "1", "z": "1"})));
        assert_eq!(send_request(&server, "PATCH", &path, MERGE, &json!({"kind": null})).await.0, 200);
        assert_eq!(server.get("v1", "configmaps", Some("default"), "a").unwrap()["data"], json!({"k": "1", "z": "1"}));

        server.create(&definition()).unwrap();
        server.create(&json!({"apiVersion": "rec.example.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "default"}})).unwrap();
        let path = "/apis/rec.example.com/v1/namespaces/default/widgets/w";
        for (patch, code) in [(json!({"kind": "Bar"}), 422), (json!({"apiVersion": "rec.example.com/v9"}), 422), (json!({"kind": null}), 422), (json!({"kind": 5}), 422)] {
            assert_eq!(send_request(&server, "PATCH", path, MERGE, &patch).await.0, code, "{patch}");
        }
    })
    .await;
}

/// Regression: delete options of the wrong type were treated as absent, so a malformed dry run deleted the object.
#[tokio::test(start_paused = true)]
async fn delete_with_malformed_options_deletes_nothing() {
    with_timeout(async {
        let server = server();
        server.create(&configmap("a", "1")).unwrap();
        for body in [
            json!({"dryRun": "All"}),
            json!({"preconditions": {"uid": 7}}),
            json!({"gracePeriodSeconds": "0"}),
            json!([]),
            json!(5),
            json!({"kind": 5}),
        ] {
            for path in [format!("{MAPS}/a"), MAPS.to_owned()] {
                assert_eq!(
                    send_request(&server, "DELETE", &path, JSON, &body).await.0,
                    400,
                    "{body} at {path}"
                );
            }
        }
        for body in [json!({"propagationPolicy": ""}), json!({"propagationPolicy": "Never"})] {
            assert_eq!(
                send_request(&server, "DELETE", &format!("{MAPS}/a"), JSON, &body).await.0,
                422,
                "{body}"
            );
        }
        // Without a body, the query holds the options; some of its parameters were ignored.
        for (query, expected) in [
            ("uid=x", 409),
            ("resourceVersion=1", 409),
            ("gracePeriodSeconds=", 400),
            ("propagationPolicy=", 422),
        ] {
            let code = raw_with(&server, "DELETE", &format!("{MAPS}/a?{query}"), JSON, None).await.0;
            assert_eq!(code, expected, "{query}");
        }
        assert!(server.get("v1", "configmaps", Some("default"), "a").is_some());
    })
    .await;
}

/// Regression: an eviction read the options of its body only, so `?dryRun=All` deleted the pod; and evictions,
/// bindings and scales did not validate their bodies.
#[tokio::test(start_paused = true)]
async fn subresource_body_must_match_its_object() {
    with_timeout(async {
        let server = server();
        server.create(&pod("p")).unwrap();
        let (eviction, binding) = (format!("{PODS}/p/eviction"), format!("{PODS}/p/binding"));
        let fine = json!({"metadata": {"name": "p"}});
        assert_eq!(send_request(&server, "POST", &format!("{eviction}?dryRun=All"), JSON, &fine).await.0, 201);
        for body in [
            json!({}),
            json!({"metadata": {"name": "other"}}),
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}),
            json!({"metadata": {"name": "p"}, "deleteOptions": {"dryRun": "All"}}),
        ] {
            assert_eq!(send_request(&server, "POST", &eviction, JSON, &body).await.0, 400, "{body}");
        }
        for (body, code) in [
            (json!({"metadata": {"name": "other"}, "target": {"name": "n"}}), 400),
            (json!({"metadata": {"name": "p"}}), 500),
            (json!({"metadata": {"name": "p"}, "target": {"kind": "Foo", "name": "n"}}), 500),
            (json!({"metadata": {"name": "p", "annotations": {"a": {"b": 1}}}, "target": {"name": "n"}}), 400),
            (json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "p"}}), 400),
        ] {
            assert_eq!(send_request(&server, "POST", &binding, JSON, &body).await.0, code, "{body}");
        }
        let pod = server.get("v1", "pods", Some("default"), "p").unwrap();
        assert_eq!(pod["spec"].get("nodeName"), None);

        let labels = json!({"matchLabels": {"a": "b"}});
        let spec = json!({"selector": labels, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}});
        server.create(&json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "default"}, "spec": spec})).unwrap();
        let scale = "/apis/apps/v1/namespaces/default/deployments/d/scale";
        for body in [
            json!({"metadata": {"name": "other"}, "spec": {"replicas": 4}}),
            json!({"spec": {"replicas": 4}}),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "d"}}),
            json!({"metadata": {"name": "d"}, "spec": {"replicas": "5"}}),
        ] {
            assert_eq!(send_request(&server, "PUT", scale, JSON, &body).await.0, 400, "{body}");
        }
        for patch in [json!({"spec": {"replicas": "7"}}), json!({"kind": "Pod", "apiVersion": "v1"})] {
            assert_eq!(send_request(&server, "PATCH", scale, MERGE, &patch).await.0, 422, "{patch}");
        }
        let deployment = server.get("apps/v1", "deployments", Some("default"), "d").unwrap();
        assert_eq!(deployment["spec"]["replicas"], 1);
        let applied = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": 9}});
        let apply = "application/apply-patch+yaml";
        let forced = format!("{scale}?fieldManager=first&force=true");
        assert_eq!(send_request(&server, "PATCH", &forced, apply, &applied).await.0, 200);
        let (code, body) = send_request(&server, "PATCH", &format!("{scale}?fieldManager=second"), apply, &json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": 2}})).await;
        assert_eq!((code, &body["message"]), (409, &json!("Apply failed with 1 conflict: conflict with \"first\" with subresource \"scale\": .spec.replicas")));
    })
    .await;
}

/// Regression: an update of a Lease without a resource version was accepted, so two leaders could overwrite each
/// other in tests.
#[tokio::test(start_paused = true)]
async fn lease_update_requires_resource_version() {
    with_timeout(async {
        let server = server();
        let lease = |holder: &str| json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l", "namespace": "default"}, "spec": {"holderIdentity": holder}});
        let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l";
        assert_eq!(send_request(&server, "PUT", path, JSON, &lease("first")).await.0, 201, "PUT creates a missing Lease");
        let (code, body) = send_request(&server, "PUT", path, JSON, &lease("thief")).await;
        assert_eq!(code, 422);
        assert_eq!(
            body["message"],
            "leases.coordination.k8s.io \"l\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update"
        );
    })
    .await;
}

/// Regression: a watch with a timeout that exceeds the range of the clock panicked.
#[tokio::test(start_paused = true)]
async fn watch_accepts_maximal_timeout() {
    with_timeout(async {
        let server = server();
        let path = format!("{MAPS}?watch=1&timeoutSeconds={}", i64::MAX);
        let request = Request::builder().uri(path).body(String::new()).unwrap();
        let response = server.service().oneshot(request).await.unwrap();
        server.create(&configmap("a", "1")).unwrap();
        let frame = response.into_body().frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(frame.starts_with(b"{\"type\":\"ADDED\""), "{frame:?}");
    })
    .await;
}

/// A job deleted without a propagation policy orphans its pods: it stays until its `orphan` finalizer is removed.
#[tokio::test(start_paused = true)]
async fn deleted_job_keeps_orphan_finalizer() {
    with_timeout(async {
        let server = server();
        let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "default"}, "spec": {"template": template}});
        server.create(&job).unwrap();
        let path = "/apis/batch/v1/namespaces/default/jobs/j";
        let (code, body) = send_request(&server, "DELETE", path, JSON, &json!({})).await;
        assert_eq!((code, &body["metadata"]["finalizers"]), (200, &json!(["orphan"])));
        assert!(server.delete("batch/v1", "jobs", Some("default"), "j").is_ok());
    })
    .await;
}

/// Regression: authorization parsed the request separately from the handler. A selector with an escaped comma was
/// authorized for one secret and returned the others, `watch=False` was a list for one and a watch for the other, and
/// DELETE below `/watch/` deleted a collection with permission to delete single objects only.
#[tokio::test(start_paused = true)]
async fn authorized_request_is_the_executed_request() {
    with_timeout(async {
        let server = server();
        let rbac = "rbac.authorization.k8s.io";
        let eve = json!([{"kind": "User", "name": "eve", "apiGroup": rbac}]);
        let rules = json!([
            {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["allowed"], "verbs": ["list"]},
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["delete", "list"]},
        ]);
        server.create(&json!({"apiVersion": format!("{rbac}/v1"), "kind": "Role", "metadata": {"name": "r", "namespace": "default"}, "rules": rules})).unwrap();
        server.create(&json!({"apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": {"name": "r", "namespace": "default"}, "subjects": eve, "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "r"}})).unwrap();
        for name in ["allowed", "other"] {
            server.create(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "default"}})).unwrap();
        }
        server.create(&configmap("a", "1")).unwrap();
        let service = server.service_with_access(AccessControl::new().token("eve-token", User::new("eve")));
        let send_request = async |method: &str, path: &str| {
            let request = Request::builder().method(method).uri(path).header("authorization", "Bearer eve-token");
            let response = service.clone().oneshot(request.body(String::new()).unwrap()).await.unwrap();
            let code = response.status().as_u16();
            let bytes = response.into_body().collect().await.unwrap().to_bytes();
            (code, String::from_utf8_lossy(&bytes).into_owned())
        };
        let secrets = "/api/v1/namespaces/default/secrets?fieldSelector=";
        assert_eq!(send_request("GET", &format!("{secrets}metadata.name%3Dallowed")).await.0, 200);
        let (code, body) = send_request("GET", &format!("{secrets}metadata.name!%3Dzzz%5C,metadata.name%3Dallowed")).await;
        assert_eq!(code, 403, "{body}");
        let (code, body) = send_request("GET", &format!("{MAPS}?watch=False")).await;
        assert_eq!((code, body.contains("ConfigMapList")), (200, true), "{body}");
        assert_eq!(send_request("DELETE", "/api/v1/watch/namespaces/default/configmaps").await.0, 403);
        assert!(server.get("v1", "configmaps", Some("default"), "a").is_some());
    })
    .await;
}

/// Regression: permission to update sufficed to create, since PUT of some kinds and apply of all kinds create missing
/// objects.
#[tokio::test(start_paused = true)]
async fn update_that_creates_requires_create_permission() {
    with_timeout(async {
        let server = server();
        let rbac = "rbac.authorization.k8s.io";
        let rules = json!([{
            "apiGroups": ["", "coordination.k8s.io"], "resources": ["leases", "configmaps"], "verbs": ["get", "update", "patch"],
        }]);
        let named = json!({"name": "r", "namespace": "default"});
        let (version, role) = (format!("{rbac}/v1"), json!({"apiGroup": rbac, "kind": "Role", "name": "r"}));
        let eve = json!([{"kind": "User", "name": "eve", "apiGroup": rbac}]);
        server.create(&json!({"apiVersion": version, "kind": "Role", "metadata": named, "rules": rules})).unwrap();
        let binding = json!({
            "apiVersion": version, "kind": "RoleBinding", "metadata": named, "subjects": eve, "roleRef": role,
        });
        server.create(&binding).unwrap();
        let service = server.service_with_access(AccessControl::new().token("eve-token", User::new("eve")));
        let send_request = async |method: &str, path: &str, kind: &str, body: Value| {
            let request = Request::builder()
                .method(method)
                .uri(path)
                .header("authorization", "Bearer eve-token")
                .header("content-type", kind);
            let response = service.clone().oneshot(request.body(body.to_string()).unwrap()).await.unwrap();
            response.status().as_u16()
        };
        let lease = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "eve"}});
        let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l";
        assert_eq!(send_request("PUT", path, JSON, lease).await, 403);
        let apply = "application/apply-patch+yaml";
        let path = format!("{MAPS}/a?fieldManager=eve");
        assert_eq!(send_request("PATCH", &path, apply, configmap("a", "1")).await, 403);
        server.create(&configmap("a", "0")).unwrap();
        assert_eq!(send_request("PATCH", &format!("{path}&force=true"), apply, configmap("a", "1")).await, 200);
    })
    .await;
}

/// Regression: the parser parsed the operand of a repeated unary operator twice, so a hundred characters kept the
/// server busy forever; and repeated operators evaluated to a wrong value.
#[tokio::test(start_paused = true)]
async fn repeated_unary_operators_in_rule_cancel_out() {
    with_timeout(async {
        let server = server();
        let deep = format!("{}true{}", "!!(".repeat(40), ")".repeat(40));
        let rule = |rule: &str| json!({"rule": rule});
        let mut definition = definition();
        for version in definition["spec"]["versions"].as_array_mut().unwrap() {
            version["schema"]["openAPIV3Schema"]["x-kubernetes-validations"] =
                json!([rule("!!true"), rule("--1 == 1"), rule(&deep)]);
        }
        server.create(&definition).unwrap();
        let widget = json!({
            "apiVersion": "rec.example.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "default"},
        });
        server.create(&widget).unwrap();
    })
    .await;
}
