//! The error type of all commands; it determines the exit code of the program.
//!
//! Every command returns a [`Failure`]; only `main` prints it and exits. This file does not know any command.

/// The reason why a command failed.
pub(crate) enum Failure {
    /// Invalid arguments: exit code 2; the help is printed.
    Usage(String),
    /// The command ran and failed: exit code 1.
    Failed(String),
    /// A child process failed with this exit code, which becomes the exit code of xtask.
    Ended(u8, String),
    /// A child process printed its own error and failed with this exit code, which becomes the exit code of
    /// xtask.
    Printed(u8),
}

impl Failure {
    /// Returns the message of any kind of failure.
    pub(crate) fn message(self) -> String {
        match self {
            Self::Usage(reason) | Self::Failed(reason) | Self::Ended(_, reason) => reason,
            Self::Printed(code) => format!("a program failed with exit code {code}, see above"),
        }
    }
}
