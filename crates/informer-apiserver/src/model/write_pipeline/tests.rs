//! Writes of kinds with special rules.

use informer_objects::patch::PatchKind;
use informer_objects::status::Status;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::write_context::{WriteContext, WriteOrigin};
use super::super::write_target::WriteTarget;
use super::Model;

/// A model whose objects are addressed by `plural` or `group/plural`, in a single namespace.
struct Server {
    model: Model,
}

impl Server {
    fn new() -> Self {
        Server { model: Model::new(Timestamp::UNIX_EPOCH, 1, super::super::HistoryLimits::default()) }
    }

    fn context() -> WriteContext {
        WriteContext::at(Timestamp::UNIX_EPOCH, "test")
    }

    fn resource(&self, resource: &str) -> (super::VersionedResource, &'static str) {
        let (group, version, plural) = match resource.split('/').collect::<Vec<_>>()[..] {
            [group, plural] => (group.to_owned(), "v1", plural.to_owned()),
            _ => (String::new(), "v1", resource.to_owned()),
        };
        let gvr = self.model.registry().resource(&group, version, &plural).unwrap();
        let namespaced = self.model.resource(gvr.id).unwrap().namespaced;
        (gvr, if namespaced { "default" } else { "" })
    }

    fn create(&mut self, resource: &str, object: Value) -> Result<Value, Status> {
        let (gvr, namespace) = self.resource(resource);
        let result = self.model.create(&Self::context(), gvr, namespace, object, WriteOrigin::Internal)?;
        Ok(result.state.decode())
    }

    fn put(&mut self, resource: &str, target: WriteTarget, object: Value) -> Result<Value, Status> {
        let (gvr, namespace) = self.resource(resource);
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let key = (namespace, name.as_str());
        let result = self.model.update(&Self::context(), gvr, key, target, object, WriteOrigin::Internal)?;
        Ok(result.state.decode())
    }

    fn patch(
        &mut self,
        resource: &str,
        name: &str,
        target: WriteTarget,
        patch: &Value,
    ) -> Result<Value, Status> {
        self.patch_as(PatchKind::Strategic, resource, name, target, patch)
    }

    fn patch_as(
        &mut self,
        kind: PatchKind,
        resource: &str,
        name: &str,
        target: WriteTarget,
        patch: &Value,
    ) -> Result<Value, Status> {
        let (gvr, namespace) = self.resource(resource);
        let bytes = patch.to_string();
        let result =
            self.model.patch(&Self::context(), gvr, (namespace, name), target, kind, bytes.as_bytes())?;
        Ok(result.state.decode())
    }
}

fn pod(name: &str, resources: &Value) -> Value {
    let container = json!({"name": "c", "image": "example/c:1", "resources": resources});
    json!({"metadata": {"name": name}, "spec": {"containers": [container]}})
}

/// Returns the causes of an error, one per line.
fn causes(refused: Result<Value, Status>) -> String {
    let status = refused.unwrap_err();
    let json: Value = serde_json::from_slice(&status.to_json()).unwrap();
    let all = json["details"]["causes"].as_array().into_iter().flatten();
    let line = |cause: &Value| {
        format!("{}: {}", cause["field"].as_str().unwrap(), cause["message"].as_str().unwrap())
    };
    all.map(line).collect::<Vec<_>>().join("\n")
}

