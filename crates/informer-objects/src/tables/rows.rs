//! The cells of every kind, in the order of its columns.
//!
//! A row has as many cells as [`informer_schema::TABLES`] has columns for the kind, with one exception: an
//! `IPAddress` has an age without a column, as in kube-apiserver.

use super::cell::Cell::{
    self, Age, Amount, By, ByTime, Containers, Count, Created, Filled, Flag, Given, Joined, Labels, Name,
    Number, Of, Selector, Several, Since, Text,
};
use super::{access, autoscalers, devices, events, network, nodes, pods, selectors, storage, workloads};

/// The cells of built-in kinds without specific columns.
const DEFAULT: &[Cell] = &[Name, Created];

const NONE: &str = "<none>";
const UNSET: &str = "<unset>";
const UNKNOWN: &str = "<unknown>";

const CONTAINERS: Cell = Containers("/spec/template/spec/containers");
const SELECTOR: Cell = Selector("/spec/selector");
const WEBHOOKS: &[Cell] = &[Name, Count(&["/webhooks"]), Age];
const POLICY_BINDING: &[Cell] = &[Name, Text("/spec/policyName"), By(access::parameters), Age];
const ROLE_BINDING: &[Cell] = &[Name, By(access::role), Age, Several(access::subjects)];
const DESIRED: Cell = Number("/spec/replicas");
const CURRENT: Cell = Number("/status/replicas");
const READY: Cell = Number("/status/readyReplicas");
const READY_OF_DESIRED: Cell = Of("/status/readyReplicas", "/spec/replicas");

const VOLUME: &[Cell] = &[
    Name,
    Amount("/spec/capacity/storage"),
    By(storage::volume_modes),
    Text("/spec/persistentVolumeReclaimPolicy"),
    By(storage::phase),
    By(storage::claim),
    By(storage::class),
    Given("/spec/volumeAttributesClassName", UNSET),
    Text("/status/reason"),
    Age,
    Given("/spec/volumeMode", UNSET),
];
const CLAIM: &[Cell] = &[
    Name,
    By(storage::phase),
    Text("/spec/volumeName"),
    By(storage::claim_capacity),
    By(storage::claim_modes),
    By(storage::class),
    Given("/spec/volumeAttributesClassName", UNSET),
    Age,
    Given("/spec/volumeMode", UNSET),
];

/// Returns the cells of a built-in kind.
pub(super) fn of(group: &str, kind: &str) -> &'static [Cell] {
    match group {
        "" => core(kind),
        "apps" | "batch" | "autoscaling" | "policy" => workload(kind),
        "events.k8s.io" if kind == "Event" => &[Several(events::cells)],
        "networking.k8s.io" | "discovery.k8s.io" => networking(kind),
        "storage.k8s.io" | "internal.apiserver.k8s.io" | "storagemigration.k8s.io" => storing(kind),
        "rbac.authorization.k8s.io" | "certificates.k8s.io" | "admissionregistration.k8s.io" => {
            accessing(kind)
        }
        "apiregistration.k8s.io" | "flowcontrol.apiserver.k8s.io" | "coordination.k8s.io" => serving(kind),
        "node.k8s.io" | "scheduling.k8s.io" | "resource.k8s.io" => scheduling(kind),
        _ => DEFAULT,
    }
}

fn core(kind: &str) -> &'static [Cell] {
    match kind {
        "ComponentStatus" => &[Name, Several(nodes::component)],
        "ConfigMap" => &[Name, Count(&["/data", "/binaryData"]), Age],
        "Endpoints" => &[Name, By(network::endpoints), Age],
        "Event" => &[Several(events::cells)],
        "Namespace" => &[Name, Text("/status/phase"), Age],
        "Node" => &[
            Name,
            By(nodes::status),
            By(nodes::roles),
            Age,
            Text("/status/nodeInfo/kubeletVersion"),
            By(nodes::internal_address),
            By(nodes::external_address),
            Filled("/status/nodeInfo/osImage", UNKNOWN),
            By(nodes::kernel),
            Filled("/status/nodeInfo/containerRuntimeVersion", UNKNOWN),
        ],
        "PersistentVolume" => VOLUME,
        "PersistentVolumeClaim" => CLAIM,
        "Pod" => &[
            Name,
            Several(pods::state),
            Age,
            By(pods::address),
            Filled("/spec/nodeName", NONE),
            Filled("/status/nominatedNodeName", NONE),
            By(pods::readiness_gates),
        ],
        "PodTemplate" => {
            &[Name, Containers("/template/spec/containers"), Labels("/template/metadata/labels")]
        }
        "ReplicationController" => {
            &[Name, DESIRED, CURRENT, READY, Age, CONTAINERS, Labels("/spec/selector")]
        }
        "ResourceQuota" => &[Name, By(workloads::quota_requests), By(workloads::quota_limits), Age],
        "Secret" => &[Name, Text("/type"), Count(&["/data"]), Age],
        "Service" => &[
            Name,
            Text("/spec/type"),
            By(network::cluster_address),
            By(network::external_address),
            By(network::service_ports),
            Age,
            Labels("/spec/selector"),
        ],
        "ServiceAccount" => &[Name, Age],
        _ => DEFAULT,
    }
}

