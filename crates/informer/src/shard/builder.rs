//! The settings of a membership: checks them and creates the [`ShardGroup`].

use super::ShardGroup;
use super::client::{COORDINATOR, GroupName};
use super::state::GroupState;
use crate::error::ConfigError;
use crate::shard_view::ShardHandle;
use informer_core::election::ElectionConfig;
use informer_core::shard::{MAX_LEASE_DURATION, RangeCount, ShardProperty};
use std::sync::Arc;
use std::time::Duration;

/// Upper bound on the length of a group's name, which is the value of a label.
const MAX_GROUP_NAME_BYTES: usize = 63;
/// Upper bound on the length of the name of an object.
const MAX_NAME_BYTES: usize = 253;
/// Upper bound on the length of a host name in a default identity.
const MAX_HOST_NAME_BYTES: usize = 150;

/// The property of objects by which a group divides them.
///
/// All members of a group must use the same. A member with another one than those that act for ranges does not act, is not
/// ready and reports the reason as [`ShardStatus::last_error`](super::ShardStatus::last_error).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum ShardKey {
    /// The namespace: all objects of a namespace belong to one member, so that it may also act for objects that belong
    /// together.
    ///
    /// Only with this choice does each key, namespace and name, have at most one holder at any time. Cluster-scoped
    /// objects have no namespace and are divided by uid.
    ///
    /// The hash changes little with the last characters of a name: the namespaces `team-01` to `team-99` are all in one
    /// range. Names that differ at the beginning are divided evenly.
    #[default]
    Namespace,
    /// The uid: the objects are divided evenly, also if most are in one namespace, and cluster-scoped ones too.
    ///
    /// The unit is the key with the uid: if an object is deleted and created again, the new one may belong to another
    /// member while the former holder still works on the old one.
    Uid,
}

impl ShardKey {
    /// The text in the Leases and in the assignment.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Namespace => "namespace",
            Self::Uid => "uid",
        }
    }

    pub(crate) fn property(self) -> ShardProperty {
        match self {
            Self::Namespace => ShardProperty::Namespace,
            Self::Uid => ShardProperty::Uid,
        }
    }
}

/// The settings that a run needs.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) group: GroupName,
    pub(super) identity: Arc<str>,
    pub(super) revision: Arc<str>,
    pub(super) config: ElectionConfig,
    pub(super) count: RangeCount,
    pub(super) shard_by: ShardKey,
    pub(super) release_timeout: Duration,
}

/// Builds the membership of this process in a shard group; see [`ShardGroup::builder`].
#[derive(Clone)]
#[must_use = "a builder does nothing until `build`"]
pub struct ShardGroupBuilder {
    client: kube::Client,
    settings: Settings,
}

impl ShardGroupBuilder {
    pub(super) fn new(client: kube::Client, namespace: &str, name: &str) -> Self {
        let settings = Settings {
            group: GroupName { namespace: namespace.into(), name: name.into() },
            identity: default_identity(&crate::host::host(), crate::workqueue::seed()).into(),
            revision: "".into(),
            config: ElectionConfig::default(),
            count: RangeCount::default(),
            shard_by: ShardKey::default(),
            release_timeout: Duration::from_secs(30),
        };
        Self { client, settings }
    }

    /// Sets by what the objects are divided. Defaults to [`ShardKey::Namespace`].
    ///
    /// A program that changes it gives the group another name, or ends all members before: while a member with the
    /// earlier key runs, those with another one do not act.
    pub fn shard_by(mut self, key: ShardKey) -> Self {
        self.settings.shard_by = key;
        self
    }

    /// Sets the name of this member, which no other process may use at the same time.
    ///
    /// Defaults to the host name with a random suffix. A process that starts with the name of one that was killed waits
    /// until the Lease of that one has expired; with the default it joins at once.
    pub fn identity(mut self, identity: &str) -> Self {
        self.settings.identity = identity.into();
        self
    }

    /// Sets the revision of the program, for example the hash of its pod template. Empty by default.
    ///
    /// While there are members of different revisions, as in a rolling update, ranges move only to members of the newest
    /// revision, and only if they have no member.
    pub fn revision(mut self, revision: &str) -> Self {
        self.settings.revision = revision.into();
        self
    }

