//! How a run of the harness fails, and with it the exit code of the program.
//!
//! Only `main` prints one and ends the process. A copy of what xtask has: programs that measure do not depend on the chores.

/// Why the run ended without success.
pub(crate) enum Failure {
    /// It was called wrongly: exit code 2, with the usage.
    Usage(String),
    /// It ran and something failed: exit code 1.
    Failed(String),
}

impl Failure {
    /// The message, whatever the kind of failure.
    pub(crate) fn message(self) -> String {
        match self {
            Self::Usage(reason) | Self::Failed(reason) => reason,
        }
    }
}
