//! Who sends requests: a name, a uid, groups and extra values.
//!
//! A user is only described here. How users are recognised and what they may do is decided in `access`.

use std::collections::BTreeMap;

/// The group whose members may do anything.
pub(crate) const MASTERS: &str = "system:masters";

/// Somebody who sends requests, as access rules know them.
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
    /// A user in no group. Who shows a valid token is in `system:authenticated` besides.
    pub fn new(name: impl Into<String>) -> Self {
        User { name: name.into(), ..User::default() }
    }

    /// A member of `system:masters`, who may do anything.
    pub fn admin(name: impl Into<String>) -> Self {
        User::new(name).group(MASTERS)
    }

    /// Gives the user a uid.
    pub fn uid(self, uid: impl Into<String>) -> Self {
        User { uid: uid.into(), ..self }
    }

    /// Puts the user into a group.
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.groups.push(group.into());
        self
    }

    /// Adds a value that only some authorizers understand, and reviews show.
    pub fn extra(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.extra.entry(key.into()).or_default().push(value.into());
        self
    }

    /// The user's name.
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
