//! Programs in Markdown pages: the code block after `<!-- include PATH -->` is a copy of that file, and after
//! `<!-- include PATH:NAME -->` of its lines between `// ANCHOR: NAME` and `// ANCHOR_END: NAME`.
//!
//! The copies make the pages readable without a program that builds them, and the files are compiled and tested.
//! `cargo xtask book` renews the copies, and `cargo xtask tidy` checks them.

/// A mistake in a page: its line, and a message.
pub(crate) type Mistake = (usize, String);

/// Returns a page with all copies renewed. `read` returns the text of a file; `None` if it does not exist.
pub(crate) fn renew(page: &str, read: &dyn Fn(&str) -> Option<String>) -> Result<String, Mistake> {
    let mut renewed = String::new();
    let mut lines = (1..).zip(page.lines());
    while let Some((number, line)) = lines.next() {
        add_line(&mut renewed, line);
        let Some(source) = line.strip_prefix("<!-- include ").and_then(|rest| rest.strip_suffix(" -->"))
        else {
            continue;
        };
        let (path, anchor) = source.split_once(':').map_or((source, None), |(path, name)| (path, Some(name)));
        let text = read(path).ok_or_else(|| (number, format!("no file `{path}`")))?;
        let code = match anchor {
            None => whole(&text),
            Some(name) => {
                part(&text, name).ok_or_else(|| (number, format!("no anchor `{name}` in {path}")))?
            }
        };
        let fence = lines.next().map(|(_, line)| line).filter(|line| line.starts_with("```"));
        add_line(&mut renewed, fence.ok_or_else(|| (number, "no code block follows".to_owned()))?);
        if !lines.any(|(_, line)| line == "```") {
            return Err((number, "the code block does not end".to_owned()));
        }
        for line in code {
            add_line(&mut renewed, line);
        }
        add_line(&mut renewed, "```");
    }
    Ok(renewed)
}

fn add_line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

/// Returns the lines of a file without the comment at its start, which describes the file in the repository, and
/// without anchors.
fn whole(text: &str) -> Vec<&str> {
    let lines = text.lines().skip_while(|line| line.starts_with("//!") || line.is_empty());
    lines.filter(|line| !is_anchor(line)).collect()
}

fn part<'a>(text: &'a str, name: &str) -> Option<Vec<&'a str>> {
    let (start, end) = (format!("// ANCHOR: {name}"), format!("// ANCHOR_END: {name}"));
    let mut lines = text.lines();
    lines.find(|line| *line == start)?;
    let mut found = Vec::new();
    for line in lines {
        if line == end {
            return Some(found);
        }
        if !is_anchor(line) {
            found.push(line);
        }
    }
    None
}

fn is_anchor(line: &str) -> bool {
    line.starts_with("// ANCHOR: ") || line.starts_with("// ANCHOR_END: ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAM: &str =
        "//! A program.\n\nuse std::fmt;\n\n// ANCHOR: main\nfn main() {}\n// ANCHOR_END: main\n";

    fn check(page: &str, expected: Result<&str, (usize, &str)>) {
        let read = |path: &str| (path == "a.rs").then(|| PROGRAM.to_owned());
        let expected = expected.map(str::to_owned).map_err(|(line, message)| (line, message.to_owned()));
        assert_eq!(renew(page, &read), expected);
    }

    #[test]
    fn copy_of_a_file_has_neither_its_description_nor_anchors() {
        let page = "Text\n\n<!-- include a.rs -->\n```rust\nold\n\n```\nmore\n";
        let renewed = "Text\n\n<!-- include a.rs -->\n```rust\nuse std::fmt;\n\nfn main() {}\n```\nmore\n";
        check(page, Ok(renewed));
        check(renewed, Ok(renewed));
    }

    #[test]
    fn copy_of_a_part_has_the_lines_between_its_anchors() {
        let page = "<!-- include a.rs:main -->\n```rust\n```\n";
        check(page, Ok("<!-- include a.rs:main -->\n```rust\nfn main() {}\n```\n"));
    }

    #[test]
    fn page_without_copies_is_unchanged() {
        check("# A\n\n```rust\nold\n```\n", Ok("# A\n\n```rust\nold\n```\n"));
    }

    #[test]
    fn mistakes_are_reported_with_their_line() {
        check("\n<!-- include b.rs -->\n```rust\n```\n", Err((2, "no file `b.rs`")));
        check("<!-- include a.rs:b -->\n```rust\n```\n", Err((1, "no anchor `b` in a.rs")));
        check("<!-- include a.rs -->\n\n```rust\n```\n", Err((1, "no code block follows")));
        check("<!-- include a.rs -->\n```rust\n", Err((1, "the code block does not end")));
    }
}
