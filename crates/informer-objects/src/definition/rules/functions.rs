//! Function calls.
//!
//! Functions that can create large values, that are often called on large lists, or that compile patterns are
//! implemented here, where the cost is known in advance. The others are those of the library, which copies
//! its arguments, so whole arguments are charged.

mod format;
mod patterns;
mod quantities;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::cel::common::ast::{CallExpr, Expr, IdedExpr};
use kube_cel::cel::{Context, ExecutionError, Value as Cel};
use regex::{Regex, RegexBuilder};

use super::budget::{EvalAbort, EvalResult, Meter, UNIT, VALUE_COST, entries, length, size};
use super::operators::{as_optional, optional};

/// The cost of calling the library.
const CALL_COST: u64 = 10 * UNIT;
/// The limits with which a pattern is compiled, in this order: the maximum bytes of the compiled pattern, the
/// cost of compiling, and the factor of the matching cost.
const PATTERN_SIZES: [(usize, u64, u64); 2] = [(512 << 10, 1_000 * UNIT, 1), (4 << 20, 100_000 * UNIT, 10)];

/// A function with its arguments; the target of a method is the first argument.
pub(super) struct Call<'c> {
    /// The first segment of a name like `sets.contains`.
    pub(super) namespace: Option<&'c str>,
    pub(super) name: &'c str,
    pub(super) is_method: bool,
    pub(super) args: Vec<Cel>,
}