fn workload(kind: &str) -> &'static [Cell] {
    match kind {
        "ControllerRevision" => &[Name, By(workloads::controller), Number("/revision"), Age],
        "CronJob" => &[
            Name,
            Text("/spec/schedule"),
            Given("/spec/timeZone", NONE),
            By(workloads::suspended),
            Count(&["/status/active"]),
            Since("/status/lastScheduleTime", NONE),
            Age,
            Containers("/spec/jobTemplate/spec/template/spec/containers"),
            Selector("/spec/jobTemplate/spec/selector"),
        ],
        "DaemonSet" => &[
            Name,
            Number("/status/desiredNumberScheduled"),
            Number("/status/currentNumberScheduled"),
            Number("/status/numberReady"),
            Number("/status/updatedNumberScheduled"),
            Number("/status/numberAvailable"),
            Labels("/spec/template/spec/nodeSelector"),
            Age,
            CONTAINERS,
            SELECTOR,
        ],
        "Deployment" => &[
            Name,
            READY_OF_DESIRED,
            Number("/status/updatedReplicas"),
            Number("/status/availableReplicas"),
            Age,
            CONTAINERS,
            By(selectors::selector_of_deployment),
        ],
        "HorizontalPodAutoscaler" => &[
            Name,
            By(autoscalers::reference),
            By(autoscalers::targets),
            By(autoscalers::min_replicas),
            Number("/spec/maxReplicas"),
            Number("/status/currentReplicas"),
            Age,
        ],
        "Job" => &[
            Name,
            By(workloads::job_status),
            By(workloads::job_completions),
            ByTime(workloads::job_duration),
            Age,
            CONTAINERS,
            SELECTOR,
        ],
        "PodDisruptionBudget" => &[
            Name,
            By(workloads::min_available),
            By(workloads::max_unavailable),
            Number("/status/disruptionsAllowed"),
            Age,
        ],
        "ReplicaSet" => &[Name, DESIRED, CURRENT, READY, Age, CONTAINERS, SELECTOR],
        "Scale" => &[Name, DESIRED, CURRENT, Age],
        "StatefulSet" => &[Name, READY_OF_DESIRED, Age, CONTAINERS],
        _ => DEFAULT,
    }
}

fn networking(kind: &str) -> &'static [Cell] {
    match kind {
        "EndpointSlice" => {
            &[Name, Text("/addressType"), By(network::slice_ports), By(network::slice_endpoints), Age]
        }
        "IPAddress" => &[Name, By(network::parent), Age],
        "Ingress" => &[
            Name,
            Given("/spec/ingressClassName", NONE),
            By(network::hosts),
            By(network::load_balancer),
            By(network::ingress_ports),
            Age,
        ],
        "IngressClass" => {
            &[By(network::class_name), Text("/spec/controller"), By(network::class_parameters), Age]
        }
        "NetworkPolicy" => &[Name, Selector("/spec/podSelector"), Age],
        "ServiceCIDR" => &[Name, Joined("/spec/cidrs", ""), Age],
        _ => DEFAULT,
    }
}

