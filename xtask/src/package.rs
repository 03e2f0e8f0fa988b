//! `cargo xtask package`: unpacks the packages of the crates, as they would be published, and prints the section of
//! `Cargo.toml` by which another project uses them instead of published ones.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;

use crate::failure::Failure;
use crate::repo::{self, Repo};

pub(crate) fn run(repo: &Repo, args: &[String]) -> Result<(), Failure> {
    if let [first, ..] = args {
        return Err(Failure::Usage(format!("`package` does not accept `{first}`")));
    }
    let target = repo.path("target/packages");
    let folder = target.display().to_string();
    let failed =
        |error: &io::Error| Failure::Failed(format!("cannot unpack the packages in {folder}: {error}"));
    if target.exists() {
        // Packages of another version.
        fs::remove_dir_all(&target).map_err(|error| failed(&error))?;
    }
    let mut command = repo.cargo(&["package", "--no-verify", "--allow-dirty", "--locked", "--quiet"]);
    command.arg("--target-dir").arg(&target);
    for name in repo.folders("crates")? {
        command.args(["--package", &name]);
    }
    repo::run(&mut command, "cargo package")?;
    let packages = unpack(&target.join("package"), &target).map_err(|error| failed(&error))?;
    print!("{}", section(&packages));
    Ok(())
}

/// Unpacks all packages of a folder, and returns the names and folders of their crates.
fn unpack(packages: &Path, target: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let mut crates = Vec::new();
    for entry in fs::read_dir(packages)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "crate") {
            continue;
        }
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        // `informer-core-0.1.0`: the version begins after the last hyphen before a digit.
        let mut hyphens = stem.rmatch_indices('-').map(|(at, _)| at);
        let is_version = |at: &usize| stem[at + 1..].starts_with(|letter: char| letter.is_ascii_digit());
        let name = hyphens.find(is_version).map_or(stem.as_str(), |at| &stem[..at]).to_owned();
        tar::Archive::new(GzDecoder::new(fs::File::open(&path)?)).unpack(target)?;
        crates.push((name, target.join(stem)));
    }
    crates.sort();
    Ok(crates)
}

/// Returns the section that replaces published crates.
fn section(crates: &[(String, PathBuf)]) -> String {
    let mut section = "[patch.crates-io]\n".to_owned();
    for (name, folder) in crates {
        // Writing to a String cannot fail.
        let _ = writeln!(section, "{name} = {{ path = {:?} }}", folder.display().to_string());
    }
    section
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_names_every_crate_and_its_folder() {
        let crates = [("informer".to_owned(), PathBuf::from("/x/informer-0.1.0"))];
        assert_eq!(section(&crates), "[patch.crates-io]\ninformer = { path = \"/x/informer-0.1.0\" }\n");
    }

    #[test]
    fn packages_are_unpacked_into_folders_of_their_own() {
        let folder = std::env::temp_dir().join(format!("informer-xtask-package-{}", std::process::id()));
        let unpacked = || -> io::Result<(Vec<(String, PathBuf)>, String)> {
            fs::create_dir_all(folder.join("package"))?;
            let file = fs::File::create(folder.join("package/informer-core-0.1.0.crate"))?;
            let mut archive =
                tar::Builder::new(flate2::write::GzEncoder::new(file, flate2::Compression::fast()));
            let mut header = tar::Header::new_gnu();
            header.set_size(1);
            header.set_mode(0o644);
            archive.append_data(&mut header, "informer-core-0.1.0/Cargo.toml", &b"#"[..])?;
            archive.into_inner()?.finish()?;
            let found = unpack(&folder.join("package"), &folder)?;
            let text = fs::read_to_string(folder.join("informer-core-0.1.0/Cargo.toml"))?;
            Ok((found, text))
        }();
        drop(fs::remove_dir_all(&folder));
        let (found, text) = unpacked.unwrap_or_default();
        assert_eq!(found, [("informer-core".to_owned(), folder.join("informer-core-0.1.0"))]);
        assert_eq!(text, "#");
    }
}
