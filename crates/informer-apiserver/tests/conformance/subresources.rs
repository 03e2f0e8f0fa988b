//! Subresources of built-in kinds: status, binding, eviction, scale and tokens.

use serde_json::{Value, json};

use crate::runner::statements;
use crate::targets::{Target, deployment};

statements![
    a_write_to_the_status_leaves_the_rest,
    a_write_to_the_object_leaves_the_status,
    a_binding_puts_a_pod_on_a_node,
    a_pod_is_bound_once,
    an_eviction_deletes_the_pod,
    an_eviction_against_a_budget_is_refused_with_retry,
    an_eviction_of_what_is_not_there_is_refused,
    a_deployment_shows_its_scale,
    a_scale_that_is_put_changes_the_deployment,
    a_scale_at_an_old_version_is_a_conflict,
    a_negative_scale_is_refused,
    a_pod_that_runs_gets_debugging_containers,
    a_pod_keeps_its_containers,
    a_service_account_gets_a_token,
    a_token_is_valid_for_its_audiences,
    a_token_is_valid_for_ten_minutes_at_least,
    a_limit_range_completes_pods,
    a_quota_refuses_what_goes_beyond,
    a_self_subject_access_review_returns_the_permission,
];

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/$name/deployments";

async fn a_write_to_the_status_leaves_the_rest(target: &Target) {
    target.make_pod("p").await;
    let patch = json!({
        "metadata": {"labels": {"x": "y"}}, "spec": {"activeDeadlineSeconds": 5}, "status": {"phase": "Running"},
    });
    let written = target.merge("$ns/pods/p/status", &patch).await.expect(200).body;
    assert_eq!(written["status"]["phase"], "Running");
    assert!(written["spec"]["activeDeadlineSeconds"].is_null());
}

async fn a_write_to_the_object_leaves_the_status(target: &Target) {
    target.make_pod("p").await;
    let patch = json!({"metadata": {"labels": {"x": "y"}}, "status": {"phase": "Running"}});
    let written = target.merge("$ns/pods/p", &patch).await.expect(200).body;
    assert_eq!(
        (&written["metadata"]["labels"]["x"], &written["status"]["phase"]),
        (&"y".into(), &"Pending".into())
    );
}

async fn bind(target: &Target, node: &str) -> crate::targets::Response {
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": node}});
    target.post("$ns/pods/p/binding", &binding).await
}

async fn a_binding_puts_a_pod_on_a_node(target: &Target) {
    target.make_pod("p").await;
    let response = bind(target, "not-a-node").await.expect(201);
    assert_eq!((&response.body["kind"], &response.body["status"]), (&"Status".into(), &"Success".into()));
    let pod = target.get("$ns/pods/p").await.expect(200).body;
    assert_eq!(pod["spec"]["nodeName"], "not-a-node");
    let conditions = pod["status"]["conditions"].as_array().unwrap();
    let scheduled = conditions.iter().find(|condition| condition["type"] == "PodScheduled").unwrap();
    assert_eq!(scheduled["status"], "True");
}

async fn a_pod_is_bound_once(target: &Target) {
    target.make_pod("p").await;
    bind(target, "not-a-node").await.expect(201);
    let again = bind(target, "another").await;
    again.expect_error(409, "Conflict", "pod p is already assigned to node \"not-a-node\"");
}

async fn an_eviction_deletes_the_pod(target: &Target) {
    target.make_pod("p").await;
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    target.post("$ns/pods/p/eviction", &eviction).await.expect(201);
    target.get("$ns/pods/p").await.expect(404);
}

