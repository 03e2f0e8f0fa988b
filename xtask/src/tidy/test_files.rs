//! Integration tests: each file is part of a test program. Crates list their test programs, so a file that is in none
//! of them would not even be compiled.

use super::{Problem, Source};

/// Checks the files in the folder `tests` of a crate. `manifest` is its `Cargo.toml`.
pub(super) fn check(folder: &str, manifest: &str, sources: &[Source]) -> Vec<Problem> {
    if !manifest.contains("\nautotests = false\n") {
        return Vec::new();
    }
    let in_tests = |source: &Source| -> Option<String> {
        let path = source.path.strip_prefix(folder)?.strip_prefix("/tests/")?;
        Some(path.to_owned())
    };
    let programs: Vec<(String, &Source)> =
        sources.iter().filter_map(|source| Some((in_tests(source)?, source))).collect();
    let is_named = |name: &str| manifest.contains(&format!("\n[[test]]\nname = \"{name}\"\n"));
    let is_module = |path: &str, name: &str| {
        let is_root = |root: &str| root.strip_suffix(".rs").is_some_and(&is_named);
        let declares = |source: &Source| {
            let lines: Vec<&str> = source.code.lines().map(str::trim).collect();
            let by_name = lines.contains(&format!("mod {name};").as_str());
            by_name || source.text.contains(&format!("#[path = \"{path}\"]"))
        };
        programs.iter().any(|(root, source)| is_root(root) && declares(source))
    };
    let is_part = |path: &str| match path.split_once('/') {
        None => path.strip_suffix(".rs").is_some_and(|name| is_named(name) || is_module(path, name)),
        // Files in folders belong to the file that starts the folder.
        Some((name, "main.rs")) => is_named(name) || is_module(path, name),
        Some(_) => true,
    };
    let lost = programs.iter().filter(|(path, _)| !is_part(path));
    let message = "is in no test program (add it to `tests/integration.rs`)";
    lost.map(|(_, source)| Problem::new(source.path.as_str(), message)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str =
        "[package]\nautotests = false\n\n[[test]]\nname = \"integration\"\n\n[[test]]\nname = \"slow\"\n";

    fn check(manifest: &str, files: &[(&str, &str)], expected: &[&str]) {
        let sources: Vec<Source> = files.iter().map(|(path, text)| Source::new(*path, *text)).collect();
        let problems: Vec<String> =
            super::check("crates/a", manifest, &sources).iter().map(ToString::to_string).collect();
        assert_eq!(problems, expected);
    }

    #[test]
    fn programs_and_their_modules_pass() {
        let root = "mod reads;\n#[path = \"cache/main.rs\"]\nmod cache;\n";
        let files = [
            ("crates/a/tests/integration.rs", root),
            ("crates/a/tests/reads.rs", ""),
            ("crates/a/tests/slow.rs", ""),
            ("crates/a/tests/cache/main.rs", "mod store;\n"),
            ("crates/a/tests/cache/store.rs", ""),
        ];
        check(MANIFEST, &files, &[]);
    }

    #[test]
    fn file_without_program_is_a_problem() {
        let files = [("crates/a/tests/integration.rs", "// mod lost;\n"), ("crates/a/tests/lost.rs", "")];
        let expected = "crates/a/tests/lost.rs: is in no test program (add it to `tests/integration.rs`)";
        check(MANIFEST, &files, &[expected]);
        let folder = [("crates/a/tests/lost/main.rs", "")];
        let expected =
            "crates/a/tests/lost/main.rs: is in no test program (add it to `tests/integration.rs`)";
        check(MANIFEST, &folder, &[expected]);
        // Cargo finds it.
        check("[package]\n", &files, &[]);
    }
}