impl Call<'_> {
    pub(super) fn run(
        &self,
        library: &Context<'_>,
        meter: &mut Meter,
        patterns: &mut Patterns,
    ) -> EvalResult {
        meter.charge(UNIT)?;
        match (self.namespace, self.name, self.args.as_slice()) {
            (None, "size", [value]) => size_of(meter, value),
            (None, "dyn", [value]) if !self.is_method => Ok(value.clone()),
            (None, "type", [value]) if !self.is_method => Ok(text(format::type_name(value).to_owned())),
            (Some("optional"), "of", [value]) => Ok(as_optional(Some(value.clone()))),
            (Some("optional"), "ofNonZeroValue", [value]) => {
                Ok(as_optional((!value.is_zero()).then(|| value.clone())))
            }
            (None, "hasValue" | "value" | "or" | "orValue", [target, args @ ..]) => {
                self.optional_method(target, args)
            }
            (None, "startsWith", [Cel::String(target), Cel::String(part)]) => {
                meter.charge(size(target.len()))?;
                Ok(Cel::Bool(target.starts_with(part.as_str())))
            }
            (None, "endsWith", [Cel::String(target), Cel::String(part)]) => {
                meter.charge(size(target.len()))?;
                Ok(Cel::Bool(target.ends_with(part.as_str())))
            }
            (None, "contains", [Cel::String(target), Cel::String(part)]) => {
                meter.charge(product(target.len().div_ceil(10), part.len().div_ceil(10)))?;
                Ok(Cel::Bool(target.contains(part.as_str())))
            }
            (None, "replace", [Cel::String(target), Cel::String(old), Cel::String(new), times @ ..]) => {
                replace(meter, target, old, new, count(times)?)
            }
            (None, "split", [Cel::String(target), Cel::String(separator), times @ ..]) => {
                split(meter, target, separator, count(times)?)
            }
            (None, "join", [Cel::List(items), separator @ ..]) => join(meter, items, separator),
            (None, "matches", [Cel::String(target), Cel::String(pattern)]) => {
                let pattern = patterns.get(meter, pattern, target)?;
                Ok(Cel::Bool(pattern.is_match(target)))
            }
            (None, "find", [Cel::String(target), Cel::String(pattern)]) => {
                let pattern = patterns.get(meter, pattern, target)?;
                Ok(text(pattern.find(target).map(|found| found.as_str().to_owned()).unwrap_or_default()))
            }
            (None, "findAll", [Cel::String(target), Cel::String(pattern), times @ ..]) => {
                let times = count(times)?.unwrap_or(usize::MAX);
                let pattern = patterns.get(meter, pattern, target)?;
                let mut found = Vec::new();
                for occurrence in pattern.find_iter(target).take(times) {
                    meter.charge(UNIT)?;
                    found.push(text(occurrence.as_str().to_owned()));
                }
                Ok(Cel::List(Arc::new(found)))
            }
            (None, "contains" | "startsWith" | "endsWith" | "replace" | "split" | "join" | "matches", _) => {
                Err(ExecutionError::NoSuchOverload.into())
            }
            (None, "sum", [Cel::List(items)]) if self.is_method => sum(meter, items),
            (None, "string", [value]) if !self.is_method && format::has_text(value) => {
                meter.charge(CALL_COST.saturating_add(length(value)))?;
                Ok(text(format::to_text(value)?))
            }
            (None, "format", [Cel::String(target), Cel::List(args)]) if self.is_method => {
                format::format(meter, target, args).map(text)
            }
            (None, name, args) => match quantities::call(meter, name, args) {
                Some(result) => result,
                None => self.call_library(library, meter),
            },
            _ => self.call_library(library, meter),
        }
    }

    /// Calls a method of an optional value.
    fn optional_method(&self, target: &Cel, args: &[Cel]) -> EvalResult {
        let no_overload = || Err(ExecutionError::NoSuchOverload.into());
        let Some(inner) = optional(target).filter(|_| self.is_method) else { return no_overload() };
        let inner = inner.value();
        match (self.name, args, inner) {
            ("hasValue", [], inner) => Ok(Cel::Bool(inner.is_some())),
            ("value" | "orValue", _, Some(inner)) => Ok(inner.clone()),
            ("value", [], None) => {
                Err(ExecutionError::function_error("value", "optional.none() dereference").into())
            }
            ("orValue", [other], None) => Ok(other.clone()),
            ("or", [_], Some(_)) => Ok(target.clone()),
            ("or", [other], None) if optional(other).is_some() => Ok(other.clone()),
            _ => no_overload(),
        }
    }

    /// Calls a function of the library.
    fn call_library(&self, library: &Context<'_>, meter: &mut Meter) -> EvalResult {
        meter.charge(CALL_COST)?;
        let mut bytes = Vec::with_capacity(self.args.len());
        for arg in &self.args {
            bytes.push(meter.charge_value(arg)?);
        }
        meter.charge(self.extra_cost(&bytes))?;
        let mut scope = library.new_inner_scope();
        let mut args = Vec::with_capacity(self.args.len());
        for (at, arg) in self.args.iter().enumerate() {
            let name = format!("@{at}");
            scope.add_variable_from_value(name.as_str(), arg.clone());
            args.push(ident(name));
        }
        let target = match self.namespace {
            Some(namespace) => Some(Box::new(ident(namespace.to_owned()))),
            None if self.is_method => Some(Box::new(args.remove(0))),
            None => None,
        };
        let call = CallExpr { func_name: self.name.to_owned(), target, args };
        let result = scope.resolve(&IdedExpr { id: 0, expr: Expr::Call(call) })?;
        meter.charge_value(&result)?;
        Ok(result)
    }

    /// Returns the cost of a library function beyond that of reading its arguments.
    ///
    /// `bytes` contains the length of all strings in each argument.
    fn extra_cost(&self, bytes: &[u64]) -> u64 {
        match (self.namespace, self.name, self.args.as_slice(), bytes) {
            (Some("sets"), _, [left, right], [in_left, in_right]) => {
                let (left, right) = (entries(left), entries(right));
                let texts = in_left.saturating_mul(right).min(in_right.saturating_mul(left));
                left.saturating_mul(right).saturating_mul(UNIT).saturating_add(texts).saturating_mul(2)
            }
            (None, "distinct", [list], [texts]) => {
                let entries = entries(list);
                entries
                    .saturating_mul(entries)
                    .saturating_mul(UNIT / 2)
                    .saturating_add(texts.saturating_mul(entries))
            }
            (None, "sort", [list], [texts]) => {
                let rounds = u64::from(entries(list).checked_ilog2().unwrap_or_default() + 1);
                entries(list).saturating_mul(UNIT).saturating_add(*texts).saturating_mul(rounds)
            }
            (None, "indexOf" | "lastIndexOf", [Cel::String(target), Cel::String(part), ..], _) => {
                product(target.len(), part.len()) / 100
            }
            (Some("lists"), "range", [Cel::Int(length)], _) => {
                u64::try_from(*length).unwrap_or_default().saturating_mul(VALUE_COST)
            }
            _ => 0,
        }
    }
}

/// The compiled patterns used so far.
#[derive(Debug, Default)]
pub(super) struct Patterns(HashMap<Arc<String>, Result<(Regex, u64), String>>);

impl Patterns {
    /// Returns a compiled pattern, and charges matching it with `input`.
    fn get(&mut self, meter: &mut Meter, pattern: &Arc<String>, input: &str) -> Result<&Regex, EvalAbort> {
        let matching_cost = product(input.len() / 10 + 1, pattern.len() / 4 + 1).saturating_mul(UNIT);
        meter.charge(matching_cost)?;
        if !self.0.contains_key(pattern) {
            let compiled = compile(meter, pattern)?;
            self.0.insert(pattern.clone(), compiled);
        }
        let failed = |why: &String| {
            let why = format!("'{pattern}' not a valid regex:\n{why}");
            EvalAbort::Failed(ExecutionError::function_error("matches", why))
        };
        let missing = || EvalAbort::Failed(ExecutionError::NoSuchOverload);
        let (regex, weight) = self.0.get(pattern).ok_or_else(missing)?.as_ref().map_err(failed)?;
        meter.charge(matching_cost.saturating_mul(weight - 1))?;
        Ok(regex)
    }
}

