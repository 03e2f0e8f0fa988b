//! The repository: its root, its source files, and calls of cargo and Go in it.
//!
//! All file access and child processes of checks go through this file, so that the checks themselves are
//! functions from text to problems.

use std::collections::BTreeSet;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::failure::Failure;

/// Folders with Rust sources. Missing ones are skipped.
const SOURCE_ROOTS: &[&str] = &["bench", "crates", "examples", "xtask"];

/// The checked-out repository.
pub(crate) struct Repo {
    root: PathBuf,
}

/// A text file; its path is relative to the root and separated by `/`.
pub(crate) struct TextFile {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl Repo {
    /// Returns the repository that this program belongs to, independent of the working directory.
    pub(crate) fn locate() -> Self {
        // The run-time value is preferred: with a shared target directory, another checkout may have built
        // the binary.
        let xtask = env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").to_owned());
        let xtask = PathBuf::from(xtask);
        let root = xtask.parent().map_or_else(|| xtask.clone(), Path::to_path_buf);
        Self { root }
    }

    /// Returns the absolute path of a file or folder; an empty path means the root.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        if path.is_empty() { self.root.clone() } else { self.root.join(path) }
    }

    /// Returns a cargo command that runs in the root, with the environment of a shell.
    pub(crate) fn cargo(&self, args: &[&str]) -> Command {
        let mut command = self.program(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(args);
        command
    }

    /// Returns a command that runs in the root, with the environment of a shell.
    pub(crate) fn program(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root);
        // `cargo run` sets these variables for xtask. Build scripts that depend on them would otherwise run
        // again after every switch between `cargo xtask` and plain cargo.
        for (name, _) in env::vars_os() {
            if describes_running_package(&name.to_string_lossy()) {
                command.env_remove(name);
            }
        }
        if env::var_os("CARGO_TERM_COLOR").is_none() {
            let color = if io::stderr().is_terminal() { "always" } else { "never" };
            command.env("CARGO_TERM_COLOR", color);
        }
        command
    }

    /// Runs cargo with arguments that are separated by spaces.
    pub(crate) fn run_cargo(&self, args: &str, env: &[(&str, &str)]) -> Result<(), Failure> {
        let split: Vec<&str> = args.split_whitespace().collect();
        run(self.cargo(&split).envs(env.iter().copied()), &format!("cargo {args}"))
    }

    /// Runs cargo and returns its standard output; its standard error is inherited.
    pub(crate) fn cargo_output(&self, args: &[&str]) -> Result<String, Failure> {
        output(&mut self.cargo(args), &format!("cargo {}", args.join(" ")))
    }

    /// Runs Go and returns its standard output, also if it fails, because the output then contains the error.
    /// `None` if Go is not installed.
    pub(crate) fn go_output(&self, args: &[&str]) -> Result<Option<String>, Failure> {
        let output = self.go(args)?;
        Ok(output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()))
    }

    /// Runs Go and returns its output and exit status. `None` if Go is not installed.
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

    /// Reads a file as text, or an empty text if it is a folder or no text; `None` if it does not exist.
    pub(crate) fn read_if_exists(&self, path: &str) -> Option<String> {
        self.exists(path).then(|| fs::read_to_string(self.root.join(path)).unwrap_or_default())
    }

    /// Writes a file; creates its folder if necessary.
    pub(crate) fn write(&self, path: &str, text: &str) -> Result<(), Failure> {
        let file = self.root.join(path);
        file.parent()
            .map_or(Ok(()), fs::create_dir_all)
            .and_then(|()| fs::write(&file, text))
            .map_err(|error| Failure::Failed(format!("cannot write {path}: {error}")))
    }

    /// Reads every `.rs` file of the repository, sorted by path.
    ///
    /// Walks the disk and not git's index, so that new files are checked before they are added.
    pub(crate) fn rust_files(&self) -> Result<Vec<TextFile>, Failure> {
        let mut files = Vec::new();
        for root in SOURCE_ROOTS.iter().filter(|root| self.exists(root)) {
            files.extend(self.rust_files_under(root)?);
        }
        Ok(files)
    }

    /// Reads every `.rs` file below a folder, sorted by path. An absolute path outside the repository is
    /// allowed.
    pub(crate) fn rust_files_under(&self, folder: &str) -> Result<Vec<TextFile>, Failure> {
        self.files_under(folder, "rs")
    }

    /// Reads every file with this extension below a folder, sorted by path. An empty folder means the root.
    pub(crate) fn files_under(&self, folder: &str, extension: &str) -> Result<Vec<TextFile>, Failure> {
        let mut paths = Vec::new();
        self.collect(folder, extension, &mut paths).map_err(|error| read_folder_failed(folder, &error))?;
        paths.sort();
        paths.into_iter().map(|path| self.read(&path).map(|text| TextFile { path, text })).collect()
    }

    /// Returns the names of the folders directly in a folder. An absolute path outside the repository is allowed.
    pub(crate) fn folders(&self, folder: impl AsRef<Path>) -> Result<BTreeSet<String>, Failure> {
        let folder = folder.as_ref();
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
        list().map_err(|error| read_folder_failed(&folder.display().to_string(), &error))
    }

    fn collect(&self, folder: &str, extension: &str, paths: &mut Vec<String>) -> io::Result<()> {
        for entry in fs::read_dir(self.root.join(folder))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            let kind = entry.file_type()?;
            if kind.is_dir() && name != "target" && !name.starts_with('.') {
                self.collect(&path, extension, paths)?;
            } else if kind.is_file() && Path::new(&name).extension().is_some_and(|ext| ext == extension) {
                paths.push(path);
            }
        }
        Ok(())
    }
}

