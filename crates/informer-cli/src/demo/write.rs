//! What the demo asks to be done, and what it is told in return.

use serde_json::Value;

/// Kinds of objects that the demo has to do with.
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
    /// Those that live in namespaces.
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

/// Which object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct At {
    pub(crate) kind: Kind,
    /// Empty outside namespaces.
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl At {
    pub(crate) fn new(kind: Kind, namespace: &str, name: &str) -> Self {
        Self { kind, namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

/// Something to be done about one object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Write {
    pub(crate) at: At,
    pub(crate) what: What,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum What {
    /// Create it; if it is there, it is taken as it is.
    Create(Value),
    /// Put these fields into the object as it is there now.
    Merge(Value),
    /// Put these fields into its status.
    MergeStatus(Value),
    /// Put a pod on a node.
    Bind(String),
    /// Ask for its deletion; a pod on a node stays until it is killed.
    Delete,
    /// Delete it at once.
    Kill,
    /// Say how it is.
    Look,
    /// Delete everything in a namespace, and let it end.
    Finalize,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Answer {
    /// It was done, and this is the object now.
    Done(Value),
    /// The object is not there, or not any more.
    Gone,
    /// The server did not want it.
    Refused,
}
