//! Command line arguments.

mod shards;

pub(crate) use shards::Shards;

use crate::show::{Format, Headers};
use clap::builder::styling::{AnsiColor, Styles};
use clap::error::ErrorKind;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum as _};
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
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    demo: Demo,
    // Its value is needed for errors of the command line, so it is read by `Color::find`.
    #[arg(long, value_name = "WHEN", default_value = "auto", global = true, help = COLOR_HELP)]
    _color: Color,
}

const COLOR_HELP: &str = "When to use colors; auto: on a terminal, unless NO_COLOR is set";

/// When to use colors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

impl Color {
    /// Returns the value of `--color` in a command line that need not be valid.
    pub(crate) fn find(args: &[OsString]) -> Self {
        let mut args = args.iter().map(|arg| arg.to_str().unwrap_or_default());
        let value = args.find_map(|arg| match arg.strip_prefix("--color")? {
            "" => Some(None),
            value => Some(Some(value.strip_prefix('=')?)),
        });
        let value = value.and_then(|value| value.or_else(|| args.next()));
        value.and_then(|value| Self::from_str(value, false).ok()).unwrap_or(Self::Auto)
    }
}

impl From<Color> for anstream::ColorChoice {
    fn from(color: Color) -> Self {
        match color {
            Color::Auto => Self::Auto,
            Color::Always => Self::Always,
            Color::Never => Self::Never,
        }
    }
}

impl From<Color> for clap::ColorChoice {
    fn from(color: Color) -> Self {
        match color {
            Color::Auto => Self::Auto,
            Color::Always => Self::Always,
            Color::Never => Self::Never,
        }
    }
}

impl Args {
    /// Parses a command line. Help and errors use colors as `--color` selects.
    pub(crate) fn try_parse_colored(args: &[OsString]) -> Result<Self, clap::Error> {
        let command = Self::command().color(Color::find(args).into());
        Self::from_arg_matches(&command.try_get_matches_from(args)?)
    }

    /// Returns the command with the demo options, which may also be given before it. Without a command, pods are
    /// watched.
    pub(crate) fn into_command(self) -> Result<Command, clap::Error> {
        let Self { command, demo: before, .. } = self;
        let Some(mut command) = command else { return Ok(Command::default_command(before)) };
        if before.size().is_none() {
            return Ok(command);
        }
        let conflict = |text: &str| Err(Self::command().error(ErrorKind::ArgumentConflict, text));
        let demo = match &mut command {
            Command::Watch(watch) | Command::Get(Get { watch, .. }) => {
                if watch.kubeconfig.is_some() || watch.context.is_some() {
                    return conflict("a demo cluster has no kubeconfig and no context");
                }
                &mut watch.demo
            }
            Command::Apiserver(apiserver) => &mut apiserver.demo,
            _ => return conflict("this command has no demo cluster"),
        };
        *demo = Demo { demo: true, demo_pods: demo.demo_pods.or(before.demo_pods) };
        Ok(command)
    }
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
    Shards(Shards),
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
    /// Prints a manual page
    ///
    /// In the format of man(1). Without an argument, the page of the program.
    #[command(after_help = "Examples:\n  informer man | man -l -\n  informer man watch > informer-watch.1")]
    Man {
        /// Command whose page is printed
        command: Option<String>,
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
    #[arg(short, long, value_name = "FORMAT", default_value = "table", value_enum)]
    pub(crate) output: Format,
    /// Show a table of the current objects that is redrawn in place; needs a terminal
    #[arg(long, conflicts_with_all = ["once", "resync_period"])]
    pub(crate) live: bool,
    /// Print every cached object again at this period (60s, 5m), as RESYNC; sends no request
    #[arg(long, value_name = "PERIOD", value_parser = duration)]
    pub(crate) resync_period: Option<Duration>,
    /// Print the existing objects and exit
    #[arg(long)]
    pub(crate) once: bool,
    /// Continue where the last run with this directory ended: print what has changed since, deletions included, and save
    /// the state there. Changes of an object that follow each other quickly are printed as one. Not for Secrets
    #[arg(long, value_name = "DIR", conflicts_with_all = ["live", "resync_period", "demo", "demo_pods"])]
    pub(crate) state: Option<PathBuf>,
    /// Time limit for connecting and discovery and, unless changes are watched, for the whole command
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
    #[arg(skip)]
    pub(crate) headers: Headers,
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
  informer get nodes -o name                   names only

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

With -w, continues as informer watch.";

/// Arguments of `informer get`.
#[derive(Debug, clap::Args)]
#[command(mut_arg("once", |arg| arg.hide(true)), mut_arg("resync_period", |arg| arg.hide(true)), mut_arg("state", |arg| arg.hide(true)))]
pub(crate) struct Get {
    #[command(flatten)]
    watch: Watch,
    /// After the current objects, print changes, as informer watch
    #[arg(short = 'w', long = "watch")]
    follow: bool,
    /// Print tables without titles
    #[arg(long, conflicts_with_all = ["follow", "live"])]
    no_headers: bool,
}

impl Get {
    /// Returns the command as a variant of `watch`.
    pub(crate) fn into_watch(self) -> Watch {
        let view = if self.follow { View::Events } else { View::Objects };
        let headers = if self.no_headers { Headers::Hidden } else { Headers::Shown };
        let once = self.watch.once || !(self.follow || self.watch.live);
        Watch { once, view, headers, ..self.watch }
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
        Self::Watch(Watch { without_cluster: WithoutCluster::StartDemo, demo, ..Watch::of_pods() })
    }
}

/// The arguments of a watch without the program and the command.
#[derive(Debug, Parser)]
struct WatchArgs {
    #[command(flatten)]
    watch: Watch,
}

impl Watch {
    /// Returns the arguments of `informer watch pods`.
    fn of_pods() -> Self {
        WatchArgs::parse_from(["watch", "pods"]).watch
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
mod tests;