fn storing(kind: &str) -> &'static [Cell] {
    match kind {
        "CSIDriver" => &[
            Name,
            Flag("/spec/attachRequired", true),
            Flag("/spec/podInfoOnMount", false),
            Flag("/spec/storageCapacity", false),
            By(storage::audiences),
            Flag("/spec/requiresRepublish", false),
            Joined("/spec/volumeLifecycleModes", NONE),
            Age,
        ],
        "CSINode" => &[Name, Count(&["/spec/drivers"]), Age],
        "StorageClass" => &[
            By(storage::class_name),
            Text("/provisioner"),
            Given("/reclaimPolicy", "Delete"),
            Given("/volumeBindingMode", "Immediate"),
            Flag("/allowVolumeExpansion", false),
            Age,
        ],
        "StorageVersion" => {
            &[Name, Given("/status/commonEncodingVersion", UNSET), By(storage::versions), Age]
        }
        "StorageVersionMigration" => &[Name, By(workloads::migrated), By(workloads::migration_status)],
        "VolumeAttachment" => &[
            Name,
            Text("/spec/attacher"),
            Text("/spec/source/persistentVolumeName"),
            Text("/spec/nodeName"),
            Flag("/status/attached", false),
            Age,
        ],
        "VolumeAttributesClass" => &[Name, Text("/driverName"), Age],
        _ => DEFAULT,
    }
}

fn accessing(kind: &str) -> &'static [Cell] {
    match kind {
        "CertificateSigningRequest" => &[
            Name,
            Age,
            Filled("/spec/signerName", NONE),
            Text("/spec/username"),
            By(access::requested_duration),
            By(access::request_status),
        ],
        "ClusterRoleBinding" | "RoleBinding" => ROLE_BINDING,
        "ClusterTrustBundle" => &[Name, Filled("/spec/signerName", NONE)],
        "MutatingAdmissionPolicy" => &[Name, Count(&["/spec/mutations"]), By(access::parameter_kind), Age],
        "MutatingAdmissionPolicyBinding" | "ValidatingAdmissionPolicyBinding" => POLICY_BINDING,
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => WEBHOOKS,
        "PodCertificateRequest" => &[
            Name,
            Text("/spec/podName"),
            Text("/spec/serviceAccountName"),
            Text("/spec/nodeName"),
            Text("/spec/signerName"),
            By(access::pod_request_state),
            Labels("/spec/unverifiedUserAnnotations"),
        ],
        "ValidatingAdmissionPolicy" => {
            &[Name, Count(&["/spec/validations"]), By(access::parameter_kind), Age]
        }
        _ => DEFAULT,
    }
}

fn serving(kind: &str) -> &'static [Cell] {
    match kind {
        "APIService" => &[Name, By(access::served_by), By(access::available), Age],
        "FlowSchema" => &[
            Name,
            Text("/spec/priorityLevelConfiguration/name"),
            Number("/spec/matchingPrecedence"),
            By(access::distinguisher),
            Age,
            By(access::dangling),
        ],
        "Lease" => &[Name, Text("/spec/holderIdentity"), Age],
        "LeaseCandidate" => {
            &[Name, Text("/spec/leaseName"), Text("/spec/binaryVersion"), Text("/spec/emulationVersion"), Age]
        }
        "PriorityLevelConfiguration" => &[Name, Text("/spec/type"), Several(access::shares), Age],
        _ => DEFAULT,
    }
}

fn scheduling(kind: &str) -> &'static [Cell] {
    match kind {
        "DeviceClass" | "ResourceClaimTemplate" | "Workload" => &[Name, Age],
        "DeviceTaintRule" => &[
            Name,
            Text("/spec/taint/key"),
            Text("/spec/taint/value"),
            Text("/spec/taint/effect"),
            Since("/spec/taint/timeAdded", ""),
            Age,
        ],
        "PodGroup" => &[
            Name,
            By(workloads::group_policy),
            By(workloads::group_workload),
            By(workloads::group_status),
            Age,
        ],
        "PriorityClass" => {
            &[Name, Number("/value"), Flag("/globalDefault", false), Age, Text("/preemptionPolicy")]
        }
        "ResourceClaim" => &[Name, By(devices::claim_state), Age],
        "ResourcePoolStatusRequest" => &[Name, Text("/spec/driver"), Several(devices::pool_status)],
        "ResourceSlice" => {
            &[Name, Text("/spec/nodeName"), Text("/spec/driver"), Text("/spec/pool/name"), Age]
        }
        "RuntimeClass" => &[Name, Text("/handler"), Age],
        _ => DEFAULT,
    }
}
