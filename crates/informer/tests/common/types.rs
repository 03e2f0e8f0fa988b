//! The Rust type of each built-in kind.

use k8s_openapi::api::{
    admissionregistration::v1 as admission, apps::v1 as apps, autoscaling::v1 as autoscaling,
    autoscaling::v2 as autoscaling2, batch::v1 as batch, certificates::v1 as certificates,
    coordination::v1 as coordination, core::v1 as core, discovery::v1 as discovery, events::v1 as events,
    flowcontrol::v1 as flowcontrol, networking::v1 as networking, node::v1 as node, policy::v1 as policy,
    rbac::v1 as rbac, resource::v1 as resource, scheduling::v1 as scheduling, storage::v1 as storage,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1 as apiregistration;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// An operation that is generic over the type of a kind.
pub(crate) trait Visit {
    type Found;

    fn visit<K: DeserializeOwned + PartialEq + Debug + Send + Sync + 'static>(self) -> Self::Found;
}

/// Runs the operation with the type of a kind. Returns `None` if there is no type for it.
pub(crate) fn with_type<V: Visit>(api_version: &str, kind: &str, visit: V) -> Option<V::Found> {
    macro_rules! visit_of {
        ($($group:literal: $($module:ident::$kind:ident),+;)+) => {
            match (api_version, kind) {
                $($(($group, stringify!($kind)) => Some(visit.visit::<$module::$kind>()),)+)+
                _ => None,
            }
        };
    }
    visit_of! {
        "v1": core::ConfigMap, core::Endpoints, core::Event, core::LimitRange, core::Namespace, core::Node,
            core::PersistentVolume, core::PersistentVolumeClaim, core::Pod, core::PodTemplate,
            core::ReplicationController, core::ResourceQuota, core::Secret, core::Service, core::ServiceAccount;
        "apps/v1": apps::ControllerRevision, apps::DaemonSet, apps::Deployment, apps::ReplicaSet,
            apps::StatefulSet;
        "autoscaling/v1": autoscaling::HorizontalPodAutoscaler, autoscaling::Scale;
        "autoscaling/v2": autoscaling2::HorizontalPodAutoscaler;
        "batch/v1": batch::CronJob, batch::Job;
        "certificates.k8s.io/v1": certificates::CertificateSigningRequest;
        "coordination.k8s.io/v1": coordination::Lease;
        "discovery.k8s.io/v1": discovery::EndpointSlice;
        "events.k8s.io/v1": events::Event;
        "flowcontrol.apiserver.k8s.io/v1": flowcontrol::FlowSchema, flowcontrol::PriorityLevelConfiguration;
        "networking.k8s.io/v1": networking::IPAddress, networking::Ingress, networking::IngressClass,
            networking::NetworkPolicy, networking::ServiceCIDR;
        "node.k8s.io/v1": node::RuntimeClass;
        "policy/v1": policy::PodDisruptionBudget;
        "rbac.authorization.k8s.io/v1": rbac::ClusterRole, rbac::ClusterRoleBinding, rbac::Role, rbac::RoleBinding;
        "resource.k8s.io/v1": resource::DeviceClass, resource::ResourceClaim, resource::ResourceClaimTemplate,
            resource::ResourceSlice;
        "scheduling.k8s.io/v1": scheduling::PriorityClass;
        "storage.k8s.io/v1": storage::CSIDriver, storage::CSINode, storage::CSIStorageCapacity,
            storage::StorageClass, storage::VolumeAttachment, storage::VolumeAttributesClass;
        "admissionregistration.k8s.io/v1": admission::MutatingAdmissionPolicy,
            admission::MutatingAdmissionPolicyBinding, admission::MutatingWebhookConfiguration,
            admission::ValidatingAdmissionPolicy, admission::ValidatingAdmissionPolicyBinding,
            admission::ValidatingWebhookConfiguration;
        "apiextensions.k8s.io/v1": apiextensions::CustomResourceDefinition;
        "apiregistration.k8s.io/v1": apiregistration::APIService;
    }
}
