//! Validation of resource quotas and limit ranges.

use super::report::{Position, Report};
use crate::text::{Quantity, formats};

/// Measured resources without a domain.
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

/// Counted resources without a domain, which must be integers.
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

pub(super) fn quota(object: &Position<'_>, report: &mut Report) {
    for (name, position) in object.entries("spec.hard") {
        report.invalid_each(&position, name, formats::qualified_name(name));
        let is_huge_pages = name.starts_with("hugepages-") || name.starts_with("requests.hugepages-");
        let is_known = MEASURED.contains(&name) || COUNTED.contains(&name) || is_huge_pages;
        if !name.contains('/') && !is_known {
            report.invalid_text(&position, name, "must be a standard resource for quota");
        }
        let Ok(quantity) = Quantity::parse(position.text()) else { continue };
        if quantity.is_negative() {
            report.invalid_text(&position, &quantity.canonical(), "must be greater than or equal to 0");
        }
        if COUNTED.contains(&name) && !quantity.is_whole() {
            report.invalid_text(&position, &quantity.canonical(), "must be an integer");
        }
    }
}

/// Quantities that must not exceed others: the lower field, the upper field, the names of both in messages,
/// and the field that is reported.
const UPPER_BOUNDS: &[(&str, &str, &str, &str, &str)] = &[
    ("min", "max", "min value", "max value", "min"),
    ("min", "defaultRequest", "min value", "default request value", "defaultRequest"),
    ("defaultRequest", "max", "default request value", "max value", "defaultRequest"),
    ("defaultRequest", "default", "default request value", "default limit value", "defaultRequest"),
    ("min", "default", "min value", "default value", "default"),
    ("default", "max", "default value", "max value", "default"),
];

pub(super) fn limits(object: &Position<'_>, report: &mut Report) {
    for limit in object.each("spec.limits") {
        let names: std::collections::BTreeSet<&str> = ["max", "min", "default", "defaultRequest"]
            .iter()
            .flat_map(|field| limit.entries(field))
            .map(|(name, _)| name)
            .collect();
        for name in names {
            let quantity = |field: &str| Quantity::parse(limit.at(field).key(name).text()).ok();
            for (low, high, low_name, high_name, field) in UPPER_BOUNDS {
                let (Some(small), Some(large)) = (quantity(low), quantity(high)) else { continue };
                if small <= large {
                    continue;
                }
                // Which of the two quantities kube-apiserver shows depends on the rule.
                let shown = match (*low, *field) {
                    ("min", "defaultRequest") | ("default", "default") => large.canonical(),
                    _ => small.canonical(),
                };
                let why = format!(
                    "{low_name} {} is greater than {high_name} {}",
                    small.canonical(),
                    large.canonical()
                );
                report.invalid_text(&limit.at(field).key(name), &shown, &why);
            }
        }
    }
}
