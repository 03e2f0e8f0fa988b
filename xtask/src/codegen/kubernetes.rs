//! Where the fields and resources come from: the documents in the sources of Kubernetes itself, as Go's tools fetch them.
//!
//! The documents are read whole and in the order of their names. What they say is the business of [`super::types`],
//! [`super::resources`] and [`super::messages`].

use serde_json::Value;

use super::messages::Package;
use super::proto::Proto;
use super::structs;
use crate::failure::Failure;
use crate::repo::{Repo, TextFile};

/// The module with the documents.
const MODULE: &str = "k8s.io/kubernetes";

/// The file that says which version of Kubernetes everything here is about.
const PIN: &str = "xtask/real/go.mod";

/// The version while that file is not there.
const VERSION: &str = "v1.36.4";

/// The modules with the types. Their versions are those of Kubernetes, with another beginning.
const TYPE_MODULES: &[&str] =
    &["k8s.io/api", "k8s.io/apiextensions-apiserver", "k8s.io/apimachinery", "k8s.io/kube-aggregator"];

/// The documents of one version of Kubernetes.
pub(super) struct Documents {
    /// `1.36`.
    pub(super) version: String,
    /// One for each group and version, and a few others.
    pub(super) openapi: Vec<Value>,
    /// Likewise.
    pub(super) discovery: Vec<Value>,
    /// The packages with protobuf messages.
    pub(super) packages: Vec<Package>,
}

/// The documents; nothing where Go is not installed.
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

/// The folder of a module; nothing where Go is not installed.
fn download(repo: &Repo, module: &str, version: &str) -> Result<Option<String>, Failure> {
    let module = format!("{module}@{version}");
    let Some(output) = repo.go_output(&["mod", "download", "-json", &module])? else {
        return Ok(None);
    };
    locate(&output).map(Some).map_err(|reason| Failure::Failed(format!("{module}: {reason}")))
}

/// Every folder with a `.proto` file is a package.
fn packages_in(repo: &Repo, module: &str) -> Result<Vec<Package>, Failure> {
    let mut packages = Vec::new();
    for file in repo.files_under(module, "proto")? {
        let wrong = |reason: String| Failure::Failed(format!("{}: {reason}", file.path));
        let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let own = |go: &TextFile| {
            let name = go.path.strip_prefix(folder).unwrap_or_default().trim_start_matches('/');
            !name.contains('/') && !name.contains("generated") && !name.ends_with("_test.go")
        };
        let go: Vec<String> =
            repo.files_under(folder, "go")?.into_iter().filter(own).map(|go| go.text).collect();
        let proto = Proto::parse(&file.text).map_err(wrong)?;
        packages.push(Package { proto, structs: structs::parse(&go.concat()) });
    }
    Ok(packages)
}

/// The version that a `go.mod` requires; lines with `=>` replace something.
fn pinned(text: &str) -> Option<&str> {
    let mut lines = text.lines().filter(|line| !line.contains("=>"));
    lines.find_map(|line| {
        let line = line.trim().trim_start_matches("require ");
        line.strip_prefix(MODULE)?.strip_prefix(' ')?.split_whitespace().next()
    })
}

/// The folder of the module, from what `go mod download -json` prints.
fn locate(output: &str) -> Result<String, String> {
    let output: Value =
        serde_json::from_str(output).map_err(|error| format!("go's answer is not readable: {error}"))?;
    if let Some(error) = output["Error"].as_str() {
        return Err(error.to_owned());
    }
    output["Dir"].as_str().map(str::to_owned).ok_or_else(|| "go does not say where the module is".to_owned())
}

/// `v1.36.4` is `1.36`.
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
        return Err(Failure::Failed(format!("{folder} has no documents")));
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
    fn the_module_is_where_go_says() {
        assert_eq!(locate(r#"{"Path":"k8s.io/kubernetes","Dir":"/mod"}"#), Ok("/mod".to_owned()));
        assert_eq!(locate(r#"{"Error":"no network"}"#), Err("no network".to_owned()));
        assert!(locate("{}").is_err());
        assert!(locate("").is_err());
    }

    #[test]
    fn the_version_is_the_required_one() {
        let text = "module x\n\nreplace k8s.io/kubernetes v1 => ./here\nrequire (\n\tk8s.io/kubernetes v1.36.4 // pin\n)\n";
        assert_eq!(pinned(text), Some("v1.36.4"));
        assert_eq!(pinned("require k8s.io/kubernetes v1.36.4"), Some("v1.36.4"));
        assert_eq!(pinned("require k8s.io/kubernetes-other v1.36.4"), None);
    }

    #[test]
    fn the_patch_does_not_matter() {
        assert_eq!(minor("v1.36.4"), Ok("1.36".to_owned()));
        assert!(minor("latest").is_err());
    }
}
