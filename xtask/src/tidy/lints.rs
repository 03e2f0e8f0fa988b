//! The lints of crates: each crate has those of the workspace, which forbid unsafe code. One crate may contain it, and
//! has otherwise equal lints.

use super::{Crate, Problem};

/// The only crate that may contain unsafe code.
const WITH_UNSAFE: &str = "informer-virtual";

/// Checks a crate. `manifest` is its `Cargo.toml`, `workspace` that of the workspace.
pub(super) fn check(member: &Crate, manifest: &str, workspace: &str) -> Vec<Problem> {
    let location = format!("{}/Cargo.toml", member.folder);
    if member.name != WITH_UNSAFE {
        let has_lints = section(manifest, "lints").contains(&"workspace = true");
        let message = "use the lints of the workspace: `workspace = true` in `[lints]`";
        return if has_lints { Vec::new() } else { vec![Problem::new(location, message)] };
    }
    let differs = |tool: &str| {
        let expected = section(workspace, &format!("workspace.lints.{tool}"));
        let expected: Vec<&str> = expected.into_iter().map(without_forbid).collect();
        section(manifest, &format!("lints.{tool}")) != expected
    };
    let message =
        |tool: &str| format!("`[lints.{tool}]` must equal that of the workspace, except for `unsafe_code`");
    let tools = ["rust", "clippy"].into_iter().filter(|tool| differs(tool));
    tools.map(|tool| Problem::new(location.as_str(), message(tool))).collect()
}

/// Returns the line of a lint, for unsafe code with a level that a file can override.
fn without_forbid(line: &str) -> &str {
    if line == "unsafe_code = \"forbid\"" { "unsafe_code = \"deny\"" } else { line }
}

/// Returns the lines of a section of a manifest, without comments and empty lines.
fn section<'a>(manifest: &'a str, name: &str) -> Vec<&'a str> {
    let header = format!("[{name}]");
    let lines = manifest.lines().skip_while(|line| *line != header).skip(1);
    let lines = lines.take_while(|line| !line.starts_with('['));
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKSPACE: &str = "[workspace.lints.rust]\nunsafe_code = \"forbid\"\nmissing_docs = \"warn\"\n\n# All.\n[workspace.lints.clippy]\n# A reason.\ntodo = \"deny\"\n";

    fn check(name: &str, manifest: &str, expected: &[&str]) {
        let member = Crate { name: name.to_owned(), folder: "crates/a".to_owned() };
        let problems: Vec<String> =
            super::check(&member, manifest, WORKSPACE).iter().map(ToString::to_string).collect();
        assert_eq!(problems, expected);
    }

    #[test]
    fn crate_without_lints_of_the_workspace_fails() {
        let expected = "crates/a/Cargo.toml: use the lints of the workspace: `workspace = true` in `[lints]`";
        check("informer", "[package]\nname = \"informer\"\n\n[lints]\nworkspace = true\n", &[]);
        check("informer", "[package]\n", &[expected]);
        check("informer", "[lints.rust]\nunsafe_code = \"deny\"\nmissing_docs = \"warn\"\n", &[expected]);
        check("informer", "[lints]\n\n[dependencies]\nworkspace = true\n", &[expected]);
    }

    #[test]
    fn crate_with_unsafe_code_has_the_other_lints() {
        let manifest = |rust: &str| format!("[lints.rust]\n{rust}\n\n[lints.clippy]\ntodo = \"deny\"\n");
        let expected =
            "crates/a/Cargo.toml: `[lints.rust]` must equal that of the workspace, except for `unsafe_code`";
        check(WITH_UNSAFE, &manifest("unsafe_code = \"deny\"\nmissing_docs = \"warn\""), &[]);
        check(WITH_UNSAFE, &manifest("unsafe_code = \"allow\"\nmissing_docs = \"warn\""), &[expected]);
        check(WITH_UNSAFE, &manifest("unsafe_code = \"deny\""), &[expected]);
    }
}