/// Compiles a pattern; also returns the factor of the matching cost. The inner error is that of an invalid or
/// too large pattern.
fn compile(meter: &mut Meter, pattern: &str) -> Result<Result<(Regex, u64), String>, EvalAbort> {
    let mut why = String::new();
    meter.charge(size(pattern.len()))?;
    let translated = patterns::translated(pattern);
    for (limit, cost, weight) in PATTERN_SIZES {
        meter.charge(cost.saturating_add(size(pattern.len())))?;
        match RegexBuilder::new(&translated).size_limit(limit).build() {
            Ok(regex) => return Ok(Ok((regex, weight))),
            Err(error) => {
                why = error.to_string();
                if !matches!(error, regex::Error::CompiledTooBig(_)) {
                    break;
                }
            }
        }
    }
    Ok(Err(why))
}

fn size_of(meter: &mut Meter, target: &Cel) -> EvalResult {
    let counted = match target {
        Cel::String(text) => {
            meter.charge(length(target) / 100)?;
            text.chars().count()
        }
        Cel::Bytes(bytes) => bytes.len(),
        Cel::List(items) => items.len(),
        Cel::Map(map) => map.map.len(),
        _ => return Err(ExecutionError::NoSuchOverload.into()),
    };
    Ok(Cel::Int(i64::try_from(counted).unwrap_or(i64::MAX)))
}

/// Returns the maximum number of replacements, parts or matches; `None` if it is absent or negative, which
/// means unlimited.
fn count(times: &[Cel]) -> Result<Option<usize>, EvalAbort> {
    match times {
        [] => Ok(None),
        [Cel::Int(times)] => Ok(usize::try_from(*times).ok()),
        _ => Err(ExecutionError::NoSuchOverload.into()),
    }
}

fn replace(meter: &mut Meter, target: &str, old: &str, new: &str, times: Option<usize>) -> EvalResult {
    meter.charge(size(target.len()).saturating_mul(2))?;
    let times = target.matches(old).take(times.unwrap_or(usize::MAX)).count();
    meter.charge(product(times, new.len()))?;
    Ok(text(target.replacen(old, new, times)))
}

fn split(meter: &mut Meter, target: &str, separator: &str, times: Option<usize>) -> EvalResult {
    meter.charge(size(target.len()).saturating_mul(2))?;
    let max = times.unwrap_or(usize::MAX);
    let mut parts = Vec::new();
    let mut rest = target;
    while parts.len() + 1 < max {
        // With an empty separator, the parts are the characters.
        let cut = match separator {
            "" => rest.char_indices().nth(1).map(|(at, _)| (at, at)),
            _ => rest.find(separator).map(|at| (at, at + separator.len())),
        };
        let Some((end, next)) = cut else { break };
        meter.charge(UNIT / 2)?;
        parts.push(text(rest.get(..end).unwrap_or_default().to_owned()));
        rest = rest.get(next..).unwrap_or_default();
    }
    if max > 0 && !(separator.is_empty() && rest.is_empty()) {
        parts.push(text(rest.to_owned()));
    }
    Ok(Cel::List(Arc::new(parts)))
}

fn join(meter: &mut Meter, items: &[Cel], separator: &[Cel]) -> EvalResult {
    let no_overload = || EvalAbort::Failed(ExecutionError::NoSuchOverload);
    let separator = match separator {
        [] => "",
        [Cel::String(separator)] => separator.as_str(),
        _ => return Err(no_overload()),
    };
    meter.charge(product(separator.len(), items.len()).saturating_mul(2))?;
    let mut parts = Vec::with_capacity(items.len());
    for item in items {
        let Cel::String(part) = item else { return Err(no_overload()) };
        meter.charge(length(item).saturating_mul(2).saturating_add(1))?;
        parts.push(part.as_str());
    }
    Ok(text(parts.join(separator)))
}

/// Returns the sum of the numbers or durations of a list.
fn sum(meter: &mut Meter, items: &[Cel]) -> EvalResult {
    meter.charge(size(items.len()).saturating_mul(UNIT))?;
    let mut total = None;
    for item in items {
        if !matches!(item, Cel::Int(_) | Cel::UInt(_) | Cel::Float(_) | Cel::Duration(_)) {
            return Err(ExecutionError::NoSuchOverload.into());
        }
        total = Some(match total {
            None => item.clone(),
            Some(total) => (total + item.clone())?,
        });
    }
    Ok(total.unwrap_or(Cel::Int(0)))
}

fn ident(name: String) -> IdedExpr {
    IdedExpr { id: 0, expr: Expr::Ident(name) }
}

fn text(text: String) -> Cel {
    Cel::String(Arc::new(text))
}

fn product(left: usize, right: usize) -> u64 {
    size(left).saturating_mul(size(right))
}
