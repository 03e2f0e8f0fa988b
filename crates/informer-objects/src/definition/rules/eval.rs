//! Evaluating a rule.
//!
//! The language's own evaluator copies a list whenever it is named, so rules are evaluated here, over values that are shared;
//! only functions are the library's. An error in one part of a rule may be made good by another, as the language has it:
//! `all` is false if any entry says so, whatever the others run into. Having spent too much cannot.

use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, MapExpr, operators,
};
use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::{Context, ExecutionError, Value as Cel};

use super::budget::{Answer, EvalAbort, Meter, UNIT, entries, size};
use super::functions::{self, Patterns};
use super::{keywords, operators as signs};

/// What making a list or a map costs.
const NEW_LIST: u64 = 10 * UNIT;
const NEW_MAP: u64 = 30 * UNIT;

/// One run of one expression.
pub(super) struct Evaluation<'a> {
    library: &'a Context<'a>,
    patterns: &'a mut Patterns,
    meter: Meter,
    lists: signs::Lists<'a>,
    /// What can be named, the innermost last. The result of a loop may be an error that a later turn makes good for.
    names: Vec<(&'a str, Result<Cel, ExecutionError>)>,
}

impl<'a> Evaluation<'a> {
    pub(super) fn new(library: &'a Context<'a>, patterns: &'a mut Patterns, limit: u64) -> Self {
        let lists = signs::Lists::default();
        Evaluation { library, patterns, meter: Meter::new(limit), lists, names: Vec::new() }
    }

    /// Says which of the lists in the values are sets and maps.
    pub(super) fn lists(&mut self, kinds: &'a signs::Kinds) {
        self.lists = signs::Lists::new(kinds);
    }

    /// Gives a name to a value.
    pub(super) fn name(&mut self, name: &'a str, value: Cel) {
        self.names.push((name, Ok(value)));
    }

    /// Runs an expression; also says what that has cost.
    pub(super) fn run(mut self, expression: &'a IdedExpr) -> (Answer, u64) {
        let answer = self.value(expression);
        (answer, self.meter.spent())
    }

    fn value(&mut self, expression: &'a IdedExpr) -> Answer {
        match &expression.expr {
            Expr::Literal(literal) => self.literal(literal),
            Expr::Ident(name) => self.named(name),
            Expr::Select(select) => {
                let of = self.value(&select.operand)?;
                signs::field(&mut self.meter, &of, &select.field, select.test)
            }
            Expr::List(list) => self.list(list),
            Expr::Map(map) => self.map(map),
            Expr::Comprehension(loops) => self.repeat(loops),
            Expr::Call(call) => self.call(call),
            Expr::Struct(_) | Expr::Unspecified => Err(ExecutionError::NoSuchOverload.into()),
        }
    }

    fn literal(&mut self, literal: &LiteralValue) -> Answer {
        Ok(match literal {
            LiteralValue::Boolean(flag) => Cel::Bool(*flag.inner()),
            LiteralValue::Double(number) => Cel::Float(*number.inner()),
            LiteralValue::Int(number) => Cel::Int(*number.inner()),
            LiteralValue::UInt(number) => Cel::UInt(*number.inner()),
            LiteralValue::Null => Cel::Null,
            LiteralValue::String(text) => {
                self.meter.pay(size(text.inner().len()) / 10)?;
                Cel::String(Arc::new(text.inner().to_owned()))
            }
            LiteralValue::Bytes(bytes) => {
                self.meter.pay(size(bytes.inner().len()) / 10)?;
                Cel::Bytes(Arc::new(bytes.inner().to_vec()))
            }
        })
    }

    fn named(&mut self, name: &str) -> Answer {
        self.meter.pay(UNIT)?;
        match self.names.iter().rev().find(|(known, _)| *known == name) {
            Some((_, value)) => Ok(value.clone()?),
            // There are no types as values, so their names stand for them.
            None if keywords::is_type(name) => Ok(Cel::String(Arc::new(name.to_owned()))),
            None => Err(ExecutionError::UndeclaredReference(Arc::new(name.to_owned())).into()),
        }
    }

    /// A value that is not needed afterwards in its place: the result of a loop, which the step is about to replace.
    fn taken(&mut self, expression: &'a IdedExpr) -> Answer {
        match &expression.expr {
            Expr::Ident(name) if name.starts_with('@') => {
                self.meter.pay(UNIT)?;
                let known = self.names.iter_mut().rev().find(|(known, _)| known == name);
                let missing = || ExecutionError::UndeclaredReference(Arc::new(name.clone()));
                Ok(known
                    .map_or_else(|| Err(missing()), |(_, value)| std::mem::replace(value, Ok(Cel::Null)))?)
            }
            _ => self.value(expression),
        }
    }

    fn list(&mut self, list: &'a ListExpr) -> Answer {
        self.meter.pay(NEW_LIST)?;
        let mut items = Vec::with_capacity(list.elements.len());
        for (at, element) in list.elements.iter().enumerate() {
            let item = self.value(element)?;
            items.extend(if list.optional_indices.contains(&at) { present(item) } else { Some(item) });
        }
        Ok(Cel::List(Arc::new(items)))
    }

    fn map(&mut self, map: &'a MapExpr) -> Answer {
        self.meter.pay(NEW_MAP)?;
        let mut fields = HashMap::with_capacity(map.entries.len());
        for entry in &map.entries {
            let EntryExpr::MapEntry(pair) = &entry.expr else {
                return Err(ExecutionError::NoSuchOverload.into());
            };
            let key = self.value(&pair.key)?;
            let key: Key = key.try_into().map_err(ExecutionError::UnsupportedKeyType)?;
            let value = self.value(&pair.value)?;
            let value = if pair.optional { present(value) } else { Some(value) };
            fields.extend(value.map(|value| (key, value)));
        }
        Ok(Cel::Map(Map { map: Arc::new(fields) }))
    }

