//! The command `shards`: the members of a shard group, and which of them has which ranges.

use crate::args::Shards;
use crate::cli_error::{CliError, failure_hint};
use crate::cluster;
use crate::show::columns::age;
use crate::show::escape::escape;
use crate::terminal::{Terminal, print};
use informer::Timestamp;
use informer::shard::{GroupDescription, HashRanges, MemberDescription, RangeDescription, describe};
use informer::source::classify;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Prints a shard group.
pub(crate) async fn run(args: Shards) -> Result<(), CliError> {
    let group = args.group.clone();
    let (timeout, json) = (args.timeout, args.is_json());
    let terminal = Terminal::new();
    let cluster = cluster::connect(&args.into_watch(), &terminal).await.map_err(CliError::without_demo)?;
    let read = tokio::time::timeout(timeout, describe(cluster.client, &group.namespace, &group.name)).await;
    let subject = format!("shard group {}/{}", group.namespace, group.name);
    let read = read.map_err(|_| {
        CliError::new(format!("{subject}: no response within {timeout:?}"), "increase --timeout")
    })?;
    let description = read.map_err(|error| request_error(&subject, &error))?;
    if description.members.is_empty() && description.assignment_version.is_none() {
        return Err(CliError::new(
            format!("{subject} does not exist"),
            "give NAMESPACE/NAME as in ShardGroup::builder",
        ));
    }
    if description.ranges.is_empty() {
        terminal.warn(&format!("{subject}: no readable assignment (is a coordinator running?)"));
    }
    let text = if json {
        format!("{:#}\n", to_json(&description))
    } else {
        format_tables(&description, informer::now())
    };
    print(&text).map_err(|error| CliError::new(format!("write output: {error}"), ""))
}

/// Converts the error of a request.
fn request_error(subject: &str, error: &kube::Error) -> CliError {
    let failure = classify(error);
    let hint = match error {
        kube::Error::Api(status) if status.code == 403 => {
            "the user needs permission to get config maps, and to get and list leases"
        }
        // The hint is for selectors of users.
        _ if failure.is_permanent() => "",
        _ => failure_hint(&failure),
    };
    CliError::new(format!("{subject}: {failure}"), hint)
}

/// Formats the members and the ranges as two tables; the second one is left out if there are no ranges.
fn format_tables(group: &GroupDescription, now: Timestamp) -> String {
    let titles = ["MEMBER", "STATUS", "CLAIMED", "ASSIGNED", "REVISION", "KEY", "RENEWED", "ASSIGNMENT"];
    let rows = group.members.iter().map(|member| {
        let renewed = member.renewed.map(|renewed| now.duration_since(renewed));
        vec![
            member.identity.clone(),
            status_of(group, member, now).to_owned(),
            count(group, |range| member.claims.overlaps(&range.range)),
            count(group, |range| range.owner.as_deref() == Some(member.identity.as_str())),
            or_dash(&member.revision),
            or_dash(&member.key),
            renewed.map_or_else(|| "-".to_owned(), age),
            match &group.assignment_version {
                None => "-".to_owned(),
                Some(_) if member.is_up_to_date => "current".to_owned(),
                Some(_) => "older".to_owned(),
            },
        ]
    });
    let mut text = table(&titles, &rows.collect::<Vec<_>>());
    if group.ranges.is_empty() {
        return text;
    }
    text.push('\n');
    let titles = ["HASHES", "RANGES", "OWNER", "STATE", "EPOCH", "CLAIMED BY"];
    let rows = runs(&group.ranges).into_iter().map(|run| {
        let [first, last] = [run[0], run[run.len() - 1]];
        vec![
            format!("{:04x}-{:04x}", first.range.first() >> 48, last.range.last() >> 48),
            run.len().to_string(),
            first.owner.clone().unwrap_or_else(|| "-".to_owned()),
            state_of(first).to_owned(),
            first.epoch.to_string(),
            first.claimed_by.clone().unwrap_or_else(|| "-".to_owned()),
        ]
    });
    text.push_str(&table(&titles, &rows.collect::<Vec<_>>()));
    text
}

/// Formats the number of ranges with a property; without an assignment, it is not known.
fn count(group: &GroupDescription, has_property: impl Fn(&RangeDescription) -> bool) -> String {
    if group.ranges.is_empty() {
        return "-".to_owned();
    }
    group.ranges.iter().filter(|&range| has_property(range)).count().to_string()
}

/// Returns the status of a member. Clocks may differ, so a Lease counts as expired only with some tolerance.
fn status_of(group: &GroupDescription, member: &MemberDescription, now: Timestamp) -> &'static str {
    let is_expired = member.renewed.is_some_and(|renewed| {
        let since = now.duration_since(renewed).unsigned_abs();
        now > renewed && since > 2 * member.lease_duration
    });
    // The election appends a random suffix to the name of a candidate.
    let is_coordinator = group
        .coordinator
        .as_deref()
        .is_some_and(|holder| holder.rsplit_once('_').map_or(holder, |(name, _)| name) == member.identity);
    match () {
        // Only a Lease that cannot be read has no key.
        () if member.key.is_empty() => "unreadable",
        () if is_expired => "expired",
        () if member.is_leaving => "leaving",
        () if is_coordinator => "coordinator",
        () => "member",
    }
}

fn state_of(range: &RangeDescription) -> &'static str {
    match (&range.owner, range.is_releasing, &range.claimed_by) {
        (None, ..) => "Unassigned",
        (Some(_), true, _) => "Releasing",
        (Some(owner), false, Some(claimed_by)) if owner == claimed_by => "Owned",
        (Some(_), false, _) => "Moving",
    }
}