async fn an_eviction_against_a_budget_is_refused_with_retry(target: &Target) {
    let mut pod = crate::targets::pod("p");
    pod["metadata"]["labels"] = json!({"app": "p"});
    let made = target.until(async || {
        let made = target.post("$ns/pods", &pod).await;
        (made.code != 403).then_some(made)
    });
    made.await.expect(201);
    target.merge("$ns/pods/p/status", &json!({"status": {"phase": "Running"}})).await.expect(200);
    let budget = json!({
        "metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "p"}}},
    });
    target.post("/apis/policy/v1/namespaces/$name/poddisruptionbudgets", &budget).await.expect(201);
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    let response = target.post("$ns/pods/p/eviction", &eviction).await;
    let response = response.expect_error(
        429,
        "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
    );
    assert_eq!(response.body["details"]["causes"][0]["reason"], "DisruptionBudget");
    target.get("$ns/pods/p").await.expect(200);
}

async fn an_eviction_of_what_is_not_there_is_refused(target: &Target) {
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    target.post("$ns/pods/p/eviction", &eviction).await.expect_error(404, "NotFound", "pods \"p\" not found");
}

async fn deploy(target: &Target) -> Value {
    target.post(DEPLOYMENTS, &deployment("d")).await.expect(201);
    target.get(&format!("{DEPLOYMENTS}/d/scale")).await.expect(200).body
}

async fn a_deployment_shows_its_scale(target: &Target) {
    let scale = deploy(target).await;
    assert_eq!((&scale["kind"], &scale["apiVersion"]), (&"Scale".into(), &"autoscaling/v1".into()));
    assert_eq!(scale["status"]["selector"], "app=d");
    let deployment = target.get(&format!("{DEPLOYMENTS}/d")).await.expect(200).body;
    assert_eq!(scale["metadata"]["uid"], deployment["metadata"]["uid"]);
}

async fn a_scale_that_is_put_changes_the_deployment(target: &Target) {
    let mut scale = deploy(target).await;
    scale["spec"]["replicas"] = 3.into();
    target.put(&format!("{DEPLOYMENTS}/d/scale"), &scale).await.expect(200);
    let deployment = target.get(&format!("{DEPLOYMENTS}/d")).await.expect(200).body;
    assert_eq!(
        (&deployment["spec"]["replicas"], &deployment["metadata"]["generation"]),
        (&3.into(), &2.into())
    );
}

async fn a_scale_at_an_old_version_is_a_conflict(target: &Target) {
    let mut scale = deploy(target).await;
    let patch = json!({"metadata": {"labels": {"x": "y"}}});
    target.merge(&format!("{DEPLOYMENTS}/d"), &patch).await.expect(200);
    scale["spec"]["replicas"] = 3.into();
    let response = target.put(&format!("{DEPLOYMENTS}/d/scale"), &scale).await;
    response.expect_error(409, "Conflict", "the object has been modified");
}

async fn a_negative_scale_is_refused(target: &Target) {
    deploy(target).await;
    let response = target.merge(&format!("{DEPLOYMENTS}/d/scale"), &json!({"spec": {"replicas": -1}})).await;
    response.expect_error(
        422,
        "Invalid",
        "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
    );
}

async fn a_pod_that_runs_gets_debugging_containers(target: &Target) {
    target.make_pod("p").await;
    let debugger = json!({"name": "debug", "image": "registry.example/debug:1"});
    let patch = json!({"spec": {"ephemeralContainers": [debugger]}});
    let pod = target.strategic("$ns/pods/p/ephemeralcontainers", &patch).await.expect(200).body;
    assert_eq!(pod["spec"]["ephemeralContainers"][0]["name"], "debug");
}

async fn a_pod_keeps_its_containers(target: &Target) {
    target.make_pod("p").await;
    let image = |image: &str| json!({"spec": {"containers": [{"name": "app", "image": image}]}});
    target.strategic("$ns/pods/p", &image("registry.example/app:2")).await.expect(200);
    let command = json!({"spec": {"containers": [{"name": "app", "command": ["sh"]}]}});
    let response = target.strategic("$ns/pods/p", &command).await;
    response.expect_error(422, "Invalid", "spec: Forbidden: pod updates may not change fields other than");
}

