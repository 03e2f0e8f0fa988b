//! Behaviour of kube-apiserver that the embedded server lacks and no other module covers. The page
//! "The embedded API server" of the book lists each statement.

use serde_json::{Value, json};

use crate::runner::statements;
use crate::targets::{DEFINITIONS, Target, pod, thing};

statements![
    a_weight_of_an_affinity_is_checked,
    a_user_of_a_security_context_is_checked,
    a_dns_server_must_be_an_address,
    a_metric_of_an_autoscaler_needs_its_source,
    an_autoscaler_of_version_1_has_other_metrics_in_an_annotation,
    a_policy_of_admission_is_enforced,
    a_rule_may_have_macros_of_two_variables,
    a_rule_with_an_unknown_function_is_refused,
    a_rule_that_may_cost_too_much_is_refused,
    a_rule_with_a_wrong_pattern_is_refused,
    a_field_that_is_null_is_not_one_that_is_absent,
    list_functions_support_sets,
    the_sum_of_no_numbers_is_of_their_type,
    too_many_digits_are_rejected,
    raw_data_keep_their_bytes_in_protobuf,
];

const AUTOSCALING: &str = "/apis/autoscaling/$version/namespaces/$name/horizontalpodautoscalers";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";

async fn a_weight_of_an_affinity_is_checked(target: &Target) {
    let term = json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]});
    let rule = json!([{"weight": 0, "preference": term}]);
    let affinity = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": rule}});
    let response = target.post("$ns/pods", &pod_with("affinity", affinity)).await;
    response.expect_error(422, "Invalid", "must be in the range 1-100");
}

async fn a_user_of_a_security_context_is_checked(target: &Target) {
    let response = target.post("$ns/pods", &pod_with("securityContext", json!({"runAsUser": -1}))).await;
    response.expect_error(422, "Invalid", "spec.securityContext.runAsUser: Invalid value: -1");
}

async fn a_dns_server_must_be_an_address(target: &Target) {
    let response = target.post("$ns/pods", &pod_with("dnsConfig", json!({"nameservers": ["dns"]}))).await;
    response.expect_error(422, "Invalid", "spec.dnsConfig.nameservers[0]: Invalid value: \"dns\"");
}

fn pod_with(field: &str, value: Value) -> Value {
    let mut pod = pod("p");
    pod["spec"][field] = value;
    pod
}

async fn a_metric_of_an_autoscaler_needs_its_source(target: &Target) {
    let response = target.post(&autoscalers("v2"), &autoscaler(&json!({"type": "Resource"}))).await;
    response.expect_error(422, "Invalid", "spec.metrics[0]");
}

async fn an_autoscaler_of_version_1_has_other_metrics_in_an_annotation(target: &Target) {
    let utilization = json!({"type": "Utilization", "averageUtilization": 50});
    let memory = json!({"type": "Resource", "resource": {"name": "memory", "target": utilization}});
    target.post(&autoscalers("v2"), &autoscaler(&memory)).await.expect(201);
    let old = target.get(&format!("{}/a", autoscalers("v1"))).await.expect(200).body;
    let metrics = &old["metadata"]["annotations"]["autoscaling.alpha.kubernetes.io/metrics"];
    assert!(metrics.is_string(), "the metrics are {metrics}");
}

fn autoscalers(version: &str) -> String {
    AUTOSCALING.replace("$version", version)
}

fn autoscaler(metric: &Value) -> Value {
    let reference = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"});
    let spec = json!({"maxReplicas": 2, "scaleTargetRef": reference, "metrics": [metric]});
    json!({"metadata": {"name": "a"}, "spec": spec})
}

async fn a_policy_of_admission_is_enforced(target: &Target) {
    let rule =
        json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"], "operations": ["CREATE"]});
    let here = json!({"matchLabels": {"kubernetes.io/metadata.name": target.namespace}});
    let spec = json!({
        "matchConstraints": {"namespaceSelector": here, "resourceRules": [rule]},
        "validations": [{"expression": "object.metadata.name != 'refused'"}],
    });
    target.post(POLICIES, &json!({"metadata": {"name": target.namespace}, "spec": spec})).await.expect(201);
    let spec = json!({"policyName": target.namespace, "validationActions": ["Deny"]});
    target.post(BINDINGS, &json!({"metadata": {"name": target.namespace}, "spec": spec})).await.expect(201);
    let refusal = target.soon(async || {
        let made = target.post("$things?dryRun=All", &thing("refused", "1")).await;
        (made.code != 201).then_some(made)
    });
    refusal.await.expect_error(422, "Invalid", "denied request: failed expression");
    target.delete(&format!("{BINDINGS}/$name")).await.expect(200);
    target.delete(&format!("{POLICIES}/$name")).await.expect(200);
}

