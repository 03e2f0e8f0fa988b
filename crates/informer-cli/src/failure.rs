//! How a command fails: one line that says what, with what can be done about it.

use crate::show::escape::escape;
use informer::State;
use std::error::Error;
use std::process::ExitCode;

/// Why a command ended without having done its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    what: String,
    hint: String,
    code: u8,
}

impl Failure {
    /// Something that went wrong.
    pub(crate) fn new(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { what: what.into(), hint: hint.into(), code: 1 }
    }

    /// A command line that means nothing.
    pub(crate) fn usage(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { code: 2, ..Self::new(what, hint) }
    }

    /// Tells it.
    pub(crate) fn report(&self) -> ExitCode {
        let style = anstyle::AnsiColor::Red.on_default().bold();
        anstream::eprintln!("{style}error:{style:#} {self}");
        ExitCode::from(self.code)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&escape(&self.what))?;
        if !self.hint.is_empty() {
            write!(f, " ({})", escape(&self.hint))?;
        }
        Ok(())
    }
}

/// What can be done about an informer's state.
pub(crate) fn hint(state: &State) -> &'static str {
    match state {
        State::Forbidden { .. } => "the user needs the verbs list and watch; -n NAMESPACE asks for less",
        State::NotServed { .. } => "is its definition still installed?",
        State::BackingOff { because, .. } if is_final(state) => final_hint(because),
        State::BackingOff { because, .. } if has_answered(because) => "",
        State::BackingOff { because, .. } => reach_hint(because),
        State::Connecting => reach_hint(""),
        _ => "",
    }
}

/// Whether the server understood what is asked for, and will never answer it: trying again changes nothing.
pub(crate) fn is_final(state: &State) -> bool {
    let State::BackingOff { because, .. } = state else { return false };
    because.starts_with("400 ") || because.starts_with("422 ")
}

fn final_hint(because: &str) -> &'static str {
    if because.contains("field label") || because.contains("selector") {
        "the server cannot select on that"
    } else {
        "the server does not take the question"
    }
}

/// Whether a reason is what the server said; that begins with a code.
pub(crate) fn has_answered(because: &str) -> bool {
    let code = because.split_once(' ').map_or("", |(code, _)| code);
    code.len() == 3 && code.bytes().all(|digit| digit.is_ascii_digit())
}

/// What to look at if a server cannot be reached for this reason.
pub(crate) fn reach_hint(because: &str) -> &'static str {
    if because.contains("auth exec") {
        "is the user's credential plugin installed?"
    } else if because.contains("UnknownIssuer") || because.contains("certificate") {
        "does the kubeconfig have the server's certificate authority?"
    } else {
        "is the server up, and reachable from here?"
    }
}

/// An error with its causes, as far as they add something.
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
    use informer::Moment;

    /// A selector that the server refuses read as a server that is down, as did a certificate that nobody knows.
    #[test]
    fn hints_are_about_what_is_wrong() {
        for (because, is_last, expected) in [
            ("400 BadRequest: field label not supported: spec.foo", true, "the server cannot select on that"),
            ("422 Invalid: no", true, "the server does not take the question"),
            ("500 InternalError: no", false, ""),
            ("4000 apples", false, "is the server up, and reachable from here?"),
            (
                "invalid peer certificate: UnknownIssuer",
                false,
                "does the kubeconfig have the server's certificate authority?",
            ),
            ("connection refused", false, "is the server up, and reachable from here?"),
        ] {
            let state = State::BackingOff { until: Moment::default(), because: because.into() };
            assert_eq!((is_final(&state), hint(&state)), (is_last, expected), "{because}");
        }
    }
}
