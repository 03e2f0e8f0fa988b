//! Defaults that depend on other fields of the same object: one function per type, which sets them in place.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::super::value::{lacks, list, object_in, set_if_absent, set_if_empty, text};
use super::Rule;

pub(super) const RULES: &[(&str, Rule)] = &[
    ("core.v1.Pod", pod),
    ("core.v1.PodSpec", pod_spec),
    ("core.v1.Container", container),
    ("core.v1.EphemeralContainer", container),
    ("core.v1.Volume", volume),
    ("core.v1.ReplicationController", replication_controller),
    ("core.v1.ServiceSpec", service_spec),
    ("core.v1.Service", service),
    ("core.v1.Namespace", namespace),
    ("core.v1.Secret", secret),
    ("core.v1.NodeSpec", node_spec),
    ("core.v1.NodeStatus", node_status),
    ("core.v1.PodStatus", pod_status),
    ("core.v1.LimitRangeItem", limit_range_item),
    ("apps.v1.DeploymentStrategy", rolling_update),
    ("apps.v1.DaemonSetUpdateStrategy", rolling_update),
    ("apps.v1.StatefulSetUpdateStrategy", stateful_set_strategy),
    ("apps.v1.StatefulSetSpec", stateful_set_spec),
    ("batch.v1.Job", job),
    ("networking.v1.NetworkPolicySpec", network_policy_spec),
    ("rbac.v1.Subject", subject),
    ("resource.v1.ExactDeviceRequest", device_request),
    ("resource.v1.DeviceSubRequest", device_request),
    ("autoscaling.v2.HorizontalPodAutoscalerBehavior", behavior),
    ("apiextensions.v1.CustomResourceDefinition", definition),
    ("apiextensions.v1.CustomResourceDefinitionNames", definition_names),
];

/// Sets the defaults of pods that pod templates do not have.
fn pod(fields: &mut Map<String, Value>) {
    let spec = object_in(fields, "spec");
    for list in ["containers", "initContainers"] {
        let Some(containers) = spec.get_mut(list).and_then(Value::as_array_mut) else { continue };
        for container in containers.iter_mut().filter_map(Value::as_object_mut) {
            set_requests_from_limits(container);
        }
    }
    set_pod_level_requests(spec);
    set_if_absent(spec, "enableServiceLinks", true);
    let grace = "terminationGracePeriodSeconds";
    if spec.get(grace).and_then(Value::as_i64).is_some_and(|seconds| seconds < 0) {
        spec.insert(grace.to_owned(), 1.into());
    }
    if spec.get("hostNetwork").and_then(Value::as_bool) == Some(true) {
        set_host_ports(spec);
    }
}

/// Sets requests to the limits where only a limit is given.
fn set_requests_from_limits(container: &mut Map<String, Value>) {
    let resources = object_in(container, "resources");
    let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else { return };
    let requests = object_in(resources, "requests");
    for (name, quantity) in limits {
        requests.entry(name).or_insert(quantity);
    }
}

fn set_pod_level_requests(spec: &mut Map<String, Value>) {
    let Some(resources) = spec.get_mut("resources").and_then(Value::as_object_mut) else { return };
    let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else { return };
    let supported = |name: &str| matches!(name, "cpu" | "memory") || name.starts_with("hugepages-");
    for (name, quantity) in limits.into_iter().filter(|(name, _)| supported(name)) {
        object_in(resources, "requests").entry(name).or_insert(quantity);
    }
}

/// Sets host ports: on the host network they equal the container ports.
fn set_host_ports(spec: &mut Map<String, Value>) {
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for container in containers {
            let ports = container.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten();
            for port in ports.filter_map(Value::as_object_mut) {
                if let Some(number) = port.get("containerPort").cloned() {
                    set_if_empty(port, "hostPort", number);
                }
            }
        }
    }
}

/// Synchronizes `serviceAccountName` and the deprecated `serviceAccount`; the former takes precedence.
fn pod_spec(fields: &mut Map<String, Value>) {
    if lacks(fields, "serviceAccountName")
        && let Some(old) = fields.get("serviceAccount").cloned()
    {
        fields.insert("serviceAccountName".to_owned(), old);
    }
    if let Some(name) = fields.get("serviceAccountName").cloned() {
        fields.insert("serviceAccount".to_owned(), name);
    }
}

fn container(fields: &mut Map<String, Value>) {
    let policy = pull_policy(fields.get("image").and_then(Value::as_str).unwrap_or_default());
    set_if_empty(fields, "imagePullPolicy", policy);
}

fn volume(fields: &mut Map<String, Value>) {
    if fields.keys().all(|field| field == "name") {
        fields.insert("emptyDir".to_owned(), json!({}));
    }
    if let Some(image) = fields.get_mut("image").and_then(Value::as_object_mut) {
        let policy = pull_policy(image.get("reference").and_then(Value::as_str).unwrap_or_default());
        set_if_empty(image, "pullPolicy", policy);
    }
}