/// Regression: every change through `ephemeralcontainers` was rejected with "pod updates may not change
/// fields other than".
#[test]
fn ephemeral_containers_can_be_added_only() {
    let mut server = Server::new();
    server.create("pods", pod("p", &json!({}))).unwrap();
    let debug = |image: &str| json!({"spec": {"ephemeralContainers": [{"name": "dbg", "image": image}]}});
    let target = WriteTarget::EphemeralContainers;
    for kind in [PatchKind::Strategic, PatchKind::Apply] {
        let mut patch = debug("busybox");
        patch["metadata"] = json!({"name": "p", "labels": {"not": "taken"}});
        (patch["apiVersion"], patch["kind"]) = (json!("v1"), json!("Pod"));
        let pod = server.patch_as(kind, "pods", "p", target, &patch).unwrap();
        assert_eq!(pod["metadata"]["generation"], 2, "the generation must increase once");
        let container = &pod["spec"]["ephemeralContainers"][0];
        assert_eq!((&container["name"], &container["imagePullPolicy"]), (&json!("dbg"), &json!("Always")));
        assert_eq!(pod["metadata"].get("labels"), None);
    }
    let changed = causes(server.patch("pods", "p", target, &debug("other")));
    let expected =
        "spec.ephemeralContainers: Forbidden: existing ephemeral containers \"dbg\" may not be changed";
    assert_eq!(changed, expected);
    let removed = causes(server.put("pods", target, pod("p", &json!({}))));
    let expected =
        "spec.ephemeralContainers: Forbidden: existing ephemeral containers \"dbg\" may not be removed\n";
    assert_eq!(removed, expected);
    let wrong = json!({"spec": {"ephemeralContainers": [
        {"name": "c", "image": "i", "targetContainerName": "x", "ports": [{"containerPort": 1}]},
    ]}});
    let expected = "spec.ephemeralContainers[0].name: Duplicate value: \"c\"\n\
                spec.ephemeralContainers[0].targetContainerName: Not found: \"x\"\n\
                spec.ephemeralContainers[0].ports: Forbidden: cannot be set for an Ephemeral Container";
    assert_eq!(causes(server.patch("pods", "p", target, &wrong)), expected);
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    server.patch("pods", "p", WriteTarget::Object, &label).unwrap();
}

