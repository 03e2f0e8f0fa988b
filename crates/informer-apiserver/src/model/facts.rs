//! Properties of single built-in kinds, by group and plural: generation, selectable fields, writes and
//! deletions.
//!
//! Tables list kinds as `group/plural`, with an empty core group. The entries were observed on kube-apiserver
//! 1.36. A kind without an entry has none of the properties, and is selectable by name and namespace only.
//! How a resource is served is not known here.

use informer_schema::GROUPS;

/// Kinds whose status is accepted in a create: a kubelet registers its node with a status.
const STATUS_AT_CREATE: &[&str] = &["/nodes"];

/// Kinds that have `metadata.generation`.
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

/// Kinds whose deletion responds with the object, even if the object is removed.
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
    "resource.k8s.io/deviceclasses",
    "resource.k8s.io/devicetaintrules",
    "resource.k8s.io/resourceclaims",
    "resource.k8s.io/resourceclaimtemplates",
    "resource.k8s.io/resourcepoolstatusrequests",
    "resource.k8s.io/resourceslices",
    "storage.k8s.io/csidrivers",
    "storage.k8s.io/csinodes",
    "storage.k8s.io/storageclasses",
    "storage.k8s.io/volumeattachments",
    "storage.k8s.io/volumeattributesclasses",
];

/// Kinds that PUT creates if they do not exist.
const PUT_CREATES: &[&str] = &[
    "/endpoints",
    "/events",
    "/limitranges",
    "/services",
    "coordination.k8s.io/leasecandidates",
    "coordination.k8s.io/leases",
    "events.k8s.io/events",
    "node.k8s.io/runtimeclasses",
    "rbac.authorization.k8s.io/clusterrolebindings",
    "rbac.authorization.k8s.io/clusterroles",
    "rbac.authorization.k8s.io/rolebindings",
    "rbac.authorization.k8s.io/roles",
];

/// Kinds whose updates must contain a resource version.
const UPDATE_NEEDS_VERSION: &[&str] = &[
    "admissionregistration.k8s.io/mutatingadmissionpolicies",
    "admissionregistration.k8s.io/mutatingadmissionpolicybindings",
    "admissionregistration.k8s.io/mutatingwebhookconfigurations",
    "admissionregistration.k8s.io/validatingadmissionpolicies",
    "admissionregistration.k8s.io/validatingadmissionpolicybindings",
    "admissionregistration.k8s.io/validatingwebhookconfigurations",
    "certificates.k8s.io/clustertrustbundles",
    "certificates.k8s.io/podcertificaterequests",
    "coordination.k8s.io/leasecandidates",
    "coordination.k8s.io/leases",
    "internal.apiserver.k8s.io/storageversions",
    "node.k8s.io/runtimeclasses",
    "policy/poddisruptionbudgets",
    "resource.k8s.io/resourcepoolstatusrequests",
    "storage.k8s.io/csidrivers",
    "storage.k8s.io/csinodes",
    "storage.k8s.io/csistoragecapacities",
    "storage.k8s.io/volumeattachments",
    "storagemigration.k8s.io/storageversionmigrations",
];

/// Kinds whose dependents are orphaned if a deletion has no propagation policy.
const ORPHANS_BY_DEFAULT: &[&str] = &["/replicationcontrollers", "batch/jobs"];

/// Selectable fields of pods.
const PODS: &[SelectableField] = &[
    ("spec.nodeName", "spec.nodeName", ""),
    ("spec.host", "spec.nodeName", ""),
    ("spec.restartPolicy", "spec.restartPolicy", "Always"),
    ("spec.schedulerName", "spec.schedulerName", "default-scheduler"),
    ("spec.serviceAccountName", "spec.serviceAccountName", ""),
    ("spec.hostNetwork", "spec.hostNetwork", "false"),
    ("status.phase", "status.phase", "Pending"),
    ("status.podIP", "status.podIP", ""),
    // In kube-apiserver, selectors support this field, but its value is always empty.
    ("status.podIPs", "", ""),
    ("status.nominatedNodeName", "status.nominatedNodeName", ""),
];

/// Selectable fields of core events.
const EVENTS: &[SelectableField] = &[
    ("involvedObject.kind", "involvedObject.kind", ""),
    ("involvedObject.namespace", "involvedObject.namespace", ""),
    ("involvedObject.name", "involvedObject.name", ""),
    ("involvedObject.uid", "involvedObject.uid", ""),
    ("involvedObject.apiVersion", "involvedObject.apiVersion", ""),
    ("involvedObject.resourceVersion", "involvedObject.resourceVersion", ""),
    ("involvedObject.fieldPath", "involvedObject.fieldPath", ""),
    ("reason", "reason", ""),
    ("reportingComponent", "reportingComponent", ""),
    ("source", "source.component|reportingComponent", ""),
    ("type", "type", ""),
];

