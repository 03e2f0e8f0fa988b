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
        State::Connecting | State::BackingOff { .. } => "is the server up, and reachable from here?",
        _ => "",
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
