//! Operations that the demo requests, and their results.

use serde_json::Value;

/// Kinds of objects in the demo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Namespace,
    Node,
    Lease,
    ConfigMap,
    Secret,
    Service,
    Deployment,
    ReplicaSet,
    Pod,
    Job,
    Event,
}

impl Kind {
    /// Namespaced kinds.
    pub(crate) const IN_NAMESPACES: &[Self] = &[
        Self::Deployment,
        Self::ReplicaSet,
        Self::Job,
        Self::Pod,
        Self::Service,
        Self::ConfigMap,
        Self::Secret,
        Self::Lease,
        Self::Event,
    ];

    pub(crate) fn api_version(self) -> &'static str {
        match self {
            Self::Lease => "coordination.k8s.io/v1",
            Self::Deployment | Self::ReplicaSet => "apps/v1",
            Self::Job => "batch/v1",
            _ => "v1",
        }
    }

    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::Namespace => "namespaces",
            Self::Node => "nodes",
            Self::Lease => "leases",
            Self::ConfigMap => "configmaps",
            Self::Secret => "secrets",
            Self::Service => "services",
            Self::Deployment => "deployments",
            Self::ReplicaSet => "replicasets",
            Self::Pod => "pods",
            Self::Job => "jobs",
            Self::Event => "events",
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Namespace => "Namespace",
            Self::Node => "Node",
            Self::Lease => "Lease",
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
            Self::Service => "Service",
            Self::Deployment => "Deployment",
            Self::ReplicaSet => "ReplicaSet",
            Self::Pod => "Pod",
            Self::Job => "Job",
            Self::Event => "Event",
        }
    }
}

/// Identity of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectId {
    pub(crate) kind: Kind,
    /// Empty for cluster-scoped kinds.
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl ObjectId {
    pub(crate) fn new(kind: Kind, namespace: &str, name: &str) -> Self {
        Self { kind, namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

/// An operation on one object: a write, or a read whose result the demo needs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Write {
    pub(crate) object_id: ObjectId,
    pub(crate) operation: Operation,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Operation {
    /// Creates the object; an existing one is used unchanged.
    Create(Value),
    /// Merges fields into the current object.
    Merge(Value),
    /// Merges fields into the status.
    MergeStatus(Value),
    /// Binds a pod to a node.
    Bind(String),
    /// Requests a graceful deletion. A scheduled pod stays until `DeleteNow`.
    Delete,
    /// Deletes the object immediately.
    DeleteNow,
    /// Reads the object.
    Read,
    /// Deletes everything in a namespace and finalizes the namespace.
    Finalize,
}

/// Result of an operation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum WriteResult {
    /// Success, with the current object.
    Done(Value),
    /// The object does not exist; also the success of a deletion.
    Gone,
    /// The server rejected the operation.
    Rejected,
}
