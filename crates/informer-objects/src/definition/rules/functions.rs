//! Function calls.
//!
//! Functions that can create large values, that are often called on large lists, or that compile patterns are
//! implemented here, where the cost is known in advance. The others are those of the library, which copies
//! its arguments, so whole arguments are charged.

mod amounts;
mod format;
mod patterns;

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
/// Maximum sizes of a compiled pattern, the cost of trying each, and the factor by which matching costs more.
/// The cheaper one is tried first.
const PATTERN_SIZES: [(usize, u64, u64); 2] = [(512 << 10, 1_000 * UNIT, 1), (4 << 20, 100_000 * UNIT, 10)];

/// A function with its arguments; the target of a method is the first one.
pub(super) struct Call<'c> {
    /// The first segment of a name like `sets.contains`.
    pub(super) space: Option<&'c str>,
    pub(super) name: &'c str,
    pub(super) method: bool,
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
        match (self.space, self.name, self.args.as_slice()) {
            (None, "size", [of]) => size_of(meter, of),
            (None, "dyn", [of]) if !self.method => Ok(of.clone()),
            (None, "type", [of]) if !self.method => Ok(text(format::type_name(of).to_owned())),
            (Some("optional"), "of", [of]) => Ok(as_optional(Some(of.clone()))),
            (Some("optional"), "ofNonZeroValue", [of]) => {
                Ok(as_optional((!of.is_zero()).then(|| of.clone())))
            }
            (None, "hasValue" | "value" | "or" | "orValue", [of, rest @ ..]) => {
                self.optional_method(of, rest)
            }
            (None, "startsWith", [Cel::String(of), Cel::String(part)]) => {
                meter.charge(size(of.len()))?;
                Ok(Cel::Bool(of.starts_with(part.as_str())))
            }
            (None, "endsWith", [Cel::String(of), Cel::String(part)]) => {
                meter.charge(size(of.len()))?;
                Ok(Cel::Bool(of.ends_with(part.as_str())))
            }
            (None, "contains", [Cel::String(of), Cel::String(part)]) => {
                meter.charge(product(of.len().div_ceil(10), part.len().div_ceil(10)))?;
                Ok(Cel::Bool(of.contains(part.as_str())))
            }
            (None, "replace", [Cel::String(of), Cel::String(old), Cel::String(new), times @ ..]) => {
                replace(meter, of, old, new, count(times)?)
            }
            (None, "split", [Cel::String(of), Cel::String(separator), times @ ..]) => {
                split(meter, of, separator, count(times)?)
            }
            (None, "join", [Cel::List(items), separator @ ..]) => join(meter, items, separator),
            (None, "matches", [Cel::String(of), Cel::String(pattern)]) => {
                let pattern = patterns.get(meter, pattern, of)?;
                Ok(Cel::Bool(pattern.is_match(of)))
            }
            (None, "find", [Cel::String(of), Cel::String(pattern)]) => {
                let pattern = patterns.get(meter, pattern, of)?;
                Ok(text(pattern.find(of).map(|found| found.as_str().to_owned()).unwrap_or_default()))
            }
            (None, "findAll", [Cel::String(of), Cel::String(pattern), times @ ..]) => {
                let times = count(times)?.unwrap_or(usize::MAX);
                let pattern = patterns.get(meter, pattern, of)?;
                let mut found = Vec::new();
                for occurrence in pattern.find_iter(of).take(times) {
                    meter.charge(UNIT)?;
                    found.push(text(occurrence.as_str().to_owned()));
                }
                Ok(Cel::List(Arc::new(found)))
            }
            (None, "contains" | "startsWith" | "endsWith" | "replace" | "split" | "join" | "matches", _) => {
                Err(ExecutionError::NoSuchOverload.into())
            }
            (None, "sum", [Cel::List(items)]) if self.method => sum(meter, items),
            (None, "string", [of]) if !self.method && format::has_text(of) => {
                meter.charge(CALL_COST.saturating_add(length(of)))?;
                Ok(text(format::to_text(of)?))
            }
            (None, "format", [Cel::String(of), Cel::List(args)]) if self.method => {
                format::format(meter, of, args).map(text)
            }
            (None, name, args) => match amounts::call(meter, name, args) {
                Some(result) => result,
                None => self.call_library(library, meter),
            },
            _ => self.call_library(library, meter),
        }
    }

    /// Calls a method of an optional value.
    fn optional_method(&self, of: &Cel, rest: &[Cel]) -> EvalResult {
        let no_overload = || Err(ExecutionError::NoSuchOverload.into());
        let Some(inner) = optional(of).filter(|_| self.method) else { return no_overload() };
        let inner = inner.value();
        match (self.name, rest, inner) {
            ("hasValue", [], inner) => Ok(Cel::Bool(inner.is_some())),
            ("value" | "orValue", _, Some(inner)) => Ok(inner.clone()),
            ("value", [], None) => {
                Err(ExecutionError::function_error("value", "optional.none() dereference").into())
            }
            ("orValue", [other], None) => Ok(other.clone()),
            ("or", [_], Some(_)) => Ok(of.clone()),
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
        meter.charge(self.work(&bytes))?;
        let mut scope = library.new_inner_scope();
        let mut args = Vec::with_capacity(self.args.len());
        for (at, arg) in self.args.iter().enumerate() {
            let name = format!("@{at}");
            scope.add_variable_from_value(name.as_str(), arg.clone());
            args.push(ident(name));
        }
        let target = match self.space {
            Some(space) => Some(Box::new(ident(space.to_owned()))),
            None if self.method => Some(Box::new(args.remove(0))),
            None => None,
        };
        let call = CallExpr { func_name: self.name.to_owned(), target, args };
        let result = scope.resolve(&IdedExpr { id: 0, expr: Expr::Call(call) })?;
        meter.charge_value(&result)?;
        Ok(result)
    }

    /// Returns the cost of a library function beyond reading its arguments, whose texts have the given
    /// lengths.
    fn work(&self, bytes: &[u64]) -> u64 {
        match (self.space, self.name, self.args.as_slice(), bytes) {
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
            (None, "indexOf" | "lastIndexOf", [Cel::String(of), Cel::String(part), ..], _) => {
                product(of.len(), part.len()) / 100
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
    /// Returns a compiled pattern for use on a text.
    fn get(&mut self, meter: &mut Meter, pattern: &Arc<String>, on: &str) -> Result<&Regex, EvalAbort> {
        let work = product(on.len() / 10 + 1, pattern.len() / 4 + 1).saturating_mul(UNIT);
        meter.charge(work)?;
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
        meter.charge(work.saturating_mul(weight - 1))?;
        Ok(regex)
    }
}

/// Compiles a pattern and returns the factor by which it is slower than others.
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

fn size_of(meter: &mut Meter, of: &Cel) -> EvalResult {
    let counted = match of {
        Cel::String(text) => {
            meter.charge(length(of) / 100)?;
            text.chars().count()
        }
        Cel::Bytes(bytes) => bytes.len(),
        Cel::List(items) => items.len(),
        Cel::Map(map) => map.map.len(),
        _ => return Err(ExecutionError::NoSuchOverload.into()),
    };
    Ok(Cel::Int(i64::try_from(counted).unwrap_or(i64::MAX)))
}

/// Returns the maximum number of replacements or parts; `None` if it is unlimited.
fn count(times: &[Cel]) -> Result<Option<usize>, EvalAbort> {
    match times {
        [] => Ok(None),
        [Cel::Int(times)] => Ok(usize::try_from(*times).ok()),
        _ => Err(ExecutionError::NoSuchOverload.into()),
    }
}

fn replace(meter: &mut Meter, of: &str, old: &str, new: &str, times: Option<usize>) -> EvalResult {
    meter.charge(size(of.len()).saturating_mul(2))?;
    let times = of.matches(old).take(times.unwrap_or(usize::MAX)).count();
    meter.charge(product(times, new.len()))?;
    Ok(text(of.replacen(old, new, times)))
}

fn split(meter: &mut Meter, of: &str, separator: &str, times: Option<usize>) -> EvalResult {
    meter.charge(size(of.len()).saturating_mul(2))?;
    let max = times.unwrap_or(usize::MAX);
    let mut parts = Vec::new();
    let mut rest = of;
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
