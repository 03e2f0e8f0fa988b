//! Binary and unary operators: comparison, arithmetic, indexing.
//!
//! Values are shared, never copied. Comparisons are charged while they proceed.

mod lists;

use std::cmp::Ordering;
use std::sync::Arc;

use kube_cel::cel::common::ast::operators;
use kube_cel::cel::objects::{KeyRef, OptionalValue};
use kube_cel::cel::{ExecutionError, Value as Cel};

use super::budget::{EvalAbort, Meter, UNIT, length, size};
pub(super) use lists::{ListIdentity, ListTypes, Lists};

const NO_OVERLOAD: EvalAbort = EvalAbort::Failed(ExecutionError::NoSuchOverload);

/// Applies a binary operator; `None` if it is not one.
pub(super) fn binary(
    meter: &mut Meter,
    lists: &mut Lists<'_>,
    operator: &str,
    left: Cel,
    right: Cel,
) -> Option<Result<Cel, EvalAbort>> {
    let result = match operator {
        operators::EQUALS => equal(meter, lists, &left, &right).map(Cel::Bool),
        operators::NOT_EQUALS => equal(meter, lists, &left, &right).map(|same| Cel::Bool(!same)),
        operators::LESS => compare(meter, &left, &right, Ordering::is_lt),
        operators::LESS_EQUALS => compare(meter, &left, &right, Ordering::is_le),
        operators::GREATER => compare(meter, &left, &right, Ordering::is_gt),
        operators::GREATER_EQUALS => compare(meter, &left, &right, Ordering::is_ge),
        operators::IN => contains(meter, lists, &right, &left).map(Cel::Bool),
        operators::ADD => add(meter, lists, left, right),
        operators::SUBSTRACT => arithmetic(meter, || left - right),
        operators::MULTIPLY => arithmetic(meter, || left * right),
        operators::DIVIDE => arithmetic(meter, || left / right),
        operators::MODULO => arithmetic(meter, || left % right),
        operators::INDEX => index(meter, &left, &right, false),
        operators::OPT_INDEX | operators::OPT_SELECT => index(meter, &left, &right, true),
        _ => return None,
    };
    Some(result)
}

/// Applies a unary operator; `None` if it is not one.
pub(super) fn unary(meter: &mut Meter, operator: &str, value: &Cel) -> Option<Result<Cel, EvalAbort>> {
    let result = match (operator, value) {
        (operators::LOGICAL_NOT, Cel::Bool(flag)) => Ok(Cel::Bool(!flag)),
        (operators::NEGATE, Cel::Float(number)) => Ok(Cel::Float(-number)),
        (operators::NEGATE, Cel::Int(number)) => match number.checked_neg() {
            Some(negative) => Ok(Cel::Int(negative)),
            None => Err(ExecutionError::Overflow("minus", Cel::Int(0), value.clone()).into()),
        },
        (operators::LOGICAL_NOT | operators::NEGATE, _) => Err(NO_OVERLOAD),
        _ => return None,
    };
    Some(meter.charge(UNIT).and(result))
}

/// Returns the value as CEL's optional type; `None` if it has another type.
pub(super) fn optional(value: &Cel) -> Option<&OptionalValue> {
    let Cel::Opaque(opaque) = value else { return None };
    opaque.downcast_ref::<OptionalValue>()
}

/// Returns a value of CEL's optional type.
pub(super) fn as_optional(value: Option<Cel>) -> Cel {
    Cel::Opaque(Arc::new(value.map_or_else(OptionalValue::none, OptionalValue::of)))
}

/// Returns the field of an object; with `tests_presence` (`has`), whether the object has the field.
///
/// The field of an optional object is optional.
pub(super) fn field(
    meter: &mut Meter,
    object: &Cel,
    name: &str,
    tests_presence: bool,
) -> Result<Cel, EvalAbort> {
    meter.charge(UNIT)?;
    let (inner, wrapped) = match optional(object) {
        Some(inner) => (inner.value(), true),
        None => (Some(object), false),
    };
    let found = match inner {
        Some(Cel::Map(map)) => map.get(&KeyRef::String(name)).cloned(),
        None => None,
        Some(_) if tests_presence => None,
        Some(_) => return Err(NO_OVERLOAD),
    };
    match found {
        found if tests_presence => Ok(Cel::Bool(found.is_some())),
        found if wrapped => Ok(as_optional(found)),
        Some(found) => Ok(found),
        None => Err(ExecutionError::NoSuchKey(Arc::new(name.to_owned())).into()),
    }
}

