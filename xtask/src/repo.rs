//! The repository as the chores see it: its root, its Rust sources, and how cargo is called in it.
//!
//! Everything that touches the disk or starts a process for a rule goes through here, so that the rules themselves
//! take text and return problems.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::failure::Failure;

/// Folders that hold Rust sources of ours; those that do not exist (yet) are passed over.
const SOURCE_ROOTS: &[&str] = &["bench", "crates", "examples", "xtask"];

/// The checked-out repository.
pub(crate) struct Repo {
    root: PathBuf,
}

/// A text file, by its path from the root with `/` between the parts.
pub(crate) struct TextFile {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl Repo {
    /// The repository this program belongs to, wherever it was called from.
    pub(crate) fn locate() -> Self {
        // The run-time value wins: with a shared target directory the binary may have been built in another checkout.
        let xtask = env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").to_owned());
        let xtask = PathBuf::from(xtask);
        let root = xtask.parent().map_or_else(|| xtask.clone(), Path::to_path_buf);
        Self { root }
    }

    /// Where something in it lies on disk; the root itself for an empty path.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        if path.is_empty() { self.root.clone() } else { self.root.join(path) }
    }

    /// A cargo call from the root, as if typed there.
    pub(crate) fn cargo(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(&self.root).args(args);
        // `cargo run` describes xtask in these; build scripts that watch them would otherwise run again each time
        // one alternates between `cargo xtask` and cargo itself.
        for (name, _) in env::vars_os() {
            if is_about_the_running_package(&name.to_string_lossy()) {
                command.env_remove(name);
            }
        }
        if env::var_os("CARGO_TERM_COLOR").is_none() {
            let color = if io::stderr().is_terminal() { "always" } else { "never" };
            command.env("CARGO_TERM_COLOR", color);
        }
        command
    }

    /// What a cargo call prints; its complaints go to our stderr.
    pub(crate) fn cargo_output(&self, args: &[&str]) -> Result<String, Failure> {
        let call = format!("cargo {}", args.join(" "));
        let output = self
            .cargo(args)
            .stderr(std::process::Stdio::inherit())
            .output()
            .map_err(|error| Failure::Failed(format!("cannot run `{call}`: {error}")))?;
        if !output.status.success() {
            return Err(Failure::Failed(format!("`{call}` failed: {}", output.status)));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// What a go call prints, also when it fails: its answer then says why. Nothing where Go is not installed.
    pub(crate) fn go_output(&self, args: &[&str]) -> Result<Option<String>, Failure> {
        let output = self.go(args)?;
        Ok(output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()))
    }

    /// What became of a go call. Nothing where Go is not installed.
    pub(crate) fn go(&self, args: &[&str]) -> Result<Option<Output>, Failure> {
        match Command::new("go").current_dir(&self.root).args(args).output() {
            Ok(output) => Ok(Some(output)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Failure::Failed(format!("cannot run `go {}`: {error}", args.join(" ")))),
        }
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    pub(crate) fn read(&self, path: &str) -> Result<String, Failure> {
        fs::read_to_string(self.root.join(path))
            .map_err(|error| Failure::Failed(format!("cannot read {path}: {error}")))
    }

    /// Writes a file, into a new folder if need be.
    pub(crate) fn write(&self, path: &str, text: &str) -> Result<(), Failure> {
        let file = self.root.join(path);
        file.parent()
            .map_or(Ok(()), fs::create_dir_all)
            .and_then(|()| fs::write(&file, text))
            .map_err(|error| Failure::Failed(format!("cannot write {path}: {error}")))
    }

    /// Every `.rs` file of ours, in path order.
    ///
    /// The disk is walked, not git's index: a file is checked before it is added.
    pub(crate) fn rust_files(&self) -> Result<Vec<TextFile>, Failure> {
        let mut files = Vec::new();
        for root in SOURCE_ROOTS.iter().filter(|root| self.exists(root)) {
            files.extend(self.rust_files_under(root)?);
        }
        Ok(files)
    }

    /// Every `.rs` file in a folder, in path order. The folder may also be outside of the repository.
    pub(crate) fn rust_files_under(&self, folder: &str) -> Result<Vec<TextFile>, Failure> {
        self.files_under(folder, "rs")
    }

    /// Likewise for another ending.
    pub(crate) fn files_under(&self, folder: &str, ending: &str) -> Result<Vec<TextFile>, Failure> {
        let mut paths = Vec::new();
        self.collect(folder, ending, &mut paths).map_err(|error| cannot_walk(folder, &error))?;
        paths.sort();
        paths.into_iter().map(|path| self.read(&path).map(|text| TextFile { path, text })).collect()
    }

    /// The names of the folders in a folder.
    pub(crate) fn folders(&self, folder: &str) -> Result<BTreeSet<String>, Failure> {
        let list = || -> io::Result<BTreeSet<String>> {
            let mut names = BTreeSet::new();
            for entry in fs::read_dir(self.root.join(folder))? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    names.insert(entry.file_name().to_string_lossy().into_owned());
                }
            }
            Ok(names)
        };
        list().map_err(|error| cannot_walk(folder, &error))
    }

    fn collect(&self, folder: &str, ending: &str, paths: &mut Vec<String>) -> io::Result<()> {
        for entry in fs::read_dir(self.root.join(folder))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{folder}/{name}");
            let kind = entry.file_type()?;
            if kind.is_dir() && name != "target" && !name.starts_with('.') {
                self.collect(&path, ending, paths)?;
            } else if kind.is_file() && Path::new(&name).extension().is_some_and(|ext| ext == ending) {
                paths.push(path);
            }
        }
        Ok(())
    }
}

fn cannot_walk(folder: &str, error: &io::Error) -> Failure {
    Failure::Failed(format!("cannot walk {folder}: {error}"))
}

fn is_about_the_running_package(variable: &str) -> bool {
    ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"].iter().any(|prefix| variable.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_its_own_sources_and_nothing_built() {
        let files = Repo::locate().rust_files().unwrap_or_default();
        assert!(files.iter().any(|file| file.path == "xtask/src/repo.rs"));
        assert!(files.iter().all(|file| !file.path.contains("/target/")));
        assert!(files.is_sorted_by_key(|file| &file.path));
    }

    #[test]
    fn only_package_variables_are_withheld_from_cargo() {
        assert!(is_about_the_running_package("CARGO_PKG_NAME"));
        assert!(is_about_the_running_package("CARGO_MANIFEST_DIR"));
        assert!(!is_about_the_running_package("CARGO_HOME"));
        assert!(!is_about_the_running_package("CARGO_TARGET_DIR"));
    }
}
