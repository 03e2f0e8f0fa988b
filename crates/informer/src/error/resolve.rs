//! The error of finding a resource by name.

use super::ErrorKind;
use std::fmt;

/// The error of finding the resource that a name refers to.
#[derive(Debug)]
#[non_exhaustive]
pub enum ResolveError {
    /// The server has no resource of this name.
    #[non_exhaustive]
    Unknown {
        /// The name.
        name: String,
        /// Resources of this name in other groups or versions than the name requires.
        other_groups: Vec<String>,
        /// The versions of groups whose resources could not be discovered, and may include this one.
        unavailable: Vec<String>,
        /// The error of the first of them.
        source: Option<Box<kube::Error>>,
    },
    /// Several groups have a resource of this name.
    #[non_exhaustive]
    Ambiguous {
        /// The name.
        name: String,
        /// Names that are not ambiguous.
        candidates: Vec<String>,
    },
    /// The resource cannot be listed and watched, so there is no informer for it.
    #[non_exhaustive]
    NotWatchable {
        /// The name with its group, as in `tokenreviews.authentication.k8s.io`.
        name: String,
        /// The verbs that the resource has.
        verbs: Vec<String>,
    },
    /// The groups of the server could not be read.
    #[non_exhaustive]
    Request {
        /// The name.
        name: String,
        /// The error of the client.
        source: Box<kube::Error>,
    },
}

impl ResolveError {
    /// Classifies the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Unknown { source: None, .. } => ErrorKind::NotServed,
            Self::Ambiguous { .. } | Self::NotWatchable { .. } => ErrorKind::Invalid,
            Self::Unknown { source: Some(source), .. } | Self::Request { source, .. } => {
                ErrorKind::of_client_error(source)
            }
        }
    }
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { name, other_groups, unavailable, .. } => {
                write!(f, "resolve resource {name:?}: not served ")?;
                if name.contains(['/', ',']) {
                    f.write_str("(the name of one resource is expected, without object or list)")
                } else if !unavailable.is_empty() {
                    write!(f, "({} could not be discovered)", unavailable.join(", "))
                } else if !other_groups.is_empty() {
                    write!(f, "(did you mean {}?)", other_groups.join(" or "))
                } else {
                    f.write_str("(`kubectl api-resources` lists all resources)")
                }
            }
            Self::Ambiguous { name, candidates } => {
                write!(f, "resolve resource {name:?}: ambiguous (use {})", candidates.join(" or "))
            }
            Self::NotWatchable { name, verbs } => {
                write!(
                    f,
                    "resolve resource {name:?}: cannot be watched (supported verbs: {})",
                    verbs.join(", ")
                )
            }
            Self::Request { name, .. } => write!(f, "resolve resource {name:?}: discovery failed"),
        }
    }
}

impl std::error::Error for ResolveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Request { source, .. } | Self::Unknown { source: Some(source), .. } => Some(source),
            Self::Unknown { source: None, .. } | Self::Ambiguous { .. } | Self::NotWatchable { .. } => None,
        }
    }
}
