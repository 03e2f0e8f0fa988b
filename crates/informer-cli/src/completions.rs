//! `informer completions`: prints a shell completion script.

use crate::args::Args;
use crate::cli_error::CliError;
use clap::CommandFactory as _;
use std::io::Write as _;

/// Prints the script.
pub(crate) fn run(shell: clap_complete::Shell) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "informer", &mut script);
    match std::io::stdout().write_all(&script) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(CliError::new(format!("write completion script: {error}"), ""))
        }
        _ => Ok(()),
    }
}
