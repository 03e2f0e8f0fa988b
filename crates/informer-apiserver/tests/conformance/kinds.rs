//! Behaviour of built-in kinds: names, addresses, classes, owners and limits.

use serde_json::{Value, json};

use crate::runner::statements;
use crate::targets::{Target, deployment, pod, thing};

statements![
    a_namespace_has_its_name_as_a_label,
    a_service_gets_an_address_and_keeps_it,
    a_service_without_an_address_has_none,
    an_address_of_a_service_is_assigned_once,
    a_node_port_is_assigned_once,
    a_port_that_is_out_of_range_is_refused,
    a_job_gets_its_own_selector,
    a_template_that_its_selector_does_not_match_is_refused,
    a_selector_of_a_deployment_cannot_change,
    a_pod_of_an_unknown_priority_is_refused,
    a_pod_without_containers_is_refused,
    a_pod_with_two_containers_of_one_name_is_refused,
    limits_become_requests,
    amounts_come_back_in_their_short_form,
    an_owner_without_a_uid_is_refused,
    two_controllers_are_refused,
    a_finalizer_must_have_a_domain,
    annotations_have_a_limit_together,
    a_secret_has_a_limit,
    a_body_has_a_limit,
    a_role_for_a_binding_cannot_change,
    a_lease_has_times_with_six_digits,
    an_event_must_be_in_the_namespace_of_what_it_is_about,
    a_node_has_no_namespace,
    strings_of_a_secret_become_bytes,
    bytes_that_are_no_base64_are_refused,
    keys_of_a_map_are_checked,
    a_cron_job_needs_a_schedule_that_can_be_read,
    a_claim_cannot_shrink,
    an_autoscaler_is_shown_in_both_versions,
];

async fn a_namespace_has_its_name_as_a_label(target: &Target) {
    let namespace = target.get("$ns").await.expect(200).body;
    assert_eq!(namespace["metadata"]["labels"]["kubernetes.io/metadata.name"], target.namespace);
    assert_eq!(
        (&namespace["status"]["phase"], &namespace["spec"]["finalizers"]),
        (&"Active".into(), &json!(["kubernetes"]))
    );
}

fn service(name: &str, mut spec: Value) -> Value {
    if spec["ports"].is_null() {
        spec["ports"] = json!([{"port": 80}]);
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

async fn a_service_gets_an_address_and_keeps_it(target: &Target) {
    let made = target.post("$ns/services", &service("s", json!({}))).await.expect(201).body;
    let address = made["spec"]["clusterIP"].as_str().unwrap();
    assert!(address.parse::<std::net::IpAddr>().is_ok());
    assert_eq!(made["spec"]["clusterIPs"], json!([address]));
    assert_eq!(
        (&made["spec"]["type"], &made["spec"]["sessionAffinity"]),
        (&"ClusterIP".into(), &"None".into())
    );
    let again =
        target.put("$ns/services/s", &service("s", json!({"selector": {"a": "b"}}))).await.expect(200);
    assert_eq!(again.body["spec"]["clusterIP"], *address);
}

async fn a_service_without_an_address_has_none(target: &Target) {
    let made =
        target.post("$ns/services", &service("s", json!({"clusterIP": "None"}))).await.expect(201).body;
    assert_eq!(made["spec"]["clusterIPs"], json!(["None"]));
}

async fn an_address_of_a_service_is_assigned_once(target: &Target) {
    let one = target.post("$ns/services", &service("s", json!({}))).await.expect(201).body;
    let same = json!({"clusterIP": one["spec"]["clusterIP"]});
    let two = target.post("$ns/services", &service("t", same)).await;
    two.expect_error(422, "Invalid", "provided IP is already allocated");
}

async fn a_node_port_is_assigned_once(target: &Target) {
    let one = target.post("$ns/services", &service("s", json!({"type": "NodePort"}))).await.expect(201).body;
    let port = one["spec"]["ports"][0]["nodePort"].as_u64().unwrap();
    assert!((30000..32768).contains(&port));
    let same = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]});
    let two = target.post("$ns/services", &service("t", same)).await;
    two.expect_error(422, "Invalid", "provided port is already allocated");
}

