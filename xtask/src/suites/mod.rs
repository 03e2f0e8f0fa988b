//! `cargo xtask suites`: runs test suites of other Kubernetes clients against the embedded server and against
//! kube-apiserver, and prints the results side by side.
//!
//! The suites are written for kube-apiserver: a test that passes there and fails on the embedded server shows
//! a fault of the embedded server. Each suite gets a new server, because suites leave objects behind. Tests
//! that are expected to fail are listed in [`known`]; every other failure, and a listed test that passes,
//! fails the command.
//!
//! Sources, test programs, logs and reports are in `target/debug/suites`. kube-apiserver is left out
//! if `cargo xtask control-plane` has not built it.

mod controller_runtime;
mod known;
mod report;
mod server;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use crate::control_plane::{self, Interrupt};
use crate::failure::Failure;
use crate::repo::Repo;
use controller_runtime::Suite;
use report::{Row, Server};

/// The suites, fastest first.
const SUITES: &[Suite] = &[
    Suite { name: "controller", function: "TestSource" },
    Suite { name: "builder", function: "TestBuilder" },
    Suite { name: "client", function: "TestClient" },
    Suite { name: "cache", function: "TestSource" },
];

/// The suites of the short form.
const QUICK: &[&str] = &["controller", "builder"];

/// What to run.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    suites: Vec<&'static Suite>,
    /// Whether the suites also run against kube-apiserver.
    compare: bool,
}

/// Runs the short form. Returns the reason if the sources of the suites cannot be downloaded.
pub(crate) fn run_quick(repo: &Repo) -> Result<Option<String>, Failure> {
    match run(repo, &["--quick".to_owned()]) {
        Ok(()) => Ok(None),
        Err(Failure::Failed(reason)) if control_plane::is_network_error(&reason) => Ok(Some(reason)),
        Err(failure) => Err(failure),
    }
}

pub(crate) fn run(repo: &Repo, args: &[String]) -> Result<(), Failure> {
    let mut options = Options::parse(args)?;
    if options.compare && !control_plane::is_built(repo)? {
        options.compare = false;
        println!(
            "kube-apiserver is not built, only the embedded server is tested (build it with `cargo xtask \
             control-plane up`)"
        );
    }
    let interrupt = Interrupt::listen()?;
    let folder = Folder::create()?;
    let sources = controller_runtime::fetch(repo, &folder)?;
    controller_runtime::compile(&sources, &folder, &options.suites, &interrupt)?;
    let program = server::build(repo)?;
    let mut rows = Vec::new();
    for suite in &options.suites {
        println!("{}: embedded server", suite.name);
        let embedded = server::with_embedded(&program, &folder, &interrupt, |kubeconfig| {
            suite.run(&sources, &folder, Server::Embedded, kubeconfig, &interrupt)
        })?;
        let mut reports = vec![(Server::Embedded, embedded)];
        if options.compare {
            println!("{}: kube-apiserver", suite.name);
            let compared = control_plane::with_new(repo, &interrupt, |kubeconfig| {
                suite.run(&sources, &folder, Server::ControlPlane, kubeconfig, &interrupt)
            })?;
            reports.push((Server::ControlPlane, compared));
        }
        rows.push(Row { suite: suite.name, reports });
    }
    print!("{}", report::render(&rows, known::KNOWN));
    let problems = report::problems(&rows, known::KNOWN);
    if problems.is_empty() {
        return Ok(());
    }
    Err(Failure::Failed(format!(
        "{} (known failures are in xtask/src/suites/known.rs, logs in {})",
        problems.join("\n"),
        folder.path("").display()
    )))
}

impl Options {
    fn parse(args: &[String]) -> Result<Self, Failure> {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let (names, compare) = match args[..] {
            [] => return Ok(Self { suites: SUITES.iter().collect(), compare: true }),
            ["--quick"] => (QUICK, false),
            ref names => (names, true),
        };
        let suite = |name: &&str| SUITES.iter().find(|suite| suite.name == *name);
        let suites = names.iter().map(|name| {
            suite(name).ok_or_else(|| {
                let known: Vec<&str> = SUITES.iter().map(|suite| suite.name).collect();
                Failure::Usage(format!("unknown suite `{name}` (known: {})", known.join(", ")))
            })
        });
        Ok(Self { suites: suites.collect::<Result<_, _>>()?, compare })
    }
}

/// The folder `suites` beside this program.
struct Folder(PathBuf);

impl Folder {
    fn create() -> Result<Self, Failure> {
        let own = env::current_exe()
            .map_err(|error| Failure::Failed(format!("cannot find the path of this program: {error}")))?;
        let folder = own.with_file_name("suites");
        fs::create_dir_all(&folder).map_err(|error| cannot("create", &folder, &error))?;
        Ok(Self(folder))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

/// Returns the failure of an operation on a file or folder.
fn cannot(operation: &str, path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::Failed(format!("cannot {operation} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<(String, bool), String> {
        let args: Vec<String> = args.iter().map(ToString::to_string).collect();
        let options = Options::parse(&args).map_err(Failure::message)?;
        let names: Vec<&str> = options.suites.iter().map(|suite| suite.name).collect();
        Ok((names.join(" "), options.compare))
    }

    #[test]
    fn all_suites_run_by_default() {
        assert_eq!(parse(&[]).unwrap(), ("controller builder client cache".to_owned(), true));
        assert_eq!(parse(&["cache"]).unwrap(), ("cache".to_owned(), true));
        assert_eq!(parse(&["--quick"]).unwrap(), ("controller builder".to_owned(), false));
        assert_eq!(
            parse(&["cash"]).unwrap_err(),
            "unknown suite `cash` (known: controller, builder, client, cache)"
        );
        assert!(parse(&["--quick", "cache"]).unwrap_err().starts_with("unknown suite `--quick`"));
    }

    /// A typing error in the list would be reported only when the suite runs.
    #[test]
    fn known_failures_name_suites() {
        for known in known::KNOWN {
            assert!(SUITES.iter().any(|suite| suite.name == known.suite), "{}", known.suite);
        }
    }
}
