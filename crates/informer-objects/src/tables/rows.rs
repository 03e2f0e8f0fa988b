//! The cells of every kind, in the order of its columns.
//!
//! A row has as many cells as [`informer_schema::TABLES`] has columns for the kind, with one exception: an
//! `IPAddress` has an age without a column, as in kube-apiserver.

use super::cell::Cell::{
    self, Age, Amount, Computed, ComputedWithTime, Containers, Count, Created, Filled, Flag, Given, Joined,
    Labels, Name, Number, Ratio, Selector, Several, Since, Text,
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
const POLICY_BINDING: &[Cell] = &[Name, Text("/spec/policyName"), Computed(access::parameters), Age];
const ROLE_BINDING: &[Cell] = &[Name, Computed(access::role), Age, Several(access::subjects)];
const DESIRED: Cell = Number("/spec/replicas");
const CURRENT: Cell = Number("/status/replicas");
const READY: Cell = Number("/status/readyReplicas");
const READY_OF_DESIRED: Cell = Ratio("/status/readyReplicas", "/spec/replicas");

const VOLUME: &[Cell] = &[
    Name,
    Amount("/spec/capacity/storage"),
    Computed(storage::volume_modes),
    Text("/spec/persistentVolumeReclaimPolicy"),
    Computed(storage::phase),
    Computed(storage::claim),
    Computed(storage::class),
    Given("/spec/volumeAttributesClassName", UNSET),
    Text("/status/reason"),
    Age,
    Given("/spec/volumeMode", UNSET),
];
const CLAIM: &[Cell] = &[
    Name,
    Computed(storage::phase),
    Text("/spec/volumeName"),
    Computed(storage::claim_capacity),
    Computed(storage::claim_modes),
    Computed(storage::class),
    Given("/spec/volumeAttributesClassName", UNSET),
    Age,
    Given("/spec/volumeMode", UNSET),
];

/// Returns the cells of a built-in kind.
pub(super) fn row(group: &str, kind: &str) -> &'static [Cell] {
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
        "Endpoints" => &[Name, Computed(network::endpoints), Age],
        "Event" => &[Several(events::cells)],
        "Namespace" => &[Name, Text("/status/phase"), Age],
        "Node" => &[
            Name,
            Computed(nodes::status),
            Computed(nodes::roles),
            Age,
            Text("/status/nodeInfo/kubeletVersion"),
            Computed(nodes::internal_address),
            Computed(nodes::external_address),
            Filled("/status/nodeInfo/osImage", UNKNOWN),
            Computed(nodes::kernel),
            Filled("/status/nodeInfo/containerRuntimeVersion", UNKNOWN),
        ],
        "PersistentVolume" => VOLUME,
        "PersistentVolumeClaim" => CLAIM,
        "Pod" => &[
            Name,
            Several(pods::state),
            Age,
            Computed(pods::address),
            Filled("/spec/nodeName", NONE),
            Filled("/status/nominatedNodeName", NONE),
            Computed(pods::readiness_gates),
        ],
        "PodTemplate" => {
            &[Name, Containers("/template/spec/containers"), Labels("/template/metadata/labels")]
        }
        "ReplicationController" => {
            &[Name, DESIRED, CURRENT, READY, Age, CONTAINERS, Labels("/spec/selector")]
        }
        "ResourceQuota" => {
            &[Name, Computed(workloads::quota_requests), Computed(workloads::quota_limits), Age]
        }
        "Secret" => &[Name, Text("/type"), Count(&["/data"]), Age],
        "Service" => &[
            Name,
            Text("/spec/type"),
            Computed(network::cluster_address),
            Computed(network::external_address),
            Computed(network::service_ports),
            Age,
            Labels("/spec/selector"),
        ],
        "ServiceAccount" => &[Name, Age],
        _ => DEFAULT,
    }
}

