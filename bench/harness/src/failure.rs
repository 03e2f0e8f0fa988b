//! The error type of the harness; it determines the exit code of the program.
//!
//! Only `main` prints it and exits. It is a copy of the type in xtask, because the harness does not depend on
//! xtask.

/// The reason why a run failed.
pub(crate) enum Failure {
    /// Invalid arguments: exit code 2; the usage is printed.
    Usage(String),
    /// The run failed: exit code 1.
    Failed(String),
}

impl Failure {
    /// Returns the message of any kind of failure.
    pub(crate) fn message(self) -> String {
        match self {
            Self::Usage(reason) | Self::Failed(reason) => reason,
        }
    }
}
