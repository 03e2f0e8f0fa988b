//! The scope of a list or watch: all namespaces, or one.

use crate::key::Key;
use std::fmt;

/// The scope of a list or watch.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// All namespaces, or a cluster-scoped kind.
    All,
    /// One namespace.
    Namespace(Box<str>),
}

impl Scope {
    /// Creates the scope of one namespace.
    pub fn namespace(name: &str) -> Self {
        Self::Namespace(name.into())
    }

    /// Returns whether `key` is within this scope.
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
