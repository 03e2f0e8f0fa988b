//! Pruning of one JSON value: removes the values that paths name, or everything else.
//!
//! One pass: members that no path names or enters are copied or left out without parsing them. The output
//! is never longer than the input. The recursion is as deep as the longest path, independently of the depth
//! of the value.

use super::members::{each_element, each_member};
use crate::wire::path::PathStep;
use crate::wire::paths::{Mode, Parent, Paths, enter_element, enter_member};

/// Appends the pruned `value` to `out`. Returns `false`, and appends nothing, if nothing is left of it.
///
/// None of `paths` is empty: the caller handles paths that name the value as a whole.
pub(in crate::wire) fn prune(mode: Mode, paths: &Paths<'_>, value: &[u8], out: &mut Vec<u8>) -> bool {
    prune_inside(mode, paths, value, Parent::Object, out)
}

/// Prunes a value that no path names as a whole.
fn prune_inside(mode: Mode, paths: &Paths<'_>, value: &[u8], parent: Parent, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let pruned = match value.first() {
        Some(b'{') => prune_object(mode, paths, value, out),
        Some(b'[') => prune_list(mode, paths, value, parent, out),
        _ => None,
    };
    if pruned.is_some() {
        return true;
    }
    // No path can enter the value, or it is malformed: it is kept or dropped as a whole.
    out.truncate(start);
    if mode == Mode::Drop {
        out.extend_from_slice(value);
    }
    mode == Mode::Drop
}

/// Prunes an object. `None` if no path leads into it, or if it is malformed.
fn prune_object(mode: Mode, paths: &Paths<'_>, object: &[u8], out: &mut Vec<u8>) -> Option<()> {
    paths.iter().any(|path| matches!(path.first(), Some(PathStep::Name(_)))).then_some(())?;
    out.push(b'{');
    let first = out.len();
    each_member(object, |name, value| {
        let before = out.len();
        let comma: &[u8] = if before == first { b"" } else { b"," };
        for part in [comma, b"\"", name, b"\":"] {
            out.extend_from_slice(part);
        }
        let inner: Vec<_> = paths.iter().filter_map(|path| enter_member(path, name)).collect();
        if !prune_child(mode, &inner, value, Parent::Object, out) {
            out.truncate(before);
        }
        true
    })?;
    out.push(b'}');
    Some(())
}

/// Prunes a list. `None` if no path leads into it, or if it is malformed.
fn prune_list(mode: Mode, paths: &Paths<'_>, list: &[u8], parent: Parent, out: &mut Vec<u8>) -> Option<()> {
    let inner: Vec<_> = paths.iter().filter_map(|path| enter_element(path, parent)).collect();
    (!inner.is_empty()).then_some(())?;
    out.push(b'[');
    let first = out.len();
    each_element(list, |element| {
        let before = out.len();
        if before != first {
            out.push(b',');
        }
        if !prune_child(mode, &inner, element, Parent::List, out) {
            out.truncate(before);
        }
    })?;
    out.push(b']');
    Some(())
}

/// Prunes a member's value or an element, given the rest of each path that leads to it.
fn prune_child(mode: Mode, paths: &Paths<'_>, value: &[u8], parent: Parent, out: &mut Vec<u8>) -> bool {
    let is_named = paths.iter().any(|path| path.is_empty());
    if !is_named && !paths.is_empty() {
        return prune_inside(mode, paths, value, parent, out);
    }
    // A path names the value, or no path leads to it.
    let is_kept = is_named == (mode == Mode::Keep);
    if is_kept {
        out.extend_from_slice(value);
    }
    is_kept
}
