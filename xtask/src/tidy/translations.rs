//! Translated pages: each has the structure of its original, so that an added section, item or program is not
//! forgotten in the translation.

use super::Problem;
use crate::repo::TextFile;

/// Folders with pages and the folders with their translations. Every page of the first must be translated.
const FOLDERS: &[(&str, &str)] = &[("docs/book/src/tutorial/", "docs/book/zh/src/tutorial/")];
/// Single pages and their translations.
const PAGES: &[(&str, &str)] = &[("README.md", "README.zh.md")];

/// Compares all pages that must be translated with their translations.
pub(super) fn check(files: &[TextFile]) -> Vec<Problem> {
    let text = |path: &str| files.iter().find(|file| file.path == path).map(|file| file.text.as_str());
    let in_folders = FOLDERS.iter().flat_map(|(folder, translated)| {
        let names = files.iter().filter_map(move |file| file.path.strip_prefix(folder));
        names.map(move |name| (format!("{folder}{name}"), format!("{translated}{name}")))
    });
    let pages = PAGES.iter().map(|(page, translation)| ((*page).to_owned(), (*translation).to_owned()));
    let mut problems = Vec::new();
    for (page, translation) in in_folders.chain(pages) {
        let Some(original) = text(&page) else { continue };
        match text(&translation) {
            Some(translated) => problems.extend(compare(&page, original, &translation, translated)),
            None => problems.push(Problem::new(&page, format!("is not translated as {translation}"))),
        }
    }
    problems
}

/// Returns the first difference between the structures of two pages.
fn compare(page: &str, original: &str, translation: &str, translated: &str) -> Option<Problem> {
    let (expected, found) = (outline(original), outline(translated));
    let same = expected.iter().zip(&found).take_while(|(left, right)| left.part == right.part).count();
    let describe = |element: Option<&Element<'_>>| match element {
        Some(Element { part, line }) => format!("{} in line {line}", part.name()),
        None => "the end".to_owned(),
    };
    let (expected, found) = (expected.get(same), found.get(same));
    if expected.is_none() && found.is_none() {
        return None;
    }
    let message = format!("{} of {page} corresponds to {} here", describe(expected), describe(found));
    Some(Problem::new(translation, message))
}

/// An element of a page and the line where it begins.
struct Element<'a> {
    part: Part<'a>,
    line: usize,
}

#[derive(PartialEq, Eq)]
enum Part<'a> {
    Heading(usize),
    /// Code is not translated.
    Code(Vec<&'a str>),
    Item,
    Row,
    Paragraph,
}

impl Part<'_> {
    fn name(&self) -> &'static str {
        match self {
            Self::Heading(_) => "a heading",
            Self::Code(_) => "a code block",
            Self::Item => "a list item",
            Self::Row => "a row",
            Self::Paragraph => "a paragraph",
        }
    }
}

fn outline(text: &str) -> Vec<Element<'_>> {
    let mut elements = Vec::new();
    let mut lines = (1..).zip(text.lines());
    let mut is_continued = false;
    while let Some((line, text)) = lines.next() {
        let part = if text.starts_with("```") {
            let code = lines.by_ref().map(|(_, text)| text).take_while(|text| !text.starts_with("```"));
            Some(Part::Code(code.collect()))
        } else if text.starts_with("<!-- bench:") {
            // Generated tables are not translated; a paragraph that refers to them is enough.
            let _end = lines.find(|(_, text)| text.starts_with("<!-- bench: end"));
            Some(Part::Paragraph)
        } else if text.starts_with('#') {
            Some(Part::Heading(text.chars().take_while(|c| *c == '#').count()))
        } else if text.starts_with("- ") {
            Some(Part::Item)
        } else if text.starts_with('|') {
            Some(Part::Row)
        } else if is_continued || text.is_empty() || text.starts_with("<!--") {
            None
        } else {
            Some(Part::Paragraph)
        };
        is_continued =
            matches!(part, Some(Part::Item | Part::Paragraph)) || (is_continued && !text.is_empty());
        elements.extend(part.map(|part| Element { part, line }));
    }
    elements
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str =
        "# A\n\nText\nof two lines.\n\n- one\n  more\n- two\n\n```sh\nls\n```\n\n| a |\n|---|\n";

    fn check(original: &str, translated: &str, expected: &[&str]) {
        let file = |path: &str, text: &str| TextFile { path: path.to_owned(), text: text.to_owned() };
        let files = [file("README.md", original), file("README.zh.md", translated)];
        let problems: Vec<String> = super::check(&files).iter().map(ToString::to_string).collect();
        assert_eq!(problems, expected);
    }

    #[test]
    fn same_structure_passes() {
        check(PAGE, PAGE, &[]);
        check(PAGE, "# 甲\n\n一段\n\n- 一\n- 二\n\n```sh\nls\n```\n\n| 甲 |\n|---|\n", &[]);
        check("<!-- bench: x -->\n| a |\n<!-- bench: end -->\n", "一段\n", &[]);
    }

    #[test]
    fn difference_is_a_problem() {
        let cases = [
            (
                "# A\n\n## B\n",
                "# A\n\nB\n",
                "a heading in line 3 of README.md corresponds to a paragraph in line 3 here",
            ),
            ("- a\n- b\n", "- a\n", "a list item in line 2 of README.md corresponds to the end here"),
            ("a\n", "a\n\nb\n", "the end of README.md corresponds to a paragraph in line 3 here"),
            (
                "```sh\nls\n```\n",
                "```sh\nps\n```\n",
                "a code block in line 1 of README.md corresponds to a code block in line 1 here",
            ),
        ];
        for (original, translated, message) in cases {
            check(original, translated, &[&format!("README.zh.md: {message}")]);
        }
    }

    #[test]
    fn missing_translation_is_a_problem() {
        let file = TextFile { path: "docs/book/src/tutorial/a.md".to_owned(), text: String::new() };
        let problems: Vec<String> = super::check(&[file]).iter().map(ToString::to_string).collect();
        assert_eq!(
            problems,
            ["docs/book/src/tutorial/a.md: is not translated as docs/book/zh/src/tutorial/a.md"]
        );
    }
}
