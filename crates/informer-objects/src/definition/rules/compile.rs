//! From the text of a rule to something that can be run.
//!
//! A rule that is too long or too deep is refused, so that whatever walks it stays within its stack; one that uses what the
//! evaluator cannot do is refused rather than run.

use kube_cel::cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr};
use kube_cel::cel::parser::{ParseError, Parser};

use super::macros;
use super::operator_tokens::{max_bracket_depth, without_pairs};

/// How long a rule may be.
const MAX_LENGTH: usize = 16 << 10;
/// How deep an expression may be nested.
pub(super) const MAX_DEPTH: usize = 200;
/// How many brackets may be open at once, or conditions wait for their else.
const MAX_BRACKETS: usize = 60;
/// How many errors of one rule are told.
pub(super) const MAX_ERRORS: usize = 100;

/// A rule or a message, ready to be run, or the reason why it never will be.
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

/// Parses a rule. The error has the place in the text, as the real compiler shows it.
pub(super) fn parse(text: &str) -> Result<IdedExpr, String> {
    if text.len() > MAX_LENGTH {
        return Err(show(text, 1, 1, &format!("expression size exceeds limit: {MAX_LENGTH}")));
    }
    let deep = || show(text, 1, 1, &format!("expression recursion limit exceeded: {MAX_DEPTH}"));
    if max_bracket_depth(text) > MAX_BRACKETS {
        return Err(deep());
    }
    let parser = Parser::new().enable_optional_syntax(true);
    let parsed = parser.parse(&without_pairs(text)).map_err(|errors| {
        let shown = errors.errors.iter().take(MAX_ERRORS).map(|error| show_error(text, error));
        some_errors(shown.collect(), errors.errors.len().saturating_sub(MAX_ERRORS))
    })?;
    if depth(&parsed) > MAX_DEPTH {
        return Err(deep());
    }
    match unusable(&parsed) {
        Some(why) => Err(show(text, 1, 1, &why)),
        None => Ok(parsed),
    }
}

/// Whether a name is used anywhere. The result of a loop has the same name in all of them, and is another in each.
pub(super) fn mentions(expression: &IdedExpr, name: &str) -> bool {
    match &expression.expr {
        Expr::Ident(ident) => ident == name,
        Expr::Comprehension(loops) if loops.accu_var == name => mentions(&loops.iter_range, name),
        _ => children(expression).into_iter().any(|child| mentions(child, name)),
    }
}

/// What stands directly below an expression, in the order of the text.
pub(super) fn children(expression: &IdedExpr) -> Vec<&IdedExpr> {
    match &expression.expr {
        Expr::Call(CallExpr { target, args, .. }) => target.as_deref().into_iter().chain(args).collect(),
        Expr::Comprehension(loops) => {
            vec![&loops.iter_range, &loops.accu_init, &loops.loop_cond, &loops.loop_step, &loops.result]
        }
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => entries(&map.entries),
        Expr::Struct(of) => entries(&of.entries),
        Expr::Select(select) => vec![&select.operand],
        Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => Vec::new(),
    }
}

/// An error at a place, with the line it is in.
pub(super) fn show(text: &str, line: usize, column: usize, what: &str) -> String {
    let shown = text.lines().nth(line.saturating_sub(1)).unwrap_or_default();
    let dots = ".".repeat(column.saturating_sub(1));
    format!("ERROR: <input>:{line}:{column}: {what}\n | {shown}\n | {dots}^")
}

/// All errors that are told, and how many are not.
pub(super) fn some_errors(mut shown: Vec<String>, left_out: usize) -> String {
    if left_out > 0 {
        shown.push(format!("{left_out} more errors were truncated"));
    }
    shown.join("\n")
}

fn show_error(text: &str, error: &ParseError) -> String {
    let at = |place: isize| usize::try_from(place).unwrap_or_default();
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

fn depth(expression: &IdedExpr) -> usize {
    let own = match &expression.expr {
        Expr::Call(call) if macros::parts(call).is_some() => 1 + macros::DEPTH,
        _ => 1,
    };
    own + children(expression).into_iter().map(depth).max().unwrap_or_default()
}

/// What the evaluator cannot do.
fn unusable(expression: &IdedExpr) -> Option<String> {
    match &expression.expr {
        Expr::Struct(of) => Some(format!("undeclared reference to '{}' (in container '')", of.type_name)),
        Expr::Unspecified => Some("Syntax error: incomplete expression".to_owned()),
        _ => children(expression).into_iter().find_map(unusable),
    }
}
