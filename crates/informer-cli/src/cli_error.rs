//! Errors of commands: one line with the cause and a hint.

use crate::show::escape::escape;
use informer::status::InformerState;
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
        InformerState::BackingOff { because, .. } if is_final(state) => final_hint(because),
        InformerState::BackingOff { because, .. } if has_answered(because) => "",
        InformerState::BackingOff { because, .. } => reach_hint(because),
        InformerState::Connecting => reach_hint(""),
        _ => "",
    }
}

/// Whether the server rejected the request permanently, so that retries are useless.
pub(crate) fn is_final(state: &InformerState) -> bool {
    let InformerState::BackingOff { because, .. } = state else { return false };
    because.starts_with("400 ") || because.starts_with("422 ")
}

fn final_hint(because: &str) -> &'static str {
    if because.contains("field label") || because.contains("selector") {
        "the server does not support this selector"
    } else {
        "the server rejects the request"
    }
}

/// Whether a failure is a response of the server; those begin with a status code.
pub(crate) fn has_answered(because: &str) -> bool {
    let code = because.split_once(' ').map_or("", |(code, _)| code);
    code.len() == 3 && code.bytes().all(|digit| digit.is_ascii_digit())
}

/// Returns a hint for a server that cannot be reached for this reason.
pub(crate) fn reach_hint(because: &str) -> &'static str {
    if because.contains("auth exec") {
        "is the user's credential plugin installed?"
    } else if because.contains("UnknownIssuer") || because.contains("certificate") {
        "does the kubeconfig contain the server's certificate authority?"
    } else {
        "is the server running and reachable?"
    }
}

/// Formats an error with its causes, without repetitions.
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
    use informer::status::Moment;

    /// Regression: a rejected selector and an unknown certificate authority got the hint for an unreachable server.
    #[test]
    fn hints_match_the_failure() {
        for (because, is_last, expected) in [
            (
                "400 BadRequest: field label not supported: spec.foo",
                true,
                "the server does not support this selector",
            ),
            ("422 Invalid: no", true, "the server rejects the request"),
            ("500 InternalError: no", false, ""),
            ("4000 apples", false, "is the server running and reachable?"),
            (
                "invalid peer certificate: UnknownIssuer",
                false,
                "does the kubeconfig contain the server's certificate authority?",
            ),
            ("connection refused", false, "is the server running and reachable?"),
        ] {
            let state = InformerState::BackingOff { until: Moment::default(), because: because.into() };
            assert_eq!((is_final(&state), hint(&state)), (is_last, expected), "{because}");
        }
    }
}
