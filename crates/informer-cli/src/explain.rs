//! The command `explain`: what a state of an informer or a kind of failure means, and what to do about it.
//!
//! The texts are those of the page `docs/book/src/reference/states.md`.

use crate::cli_error::CliError;
use crate::terminal::print;
use std::fmt;

/// The explanation of a state or of a kind of failure.
struct Explanation {
    /// The name in the library.
    name: &'static str,
    /// The meaning of a state, or the usual cause of a failure.
    meaning: &'static str,
    action: &'static str,
}

/// The states of an informer.
const STATES: &[Explanation] = &[
    Explanation {
        name: "NotStarted",
        meaning: "The informer was not started.",
        action: "Call start, on the informer or on its factory.",
    },
    Explanation {
        name: "Connecting",
        meaning: "The initial list was requested, and no response has arrived.",
        action: "Wait. If it lasts: is the server reachable? Is a proxy in between? Does the shard group run, if there is one?",
    },
    Explanation {
        name: "Listing",
        meaning: "The initial list is arriving.",
        action: "Wait. A large list takes seconds; select fewer objects to make it faster.",
    },
    Explanation {
        name: "Restored",
        meaning: "The cache was loaded from a file, and the server has not confirmed it.",
        action: "Wait a few seconds. If it lasts, InformerStatus::last_failure has the reason.",
    },
    Explanation { name: "Live", meaning: "The cache follows the server.", action: "Nothing." },
    Explanation {
        name: "Stale",
        meaning: "The cache is complete, but no watch is open.",
        action: "Nothing for a moment: watches are renewed every few minutes. If it lasts, InformerStatus::last_failure has the reason.",
    },
    Explanation {
        name: "Forbidden",
        meaning: "The server does not allow the request (403).",
        action: "Give the program the verbs list and watch for this kind. It is retried slowly, so a restart is not needed.",
    },
    Explanation {
        name: "NotServed",
        meaning: "The server does not know the kind (404).",
        action: "Install the definition, or check the version of the API. It is retried slowly.",
    },
    Explanation {
        name: "BackingOff",
        meaning: "A request failed, and the next one is delayed.",
        action: "Find the reason of the failure in the list of reasons.",
    },
    Explanation {
        name: "Stopped",
        meaning: "The informer was shut down, or its last handle was dropped.",
        action: "Create a new one.",
    },
];

/// The kinds of failures.
const FAILURES: &[Explanation] = &[
    Explanation {
        name: "Connect",
        meaning: "The server is down, or the address is wrong.",
        action: "Check server in the kubeconfig.",
    },
    Explanation {
        name: "Certificate",
        meaning: "The certificate is not trusted.",
        action: "Check certificate-authority in the kubeconfig; a proxy may have its own certificate.",
    },
    Explanation {
        name: "Credentials",
        meaning: "The token file, exec plugin or auth provider failed.",
        action: "Run the plugin by hand.",
    },
    Explanation {
        name: "Unauthorized",
        meaning: "The token is not valid (401).",
        action: "Tokens of service accounts are read again by themselves; a copied token expires.",
    },
    Explanation {
        name: "Forbidden",
        meaning: "A permission is missing (403).",
        action: "Give the program the verbs list and watch for this kind.",
    },
    Explanation {
        name: "NotServed",
        meaning: "The kind does not exist, or cannot be watched (404, 405).",
        action: "Install the definition, or check the version of the API.",
    },
    Explanation {
        name: "Throttled",
        meaning: "The server asks for fewer requests (429).",
        action: "Retry-After is followed. If it lasts, the server is overloaded.",
    },
    Explanation {
        name: "Timeout",
        meaning: "No response or no data in time.",
        action: "A proxy or a firewall that drops idle connections.",
    },
    Explanation {
        name: "Interrupted",
        meaning: "The connection broke.",
        action: "Nothing, if it is rare. Often: a load balancer with a short timeout.",
    },
    Explanation {
        name: "Expired",
        meaning: "The server no longer has the version from which the watch should continue (410).",
        action: "Nothing: a list follows. If it is frequent, the watch falls behind.",
    },
    Explanation {
        name: "VersionTooLarge",
        meaning: "The server has not reached this version: a replica lags, or etcd was restored from a backup.",
        action: "Nothing: the informer notices a restored etcd and relists.",
    },
    Explanation {
        name: "ServerError",
        meaning: "The server failed (5xx).",
        action: "The logs of the server.",
    },
    Explanation {
        name: "Rejected",
        meaning: "The request is wrong, for example a field selector that the kind does not support.",
        action: "Check the options of the informer.",
    },
    Explanation {
        name: "InvalidRequest",
        meaning: "The request is wrong, for example a field selector that the kind does not support.",
        action: "Check the options of the informer.",
    },
    Explanation {
        name: "MalformedBody",
        meaning: "The response is neither JSON nor protobuf.",
        action: "Is a proxy in between that responds by itself?",
    },
];

