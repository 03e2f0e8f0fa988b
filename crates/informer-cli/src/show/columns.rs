//! Table columns of each kind: the values that `kubectl get` users look for.
//!
//! Every kind shows its age, apart from events. Cells are read from the JSON object; a missing value or one of another type
//! is `-`.

use super::layout::Sizing;
use super::pod_status;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

/// A column of one kind. If several kinds are watched, their cells are joined in the column `STATE`, each
/// with a prefix and a suffix instead of the title.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) title: &'static str,
    /// Minimal width, so that rare values do not shift the following columns.
    pub(crate) width: usize,
    prefix: &'static str,
    suffix: &'static str,
    cell: Cell,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cell {
    /// The text or number at a path.
    Field(&'static str),
    /// The numbers at two paths: `2/3`.
    Ratio(&'static str, &'static str),
    PodStatus,
    PodReady,
    PodRestarts,
    NodeStatus,
    JobStatus,
    Keys,
    Ports,
    /// The time since the time at a path.
    Since(&'static str),
    Age,
}

const fn column(title: &'static str, prefix: &'static str, suffix: &'static str, cell: Cell) -> Column {
    let width = match cell {
        Cell::PodStatus => "ContainerCreating".len(),
        Cell::NodeStatus => "Ready,SchedulingDisabled".len(),
        _ => 0,
    };
    Column { title, width, prefix, suffix, cell }
}

impl Column {
    /// Returns the rules for the width of the column at this position among the columns of its kind.
    pub(crate) fn sizing(&self, position: usize) -> Sizing {
        let importance = match (position, self.cell) {
            (0, _) => return Sizing::flexible(FIRST_COLUMN, 8, 12),
            (_, Cell::Age) => AGE_COLUMN,
            (position, _) => OTHER_COLUMNS.saturating_add(u8::try_from(position).unwrap_or(u8::MAX)),
        };
        match self.cell {
            Cell::Field(_) => Sizing::flexible(importance, 8, 20),
            _ => Sizing::whole(importance),
        }
    }
}

/// Importance of the first column of a kind, which usually contains its status.
pub(crate) const FIRST_COLUMN: u8 = 3;
/// Importance of the other columns of a kind; their positions are added. The age follows the first of them.
const OTHER_COLUMNS: u8 = 40;
const AGE_COLUMN: u8 = OTHER_COLUMNS + 1;

const AGE: Column = column("AGE", "", " old", Cell::Age);
const READY: Column = column("READY", "", " ready", Cell::Ratio("/status/readyReplicas", "/spec/replicas"));

const KINDS: &[(&str, &[Column])] = &[
    (
        "/Pod",
        &[
            column("STATUS", "", "", Cell::PodStatus),
            column("READY", "", " ready", Cell::PodReady),
            column("RESTARTS", "", " restarts", Cell::PodRestarts),
            AGE,
            column("NODE", "on ", "", Cell::Field("/spec/nodeName")),
        ],
    ),
    ("/Node", &[column("STATUS", "", "", Cell::NodeStatus), AGE]),
    ("/Namespace", &[column("STATUS", "", "", Cell::Field("/status/phase")), AGE]),
    ("/ConfigMap", &[column("KEYS", "", " keys", Cell::Keys), AGE]),
    (
        "/Secret",
        &[column("KEYS", "", " keys", Cell::Keys), column("TYPE", "", "", Cell::Field("/type")), AGE],
    ),
    (
        "/Service",
        &[
            column("TYPE", "", "", Cell::Field("/spec/type")),
            column("CLUSTER-IP", "", "", Cell::Field("/spec/clusterIP")),
            column("PORTS", "", "", Cell::Ports),
            AGE,
        ],
    ),
    (
        "/Event",
        &[
            column("REASON", "", "", Cell::Field("/reason")),
            column("OBJECT", "about ", "", Cell::Field("/involvedObject/name")),
            column("MESSAGE", "", "", Cell::Field("/message")),
        ],
    ),
    ("/PersistentVolumeClaim", &[column("STATUS", "", "", Cell::Field("/status/phase")), AGE]),
    ("/PersistentVolume", &[column("STATUS", "", "", Cell::Field("/status/phase")), AGE]),
    (
        "apps/Deployment",
        &[READY, column("UPDATED", "", " updated", Cell::Field("/status/updatedReplicas")), AGE],
    ),
    ("apps/ReplicaSet", &[READY, AGE]),
    ("apps/StatefulSet", &[READY, AGE]),
    (
        "apps/DaemonSet",
        &[
            column(
                "READY",
                "",
                " ready",
                Cell::Ratio("/status/numberReady", "/status/desiredNumberScheduled"),
            ),
            AGE,
        ],
    ),
    (
        "batch/Job",
        &[
            column("STATUS", "", "", Cell::JobStatus),
            column("DONE", "", " done", Cell::Ratio("/status/succeeded", "/spec/completions")),
            AGE,
        ],
    ),
    ("batch/CronJob", &[column("SCHEDULE", "", "", Cell::Field("/spec/schedule")), AGE]),
    (
        "coordination.k8s.io/Lease",
        &[
            column("HOLDER", "held by ", "", Cell::Field("/spec/holderIdentity")),
            column("RENEWED", "renewed ", " ago", Cell::Since("/spec/renewTime")),
            AGE,
        ],
    ),
];

/// Returns the columns of a kind.
pub(crate) fn columns(group: &str, kind: &str) -> &'static [Column] {
    let row = KINDS.iter().find(|(known, _)| known.split_once('/') == Some((group, kind)));
    row.map_or(&[AGE], |(_, columns)| columns)
}

/// Returns the cells of an object in the columns of its kind.
pub(crate) fn cells(columns: &[Column], object: &Value, now: Timestamp) -> Vec<String> {
    columns.iter().map(|column| column.cell.value(object, now).unwrap_or_else(|| "-".to_owned())).collect()
}

/// Returns the cells as phrases that need no column titles: `Running`, `1/1 ready`, `on node-2`.
pub(crate) fn phrases(columns: &[Column], cells: &[String]) -> Vec<String> {
    columns
        .iter()
        .zip(cells)
        .filter(|(column, cell)| *cell != "-" && !(*cell == "0" && column.title == "RESTARTS"))
        .map(|(column, cell)| {
            let singular = if cell == "1" { column.suffix.strip_suffix('s') } else { None };
            format!("{}{cell}{}", column.prefix, singular.unwrap_or(column.suffix))
        })
        .collect()
}

/// Formats an age as kubectl does, in at most two units: `61s`, `5m12s`, `95m`, `3h5m`, `30h`, `4d3h`, `2y10d`.
pub(crate) fn age(span: SignedDuration) -> String {
    let seconds = span.as_secs();
    // A little in the future is explained by clocks that differ.
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    let seconds = seconds.max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    if seconds < 120 {
        format!("{seconds}s")
    } else if minutes < 10 {
        two_units(minutes, "m", seconds % 60, "s")
    } else if hours < 3 {
        format!("{minutes}m")
    } else if hours < 8 {
        two_units(hours, "h", minutes % 60, "m")
    } else if hours < 48 {
        format!("{hours}h")
    } else if days < 8 {
        two_units(days, "d", hours % 24, "h")
    } else if days < 2 * 365 {
        format!("{days}d")
    } else if days < 8 * 365 {
        two_units(days / 365, "y", days % 365, "d")
    } else {
        format!("{}y", days / 365)
    }
}

/// Formats a number of units and the rest in smaller ones, unless it is zero.
fn two_units(number: i64, unit: &str, rest: i64, smaller: &str) -> String {
    if rest == 0 { format!("{number}{unit}") } else { format!("{number}{unit}{rest}{smaller}") }
}

impl Cell {
    fn value(self, object: &Value, now: Timestamp) -> Option<String> {
        match self {
            Self::Field(path) => text(object.pointer(path)?),
            Self::Ratio(actual, desired) => {
                let number = |path| object.pointer(path).and_then(Value::as_u64);
                Some(format!("{}/{}", number(actual).unwrap_or(0), number(desired).unwrap_or(1)))
            }
            Self::PodStatus => Some(pod_status::status(object)),
            Self::PodReady => {
                let (ready, wanted) = pod_status::ready(object);
                Some(format!("{ready}/{wanted}"))
            }
            Self::PodRestarts => Some(pod_status::restarts(object).to_string()),
            Self::NodeStatus => Some(node_status(object)),
            Self::JobStatus => Some(job_status(object)),
            Self::Keys => {
                let count =
                    |part: &str| object.get(part).and_then(Value::as_object).map_or(0, serde_json::Map::len);
                Some((count("data") + count("binaryData")).to_string())
            }
            Self::Ports => {
                let ports: Vec<String> =
                    items(object, "/spec/ports").iter().filter_map(|port| text(port.get("port")?)).collect();
                (!ports.is_empty()).then(|| ports.join(","))
            }
            Self::Since(path) => since(object, path, now),
            Self::Age => since(object, "/metadata/creationTimestamp", now),
        }
    }
}

fn since(object: &Value, path: &str, now: Timestamp) -> Option<String> {
    let time: Timestamp = object.pointer(path)?.as_str()?.parse().ok()?;
    Some(age(now.duration_since(time)))
}

fn node_status(node: &Value) -> String {
    let ready = items(node, "/status/conditions").iter().find(|condition| condition["type"] == "Ready");
    let ready = match ready.and_then(|condition| condition["status"].as_str()) {
        Some("True") => "Ready",
        Some("False") => "NotReady",
        _ => "Unknown",
    };
    let cordoned = node.pointer("/spec/unschedulable") == Some(&Value::Bool(true));
    format!("{ready}{}", if cordoned { ",SchedulingDisabled" } else { "" })
}

fn job_status(job: &Value) -> String {
    let is_true = |kind: &str| {
        items(job, "/status/conditions")
            .iter()
            .any(|condition| condition["type"] == kind && condition["status"] == "True")
    };
    let known = ["Complete", "Failed", "Suspended"].into_iter().find(|kind| is_true(kind));
    known.unwrap_or("Running").to_owned()
}

pub(super) fn items<'a>(object: &'a Value, path: &str) -> &'a [Value] {
    object.pointer(path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => (!text.is_empty()).then(|| text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(group: &str, kind: &str, object: &Value, expected: &str) {
        let now: Timestamp = "2024-01-02T00:00:00Z".parse().unwrap();
        let columns = columns(group, kind);
        assert_eq!(cells(columns, object, now).join(" | "), expected, "{kind}");
    }

    #[test]
    fn common_kinds_have_their_columns() {
        let pod = json!({
            "spec": {"nodeName": "n1", "containers": [{"name": "a"}, {"name": "b"}]},
            "status": {"phase": "Running", "containerStatuses": [
                {"name": "a", "ready": true, "restartCount": 2, "state": {"running": {}}},
                {"name": "b", "ready": false, "restartCount": 1, "state": {"waiting": {"reason": "CrashLoopBackOff"}}},
            ]},
        });
        check("", "Pod", &pod, "CrashLoopBackOff | 1/2 | 3 | - | n1");
        check(
            "",
            "Pod",
            &json!({"status": {"phase": "Failed", "reason": "Evicted"}}),
            "Evicted | 0/0 | 0 | - | -",
        );
        check("", "Pod", &json!({"metadata": {"deletionTimestamp": "x"}}), "Terminating | 0/0 | 0 | - | -");
        check(
            "apps",
            "Deployment",
            &json!({"spec": {"replicas": 3}, "status": {"readyReplicas": 2}}),
            "2/3 | - | -",
        );
        let conditions = json!([{"type": "Ready", "status": "False"}]);
        check(
            "",
            "Node",
            &json!({"spec": {"unschedulable": true}, "status": {"conditions": conditions}}),
            "NotReady,SchedulingDisabled | -",
        );
        check("", "Secret", &json!({"data": {"a": "", "b": ""}, "type": "Opaque"}), "2 | Opaque | -");
        let lease = json!({"spec": {"holderIdentity": "node-1", "renewTime": "2024-01-01T23:59:51.123456Z"}});
        check("coordination.k8s.io", "Lease", &lease, "node-1 | 8s | -");
        check(
            "example.com",
            "Widget",
            &json!({"metadata": {"creationTimestamp": "2024-01-01T22:30:00Z"}}),
            "90m",
        );
    }

    #[test]
    fn malformed_objects_have_cells() {
        for object in [json!(null), json!([]), json!({"spec": 1, "status": "x", "metadata": []})] {
            for (kind, columns) in KINDS {
                let cells = cells(columns, &object, Timestamp::UNIX_EPOCH);
                assert_eq!(cells.len(), columns.len(), "{kind}");
            }
        }
    }

    /// Regression: 61 s were `1m1s`, where kubectl prints `61s`; the limits of the units were not those of kubectl.
    /// The tests compared with texts that this program had printed.
    #[test]
    fn ages_match_kubectl() {
        const MINUTE: i64 = 60;
        const HOUR: i64 = 60 * MINUTE;
        const DAY: i64 = 24 * HOUR;
        const YEAR: i64 = 365 * DAY;
        for (seconds, expected) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (61, "61s"),
            (119, "119s"),
            (2 * MINUTE, "2m"),
            (2 * MINUTE + 1, "2m1s"),
            (10 * MINUTE - 1, "9m59s"),
            (10 * MINUTE + 1, "10m"),
            (3 * HOUR - 1, "179m"),
            (3 * HOUR, "3h"),
            (3 * HOUR + MINUTE, "3h1m"),
            (8 * HOUR - 1, "7h59m"),
            (8 * HOUR + MINUTE, "8h"),
            (2 * DAY - 1, "47h"),
            (2 * DAY, "2d"),
            (8 * DAY - 1, "7d23h"),
            (8 * DAY + HOUR, "8d"),
            (2 * YEAR - 1, "729d"),
            (2 * YEAR, "2y"),
            (3 * YEAR + DAY, "3y1d"),
            (8 * YEAR - 1, "7y364d"),
            (8 * YEAR + DAY, "8y"),
        ] {
            assert_eq!(age(SignedDuration::from_secs(seconds)), expected, "{seconds}");
        }
    }

    #[test]
    fn phrases_omit_missing_values() {
        let cells = ["Running", "1/1", "0", "-", "node-1"].map(str::to_owned);
        assert_eq!(phrases(columns("", "Pod"), &cells), ["Running", "1/1 ready", "on node-1"]);
        let cells = ["Running", "1/1", "1", "5m", "-"].map(str::to_owned);
        assert_eq!(phrases(columns("", "Pod"), &cells), ["Running", "1/1 ready", "1 restart", "5m old"]);
    }
}