async fn a_service_account_gets_a_token(target: &Target) {
    target.post("$ns/serviceaccounts", &json!({"metadata": {"name": "s"}})).await.expect(201);
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let response = target.post("$ns/serviceaccounts/s/token", &request).await.expect(201);
    assert_eq!(response.body["status"]["token"].as_str().unwrap().split('.').count(), 3);
}

async fn a_token_is_valid_for_its_audiences(target: &Target) {
    target.post("$ns/serviceaccounts", &json!({"metadata": {"name": "s"}})).await.expect(201);
    let request = json!({"spec": {"audiences": ["vault", "db"]}});
    let made = target.post("$ns/serviceaccounts/s/token", &request).await.expect(201).body;
    assert_eq!(made["spec"]["audiences"], json!(["vault", "db"]));
    let review = async |audiences: Value| {
        let review = json!({"spec": {"token": made["status"]["token"], "audiences": audiences}});
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        target.post(path, &review).await.expect(201).body["status"].clone()
    };
    let status = review(json!(["other", "db"])).await;
    assert_eq!((&status["authenticated"], &status["audiences"]), (&json!(true), &json!(["db"])));
    let user = format!("system:serviceaccount:{}:s", target.namespace);
    assert_eq!(
        (&status["user"]["username"], &status["user"]["uid"]),
        (&json!(user), &made["metadata"]["uid"])
    );
    for audiences in [json!([]), json!(["other"])] {
        let status = review(audiences).await;
        let error = status["error"].as_str().unwrap_or_default();
        let why =
            "[invalid bearer token, token audiences [\"vault\" \"db\"] is invalid for the target audiences [";
        assert!(status["authenticated"].is_null() && error.starts_with(why), "{status}");
    }
}

async fn a_token_is_valid_for_ten_minutes_at_least(target: &Target) {
    target.post("$ns/serviceaccounts", &json!({"metadata": {"name": "s"}})).await.expect(201);
    for (seconds, code) in [(599, 422), (600, 201), (4_294_967_296_u64, 201), (4_294_967_297, 422)] {
        let request = json!({"spec": {"expirationSeconds": seconds}});
        let response = target.post("$ns/serviceaccounts/s/token", &request).await.expect(code);
        let refusal = response.body["message"].as_str().unwrap_or_default();
        assert!(code == 201 || refusal.contains("spec.expirationSeconds: Invalid value"), "{refusal}");
    }
}

async fn a_limit_range_completes_pods(target: &Target) {
    let limits = json!([{"type": "Container", "defaultRequest": {"cpu": "100m"}}]);
    let range = json!({"metadata": {"name": "l"}, "spec": {"limits": limits}});
    target.post("$ns/limitranges", &range).await.expect(201);
    let pod = target.soon(async || {
        let pod = target.make_pod("p").await;
        let found = pod.pointer("/spec/containers/0/resources/requests/cpu").cloned();
        if found.is_none() {
            target.delete("$ns/pods/p").await.expect(200);
        }
        // kube-apiserver may need a moment to observe the limit range.
        found
    });
    assert_eq!(pod.await, "100m");
}

async fn a_quota_refuses_what_goes_beyond(target: &Target) {
    let hard = json!({"count/secrets": "1"});
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": hard}});
    target.post("$ns/resourcequotas", &quota).await.expect(201);
    // Sets the status that the quota controller would set.
    let status = json!({"status": {"hard": hard, "used": {"count/secrets": "0"}}});
    target.merge("$ns/resourcequotas/q/status", &status).await.expect(200);
    let refusal = target.soon(async || {
        let made = target.post("$things", &json!({"metadata": {"generateName": "made-"}})).await;
        (made.code != 201).then_some(made)
    });
    refusal.await.expect_error(403, "Forbidden", "exceeded quota: q");
}

async fn a_self_subject_access_review_returns_the_permission(target: &Target) {
    let attributes = json!({"namespace": target.namespace, "verb": "list", "resource": "secrets"});
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    });
    let response =
        target.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review).await.expect(201);
    assert_eq!(response.body["status"]["allowed"], true);
}
