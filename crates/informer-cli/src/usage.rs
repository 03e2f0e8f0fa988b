//! Hints for invalid command lines: what users of kubectl type first.

use crate::args::Args;
use crate::cli_error::CliError;
use clap::CommandFactory as _;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Options of `kubectl get` that this program does not have, with a replacement.
const OPTIONS: [(&str, &str); 4] = [
    ("--show-labels", "-o wide shows labels"),
    ("-f", "objects are named on the command line, such as pods/web-0"),
    ("--watch-only", "informer watch prints the existing objects first"),
    ("--as", "use a kubeconfig with this user"),
];

/// Returns an error with a hint for a mistake whose cause is known.
pub(crate) fn explain(error: &clap::Error) -> Option<CliError> {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::InvalidSubcommand => unknown_command(context(ContextKind::InvalidSubcommand)?),
        ErrorKind::UnknownArgument => unknown_option(context(ContextKind::InvalidArg)?),
        _ => None,
    }
}

fn unknown_command(name: &str) -> Option<CliError> {
    let hint = match name {
        "version" => "use informer --version".to_owned(),
        // A mistyped command; clap suggests the right one.
        name if Args::command().get_subcommands().any(|one| strsim::jaro(one.get_name(), name) > 0.7) => {
            return None;
        }
        name => format!("for a resource: informer watch {name}, or once: informer get {name}"),
    };
    Some(CliError::usage(format!("there is no command \"{name}\""), hint))
}

fn unknown_option(option: &str) -> Option<CliError> {
    let name = option.split_once('=').map_or(option, |(name, _)| name);
    if let Some((_, hint)) = OPTIONS.iter().find(|(known, _)| *known == name) {
        return Some(CliError::usage(format!("there is no option {name}"), *hint));
    }
    let args = Args::command();
    let is_of_watch = args.find_subcommand("watch")?.get_arguments().any(|arg| {
        arg.get_short().is_some_and(|letter| name == format!("-{letter}"))
            || arg.get_long().is_some_and(|long| name == format!("--{long}"))
    });
    // `watch` and `get` would know it.
    is_of_watch.then(|| {
        let hint = format!("write it after one of them: informer get pods {name} …");
        CliError::usage(format!("{name} is an option of watch and get"), hint)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[track_caller]
    fn check(line: &str, expected: Option<&str>) {
        let error = Args::try_parse_from(line.split(' ')).unwrap_err();
        assert_eq!(explain(&error).map(|error| error.to_string()).as_deref(), expected, "{line}");
    }

    #[test]
    fn habits_of_kubectl_get_a_hint() {
        check(
            "informer pods",
            Some(
                "there is no command \"pods\" (for a resource: informer watch pods, or once: informer get pods)",
            ),
        );
        check("informer version", Some("there is no command \"version\" (use informer --version)"));
        let expected =
            "-n is an option of watch and get (write it after one of them: informer get pods -n …)";
        check("informer -n shop get pods", Some(expected));
        check(
            "informer get pods --watch-only",
            Some("there is no option --watch-only (informer watch prints the existing objects first)"),
        );
    }

    #[test]
    fn other_mistakes_are_left_to_clap() {
        check("informer wacth pods", None);
        check("informer watch", None);
        check("informer get pods --unknown", None);
        check("informer get pods -o xml", None);
    }
}