/// Prints the explanation of a name, or all names.
pub(crate) fn run(name: Option<&str>) -> Result<(), CliError> {
    let Some(name) = name else {
        return print_text(&format!(
            "States of an informer:\n{}\n\nReasons of a failure:\n{}\n",
            names(STATES),
            names(FAILURES)
        ));
    };
    let found: Vec<&Explanation> = find(name);
    if found.is_empty() {
        let hint = "`informer explain` lists the names";
        return Err(CliError::usage(format!("explain {name}: no such state or failure"), hint));
    }
    let texts: Vec<String> = found.into_iter().map(|explanation| format!("{explanation}\n")).collect();
    print_text(&texts.join("\n"))
}

fn print_text(text: &str) -> Result<(), CliError> {
    print(text).map_err(|error| CliError::new(format!("write explanation: {error}"), ""))
}

/// Returns the explanations of a name in any spelling: `BackingOff`, `backing-off`, `backing off`. `Forbidden` is a
/// state and a kind of failure.
fn find(name: &str) -> Vec<&'static Explanation> {
    let simple = |text: &str| -> String {
        text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
    };
    let wanted = simple(name);
    STATES.iter().chain(FAILURES).filter(|explanation| simple(explanation.name) == wanted).collect()
}

fn names(explanations: &[Explanation]) -> String {
    let lines: Vec<String> =
        explanations.iter().map(|one| format!("  {:<16} {}", one.name, one.meaning)).collect();
    lines.join("\n")
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  {}\n  What to do: {}", self.name, self.meaning, self.action)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_those_of_the_book() {
        let page = include_str!("../../../docs/book/src/reference/states.md").replace('`', "");
        let rows: Vec<Vec<&str>> = page
            .lines()
            .filter(|line| {
                line.starts_with("| ") && !line.starts_with("| state") && !line.starts_with("| kind")
            })
            .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
            .collect();
        let expected: Vec<[&str; 3]> =
            rows.iter().flat_map(|row| row[0].split(", ").map(|name| [name, row[1], row[2]])).collect();
        let found: Vec<[&str; 3]> =
            STATES.iter().chain(FAILURES).map(|one| [one.name, one.meaning, one.action]).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn names_are_found_in_any_spelling() {
        let found = |name: &str| -> Vec<&str> { find(name).iter().map(|one| one.name).collect() };
        for name in ["BackingOff", "backing-off", "backing off", "BACKINGOFF"] {
            assert_eq!(found(name), ["BackingOff"]);
        }
        assert_eq!(found("forbidden"), ["Forbidden", "Forbidden"]);
        assert_eq!(found("ready"), [""; 0]);
    }

    /// The explained failures are those of the library.
    #[test]
    fn everything_is_explained() {
        use informer::status::FailureKind;
        let kinds = [
            FailureKind::Expired,
            FailureKind::VersionTooLarge,
            FailureKind::Forbidden,
            FailureKind::NotServed,
            FailureKind::Unauthorized,
            FailureKind::Throttled,
            FailureKind::Rejected,
            FailureKind::ServerError,
            FailureKind::Connect,
            FailureKind::Certificate,
            FailureKind::Credentials,
            FailureKind::Timeout,
            FailureKind::Interrupted,
            FailureKind::MalformedBody,
            FailureKind::InvalidRequest,
        ];
        for kind in kinds {
            let name = format!("{kind:?}");
            assert!(FAILURES.iter().any(|explanation| explanation.name == name), "{name}");
        }
        assert_eq!(FAILURES.len(), kinds.len());
    }
}
