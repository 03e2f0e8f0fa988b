//! Reads the resources from the sources of the `k8s-openapi` in `Cargo.lock`.
//!
//! Reads all Kubernetes versions of that crate, which must be exactly those of [`ALL`]. [`parse`] interprets
//! each file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use super::parse::{self, Resource};
use super::range::ALL;
use crate::failure::Failure;
use crate::repo::Repo;

/// Returns the resources of each minor version of Kubernetes.
pub(super) fn read(repo: &Repo) -> Result<BTreeMap<u8, Vec<Resource>>, Failure> {
    // Without the filter, cargo would download the crates of all platforms.
    let metadata = repo.cargo_output(&[
        "metadata",
        "--format-version",
        "1",
        "--locked",
        "--filter-platform",
        "host-tuple",
    ])?;
    let sources = locate(&metadata).map_err(Failure::Failed)?;
    check_versions(&repo.folders(&sources)?)
        .map_err(|reason| Failure::Failed(format!("{sources}: {reason}")))?;
    ALL.versions().map(|minor| Ok((minor, read_version(repo, &format!("{sources}/v1_{minor}"))?))).collect()
}

/// Returns the folder with the sources, from the output of `cargo metadata`.
fn locate(metadata: &str) -> Result<String, String> {
    let metadata: Value = serde_json::from_str(metadata)
        .map_err(|error| format!("cannot parse the output of cargo metadata: {error}"))?;
    let packages = metadata["packages"].as_array().map_or(&[][..], Vec::as_slice);
    let mut found = packages.iter().filter(|package| package["name"] == "k8s-openapi");
    let (Some(package), None) = (found.next(), found.next()) else {
        return Err("cargo metadata does not contain exactly one package `k8s-openapi`".to_owned());
    };
    let manifest = package["manifest_path"].as_str().and_then(|path| Path::new(path).parent());
    let root = manifest.ok_or("the package `k8s-openapi` has no manifest path")?;
    Ok(format!("{}/src", root.display()))
}

/// Checks that the crate has exactly the expected versions. Supporting another version is a decision: kinds
/// are added, and kinds that do not exist in all versions get guards.
fn check_versions(folders: &BTreeSet<String>) -> Result<(), String> {
    let expected: BTreeSet<String> = ALL.versions().map(|minor| format!("v1_{minor}")).collect();
    if *folders == expected {
        return Ok(());
    }
    Err(format!(
        "contains the folders {folders:?} instead of Kubernetes {ALL} (adjust `ALL` in xtask/src/codegen/range.rs)"
    ))
}

fn read_version(repo: &Repo, folder: &str) -> Result<Vec<Resource>, Failure> {
    let mut resources = Vec::new();
    for file in repo.rust_files_under(folder)? {
        let failed = |reason: String| Failure::Failed(format!("{}: {reason}", file.path));
        let module = module(folder, &file.path).map_err(failed)?;
        resources.extend(parse::parse(&module, &file.text).map_err(failed)?);
    }
    Ok(resources)
}

/// Returns the module of the folder that contains a file. Each type has its own file, and the module of the
/// folder re-exports it.
fn module(root: &str, path: &str) -> Result<String, String> {
    let inside = path.strip_prefix(root).ok_or_else(|| format!("is not in {root}"))?;
    let (folder, _) = inside.rsplit_once('/').ok_or("has no folder")?;
    Ok(folder.trim_start_matches('/').replace('/', "::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crate_is_located_by_its_manifest() {
        let package =
            |name: &str| format!(r#"{{"name":"{name}","manifest_path":"/registry/{name}/Cargo.toml"}}"#);
        let metadata = |names: &[&str]| {
            let packages: Vec<String> = names.iter().map(|name| package(name)).collect();
            format!(r#"{{"packages":[{}]}}"#, packages.join(","))
        };
        assert_eq!(locate(&metadata(&["kube", "k8s-openapi"])), Ok("/registry/k8s-openapi/src".to_owned()));
        assert!(locate(&metadata(&["kube"])).is_err());
        assert!(locate(&metadata(&["k8s-openapi", "k8s-openapi"])).is_err());
        assert!(locate("{").is_err());
    }

    #[test]
    fn unexpected_versions_are_an_error() {
        let folders =
            |minors: std::ops::RangeInclusive<u8>| minors.map(|minor| format!("v1_{minor}")).collect();
        assert_eq!(check_versions(&folders(ALL.first..=ALL.last)), Ok(()));
        assert!(check_versions(&folders(ALL.first..=ALL.last + 1)).unwrap_err().contains("adjust `ALL`"));
        assert!(check_versions(&folders(ALL.first + 1..=ALL.last)).is_err());
    }

    #[test]
    fn module_is_that_of_the_folder() {
        assert_eq!(module("/src/v1_33", "/src/v1_33/api/apps/v1/a.rs"), Ok("api::apps::v1".to_owned()));
        assert_eq!(module("/src/v1_33", "/src/v1_33/list.rs"), Ok(String::new()));
        assert!(module("/src/v1_33", "/elsewhere/a.rs").is_err());
    }
}