/// Regression: every change through `resize` was rejected with "pod updates may not change fields other
/// than".
#[test]
fn resize_must_not_change_qos_class() {
    let mut server = Server::new();
    let sent = pod("p", &json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "1"}}));
    server.create("pods", sent).unwrap();
    let resources =
        |resources: Value| json!({"spec": {"containers": [{"name": "c", "resources": resources}]}});
    let mut resize = |patch: &Value| server.patch("pods", "p", WriteTarget::Resize, patch);
    let pod = resize(&resources(json!({"requests": {"cpu": "500m"}}))).unwrap();
    assert_eq!(pod["metadata"]["generation"], 2);
    let expected = json!({"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}});
    assert_eq!(pod["spec"]["containers"][0]["resources"], expected);
    let all = json!({"cpu": "1", "memory": "1Gi"});
    let guaranteed = causes(resize(&resources(json!({"requests": all, "limits": all}))));
    assert_eq!(
        guaranteed,
        "spec: Invalid value: \"Burstable\": Pod QOS Class may not change as a result of resizing"
    );
    let storage = causes(resize(&resources(json!({"requests": {"ephemeral-storage": "1"}}))));
    assert_eq!(storage, "spec: Forbidden: only cpu and memory resources are mutable");
    let removed = causes(resize(&resources(json!({"requests": {"cpu": null}, "limits": {"cpu": null}}))));
    assert!(
        removed.contains("spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed")
    );
    let other = json!({"spec": {"containers": [{"name": "d", "image": "i"}]}});
    let added = causes(resize(&other));
    assert!(added.contains("spec.containers: Forbidden: containers may not be added or removed on resize"));
    // Other fields of the spec are ignored.
    let image = resize(&json!({"spec": {"containers": [{"name": "c", "image": "other"}]}})).unwrap();
    assert_eq!(image["spec"]["containers"][0]["image"], "example/c:1");
    assert_eq!(image["metadata"]["generation"], 2);
}

/// Regression: the labels of a job were set at its first update, and owned by the manager of that update.
#[test]
fn job_gets_labels_of_its_pods_on_create() {
    let mut server = Server::new();
    let template = json!({"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}});
    let job = json!({"metadata": {"name": "j"}, "spec": {"template": template}});
    let job = server.create("batch/jobs", job).unwrap();
    assert_eq!(job["metadata"]["labels"]["job-name"], "j");
    assert_eq!(job["metadata"]["labels"], job["spec"]["template"]["metadata"]["labels"]);
    assert_eq!(job["metadata"]["labels"].as_object().unwrap().len(), 4);
    let suspended =
        server.patch("batch/jobs", "j", WriteTarget::Object, &json!({"spec": {"suspend": true}})).unwrap();
    assert!(!suspended["metadata"]["managedFields"].to_string().contains("f:labels"));
}

/// Regression: writing back an unchanged certificate signing request was rejected because its `spec`
/// differed.
#[test]
fn unchanged_signing_request_can_be_written_back() {
    let mut server = Server::new();
    let request = json!({"metadata": {"name": "r"}, "spec": {
        "request": "eA==", "signerName": "example.com/x", "usages": ["client auth"],
        "extra": {"k": ["v"]}, "uid": "mine",
    }});
    let requests = "certificates.k8s.io/certificatesigningrequests";
    let stored = server.create(requests, request.clone()).unwrap();
    let again = server.put(requests, WriteTarget::Object, request).unwrap();
    assert_eq!(again["spec"], stored["spec"]);
}

/// Regression: changing the labels of an endpoint slice did not increase its generation.
#[test]
fn label_change_increases_generation_of_endpoint_slice() {
    let mut server = Server::new();
    let slice = json!({"metadata": {"name": "s"}, "addressType": "IPv4", "endpoints": []});
    server.create("discovery.k8s.io/endpointslices", slice).unwrap();
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    let slice = server.patch("discovery.k8s.io/endpointslices", "s", WriteTarget::Object, &patch).unwrap();
    assert_eq!(slice["metadata"]["generation"], 2);
}

fn status(fields: &Value) -> Value {
    json!({"status": fields})
}

/// Returns a server with one object named `x` of several kinds that have a status.
fn with_one_of_each() -> Server {
    let mut server = Server::new();
    let spec = json!({
        "selector": {"matchLabels": {"a": "b"}}, "serviceName": "s",
        "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        },
    });
    let stateful_set = json!({"metadata": {"name": "x"}, "spec": spec});
    let mut deployment = stateful_set.clone();
    deployment["spec"].as_object_mut().unwrap().remove("serviceName");
    server.create("apps/deployments", deployment.clone()).unwrap();
    server.create("apps/replicasets", deployment).unwrap();
    server.create("apps/statefulsets", stateful_set).unwrap();
    let budget = json!({"metadata": {"name": "x"}, "spec": {"minAvailable": 1, "selector": {}}});
    server.create("policy/poddisruptionbudgets", budget).unwrap();
    let service =
        json!({"metadata": {"name": "x"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 1}]}});
    server.create("services", service).unwrap();
    let template = json!({"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}});
    server.create("batch/jobs", json!({"metadata": {"name": "x"}, "spec": {"template": template}})).unwrap();
    server
}

/// Regression: a status was hardly validated; for example, more replicas could be ready than exist.
#[test]
fn invalid_status_is_rejected() {
    let mut server = with_one_of_each();
    let complete = json!([{"type": "Complete", "status": "True"}]);
    for (resource, fields, expected) in [
        (
            "apps/deployments",
            json!({"replicas": 1, "readyReplicas": 2}),
            "status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas",
        ),
        (
            "apps/deployments",
            json!({"availableReplicas": -1}),
            "status.availableReplicas: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            "apps/replicasets",
            json!({"replicas": 1, "fullyLabeledReplicas": 2}),
            "status.fullyLabeledReplicas: Invalid value: 2: cannot be greater than status.replicas",
        ),
        (
            "apps/statefulsets",
            json!({"replicas": 0, "observedGeneration": -1}),
            "status.observedGeneration: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            "policy/poddisruptionbudgets",
            json!({"disruptionsAllowed": -1}),
            "status.disruptionsAllowed: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            "services",
            json!({"loadBalancer": {"ingress": [{"ip": "x"}]}}),
            "status.loadBalancer.ingress[0].ip: Invalid value: \"x\": must be a valid IP address, \
             (e.g. 10.9.8.7 or 2001:db8::ffff)",
        ),
        (
            "batch/jobs",
            json!({"conditions": complete, "active": 1}),
            "status.completionTime: Required value: completionTime is required for Complete jobs\n\
             status.conditions: Invalid value: cannot set Complete=True condition without the \
             SuccessCriteriaMet=true condition\n\
             status.active: Invalid value: 1: active>0 is invalid for finished job\n\
             status.startTime: Required value: startTime is required for finished job",
        ),
    ] {
        let refused = server.patch_as(PatchKind::Merge, resource, "x", WriteTarget::Status, &status(&fields));
        assert_eq!(causes(refused), expected, "{resource} {fields}");
    }
    let good = json!({"replicas": 2, "readyReplicas": 2, "observedGeneration": 1});
    server.patch("apps/deployments", "x", WriteTarget::Status, &status(&good)).unwrap();
}

/// Regression: replacing the status of a pod removed its `QoS` class, and a patch replaced its first address.
#[test]
fn pod_status_keeps_qos_class_and_first_address() {
    let mut server = Server::new();
    let mut sent = pod("p", &json!({}));
    sent["spec"]["terminationGracePeriodSeconds"] = json!(-5);
    let created = server.create("pods", sent).unwrap();
    assert_eq!(created["spec"]["terminationGracePeriodSeconds"], 1, "the minimum is one second");
    let mut replaced = created.clone();
    replaced["status"] = json!({"podIP": "1.2.3.4"});
    let replaced = server.put("pods", WriteTarget::Status, replaced).unwrap();
    assert_eq!(replaced["status"]["qosClass"], "BestEffort");
    let patch = status(&json!({"podIPs": [{"ip": "5.6.7.8"}]}));
    let patched = server.patch("pods", "p", WriteTarget::Status, &patch).unwrap();
    assert_eq!(patched["status"]["podIP"], "1.2.3.4");
    assert_eq!(patched["status"]["podIPs"], json!([{"ip": "1.2.3.4"}]));
    let other = server.patch("pods", "p", WriteTarget::Status, &status(&json!({"qosClass": "Guaranteed"})));
    assert_eq!(causes(other), "status.qosClass: Invalid value: \"Guaranteed\": field is immutable");
}

/// Regression: the server did not set the time of phase changes and conditions.
#[test]
fn phase_change_and_condition_get_a_time() {
    let mut server = Server::new();
    let spec = json!({
        "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/a"},
    });
    let volume = json!({"metadata": {"name": "v"}, "spec": spec});
    server.create("persistentvolumes", volume).unwrap();
    let phase = json!({"status": {"phase": "Bound", "lastPhaseTransitionTime": null}});
    let bound = server.patch("persistentvolumes", "v", WriteTarget::Status, &phase).unwrap();
    assert_eq!(bound["status"]["lastPhaseTransitionTime"], "1970-01-01T00:00:00Z");
    let mut gated = pod("p", &json!({}));
    gated["spec"]["schedulingGates"] = json!([{"name": "example.com/g"}]);
    let gated = server.create("pods", gated).unwrap();
    assert_eq!(gated["status"]["conditions"][0]["lastTransitionTime"], "1970-01-01T00:00:00Z");
}

/// Regression: these immutable fields could be changed.
#[test]
fn immutable_fields_cannot_be_changed() {
    let mut server = Server::new();
    let node = json!({"metadata": {"name": "n"}, "spec": {"providerID": "a", "podCIDRs": ["10.1.0.0/24"]}});
    server.create("nodes", node).unwrap();
    let other = json!({"spec": {"providerID": "b", "podCIDR": "10.2.0.0/24", "podCIDRs": ["10.2.0.0/24"]}});
    let refused = server.patch_as(PatchKind::Merge, "nodes", "n", WriteTarget::Object, &other);
    let expected = "spec.podCIDRs: Forbidden: node updates may not change podCIDR except from \"\" to valid\n\
                spec.providerID: Forbidden: node updates may not change providerID except from \"\" to valid";
    assert_eq!(causes(refused), expected);
    let spec = json!({
        "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/a"},
    });
    server.create("persistentvolumes", json!({"metadata": {"name": "v"}, "spec": spec})).unwrap();
    let other = json!({"spec": {"hostPath": {"path": "/b"}}});
    let refused = causes(server.patch("persistentvolumes", "v", WriteTarget::Object, &other));
    let expected =
        "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation";
    assert_eq!(refused, expected);
    let service = json!({"metadata": {"name": "s"}, "spec": {
        "type": "LoadBalancer", "loadBalancerClass": "example.com/a", "ports": [{"port": 1}],
    }});
    server.create("services", service).unwrap();
    let other = json!({"spec": {"loadBalancerClass": "example.com/b"}});
    let refused = server.patch("services", "s", WriteTarget::Object, &other);
    assert_eq!(
        causes(refused),
        "spec.loadBalancerClass: Invalid value: \"example.com/b\": may not change once set"
    );
    let refused =
        server.patch("services", "s", WriteTarget::Object, &json!({"spec": {"clusterIP": "10.0.0.99"}}));
    assert_eq!(
        causes(refused),
        "spec.clusterIPs[0]: Invalid value: [\"10.0.0.99\"]: may not change once set"
    );
}

/// Regression: a service that became an `ExternalName` kept its `internalTrafficPolicy`.
#[test]
fn external_name_service_has_no_traffic_policy() {
    let mut server = Server::new();
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 1}]}});
    server.create("services", service).unwrap();
    let name = json!({"spec": {"type": "ExternalName", "externalName": "a.example"}});
    let service = server.patch("services", "s", WriteTarget::Object, &name).unwrap();
    assert_eq!(service["spec"].get("internalTrafficPolicy"), None);
}

