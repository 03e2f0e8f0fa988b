//! Command line arguments.

use crate::show::jsonpath::JsonPath;
use crate::show::{Format, FormatParser};
use clap::builder::styling::{AnsiColor, Styles};
use clap::{Parser, Subcommand};
use informer::selector::{FieldSelector, LabelSelector};
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

const EXIT_CODES: &str = "\
Examples:
  informer                         pods of the current namespace, or of a demo
  informer --demo                  pods of a demo cluster
  informer --demo-pods 500         pods of a larger one
  informer get nodes --demo        the demo options are those of all commands
  informer watch deploy,pods -A    two kinds, all namespaces

Exit codes:
  0    success, or a watch stopped with Ctrl-C
  1    failure: no cluster, unknown resource, not synced in time
  2    invalid command line
  130  stopped before all objects were printed (get, --once), or by a second Ctrl-C";

/// Kubernetes informers on the command line
///
/// Without a command, watches the pods in the current namespace of the kubeconfig or service account. If there
/// is neither, watches the pods of a demo cluster inside this program.
#[derive(Debug, Parser)]
#[command(name = "informer", version, styles = STYLES, after_help = EXIT_CODES, max_term_width = 100)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) demo: Demo,
}

/// Options of the demo cluster, the same for all commands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct Demo {
    /// Start a demo cluster: a simulated cluster inside this program
    #[arg(long)]
    demo: bool,
    /// Approximate number of pods of the demo cluster (default 40); implies --demo
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=20_000))]
    demo_pods: Option<u64>,
}

/// Number of pods of the demo cluster unless `--demo-pods` is given.
pub(crate) const DEFAULT_DEMO_PODS: u64 = 40;

impl Demo {
    /// Returns the number of pods of the demo cluster, if one is requested.
    pub(crate) fn size(self) -> Option<u64> {
        self.demo_pods.or(self.demo.then_some(DEFAULT_DEMO_PODS))
    }
}

/// Returns the number that follows `--demo`, where it would be taken for a resource or a command.
pub(crate) fn number_after_demo(args: &[OsString]) -> Option<&str> {
    let is_number = |text: &&str| !text.is_empty() && text.bytes().all(|letter| letter.is_ascii_digit());
    let mut args = args.iter().map(|arg| arg.to_str().unwrap_or_default()).peekable();
    while let Some(arg) = args.next() {
        let number = if arg == "--demo" { args.peek().copied() } else { arg.strip_prefix("--demo=") };
        if let Some(number) = number.filter(is_number) {
            return Some(number);
        }
    }
    None
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Watch(Watch),
    // Set here, because the texts of `Watch` replace those of `Get`.
    #[command(about = GET_ABOUT, long_about = GET_LONG_ABOUT, after_help = GET_EXAMPLES)]
    Get(Get),
    Apiserver(Apiserver),
    /// Explains a state of an informer or a reason of a failure
    ///
    /// Prints what it means and what to do about it. Without an argument, lists all states and reasons.
    #[command(
        after_help = "Examples:\n  informer explain\n  informer explain NotServed\n  informer explain backing-off"
    )]
    Explain {
        /// State or reason, as in logs and metrics
        state: Option<String>,
    },
    /// Prints a shell completion script
    ///
    /// In bash, zsh and fish, resources and namespaces are completed from the cluster.
    #[command(
        after_help = "Example:\n  informer completions bash \\\n    > ~/.local/share/bash-completion/completions/informer"
    )]
    Completions {
        /// Shell
        shell: clap_complete::Shell,
    },
}

const WATCH_EXAMPLES: &str = "\
Examples:
  informer watch pods                          pods of the current namespace
  informer watch deploy,rs,po -A               three kinds, all namespaces
  informer watch pods/web-0                    one object
  informer watch pods --live                   a table that is redrawn in place
  informer watch pods -l app=web -o json | jq  JSON, one object per line
  informer watch widgets.example.com --once    existing custom resources only
  informer watch nodes leases -A --demo        resources of a demo cluster

Values of Secrets are never printed; JSON and YAML contain <hidden> instead. \
Control characters in data from the cluster are escaped.

Exit codes:
  0    success, without --once stopped with Ctrl-C, or output closed by its reader
  1    failure: no cluster, unknown resource, with --once not synced in time
  2    invalid command line
  130  with --once stopped before all objects were printed, or by a second Ctrl-C";