async fn a_rule_may_have_macros_of_two_variables(target: &Target) {
    stored(target, "self.tags.all(index, tag, index < 3 || tag != '')").await.expect(201);
}

async fn a_rule_with_an_unknown_function_is_refused(target: &Target) {
    let response = stored(target, "math.greatest(1, 2) == 2").await;
    response.expect_error(422, "Invalid", "compilation failed");
}

async fn a_rule_that_may_cost_too_much_is_refused(target: &Target) {
    let response = stored(target, "self.tags.all(a, self.tags.all(b, self.tags.all(c, a + b != c)))").await;
    response.expect_error(422, "Invalid", "estimated rule cost exceeds budget");
}

async fn a_rule_with_a_wrong_pattern_is_refused(target: &Target) {
    let response = stored(target, "self.color.matches('[')").await;
    response.expect_error(422, "Invalid", "compilation failed");
}

async fn a_field_that_is_null_is_not_one_that_is_absent(target: &Target) {
    let object = json!({"type": "object", "properties": {"x": {"type": "string", "nullable": true}}});
    let fields = json!({"a": {"type": "array", "maxItems": 2, "items": object}});
    holds(target, fields, "self.a[0] != self.a[1]", json!({"a": [{"x": null}, {}]})).await;
}

async fn list_functions_support_sets(target: &Target) {
    let set = json!({
        "type": "array", "maxItems": 3, "items": {"type": "string", "maxLength": 3}, "x-kubernetes-list-type": "set",
    });
    let fields = json!({"a": set, "b": set});
    holds(target, fields, "[self.a].indexOf(self.b) == 0", json!({"a": ["x", "y"], "b": ["y", "x"]})).await;
}

async fn the_sum_of_no_numbers_is_of_their_type(target: &Target) {
    let numbers = json!({"type": "array", "maxItems": 3, "items": {"type": "number"}});
    holds(target, json!({"a": numbers}), "type(self.a.sum()) == double", json!({"a": []})).await;
}

async fn too_many_digits_are_rejected(target: &Target) {
    let fields = json!({"a": {"type": "number"}});
    holds(target, fields, "'%.40000f'.format([self.a]).size() < 100", json!({"a": 0.5})).await;
}

/// Fails unless the rule holds for an object with these fields.
async fn holds(target: &Target, fields: Value, rule: &str, spec: Value) {
    let rules = json!([{"rule": rule}]);
    let schema = json!({"type": "object", "properties": fields, "x-kubernetes-validations": rules});
    let path = target.define(|definition| *spec_of(definition) = schema).await;
    target.post(&path, &target.gadget("g", &spec)).await.expect(201);
}

fn spec_of(definition: &mut Value) -> &mut Value {
    definition.pointer_mut("/spec/versions/0/schema/openAPIV3Schema/properties/spec").unwrap()
}

/// Returns the response to a dry run of a definition with this rule.
async fn stored(target: &Target, rule: &str) -> crate::targets::Response {
    let mut definition = target.definition();
    let spec = spec_of(&mut definition);
    spec["properties"]["tags"] = json!({"type": "array", "items": {"type": "string"}});
    spec["x-kubernetes-validations"] = json!([{"rule": rule}]);
    target.post(&format!("{DEFINITIONS}?dryRun=All"), &definition).await
}

async fn raw_data_keep_their_bytes_in_protobuf(target: &Target) {
    let path = "/apis/apps/v1/namespaces/$name/controllerrevisions";
    let headers = [("accept", "application/json"), ("content-type", "application/json")];
    let body = br#"{"metadata": {"name": "a"}, "revision": 1, "data": {"b":  [ 1 ]}}"#;
    target.request("POST", path, &headers, body.to_vec()).await.expect(201);
    let response =
        target.get_as(&format!("{path}/a"), "application/vnd.kubernetes.protobuf").await.expect(200);
    let raw = br#"{"b":  [ 1 ]}"#;
    assert!(response.bytes.windows(raw.len()).any(|part| part == raw), "the bytes differ");
}
