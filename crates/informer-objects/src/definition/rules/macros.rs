//! Macros that the parser leaves as calls: `optMap` and `optFlatMap`, which name the contents of an optional
//! value.
//!
//! The type check handles the macros as calls, so that positions are those of the text. Before evaluation,
//! they are expanded as defined by CEL, except that the target is bound to a variable instead of being
//! duplicated.

use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, operators,
};

/// The variable for the target of a macro; rules cannot contain `@`.
const VALUE: &str = "@optional";
/// The iteration variable of a comprehension without iterations.
const UNUSED: &str = "@unused";

/// The depth that expanding a macro adds to a call.
pub(super) const DEPTH: usize = 4;

/// Returns the parts of a macro call: target, variable and body.
pub(super) fn parts(call: &CallExpr) -> Option<(&IdedExpr, &str, &IdedExpr)> {
    match (call.func_name.as_str(), call.target.as_deref(), call.args.as_slice()) {
        ("optMap" | "optFlatMap", Some(target), [IdedExpr { expr: Expr::Ident(name), .. }, body]) => {
            Some((target, name, body))
        }
        _ => None,
    }
}

/// Expands all macros.
pub(super) fn expand(expression: &mut IdedExpr) {
    match &mut expression.expr {
        Expr::Call(call) => {
            call.target.iter_mut().for_each(|target| expand(target));
            call.args.iter_mut().for_each(expand);
        }
        Expr::Comprehension(comprehension) => {
            let parts = [
                &mut comprehension.iter_range,
                &mut comprehension.accu_init,
                &mut comprehension.loop_step,
                &mut comprehension.result,
            ];
            parts.into_iter().for_each(expand);
        }
        Expr::List(list) => list.elements.iter_mut().for_each(expand),
        Expr::Map(map) => {
            for entry in &mut map.entries {
                if let EntryExpr::MapEntry(pair) = &mut entry.expr {
                    expand(&mut pair.key);
                    expand(&mut pair.value);
                }
            }
        }
        Expr::Select(select) => expand(&mut select.operand),
        Expr::Struct(_) | Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => {}
    }
    if let Expr::Call(call) = &mut expression.expr
        && let Some((target, name, body)) = parts(call)
    {
        let (target, name, body) = (target.clone(), name.to_owned(), body.clone());
        let result = named(&name, method(ident(VALUE), "value", Vec::new()), body);
        let result = match call.func_name.as_str() {
            "optMap" => method(ident("optional"), "of", vec![result]),
            _ => result,
        };
        let none = method(ident("optional"), "none", Vec::new());
        let has_value = method(ident(VALUE), "hasValue", Vec::new());
        *expression =
            named(VALUE, target, function(operators::CONDITIONAL, None, vec![has_value, result, none]));
    }
}

/// Returns an expression in which a value has a name: that of the accumulator of a comprehension without
/// iterations.
fn named(name: &str, value: IdedExpr, body: IdedExpr) -> IdedExpr {
    node(Expr::Comprehension(Box::new(ComprehensionExpr {
        iter_range: node(Expr::List(ListExpr::new(Vec::new()))),
        iter_var: UNUSED.to_owned(),
        iter_var2: None,
        accu_var: name.to_owned(),
        accu_init: value,
        loop_cond: node(Expr::Literal(LiteralValue::Boolean(false.into()))),
        loop_step: ident(name),
        result: body,
    })))
}

fn method(target: IdedExpr, name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    function(name, Some(Box::new(target)), args)
}

fn function(name: &str, target: Option<Box<IdedExpr>>, args: Vec<IdedExpr>) -> IdedExpr {
    node(Expr::Call(CallExpr { func_name: name.to_owned(), target, args }))
}

fn ident(name: &str) -> IdedExpr {
    node(Expr::Ident(name.to_owned()))
}

fn node(expr: Expr) -> IdedExpr {
    IdedExpr { id: 0, expr }
}
