//! The integration tests of kube-rs: the tests of its published packages that are ignored without a cluster.
//!
//! The packages are those of `Cargo.lock`, from cargo's registry. They do not build as they are: in kube-rs's
//! repository, `kube-client` and `kube-runtime` have a dev-dependency on `kube` by path, which cargo removes
//! on publishing. So the packages are copied into a workspace in which they depend on each other again.
//!
//! The first run needs the network, because the tests have dev-dependencies that our workspace has not (such
//! as `rstest`). A copy of our `Cargo.lock` selects the versions of all other crates; the lock files in the
//! packages are not used.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::Run;
use super::files::{Folder, cannot, copy, open, remove};
use super::report::Report;
use crate::control_plane::Interrupt;
use crate::failure::Failure;
use crate::repo::Repo;

/// The packages, and the features of `kube` in their removed dev-dependency on it.
const PACKAGES: &[(&str, &str)] = &[("kube", ""), ("kube-client", "ws"), ("kube-runtime", "runtime")];

/// Features that the tests need. kube-rs's repository enables them for all packages at once.
const FEATURES: &str = "kube/derive,kube/runtime,kube-client/ws,kube-client/jsonpatch,\
                        kube-client/unstable-client,kube-client/rustls-tls,kube-client/ring";

/// Compiles the tests and returns the test programs by crate.
pub(super) fn prepare(
    repo: &Repo,
    folder: &Folder,
    interrupt: &Interrupt,
) -> Result<BTreeMap<String, PathBuf>, Failure> {
    println!("compiling the tests of kube-rs (the first time takes minutes)");
    let workspace = folder.path("kube-rs");
    // Without the filter, cargo would download the crates of all platforms.
    let filter = ["--filter-platform", "host-tuple"];
    let metadata =
        repo.cargo_output(&[&["metadata", "--format-version", "1", "--locked"], &filter[..]].concat())?;
    let metadata: Value = serde_json::from_str(&metadata)
        .map_err(|error| Failure::Failed(format!("cannot parse the output of cargo metadata: {error}")))?;
    // Copied every time, because the versions follow `Cargo.lock`.
    remove(&workspace)
        .and_then(|()| fs::create_dir(&workspace))
        .and_then(|()| fs::write(workspace.join("Cargo.toml"), workspace_manifest()))
        .and_then(|()| fs::copy(repo.path("Cargo.lock"), workspace.join("Cargo.lock")))
        .map_err(|error| cannot("create", &workspace, &error))?;
    for (package, features) in PACKAGES {
        let Some((version, sources)) = locate(&metadata, package) else {
            return Err(Failure::Failed(format!("cargo metadata does not contain {package}")));
        };
        let manifest = workspace.join(package).join("Cargo.toml");
        copy(&sources, &workspace.join(package))
            .and_then(|()| fs::read_to_string(&manifest))
            .and_then(|text| fs::write(&manifest, text + &dev_dependency(&version, features)))
            .map_err(|error| cannot("copy", &sources, &error))?;
    }
    let (log, messages) = (folder.path("compile.log"), folder.path("compile.json"));
    let mut command = repo.cargo(&["test", "--workspace", "--lib", "--no-run", "--message-format=json"]);
    command.args(["--features", FEATURES]).current_dir(&workspace);
    command.env("CARGO_TARGET_DIR", folder.path("kube-rs-target")).env("CARGO_PROFILE_DEV_DEBUG", "0");
    command.stdin(Stdio::null()).stdout(open(&messages)?).stderr(open(&log)?);
    let status = interrupt.run("cargo test", command, || {})?;
    if !status.success() {
        let errors = fs::read_to_string(&log).unwrap_or_default();
        return Err(Failure::Failed(format!("`cargo test` of kube-rs failed: {status}:\n{}", errors.trim())));
    }
    let text = fs::read_to_string(&messages).map_err(|error| cannot("read", &messages, &error))?;
    Ok(programs(&text))
}

