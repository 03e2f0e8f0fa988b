//! The command line.

use crate::show::Format;
use clap::builder::styling::{AnsiColor, Styles};
use clap::{Parser, Subcommand};
use informer::{FieldSelector, LabelSelector};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

const CODES: &str = "\
Exit codes:
  0    done; also after Ctrl-C
  1    it failed: no cluster, no such resource, not synced in time
  2    the command line is wrong
  130  a second Ctrl-C ended it at once";

/// Kubernetes informers on the command line
///
/// Without a command it watches pods: of your cluster, or, where no kubeconfig is found, of a demo cluster that runs inside this program.
#[derive(Debug, Parser)]
#[command(name = "informer", version, styles = STYLES, after_help = CODES, max_term_width = 100)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Watch(Watch),
    Apiserver(Apiserver),
    /// Prints a completion script for a shell
    #[command(
        after_help = "Example:\n  informer completions bash > ~/.local/share/bash-completion/completions/informer"
    )]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

const WATCH_EXAMPLES: &str = "\
Examples:
  informer watch pods                            the pods of the current namespace
  informer watch deploy,rs,po -A                 three kinds, all namespaces
  informer watch pods -l app=web -o json | jq    JSON, one object a line
  informer watch widgets.example.com --once      the custom resources that are there now
  informer watch nodes leases -A --demo          the same on a demo cluster

Values of Secrets are never shown: neither in lines, nor in changes, nor in JSON and YAML, where <hidden> stands for them. \
Control characters in whatever the cluster sends are spelled out.

Exit codes:
  0    done; also after Ctrl-C, and when the reader of the output goes away
  1    it failed: no cluster, no such resource, or with --once not synced in time
  2    the command line is wrong
  130  a second Ctrl-C ended it at once";

/// Prints what happens to the objects of some resources
///
/// One shared informer per resource: first everything that is there, then every change with what it changes. Lost connections are made anew, and what
/// happened meanwhile is told.
#[derive(Debug, clap::Args)]
#[command(after_help = WATCH_EXAMPLES)]
pub(crate) struct Watch {
    /// What to watch: plural, singular, short name or kind, with group or version and group where needed
    /// (deployments.apps, deployments.v1.apps); several separated by blanks or commas
    #[arg(required = true, value_name = "RESOURCE", value_delimiter = ',')]
    pub(crate) resources: Vec<String>,
    /// The namespace; without it that of the context, and on the demo cluster all
    #[arg(short, long, value_name = "NAME", conflicts_with = "all_namespaces", value_parser = namespace)]
    pub(crate) namespace: Option<String>,
    /// All namespaces
    #[arg(short = 'A', long)]
    pub(crate) all_namespaces: bool,
    /// Only objects with these labels: app=web,tier!=cache
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub(crate) selector: Option<LabelSelector>,
    /// Only objects with these fields, as far as the server can select on them: spec.nodeName=node-1
    #[arg(long, value_name = "SELECTOR")]
    pub(crate) field_selector: Option<FieldSelector>,
    /// What the output looks like
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    pub(crate) output: Format,
    /// Tell everything again in such periods, as RESYNC, without asking the server: 60s, 5m
    #[arg(long, value_name = "PERIOD", value_parser = duration)]
    pub(crate) resync: Option<Duration>,
    /// Print what is there, and end
    #[arg(long)]
    pub(crate) once: bool,
    /// How long it may take to reach the server and learn what it has, and with --once, everything
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub(crate) timeout: Duration,
    /// The kubeconfig; without it $KUBECONFIG, ~/.kube/config, or the account of the pod this runs in
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Use the demo cluster, with about so many pods
    #[arg(
        long, value_name = "PODS", num_args = 0..=1, require_equals = true, default_missing_value = "40",
        conflicts_with_all = ["kubeconfig", "context"], value_parser = pods()
    )]
    pub(crate) demo: Option<u64>,
}

