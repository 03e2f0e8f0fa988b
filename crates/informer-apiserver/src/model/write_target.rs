//! Which part of an object a write is about, and why one kind cannot be taken for another.
//!
//! Facts that every write needs. What a write does to an object is not known here.

use informer_objects::text::versions::split_api_version;

/// Which part of an object an update is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteTarget {
    /// All but the status, where there is a status subresource.
    Object,
    /// The status alone.
    Status,
    /// The finalizers in the spec of a namespace.
    Finalize,
    /// The conditions of a signing request.
    Approval,
    /// The ephemeral containers of a pod.
    EphemeralContainers,
    /// The resources of a pod's containers.
    Resize,
    /// The number of replicas, by way of a scale.
    Scale,
}

impl WriteTarget {
    /// The part that a subresource is; none if it is something else.
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

    /// The name of the subresource; empty for the object itself.
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

/// Why one kind cannot be taken for another.
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
