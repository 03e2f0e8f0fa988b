//! Cutting declared paths out of one JSON value, or everything else.
//!
//! One walk: members on no path are skimmed and copied, or left out. What is written is never longer than what was read. The
//! recursion is as deep as the longest path, however deep the value is.

use super::members::{each_element, each_member};
use crate::wire::path::PathStep;
use crate::wire::paths::{Mode, Paths, into_element, into_member};

/// Appends what is left of `value` to `out`; `false` if nothing is, and then nothing was appended.
///
/// None of `paths` is empty: whoever calls knows what becomes of the value as a whole.
pub(in crate::wire) fn prune(mode: Mode, paths: &Paths<'_>, value: &[u8], out: &mut Vec<u8>) -> bool {
    prune_inside(mode, paths, value, false, out)
}

/// `in_list` says that the value is an element of a list.
fn prune_inside(mode: Mode, paths: &Paths<'_>, value: &[u8], in_list: bool, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let walked = match value.first() {
        Some(b'{') => prune_object(mode, paths, value, out),
        Some(b'[') => prune_list(mode, paths, value, in_list, out),
        _ => None,
    };
    if walked.is_some() {
        return true;
    }
    // Nothing that a path could lead into.
    out.truncate(start);
    if mode == Mode::Drop {
        out.extend_from_slice(value);
    }
    mode == Mode::Drop
}

/// `None` if no path leads into an object, or if it is no JSON.
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
        let inner: Vec<_> = paths.iter().filter_map(|path| into_member(path, name)).collect();
        if !prune_part(mode, &inner, value, false, out) {
            out.truncate(before);
        }
        true
    })?;
    out.push(b'}');
    Some(())
}

/// `None` if no path leads into a list, or if it is no JSON.
fn prune_list(mode: Mode, paths: &Paths<'_>, list: &[u8], in_list: bool, out: &mut Vec<u8>) -> Option<()> {
    let inner: Vec<_> = paths.iter().filter_map(|path| into_element(path, in_list)).collect();
    (!inner.is_empty()).then_some(())?;
    out.push(b'[');
    let first = out.len();
    each_element(list, |element| {
        let before = out.len();
        if before != first {
            out.push(b',');
        }
        if !prune_part(mode, &inner, element, true, out) {
            out.truncate(before);
        }
    })?;
    out.push(b']');
    Some(())
}

/// A member's value or an element, with the paths that lead to it.
fn prune_part(mode: Mode, paths: &Paths<'_>, value: &[u8], in_list: bool, out: &mut Vec<u8>) -> bool {
    let is_named = paths.iter().any(|path| path.is_empty());
    if !is_named && !paths.is_empty() {
        return prune_inside(mode, paths, value, in_list, out);
    }
    let stays = is_named == (mode == Mode::Keep);
    if stays {
        out.extend_from_slice(value);
    }
    stays
}