/// Groups neighbouring ranges that differ in nothing but their hashes.
fn runs(ranges: &[RangeDescription]) -> Vec<Vec<&RangeDescription>> {
    let mut runs: Vec<Vec<&RangeDescription>> = Vec::new();
    let key = |range: &RangeDescription| {
        (range.owner.clone(), range.epoch, range.is_releasing, range.claimed_by.clone())
    };
    for range in ranges {
        match runs.last_mut() {
            Some(run) if key(run[0]) == key(range) => run.push(range),
            _ => runs.push(vec![range]),
        }
    }
    runs
}

/// Formats a table with columns as wide as their longest cell.
fn table(titles: &[&str], rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| escape(cell).into_owned()).collect()).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| console::measure_text_width(&row[column]));
        cells.chain([titles[column].len()]).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..titles.len()).map(width).collect();
    let titles: Vec<String> = titles.iter().map(|title| (*title).to_owned()).collect();
    let mut text = String::new();
    for row in std::iter::once(&titles).chain(&rows) {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let padding = width - console::measure_text_width(cell);
            // Writing to a string does not fail.
            let _ = write!(line, "{cell}{}   ", " ".repeat(padding));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn or_dash(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}

fn to_json(group: &GroupDescription) -> Value {
    let hashes = |ranges: &HashRanges| ranges.to_string();
    let members = group.members.iter().map(|member| {
        json!({
            "name": member.identity,
            "revision": member.revision,
            "key": member.key,
            "renewed": member.renewed.map(|renewed| renewed.to_string()),
            "leaseDurationSeconds": member.lease_duration.as_secs(),
            "leaving": member.is_leaving,
            "claims": hashes(&member.claims),
            "upToDate": member.is_up_to_date,
        })
    });
    let ranges = group.ranges.iter().map(|range| {
        json!({
            "range": range.range.to_string(),
            "owner": range.owner,
            "epoch": range.epoch,
            "state": state_of(range),
            "claimedBy": range.claimed_by,
        })
    });
    json!({
        "coordinator": group.coordinator,
        "assignmentVersion": group.assignment_version,
        "members": members.collect::<Vec<_>>(),
        "ranges": ranges.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use informer_apiserver::ApiServer;

    fn lease(name: &str, renewed: Timestamp, claims: &str, is_leaving: bool) -> Value {
        let annotation = |key: &str, value: &str| (format!("informer.rs/shard-{key}"), json!(value));
        let annotations = [
            annotation("instance", "0000000000000001"),
            annotation("revision", "r1"),
            annotation("key", "uid"),
            annotation("number", "7"),
            annotation("claims", claims),
            annotation("assignment", "1"),
            annotation("leaving", if is_leaving { "true" } else { "false" }),
        ];
        let annotations: serde_json::Map<String, Value> = annotations.into_iter().collect();
        let labels = json!({"informer.rs/shard-group": "shop"});
        let metadata = json!({"namespace": "default", "name": format!("shop-{name}"), "labels": labels,
            "annotations": annotations});
        let spec = json!({"holderIdentity": name, "leaseDurationSeconds": 15,
            "renewTime": renewed.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()});
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec})
    }

    /// Bug: a member whose Lease cannot be read was shown as one that leaves.
    #[tokio::test]
    async fn damaged_lease_is_unreadable() {
        let server = ApiServer::new();
        server.create(&lease("a", server.now(), "everything", false)).unwrap();
        let group = describe(server.client(), "default", "shop").await.unwrap();
        let expected = "\
MEMBER   STATUS       CLAIMED   ASSIGNED   REVISION   KEY   RENEWED   ASSIGNMENT
a        unreadable   -         -          -          -     -         -
";
        assert_eq!(format_tables(&group, server.now()), expected);
    }

    /// The states of members and ranges that a running group passes through quickly.
    #[tokio::test]
    async fn tables_show_all_states() {
        let server = ApiServer::new();
        let now = server.now();
        let seconds_ago = |seconds: i64| now - jiff::SignedDuration::from_secs(seconds);
        let first = "0000000000000000-3fffffffffffffff";
        let second = "4000000000000000-7fffffffffffffff";
        for lease in [
            lease("a", seconds_ago(3), first, false),
            lease("b", seconds_ago(4), second, true),
            lease("c", seconds_ago(31), "", false),
            // A clock that is ahead.
            lease("d", seconds_ago(-60), "", false),
        ] {
            server.create(&lease).unwrap();
        }
        let run = |first: u32, owner: Option<&str>, state: &str| json!({"first": first, "count": 1, "owner": owner, "epoch": 5, "state": state});
        let runs = [
            run(0, Some("a"), "Owned"),
            run(1, Some("b"), "Releasing"),
            run(2, Some("d"), "Owned"),
            run(3, None, "Owned"),
        ];
        let assignment =
            json!({"ranges": 4, "key": "uid", "runs": runs, "revisions": ["r1"], "members": ["a", "c", "d"]});
        let metadata = json!({"namespace": "default", "name": "shop-assignment"});
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata,
            "data": {"assignment": assignment.to_string()}});
        server.create(&map).unwrap();
        let group = describe(server.client(), "default", "shop").await.unwrap();
        let expected = "\
MEMBER   STATUS    CLAIMED   ASSIGNED   REVISION   KEY   RENEWED     ASSIGNMENT
a        member    1         1          r1         uid   3s          older
b        leaving   1         1          r1         uid   4s          older
c        expired   0         0          r1         uid   31s         older
d        member    0         1          r1         uid   <invalid>   older

HASHES      RANGES   OWNER   STATE        EPOCH   CLAIMED BY
0000-3fff   1        a       Owned        5       a
4000-7fff   1        b       Releasing    5       b
8000-bfff   1        d       Moving       5       -
c000-ffff   1        -       Unassigned   5       -
";
        assert_eq!(format_tables(&group, now), expected);
    }
}
