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
mod files;
mod known;
mod kube_rs;
mod report;
mod server;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use crate::control_plane::{self, Interrupt};
use crate::failure::Failure;
use crate::repo::Repo;
use files::Folder;
use report::{Report, Row, Server};

/// A suite of another client.
struct Suite {
    name: &'static str,
    tests: Tests,
}

/// Where the tests of a suite are.
enum Tests {
    /// In the package `pkg/NAME` of controller-runtime, run by this Go test.
    ControllerRuntime { function: &'static str },
    /// In the packages of kube-rs.
    KubeRs,
}

impl Suite {
    const fn controller_runtime(name: &'static str, function: &'static str) -> Self {
        Self { name, tests: Tests::ControllerRuntime { function } }
    }
}

const SUITES: &[Suite] = &[
    Suite::controller_runtime("controller", "TestSource"),
    Suite::controller_runtime("builder", "TestBuilder"),
    Suite::controller_runtime("client", "TestClient"),
    Suite::controller_runtime("cache", "TestSource"),
    Suite { name: "kube-rs", tests: Tests::KubeRs },
];

/// The suites of the short form.
const QUICK: &[&str] = &["controller", "builder", "client"];

/// What to run.
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
    let programs = Programs::prepare(repo, &folder, &options.suites, &interrupt)?;
    let server = server::build(repo)?;
    let mut rows = Vec::new();
    for suite in &options.suites {
        let run = |server: Server, kubeconfig: &Path| {
            println!("running {} on {}", suite.name, server.name());
            let run = Run { suite: suite.name, server, kubeconfig, folder: &folder, interrupt: &interrupt };
            programs.run(suite, &run)
        };
        let embedded = server::with_embedded(&server, &folder, &interrupt, |kubeconfig| {
            run(Server::Embedded, kubeconfig)
        })?;
        let mut reports = vec![(Server::Embedded, embedded)];
        if options.compare {
            let compared = control_plane::with_new(repo, &interrupt, |kubeconfig| {
                run(Server::ControlPlane, kubeconfig)
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

/// The compiled tests of the selected suites.
struct Programs {
    /// Sources of controller-runtime, if one of its suites is selected.
    sources: Option<PathBuf>,
    /// Test programs of kube-rs by crate, if its suite is selected.
    kube_rs: Option<BTreeMap<String, PathBuf>>,
}

impl Programs {
    fn prepare(
        repo: &Repo,
        folder: &Folder,
        suites: &[&Suite],
        interrupt: &Interrupt,
    ) -> Result<Self, Failure> {
        let (mut programs, mut go) = (Self { sources: None, kube_rs: None }, Vec::new());
        for suite in suites {
            match suite.tests {
                Tests::ControllerRuntime { .. } => go.push(suite.name),
                Tests::KubeRs => programs.kube_rs = Some(kube_rs::prepare(repo, folder, interrupt)?),
            }
        }
        if !go.is_empty() {
            programs.sources = Some(controller_runtime::prepare(repo, folder, &go, interrupt)?);
        }
        Ok(programs)
    }

    fn run(&self, suite: &Suite, run: &Run<'_>) -> Result<Report, Failure> {
        match (&suite.tests, &self.sources, &self.kube_rs) {
            (Tests::ControllerRuntime { function }, Some(sources), _) => {
                controller_runtime::run(sources, function, run)
            }
            (Tests::KubeRs, _, Some(programs)) => kube_rs::run(programs, run),
            _ => Err(Failure::Failed(format!("{} is not prepared", suite.name))),
        }
    }
}

/// One run of a suite.
struct Run<'a> {
    suite: &'static str,
    server: Server,
    kubeconfig: &'a Path,
    folder: &'a Folder,
    interrupt: &'a Interrupt,
}

impl Run<'_> {
    /// Returns the path of a file of this run.
    fn file(&self, extension: &str) -> PathBuf {
        self.folder.path(&format!("{}-{}.{extension}", self.suite, self.server.id()))
    }

    /// Fails if the program failed for another reason than its tests.
    fn check(&self, status: ExitStatus, report: Report, log: &Path) -> Result<Report, Failure> {
        if status.success() || !report.failed.is_empty() {
            return Ok(report);
        }
        let (suite, log) = (self.suite, log.display());
        Err(Failure::Failed(format!("{suite} ended with {status} without a failed test, see {log}")))
    }
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
        assert_eq!(parse(&[]).unwrap(), ("controller builder client cache kube-rs".to_owned(), true));
        assert_eq!(parse(&["cache"]).unwrap(), ("cache".to_owned(), true));
        assert_eq!(parse(&["--quick"]).unwrap(), ("controller builder client".to_owned(), false));
        assert!(
            parse(&["cash"]).unwrap_err().starts_with("unknown suite `cash` (known: controller, builder, ")
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
