//! Table cells of devices and resource claims.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age;
use super::fields::{at, is_terminating, list, number, text};

/// The state of a resource claim, `allocated,reserved`.
pub(super) fn claim_state(claim: &Value) -> String {
    let terminating = is_terminating(claim);
    let allocated = at(claim, "/status/allocation").is_some();
    let reserved = allocated && !list(claim, "/status/reservedFor").is_empty();
    let states = [
        (terminating, "deleted"),
        (!allocated && !terminating, "pending"),
        (allocated, "allocated"),
        (reserved, "reserved"),
    ];
    let active: Vec<&str> =
        states.into_iter().filter(|(is_active, _)| *is_active).map(|(_, name)| name).collect();
    active.join(",")
}

/// Eight cells: devices of all pools (total, available, allocated, unavailable), invalid pools, pools, status
/// and the age of the completion.
pub(super) fn pool_status(request: &Value, now: Timestamp) -> Vec<Value> {
    let pools = list(request, "/status/pools");
    let count = number(request, "/status/poolCount");
    let decided = list(request, "/status/conditions").iter().find(|condition| {
        matches!(text(condition, "/type"), "Complete" | "Failed") && text(condition, "/status") == "True"
    });
    let kind = decided.map_or("Pending", |condition| text(condition, "/type"));
    let status = if kind == "Complete" && usize::try_from(count).is_ok_and(|count| count > pools.len()) {
        format!("Complete ({}/{count} pools)", pools.len())
    } else {
        kind.to_owned()
    };
    let completed = match decided {
        Some(condition) if kind == "Complete" => age::since(condition, "/lastTransitionTime", now),
        _ => "<none>".to_owned(),
    };
    let is_known = at(request, "/status").is_some() && kind != "Failed";
    let sum = |pointer: &str| {
        let devices = pools.iter().fold(0_i64, |sum, pool| sum.saturating_add(number(pool, pointer)));
        json!(if is_known { devices.to_string() } else { "-".to_owned() })
    };
    let invalid = pools.iter().filter(|pool| at(pool, "/validationError").is_some()).count();
    vec![
        sum("/totalDevices"),
        sum("/availableDevices"),
        sum("/allocatedDevices"),
        sum("/unavailableDevices"),
        json!(if is_known { invalid.to_string() } else { "-".to_owned() }),
        json!(count),
        json!(status),
        json!(completed),
    ]
}
