//! `informer completions`: prints a shell completion script.
//!
//! The script of clap completes commands and options. For bash, zsh and fish, it is extended to complete resources
//! and namespaces from the cluster: it runs `informer __complete resources` or `informer __complete namespaces`,
//! followed by the words of the command line. That command is bounded in time and never reports a failure, because
//! its output would appear in the middle of the command line.

use crate::args::{Args, Command};
use crate::cli_error::CliError;
use crate::cluster;
use crate::resolve::{Served, resolve};
use crate::terminal::{Terminal, print};
use clap::{CommandFactory as _, Parser as _};
use clap_complete::Shell;
use k8s_openapi::api::core::v1::Namespace;
use std::ffi::OsString;
use std::time::Duration;

/// The command that the scripts run. It is no command of clap, so that it is neither listed nor completed.
pub(crate) const COMPLETE_COMMAND: &str = "__complete";

/// Time limit of the command, for a shell that waits for it.
const COMPLETE_TIMEOUT: Duration = Duration::from_secs(2);

/// Prints the script.
pub(crate) fn run(shell: Shell) -> Result<(), CliError> {
    print(&script(shell)).map_err(|error| CliError::new(format!("write completion script: {error}"), ""))
}

/// Prints the names that complete a word: `what` is `resources` or `namespaces`, `words` is the command line.
/// Prints nothing if they cannot be determined in time.
pub(crate) async fn complete(what: &str, words: &[OsString]) {
    let Some(line) = cluster_options(words) else { return };
    let Ok(Command::Watch(args)) = Args::try_parse_from(line).and_then(Args::into_command) else { return };
    let names = async {
        let (cluster, served) = cluster::reach(&args, &Terminal::new()).await.ok()?;
        match what {
            "resources" => Some(resource_names(&served)),
            "namespaces" => {
                let api: kube::Api<Namespace> = kube::Api::all(cluster.client.clone());
                let list = api.list_metadata(&kube::api::ListParams::default()).await.ok()?;
                Some(list.items.into_iter().filter_map(|one| one.metadata.name).collect())
            }
            _ => None,
        }
    };
    if let Ok(Some(names)) = tokio::time::timeout(COMPLETE_TIMEOUT, names).await {
        let lines: Vec<String> =
            names.iter().filter(|name| is_plain(name)).map(|name| format!("{name}\n")).collect();
        // A failure is of no use to a shell.
        drop(print(&lines.concat()));
    }
}

/// Returns a command line with those options of another one that select the cluster. `None` if one lacks its value.
fn cluster_options(words: &[OsString]) -> Option<Vec<String>> {
    let mut line: Vec<String> = ["informer", "watch", "pods"].map(str::to_owned).into();
    let mut words = words.iter().filter_map(|word| word.to_str());
    while let Some(word) = words.next() {
        let (option, value) =
            word.split_once('=').map_or((word, None), |(option, value)| (option, Some(value)));
        match option {
            "--kubeconfig" | "--context" => {
                // Bash splits words at the equals sign.
                let value = value.or_else(|| words.find(|word| *word != "="))?;
                line.push(format!("{option}={}", expanded(value)));
            }
            "--demo" | "--demo-pods" => line.push("--demo".to_owned()),
            _ => {}
        }
    }
    // Given twice, the options would be an error.
    line.dedup();
    Some(line)
}

/// Replaces a tilde, which the shell does not expand in the words of a command line that is being typed.
fn expanded(path: &str) -> String {
    match (path.strip_prefix("~/"), std::env::home_dir()) {
        (Some(rest), Some(home)) => home.join(rest).display().to_string(),
        _ => path.to_owned(),
    }
}

/// Returns the shortest name of each resource that can be watched.
fn resource_names(served: &[Served]) -> Vec<String> {
    let is_name_of =
        |one: &Served, name: &str| resolve(served, name).is_ok_and(|found| found.name() == one.name());
    let shortest =
        |one: &Served| [one.plural.clone(), one.name()].into_iter().find(|name| is_name_of(one, name));
    let mut names: Vec<String> = served.iter().filter_map(shortest).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Whether a shell takes the name literally. Bash expands variables and commands in proposals.
fn is_plain(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || b"-.".contains(&letter))
}

fn script(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "informer", &mut script);
    let script = String::from_utf8_lossy(&script);
    match shell {
        Shell::Bash => format!("{script}{}", BASH.replace("@OPTIONS@", &options_with_value().join(" | "))),
        Shell::Zsh => zsh(&script),
        Shell::Fish => format!("{script}{FISH}"),
        _ => script.into_owned(),
    }
}

/// Returns the options of `watch` and `get` that take a value, apart from the namespace.
fn options_with_value() -> Vec<String> {
    let mut args = Args::command();
    // Gives commands the options of all commands.
    args.build();
    let watch = args.find_subcommand("watch").into_iter().flat_map(clap::Command::get_arguments);
    let valued = watch.filter(|arg| arg.get_action().takes_values() && arg.get_id() != "namespace");
    let names = valued.flat_map(|arg| {
        let short = arg.get_short().map(|letter| format!("-{letter}"));
        short.into_iter().chain(arg.get_long().map(|name| format!("--{name}")))
    });
    names.collect()
}