/// Runs a command and returns its standard output; its standard error is inherited. `name` appears in the message of a
/// failure.
pub(crate) fn output(command: &mut Command, name: &str) -> Result<String, Failure> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| Failure::Failed(format!("cannot run `{name}`: {error}")))?;
    if !output.status.success() {
        return Err(Failure::Failed(format!("`{name}` failed: {}", output.status)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a command to its end. `name` appears in the message of a failure.
pub(crate) fn run(command: &mut Command, name: &str) -> Result<(), Failure> {
    let status =
        command.status().map_err(|error| Failure::Failed(format!("cannot run `{name}`: {error}")))?;
    if status.success() { Ok(()) } else { Err(Failure::Failed(format!("`{name}` failed: {status}"))) }
}

pub(crate) fn is_on_path(program: &str) -> bool {
    let folders = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&folders).any(|folder| folder.join(program).is_file())
}

/// Returns the folder in which cargo keeps packages and programs.
pub(crate) fn cargo_home() -> PathBuf {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    home.or_else(|| env::home_dir().map(|home| home.join(".cargo"))).unwrap_or_default()
}

/// Returns the folder `informer` in the user's cache folder.
pub(crate) fn cache_folder() -> Result<PathBuf, Failure> {
    cache_folder_of(env::var_os("XDG_CACHE_HOME"), env::var_os("HOME"))
        .ok_or_else(|| Failure::Failed("no cache folder: set XDG_CACHE_HOME or HOME".to_owned()))
}

fn cache_folder_of(xdg: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    // The XDG specification requires relative paths to be ignored.
    let absolute = |path: Option<OsString>| path.map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute(xdg).or_else(|| absolute(home).map(|home| home.join(".cache")))?;
    Some(cache.join("informer"))
}

fn read_folder_failed(folder: &str, error: &io::Error) -> Failure {
    Failure::Failed(format!("cannot read the folder {folder}: {error}"))
}

fn describes_running_package(variable: &str) -> bool {
    ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"].iter().any(|prefix| variable.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust_files_contain_own_sources_and_no_build_output() {
        let files = Repo::locate().rust_files().unwrap_or_default();
        assert!(files.iter().any(|file| file.path == "xtask/src/repo.rs"));
        assert!(files.iter().all(|file| !file.path.contains("/target/")));
        assert!(files.is_sorted_by_key(|file| &file.path));
    }

    #[test]
    fn only_package_variables_are_removed_for_cargo() {
        assert!(describes_running_package("CARGO_PKG_NAME"));
        assert!(describes_running_package("CARGO_MANIFEST_DIR"));
        assert!(!describes_running_package("CARGO_HOME"));
        assert!(!describes_running_package("CARGO_TARGET_DIR"));
    }

    #[test]
    fn cache_folder_follows_the_environment() {
        let folder = |xdg: Option<&str>, home: Option<&str>| {
            cache_folder_of(xdg.map(OsString::from), home.map(OsString::from))
                .map(|path| path.display().to_string())
        };
        assert_eq!(folder(Some("/x"), Some("/h")).as_deref(), Some("/x/informer"));
        assert_eq!(folder(None, Some("/h")).as_deref(), Some("/h/.cache/informer"));
        assert_eq!(folder(Some(""), Some("/h")).as_deref(), Some("/h/.cache/informer"));
        assert_eq!(folder(Some("x"), Some("/h")).as_deref(), Some("/h/.cache/informer"));
        assert_eq!(folder(None, None), None);
    }
}
