//! The types that users have, of every built-in kind: what a real server sent as JSON and as protobuf decodes to equal values.

#![allow(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

#[path = "../../informer-core/tests/protobuf/bytes.rs"]
mod bytes;
#[path = "../../informer-core/tests/protobuf/twins.rs"]
mod twins;

use bytes::{frame, object, read_watch};
use informer_core::wire::{Frame, TypeMeta};
use k8s_openapi::api::{
    admissionregistration::v1 as admission, apps::v1 as apps, autoscaling::v1 as autoscaling,
    autoscaling::v2 as autoscaling2, batch::v1 as batch, certificates::v1 as certificates,
    coordination::v1 as coordination, core::v1 as core, discovery::v1 as discovery, events::v1 as events,
    flowcontrol::v1 as flowcontrol, networking::v1 as networking, node::v1 as node, policy::v1 as policy,
    rbac::v1 as rbac, resource::v1 as resource, scheduling::v1 as scheduling, storage::v1 as storage,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1 as apiregistration;
use kube::core::DynamicObject;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use twins::{json_object, json_watch, twins, type_of};

/// Metadata alone.
#[derive(Debug, PartialEq, Deserialize)]
struct PartialObjectMetadata {
    metadata: ObjectMeta,
}

/// Reads an object from both forms as a `K`.
fn check<K>(name: &str, types: &TypeMeta, json: &str, protobuf: &[u8])
where
    K: DeserializeOwned + PartialEq + Debug + Send + Sync + 'static,
{
    let mut json = json_watch(types, &format!(r#"{{"type":"ADDED","object":{json}}}"#));
    let (mut frames, end) = read_watch(types, usize::MAX, &[&frame("ADDED", protobuf)]);
    assert_eq!(end, Ok(()));
    let (Some(Frame::Added(json)), Some(Frame::Added(scanned))) = (json.pop(), frames.pop()) else {
        panic!("{name}")
    };
    let (json, scanned) = (json_object::<K>(json), object::<K>(types, scanned));
    assert_eq!(*scanned.typed().unwrap(), *json.typed().unwrap(), "{name}");
    assert_eq!(scanned.metadata::<ObjectMeta>().unwrap(), json.metadata::<ObjectMeta>().unwrap(), "{name}");
}

/// [`check`] with the type of a kind.
macro_rules! check_of {
    ($types:expr, { $($group:literal: $($module:ident::$kind:ident),+;)+ }) => {
        match (&*$types.api_version, &*$types.kind) {
            $($(($group, stringify!($kind)) => check::<$module::$kind>,)+)+
            ("meta.k8s.io/v1", "PartialObjectMetadata") => check::<PartialObjectMetadata>,
            other => panic!("no type for {other:?}"),
        }
    };
}

#[test]
fn every_type_is_the_same_from_both_forms() {
    let mut count = 0;
    for twin in twins().iter().filter(|twin| twin.is_object()) {
        let types = type_of(&twin.value());
        let check: fn(&str, &TypeMeta, &str, &[u8]) = check_of!(types, {
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
        });
        for check in [check, self::check::<DynamicObject>] {
            check(&twin.name, &types, &twin.json, &twin.protobuf);
        }
        count += 1;
    }
    assert_eq!(count, 75);
}