    fn repeat(&mut self, loops: &'a ComprehensionExpr) -> Answer {
        let range = self.value(&loops.iter_range)?;
        let items = match range {
            Cel::List(items) => items,
            Cel::Map(map) => {
                self.meter.pay(entries(&Cel::Map(map.clone())))?;
                Arc::new(map.map.keys().map(Cel::from).collect())
            }
            _ => return Err(ExecutionError::NoSuchOverload.into()),
        };
        let result = self.value(&loops.accu_init)?;
        let outside = self.names.len();
        self.names.push((&loops.accu_var, Ok(result)));
        let answer = self.turns(loops, &items, outside);
        self.names.truncate(outside);
        answer
    }

    /// The turns of a loop, whose result is the name at `place`.
    fn turns(&mut self, loops: &'a ComprehensionExpr, items: &[Cel], place: usize) -> Answer {
        // `all` and `exists` go on after an error, in the hope of an entry that decides.
        let hopes = |call: &CallExpr| call.func_name == operators::NOT_STRICTLY_FALSE;
        let hopeful = matches!(&loops.loop_cond.expr, Expr::Call(call) if hopes(call));
        for item in items {
            if !self.truth(&loops.loop_cond)? {
                break;
            }
            self.names.push((&loops.iter_var, Ok(item.clone())));
            let turn = self.value(&loops.loop_step);
            self.names.pop();
            let turn = match turn {
                Ok(value) => Ok(value),
                Err(EvalAbort::Failed(error)) if hopeful => Err(error),
                Err(stop) => return Err(stop),
            };
            if let Some((_, result)) = self.names.get_mut(place) {
                *result = turn;
            }
        }
        self.value(&loops.result)
    }

    fn truth(&mut self, expression: &'a IdedExpr) -> Result<bool, EvalAbort> {
        match self.value(expression)? {
            Cel::Bool(flag) => Ok(flag),
            _ => Err(ExecutionError::NoSuchOverload.into()),
        }
    }

    /// `&&` is decided by false, `||` by true, whatever the other side says or runs into.
    fn logical(&mut self, left: &'a IdedExpr, right: &'a IdedExpr, decides: bool) -> Answer {
        let left = self.truth(left);
        match left {
            Ok(flag) if flag == decides => return Ok(Cel::Bool(flag)),
            Err(EvalAbort::BudgetExceeded) => return Err(EvalAbort::BudgetExceeded),
            _ => {}
        }
        match (left, self.truth(right)) {
            (_, Ok(flag)) if flag == decides => Ok(Cel::Bool(flag)),
            (_, Err(EvalAbort::BudgetExceeded)) => Err(EvalAbort::BudgetExceeded),
            (Err(stop), _) | (Ok(_), Err(stop)) => Err(stop),
            (Ok(_), Ok(flag)) => Ok(Cel::Bool(flag)),
        }
    }

    fn call(&mut self, call: &'a CallExpr) -> Answer {
        match (call.func_name.as_str(), call.args.as_slice()) {
            (operators::CONDITIONAL, [condition, yes, no]) => {
                if self.truth(condition)? {
                    self.value(yes)
                } else {
                    self.value(no)
                }
            }
            (operators::LOGICAL_AND, [left, right]) => self.logical(left, right, false),
            (operators::LOGICAL_OR, [left, right]) => self.logical(left, right, true),
            (operators::NOT_STRICTLY_FALSE, [of]) => {
                self.meter.pay(UNIT)?;
                match self.value(of) {
                    Err(EvalAbort::BudgetExceeded) => Err(EvalAbort::BudgetExceeded),
                    answer => Ok(Cel::Bool(answer != Ok(Cel::Bool(false)))),
                }
            }
            (sign, [of]) if keywords::sign(sign).is_some() => {
                let of = self.value(of)?;
                signs::unary(&mut self.meter, sign, &of).unwrap_or(Err(ExecutionError::NoSuchOverload.into()))
            }
            (sign, [left, right]) if is_binary(sign) => {
                let left = self.taken(left)?;
                let right = self.value(right)?;
                signs::binary(&mut self.meter, &mut self.lists, sign, left, right)
                    .unwrap_or(Err(ExecutionError::NoSuchOverload.into()))
            }
            _ => self.function(call),
        }
    }

    fn function(&mut self, call: &'a CallExpr) -> Answer {
        let mut args = Vec::with_capacity(call.args.len() + 1);
        let mut space = None;
        match call.target.as_deref() {
            // The first word of a function's name, `sets` in `sets.contains`, looks like a variable.
            Some(IdedExpr { expr: Expr::Ident(name), .. })
                if keywords::NAMESPACES.contains(&name.as_str())
                    && !self.names.iter().any(|(known, _)| known == name) =>
            {
                space = Some(name.as_str());
            }
            Some(target) => args.push(self.value(target)?),
            None => {}
        }
        for arg in &call.args {
            args.push(self.value(arg)?);
        }
        let method = call.target.is_some() && space.is_none();
        let call = functions::Call { space, name: &call.func_name, method, args };
        call.run(self.library, &mut self.meter, self.patterns)
    }
}

/// What an optional value holds; any other value is there.
fn present(value: Cel) -> Option<Cel> {
    match signs::optional(&value) {
        Some(inner) => inner.value().cloned(),
        None => Some(value),
    }
}

fn is_binary(function: &str) -> bool {
    keywords::sign(function).is_some()
        || matches!(function, operators::INDEX | operators::OPT_INDEX | operators::OPT_SELECT)
}
