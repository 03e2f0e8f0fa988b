//! Requests with a slip in them: nothing is written, deleted or shown that was not asked for. Each test opens with what once
//! happened.

#![allow(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

mod common;

use common::{by, configmap, definition, pod, raw_with, server};
use http::Request;
use http_body_util::BodyExt;
use informer_apiserver::{Access, ApiServer, User};
use serde_json::{Value, json};
use tower::ServiceExt;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";

/// What a server answers: the code, and the message or else the object.
async fn ask(server: &ApiServer, method: &str, path: &str, kind: &str, body: &Value) -> (u16, Value) {
    let accept = format!("{JSON}{}{kind}", common::CONTENT_TYPE);
    raw_with(server, method, path, &accept, Some(body.to_string().into_bytes())).await
}

/// A patch that said another kind was read as that kind: the data was gone, and the answer was 200.
#[tokio::test(start_paused = true)]
async fn a_patch_does_not_make_something_else_of_an_object() {
    by(async {
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
            let (code, body) = ask(&server, "PATCH", &path, MERGE, &patch).await;
            assert_eq!(code, 422, "{patch}: {body}");
            assert!(body["message"].as_str().unwrap().contains(why), "{patch}: {}", body["message"]);
        }
        let json = json!([{"op": "replace", "path": "/kind", "value": "Secret"}]);
        assert_eq!(ask(&server, "PATCH", &path, "application/json-patch+json", &json).await.0, 422);
        // What the object is counts for no field of a strategic patch.
        let strategic = json!({"kind": "Deployment", "apiVersion": "apps/v1", "data": {"z": "1"}});
        let (code, body) = ask(&server, "PATCH", &path, "application/strategic-merge-patch+json", &strategic).await;
        assert_eq!((code, &body["kind"], &body["data"]), (200, &json!("ConfigMap"), &json!({"k": "1", "z": "1"})));
        assert_eq!(ask(&server, "PATCH", &path, MERGE, &json!({"kind": null})).await.0, 200);
        assert_eq!(server.get("v1", "configmaps", Some("default"), "a").unwrap()["data"], json!({"k": "1", "z": "1"}));

        server.create(&definition()).unwrap();
        server.create(&json!({"apiVersion": "rec.example.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "default"}})).unwrap();
        let path = "/apis/rec.example.com/v1/namespaces/default/widgets/w";
        for (patch, code) in [(json!({"kind": "Bar"}), 422), (json!({"apiVersion": "rec.example.com/v9"}), 422), (json!({"kind": null}), 422), (json!({"kind": 5}), 422)] {
            assert_eq!(ask(&server, "PATCH", path, MERGE, &patch).await.0, code, "{patch}");
        }
    })
    .await;
}

/// What did not fit the type of the options was taken for absent: a dry run with a slip in it deleted for good.
#[tokio::test(start_paused = true)]
async fn a_deletion_with_a_slip_deletes_nothing() {
    by(async {
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
                assert_eq!(ask(&server, "DELETE", &path, JSON, &body).await.0, 400, "{body} at {path}");
            }
        }
        for body in [json!({"propagationPolicy": ""}), json!({"propagationPolicy": "Never"})] {
            assert_eq!(ask(&server, "DELETE", &format!("{MAPS}/a"), JSON, &body).await.0, 422, "{body}");
        }
        // Without a body the query says the same, and it was not all read.
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

/// An eviction looked at the options in its body alone, so one with `?dryRun=All` deleted the pod; and neither it nor a binding
/// nor a scale looked at what it was sent.
#[tokio::test(start_paused = true)]
async fn what_is_sent_below_an_object_has_to_be_meant_for_it() {
    by(async {
        let server = server();
        server.create(&pod("p")).unwrap();
        let (eviction, binding) = (format!("{PODS}/p/eviction"), format!("{PODS}/p/binding"));
        let fine = json!({"metadata": {"name": "p"}});
        assert_eq!(ask(&server, "POST", &format!("{eviction}?dryRun=All"), JSON, &fine).await.0, 201);
        for body in [
            json!({}),
            json!({"metadata": {"name": "other"}}),
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}),
            json!({"metadata": {"name": "p"}, "deleteOptions": {"dryRun": "All"}}),
        ] {
            assert_eq!(ask(&server, "POST", &eviction, JSON, &body).await.0, 400, "{body}");
        }
        for (body, code) in [
            (json!({"metadata": {"name": "other"}, "target": {"name": "n"}}), 400),
            (json!({"metadata": {"name": "p"}}), 500),
            (json!({"metadata": {"name": "p"}, "target": {"kind": "Foo", "name": "n"}}), 500),
            (json!({"metadata": {"name": "p", "annotations": {"a": {"b": 1}}}, "target": {"name": "n"}}), 400),
            (json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "p"}}), 400),
        ] {
            assert_eq!(ask(&server, "POST", &binding, JSON, &body).await.0, code, "{body}");
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
            assert_eq!(ask(&server, "PUT", scale, JSON, &body).await.0, 400, "{body}");
        }
        for patch in [json!({"spec": {"replicas": "7"}}), json!({"kind": "Pod", "apiVersion": "v1"})] {
            assert_eq!(ask(&server, "PATCH", scale, MERGE, &patch).await.0, 422, "{patch}");
        }
        let deployment = server.get("apps/v1", "deployments", Some("default"), "d").unwrap();
        assert_eq!(deployment["spec"]["replicas"], 1);
        let applied = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": 9}});
        let apply = "application/apply-patch+yaml";
        let forced = format!("{scale}?fieldManager=first&force=true");
        assert_eq!(ask(&server, "PATCH", &forced, apply, &applied).await.0, 200);
        let (code, body) = ask(&server, "PATCH", &format!("{scale}?fieldManager=second"), apply, &json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": 2}})).await;
        assert_eq!((code, &body["message"]), (409, &json!("Apply failed with 1 conflict: conflict with \"first\" with subresource \"scale\": .spec.replicas")));
    })
    .await;
}