/// Prints objects and their changes
///
/// Runs one shared informer per resource: prints the existing objects, then every change with the fields that differ.
/// Lost connections are restored, and changes made in the meantime are printed.
#[derive(Debug, clap::Args)]
#[command(after_help = WATCH_EXAMPLES)]
pub(crate) struct Watch {
    /// Resources: plural, singular, short name or kind, optionally with group or version and group
    /// (deployments.apps, deployments.v1.apps), or objects (pods/web-0); separated by spaces or commas
    #[arg(required = true, value_name = "RESOURCE", value_delimiter = ',')]
    pub(crate) resources: Vec<String>,
    /// Namespace; defaults to that of the context, or to all namespaces of the demo cluster
    #[arg(short, long, value_name = "NAME", conflicts_with = "all_namespaces", value_parser = namespace)]
    pub(crate) namespace: Option<String>,
    /// Watch all namespaces
    #[arg(short = 'A', long)]
    pub(crate) all_namespaces: bool,
    /// Label selector, such as app=web,tier!=cache
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub(crate) selector: Option<LabelSelector>,
    /// Field selector, such as spec.nodeName=node-1; the server must support the field
    #[arg(long, value_name = "SELECTOR")]
    pub(crate) field_selector: Option<FieldSelector>,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "table", value_parser = FormatParser)]
    pub(crate) output: Format,
    /// Sort by a field, such as .metadata.creationTimestamp or {.status.startTime}; with get or --live
    #[arg(long, value_name = "JSONPATH")]
    pub(crate) sort_by: Option<JsonPath>,
    /// Show a table of the current objects that is redrawn in place; needs a terminal
    #[arg(long, conflicts_with_all = ["once", "resync_period"])]
    pub(crate) live: bool,
    /// Print every cached object again at this period (60s, 5m), as RESYNC; sends no request
    #[arg(long, value_name = "PERIOD", value_parser = duration)]
    pub(crate) resync_period: Option<Duration>,
    /// Print the existing objects and exit
    #[arg(long)]
    pub(crate) once: bool,
    /// Time limit for connecting and discovery and, with --once, for the whole command
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub(crate) timeout: Duration,
    /// Kubeconfig; defaults to $KUBECONFIG, ~/.kube/config or the service account of the pod
    #[arg(long, value_name = "FILE", conflicts_with_all = ["demo", "demo_pods"])]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME", conflicts_with_all = ["demo", "demo_pods"])]
    pub(crate) context: Option<String>,
    #[command(flatten)]
    pub(crate) demo: Demo,
    #[arg(skip)]
    pub(crate) without_cluster: WithoutCluster,
    /// What is printed without --live.
    #[arg(skip)]
    view: View,
}

/// What to do if there is neither a kubeconfig nor a service account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum WithoutCluster {
    /// Fail, because a resource of a certain cluster is expected.
    #[default]
    Fail,
    /// Start the demo cluster: only if no command is given.
    StartDemo,
}

impl Watch {
    pub(crate) fn view(&self) -> View {
        if self.live { View::Live } else { self.view }
    }
}

const GET_EXAMPLES: &str = "\
Examples:
  informer get pods                            pods of the current namespace
  informer get pods -w                         as informer watch pods
  informer get deploy/web svc/web -o yaml      two objects
  informer get pods -A --sort-by .metadata.creationTimestamp
  informer get pods -o jsonpath='{.items[*].metadata.name}'
  informer get pods -o custom-columns=NAME:.metadata.name,NODE:.spec.nodeName

A single object of one namespace is printed by itself, everything else as a List: \
in all namespaces, several objects may have the same name.

Values of Secrets are never printed; every format contains <hidden> instead. \
Control characters in data from the cluster are escaped.

Exit codes:
  0    success, with -w or --live stopped with Ctrl-C, or output closed by its reader
  1    failure: no cluster, unknown resource or object, not synced in time
  2    invalid command line
  130  stopped before all objects were printed, or with -w or --live by a second Ctrl-C";

const GET_ABOUT: &str = "Prints the current objects and exits";
const GET_LONG_ABOUT: &str = "\
Prints the current objects and exits

Takes the options of kubectl get. With -w, continues as informer watch.";

