//! Arguments of the command `shards`.

use super::{Watch, WithoutCluster, duration};
use std::path::PathBuf;
use std::time::Duration;

const SHARDS_EXAMPLES: &str = "\
Examples:
  informer shards shop/budget-operator             members, and the ranges of each
  informer shards shop/budget-operator -o json     one JSON object

STATE of ranges: Owned; Releasing: the owner ends its work for them; Moving: the owner has not claimed them yet; \
Unassigned. LAG: the member has not read the newest assignment.";

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
    let (namespace, name) = text.split_once('/').ok_or("expected NAMESPACE/NAME")?;
    Ok(Group { namespace: super::namespace(namespace)?, name: super::namespace(name)? })
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
