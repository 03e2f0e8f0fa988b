//! Quantities in rules, `quantity('1Gi')`: what can be done with the amounts that a server knows.

use std::cmp::Ordering;
use std::sync::Arc;

use kube_cel::cel::objects::Opaque;
use kube_cel::cel::{ExecutionError, Value as Cel};

use super::super::budget::{Answer, Meter, UNIT, size};
use crate::text::Quantity;

/// An amount as a value of the language. Two are the same if neither is greater.
#[derive(Debug)]
pub(super) struct Amount(Quantity);

impl PartialEq for Amount {
    fn eq(&self, other: &Self) -> bool {
        self.0.order(&other.0).is_eq()
    }
}

impl Eq for Amount {}

impl Opaque for Amount {
    fn runtime_type_name(&self) -> &'static str {
        "kubernetes.Quantity"
    }
}

/// What a function makes of amounts; none if it is not about them.
pub(super) fn call(meter: &mut Meter, name: &str, args: &[Cel]) -> Option<Answer> {
    match (name, args) {
        ("quantity" | "isQuantity", [Cel::String(text)]) => Some(read(meter, name, text)),
        (_, [of, rest @ ..]) => {
            let answer = answer(name, amount(of)?, rest)?;
            Some(meter.pay(UNIT).and(answer.map_err(Into::into)))
        }
        _ => None,
    }
}

fn read(meter: &mut Meter, name: &str, text: &str) -> Answer {
    meter.pay(size(text.len()).saturating_add(UNIT))?;
    match (name, Quantity::parse(text)) {
        ("isQuantity", read) => Ok(Cel::Bool(read.is_ok())),
        (_, Ok(amount)) => Ok(made(amount)),
        (_, Err(why)) => Err(ExecutionError::function_error("quantity", why).into()),
    }
}

fn answer(name: &str, of: &Quantity, rest: &[Cel]) -> Option<Result<Cel, ExecutionError>> {
    let value = match (name, rest) {
        ("sign", []) => Cel::Int(number(of.order(&Quantity::from(0)))),
        ("isInteger", []) => Cel::Bool(of.as_integer().is_some()),
        ("asInteger", []) => match of.as_integer() {
            Some(whole) => Cel::Int(whole),
            None => {
                return Some(Err(ExecutionError::function_error(name, "cannot convert value to integer")));
            }
        },
        ("asApproximateFloat", []) => Cel::Float(of.approximate()),
        ("isGreaterThan", [other]) => Cel::Bool(of.order(amount(other)?).is_gt()),
        ("isLessThan", [other]) => Cel::Bool(of.order(amount(other)?).is_lt()),
        ("compareTo", [other]) => Cel::Int(number(of.order(amount(other)?))),
        ("add", [Cel::Int(other)]) => made(of.plus(&Quantity::from(*other))),
        ("add", [other]) => made(of.plus(amount(other)?)),
        ("sub", [Cel::Int(other)]) => made(of.plus(&Quantity::from(*other).negative())),
        ("sub", [other]) => made(of.plus(&amount(other)?.negative())),
        _ => return None,
    };
    Some(Ok(value))
}

fn amount(value: &Cel) -> Option<&Quantity> {
    let Cel::Opaque(opaque) = value else { return None };
    opaque.downcast_ref::<Amount>().map(|amount| &amount.0)
}

fn made(amount: Quantity) -> Cel {
    Cel::Opaque(Arc::new(Amount(amount)))
}

fn number(order: Ordering) -> i64 {
    match order {
        Ordering::Less => -1,
        Ordering::Equal => 0,
        Ordering::Greater => 1,
    }
}