const APISERVER_EXAMPLES: &str = "\
Examples:
  informer apiserver --demo                         a demo cluster for kubectl and other programs
  informer apiserver --port 8443 --kubeconfig k     an empty server; kubectl --kubeconfig k get ns
  informer apiserver --demo 2000 --kubeconfig k     then: informer watch pods -A --kubeconfig k";

/// Runs the embedded API server on a socket, with TLS and a token
///
/// Until Ctrl-C. Nothing is stored: what was written is gone when it ends, and so is the kubeconfig.
#[derive(Debug, clap::Args)]
#[command(after_help = APISERVER_EXAMPLES)]
pub(crate) struct Apiserver {
    /// The port; 0 means any that is free
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(crate) port: u16,
    /// The address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub(crate) address: IpAddr,
    /// Where to write the kubeconfig that leads to it
    #[arg(long, value_name = "FILE", default_value = "informer.kubeconfig")]
    pub(crate) kubeconfig: PathBuf,
    /// Replace that file if it is there
    #[arg(long)]
    pub(crate) force: bool,
    /// Fill it with a demo cluster of about so many pods, and keep it moving
    #[arg(long, value_name = "PODS", num_args = 0..=1, default_missing_value = "40", value_parser = pods())]
    pub(crate) demo: Option<u64>,
}

impl Command {
    /// What is done if nothing is said.
    pub(crate) fn first_look() -> Self {
        match Args::parse_from(["informer", "watch", "pods"]).command {
            Some(command) => command,
            None => Self::Completions { shell: clap_complete::Shell::Bash },
        }
    }
}

fn pods() -> clap::builder::RangedU64ValueParser<u64> {
    clap::value_parser!(u64).range(1..=20_000)
}

/// Longer than anybody waits, and nothing that is reckoned with it overflows.
const LONGEST: Duration = Duration::from_hours(365 * 24);

/// A span of time as people write it: `90s`, `1m30s`, `2h`, `500ms`.
fn duration(text: &str) -> Result<Duration, String> {
    let expected = || "expected a time such as 60s, 1m30s or 2h, and a year at most".to_owned();
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
            "m" => Duration::from_mins(1),
            "h" => Duration::from_hours(1),
            _ => return Err(expected()),
        };
        sum = unit.checked_mul(number).and_then(|part| sum.checked_add(part)).ok_or_else(expected)?;
        rest = after;
    }
    if sum.is_zero() || sum > LONGEST { Err(expected()) } else { Ok(sum) }
}

/// A namespace's name: it becomes a part of a path.
pub(crate) fn namespace(text: &str) -> Result<String, String> {
    let fits = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    if text.is_empty() || text.len() > 63 || !text.chars().all(fits) {
        return Err(
            "a namespace has lower-case letters, digits and '-', 63 at most (all of them: -A)".to_owned()
        );
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_well_formed() {
        Args::command().debug_assert();
    }

    #[test]
    fn nothing_said_means_pods() {
        let Command::Watch(watch) = Command::first_look() else { panic!("not a watch") };
        assert_eq!(watch.resources, ["pods"]);
        assert!(!watch.once && watch.demo.is_none());
    }

    #[test]
    fn times_are_read_as_people_write_them() {
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
    fn a_demo_takes_its_size_behind_an_equals_sign() {
        let parse = |line: &str| match Args::try_parse_from(line.split(' ')).map(|args| args.command) {
            Ok(Some(Command::Watch(watch))) => Ok((watch.resources, watch.demo)),
            Ok(_) => Err("another command".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        assert_eq!(
            parse("informer watch --demo pods,svc"),
            Ok((vec!["pods".into(), "svc".into()], Some(40)))
        );
        assert_eq!(parse("informer watch pods --demo=500"), Ok((vec!["pods".into()], Some(500))));
        assert!(parse("informer watch pods --demo=0").is_err());
        assert!(parse("informer watch pods --demo --context a").is_err());
        assert!(parse("informer watch pods -A -n a").is_err());
        assert!(parse("informer watch pods -n ../x").is_err());
        assert!(parse("informer watch").is_err());
    }
}