/// Arguments of `informer get`.
#[derive(Debug, clap::Args)]
#[command(mut_arg("once", |arg| arg.hide(true)), mut_arg("resync_period", |arg| arg.hide(true)))]
pub(crate) struct Get {
    #[command(flatten)]
    watch: Watch,
    /// After the current objects, print changes, as informer watch
    #[arg(short = 'w', long = "watch")]
    follow: bool,
}

impl Get {
    /// Returns the command as a variant of `watch`.
    pub(crate) fn into_watch(self) -> Watch {
        let view = if self.follow { View::Events } else { View::Objects };
        let once = self.watch.once || !(self.follow || self.watch.live);
        Watch { once, view, ..self.watch }
    }
}

/// What a command prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum View {
    /// Events: the time, the type and the changes of each.
    #[default]
    Events,
    /// The current objects.
    Objects,
    /// The current objects, redrawn in place.
    Live,
}

const APISERVER_EXAMPLES: &str = "\
Examples:
  informer apiserver --demo                      demo cluster for any client
  informer apiserver --port 8443 --kubeconfig k  empty server on a fixed port
  informer apiserver --demo-pods 2000            larger demo cluster

Clients connect with the kubeconfig:
  kubectl --kubeconfig informer.kubeconfig get pods -A
  informer watch pods -A --kubeconfig informer.kubeconfig";

/// Runs the embedded API server on a socket, with TLS and a token
///
/// Runs until Ctrl-C. Nothing is persisted: all objects are lost on exit, and the kubeconfig is removed.
#[derive(Debug, clap::Args)]
#[command(after_help = APISERVER_EXAMPLES)]
pub(crate) struct Apiserver {
    /// Port; 0 selects a free one
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(crate) port: u16,
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub(crate) address: IpAddr,
    /// Where to write the kubeconfig for clients
    #[arg(long, value_name = "FILE", default_value = "informer.kubeconfig")]
    pub(crate) kubeconfig: PathBuf,
    /// Overwrite the kubeconfig if it exists
    #[arg(long)]
    pub(crate) overwrite: bool,
    #[command(flatten)]
    pub(crate) demo: Demo,
}

impl Command {
    /// Returns the command to run if none is given.
    pub(crate) fn default_command(demo: Demo) -> Self {
        match Args::parse_from(["informer", "watch", "pods"]).command {
            Some(Self::Watch(watch)) => {
                Self::Watch(Watch { without_cluster: WithoutCluster::StartDemo, demo, ..watch })
            }
            Some(command) => command,
            // Never happens: the arguments contain a command.
            None => Self::Completions { shell: clap_complete::Shell::Bash },
        }
    }
}

/// Upper bound on durations, so that computations with them do not overflow.
const MAX_DURATION: Duration = Duration::from_secs(365 * 24 * 3600);

/// Parses a duration such as `90s`, `1m30s`, `2h` or `500ms`.
fn duration(text: &str) -> Result<Duration, String> {
    let expected = || "expected a duration such as 60s, 1m30s or 2h, at most a year".to_owned();
    let mut rest = text;
    let mut sum = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit()).ok_or_else(expected)?;
        let (number, after) = rest.split_at(digits);
        let unit = after.find(|letter: char| letter.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit);
        let number: u32 = number.parse().map_err(|_| expected())?;
        let unit = match unit {
            "ms" => Duration::from_millis(1),
            "s" => Duration::from_secs(1),
            "m" => Duration::from_secs(60),
            "h" => Duration::from_secs(3600),
            _ => return Err(expected()),
        };
        sum = unit.checked_mul(number).and_then(|part| sum.checked_add(part)).ok_or_else(expected)?;
        rest = after;
    }
    if sum.is_zero() || sum > MAX_DURATION { Err(expected()) } else { Ok(sum) }
}

