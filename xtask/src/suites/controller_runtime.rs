//! The suites of controller-runtime: downloaded as a Go module, compiled once, run in its folders.
//!
//! `go mod download` verifies the checksum of the module. The sources are copied, because tests run in the
//! folders of their packages and must not write to Go's module cache.

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

const MODULE: &str = "sigs.k8s.io/controller-runtime";
const VERSION: &str = "v0.25.2";

/// Downloads the module, compiles the test programs of suites and returns the folder of the sources.
pub(super) fn prepare(
    repo: &Repo,
    folder: &Folder,
    suites: &[&str],
    interrupt: &Interrupt,
) -> Result<PathBuf, Failure> {
    let sources = fetch(repo, folder)?;
    compile(&sources, folder, suites, interrupt)?;
    Ok(sources)
}

/// Downloads the module and returns the folder of a copy.
fn fetch(repo: &Repo, folder: &Folder) -> Result<PathBuf, Failure> {
    let sources = folder.path(&format!("controller-runtime-{VERSION}"));
    if sources.exists() {
        return Ok(sources);
    }
    let module = format!("{MODULE}@{VERSION}");
    let Some(output) = repo.go_output(&["mod", "download", "-json", &module])? else {
        return Err(Failure::Failed(format!("{module} needs Go: `go` is not on the PATH")));
    };
    let cached = downloaded(&output).map_err(|reason| Failure::Failed(format!("{module}: {reason}")))?;
    // Renamed when complete: a folder that exists needs no check.
    let partial = folder.path("partial");
    remove(&partial)
        .and_then(|()| copy(&cached, &partial))
        .and_then(|()| fs::rename(&partial, &sources))
        .map_err(|error| cannot("copy", &cached, &error))?;
    Ok(sources)
}

/// Returns the folder of the module, from the output of `go mod download -json`.
fn downloaded(output: &str) -> Result<PathBuf, String> {
    let output: Value = serde_json::from_str(output)
        .map_err(|error| format!("cannot parse the output of go mod download: {error}"))?;
    match (output["Dir"].as_str(), output["Error"].as_str()) {
        (Some(folder), None) => Ok(PathBuf::from(folder)),
        (_, error) => Err(error.unwrap_or("go mod download printed no folder").to_owned()),
    }
}

fn compile(sources: &Path, folder: &Folder, suites: &[&str], interrupt: &Interrupt) -> Result<(), Failure> {
    println!("compiling the suites of controller-runtime {VERSION} (the first time takes minutes)");
    let log = folder.path("compile.log");
    let mut command = Command::new("go");
    // The module is independent of any Go workspace around it and needs no C compiler.
    command.current_dir(sources).env("GOWORK", "off").env("CGO_ENABLED", "0");
    // The slash marks a folder that may not exist yet.
    command.args(["test", "-c", "-o", &format!("{}/", folder.path("programs").display())]);
    command.args(suites.iter().map(|suite| format!("./pkg/{suite}")));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(open(&log)?);
    let status = interrupt.run("go test", command, || {})?;
    if status.success() {
        return Ok(());
    }
    let errors = fs::read_to_string(&log).unwrap_or_default();
    Err(Failure::Failed(format!("`go test -c` failed: {status}:\n{}", errors.trim())))
}

/// Runs the specs of the package `pkg/SUITE`, which the Go test `function` contains. Other tests of the
/// packages need no server and are left out.
pub(super) fn run(sources: &Path, function: &str, run: &Run<'_>) -> Result<Report, Failure> {
    let (json, log) = (run.file("json"), run.file("log"));
    // The report of an earlier run must not be taken for that of this one.
    drop(open(&json)?);
    let output = open(&log)?;
    let errors = output.try_clone().map_err(|error| cannot("write", &log, &error))?;
    let mut command = Command::new(run.folder.path("programs").join(format!("{}.test", run.suite)));
    command.current_dir(sources.join("pkg").join(run.suite));
    command.env("USE_EXISTING_CLUSTER", "true").env("KUBECONFIG", run.kubeconfig);
    command.arg(format!("-test.run=^{function}$")).arg("-ginkgo.no-color");
    command.arg(format!("-ginkgo.json-report={}", json.display()));
    command.stdin(Stdio::null()).stdout(output).stderr(errors);
    let status = run.interrupt.run(run.suite, command, || {})?;
    let text = fs::read_to_string(&json).map_err(|error| cannot("read", &json, &error))?;
    let report = Report::from_ginkgo(&text).map_err(|reason| {
        let reason = format!("{reason} (the suite ended with {status}, see {})", log.display());
        cannot("use", &json, &reason)
    })?;
    run.check(status, report, &log)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn download_returns_a_folder_or_an_error() {
        assert_eq!(downloaded(r#"{"Dir": "/m"}"#), Ok(PathBuf::from("/m")));
        let failed = r#"{"Error": "a@v1: Get \"https://proxy\": no such host"}"#;
        let error = downloaded(failed).unwrap_err();
        assert_eq!(error, "a@v1: Get \"https://proxy\": no such host");
        assert!(crate::control_plane::is_network_error(&error));
        assert!(downloaded("{}").is_err() && downloaded("").is_err());
    }
}
