//! Complete, valid API objects of the demo cluster.
//!
//! Pure constructors: all inputs are parameters.

use super::catalogue::Program;
use super::write::{Kind, ObjectId};
use jiff::Timestamp;
use serde_json::{Value, json};

/// A controlling owner.
#[derive(Debug, Clone)]
pub(super) struct Owner<'a> {
    pub(super) kind: Kind,
    pub(super) name: &'a str,
    pub(super) uid: &'a str,
}

/// Formats a time for objects.
pub(super) fn time(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Formats a time for Leases.
pub(super) fn micro_time(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

pub(super) fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

pub(super) fn node(name: &str, zone: &str, status: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
            "topology.kubernetes.io/zone": zone,
        }},
        "spec": {},
        "status": status,
    })
}

pub(super) fn lease(node: &str, now: Timestamp) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": node, "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": micro_time(now)},
    })
}

pub(super) fn config_map(program: &Program, name: &str, log_level: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": format!("{name}-config"), "namespace": program.namespace, "labels": {"app": name}},
        "data": {
            "LOG_LEVEL": log_level,
            "settings.yaml": format!("port: {}\ntimeout: 5s\nlog: {log_level}\n", program.port),
        },
    })
}

pub(super) fn secret(program: &Program, name: &str, password: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": format!("{name}-credentials"), "namespace": program.namespace, "labels": {"app": name}},
        "stringData": {"username": name, "password": password},
    })
}

/// A service; the server assigns its address.
pub(super) fn service(program: &Program, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "namespace": program.namespace, "labels": {"app": name}},
        "spec": {
            "type": "ClusterIP", "selector": {"app": name},
            "ports": [{"name": "http", "port": 80, "targetPort": program.port, "protocol": "TCP"}],
        },
    })
}

pub(super) fn deployment(program: &Program, name: &str, replicas: usize, image: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": program.namespace, "labels": {"app": name}},
        "spec": {
            "replicas": replicas,
            "revisionHistoryLimit": 2,
            "selector": {"matchLabels": {"app": name}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
            "template": template(program, (name, name), image, &json!({"app": name}), "Always"),
        },
    })
}

pub(super) fn replica_set(
    program: &Program,
    owner: &Owner<'_>,
    (hash, revision): (&str, u32),
    image: &str,
    replicas: usize,
) -> Value {
    let labels = json!({"app": owner.name, "pod-template-hash": hash});
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {
            "name": format!("{}-{hash}", owner.name), "namespace": program.namespace, "labels": labels,
            "annotations": {"deployment.kubernetes.io/revision": revision.to_string()},
            "ownerReferences": [reference(owner)],
        },
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": template(program, (owner.name, owner.name), image, &labels, "Always"),
        },
    })
}

/// A pod, scheduled or not.
pub(super) fn pod(
    program: &Program,
    owner: &Owner<'_>,
    (app, hash): (&str, &str),
    name: &str,
    image: &str,
    node: Option<&str>,
) -> Value {
    let is_job = owner.kind == Kind::Job;
    let template = if is_job {
        let labels = json!({"task": app, "batch.kubernetes.io/job-name": owner.name, "job-name": owner.name});
        template(program, (app, program.name), image, &labels, "Never")
    } else {
        template(program, (app, app), image, &json!({"app": app, "pod-template-hash": hash}), "Always")
    };
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "generateName": format!("{}-", owner.name), "namespace": program.namespace,
            "labels": template["metadata"]["labels"], "ownerReferences": [reference(owner)],
        },
        "spec": template["spec"],
    });
    if let Some(node) = node {
        pod["spec"]["nodeName"] = json!(node);
    }
    pod
}

/// A job for a program. The pods of the job have another label than the pods of the program, so that
/// selectors of the program do not match them.
pub(super) fn job(program: &Program, name: &str, task: &str, image: &str) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": program.namespace, "labels": {"task": task}},
        "spec": {
            "completions": 1, "parallelism": 1, "backoffLimit": 3,
            "template": template(program, (task, program.name), image, &json!({"task": task}), "Never"),
        },
    })
}

/// Contents of an Event object.
pub(super) struct EventDetails<'a> {
    pub(super) regarding: &'a ObjectId,
    /// The uid of the regarded object.
    pub(super) uid: &'a str,
    pub(super) reason: &'a str,
    pub(super) message: &'a str,
    pub(super) component: &'a str,
}

pub(super) fn event(name: &str, details: &EventDetails<'_>, now: Timestamp) -> Value {
    let EventDetails { regarding, uid, reason, message, component } = details;
    let is_warning = matches!(
        *reason,
        "BackOff" | "Failed" | "Evicted" | "FailedScheduling" | "OOMKilling" | "NodeNotReady" | "Unhealthy"
    );
    let namespace = if regarding.namespace.is_empty() { "default" } else { &regarding.namespace };
    json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": {
            "apiVersion": regarding.kind.api_version(), "kind": regarding.kind.name(),
            "namespace": regarding.namespace, "name": regarding.name, "uid": uid,
        },
        "reason": reason, "message": message, "type": if is_warning { "Warning" } else { "Normal" },
        "source": {"component": component}, "reportingComponent": component, "reportingInstance": "",
        "firstTimestamp": time(now), "lastTimestamp": time(now), "count": 1,
    })
}

fn reference(owner: &Owner<'_>) -> Value {
    json!({
        "apiVersion": owner.kind.api_version(), "kind": owner.kind.name(), "name": owner.name, "uid": owner.uid,
        "controller": true, "blockOwnerDeletion": true,
    })
}

/// A pod template with one container called `name`, which uses the configuration and the credentials of the
/// deployment `app`.
fn template(
    program: &Program,
    (name, app): (&str, &str),
    image: &str,
    labels: &Value,
    restart_policy: &str,
) -> Value {
    let mut environment = vec![json!({"configMapRef": {"name": format!("{app}-config")}})];
    if program.secret {
        environment.push(json!({"secretRef": {"name": format!("{app}-credentials")}}));
    }
    let mut container = json!({
        "name": name, "image": image, "imagePullPolicy": "IfNotPresent", "envFrom": environment,
        "resources": {
            "requests": {"cpu": program.cpu, "memory": program.memory}, "limits": {"memory": program.memory},
        },
    });
    if restart_policy == "Always" {
        container["ports"] = json!([{"name": "http", "containerPort": program.port, "protocol": "TCP"}]);
        container["readinessProbe"] =
            json!({"httpGet": {"path": "/healthz", "port": "http", "scheme": "HTTP"}, "periodSeconds": 5});
    }
    json!({
        "metadata": {"labels": labels},
        "spec": {
            "containers": [container], "restartPolicy": restart_policy, "dnsPolicy": "ClusterFirst",
            "schedulerName": "default-scheduler", "terminationGracePeriodSeconds": 30,
        },
    })
}