/// Whether two values are equal.
fn equal(meter: &mut Meter, lists: &Lists<'_>, left: &Cel, right: &Cel) -> Result<bool, EvalAbort> {
    meter.charge(UNIT)?;
    match (left, right) {
        (Cel::List(left), Cel::List(right)) => {
            if let Some(same) = lists.equal(meter, left, right) {
                return same;
            }
            if left.len() != right.len() {
                return Ok(false);
            }
            for (left, right) in left.iter().zip(right.iter()) {
                if !equal(meter, lists, left, right)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (Cel::Map(left), Cel::Map(right)) => {
            if left.map.len() != right.map.len() {
                return Ok(false);
            }
            for (key, left) in left.map.iter() {
                let Some(right) = right.get(key) else { return Ok(false) };
                if !equal(meter, lists, left, right)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        _ => {
            let inner = |value| optional(value).and_then(OptionalValue::value);
            if let (Some(left), Some(right)) = (inner(left), inner(right)) {
                return equal(meter, lists, left, right);
            }
            // Texts of different lengths differ without a comparison.
            if length(left) == length(right) {
                meter.charge(length(left))?;
            }
            Ok(left == right)
        }
    }
}

fn compare(
    meter: &mut Meter,
    left: &Cel,
    right: &Cel,
    predicate: impl Fn(Ordering) -> bool,
) -> Result<Cel, EvalAbort> {
    meter.charge(UNIT.saturating_add(length(left).min(length(right))))?;
    let is_number = |value: &Cel| matches!(value, Cel::Int(_) | Cel::UInt(_) | Cel::Float(_));
    let order = match (left, right) {
        (Cel::Bytes(left), Cel::Bytes(right)) => Some(left.cmp(right)),
        _ => left.partial_cmp(right),
    };
    match order {
        Some(order) => Ok(Cel::Bool(predicate(order))),
        // NaN is neither less nor greater.
        None if is_number(left) && is_number(right) => Ok(Cel::Bool(false)),
        None => Err(NO_OVERLOAD),
    }
}

fn contains(meter: &mut Meter, lists: &Lists<'_>, container: &Cel, value: &Cel) -> Result<bool, EvalAbort> {
    meter.charge(UNIT)?;
    match container {
        Cel::List(items) => {
            for item in items.iter() {
                if equal(meter, lists, item, value)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        Cel::Map(map) => {
            meter.charge(length(value))?;
            let key = KeyRef::try_from(value).map_err(|_| NO_OVERLOAD)?;
            Ok(map.get(&key).is_some())
        }
        _ => Err(NO_OVERLOAD),
    }
}

fn add(meter: &mut Meter, lists: &mut Lists<'_>, left: Cel, right: Cel) -> Result<Cel, EvalAbort> {
    meter.charge(UNIT)?;
    if let (Cel::List(left), Cel::List(right)) = (&left, &right)
        && let Some(union) = lists.add(meter, left, right)
    {
        return union;
    }
    match (&left, &right) {
        // A list without other references is extended in place.
        (Cel::List(left_items), Cel::List(right_items)) if Arc::strong_count(left_items) == 1 => {
            meter.charge(size(right_items.len()))?;
        }
        (Cel::List(left_items), Cel::List(right_items)) => {
            meter.charge(size(left_items.len()).saturating_add(size(right_items.len())))?;
        }
        _ => meter.charge(length(&left).saturating_add(length(&right)))?,
    }
    match (left, right) {
        (Cel::Bytes(left), Cel::Bytes(right)) => Ok(Cel::Bytes(Arc::new([&**left, &**right].concat()))),
        (left, right) => Ok((left + right)?),
    }
}

fn arithmetic(
    meter: &mut Meter,
    work: impl FnOnce() -> Result<Cel, ExecutionError>,
) -> Result<Cel, EvalAbort> {
    meter.charge(UNIT)?;
    Ok(work()?)
}

/// Returns the entry of a list or a map.
///
/// With `is_optional`, or if the container is an optional value, the entry is optional: empty if it is
/// absent.
fn index(meter: &mut Meter, container: &Cel, at: &Cel, is_optional: bool) -> Result<Cel, EvalAbort> {
    meter.charge(UNIT.saturating_add(length(at)))?;
    let (container, is_optional) = match optional(container).map(OptionalValue::value) {
        Some(Some(inner)) => (inner, true),
        Some(None) => return Ok(as_optional(None)),
        None => (container, is_optional),
    };
    let found = entry(container, at);
    if is_optional { Ok(as_optional(found.ok())) } else { found }
}

fn entry(container: &Cel, at: &Cel) -> Result<Cel, EvalAbort> {
    match container {
        Cel::List(items) => {
            let index = match at {
                Cel::Int(at) => usize::try_from(*at).ok(),
                Cel::UInt(at) => usize::try_from(*at).ok(),
                _ => return Err(NO_OVERLOAD),
            };
            let found = index.and_then(|index| items.get(index));
            found.cloned().ok_or_else(|| ExecutionError::IndexOutOfBounds(at.clone()).into())
        }
        Cel::Map(map) => {
            let key = KeyRef::try_from(at).map_err(|_| NO_OVERLOAD)?;
            map.get(&key).cloned().ok_or_else(|| {
                let name = match key {
                    KeyRef::Int(key) => key.to_string(),
                    KeyRef::Uint(key) => key.to_string(),
                    KeyRef::Bool(key) => key.to_string(),
                    KeyRef::String(key) => key.to_owned(),
                };
                ExecutionError::NoSuchKey(Arc::new(name)).into()
            })
        }
        _ => Err(NO_OVERLOAD),
    }
}