async fn a_port_that_is_out_of_range_is_refused(target: &Target) {
    let response = target.post("$ns/services", &service("s", json!({"ports": [{"port": 70000}]}))).await;
    response.expect_error(
        422,
        "Invalid",
        "spec.ports[0].port: Invalid value: 70000: must be between 1 and 65535, inclusive",
    );
}

async fn a_job_gets_its_own_selector(target: &Target) {
    let template = json!({"spec": {
        "restartPolicy": "Never", "containers": [{"name": "app", "image": "registry.example/app:1"}],
    }});
    let job = json!({"metadata": {"name": "j"}, "spec": {"suspend": true, "template": template}});
    let made = target.post("/apis/batch/v1/namespaces/$name/jobs", &job).await.expect(201).body;
    let uid = &made["metadata"]["uid"];
    assert_eq!(made["spec"]["selector"]["matchLabels"], json!({"batch.kubernetes.io/controller-uid": uid}));
    assert_eq!(made["spec"]["template"]["metadata"]["labels"]["job-name"], "j");
    assert_eq!((&made["spec"]["completions"], &made["spec"]["backoffLimit"]), (&1.into(), &6.into()));
}

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/$name/deployments";

async fn a_template_that_its_selector_does_not_match_is_refused(target: &Target) {
    let mut made = deployment("d");
    made["spec"]["template"]["metadata"]["labels"] = json!({"app": "other"});
    let response = target.post(DEPLOYMENTS, &made).await;
    response.expect_error(422, "Invalid", "`selector` does not match template `labels`");
}

async fn a_selector_of_a_deployment_cannot_change(target: &Target) {
    target.post(DEPLOYMENTS, &deployment("d")).await.expect(201);
    let change = json!({"spec": {
        "selector": {"matchLabels": {"x": "y"}}, "template": {"metadata": {"labels": {"x": "y"}}},
    }});
    let response = target.merge(&format!("{DEPLOYMENTS}/d"), &change).await;
    response.expect_error(422, "Invalid", "spec.selector: Invalid value:").expect_error(
        422,
        "Invalid",
        "field is immutable",
    );
}

/// Creates a modified pod.
async fn changed(target: &Target, change: impl Fn(&mut Value)) -> crate::targets::Response {
    let mut pod = pod("p");
    change(&mut pod);
    let made = target.until(async || {
        let made = target.post("$ns/pods", &pod).await;
        let no_account = made.body["message"].as_str().is_some_and(|why| why.contains("service account"));
        (!no_account).then_some(made)
    });
    made.await
}

async fn a_pod_of_an_unknown_priority_is_refused(target: &Target) {
    let response = changed(target, |pod| pod["spec"]["priorityClassName"] = "conformance-not".into()).await;
    response.expect_error(403, "Forbidden", "no PriorityClass with name conformance-not was found");
}

async fn a_pod_without_containers_is_refused(target: &Target) {
    let response = changed(target, |pod| pod["spec"]["containers"] = json!([])).await;
    response.expect_error(422, "Invalid", "spec.containers: Required value");
}

async fn a_pod_with_two_containers_of_one_name_is_refused(target: &Target) {
    let response = changed(target, |pod| {
        let container = pod["spec"]["containers"][0].clone();
        pod["spec"]["containers"].as_array_mut().unwrap().push(container);
    });
    response.await.expect_error(422, "Invalid", "spec.containers[1].name: Duplicate value: \"app\"");
}