/// Returns `Always` for the tag `latest` and for a valid name without tag and digest, else `IfNotPresent`.
fn pull_policy(image: &str) -> &'static str {
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    let last = name.rsplit('/').next().unwrap_or_default();
    let has_name = !name.is_empty() && !last.is_empty();
    match last.split_once(':') {
        Some((_, "latest")) => "Always",
        None if digest.is_none() && has_name && !name.contains(|c: char| c.is_whitespace()) => "Always",
        _ => "IfNotPresent",
    }
}

fn replication_controller(fields: &mut Map<String, Value>) {
    let labels = fields.get("spec").and_then(|spec| spec.pointer("/template/metadata/labels")).cloned();
    if let Some(labels) = labels {
        set_if_empty(object_in(fields, "spec"), "selector", labels.clone());
        set_if_empty(object_in(fields, "metadata"), "labels", labels);
    }
}

fn service_spec(fields: &mut Map<String, Value>) {
    set_if_empty(fields, "sessionAffinity", "None");
    set_if_empty(fields, "type", "ClusterIP");
    match fields.get("sessionAffinity").and_then(Value::as_str) {
        Some("None") => {
            fields.remove("sessionAffinityConfig");
        }
        Some("ClientIP") => {
            let config = fields.get("sessionAffinityConfig");
            if config.and_then(|config| config.pointer("/clientIP/timeoutSeconds")).is_none() {
                let config = json!({"clientIP": {"timeoutSeconds": 10800}});
                fields.insert("sessionAffinityConfig".to_owned(), config);
            }
        }
        _ => {}
    }
    let ports = fields.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten();
    for port in ports.filter_map(Value::as_object_mut) {
        let number = port.get("port").cloned().unwrap_or_else(|| 0.into());
        set_if_empty(port, "targetPort", number);
    }
    let kind = fields.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    let is_external = kind == "NodePort"
        || kind == "LoadBalancer"
        || (kind == "ClusterIP" && !lacks(fields, "externalIPs"));
    if is_external {
        set_if_empty(fields, "externalTrafficPolicy", "Cluster");
    }
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer" | "ClusterIP") {
        set_if_absent(fields, "internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        set_if_absent(fields, "allocateLoadBalancerNodePorts", true);
    }
}

fn service(fields: &mut Map<String, Value>) {
    let has_load_balancer = fields.get("spec").is_some_and(|spec| text(spec, "type") == "LoadBalancer");
    if !has_load_balancer {
        return;
    }
    let Some(status) = fields.get_mut("status") else { return };
    for ingress in super::super::value::list_mut(status, "loadBalancer.ingress") {
        if let Some(ingress) = ingress.as_object_mut().filter(|ingress| !lacks(ingress, "ip")) {
            set_if_absent(ingress, "ipMode", "VIP");
        }
    }
}

fn namespace(fields: &mut Map<String, Value>) {
    let metadata = object_in(fields, "metadata");
    if let Some(name) = metadata.get("name").filter(|name| name.as_str().is_some_and(|name| !name.is_empty()))
    {
        let name = name.clone();
        object_in(metadata, "labels").insert("kubernetes.io/metadata.name".to_owned(), name);
    }
}

/// Moves `stringData` into `data`.
fn secret(fields: &mut Map<String, Value>) {
    let Some(Value::Object(plain)) = fields.remove("stringData") else { return };
    let data = object_in(fields, "data");
    for (key, text) in plain {
        data.insert(key, STANDARD.encode(text.as_str().unwrap_or_default()).into());
    }
}

/// Synchronizes `podCIDR` and the first of `podCIDRs`; the list takes precedence.
fn node_spec(fields: &mut Map<String, Value>) {
    if let Some(range) = fields.get("podCIDR").cloned() {
        set_if_empty(fields, "podCIDRs", json!([range]));
    }
    if let Some(first) = fields.get("podCIDRs").and_then(|all| all.get(0)).cloned() {
        fields.insert("podCIDR".to_owned(), first);
    }
}

/// Synchronizes `podIP` and the first of `podIPs`; `podIP` takes precedence.
fn pod_status(fields: &mut Map<String, Value>) {
    let first = fields.get("podIPs").and_then(|all| all.pointer("/0/ip"));
    if let Some(address) = fields.get("podIP").filter(|_| !lacks(fields, "podIP")).cloned()
        && first != Some(&address)
    {
        fields.insert("podIPs".to_owned(), json!([{"ip": address}]));
    }
    if let Some(first) = fields.get("podIPs").and_then(|all| all.pointer("/0/ip")).cloned() {
        fields.insert("podIP".to_owned(), first);
    }
}

fn node_status(fields: &mut Map<String, Value>) {
    if let Some(capacity) = fields.get("capacity").cloned() {
        set_if_empty(fields, "allocatable", capacity);
    }
}