const BASH: &str = r#"
# Completes resources and namespaces from the cluster, and everything else as above.
_informer_cluster() {
    local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" kind="" prefix="" names
    if [[ "$cur" == "=" ]]; then
        cur=""
    elif [[ "$prev" == "=" ]]; then
        prev="${COMP_WORDS[COMP_CWORD-2]}"
    fi
    local command="" word
    for word in "${COMP_WORDS[@]:1}"; do
        case "$word" in watch | get | apiserver | explain | completions | man) command="$word" && break ;; esac
    done
    case "$command" in
        watch | get)
            case "$prev" in
                -n | --namespace) kind=namespaces ;;
                @OPTIONS@) ;;
                *) [[ "$cur" == -* ]] || kind=resources ;;
            esac
            ;;
    esac
    if [[ -n "$kind" && "$COMP_CWORD" -gt 1 ]]; then
        [[ "$cur" == *,* ]] && prefix="${cur%,*},"
        names="$("$1" __complete "$kind" "${COMP_WORDS[@]}" 2>/dev/null </dev/null)"
        COMPREPLY=( $(compgen -P "$prefix" -W "$names" -- "${cur#"$prefix"}") )
        [[ "${#COMPREPLY[@]}" -gt 0 ]] && return 0
    fi
    _informer "$@"
}

complete -F _informer_cluster -o bashdefault -o default informer
"#;

const FISH: &str = r#"
# Resources and namespaces from the cluster.
function __fish_informer_cluster
    informer __complete $argv (commandline -opc) 2>/dev/null </dev/null
end
for command in watch get
    complete -c informer -n "__fish_informer_using_subcommand $command" -f -a "(__fish_informer_cluster resources)"
    complete -c informer -n "__fish_informer_using_subcommand $command" -s n -l namespace -x -a "(__fish_informer_cluster namespaces)"
end
"#;

const ZSH: &str = r#"
# Resources and namespaces from the cluster.
_informer_cluster() {
    local -a names
    names=(${(f)"$(informer __complete $1 $informer_line 2>/dev/null </dev/null)"})
    compset -P '*,'
    compadd -a names
}
_informer_resources() { _informer_cluster resources }
_informer_namespaces() { _informer_cluster namespaces }
"#;

/// Replaces the actions of resources and namespaces, which complete files otherwise.
///
/// clap's script removes options from `words`, and `*::` completes no options after the first resource. Both are
/// needed, so the words are saved at the start, and `*:` is used instead.
fn zsh(script: &str) -> String {
    let line = |line: &str| {
        let line = line.replace("'*::resources -- ", "'*:resources -- ");
        if line == "_informer() {" {
            return format!("{line}\n    local -a informer_line=($words)\n");
        }
        let action = match &line {
            line if line.contains("*:resources -- ") => "_informer_resources",
            line if line.contains(")-n+[") || line.contains("--namespace=[") => "_informer_namespaces",
            line => return format!("{line}\n"),
        };
        format!("{}\n", line.replace(":_default'", &format!(":{action}'")))
    };
    let (first, rest) = script.split_once('\n').unwrap_or((script, ""));
    // The first line has to be `#compdef`.
    format!("{first}\n{ZSH}{}", rest.lines().map(line).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(group: &str, plural: &str, verbs: &[&str]) -> Served {
        let mut one = Served::default();
        one.group = group.into();
        one.version = "v1".into();
        one.plural = plural.into();
        one.verbs = verbs.iter().map(|verb| (*verb).to_owned()).collect();
        one
    }

    #[test]
    fn resources_have_their_shortest_name() {
        let all = ["list", "watch"];
        let served = [
            served("", "pods", &all),
            served("", "events", &all),
            served("events.k8s.io", "events", &all),
            served("apps", "deployments", &all),
            served("authentication.k8s.io", "tokenreviews", &["create"]),
        ];
        assert_eq!(resource_names(&served), ["deployments", "events", "events.events.k8s.io", "pods"]);
    }

    #[test]
    fn options_of_the_cluster_are_found() {
        for (line, expected) in [
            ("informer watch po -A", Some("")),
            ("informer get --kubeconfig k -n", Some("--kubeconfig=k")),
            ("informer get --kubeconfig = k --context=a", Some("--kubeconfig=k --context=a")),
            ("informer get --demo --demo-pods 50 ", Some("--demo")),
            ("informer get --kubeconfig", None),
        ] {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let options = cluster_options(&words).map(|line| line[3..].join(" "));
            assert_eq!(options.as_deref(), expected, "{line}");
        }
    }

    /// Bash would run a command in the name of a resource.
    #[test]
    fn names_that_a_shell_interprets_are_not_proposed() {
        assert!(is_plain("events.events.k8s.io") && is_plain("kube-system"));
        for name in ["", "$(id)", "`id`", "a b", "a;b", "a\nb", "~", "*", "a/b", "A"] {
            assert!(!is_plain(name), "{name}");
        }
    }

    #[test]
    fn scripts_of_common_shells_ask_the_cluster() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            assert!(script(shell).contains("informer __complete") || shell == Shell::Bash, "{shell}");
        }
        let bash = script(Shell::Bash);
        assert!(bash.contains("\"$1\" __complete") && bash.contains(" -o | --output | "), "{bash}");
        assert!(bash.contains(" | --color"), "{bash}");
        let zsh = script(Shell::Zsh);
        assert!(zsh.starts_with("#compdef informer\n"), "{zsh}");
        // For `watch` and `get`.
        assert_eq!(zsh.matches(":_informer_resources'").count(), 2, "{zsh}");
        assert_eq!(zsh.matches(":_informer_namespaces'").count(), 4, "{zsh}");
        // Bug: `informer get --demo po` and `informer get pods -n` were not completed. The words that the script passed
        // on lacked the options before the first resource, and zsh took everything after it for resources. No test
        // ran the script.
        assert!(zsh.contains("_informer() {\n    local -a informer_line=($words)\n"), "{zsh}");
        assert_eq!(
            (zsh.matches("'*:resources").count(), zsh.matches("'*::resources").count()),
            (2, 0),
            "{zsh}"
        );
    }
}
