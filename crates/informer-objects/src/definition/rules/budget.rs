//! What a run may cost.
//!
//! Every step pays before it is done, by the size of what it works on and of what it makes. A run that would spend more than
//! it may ends there, so no rule can ask for more memory or time than its budget buys. Prices are those of a real server;
//! where it counts on having refused a rule beforehand (`replace`, `split`, sets), the work itself is the price.

use kube_cel::cel::objects::{Key, OptionalValue};
use kube_cel::cel::{ExecutionError, Value as Cel};

/// What one rule may cost on one value.
pub(super) const PER_CALL: u64 = 1_000_000;
/// What all rules may cost on one object.
pub(super) const PER_OBJECT: u64 = 10_000_000;

/// How a run ends that costs too much.
pub(super) const EXCEEDED: &str = "operation cancelled: actual cost limit exceeded";

/// The meter counts in tenths of what a real server counts in: looking at one byte costs one.
pub(super) const UNIT: u64 = 10;
/// What it takes to hand one value to the library and back.
pub(super) const EACH: u64 = 2 * UNIT;

/// What an expression gives, or why it gives nothing.
pub(super) type Answer = Result<Cel, EvalAbort>;

/// Why a run ended without a value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum EvalAbort {
    /// It cost too much; nothing can make good for that.
    BudgetExceeded,
    /// It went wrong, which other parts of the rule may make good for.
    Failed(ExecutionError),
}

impl From<ExecutionError> for EvalAbort {
    fn from(error: ExecutionError) -> Self {
        EvalAbort::Failed(error)
    }
}

/// What the run that is going on has cost, and what it may.
#[derive(Debug)]
pub(super) struct Meter {
    spent: u64,
    limit: u64,
}

impl Meter {
    /// A meter for one run.
    pub(super) fn new(limit: u64) -> Self {
        Meter { spent: 0, limit: limit.saturating_mul(UNIT) }
    }

    /// What has been spent, rounded up; more than the limit if something could not be paid for.
    pub(super) fn spent(&self) -> u64 {
        self.spent.div_ceil(UNIT)
    }

    /// Pays for something that is about to be done.
    pub(super) fn pay(&mut self, tenths: u64) -> Result<(), EvalAbort> {
        self.spent = self.spent.saturating_add(tenths).min(self.limit.saturating_add(UNIT));
        if self.spent > self.limit { Err(EvalAbort::BudgetExceeded) } else { Ok(()) }
    }

    /// Pays for copying a whole value, and says how long its texts are. A value that shares its parts is as large as if it
    /// did not, so this is paid while it is walked.
    pub(super) fn pay_whole(&mut self, value: &Cel) -> Result<u64, EvalAbort> {
        self.pay(EACH)?;
        let mut bytes = length(value);
        self.pay(bytes)?;
        match value {
            Cel::List(items) => {
                for item in items.iter() {
                    bytes = bytes.saturating_add(self.pay_whole(item)?);
                }
            }
            Cel::Map(map) => {
                for (key, value) in map.map.iter() {
                    if let Key::String(text) = key {
                        self.pay(size(text.len()))?;
                    }
                    bytes = bytes.saturating_add(self.pay_whole(value)?);
                }
            }
            Cel::Opaque(opaque) => {
                if let Some(value) = opaque.downcast_ref::<OptionalValue>().and_then(OptionalValue::value) {
                    bytes = bytes.saturating_add(self.pay_whole(value)?);
                }
            }
            _ => {}
        }
        Ok(bytes)
    }
}

/// How many bytes a text has; other values count as none.
pub(super) fn length(value: &Cel) -> u64 {
    match value {
        Cel::String(text) => size(text.len()),
        Cel::Bytes(bytes) => size(bytes.len()),
        _ => 0,
    }
}

/// How many entries a list or a map has; other values count as one.
pub(super) fn entries(value: &Cel) -> u64 {
    match value {
        Cel::List(items) => size(items.len()),
        Cel::Map(map) => size(map.map.len()),
        _ => 1,
    }
}

pub(super) fn size(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
