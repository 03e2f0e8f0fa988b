//! Errors of commands: one line with the cause and a hint.

use crate::show::escape::escape;
use informer::status::{Failure, FailureKind, InformerState};
use std::error::Error;
use std::process::ExitCode;

/// An error that ends a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CliError {
    message: String,
    hint: String,
    code: u8,
}

impl CliError {
    /// Creates an error with exit code 1.
    pub(crate) fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into(), code: 1 }
    }

    /// Creates an error for an invalid command line, with exit code 2.
    pub(crate) fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { code: 2, ..Self::new(message, hint) }
    }

    /// Creates the error for a signal before the output is complete, with the exit code of shells for Ctrl-C.
    pub(crate) fn interrupted() -> Self {
        Self { code: 130, ..Self::new("stopped before all objects were printed", "") }
    }

    /// Replaces the hint of an unknown resource for which no similar one exists.
    pub(crate) fn or_hint(self, hint: String) -> Self {
        if self.hint == UNKNOWN_RESOURCE { Self { hint, ..self } } else { self }
    }

    /// Replaces a hint that proposes a demo cluster, for commands that have none.
    pub(crate) fn without_demo(self) -> Self {
        let hint = match self.hint.as_str() {
            NO_CLUSTER => "pass --kubeconfig FILE",
            UNUSABLE_KUBECONFIG => "use another with --kubeconfig",
            _ => return self,
        };
        Self { hint: hint.to_owned(), ..self }
    }

    /// Creates the error for threads that could not be started.
    pub(crate) fn no_threads() -> Self {
        Self::new("start threads: failed", "is the system out of resources?")
    }

    /// Prints the error and returns its exit code.
    pub(crate) fn report(&self) -> ExitCode {
        let style = anstyle::AnsiColor::Red.on_default().bold();
        anstream::eprintln!("{style}error:{style:#} {self}");
        ExitCode::from(self.code)
    }
}

impl std::fmt::Display for CliError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&escape(&self.message))?;
        if !self.hint.is_empty() {
            write!(f, " ({})", escape(&self.hint))?;
        }
        Ok(())
    }
}

/// Returns a hint for an informer's state.
pub(crate) fn hint(state: &InformerState) -> &'static str {
    match state {
        InformerState::Forbidden { .. } => "the user needs permission to list and watch; try -n NAMESPACE",
        InformerState::NotServed { .. } => "is the definition still installed?",
        InformerState::BackingOff { failure, .. } => response_hint(failure),
        InformerState::Connecting => UNREACHABLE,
        _ => "",
    }
}

/// Hint if there is neither a kubeconfig nor a service account.
pub(crate) const NO_CLUSTER: &str = "pass --kubeconfig FILE, or --demo for a simulated cluster";
/// Hint for a kubeconfig that cannot be used.
pub(crate) const UNUSABLE_KUBECONFIG: &str = "use another with --kubeconfig, or a demo cluster with --demo";
/// Hint for an unknown resource that is similar to no other.
pub(crate) const UNKNOWN_RESOURCE: &str = "kubectl api-resources lists all resources";

const UNREACHABLE: &str = "is the server running and reachable?";

/// Returns a hint for a failed request of an informer. Messages about connections already contain a hint.
pub(crate) fn response_hint(failure: &Failure) -> &'static str {
    match failure.kind() {
        _ if failure.is_permanent() => "check the selectors",
        FailureKind::Unauthorized => "have the credentials expired?",
        FailureKind::Interrupted => UNREACHABLE,
        _ => "",
    }
}

/// Returns a hint for a failed request of the client.
pub(crate) fn failure_hint(failure: &Failure) -> &'static str {
    match failure.kind() {
        FailureKind::Credentials => "is the user's credential plugin installed?",
        FailureKind::Certificate => "does the kubeconfig contain the server's certificate authority?",
        FailureKind::Connect | FailureKind::Timeout => UNREACHABLE,
        _ => response_hint(failure),
    }
}

/// Formats an error with its causes; a cause whose text is already part of the message is left out.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a rejected selector and an unknown certificate authority got the hint for an unreachable server.
    #[test]
    fn hints_match_the_failure() {
        for (kind, expected) in [
            (FailureKind::Rejected, ""),
            (FailureKind::ServerError, ""),
            (FailureKind::Unauthorized, "have the credentials expired?"),
            (FailureKind::Certificate, "does the kubeconfig contain the server's certificate authority?"),
            (FailureKind::Connect, UNREACHABLE),
        ] {
            assert_eq!(failure_hint(&Failure::new(kind, "no")), expected, "{kind:?}");
        }
        let status = kube::core::Status::failure("field label not supported: spec.foo", "BadRequest");
        let rejected = informer::source::classify(&kube::Error::Api(Box::new(status.with_code(400))));
        assert_eq!(failure_hint(&rejected), "check the selectors");
    }
}
