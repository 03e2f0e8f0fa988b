//! Default names of handlers, derived from the names of their Rust types.

/// The type whose name is that of the handler that it forwards to.
const FILTERING_HANDLER: &str = "FilteringHandler";
/// A path segment that stands for a closure.
const CLOSURE: &str = "{{closure}}";

/// Returns a short name for a handler of this type.
///
/// A closure has the name of the function that contains it and of the type or module of that function, any
/// other type has its own name without its path and parameters.
pub(super) fn short_name(type_name: &str) -> String {
    let path = without_parameters(type_name);
    let is_part = |segment: &&str| !matches!(*segment, "" | CLOSURE) && !segment.starts_with("{impl");
    let segments: Vec<&str> = path.split("::").filter(is_part).collect();
    let name = match segments[..] {
        [.., FILTERING_HANDLER] => last_parameter(type_name).map(short_name).unwrap_or_default(),
        [.., scope, function] if path.ends_with(CLOSURE) => format!("{scope}::{function}"),
        [.., last] => last.to_owned(),
        [] => String::new(),
    };
    // Such as a function pointer or a tuple.
    let is_path = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | ':'));
    if is_path { name } else { "handler".to_owned() }
}

/// Removes everything in angle brackets.
fn without_parameters(type_name: &str) -> String {
    top_level(type_name).filter(|(_, c)| !matches!(c, '<' | '>')).map(|(_, c)| c).collect()
}

/// Returns the last of the parameters in angle brackets at the end of a type.
fn last_parameter(type_name: &str) -> Option<&str> {
    let parameters = type_name.strip_suffix('>')?.split_once('<')?.1;
    let comma = top_level(parameters).filter(|(_, c)| *c == ',').last();
    Some(comma.map_or(parameters, |(at, _)| &parameters[at + 1..]).trim())
}

/// Returns the characters outside of brackets, and the brackets around what is left out.
fn top_level(text: &str) -> impl Iterator<Item = (usize, char)> + '_ {
    let (mut depth, mut previous) = (0_usize, ' ');
    text.char_indices().filter(move |(_, c)| {
        let is_arrow = previous == '-' && *c == '>';
        previous = *c;
        match c {
            '<' | '(' | '[' => depth += 1,
            '>' | ')' | ']' if !is_arrow => depth = depth.saturating_sub(1),
            _ => return depth == 0,
        }
        depth == 0 || (depth == 1 && matches!(c, '<' | '(' | '['))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Handler;
    use crate::Object;
    use crate::handler::FilteringHandler;
    use std::any::type_name_of_val;

    struct Count;
    impl Handler<()> for Count {}

    struct Each<T>(T);
    impl<T: Send + 'static> Handler<()> for Each<T> {}

    /// Regression: the default name of a filtered handler was the path of its type with all parameters, about
    /// 150 characters in a label of every metric, in which only the last word was useful. Tests set names.
    #[test]
    fn default_names_are_short() {
        let matches = |_: &Object<()>| true;
        let counted = FilteringHandler::new(matches, Count);
        let nested = FilteringHandler::new(matches, FilteringHandler::new(matches, Each((1, [Count]))));
        assert_eq!(short_name(type_name_of_val(&Count)), "Count");
        assert_eq!(short_name(type_name_of_val(&Each(Count))), "Each");
        assert_eq!(short_name(type_name_of_val(&counted)), "Count");
        assert_eq!(short_name(type_name_of_val(&nested)), "Each");
        assert_eq!(short_name(type_name_of_val(&matches)), "tests::default_names_are_short");
    }

    #[test]
    fn names_of_any_type_are_readable() {
        for (type_name, expected) in [
            ("watcher::App::new::{{closure}}::{{closure}}", "App::new"),
            ("watcher::main::{{closure}}", "watcher::main"),
            ("watcher::on_pod", "on_pod"),
            ("<watcher::App as watcher::Start>::start::{{closure}}", "start"),
            ("watcher::start<alloc::string::String>::{{closure}}", "watcher::start"),
            ("f::FilteringHandler<a::{{closure}}, b::Map<(c::D, fn(u8) -> e::F), g::H>>", "Map"),
            ("fn(informer::event::Event<pod::Pod>)", "handler"),
            ("alloc::boxed::Box<dyn core::ops::FnMut(a::B) -> c::D>", "Box"),
            ("(a::B, c::D)", "handler"),
            ("FilteringHandler", "handler"),
            ("<<>", "handler"),
            ("", "handler"),
        ] {
            assert_eq!(short_name(type_name), expected, "{type_name}");
        }
    }
}
