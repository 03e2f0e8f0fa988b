//! Arguments of the command `shards`.

use super::{Watch, WithoutCluster, duration};
use std::path::PathBuf;
use std::time::Duration;

const SHARDS_EXAMPLES: &str = "\
Examples:
  informer shards shop/budget-operator             members, and the ranges of each
  informer shards shop/budget-operator -o json     one JSON object

Members:
  STATUS      coordinator: writes the assignment; member; leaving; expired: not renewed for
              twice its duration; unreadable: another client has changed the Lease
  CLAIMED     ranges that the Lease of the member claims: it acts for them, or is about to
  ASSIGNED    ranges that the member should have
  REVISION    of the program; ranges move to members of the newest one only
  KEY         namespace or uid; all members must have the same
  RENEWED     time since the Lease was renewed
  ASSIGNMENT  which one the member has read; older is normal for some seconds after a change

Ranges, neighbouring ones in one row:
  HASHES      the first and the last hash, without their last 12 digits
  RANGES      number of ranges
  STATE       Owned; Unassigned; Releasing: the owner ends its work for them;
              Moving: the owner has not claimed them yet
  EPOCH       how often they were assigned to another member
  CLAIMED BY  the member whose Lease claims them";

/// Upper bound on the length of a group's name, as in `ShardGroup::builder`.
const MAX_NAME_BYTES: usize = 63;

/// Shows the members of a shard group, their ranges, and which of them are moving
///
/// The ranges are those of hashes of namespaces or uids. A member that has not renewed its Lease for a long time, by its
/// own clock, is shown as expired.
#[derive(Debug, clap::Args)]
#[command(after_help = SHARDS_EXAMPLES)]
pub(crate) struct Shards {
    /// Group: the namespace of its Leases, and its name
    #[arg(value_name = "NAMESPACE/NAME", value_parser = group)]
    pub(crate) group: Group,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "table", value_parser = ["table", "json"])]
    output: String,
    /// Time limit for connecting, and for the requests
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub(crate) timeout: Duration,
    /// Kubeconfig; defaults to $KUBECONFIG, ~/.kube/config or the service account of the pod
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

/// The name of a shard group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// Parses the name of a shard group.
fn group(text: &str) -> Result<Group, String> {
    let parsed = text.split_once('/').and_then(|(namespace, name)| {
        let namespace = super::namespace(namespace).ok()?;
        is_group_name(name).then(|| Group { namespace, name: name.to_owned() })
    });
    parsed.ok_or_else(|| {
        "expected NAMESPACE/NAME, each of at most 63 lower-case letters, digits and '-' (in NAME also '.')"
            .to_owned()
    })
}

/// Returns whether `ShardGroup::builder` accepts a name: parts of lower-case letters, digits and hyphens that begin and
/// end with a letter or digit, separated by dots.
fn is_group_name(text: &str) -> bool {
    let is_alphanumeric = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    let is_part = |part: &str| {
        part.starts_with(is_alphanumeric)
            && part.ends_with(is_alphanumeric)
            && part.chars().all(|letter| is_alphanumeric(letter) || letter == '-')
    };
    text.len() <= MAX_NAME_BYTES && text.split('.').all(is_part)
}

impl Shards {
    /// Returns whether JSON is printed.
    pub(crate) fn is_json(&self) -> bool {
        self.output == "json"
    }

    /// Returns how the cluster is selected.
    pub(crate) fn into_watch(self) -> Watch {
        let Self { kubeconfig, context, timeout, .. } = self;
        Watch { kubeconfig, context, timeout, without_cluster: WithoutCluster::Fail, ..Watch::of_pods() }
    }
}
