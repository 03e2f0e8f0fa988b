//! The suites of controller-runtime: downloaded as a Go module, compiled once, run in its folders.
//!
//! `go mod download` verifies the checksum of the module. The sources are copied, because tests run in the
//! folders of their packages and must not write to Go's module cache.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::report::{Report, Server};
use super::{Folder, cannot};
use crate::control_plane::Interrupt;
use crate::failure::Failure;
use crate::repo::Repo;

const MODULE: &str = "sigs.k8s.io/controller-runtime";
const VERSION: &str = "v0.25.2";

/// A Ginkgo suite in the package `pkg/NAME`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Suite {
    pub(super) name: &'static str,
    /// The Go test that runs the specs. Other tests of the packages need no server and are left out.
    pub(super) function: &'static str,
}

/// Downloads the module and returns the folder of a copy.
pub(super) fn fetch(repo: &Repo, folder: &Folder) -> Result<PathBuf, Failure> {
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

fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Copies a folder, without its permissions: Go's module cache is read-only.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?;
        } else {
            fs::write(&to, fs::read(entry.path())?)?;
        }
    }
    Ok(())
}

/// Compiles the test programs of the suites.
pub(super) fn compile(
    sources: &Path,
    folder: &Folder,
    suites: &[&Suite],
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    println!("compiling the suites of controller-runtime {VERSION} (the first time takes minutes)");
    let log = folder.path("compile.log");
    let output = fs::File::create(&log).map_err(|error| cannot("write", &log, &error))?;
    let mut command = Command::new("go");
    // The module is independent of any Go workspace around it and needs no C compiler.
    command.current_dir(sources).env("GOWORK", "off").env("CGO_ENABLED", "0");
    // The slash marks a folder that may not exist yet.
    command.args(["test", "-c", "-o", &format!("{}/", folder.path("programs").display())]);
    command.args(suites.iter().map(|suite| format!("./pkg/{}", suite.name)));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output);
    let status = interrupt.run("go test", command, || {})?;
    if status.success() {
        return Ok(());
    }
    let errors = fs::read_to_string(&log).unwrap_or_default();
    Err(Failure::Failed(format!("`go test -c` failed: {status}:\n{}", errors.trim())))
}

impl Suite {
    /// Runs the suite against a server.
    pub(super) fn run(
        &self,
        sources: &Path,
        folder: &Folder,
        server: Server,
        kubeconfig: &Path,
        interrupt: &Interrupt,
    ) -> Result<Report, Failure> {
        let file = |extension| folder.path(&format!("{}-{}.{extension}", self.name, server.id()));
        let (json, log) = (file("json"), file("log"));
        match fs::remove_file(&json) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(cannot("remove", &json, &error));
            }
            _ => {}
        }
        let output = fs::File::create(&log).map_err(|error| cannot("write", &log, &error))?;
        let errors = output.try_clone().map_err(|error| cannot("write", &log, &error))?;
        let mut command = Command::new(folder.path("programs").join(format!("{}.test", self.name)));
        command.current_dir(sources.join("pkg").join(self.name));
        command.env("USE_EXISTING_CLUSTER", "true").env("KUBECONFIG", kubeconfig);
        command.arg(format!("-test.run=^{}$", self.function)).arg("-ginkgo.no-color");
        command.arg(format!("-ginkgo.json-report={}", json.display()));
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        let status = interrupt.run(self.name, command, || {})?;
        let text = fs::read_to_string(&json).map_err(|error| {
            let reason = format!("{error} (the suite ended with {status}, see {})", log.display());
            cannot("read", &json, &reason)
        })?;
        let report = Report::from_ginkgo(&text).map_err(|reason| cannot("use", &json, &reason))?;
        if !status.success() && report.failed.is_empty() {
            let log = log.display();
            return Err(Failure::Failed(format!("{} passed, but ended with {status}, see {log}", self.name)));
        }
        Ok(report)
    }
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

    #[test]
    fn copy_of_a_read_only_folder_is_writable() {
        let root = std::env::temp_dir().join(format!("informer-suites-test-{}", std::process::id()));
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/b/file"), "text").unwrap();
        let mut permissions = fs::metadata(root.join("a/b/file")).unwrap().permissions();
        permissions.set_readonly(true);
        fs::set_permissions(root.join("a/b/file"), permissions).unwrap();
        copy(&root.join("a"), &root.join("c")).unwrap();
        assert_eq!(fs::read_to_string(root.join("c/b/file")).unwrap(), "text");
        assert!(!fs::metadata(root.join("c/b/file")).unwrap().permissions().readonly());
        remove(&root).unwrap();
    }
}