async fn limits_become_requests(target: &Target) {
    let limits = json!({"limits": {"cpu": "1", "memory": "64Mi"}});
    let made = changed(target, |pod| pod["spec"]["containers"][0]["resources"] = limits.clone())
        .await
        .expect(201)
        .body;
    let resources = &made["spec"]["containers"][0]["resources"];
    assert_eq!(
        (&resources["requests"], &made["status"]["qosClass"]),
        (&resources["limits"], &"Guaranteed".into())
    );
}

async fn amounts_come_back_in_their_short_form(target: &Target) {
    let requests = json!({"requests": {"cpu": "0.5", "memory": "1024Mi", "example.com/x": "1000"}});
    let change = |pod: &mut Value| {
        pod["spec"]["containers"][0]["resources"] = requests.clone();
        pod["spec"]["containers"][0]["resources"]["limits"] = json!({"example.com/x": "1e3"});
    };
    let made = changed(target, change).await.expect(201).body;
    let expected = json!({"cpu": "500m", "memory": "1Gi", "example.com/x": "1k"});
    assert_eq!(made["spec"]["containers"][0]["resources"]["requests"], expected);
    assert_eq!(made["spec"]["containers"][0]["resources"]["limits"], json!({"example.com/x": "1e3"}));
}

fn owned(owners: Value) -> Value {
    let mut thing = thing("a", "1");
    thing["metadata"]["ownerReferences"] = owners;
    thing
}

async fn an_owner_without_a_uid_is_refused(target: &Target) {
    let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": ""}]);
    let response = target.post("$things", &owned(owner)).await;
    response.expect_error(
        422,
        "Invalid",
        "metadata.ownerReferences.uid: Invalid value: \"\": must not be empty",
    );
}

async fn two_controllers_are_refused(target: &Target) {
    let owner =
        |uid: &str| json!({"apiVersion": "v1", "kind": "Pod", "name": uid, "uid": uid, "controller": true});
    let response = target.post("$things", &owned(json!([owner("x"), owner("y")]))).await;
    response.expect_error(422, "Invalid", "Only one reference can have Controller set to true");
}

async fn a_finalizer_must_have_a_domain(target: &Target) {
    let mut thing = thing("a", "1");
    thing["metadata"]["finalizers"] = json!(["hold on"]);
    let response = target.post("$things", &thing).await;
    response.expect_error(422, "Invalid", "metadata.finalizers: Invalid value: \"hold on\"");
}

async fn annotations_have_a_limit_together(target: &Target) {
    let response = target.post("$things", &thing("a", &"x".repeat(262_144))).await;
    response.expect_error(
        422,
        "Invalid",
        "metadata.annotations: Too long: may not be more than 262144 bytes",
    );
}

async fn a_secret_has_a_limit(target: &Target) {
    let mut thing = thing("a", "1");
    thing["stringData"] = json!({"x": "y".repeat(1_048_577)});
    let response = target.post("$things", &thing).await;
    response.expect_error(422, "Invalid", "data: Too long: may not be more than 1048576 bytes");
}

async fn a_body_has_a_limit(target: &Target) {
    let mut thing = thing("a", "1");
    thing["stringData"] = json!({"x": "y".repeat(3_200_000)});
    let response = target.post("$things", &thing).await;
    response.expect_error(413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728");
}

async fn a_role_for_a_binding_cannot_change(target: &Target) {
    let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/$name/rolebindings";
    let role = |name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name});
    let binding = json!({"metadata": {"name": "b"}, "roleRef": role("r")});
    target.post(path, &binding).await.expect(201);
    let response = target.merge(&format!("{path}/b"), &json!({"roleRef": role("other")})).await;
    response.expect_error(422, "Invalid", "cannot change roleRef");
}

async fn a_lease_has_times_with_six_digits(target: &Target) {
    let path = "/apis/coordination.k8s.io/v1/namespaces/$name/leases";
    let lease = |time: &str| json!({"metadata": {"name": "l"}, "spec": {"renewTime": time}});
    target.post(path, &lease("2024-05-06T07:08:09Z")).await.expect(400);
    let made = target.post(path, &lease("2024-05-06T09:08:09.000000+02:00")).await.expect(201).body;
    assert_eq!(made["spec"]["renewTime"], "2024-05-06T07:08:09.000000Z");
}

