//! What a namespace may use: quotas and ranges of limits.

use super::report::{Place, Report};
use crate::text::{Quantity, formats};

/// What is measured, and has no domain.
const MEASURED: &[&str] = &[
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
];

/// What is counted, and has no domain: there are only whole ones.
const COUNTED: &[&str] = &[
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "persistentvolumeclaims",
    "configmaps",
    "services.nodeports",
    "services.loadbalancers",
];

pub(super) fn quota(object: &Place<'_>, report: &mut Report) {
    for (name, place) in object.entries("spec.hard") {
        report.invalid_each(&place, name, formats::qualified_name(name));
        let pages = name.starts_with("hugepages-") || name.starts_with("requests.hugepages-");
        let known = MEASURED.contains(&name) || COUNTED.contains(&name) || pages;
        if !name.contains('/') && !known {
            report.invalid_text(&place, name, "must be a standard resource for quota");
        }
        let Ok(amount) = Quantity::parse(place.text()) else { continue };
        if amount.is_negative() {
            report.invalid_text(&place, &amount.canonical(), "must be greater than or equal to 0");
        }
        if COUNTED.contains(&name) && !amount.is_whole() {
            report.invalid_text(&place, &amount.canonical(), "must be an integer");
        }
    }
}

/// Amounts that may not be greater than others: where, than what, how both are called, and where that is said.
const ORDER: &[(&str, &str, &str, &str, &str)] = &[
    ("min", "max", "min value", "max value", "min"),
    ("min", "defaultRequest", "min value", "default request value", "defaultRequest"),
    ("defaultRequest", "max", "default request value", "max value", "defaultRequest"),
    ("defaultRequest", "default", "default request value", "default limit value", "defaultRequest"),
    ("min", "default", "min value", "default value", "default"),
    ("default", "max", "default value", "max value", "default"),
];

pub(super) fn limits(object: &Place<'_>, report: &mut Report) {
    for limit in object.each("spec.limits") {
        let names: std::collections::BTreeSet<&str> = ["max", "min", "default", "defaultRequest"]
            .iter()
            .flat_map(|field| limit.entries(field))
            .map(|(name, _)| name)
            .collect();
        for name in names {
            let amount = |field: &str| Quantity::parse(limit.at(field).key(name).text()).ok();
            for (low, high, low_called, high_called, field) in ORDER {
                let (Some(small), Some(large)) = (amount(low), amount(high)) else { continue };
                if small <= large {
                    continue;
                }
                let shown = match (*low, *field) {
                    ("min", "defaultRequest") | ("default", "default") => large.canonical(),
                    _ => small.canonical(),
                };
                let why = format!(
                    "{low_called} {} is greater than {high_called} {}",
                    small.canonical(),
                    large.canonical()
                );
                report.invalid_text(&limit.at(field).key(name), &shown, &why);
            }
        }
    }
}
