//! What is particular about built-in kinds: status, generation, selectable fields, and a few habits.
//!
//! The list of kinds comes from `informer-schema`; a kind that no table here names is an ordinary one: no status,
//! no generation, selectable by name and namespace. Rows are what a kube-apiserver 1.36 was seen to do.

use super::kinds::Field;

/// Kinds with a status subresource, as `group/plural`.
const WITH_STATUS: &[&str] = &[
    "/namespaces",
    "/nodes",
    "/persistentvolumeclaims",
    "/persistentvolumes",
    "/pods",
    "/replicationcontrollers",
    "/resourcequotas",
    "/services",
    "admissionregistration.k8s.io/validatingadmissionpolicies",
    "apiextensions.k8s.io/customresourcedefinitions",
    "apiregistration.k8s.io/apiservices",
    "apps/daemonsets",
    "apps/deployments",
    "apps/replicasets",
    "apps/statefulsets",
    "autoscaling/horizontalpodautoscalers",
    "batch/cronjobs",
    "batch/jobs",
    "certificates.k8s.io/certificatesigningrequests",
    "flowcontrol.apiserver.k8s.io/flowschemas",
    "flowcontrol.apiserver.k8s.io/prioritylevelconfigurations",
    "networking.k8s.io/ingresses",
    "networking.k8s.io/servicecidrs",
    "policy/poddisruptionbudgets",
    "resource.k8s.io/resourceclaims",
    "storage.k8s.io/volumeattachments",
];

/// Kinds whose status is taken from the body of a create: a kubelet registers its node with one.
const STATUS_AT_CREATE: &[&str] = &["/nodes"];

/// Kinds that count the changes of their spec in `metadata.generation`.
const WITH_GENERATION: &[&str] = &[
    "/pods",
    "/podtemplates",
    "/replicationcontrollers",
    "admissionregistration.k8s.io/mutatingadmissionpolicies",
    "admissionregistration.k8s.io/mutatingadmissionpolicybindings",
    "admissionregistration.k8s.io/mutatingwebhookconfigurations",
    "admissionregistration.k8s.io/validatingadmissionpolicies",
    "admissionregistration.k8s.io/validatingadmissionpolicybindings",
    "admissionregistration.k8s.io/validatingwebhookconfigurations",
    "apiextensions.k8s.io/customresourcedefinitions",
    "apps/daemonsets",
    "apps/deployments",
    "apps/replicasets",
    "apps/statefulsets",
    "batch/cronjobs",
    "batch/jobs",
    "discovery.k8s.io/endpointslices",
    "flowcontrol.apiserver.k8s.io/flowschemas",
    "flowcontrol.apiserver.k8s.io/prioritylevelconfigurations",
    "networking.k8s.io/ingressclasses",
    "networking.k8s.io/ingresses",
    "networking.k8s.io/networkpolicies",
    "policy/poddisruptionbudgets",
    "resource.k8s.io/deviceclasses",
    "resource.k8s.io/resourceslices",
    "scheduling.k8s.io/priorityclasses",
];

/// Kinds whose deletion is answered with the object.
const DELETE_SHOWS_OBJECT: &[&str] = &[
    "/namespaces",
    "/persistentvolumeclaims",
    "/persistentvolumes",
    "/pods",
    "/podtemplates",
    "/resourcequotas",
    "/serviceaccounts",
    "/services",
    "apiextensions.k8s.io/customresourcedefinitions",
];

/// Kinds that a PUT creates if they are missing.
const PUT_CREATES: &[&str] = &["/endpoints", "/services", "coordination.k8s.io/leases"];

/// Selectable fields: the name in a selector, where the value is, and what counts when it is not there.
const PODS: &[(&str, &str, &str)] = &[
    ("spec.nodeName", "spec.nodeName", ""),
    ("spec.restartPolicy", "spec.restartPolicy", "Always"),
    ("spec.schedulerName", "spec.schedulerName", "default-scheduler"),
    ("spec.serviceAccountName", "spec.serviceAccountName", ""),
    ("spec.hostNetwork", "spec.hostNetwork", "false"),
    ("status.phase", "status.phase", "Pending"),
    ("status.podIP", "status.podIP", ""),
    ("status.nominatedNodeName", "status.nominatedNodeName", ""),
];

const EVENTS: &[(&str, &str, &str)] = &[
    ("involvedObject.kind", "involvedObject.kind", ""),
    ("involvedObject.namespace", "involvedObject.namespace", ""),
    ("involvedObject.name", "involvedObject.name", ""),
    ("involvedObject.uid", "involvedObject.uid", ""),
    ("involvedObject.apiVersion", "involvedObject.apiVersion", ""),
    ("involvedObject.resourceVersion", "involvedObject.resourceVersion", ""),
    ("involvedObject.fieldPath", "involvedObject.fieldPath", ""),
    ("reason", "reason", ""),
    ("reportingComponent", "reportingComponent", ""),
    ("source", "source.component", ""),
    ("type", "type", ""),
];

const EVENTS_NEW: &[(&str, &str, &str)] = &[
    ("regarding.kind", "regarding.kind", ""),
    ("regarding.namespace", "regarding.namespace", ""),
    ("regarding.name", "regarding.name", ""),
    ("regarding.uid", "regarding.uid", ""),
    ("reason", "reason", ""),
    ("reportingController", "reportingController", ""),
    ("type", "type", ""),
];

pub(super) fn has_status(group: &str, plural: &str) -> bool {
    is_in(WITH_STATUS, group, plural)
}

pub(super) fn takes_status_at_create(group: &str, plural: &str) -> bool {
    is_in(STATUS_AT_CREATE, group, plural)
}

pub(super) fn has_generation(group: &str, plural: &str) -> bool {
    is_in(WITH_GENERATION, group, plural)
}

pub(super) fn delete_shows_object(group: &str, plural: &str) -> bool {
    is_in(DELETE_SHOWS_OBJECT, group, plural)
}

pub(super) fn put_creates(group: &str, plural: &str) -> bool {
    is_in(PUT_CREATES, group, plural)
}

/// The fields, besides name and namespace, that a list can select on.
pub(super) fn fields(group: &str, plural: &str) -> Vec<Field> {
    let rows: &[(&str, &str, &str)] = match (group, plural) {
        ("", "pods") => PODS,
        ("", "events") => EVENTS,
        ("events.k8s.io", "events") => EVENTS_NEW,
        ("", "secrets") => &[("type", "type", "Opaque")],
        ("", "nodes") => &[("spec.unschedulable", "spec.unschedulable", "false")],
        ("", "namespaces") => &[("status.phase", "status.phase", "")],
        ("", "replicationcontrollers") | ("apps", "replicasets") => {
            &[("status.replicas", "status.replicas", "0")]
        }
        ("batch", "jobs") => &[("status.successful", "status.succeeded", "0")],
        ("certificates.k8s.io", "certificatesigningrequests") => {
            &[("spec.signerName", "spec.signerName", "")]
        }
        _ => &[],
    };
    rows.iter().map(|(name, path, default)| Field::new(name, path, default)).collect()
}

fn is_in(table: &[&str], group: &str, plural: &str) -> bool {
    table.iter().any(|row| row.split_once('/') == Some((group, plural)))
}
