//! Programs of the registry that checks use, in fixed versions, installed on first use.
//!
//! They are built without optimization and without debug information, which takes less time than the optimized program would
//! save.

use std::env;
use std::path::PathBuf;

use crate::failure::Failure;
use crate::repo::{self, Repo};

/// A program of the registry.
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    /// Further arguments of `cargo install`.
    pub(crate) options: &'static [&'static str],
}

impl Tool {
    /// Installs the program into the cache folder of the user, unless it is already there, and returns its path.
    pub(crate) fn install(&self, repo: &Repo) -> Result<PathBuf, Failure> {
        let Self { name, version, options } = self;
        let folder = repo::cache_folder()?.join("tools").join(format!("{name}-{version}"));
        let program = folder.join("bin").join(format!("{name}{}", env::consts::EXE_SUFFIX));
        if program.is_file() {
            return Ok(program);
        }
        eprintln!("installing {name} {version} (only once)");
        let status = repo
            .cargo(&["install", name, "--version", &format!("={version}"), "--locked", "--debug", "--quiet"])
            .env("CARGO_PROFILE_DEV_DEBUG", "false")
            .env("CARGO_PROFILE_DEV_CODEGEN_UNITS", "8")
            .args(*options)
            .arg("--root")
            .arg(&folder)
            .status()
            .map_err(|error| Failure::Failed(format!("cannot run cargo: {error}")))?;
        if status.success() {
            Ok(program)
        } else {
            Err(Failure::Failed(format!("installing {name} failed: {status}")))
        }
    }
}