async fn an_event_must_be_in_the_namespace_of_what_it_is_about(target: &Target) {
    let about = json!({"kind": "Pod", "name": "p", "namespace": "elsewhere"});
    let response =
        target.post("$ns/events", &json!({"metadata": {"name": "e"}, "involvedObject": about})).await;
    response.expect_error(422, "Invalid", "involvedObject.namespace");
}

async fn a_node_has_no_namespace(target: &Target) {
    target.get("$ns/nodes").await.expect_error(
        404,
        "NotFound",
        "the server could not find the requested resource",
    );
}

async fn strings_of_a_secret_become_bytes(target: &Target) {
    let mut thing = thing("a", "1");
    thing["data"] = json!({"x": "MQ==", "y": "MQ=="});
    thing["stringData"] = json!({"y": "two"});
    let made = target.post("$things", &thing).await.expect(201).body;
    assert_eq!((&made["data"], &made["stringData"]), (&json!({"x": "MQ==", "y": "dHdv"}), &Value::Null));
}

async fn bytes_that_are_no_base64_are_refused(target: &Target) {
    let mut thing = thing("a", "1");
    thing["data"] = json!({"x": "###"});
    target.post("$things", &thing).await.expect_error(
        400,
        "BadRequest",
        "illegal base64 data at input byte 0",
    );
}

async fn keys_of_a_map_are_checked(target: &Target) {
    let map = json!({"metadata": {"name": "m"}, "data": {"x": "1"}, "binaryData": {"x": "MQ=="}});
    let response = target.post("$ns/configmaps", &map).await;
    response.expect_error(
        422,
        "Invalid",
        "data[x]: Invalid value: \"x\": duplicate of key present in binaryData",
    );
}

async fn a_cron_job_needs_a_schedule_that_can_be_read(target: &Target) {
    let template = json!({"spec": {"template": {"spec": {
        "restartPolicy": "Never", "containers": [{"name": "app", "image": "registry.example/app:1"}],
    }}}});
    let job =
        json!({"metadata": {"name": "c"}, "spec": {"schedule": "now and then", "jobTemplate": template}});
    let response = target.post("/apis/batch/v1/namespaces/$name/cronjobs", &job).await;
    response.expect_error(422, "Invalid", "spec.schedule: Invalid value: \"now and then\"");
}

async fn a_claim_cannot_shrink(target: &Target) {
    let claim = json!({"metadata": {"name": "c"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "conformance-not",
        "resources": {"requests": {"storage": "2Gi"}},
    }});
    let made = target.post("$ns/persistentvolumeclaims", &claim).await.expect(201).body;
    assert_eq!(
        (&made["status"]["phase"], &made["spec"]["volumeMode"]),
        (&"Pending".into(), &"Filesystem".into())
    );
    let smaller = json!({"spec": {"resources": {"requests": {"storage": "1Gi"}}}});
    let response = target.merge("$ns/persistentvolumeclaims/c", &smaller).await;
    assert!(matches!(response.code, 403 | 422), "{response:?}");
}

async fn an_autoscaler_is_shown_in_both_versions(target: &Target) {
    let reference = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
    let scaler = json!({"metadata": {"name": "h"}, "spec": {
        "scaleTargetRef": reference, "maxReplicas": 3, "targetCPUUtilizationPercentage": 50,
    }});
    target.post("/apis/autoscaling/v1/namespaces/$name/horizontalpodautoscalers", &scaler).await.expect(201);
    let two =
        target.get("/apis/autoscaling/v2/namespaces/$name/horizontalpodautoscalers/h").await.expect(200);
    assert_eq!(two.body["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 50);
}
