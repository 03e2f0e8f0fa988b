//! What a list or watch speaks for: everything, or one namespace.

use crate::key::Key;
use std::fmt;

/// What a list or watch speaks for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// All namespaces, or a cluster-scoped kind.
    All,
    /// One namespace.
    Namespace(Box<str>),
}

impl Scope {
    /// One namespace.
    pub fn namespace(name: &str) -> Self {
        Self::Namespace(name.into())
    }

    /// Whether a key belongs to it.
    pub fn contains(&self, key: &Key) -> bool {
        match self {
            Self::All => true,
            Self::Namespace(namespace) => key.namespace() == Some(namespace),
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all namespaces"),
            Self::Namespace(namespace) => write!(f, "namespace {namespace}"),
        }
    }
}
