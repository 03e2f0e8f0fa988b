//! Compatibility of the public API with that of an earlier revision.
//!
//! cargo-semver-checks compares descriptions of two APIs, which rustdoc writes. It can create them itself, but would build
//! all dependencies again for each crate and revision; here, the crates of a revision share them. Descriptions contain no
//! features, so these are compared here.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::failure::Failure;
use crate::release::{PUBLIC, TYPES, newest_types, value};
use crate::repo::{self, Repo};
use crate::tools::Tool;

const SEMVER: Tool = Tool { name: "cargo-semver-checks", version: "0.51.0", options: &[] };

/// The feature that exists for tests of this project only.
const TEST_FEATURE: &str = "shuttle";

/// The features of a crate, each with those that it enables.
type Features = BTreeMap<String, BTreeSet<String>>;

/// The crates of one revision.
struct Revision<'a> {
    repo: &'a Repo,
    sources: PathBuf,
    /// Its build folder. Cargo would not notice that another revision has replaced a description.
    target: PathBuf,
    features: BTreeMap<String, Features>,
}

/// Checks that the API is compatible with that of the revision in the manifest.
pub(crate) fn check(repo: &Repo) -> Result<(), Failure> {
    let manifest = repo.read("Cargo.toml")?;
    let baseline = value(&manifest, "semver-baseline")
        .ok_or_else(|| Failure::Failed("Cargo.toml has no line `semver-baseline = …`".to_owned()))?;
    let before = Revision::new(repo, check_out(repo, baseline)?, "baseline")?;
    let now = Revision::new(repo, repo.path(""), "current")?;
    let mut problems: Vec<String> = PUBLIC
        .iter()
        .flat_map(|package| {
            let lost = lost_features(before.features_of(package), now.features_of(package));
            lost.into_iter().map(move |lost| format!("{package}: {lost}"))
        })
        .collect();
    let program = SEMVER.install(repo)?;
    for package in PUBLIC {
        let (old, new) = (before.describe(package)?, now.describe(package)?);
        let mut command = repo.program(&program);
        command.arg("semver-checks").arg("--baseline-rustdoc").arg(old).arg("--current-rustdoc").arg(new);
        let name = format!("cargo semver-checks of {package} since {baseline}");
        problems.extend(repo::run(&mut command, &name).err().map(Failure::message));
    }
    if problems.is_empty() { Ok(()) } else { Err(Failure::Failed(problems.join("\n"))) }
}

/// Writes the files of a revision to a folder, without a trace in the repository of git, and returns the folder.
fn check_out(repo: &Repo, revision: &str) -> Result<PathBuf, Failure> {
    let index = repo.path("target/semver/index");
    let git = |args: &[&str]| {
        let mut command = repo.program("git");
        repo::run(command.args(args).env("GIT_INDEX_FILE", &index), &format!("git {}", args.join(" ")))
    };
    git(&["cat-file", "-e", &format!("{revision}^{{commit}}")]).map_err(|error| {
        let hint = "is the revision missing? In a shallow clone, run `git fetch --unshallow --tags`";
        Failure::Failed(format!("{} ({hint})", error.message()))
    })?;
    let folder = "target/semver/sources/";
    let path = repo.path(folder);
    // A file that the revision does not have would be built, too.
    if path.exists() {
        fs::remove_dir_all(&path)
            .map_err(|error| Failure::Failed(format!("cannot remove {}: {error}", path.display())))?;
    }
    fs::create_dir_all(&path)
        .map_err(|error| Failure::Failed(format!("cannot create {}: {error}", path.display())))?;
    git(&["read-tree", revision])?;
    git(&["checkout-index", "--all", "--force", &format!("--prefix={folder}")])?;
    Ok(path)
}