fn limit_range_item(fields: &mut Map<String, Value>) {
    if fields.get("type").and_then(Value::as_str) != Some("Container") {
        return;
    }
    for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
        let Some(quantities) = fields.get(from).and_then(Value::as_object).cloned() else { continue };
        let target = object_in(fields, to);
        for (name, quantity) in quantities {
            target.entry(name).or_insert(quantity);
        }
    }
}

fn rolling_update(fields: &mut Map<String, Value>) {
    set_if_empty(fields, "type", "RollingUpdate");
    if fields.get("type").and_then(Value::as_str) == Some("RollingUpdate") {
        set_if_absent(fields, "rollingUpdate", json!({}));
    }
}

fn stateful_set_strategy(fields: &mut Map<String, Value>) {
    if lacks(fields, "type") {
        fields.insert("type".to_owned(), "RollingUpdate".into());
        set_if_absent(fields, "rollingUpdate", json!({}));
    }
    if fields.get("type").and_then(Value::as_str) != Some("RollingUpdate") {
        return;
    }
    if let Some(rolling) = fields.get_mut("rollingUpdate").and_then(Value::as_object_mut) {
        set_if_absent(rolling, "partition", 0);
    }
}

/// Sets `apiVersion` and `kind` of volume claim templates.
fn stateful_set_spec(fields: &mut Map<String, Value>) {
    let templates =
        fields.get_mut("volumeClaimTemplates").and_then(Value::as_array_mut).into_iter().flatten();
    for template in templates.filter_map(Value::as_object_mut) {
        template.insert("apiVersion".to_owned(), "v1".into());
        template.insert("kind".to_owned(), "PersistentVolumeClaim".into());
    }
}

fn job(fields: &mut Map<String, Value>) {
    let labels = fields.get("spec").and_then(|spec| spec.pointer("/template/metadata/labels")).cloned();
    if let Some(labels) = labels {
        set_if_empty(object_in(fields, "metadata"), "labels", labels);
    }
    let spec = object_in(fields, "spec");
    if !spec.contains_key("completions") && !spec.contains_key("parallelism") {
        spec.insert("completions".to_owned(), 1.into());
    }
    let limit = if spec.contains_key("backoffLimitPerIndex") { i32::MAX } else { 6 };
    set_if_absent(spec, "backoffLimit", limit);
    set_if_absent(spec, "parallelism", 1);
    set_if_absent(spec, "completionMode", "NonIndexed");
    set_if_absent(spec, "suspend", false);
    set_if_absent(spec, "manualSelector", false);
    let replacement = if spec.contains_key("podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    set_if_absent(spec, "podReplacementPolicy", replacement);
}

fn network_policy_spec(fields: &mut Map<String, Value>) {
    let types = if lacks(fields, "egress") { json!(["Ingress"]) } else { json!(["Ingress", "Egress"]) };
    set_if_empty(fields, "policyTypes", types);
}

fn subject(fields: &mut Map<String, Value>) {
    if matches!(fields.get("kind").and_then(Value::as_str), Some("User" | "Group")) {
        set_if_empty(fields, "apiGroup", "rbac.authorization.k8s.io");
    }
}

fn device_request(fields: &mut Map<String, Value>) {
    set_if_empty(fields, "allocationMode", "ExactCount");
    if fields.get("allocationMode").and_then(Value::as_str) == Some("ExactCount") {
        set_if_empty(fields, "count", 1);
    }
}

fn behavior(fields: &mut Map<String, Value>) {
    let up = object_in(fields, "scaleUp");
    set_if_absent(up, "stabilizationWindowSeconds", 0);
    set_if_absent(up, "selectPolicy", "Max");
    let doubling = json!([
        {"type": "Pods", "value": 4, "periodSeconds": 15},
        {"type": "Percent", "value": 100, "periodSeconds": 15},
    ]);
    set_if_absent(up, "policies", doubling);
    let down = object_in(fields, "scaleDown");
    set_if_absent(down, "selectPolicy", "Max");
    set_if_absent(down, "policies", json!([{"type": "Percent", "value": 100, "periodSeconds": 15}]));
}

fn definition(fields: &mut Map<String, Value>) {
    let spec = fields.get("spec").cloned().unwrap_or_default();
    let stored = list(&spec, "versions").iter().find(|version| super::super::value::flag(version, "storage"));
    if let Some(version) = stored {
        let name = text(version, "name").to_owned();
        set_if_empty(object_in(fields, "status"), "storedVersions", json!([name]));
    }
}

fn definition_names(fields: &mut Map<String, Value>) {
    let kind = fields.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    if kind.is_empty() {
        return;
    }
    set_if_empty(fields, "singular", kind.to_lowercase());
    set_if_empty(fields, "listKind", format!("{kind}List"));
}