/// Regression: pods with missing classes, or with an explicit priority, were accepted.
#[test]
fn pod_priority_and_runtime_come_from_its_classes() {
    let mut server = Server::new();
    let mut forbidden = |field: &str, value: Value| {
        let mut sent = pod("p", &json!({}));
        sent["spec"][field] = value;
        server.create("pods", sent).unwrap_err().message
    };
    let expected = "pods \"p\" is forbidden: pod rejected: RuntimeClass \"nope\" not found";
    assert_eq!(forbidden("runtimeClassName", json!("nope")), expected);
    let expected = "pods \"p\" is forbidden: the integer value of priority (7) must not be provided in pod spec; \
                priority admission controller computed 0 from the given PriorityClass name";
    assert_eq!(forbidden("priority", json!(7)), expected);
    let expected = "pods \"p\" is forbidden: pod rejected: Pod Overhead set without corresponding RuntimeClass \
                defined Overhead";
    assert_eq!(forbidden("overhead", json!({"cpu": "1"})), expected);
    let class = json!({"metadata": {"name": "system-x"}, "value": 1});
    let refused = server.create("scheduling.k8s.io/priorityclasses", class);
    let expected = "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use \
                only. error: system-x is not a known system priority class";
    assert_eq!(causes(refused), expected);
    let (gvr, _) = server.resource("scheduling.k8s.io/priorityclasses");
    for name in ["system-node-critical", "system-cluster-critical"] {
        assert!(server.model.get(gvr, "", name).is_some(), "{name}");
    }
    let mut critical = pod("p", &json!({}));
    critical["spec"]["priorityClassName"] = json!("system-node-critical");
    let critical = server.create("pods", critical).unwrap();
    assert_eq!(critical["spec"]["priority"], 2_000_001_000);
}