/// Returns the manifest of the workspace. It replaces the published packages by their copies.
fn workspace_manifest() -> String {
    let (mut members, mut patches) = (String::new(), String::new());
    for (package, _) in PACKAGES {
        // Writing to a String cannot fail.
        let _ = write!(members, "\"{package}\", ");
        let _ = writeln!(patches, "{package} = {{ path = \"{package}\" }}");
    }
    format!("[workspace]\nresolver = \"3\"\nmembers = [{members}]\n\n[patch.crates-io]\n{patches}")
}

/// Returns the dev-dependency on `kube`, for the end of a manifest; nothing for `kube` itself.
fn dev_dependency(version: &str, features: &str) -> String {
    if features.is_empty() {
        return String::new();
    }
    format!("\n[dev-dependencies.kube]\nversion = \"={version}\"\nfeatures = [\"derive\", \"{features}\"]\n")
}

/// Returns the version and the folder of a package, from the output of `cargo metadata`.
fn locate(metadata: &Value, package: &str) -> Option<(String, PathBuf)> {
    let packages = metadata["packages"].as_array().map_or(&[][..], Vec::as_slice);
    let found = packages.iter().find(|found| found["name"] == package)?;
    let folder = Path::new(found["manifest_path"].as_str()?).parent()?;
    Some((found["version"].as_str()?.to_owned(), folder.to_owned()))
}

/// Returns the test programs by crate, from the messages of cargo.
fn programs(messages: &str) -> BTreeMap<String, PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let program = |message: Value| {
        let path = PathBuf::from(message["executable"].as_str()?);
        Some((message["target"]["name"].as_str()?.to_owned(), path))
    };
    messages.filter_map(program).collect()
}

/// Runs the ignored tests one after the other, because they use the same namespace.
pub(super) fn run(programs: &BTreeMap<String, PathBuf>, run: &Run<'_>) -> Result<Report, Failure> {
    let mut all = Report::default();
    for (name, program) in programs {
        let log = run.file(&format!("{name}.log"));
        let output = open(&log)?;
        let errors = output.try_clone().map_err(|error| cannot("write", &log, &error))?;
        let mut command = Command::new(program);
        command.env("KUBECONFIG", run.kubeconfig).args(["--ignored", "--test-threads=1"]);
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        let status = run.interrupt.run(run.suite, command, || {})?;
        let text = fs::read_to_string(&log).map_err(|error| cannot("read", &log, &error))?;
        let report = Report::from_libtest(&text).map_err(|reason| cannot("use", &log, &reason))?;
        let report = run.check(status, report, &log)?;
        all.passed += report.passed;
        all.skipped += report.skipped;
        all.failed.extend(report.failed.iter().map(|test| format!("{name}::{test}")));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn package_is_located_by_its_manifest() {
        let package =
            json!({"name": "kube", "version": "5.0.0", "manifest_path": "/r/kube-5.0.0/Cargo.toml"});
        let metadata = json!({"packages": [package]});
        let expected = ("5.0.0".to_owned(), PathBuf::from("/r/kube-5.0.0"));
        assert_eq!(locate(&metadata, "kube"), Some(expected));
        assert_eq!(locate(&metadata, "kube-client"), None);
    }

    #[test]
    fn packages_depend_on_each_other() {
        let manifest = workspace_manifest();
        assert!(
            manifest.contains("members = [\"kube\", \"kube-client\", \"kube-runtime\", ]\n"),
            "{manifest}"
        );
        assert!(manifest.ends_with("kube-runtime = { path = \"kube-runtime\" }\n"), "{manifest}");
        assert_eq!(dev_dependency("5.0.0", ""), "");
        assert!(
            dev_dependency("5.0.0", "ws").contains("version = \"=5.0.0\"\nfeatures = [\"derive\", \"ws\"]")
        );
    }

    #[test]
    fn test_programs_are_read_from_messages_of_cargo() {
        let messages = "{\"executable\":null,\"target\":{\"name\":\"libc\"}}\nno JSON\n\
                        {\"executable\":\"/t/kube-1\",\"target\":{\"name\":\"kube\"}}\n";
        let expected = BTreeMap::from([("kube".to_owned(), PathBuf::from("/t/kube-1"))]);
        assert_eq!(programs(messages), expected);
    }
}
