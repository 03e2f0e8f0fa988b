//! Coverage: the faults and requests that the runs of a simulation have tried, and pairs of both.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::fault::FaultKind;
use crate::request::Operation;

/// How often each fault happened, and at which requests.
#[derive(Debug, Clone, Default)]
pub struct Coverage {
    faults: BTreeMap<FaultKind, u64>,
    requests: BTreeMap<String, u64>,
    pairs: BTreeSet<(String, FaultKind)>,
    /// The pairs that are possible: faults that apply to a request of this kind.
    possible: BTreeSet<(String, FaultKind)>,
}

impl Coverage {
    /// Counts a request. `enabled` are the kinds of faults that are not switched off.
    pub(crate) fn count_request(&mut self, operation: &Operation, enabled: &[FaultKind]) {
        let label = operation.label();
        if let Some(count) = self.requests.get_mut(&label) {
            *count += 1;
        } else {
            let possible = enabled.iter().filter(|kind| kind.applies_to(operation));
            self.possible.extend(possible.map(|kind| (label.clone(), *kind)));
            self.requests.insert(label, 1);
        }
    }

    pub(crate) fn count_fault(&mut self, kind: FaultKind, operation: Option<&Operation>) {
        *self.faults.entry(kind).or_default() += 1;
        if let Some(operation) = operation {
            self.pairs.insert((operation.label(), kind));
        }
    }

    pub(crate) fn add(&mut self, other: Coverage) {
        for (kind, count) in other.faults {
            *self.faults.entry(kind).or_default() += count;
        }
        for (label, count) in other.requests {
            *self.requests.entry(label).or_default() += count;
        }
        self.pairs.extend(other.pairs);
        self.possible.extend(other.possible);
    }

    /// Returns how often a fault has happened.
    pub fn fired(&self, kind: FaultKind) -> u64 {
        self.faults.get(&kind).copied().unwrap_or_default()
    }

    /// Returns how often requests of each kind were sent. A kind is a verb and a resource, such as `patch
    /// websites/status`.
    pub fn requests(&self) -> impl Iterator<Item = (&str, u64)> {
        self.requests.iter().map(|(label, count)| (label.as_str(), *count))
    }

    /// Returns the kinds of requests with the faults that apply to them and were never tried on them.
    pub fn never_tried(&self) -> impl Iterator<Item = (&str, FaultKind)> {
        self.possible.difference(&self.pairs).map(|(label, kind)| (label.as_str(), *kind))
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "faults:")?;
        for kind in FaultKind::ALL {
            writeln!(out, "  {:>7}  {kind}", self.fired(*kind))?;
        }
        writeln!(out, "requests:")?;
        for (label, count) in &self.requests {
            writeln!(out, "  {count:>7}  {label}")?;
        }
        let mut missing: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (label, kind) in self.never_tried() {
            missing.entry(label).or_default().push(kind.name());
        }
        if missing.is_empty() {
            return writeln!(out, "every fault was tried on every kind of request that it applies to");
        }
        writeln!(out, "never tried:")?;
        for (label, kinds) in missing {
            writeln!(out, "  {label}: {}", kinds.join(", "))?;
        }
        Ok(())
    }
}
