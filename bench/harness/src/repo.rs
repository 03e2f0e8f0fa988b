//! The repository: its root, its files, and calls of cargo in it.
//!
//! It is a copy of the methods of xtask that are used here, because the harness does not depend on xtask.

use std::env;
use std::fs;
use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;

/// The checked-out repository.
pub(crate) struct Repo {
    root: PathBuf,
}

impl Repo {
    /// Returns the repository that this program belongs to, independent of the working directory.
    pub(crate) fn locate() -> Self {
        // The run-time value is preferred: with a shared target directory, another checkout may have built
        // the binary.
        let own = env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").to_owned());
        let own = PathBuf::from(own);
        let root = own.ancestors().nth(2).map_or_else(|| own.clone(), Path::to_path_buf);
        Self { root }
    }

    /// Returns the absolute path of a file or folder.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Runs cargo and returns its standard output; its standard error is inherited.
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

    fn cargo(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(&self.root).args(args);
        // `cargo run` sets these variables for this package. Build scripts that depend on them would
        // otherwise run again each time.
        for (name, _) in env::vars_os() {
            let text = name.to_string_lossy();
            if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"].iter().any(|prefix| text.starts_with(prefix)) {
                command.env_remove(&name);
            }
        }
        if env::var_os("CARGO_TERM_COLOR").is_none() {
            let color = if io::stderr().is_terminal() { "always" } else { "never" };
            command.env("CARGO_TERM_COLOR", color);
        }
        command
    }

    pub(crate) fn read(&self, path: &str) -> Result<String, Failure> {
        fs::read_to_string(self.path(path))
            .map_err(|error| Failure::Failed(format!("cannot read {path}: {error}")))
    }

    /// Writes a file; creates its folder if necessary.
    pub(crate) fn write(&self, path: &str, text: &str) -> Result<(), Failure> {
        let file = self.path(path);
        file.parent()
            .map_or(Ok(()), fs::create_dir_all)
            .and_then(|()| fs::write(&file, text))
            .map_err(|error| Failure::Failed(format!("cannot write {path}: {error}")))
    }
}
