//! The cost budget for evaluating the CEL rules of a definition.
//!
//! Every step is charged before it is executed, by the size of its input and output. An evaluation that would
//! exceed its budget is aborted, so no rule can use more memory or time than its budget allows. Costs are
//! those of kube-apiserver; where kube-apiserver relies on having rejected a rule before (`replace`, `split`,
//! sets), the actual work is charged.

use kube_cel::cel::objects::{Key, OptionalValue};
use kube_cel::cel::{ExecutionError, Value as Cel};

/// The maximum cost of one rule on one value, in the units of kube-apiserver.
pub(super) const MAX_COST_PER_CALL: u64 = 1_000_000;
/// The maximum cost of all rules on one object, in the units of kube-apiserver.
pub(super) const MAX_COST_PER_OBJECT: u64 = 10_000_000;

/// The error message for an evaluation that exceeds its budget.
pub(super) const EXCEEDED: &str = "operation cancelled: actual cost limit exceeded";

/// One cost unit of kube-apiserver, in the tenths of a unit that a [`Meter`] counts. Reading one byte costs
/// one tenth.
pub(super) const UNIT: u64 = 10;
/// The cost of passing one value to the CEL library and back.
pub(super) const VALUE_COST: u64 = 2 * UNIT;

/// The value of an expression, or the reason why there is none.
pub(super) type EvalResult = Result<Cel, EvalAbort>;

/// The reason why an evaluation ended without a value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum EvalAbort {
    /// The cost limit was exceeded; the whole rule is aborted.
    BudgetExceeded,
    /// The evaluation failed. The rule may still have a value: `failed || true` is `true`.
    Failed(ExecutionError),
}

impl From<ExecutionError> for EvalAbort {
    fn from(error: ExecutionError) -> Self {
        EvalAbort::Failed(error)
    }
}

/// The cost of the current evaluation and its limit.
#[derive(Debug)]
pub(super) struct Meter {
    /// The cost so far, in tenths of a unit.
    spent: u64,
    /// The limit, in tenths of a unit.
    limit: u64,
}

impl Meter {
    /// Creates a meter for one evaluation with a limit in the units of kube-apiserver.
    pub(super) fn new(limit: u64) -> Self {
        Meter { spent: 0, limit: limit.saturating_mul(UNIT) }
    }

    /// Returns the cost so far in the units of kube-apiserver, rounded up; more than the limit if the limit
    /// was exceeded.
    pub(super) fn spent(&self) -> u64 {
        self.spent.div_ceil(UNIT)
    }

    /// Charges a step that is about to be executed.
    pub(super) fn charge(&mut self, tenths: u64) -> Result<(), EvalAbort> {
        // Capped, so that `spent` returns the limit plus one, however expensive the step is.
        self.spent = self.spent.saturating_add(tenths).min(self.limit.saturating_add(UNIT));
        if self.spent > self.limit { Err(EvalAbort::BudgetExceeded) } else { Ok(()) }
    }

    /// Charges the copy of a whole value and returns the number of bytes in its strings, map keys excluded.
    ///
    /// Charges part by part: a value that contains a shared part many times is aborted early.
    pub(super) fn charge_value(&mut self, value: &Cel) -> Result<u64, EvalAbort> {
        self.charge(VALUE_COST)?;
        let mut bytes = length(value);
        self.charge(bytes)?;
        match value {
            Cel::List(items) => {
                for item in items.iter() {
                    bytes = bytes.saturating_add(self.charge_value(item)?);
                }
            }
            Cel::Map(map) => {
                for (key, value) in map.map.iter() {
                    if let Key::String(text) = key {
                        self.charge(size(text.len()))?;
                    }
                    bytes = bytes.saturating_add(self.charge_value(value)?);
                }
            }
            Cel::Opaque(opaque) => {
                if let Some(value) = opaque.downcast_ref::<OptionalValue>().and_then(OptionalValue::value) {
                    bytes = bytes.saturating_add(self.charge_value(value)?);
                }
            }
            _ => {}
        }
        Ok(bytes)
    }
}

/// Returns the number of bytes of a string or a byte string; zero for other values.
pub(super) fn length(value: &Cel) -> u64 {
    match value {
        Cel::String(text) => size(text.len()),
        Cel::Bytes(bytes) => size(bytes.len()),
        _ => 0,
    }
}

/// Returns the number of entries of a list or a map; one for other values.
pub(super) fn entries(value: &Cel) -> u64 {
    match value {
        Cel::List(items) => size(items.len()),
        Cel::Map(map) => size(map.map.len()),
        _ => 1,
    }
}

/// Converts a length to a cost in tenths of a unit: one per byte or entry.
pub(super) fn size(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
