//! Reads the documents in the sources of Kubernetes, which Go downloads.
//!
//! The documents are sorted by name. [`super::types`], [`super::resources`] and [`super::messages`] interpret
//! them.

use serde_json::Value;

use super::messages::Package;
use super::proto::Proto;
use super::structs;
use crate::failure::Failure;
use crate::repo::{Repo, TextFile};

/// The Go module with the documents.
const MODULE: &str = "k8s.io/kubernetes";

/// The file that determines the Kubernetes version.
const PIN: &str = "xtask/control-plane/go.mod";

/// The Kubernetes version if [`PIN`] does not exist.
const VERSION: &str = "v1.36.4";

/// The Go modules with the types. Their versions are those of Kubernetes with `v0.` instead of `v1.`.
const TYPE_MODULES: &[&str] =
    &["k8s.io/api", "k8s.io/apiextensions-apiserver", "k8s.io/apimachinery", "k8s.io/kube-aggregator"];

/// The documents of one version of Kubernetes.
pub(super) struct Documents {
    /// Minor version, such as `1.36`.
    pub(super) version: String,
    /// `OpenAPI` documents: one per group and version, and a few others.
    pub(super) openapi: Vec<Value>,
    /// Discovery documents: one per group and version, and the list of groups.
    pub(super) discovery: Vec<Value>,
    /// Go packages with protobuf messages.
    pub(super) packages: Vec<Package>,
}

/// Downloads and reads the documents; `None` if Go is not installed.
pub(super) fn read(repo: &Repo) -> Result<Option<Documents>, Failure> {
    let version = if repo.exists(PIN) {
        let pin = repo.read(PIN)?;
        pinned(&pin).ok_or_else(|| Failure::Failed(format!("{PIN} does not require {MODULE}")))?.to_owned()
    } else {
        VERSION.to_owned()
    };
    let Some(folder) = download(repo, MODULE, &version)? else {
        return Ok(None);
    };
    let mut packages = Vec::new();
    for module in TYPE_MODULES {
        let folder = download(repo, module, &version.replacen("v1.", "v0.", 1))?;
        packages.extend(packages_in(repo, &folder.unwrap_or_default())?);
    }
    let documents = Documents {
        version: minor(&version).map_err(Failure::Failed)?,
        openapi: json_files(repo, &format!("{folder}/api/openapi-spec/v3"))?,
        discovery: json_files(repo, &format!("{folder}/api/discovery"))?,
        packages,
    };
    Ok(Some(documents))
}

/// Downloads a module and returns its folder; `None` if Go is not installed.
fn download(repo: &Repo, module: &str, version: &str) -> Result<Option<String>, Failure> {
    let module = format!("{module}@{version}");
    let Some(output) = repo.go_output(&["mod", "download", "-json", &module])? else {
        return Ok(None);
    };
    locate(&output).map(Some).map_err(|reason| Failure::Failed(format!("{module}: {reason}")))
}

/// Reads the packages of a module: every folder with a `.proto` file is one.
fn packages_in(repo: &Repo, module: &str) -> Result<Vec<Package>, Failure> {
    let mut packages = Vec::new();
    for file in repo.files_under(module, "proto")? {
        let failed = |reason: String| Failure::Failed(format!("{}: {reason}", file.path));
        let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let is_own_source = |go: &TextFile| {
            let name = go.path.strip_prefix(folder).unwrap_or_default().trim_start_matches('/');
            !name.contains('/') && !name.contains("generated") && !name.ends_with("_test.go")
        };
        let go: Vec<String> =
            repo.files_under(folder, "go")?.into_iter().filter(is_own_source).map(|go| go.text).collect();
        let proto = Proto::parse(&file.text).map_err(failed)?;
        packages.push(Package { proto, structs: structs::parse(&go.concat()) });
    }
    Ok(packages)
}

/// Returns the version of Kubernetes that a `go.mod` requires. Lines with `=>` are replacements.
fn pinned(text: &str) -> Option<&str> {
    let mut lines = text.lines().filter(|line| !line.contains("=>"));
    lines.find_map(|line| {
        let line = line.trim().trim_start_matches("require ");
        line.strip_prefix(MODULE)?.strip_prefix(' ')?.split_whitespace().next()
    })
}

/// Returns the folder of the module, from the output of `go mod download -json`.
fn locate(output: &str) -> Result<String, String> {
    let output: Value =
        serde_json::from_str(output).map_err(|error| format!("cannot parse the output of go: {error}"))?;
    if let Some(error) = output["Error"].as_str() {
        return Err(error.to_owned());
    }
    output["Dir"]
        .as_str()
        .map(str::to_owned)
        .ok_or_else(|| "the output of go does not contain the folder of the module".to_owned())
}

/// Returns the minor version: `1.36` for `v1.36.4`.
fn minor(version: &str) -> Result<String, String> {
    let mut parts = version.trim_start_matches('v').split('.');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(major), Some(minor), Some(_)) => Ok(format!("{major}.{minor}")),
        _ => Err(format!("`{version}` is not a version of Kubernetes")),
    }
}

fn json_files(repo: &Repo, folder: &str) -> Result<Vec<Value>, Failure> {
    let files = repo.files_under(folder, "json")?;
    if files.is_empty() {
        return Err(Failure::Failed(format!("{folder} contains no documents")));
    }
    let parse = |text: &str| serde_json::from_str(text);
    files
        .iter()
        .map(|file| parse(&file.text).map_err(|error| Failure::Failed(format!("{}: {error}", file.path))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn module_folder_is_parsed() {
        assert_eq!(locate(r#"{"Path":"k8s.io/kubernetes","Dir":"/mod"}"#), Ok("/mod".to_owned()));
        assert_eq!(locate(r#"{"Error":"no network"}"#), Err("no network".to_owned()));
        assert!(locate("{}").is_err());
        assert!(locate("").is_err());
    }

    #[test]
    fn required_version_is_parsed() {
        let text = "module x\n\nreplace k8s.io/kubernetes v1 => ./here\nrequire (\n\tk8s.io/kubernetes v1.36.4 // pin\n)\n";
        assert_eq!(pinned(text), Some("v1.36.4"));
        assert_eq!(pinned("require k8s.io/kubernetes v1.36.4"), Some("v1.36.4"));
        assert_eq!(pinned("require k8s.io/kubernetes-other v1.36.4"), None);
    }

    #[test]
    fn minor_version_has_no_patch() {
        assert_eq!(minor("v1.36.4"), Ok("1.36".to_owned()));
        assert!(minor("latest").is_err());
    }
}
