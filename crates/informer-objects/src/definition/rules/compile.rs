//! Compilation of rules.
//!
//! A rule that is too long or too deeply nested is rejected, so that recursive functions do not overflow the
//! stack; so is a rule that uses features the evaluator does not support.

use kube_cel::cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr};
use kube_cel::cel::parser::{ParseError, Parser};

use super::macros;
use super::operator_tokens::{max_bracket_depth, without_operator_pairs};

/// The maximum length of a rule.
const MAX_RULE_BYTES: usize = 16 << 10;
/// The maximum nesting depth of an expression.
pub(super) const MAX_DEPTH: usize = 200;
/// The maximum of [`max_bracket_depth`].
const MAX_BRACKETS: usize = 60;
/// The maximum number of errors reported for one rule.
pub(super) const MAX_ERRORS: usize = 100;

/// A compiled rule or message expression, or the error of compiling it.
#[derive(Debug)]
pub(super) struct Compiled {
    pub(super) expression: Result<IdedExpr, String>,
    pub(super) uses_old: bool,
}

impl Compiled {
    pub(super) fn new(text: &str) -> Self {
        match parse(text) {
            Ok(mut parsed) => {
                let uses_old = mentions(&parsed, "oldSelf");
                macros::expand(&mut parsed);
                Compiled { expression: Ok(parsed), uses_old }
            }
            Err(why) => Compiled { expression: Err(why), uses_old: false },
        }
    }
}

/// Parses a rule; the error contains the position in the text, as printed by cel-go.
pub(super) fn parse(text: &str) -> Result<IdedExpr, String> {
    if text.len() > MAX_RULE_BYTES {
        return Err(show(text, 1, 1, &format!("expression size exceeds limit: {MAX_RULE_BYTES}")));
    }
    let too_deep = || show(text, 1, 1, &format!("expression recursion limit exceeded: {MAX_DEPTH}"));
    if max_bracket_depth(text) > MAX_BRACKETS {
        return Err(too_deep());
    }
    let parser = Parser::new().enable_optional_syntax(true);
    let parsed = parser.parse(&without_operator_pairs(text)).map_err(|errors| {
        let shown = errors.errors.iter().take(MAX_ERRORS).map(|error| show_error(text, error));
        join_errors(shown.collect(), errors.errors.len().saturating_sub(MAX_ERRORS))
    })?;
    if depth(&parsed) > MAX_DEPTH {
        return Err(too_deep());
    }
    match unsupported(&parsed) {
        Some(why) => Err(show(text, 1, 1, &why)),
        None => Ok(parsed),
    }
}

/// Whether a variable is used anywhere.
///
/// All comprehensions have the same name for their accumulator, but it is a different variable in each.
pub(super) fn mentions(expression: &IdedExpr, name: &str) -> bool {
    match &expression.expr {
        Expr::Ident(ident) => ident == name,
        Expr::Comprehension(comprehension) if comprehension.accu_var == name => {
            mentions(&comprehension.iter_range, name)
        }
        _ => children(expression).into_iter().any(|child| mentions(child, name)),
    }
}

/// Returns the direct children of an expression, in the order of the text.
pub(super) fn children(expression: &IdedExpr) -> Vec<&IdedExpr> {
    match &expression.expr {
        Expr::Call(CallExpr { target, args, .. }) => target.as_deref().into_iter().chain(args).collect(),
        Expr::Comprehension(comprehension) => {
            vec![
                &comprehension.iter_range,
                &comprehension.accu_init,
                &comprehension.loop_cond,
                &comprehension.loop_step,
                &comprehension.result,
            ]
        }
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => entries(&map.entries),
        Expr::Struct(literal) => entries(&literal.entries),
        Expr::Select(select) => vec![&select.operand],
        Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => Vec::new(),
    }
}

/// Returns an error at a position, with the line that contains it.
pub(super) fn show(text: &str, line: usize, column: usize, what: &str) -> String {
    let shown = text.lines().nth(line.saturating_sub(1)).unwrap_or_default();
    let dots = ".".repeat(column.saturating_sub(1));
    format!("ERROR: <input>:{line}:{column}: {what}\n | {shown}\n | {dots}^")
}

/// Joins the reported errors, and adds the number of errors that are not reported.
pub(super) fn join_errors(mut shown: Vec<String>, truncated: usize) -> String {
    if truncated > 0 {
        shown.push(format!("{truncated} more errors were truncated"));
    }
    shown.join("\n")
}

fn show_error(text: &str, error: &ParseError) -> String {
    let at = |position: isize| usize::try_from(position).unwrap_or_default();
    show(text, at(error.pos.0), at(error.pos.1), &error.msg)
}

fn entries(entries: &[kube_cel::cel::common::ast::IdedEntryExpr]) -> Vec<&IdedExpr> {
    let mut parts = Vec::new();
    for entry in entries {
        match &entry.expr {
            EntryExpr::StructField(field) => parts.push(&field.value),
            EntryExpr::MapEntry(pair) => parts.extend([&pair.key, &pair.value]),
        }
    }
    parts
}

/// Returns the nesting depth of an expression after macros are expanded.
fn depth(expression: &IdedExpr) -> usize {
    let levels = match &expression.expr {
        Expr::Call(call) if macros::parts(call).is_some() => 1 + macros::DEPTH,
        _ => 1,
    };
    levels + children(expression).into_iter().map(depth).max().unwrap_or_default()
}

/// Returns the error about an expression that the evaluator does not support.
fn unsupported(expression: &IdedExpr) -> Option<String> {
    match &expression.expr {
        Expr::Struct(literal) => {
            Some(format!("undeclared reference to '{}' (in container '')", literal.type_name))
        }
        Expr::Unspecified => Some("Syntax error: incomplete expression".to_owned()),
        _ => children(expression).into_iter().find_map(unsupported),
    }
}
