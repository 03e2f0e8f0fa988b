//! The part of an object that a write changes, and the error for a body of another kind.
//!
//! What a write does to an object is not known here.

use informer_objects::text::versions::split_api_version;

/// The part of an object that a write changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteTarget {
    /// Everything but the status, if there is a status subresource.
    Object,
    /// Only the status.
    Status,
    /// The finalizers in the spec of a namespace.
    Finalize,
    /// The conditions of a `CertificateSigningRequest`.
    Approval,
    /// The ephemeral containers of a pod.
    EphemeralContainers,
    /// The resources of a pod's containers.
    Resize,
    /// The number of replicas, through a scale.
    Scale,
}

impl WriteTarget {
    /// Returns the target of a subresource. `None` if the subresource is unknown or has a kind of its own,
    /// such as a scale.
    pub(crate) fn of(subresource: Option<&str>) -> Option<Self> {
        Some(match subresource {
            None => WriteTarget::Object,
            Some("status") => WriteTarget::Status,
            Some("finalize") => WriteTarget::Finalize,
            Some("approval") => WriteTarget::Approval,
            Some("ephemeralcontainers") => WriteTarget::EphemeralContainers,
            Some("resize") => WriteTarget::Resize,
            Some(_) => return None,
        })
    }

    /// Returns the name of the subresource; empty for the object itself.
    pub(crate) fn name(self) -> &'static str {
        match self {
            WriteTarget::Object => "",
            WriteTarget::Status => "status",
            WriteTarget::Finalize => "finalize",
            WriteTarget::Approval => "approval",
            WriteTarget::EphemeralContainers => "ephemeralcontainers",
            WriteTarget::Resize => "resize",
            WriteTarget::Scale => "scale",
        }
    }
}

/// Returns the error for a body of another kind than expected. `known` is whether the server knows the given
/// kind.
pub(super) fn not_convertible(expected: (&str, &str), given: (&str, &str), known: bool) -> String {
    let (group, _) = split_api_version(expected.0);
    let (_, version) = split_api_version(given.0);
    let group = if group.is_empty() { "core" } else { group };
    if known {
        return format!("converting ({version}.{}) to ({group}.{}): unknown conversion", given.1, expected.1);
    }
    let scheme = "pkg/api/legacyscheme/scheme.go:30";
    format!("no kind \"{}\" is registered for version \"{}\" in scheme \"{scheme}\"", given.1, given.0)
}
