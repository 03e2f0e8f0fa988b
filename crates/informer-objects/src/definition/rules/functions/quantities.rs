//! Quantities in rules: `quantity('1Gi')` and its methods.

use std::cmp::Ordering;
use std::sync::Arc;

use kube_cel::cel::objects::Opaque;
use kube_cel::cel::{ExecutionError, Value as Cel};

use super::super::budget::{EvalResult, Meter, UNIT, size};
use crate::text::Quantity;

/// A quantity as a CEL value; two are equal if neither is greater.
#[derive(Debug)]
pub(super) struct QuantityValue(Quantity);

impl PartialEq for QuantityValue {
    fn eq(&self, other: &Self) -> bool {
        self.0.order(&other.0).is_eq()
    }
}

impl Eq for QuantityValue {}

impl Opaque for QuantityValue {
    fn runtime_type_name(&self) -> &'static str {
        "kubernetes.Quantity"
    }
}

/// Calls a function of quantities; `None` if the function is another one.
pub(super) fn call(meter: &mut Meter, name: &str, args: &[Cel]) -> Option<EvalResult> {
    match (name, args) {
        ("quantity" | "isQuantity", [Cel::String(text)]) => Some(read(meter, name, text)),
        (_, [target, args @ ..]) => {
            let result = method(name, quantity(target)?, args)?;
            Some(meter.charge(UNIT).and(result.map_err(Into::into)))
        }
        _ => None,
    }
}

fn read(meter: &mut Meter, name: &str, text: &str) -> EvalResult {
    meter.charge(size(text.len()).saturating_add(UNIT))?;
    match (name, Quantity::parse(text)) {
        ("isQuantity", read) => Ok(Cel::Bool(read.is_ok())),
        (_, Ok(quantity)) => Ok(to_cel(quantity)),
        (_, Err(why)) => Err(ExecutionError::function_error("quantity", why).into()),
    }
}

fn method(name: &str, target: &Quantity, args: &[Cel]) -> Option<Result<Cel, ExecutionError>> {
    let value = match (name, args) {
        ("sign", []) => Cel::Int(number(target.order(&Quantity::from(0)))),
        ("isInteger", []) => Cel::Bool(target.as_integer().is_some()),
        ("asInteger", []) => match target.as_integer() {
            Some(whole) => Cel::Int(whole),
            None => {
                return Some(Err(ExecutionError::function_error(name, "cannot convert value to integer")));
            }
        },
        ("asApproximateFloat", []) => Cel::Float(target.approximate()),
        ("isGreaterThan", [other]) => Cel::Bool(target.order(quantity(other)?).is_gt()),
        ("isLessThan", [other]) => Cel::Bool(target.order(quantity(other)?).is_lt()),
        ("compareTo", [other]) => Cel::Int(number(target.order(quantity(other)?))),
        ("add", [Cel::Int(other)]) => to_cel(target.plus(&Quantity::from(*other))),
        ("add", [other]) => to_cel(target.plus(quantity(other)?)),
        ("sub", [Cel::Int(other)]) => to_cel(target.plus(&Quantity::from(*other).negative())),
        ("sub", [other]) => to_cel(target.plus(&quantity(other)?.negative())),
        _ => return None,
    };
    Some(Ok(value))
}

fn quantity(value: &Cel) -> Option<&Quantity> {
    let Cel::Opaque(opaque) = value else { return None };
    opaque.downcast_ref::<QuantityValue>().map(|quantity| &quantity.0)
}

fn to_cel(quantity: Quantity) -> Cel {
    Cel::Opaque(Arc::new(QuantityValue(quantity)))
}

fn number(order: Ordering) -> i64 {
    match order {
        Ordering::Less => -1,
        Ordering::Equal => 0,
        Ordering::Greater => 1,
    }
}
