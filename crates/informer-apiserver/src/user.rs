//! The user who sends a request: name, uid, groups and extra values.
//!
//! A [`User`] only describes: `access` decides how users authenticate and what they may do.

use std::collections::BTreeMap;

/// The group whose members may do anything.
pub(crate) const MASTERS: &str = "system:masters";

/// A user as RBAC and access reviews see it.
///
/// ```
/// use informer_apiserver::User;
///
/// let admin = User::new("admin").group("system:masters");
/// assert_eq!(admin.name(), "admin");
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use]
pub struct User {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) groups: Vec<String>,
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// Creates a user without groups.
    ///
    /// With access control, a user with a valid token is also a member of `system:authenticated`.
    pub fn new(name: impl Into<String>) -> Self {
        User { name: name.into(), ..User::default() }
    }

    /// Creates a member of `system:masters`, who may do anything.
    pub fn admin(name: impl Into<String>) -> Self {
        User::new(name).group(MASTERS)
    }

    /// Sets the uid.
    pub fn uid(self, uid: impl Into<String>) -> Self {
        User { uid: uid.into(), ..self }
    }

    /// Adds the user to a group.
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.groups.push(group.into());
        self
    }

    /// Adds an extra value. RBAC ignores extra values; a `TokenReview` and a `SelfSubjectReview` return them.
    pub fn extra(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.extra.entry(key.into()).or_default().push(value.into());
        self
    }

    /// Returns the user's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|known| known == group)
    }

    pub(crate) fn join(&mut self, group: &str) {
        if !self.is_in(group) {
            self.groups.push(group.to_owned());
        }
    }
}