fn workload(kind: &str) -> &'static [Cell] {
    match kind {
        "ControllerRevision" => &[Name, Computed(workloads::controller), Number("/revision"), Age],
        "CronJob" => &[
            Name,
            Text("/spec/schedule"),
            Given("/spec/timeZone", NONE),
            Computed(workloads::suspended),
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
            Computed(selectors::selector_of_deployment),
        ],
        "HorizontalPodAutoscaler" => &[
            Name,
            Computed(autoscalers::reference),
            Computed(autoscalers::targets),
            Computed(autoscalers::min_replicas),
            Number("/spec/maxReplicas"),
            Number("/status/currentReplicas"),
            Age,
        ],
        "Job" => &[
            Name,
            Computed(workloads::job_status),
            Computed(workloads::job_completions),
            ComputedWithTime(workloads::job_duration),
            Age,
            CONTAINERS,
            SELECTOR,
        ],
        "PodDisruptionBudget" => &[
            Name,
            Computed(workloads::min_available),
            Computed(workloads::max_unavailable),
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
        "EndpointSlice" => &[
            Name,
            Text("/addressType"),
            Computed(network::slice_ports),
            Computed(network::slice_endpoints),
            Age,
        ],
        "IPAddress" => &[Name, Computed(network::parent), Age],
        "Ingress" => &[
            Name,
            Given("/spec/ingressClassName", NONE),
            Computed(network::hosts),
            Computed(network::load_balancer),
            Computed(network::ingress_ports),
            Age,
        ],
        "IngressClass" => &[
            Computed(network::class_name),
            Text("/spec/controller"),
            Computed(network::class_parameters),
            Age,
        ],
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
            Computed(storage::audiences),
            Flag("/spec/requiresRepublish", false),
            Joined("/spec/volumeLifecycleModes", NONE),
            Age,
        ],
        "CSINode" => &[Name, Count(&["/spec/drivers"]), Age],
        "StorageClass" => &[
            Computed(storage::class_name),
            Text("/provisioner"),
            Given("/reclaimPolicy", "Delete"),
            Given("/volumeBindingMode", "Immediate"),
            Flag("/allowVolumeExpansion", false),
            Age,
        ],
        "StorageVersion" => {
            &[Name, Given("/status/commonEncodingVersion", UNSET), Computed(storage::versions), Age]
        }
        "StorageVersionMigration" => {
            &[Name, Computed(workloads::migrated), Computed(workloads::migration_status)]
        }
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
            Computed(access::requested_duration),
            Computed(access::request_status),
        ],
        "ClusterRoleBinding" | "RoleBinding" => ROLE_BINDING,
        "ClusterTrustBundle" => &[Name, Filled("/spec/signerName", NONE)],
        "MutatingAdmissionPolicy" => {
            &[Name, Count(&["/spec/mutations"]), Computed(access::parameter_kind), Age]
        }
        "MutatingAdmissionPolicyBinding" | "ValidatingAdmissionPolicyBinding" => POLICY_BINDING,
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => WEBHOOKS,
        "PodCertificateRequest" => &[
            Name,
            Text("/spec/podName"),
            Text("/spec/serviceAccountName"),
            Text("/spec/nodeName"),
            Text("/spec/signerName"),
            Computed(access::pod_request_state),
            Labels("/spec/unverifiedUserAnnotations"),
        ],
        "ValidatingAdmissionPolicy" => {
            &[Name, Count(&["/spec/validations"]), Computed(access::parameter_kind), Age]
        }
        _ => DEFAULT,
    }
}

fn serving(kind: &str) -> &'static [Cell] {
    match kind {
        "APIService" => &[Name, Computed(access::served_by), Computed(access::available), Age],
        "FlowSchema" => &[
            Name,
            Text("/spec/priorityLevelConfiguration/name"),
            Number("/spec/matchingPrecedence"),
            Computed(access::distinguisher),
            Age,
            Computed(access::dangling),
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
            Computed(workloads::group_policy),
            Computed(workloads::group_workload),
            Computed(workloads::group_status),
            Age,
        ],
        "PriorityClass" => {
            &[Name, Number("/value"), Flag("/globalDefault", false), Age, Text("/preemptionPolicy")]
        }
        "ResourceClaim" => &[Name, Computed(devices::claim_state), Age],
        "ResourcePoolStatusRequest" => &[Name, Text("/spec/driver"), Several(devices::pool_status)],
        "ResourceSlice" => {
            &[Name, Text("/spec/nodeName"), Text("/spec/driver"), Text("/spec/pool/name"), Age]
        }
        "RuntimeClass" => &[Name, Text("/handler"), Age],
        _ => DEFAULT,
    }
}