    /// Sets lease duration, renew deadline and retry period of the members' Leases and of the election of the
    /// coordinator. Defaults to 15 s, 10 s and 2 s. The lease duration is at most an hour.
    ///
    /// Do not change the lease duration by more than a factor of four in one rollout: a process does not wait for a Lease
    /// for more than four times its own duration, whatever another client has written into the Lease.
    ///
    /// # Errors
    ///
    /// Returns an error if no Lease can be kept with these durations.
    pub fn config(mut self, mut config: ElectionConfig) -> Result<Self, ConfigError> {
        config.lease_duration = config.lease_duration.min(MAX_LEASE_DURATION);
        config.check()?;
        self.settings.config = config;
        Ok(self)
    }

    /// Sets the number of ranges into which a new group divides its hashes: a power of two up to 1024. Defaults to 256.
    ///
    /// It is the upper bound on useful members. The number of an existing group does not change.
    ///
    /// # Errors
    ///
    /// Returns an error for other numbers.
    pub fn ranges(mut self, count: u32) -> Result<Self, ConfigError> {
        self.settings.count = RangeCount::new(count).ok_or(ConfigError::InvalidRangeCount { count })?;
        Ok(self)
    }

    /// Sets how long running work may take to end when its range is released; then it is dropped. Defaults to 30 s.
    ///
    /// Reconciles are dropped earlier if the [shutdown timeout](crate::controller::Controller::shutdown_timeout) of their
    /// controller is shorter. The range stays with this member until its own work has ended, however long that takes; other
    /// ranges do not wait for it.
    pub fn release_timeout(mut self, timeout: Duration) -> Self {
        self.settings.release_timeout = timeout;
        self
    }

    /// Creates the membership. It joins the group when it [runs](ShardGroup::run).
    ///
    /// # Errors
    ///
    /// Returns an error if the name of the group or of the member cannot be part of the name of a Lease.
    pub fn build(self) -> Result<ShardGroup, ConfigError> {
        let Settings { group, identity, .. } = &self.settings;
        let max_identity_bytes = MAX_NAME_BYTES.saturating_sub(group.name.len() + 1);
        let is_valid_group = is_name(&group.name, MAX_GROUP_NAME_BYTES);
        if !is_valid_group {
            return Err(ConfigError::InvalidGroupName { name: (*group.name).into() });
        }
        if !is_name(identity, max_identity_bytes) || **identity == *COORDINATOR {
            return Err(ConfigError::InvalidIdentity { identity: (**identity).into() });
        }
        let handle = ShardHandle::new(&self.settings.group.to_string(), self.settings.shard_by.property());
        let state = Arc::new(GroupState::new(&self.settings.identity, handle));
        Ok(ShardGroup::from_parts(self.client, self.settings, state))
    }
}

impl std::fmt::Debug for ShardGroupBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShardGroupBuilder").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Returns whether a text can be the name of an object: parts of lower-case letters, digits and hyphens that begin and
/// end with a letter or digit, separated by dots.
fn is_name(text: &str, max_bytes: usize) -> bool {
    let is_alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_part = |part: &str| {
        let bytes = part.as_bytes();
        let (first, last) = (bytes.first().copied(), bytes.last().copied());
        first.is_some_and(is_alphanumeric)
            && last.is_some_and(is_alphanumeric)
            && bytes.iter().all(|byte| is_alphanumeric(*byte) || *byte == b'-')
    };
    text.len() <= max_bytes && text.split('.').all(is_part)
}

/// Returns a valid name from a host name, which may contain other characters, and a random number.
fn default_identity(host: &str, random: u64) -> String {
    let valid = |char: char| if char.is_ascii_alphanumeric() { char.to_ascii_lowercase() } else { '-' };
    let host: String = host.chars().take(MAX_HOST_NAME_BYTES).map(valid).collect();
    let host = host.trim_matches('-');
    // Eight digits are enough to distinguish the processes of one host.
    let suffix = random & 0xffff_ffff;
    if host.is_empty() { format!("member-{suffix:08x}") } else { format!("{host}-{suffix:08x}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_as_the_server_checks_them() {
        for valid in ["a", "web-1", "a.b-c.0", "0"] {
            assert!(is_name(valid, 10), "{valid}");
        }
        for invalid in ["", "-a", "a-", "A", "a_b", "a..b", ".a", "a.-b", "elevenchars", "é"] {
            assert!(!is_name(invalid, 10), "{invalid}");
        }
    }

    #[test]
    fn default_identity_is_valid_for_any_host() {
        for host in ["web-5d9", "Host_1.local", "", "---", "é", &"x".repeat(300)] {
            let identity = default_identity(host, u64::MAX);
            assert!(is_name(&identity, MAX_NAME_BYTES - MAX_GROUP_NAME_BYTES - 1), "{identity}");
        }
        assert_eq!(default_identity("Host_1", 0x1_0000_0007), "host-1-00000007");
    }
}