/// Validates the name of a namespace, which becomes a part of a URL path.
pub(crate) fn namespace(text: &str) -> Result<String, String> {
    let fits = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    if text.is_empty() || text.len() > 63 || !text.chars().all(fits) {
        return Err(
            "a namespace has at most 63 lower-case letters, digits and '-'; use -A for all namespaces"
                .to_owned(),
        );
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn command_line_definition_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn default_command_watches_pods() {
        let Command::Watch(watch) = Command::default_command(Demo::default()) else { panic!("not a watch") };
        assert_eq!(watch.resources, ["pods"]);
        assert!(!watch.once && watch.demo.size().is_none());
        assert_eq!(watch.without_cluster, WithoutCluster::StartDemo);
    }

    #[test]
    fn demo_options_are_the_same_for_all_commands() {
        for (line, expected) in [
            ("informer", None),
            ("informer --demo", Some(40)),
            ("informer --demo-pods 7", Some(7)),
            ("informer watch pods --demo", Some(40)),
            ("informer get --demo-pods 7 pods", Some(7)),
            ("informer apiserver --demo --demo-pods 7 --kubeconfig k", Some(7)),
        ] {
            let Args { command, demo } = Args::try_parse_from(line.split(' ')).unwrap();
            let demo = match command.unwrap_or_else(|| Command::default_command(demo)) {
                Command::Watch(watch) => watch.demo,
                Command::Get(get) => get.into_watch().demo,
                Command::Apiserver(apiserver) => apiserver.demo,
                Command::Completions { .. } | Command::Explain { .. } => Demo::default(),
            };
            assert_eq!(demo.size(), expected, "{line}");
        }
        assert!(Args::try_parse_from(["informer", "--demo", "watch", "pods"]).is_err());
    }

    #[test]
    fn number_after_demo_is_found() {
        for (line, expected) in [
            ("informer --demo 100", Some("100")),
            ("informer watch --demo 100 pods", Some("100")),
            ("informer watch pods --demo=100", Some("100")),
            ("informer apiserver --demo 100", Some("100")),
            ("informer watch pods --demo", None),
            ("informer watch --demo pods --demo-pods 100", None),
            ("informer watch pods -n 100 --demo", None),
        ] {
            let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert_eq!(number_after_demo(&args), expected, "{line}");
        }
    }

    #[test]
    fn get_prints_objects_once_unless_it_watches() {
        let parse = |line: &str| match Args::try_parse_from(line.split(' ')).map(|args| args.command) {
            Ok(Some(Command::Get(get))) => get.into_watch(),
            other => panic!("{other:?}"),
        };
        let get = parse("informer get pods/web-0 --sort-by .metadata.name -o jsonpath={.metadata.name}");
        assert!(get.once && get.view() == View::Objects && get.sort_by.is_some());
        assert_eq!(get.resources, ["pods/web-0"]);
        let get = parse("informer get pods -w -A");
        assert!(!get.once && get.view() == View::Events && get.all_namespaces);
        for line in ["informer get pods --live", "informer get pods -w --live"] {
            let get = parse(line);
            assert!(!get.once && get.view() == View::Live, "{line}");
        }
        let help = Args::try_parse_from(["informer", "get", "--help"]).unwrap_err().to_string();
        assert!(
            help.contains("Prints the current objects") && help.contains("informer get pods -w"),
            "{help}"
        );
        assert!(!help.contains("Print the existing objects") && help.contains("--sort-by"), "{help}");
        let help = Args::try_parse_from(["informer", "watch", "--help"]).unwrap_err().to_string();
        assert!(help.contains("Prints objects and their changes") && help.contains("--once"), "{help}");
    }

    #[test]
    fn durations_are_parsed() {
        for (text, expected) in [("60s", 60_000), ("1m30s", 90_000), ("2h", 7_200_000), ("500ms", 500)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(expected)), "{text}");
        }
        for text in
            ["", "5", "s", "-5s", "1.5s", "10d", "0s", "99999999999s", "4294967295h4294967295h", "5 s", "٣s"]
        {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn demo_pods_sets_size_and_implies_demo() {
        let parse = |line: &str| match Args::try_parse_from(line.split(' ')).map(|args| args.command) {
            Ok(Some(Command::Watch(watch))) => Ok((watch.demo.size(), watch.resources)),
            Ok(_) => Err("another command".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        assert_eq!(
            parse("informer watch --demo pods,svc"),
            Ok((Some(40), vec!["pods".into(), "svc".into()]))
        );
        assert_eq!(parse("informer watch --demo --demo-pods 500 pods"), Ok((Some(500), vec!["pods".into()])));
        assert_eq!(parse("informer watch pods --demo-pods 500"), Ok((Some(500), vec!["pods".into()])));
        assert!(parse("informer watch pods --demo-pods 0").is_err());
        assert!(parse("informer watch pods --demo --context a").is_err());
        assert!(parse("informer watch pods --demo-pods 5 --kubeconfig k").is_err());
        assert!(parse("informer watch pods -A -n a").is_err());
        assert!(parse("informer watch pods -n ../x").is_err());
        assert!(parse("informer watch").is_err());
    }
}