/// Selectable fields of `events.k8s.io` events.
const EVENTS_V1: &[SelectableField] = &[
    ("regarding.kind", "regarding.kind", ""),
    ("regarding.namespace", "regarding.namespace", ""),
    ("regarding.name", "regarding.name", ""),
    ("regarding.uid", "regarding.uid", ""),
    ("regarding.apiVersion", "regarding.apiVersion", ""),
    ("regarding.resourceVersion", "regarding.resourceVersion", ""),
    ("regarding.fieldPath", "regarding.fieldPath", ""),
    ("reason", "reason", ""),
    ("reportingController", "reportingController", ""),
    // A placeholder for `source`, which this group lacks: the index of a field selects its value in the
    // stored core event, so both tables must have the same order.
    ("", "", ""),
    ("type", "type", ""),
];

/// Returns the sort key of a group: built-in groups in the server's order of preference, then custom groups
/// by name.
pub(super) fn group_order(group: &str) -> (usize, String) {
    let index = GROUPS.iter().position(|known| known.name == group).unwrap_or(GROUPS.len());
    (index, group.to_owned())
}

pub(super) fn takes_status_at_create(group: &str, plural: &str) -> bool {
    is_in(STATUS_AT_CREATE, group, plural)
}

/// Returns whether a kind has `metadata.generation`.
pub(super) fn has_generation(group: &str, plural: &str) -> bool {
    is_in(WITH_GENERATION, group, plural)
}

pub(super) fn delete_shows_object(group: &str, plural: &str) -> bool {
    is_in(DELETE_SHOWS_OBJECT, group, plural)
}

pub(super) fn put_creates(group: &str, plural: &str) -> bool {
    is_in(PUT_CREATES, group, plural)
}

pub(super) fn update_needs_version(group: &str, plural: &str) -> bool {
    is_in(UPDATE_NEEDS_VERSION, group, plural)
}

pub(super) fn orphans_by_default(group: &str, plural: &str) -> bool {
    is_in(ORPHANS_BY_DEFAULT, group, plural)
}

/// Returns the error message for an unsupported field in a selector.
pub(super) fn unknown_field(group: &str, plural: &str, name: &str) -> String {
    match (group, plural) {
        ("batch", "jobs") => format!("field label \"{name}\" not supported for Job"),
        ("resource.k8s.io", "resourceslices") => {
            format!("field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: {name}")
        }
        _ if selectable_fields(group, plural).is_empty() => {
            format!(r#""{name}" is not a known field selector: only "metadata.name", "metadata.namespace""#)
        }
        _ => format!("field label not supported: {name}"),
    }
}

/// A selectable field: its name in a selector, the paths of its value (separated by `|`), and its value if it
/// is missing.
pub(super) type SelectableField = (&'static str, &'static str, &'static str);

/// Returns the selectable fields of a kind, besides name and namespace.
pub(super) fn selectable_fields(group: &str, plural: &str) -> &'static [SelectableField] {
    match (group, plural) {
        ("", "pods") => PODS,
        ("", "events") => EVENTS,
        ("events.k8s.io", "events") => EVENTS_V1,
        ("", "secrets") => &[("type", "type", "Opaque")],
        ("", "services") => {
            &[("spec.clusterIP", "spec.clusterIP", ""), ("spec.type", "spec.type", "ClusterIP")]
        }
        ("", "nodes") => &[("spec.unschedulable", "spec.unschedulable", "false")],
        ("", "namespaces") => &[("status.phase", "status.phase", "")],
        ("", "replicationcontrollers") => &[("status.replicas", "status.replicas", "0")],
        ("batch", "jobs") => &[("status.successful", "status.succeeded", "0")],
        ("certificates.k8s.io", "certificatesigningrequests" | "clustertrustbundles") => {
            &[("spec.signerName", "spec.signerName", "")]
        }
        ("certificates.k8s.io", "podcertificaterequests") => &[
            ("spec.signerName", "spec.signerName", ""),
            ("spec.podName", "spec.podName", ""),
            ("spec.nodeName", "spec.nodeName", ""),
        ],
        ("resource.k8s.io", "resourceslices") => {
            &[("spec.nodeName", "spec.nodeName", ""), ("spec.driver", "spec.driver", "")]
        }
        _ => &[],
    }
}

fn is_in(table: &[&str], group: &str, plural: &str) -> bool {
    table.iter().any(|row| row.split_once('/') == Some((group, plural)))
}
