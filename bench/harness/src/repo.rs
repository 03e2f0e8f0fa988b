//! The repository as the harness sees it: its root, its files, and how cargo is called in it.
//!
//! A copy of the few methods of xtask's that are used here: programs that measure do not depend on the chores.

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
    /// The repository this program belongs to, wherever it was called from.
    pub(crate) fn locate() -> Self {
        // The run-time value wins: with a shared target directory the binary may have been built in another checkout.
        let own = env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").to_owned());
        let own = PathBuf::from(own);
        let root = own.ancestors().nth(2).map_or_else(|| own.clone(), Path::to_path_buf);
        Self { root }
    }

    /// The place of something in it on disk.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// What a cargo call prints; its errors go to our stderr.
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
        // `cargo run` describes this package in these; build scripts that watch them would otherwise run again each time.
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

    /// Writes a file, into a new folder if there is none.
    pub(crate) fn write(&self, path: &str, text: &str) -> Result<(), Failure> {
        let file = self.path(path);
        file.parent()
            .map_or(Ok(()), fs::create_dir_all)
            .and_then(|()| fs::write(&file, text))
            .map_err(|error| Failure::Failed(format!("cannot write {path}: {error}")))
    }
}
