//! How a chore fails, and with it the exit code of the program.
//!
//! Every chore returns a [`Failure`]; only `main` prints one and ends the process. It knows no chore.

/// Why a command ended without success.
pub(crate) enum Failure {
    /// It was called wrongly: exit code 2, with the help.
    Usage(String),
    /// It ran and found something: exit code 1.
    Failed(String),
    /// It ran something else, which ended with this exit code; so does it.
    Ended(u8, String),
    /// It ran something else, which printed why it failed and ended with this exit code; so does it.
    Printed(u8),
}

impl Failure {
    /// The message, whatever the kind of failure.
    pub(crate) fn why(self) -> String {
        match self {
            Self::Usage(why) | Self::Failed(why) | Self::Ended(_, why) => why,
            Self::Printed(code) => format!("a program ended with exit code {code}, see above"),
        }
    }
}
