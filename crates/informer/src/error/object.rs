//! Errors of changing objects: finalizers, applied objects, status and owner references.

use super::ErrorKind;
use crate::reference::ObjectReference;
use informer_core::OwnerReference;
use std::sync::Arc;

/// The error of adding or removing a finalizer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FinalizerError {
    /// The finalizers of the object cannot be read.
    #[error("read finalizers of {object}: {message}")]
    #[non_exhaustive]
    Read {
        /// The object, with its kind.
        object: String,
        /// The reason.
        message: String,
    },
    /// The request to add the finalizer failed.
    #[error("add finalizer {finalizer} to {object}")]
    #[non_exhaustive]
    Add {
        /// The object, with its kind.
        object: String,
        /// The finalizer.
        finalizer: Arc<str>,
        /// The error of the client.
        source: Box<kube::Error>,
    },
    /// The request to remove the finalizer failed.
    #[error("remove finalizer {finalizer} from {object}")]
    #[non_exhaustive]
    Remove {
        /// The object, with its kind.
        object: String,
        /// The finalizer.
        finalizer: Arc<str>,
        /// The error of the client.
        source: Box<kube::Error>,
    },
    /// Other writers changed the finalizers during every attempt. A later attempt may succeed.
    #[error(
        "change finalizer {finalizer} of {object}: other writers changed its finalizers (try again later)"
    )]
    #[non_exhaustive]
    Conflict {
        /// The object, with its kind.
        object: String,
        /// The finalizer.
        finalizer: Arc<str>,
    },
}

impl FinalizerError {
    /// Classifies the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Read { .. } => ErrorKind::Decode,
            Self::Add { source, .. } | Self::Remove { source, .. } => ErrorKind::of_client_error(source),
            Self::Conflict { .. } => ErrorKind::Conflict,
        }
    }

    /// Returns whether other writers were faster, and the same attempt may succeed later.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict { .. })
    }
}

/// The error of applying an object in a reconcile.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// The owner cannot own the object.
    #[error(transparent)]
    Owner(#[from] OwnerError),
    /// The object has no name.
    #[error("apply {object}: it has no name (server-side apply does not generate names)")]
    #[non_exhaustive]
    MissingName {
        /// The object.
        object: Box<ObjectReference>,
    },
    /// The kind of the object is namespaced, but neither the object nor its owner has a namespace.
    #[error("apply {object}: it has no namespace, and its owner is cluster-scoped (set metadata.namespace)")]
    #[non_exhaustive]
    MissingNamespace {
        /// The object.
        object: Box<ObjectReference>,
    },
    /// The request failed.
    #[error("apply {object} as {field_manager}{}", apply_hint(source))]
    #[non_exhaustive]
    Request {
        /// The object.
        object: Box<ObjectReference>,
        /// The field manager.
        field_manager: Arc<str>,
        /// The error of the client.
        source: Box<kube::Error>,
    },
    /// The server wrote the object, but its response does not decode.
    #[error("apply {object}: written, but the response does not decode")]
    #[non_exhaustive]
    Response {
        /// The object.
        object: Box<ObjectReference>,
        /// The error of the client.
        source: Box<kube::Error>,
    },
}

impl ApplyError {
    /// Classifies the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Owner(_) | Self::MissingName { .. } | Self::MissingNamespace { .. } => ErrorKind::Invalid,
            Self::Request { source, .. } => ErrorKind::of_client_error(source),
            Self::Response { .. } => ErrorKind::Decode,
        }
    }
}

/// Returns a hint for responses whose message does not say what to change.
fn apply_hint(error: &kube::Error) -> &'static str {
    match error {
        kube::Error::Api(status) if status.code == 403 => {
            " (server-side apply needs the permissions to patch and create)"
        }
        kube::Error::Api(status) if status.code == 404 => {
            " (is the kind served, and does the namespace exist?)"
        }
        kube::Error::Api(status) if status.code == 409 => {
            " (apply an object without uid and resourceVersion, not one read from the server)"
        }
        _ => "",
    }
}

/// The error of writing the status of an object in a reconcile.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PatchStatusError {
    /// The object has no resource version.
    #[error("patch status of {object}: it has no resource version (use the object as read from the server)")]
    #[non_exhaustive]
    MissingVersion {
        /// The object.
        object: Box<ObjectReference>,
    },
    /// The kind of the object, in its API version, is not a source of the controller.
    #[error(
        "patch status of {object}: its kind ({}) is not a source of controller {controller} (declare it with `reads`)",
        object.api_version
    )]
    #[non_exhaustive]
    NotASource {
        /// The object.
        object: Box<ObjectReference>,
        /// The name of the controller.
        controller: Arc<str>,
    },
    /// The request failed.
    #[error("patch status of {object}{}", patch_status_hint(source))]
    #[non_exhaustive]
    Request {
        /// The object.
        object: Box<ObjectReference>,
        /// The error of the client.
        source: Box<kube::Error>,
    },
    /// The server wrote the status, but its response does not decode.
    #[error("patch status of {object}: written, but the response does not decode")]
    #[non_exhaustive]
    Response {
        /// The object.
        object: Box<ObjectReference>,
        /// The error of the client.
        source: Box<kube::Error>,
    },
}

impl PatchStatusError {
    /// Classifies the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::MissingVersion { .. } | Self::NotASource { .. } => ErrorKind::Invalid,
            Self::Request { source, .. } => ErrorKind::of_client_error(source),
            Self::Response { .. } => ErrorKind::Decode,
        }
    }
}

/// Returns a hint for responses whose message does not say what to change.
fn patch_status_hint(error: &kube::Error) -> &'static str {
    match error {
        kube::Error::Api(status) if status.code == 403 => {
            " (needs the permission to patch the subresource `status`)"
        }
        kube::Error::Api(status) if status.code == 404 => {
            " (was the object deleted, or does its kind not have the subresource `status`?)"
        }
        kube::Error::Api(status) if status.code == 409 => {
            " (the object has changed since it was read: return the error, so that the reconcile is retried)"
        }
        _ => "",
    }
}

/// The error of setting an owner reference.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OwnerError {
    /// The owner has no kind, name or uid, for example because it was not read from the server.
    #[error("own objects by {owner}: it has no {missing} (use the object as read from the server)")]
    #[non_exhaustive]
    IncompleteOwner {
        /// The owner.
        owner: Box<ObjectReference>,
        /// The missing field.
        missing: &'static str,
    },
    /// Another object controls the child.
    #[error(
        "own {child} by {owner}: already controlled by {} {} (uid {})",
        controller.kind,
        controller.name,
        controller.uid
    )]
    #[non_exhaustive]
    AlreadyControlled {
        /// The child.
        child: Box<ObjectReference>,
        /// The intended controller.
        owner: Box<ObjectReference>,
        /// The current controller.
        controller: Box<OwnerReference>,
    },
    /// Owner and child are in different namespaces. The garbage collector would delete the child.
    #[error("own {child} by {owner}: an owner must be in the same namespace or cluster-scoped")]
    #[non_exhaustive]
    CrossNamespace {
        /// The child.
        child: Box<ObjectReference>,
        /// The intended controller.
        owner: Box<ObjectReference>,
    },
    /// The child has no namespace and the owner has one. The garbage collector would delete the child.
    #[error(
        "own {child} by {owner}: a cluster-scoped object cannot have a namespaced owner (set the child's namespace?)"
    )]
    #[non_exhaustive]
    ClusterScopedChild {
        /// The child.
        child: Box<ObjectReference>,
        /// The intended controller.
        owner: Box<ObjectReference>,
    },
}
