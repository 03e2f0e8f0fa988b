//! Checks of what is published: packages, dependencies, features, minimum Rust version.

use std::fs;
use std::process::Command;

use crate::codegen;
use crate::failure::Failure;
use crate::repo::{self, Repo};
use crate::tools::Tool;

const HACK: Tool = Tool { name: "cargo-hack", version: "0.6.46", options: &[] };
const DENY: Tool = Tool { name: "cargo-deny", version: "0.20.2", options: &[] };

/// Crates whose API users see. The others are implementation details, with an exact version.
pub(crate) const PUBLIC: [&str; 3] = ["informer", "informer-core", "informer-apiserver"];

/// The variable that selects the types of Kubernetes, which the library leaves to applications.
pub(crate) const TYPES: &str = "K8S_OPENAPI_ENABLED_VERSION";

/// Packages every published crate, and builds it from its package.
pub(crate) fn check_packages(repo: &Repo) -> Result<(), Failure> {
    remove_unpacked(repo)?;
    // A package does not have the profiles of the workspace. These settings need less time.
    let settings = [
        ("CARGO_PROFILE_DEV_DEBUG", "false"),
        ("CARGO_PROFILE_DEV_CODEGEN_UNITS", "8"),
        (TYPES, &newest_types()),
    ];
    repo.run_cargo("publish --workspace --dry-run --allow-dirty --locked", &settings)
}

/// Removes the packages of this project that an earlier check has unpacked. Cargo verifies packages from a registry in
/// `target/package`, and unpacks one only if its folder does not exist: a package would be built with the sources that
/// another one had in the earlier check.
fn remove_unpacked(repo: &Repo) -> Result<(), Failure> {
    let sources = repo::cargo_home().join("registry/src");
    if !sources.exists() {
        return Ok(());
    }
    // The name of a registry begins with its host, which a registry of files does not have.
    for registry in repo.folders(&sources)?.iter().filter(|name| name.starts_with('-')) {
        let registry = sources.join(registry);
        for package in repo.folders(&registry)?.iter().filter(|name| name.starts_with("informer")) {
            let package = registry.join(package);
            fs::remove_dir_all(&package)
                .map_err(|error| Failure::Failed(format!("cannot remove {}: {error}", package.display())))?;
        }
    }
    Ok(())
}

/// Returns the newest types of Kubernetes, which the feature `latest` selects too.
pub(crate) fn newest_types() -> String {
    let [_, newest] = codegen::VERSIONS;
    format!("1.{newest}")
}

/// Checks licenses, sources and banned crates of all dependencies, as `deny.toml` defines. Advisories are not checked,
/// because their database is not in the registry.
pub(crate) fn check_dependencies(repo: &Repo) -> Result<(), Failure> {
    let mut command = repo.program(DENY.install(repo)?);
    command.args(["deny", "--locked", "check", "bans", "licenses", "sources"]);
    repo::run(&mut command, "cargo deny")
}

/// Checks every combination of the features that users can select.
pub(crate) fn check_features(repo: &Repo) -> Result<(), Failure> {
    let mut command = repo.program(HACK.install(repo)?);
    command.args(["hack", "check", "--locked", "--feature-powerset"]);
    // For tests of this project only.
    command.args(["--exclude-features", "shuttle"]);
    for package in PUBLIC {
        command.args(["--package", package]);
    }
    command.env(TYPES, newest_types());
    repo::run(&mut command, "cargo hack")
}

/// Checks the published crates with the minimum Rust version of the manifest. Their tests need the version of
/// `rust-toolchain.toml`.
pub(crate) fn check_minimum_rust(repo: &Repo) -> Result<(), Failure> {
    if !repo::is_on_path("rustup") {
        println!("`rustup` is not on the PATH: the minimum Rust version is not checked");
        return Ok(());
    }
    let manifest = repo.read("Cargo.toml")?;
    let version = minimum_rust(&manifest)
        .ok_or_else(|| Failure::Failed("Cargo.toml has no line `rust-version = …`".to_owned()))?;
    let rustup = |args: &str| {
        let mut command = Command::new("rustup");
        command.current_dir(repo.path("")).args(args.split_whitespace());
        repo::run(&mut command, &format!("rustup {args}"))
    };
    rustup(&format!("toolchain install {version} --profile minimal --no-self-update"))?;
    let features = "informer/accessors,informer/compression";
    rustup(&format!("run {version} cargo check -p informer-cli --features {features} --locked"))
}

/// Returns the minimum Rust version of a manifest as the name of a toolchain.
fn minimum_rust(manifest: &str) -> Option<String> {
    let version = value(manifest, "rust-version")?;
    Some(if version.split('.').count() < 3 { format!("{version}.0") } else { version.to_owned() })
}

/// Returns the value of a line `key = "value"`.
pub(crate) fn value<'a>(manifest: &'a str, key: &str) -> Option<&'a str> {
    let value = |line: &'a str| line.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"');
    manifest.lines().find_map(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minimum_rust_is_read_from_the_manifest() {
        let version = |line: &str| minimum_rust(&format!("[workspace.package]\n{line}\n"));
        assert_eq!(version("rust-version = \"1.89\"").as_deref(), Some("1.89.0"));
        assert_eq!(version("rust-version = \"1.89.1\"").as_deref(), Some("1.89.1"));
        assert_eq!(version("edition = \"2024\""), None);
    }
}