/// An update of a lease without the version that was seen was taken, so that two leaders could overwrite each other in tests.
#[tokio::test(start_paused = true)]
async fn a_lease_is_not_overwritten_blindly() {
    by(async {
        let server = server();
        let lease = |holder: &str| json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l", "namespace": "default"}, "spec": {"holderIdentity": holder}});
        let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l";
        assert_eq!(ask(&server, "PUT", path, JSON, &lease("first")).await.0, 201, "a PUT creates it");
        let (code, body) = ask(&server, "PUT", path, JSON, &lease("thief")).await;
        assert_eq!(code, 422);
        assert_eq!(
            body["message"],
            "leases.coordination.k8s.io \"l\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update"
        );
    })
    .await;
}

/// A watch that wanted to last longer than any clock can tell panicked.
#[tokio::test(start_paused = true)]
async fn a_watch_may_want_to_last_for_ever() {
    by(async {
        let server = server();
        let path = format!("{MAPS}?watch=1&timeoutSeconds={}", i64::MAX);
        let request = Request::builder().uri(path).body(String::new()).unwrap();
        let answer = server.service().oneshot(request).await.unwrap();
        server.create(&configmap("a", "1")).unwrap();
        let frame = answer.into_body().frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(frame.starts_with(b"{\"type\":\"ADDED\""), "{frame:?}");
    })
    .await;
}

/// A job that is deleted without a word about its pods keeps them: it stays until somebody has let go of them.
#[tokio::test(start_paused = true)]
async fn a_job_is_kept_for_its_pods() {
    by(async {
        let server = server();
        let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "default"}, "spec": {"template": template}});
        server.create(&job).unwrap();
        let path = "/apis/batch/v1/namespaces/default/jobs/j";
        let (code, body) = ask(&server, "DELETE", path, JSON, &json!({})).await;
        assert_eq!((code, &body["metadata"]["finalizers"]), (200, &json!(["orphan"])));
        assert!(server.delete("batch/v1", "jobs", Some("default"), "j").is_ok());
    })
    .await;
}

/// What was authorized was read by other code than what was answered: a selector with an escaped comma asked for one secret and
/// got the others, `watch=False` was a list to one and a watch to the other, and a DELETE below `/watch/` deleted a collection for
/// somebody who may delete single objects.
#[tokio::test(start_paused = true)]
async fn what_is_authorized_is_what_is_answered() {
    by(async {
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
        let service = server.guarded(Access::new().token("eve-token", User::new("eve")));
        let ask = async |method: &str, path: &str| {
            let request = Request::builder().method(method).uri(path).header("authorization", "Bearer eve-token");
            let answer = service.clone().oneshot(request.body(String::new()).unwrap()).await.unwrap();
            let code = answer.status().as_u16();
            let bytes = answer.into_body().collect().await.unwrap().to_bytes();
            (code, String::from_utf8_lossy(&bytes).into_owned())
        };
        let secrets = "/api/v1/namespaces/default/secrets?fieldSelector=";
        assert_eq!(ask("GET", &format!("{secrets}metadata.name%3Dallowed")).await.0, 200);
        let (code, body) = ask("GET", &format!("{secrets}metadata.name!%3Dzzz%5C,metadata.name%3Dallowed")).await;
        assert_eq!(code, 403, "{body}");
        let (code, body) = ask("GET", &format!("{MAPS}?watch=False")).await;
        assert_eq!((code, body.contains("ConfigMapList")), (200, true), "{body}");
        assert_eq!(ask("DELETE", "/api/v1/watch/namespaces/default/configmaps").await.0, 403);
        assert!(server.get("v1", "configmaps", Some("default"), "a").is_some());
    })
    .await;
}

/// Whoever may update could create: a PUT of some kinds and an apply of any make what is not there.
#[tokio::test(start_paused = true)]
async fn an_update_that_creates_needs_the_right_to_create() {
    by(async {
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
        let service = server.guarded(Access::new().token("eve-token", User::new("eve")));
        let ask = async |method: &str, path: &str, kind: &str, body: Value| {
            let request = Request::builder()
                .method(method)
                .uri(path)
                .header("authorization", "Bearer eve-token")
                .header("content-type", kind);
            let answer = service.clone().oneshot(request.body(body.to_string()).unwrap()).await.unwrap();
            answer.status().as_u16()
        };
        let lease = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "eve"}});
        let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l";
        assert_eq!(ask("PUT", path, JSON, lease).await, 403);
        let apply = "application/apply-patch+yaml";
        let path = format!("{MAPS}/a?fieldManager=eve");
        assert_eq!(ask("PATCH", &path, apply, configmap("a", "1")).await, 403);
        server.create(&configmap("a", "0")).unwrap();
        assert_eq!(ask("PATCH", &format!("{path}&force=true"), apply, configmap("a", "1")).await, 200);
    })
    .await;
}

/// Behind two signs in a row the parser reads everything twice, and a hundred letters of them kept the server busy for ever; and two signs
/// did not mean what they say.
#[tokio::test(start_paused = true)]
async fn two_signs_in_a_rule_cancel_each_other_out() {
    by(async {
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