impl<'a> Revision<'a> {
    fn new(repo: &'a Repo, sources: PathBuf, name: &str) -> Result<Self, Failure> {
        let manifest = sources.join("Cargo.toml");
        let mut command = repo.cargo(&["metadata", "--no-deps", "--format-version", "1", "--manifest-path"]);
        let metadata = repo::output(command.arg(&manifest), "cargo metadata")?;
        let metadata: Value = serde_json::from_str(&metadata)
            .map_err(|error| Failure::Failed(format!("cannot read the output of cargo metadata: {error}")))?;
        let packages = metadata["packages"].as_array().into_iter().flatten();
        let features = packages
            .filter_map(|package| {
                Some((package["name"].as_str()?.to_owned(), features(&package["features"])))
            })
            .collect();
        Ok(Self { repo, sources, target: repo.path("target/semver").join(name), features })
    }

    fn features_of(&self, package: &str) -> &Features {
        const NONE: &Features = &Features::new();
        self.features.get(package).unwrap_or(NONE)
    }

    /// Describes the API of a package, with all features but that for tests; returns the path of the description.
    fn describe(&self, package: &str) -> Result<PathBuf, Failure> {
        let manifest = self.sources.join("crates").join(package).join("Cargo.toml");
        let features: Vec<&str> = self.features_of(package).keys().map(String::as_str).collect();
        let mut command = self.repo.cargo(&["rustdoc", "--lib", "--locked", "--quiet", "--features"]);
        command.arg(features.join(",")).arg("--manifest-path").arg(manifest);
        command.arg("--target-dir").arg(&self.target).env_remove("CARGO_BUILD_TARGET");
        // Private fields and hidden items are needed to recognise some changes: a struct without private fields can be
        // created with a literal.
        command.args(["--", "-Z", "unstable-options", "--output-format", "json"]);
        command.args(["--document-private-items", "--document-hidden-items", "--cap-lints", "allow"]);
        // The stable rustdoc writes descriptions only with this variable.
        command.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "--cap-lints=allow");
        command.env(TYPES, newest_types());
        let name = format!("cargo rustdoc of {package} in {}", self.sources.display());
        repo::run(&mut command, &name)?;
        Ok(self.target.join("doc").join(format!("{}.json", package.replace('-', "_"))))
    }
}

/// Returns the features of a package in the output of cargo metadata, without that for tests. Dependencies that a feature
/// enables are not part of the API.
fn features(value: &Value) -> Features {
    let names = |enabled: &Value| -> BTreeSet<String> {
        let enabled = enabled.as_array().into_iter().flatten().filter_map(Value::as_str);
        enabled.filter(|name| !name.contains([':', '/'])).map(str::to_owned).collect()
    };
    let features = value.as_object().into_iter().flatten().filter(|(name, _)| *name != TEST_FEATURE);
    features.map(|(name, enabled)| (name.clone(), names(enabled))).collect()
}

/// Returns what users of the features lose.
fn lost_features(before: &Features, now: &Features) -> Vec<String> {
    let mut lost = Vec::new();
    for (name, enabled) in before {
        match now.get(name) {
            None => lost.push(format!("the feature `{name}` is missing")),
            Some(now) => {
                let missing = enabled.difference(now);
                lost.extend(
                    missing.map(|missing| format!("the feature `{name}` does not enable `{missing}`")),
                );
            }
        }
    }
    lost
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_features_are_found() {
        let before = serde_json::json!({
            "default": ["cel", "dep:zstd"], "cel": ["other/cel"], "tls": [], "shuttle": ["dep:shuttle"],
        });
        let before = features(&before);
        assert_eq!(before.keys().collect::<Vec<_>>(), ["cel", "default", "tls"]);
        assert_eq!(lost_features(&before, &before), [""; 0]);
        let now = features(&serde_json::json!({"default": ["new"], "cel": [], "new": []}));
        assert_eq!(
            lost_features(&before, &now),
            ["the feature `default` does not enable `cel`", "the feature `tls` is missing"]
        );
    }

    #[test]
    fn manifest_names_a_baseline() {
        let manifest = Repo::locate().read("Cargo.toml").unwrap_or_default();
        assert!(value(&manifest, "semver-baseline").is_some_and(|revision| !revision.is_empty()));
    }
}
