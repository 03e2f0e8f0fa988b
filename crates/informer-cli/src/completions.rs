//! `informer completions`: a script that lets a shell complete our command line.

use crate::args::Args;
use crate::failure::Failure;
use clap::CommandFactory as _;
use std::io::Write as _;

/// Prints the script.
pub(crate) fn run(shell: clap_complete::Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "informer", &mut script);
    match std::io::stdout().write_all(&script) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::new(format!("the script cannot be written: {error}"), ""))
        }
        _ => Ok(()),
    }
}
