//! `cargo xtask bench`: starts the harness in `bench/harness`, which compares informer with other clients.
//!
//! The harness parses the options and prints its own errors; `Cargo.toml` has it optimised in every profile.
//! It does not depend on xtask, and xtask does not know what it measures.

use crate::failure::Failure;
use crate::repo::Repo;

pub(crate) fn run(repo: &Repo, args: &[String]) -> Result<(), Failure> {
    let status = repo
        .cargo(&["run", "--quiet", "--package", "bench-harness", "--"])
        .args(args)
        .status()
        .map_err(|error| Failure::Failed(format!("cannot run cargo: {error}")))?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::Printed(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}
