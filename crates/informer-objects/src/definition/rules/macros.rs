//! Macros that the parser leaves as calls: `optMap` and `optFlatMap`, which give a name to what an optional value holds.
//!
//! For the checker they stay calls, so that places are those of the text. To be run, they become what the language says they
//! stand for; only the value in front of them is not written twice, but gets a name too.

use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, operators,
};

/// Names that nobody can write.
const VALUE: &str = "@optional";
const UNUSED: &str = "@unused";

/// How much deeper than a call such a macro is.
pub(super) const DEPTH: usize = 4;

/// Such a macro as it is written: what it is called on, the variable, and what is made of it.
pub(super) fn parts(call: &CallExpr) -> Option<(&IdedExpr, &str, &IdedExpr)> {
    match (call.func_name.as_str(), call.target.as_deref(), call.args.as_slice()) {
        ("optMap" | "optFlatMap", Some(target), [IdedExpr { expr: Expr::Ident(name), .. }, body]) => {
            Some((target, name, body))
        }
        _ => None,
    }
}

/// Puts what they stand for in the place of all macros.
pub(super) fn expand(expression: &mut IdedExpr) {
    match &mut expression.expr {
        Expr::Call(call) => {
            call.target.iter_mut().for_each(|target| expand(target));
            call.args.iter_mut().for_each(expand);
        }
        Expr::Comprehension(loops) => {
            let parts =
                [&mut loops.iter_range, &mut loops.accu_init, &mut loops.loop_step, &mut loops.result];
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
        let made = named(&name, method(ident(VALUE), "value", Vec::new()), body);
        let made = match call.func_name.as_str() {
            "optMap" => method(ident("optional"), "of", vec![made]),
            _ => made,
        };
        let nothing = method(ident("optional"), "none", Vec::new());
        let asked = method(ident(VALUE), "hasValue", Vec::new());
        *expression =
            named(VALUE, target, function(operators::CONDITIONAL, None, vec![asked, made, nothing]));
    }
}

/// An expression in which a value has a name: the result of a loop without turns.
fn named(name: &str, value: IdedExpr, body: IdedExpr) -> IdedExpr {
    part(Expr::Comprehension(Box::new(ComprehensionExpr {
        iter_range: part(Expr::List(ListExpr::new(Vec::new()))),
        iter_var: UNUSED.to_owned(),
        iter_var2: None,
        accu_var: name.to_owned(),
        accu_init: value,
        loop_cond: part(Expr::Literal(LiteralValue::Boolean(false.into()))),
        loop_step: ident(name),
        result: body,
    })))
}

fn method(target: IdedExpr, name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    function(name, Some(Box::new(target)), args)
}

fn function(name: &str, target: Option<Box<IdedExpr>>, args: Vec<IdedExpr>) -> IdedExpr {
    part(Expr::Call(CallExpr { func_name: name.to_owned(), target, args }))
}

fn ident(name: &str) -> IdedExpr {
    part(Expr::Ident(name.to_owned()))
}

fn part(expr: Expr) -> IdedExpr {
    IdedExpr { id: 0, expr }
}
