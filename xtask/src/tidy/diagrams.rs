//! Diagrams of the book: each text file has its image, and the image is current.

use super::Problem;
use crate::diagram;
use crate::repo::TextFile;

/// Compares the images of the diagrams among `files` with what is drawn from them. `read` returns the text of any
/// file; `None` if it does not exist.
pub(super) fn check(files: &[TextFile], read: &dyn Fn(&str) -> Option<String>) -> Vec<Problem> {
    let mut problems = Vec::new();
    for TextFile { path, text } in files.iter().filter(|file| file.path.starts_with(diagram::FOLDER)) {
        match diagram::draw(text) {
            Ok(image) if read(&diagram::image_path(path)).as_ref() == Some(&image) => {}
            Ok(_) => problems.push(Problem::new(
                diagram::image_path(path),
                format!("is not the image of {path} (`cargo xtask book` draws it)"),
            )),
            Err((line, mistake)) => problems.push(Problem::at(path, line, mistake)),
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIAGRAM: &str = "title: T\n| a | b |\na -> b\n";

    fn check(text: &str, image: Option<&str>, expected: &[&str]) {
        let file = TextFile { path: "docs/book/diagrams/a.txt".to_owned(), text: text.to_owned() };
        let read = |path: &str| image.filter(|_| path == "docs/book/src/images/a.svg").map(str::to_owned);
        let problems: Vec<String> = super::check(&[file], &read).iter().map(ToString::to_string).collect();
        assert_eq!(problems, expected);
    }

    #[test]
    fn current_image_passes() {
        check(DIAGRAM, Some(&diagram::draw(DIAGRAM).unwrap()), &[]);
    }

    #[test]
    fn old_or_missing_image_is_a_problem() {
        let problem = "docs/book/src/images/a.svg: is not the image of docs/book/diagrams/a.txt (`cargo xtask book` draws it)";
        check(DIAGRAM, Some("<svg/>"), &[problem]);
        check(DIAGRAM, None, &[problem]);
    }

    #[test]
    fn mistake_is_a_problem() {
        check("title: T\n| a |\na -> b\n", None, &["docs/book/diagrams/a.txt:3: no box `b`"]);
    }
}
