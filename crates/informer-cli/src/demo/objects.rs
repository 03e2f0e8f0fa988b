//! Complete, valid API objects of the demo cluster.
//!
//! Pure constructors: all inputs are parameters.

use super::catalogue::{NAMESPACES, Planned, Program};
use informer_actors::{OUTCOME_ANNOTATION, PodOutcome, Random};
use jiff::Timestamp;
use serde_json::{Value, json};

/// The namespace of the Leases of nodes.
pub(super) const LEASE_NAMESPACE: &str = "kube-node-lease";

/// Formats a time for objects.
pub(super) fn time(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Formats a time for Leases.
pub(super) fn micro_time(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// The namespaces, and the nodes with their Leases.
pub(super) fn of_cluster(nodes: usize, now: Timestamp) -> impl Iterator<Item = Value> {
    let namespace =
        |name: &&str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let nodes = (0..nodes).flat_map(move |index| [node(index, now), lease(&node_name(index), now)]);
    NAMESPACES.iter().map(namespace).chain(nodes)
}

/// A deployment with its configuration, credentials and service.
pub(super) fn of_app(planned: &Planned, random: &mut Random) -> Vec<Value> {
    let Planned { program, name, replicas } = planned;
    let mut objects = vec![config_map(program, name, "info"), service(program, name)];
    if program.secret {
        objects.push(secret(program, name, &password(random)));
    }
    objects.push(deployment(program, name, *replicas));
    objects
}

/// Returns the name of the node with this index.
pub(super) fn node_name(index: usize) -> String {
    format!("node-{:02}", index + 1)
}

/// A ready node.
pub(super) fn node(index: usize, now: Timestamp) -> Value {
    let name = node_name(index);
    let zone = ["eu-1a", "eu-1b", "eu-1c"].get(index % 3).copied().unwrap_or_default();
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
            "topology.kubernetes.io/zone": zone,
        }},
        "spec": {},
        "status": {
            "conditions": node_conditions(true, now),
            "addresses": [
                {"type": "InternalIP", "address": format!("10.0.{}.{}", index / 250, index % 250 + 4)},
            ],
            "capacity": {"cpu": "16", "memory": "64Gi", "pods": "110"},
            "allocatable": {"cpu": "15800m", "memory": "62Gi", "pods": "110"},
            "nodeInfo": {
                "architecture": "amd64", "operatingSystem": "linux", "osImage": "Linux", "kernelVersion": "6.12.0",
                "kubeletVersion": "v1.36.4", "kubeProxyVersion": "", "containerRuntimeVersion": "containerd://2.1.0",
                "machineID": "", "systemUUID": "", "bootID": "",
            },
        },
    })
}

/// The conditions of a node that is ready or lost.
pub(super) fn node_conditions(ready: bool, now: Timestamp) -> Value {
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": time(now), "lastTransitionTime": time(now),
        })
    };
    let (status, reason, message) = if ready {
        ("True", "KubeletReady", "kubelet is posting ready status")
    } else {
        ("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
    };
    json!([
        condition(
            "MemoryPressure",
            "False",
            "KubeletHasSufficientMemory",
            "kubelet has sufficient memory available"
        ),
        condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        condition("Ready", status, reason, message),
    ])
}

pub(super) fn lease(node: &str, now: Timestamp) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": node, "namespace": LEASE_NAMESPACE},
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

pub(super) fn password(random: &mut Random) -> String {
    format!("{:016x}", random.next_u64())
}

/// A service; the server assigns its address.
fn service(program: &Program, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "namespace": program.namespace, "labels": {"app": name}},
        "spec": {
            "type": "ClusterIP", "selector": {"app": name},
            "ports": [{"name": "http", "port": 80, "targetPort": program.port, "protocol": "TCP"}],
        },
    })
}

fn deployment(program: &Program, name: &str, replicas: usize) -> Value {
    let container = container(program, (name, name), &program.image(0), "Always");
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": program.namespace, "labels": {"app": name}},
        "spec": {
            "replicas": replicas,
            "revisionHistoryLimit": 2,
            "selector": {"matchLabels": {"app": name}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
            "template": template(&json!({"app": name}), &container, "Always"),
        },
    })
}

/// Returns the patch that updates a deployment to an image, which can be pulled or not.
pub(super) fn update(program: &Program, name: &str, image: &str, can_be_pulled: bool) -> Value {
    let annotations =
        if can_be_pulled { Value::Null } else { json!({OUTCOME_ANNOTATION: PodOutcome::NoImage.name()}) };
    let container = container(program, (name, name), image, "Always");
    json!({"spec": {"template": {
        "metadata": {"annotations": annotations}, "spec": {"containers": [container]},
    }}})
}

/// A job for a program, deleted some time after its end. The pods of the job have another label than the pods of
/// the program, so that selectors of the program do not match them.
pub(super) fn job(program: &Program, task: &str) -> Value {
    let image = format!("registry.example.com/jobs/{task}:1.0.0");
    let container = container(program, (task, program.name), &image, "Never");
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "generateName": format!("{task}-"), "namespace": program.namespace, "labels": {"task": task},
        },
        "spec": {
            "completions": 1, "parallelism": 1, "backoffLimit": 3, "ttlSecondsAfterFinished": 45,
            "template": template(&json!({"task": task}), &container, "Never"),
        },
    })
}

fn template(labels: &Value, container: &Value, restart_policy: &str) -> Value {
    json!({
        "metadata": {"labels": labels},
        "spec": {
            "containers": [container], "restartPolicy": restart_policy, "dnsPolicy": "ClusterFirst",
            "schedulerName": "default-scheduler", "terminationGracePeriodSeconds": 30,
        },
    })
}

/// A container called `name`, which uses the configuration and the credentials of the deployment `app`.
fn container(program: &Program, (name, app): (&str, &str), image: &str, restart_policy: &str) -> Value {
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
    container
}
