//! `cargo xtask ci`: every check that a change must pass, cheapest first. It stops at the first failure.
//!
//! Developers and the build machine run the same list; nothing is checked in one place only.

use std::fmt;
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::repo::{self, Repo};
use crate::{api, book, codegen, control_plane, fuzz, release, suites, tidy};

struct Stage {
    name: &'static str,
    work: Work,
}

enum Work {
    /// A function of this program.
    Task(fn(&Repo) -> Result<(), Failure>),
    /// A cargo command; arguments are separated by spaces.
    Cargo { args: &'static str, env: &'static [(&'static str, &'static str)] },
}

impl Work {
    const fn cargo(args: &'static str) -> Self {
        Self::Cargo { args, env: &[] }
    }
}

const STAGES: &[Stage] = &[
    Stage { name: "fmt", work: Work::cargo("fmt --all --check") },
    Stage { name: "tidy", work: Work::Task(|repo| tidy::run(repo, &[])) },
    Stage { name: "codegen", work: Work::Task(codegen::check) },
    Stage { name: "clippy", work: Work::cargo("clippy --workspace --all-targets --locked -- -D warnings") },
    // The library without optional features; in the workspace the examples enable them.
    Stage {
        name: "features",
        work: Work::cargo("clippy -p informer -p informer-core --all-targets --locked -- -D warnings"),
    },
    // In the workspace the examples select the newest Kubernetes types; the accessors depend on the version.
    Stage { name: "accessors", work: Work::Task(check_accessors) },
    Stage { name: "msrv", work: Work::Task(release::check_minimum_rust) },
    Stage { name: "powerset", work: Work::Task(release::check_features) },
    Stage { name: "deny", work: Work::Task(release::check_dependencies) },
    Stage { name: "semver", work: Work::Task(api::check) },
    Stage { name: "kubectl", work: Work::Task(kubectl) },
    Stage { name: "peers", work: Work::Task(peers) },
    Stage { name: "test", work: Work::cargo("test --workspace --locked") },
    // After `test`, which builds the libraries.
    Stage { name: "fuzz", work: Work::Task(short_fuzz) },
    // After `test`, which builds the suites and runs their embedded arms.
    Stage { name: "control-plane", work: Work::Task(control_plane_suites) },
    // After `test`, which builds the program.
    Stage { name: "suites", work: Work::Task(client_suites) },
    Stage {
        name: "shuttle",
        work: Work::cargo("test -p informer-core --features shuttle --test shuttle --locked"),
    },
    Stage {
        name: "queue",
        work: Work::cargo("test -p informer --features shuttle --test workqueue_shuttle --locked"),
    },
    Stage {
        name: "doc",
        work: Work::Cargo {
            args: "doc --workspace --no-deps --locked",
            env: &[("RUSTDOCFLAGS", "-D warnings")],
        },
    },
    // After `test`, which builds the dependencies.
    Stage { name: "publish", work: Work::Task(release::check_packages) },
    Stage { name: "book", work: Work::Task(|repo| book::run(repo, &[])) },
];

pub(crate) fn run(repo: &Repo, args: &[String]) -> Result<(), Failure> {
    let mut rows = Vec::new();
    let mut result = Ok(());
    for stage in select(args)? {
        println!("== {}", stage.name);
        let started = Instant::now();
        let outcome = stage.run(repo);
        rows.push(Row { name: stage.name, duration: started.elapsed(), passed: outcome.is_ok() });
        if let Err(failure) = outcome {
            result = Err(Failure::Failed(format!("stage `{}` failed: {}", stage.name, failure.message())));
            break;
        }
    }
    println!("== summary");
    for row in rows {
        println!("{row}");
    }
    result
}

/// Returns the selected stages, in the order of [`STAGES`].
fn select(args: &[String]) -> Result<Vec<&'static Stage>, Failure> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let only: Vec<&str> = match args[..] {
        [] => return Ok(STAGES.iter().collect()),
        ["--only", list] => list.split(',').map(str::trim).collect(),
        _ => return Err(Failure::Usage(format!("`ci` does not accept `{}`", args.join(" ")))),
    };
    if let Some(unknown) = only.iter().find(|name| STAGES.iter().all(|stage| stage.name != **name)) {
        let known: Vec<&str> = STAGES.iter().map(|stage| stage.name).collect();
        return Err(Failure::Usage(format!("unknown stage `{unknown}` (known: {})", known.join(","))));
    }
    Ok(STAGES.iter().filter(|stage| only.contains(&stage.name)).collect())
}

impl Stage {
    fn run(&self, repo: &Repo) -> Result<(), Failure> {
        match self.work {
            Work::Task(task) => task(repo),
            Work::Cargo { args, env } => repo.run_cargo(args, env),
        }
    }
}

fn has_go() -> bool {
    repo::is_on_path("go")
}

#[allow(clippy::unnecessary_wraps, reason = "a stage has an outcome")]
fn kubectl(repo: &Repo) -> Result<(), Failure> {
    if !has_go() {
        println!("`go` is not on the PATH: tests with kubectl run only if another kubectl is found");
        return Ok(());
    }
    // A failed download is not an error of the change; an earlier build or a kubectl on the PATH is used
    // instead.
    if let Err(failure) = control_plane::run(repo, &["kubectl".to_owned()]) {
        println!(
            "building kubectl failed, its tests run only if another kubectl is found: {}",
            failure.message()
        );
    }
    Ok(())
}

fn control_plane_suites(repo: &Repo) -> Result<(), Failure> {
    if !has_go() {
        println!("`go` is not on the PATH: the tests against kube-apiserver are skipped");
        return Ok(());
    }
    let started = Instant::now();
    // A failed download is not an error of the change; a failed build may be one.
    if let Some(reason) = control_plane::build(repo)? {
        println!("downloading Kubernetes failed, the tests against kube-apiserver are skipped: {reason}");
        return Ok(());
    }
    println!("kube-apiserver and etcd are built after {:.0} s", started.elapsed().as_secs_f64());
    control_plane::run(repo, &["test".to_owned(), control_plane::ARM.to_owned()])
}

fn client_suites(repo: &Repo) -> Result<(), Failure> {
    if !has_go() {
        println!("`go` is not on the PATH: the suites of controller-runtime are skipped");
        return Ok(());
    }
    // A failed download is not an error of the change.
    if let Some(reason) = suites::run_quick(repo)? {
        println!("downloading controller-runtime failed, its suites are skipped: {reason}");
    }
    Ok(())
}

/// Downloads the modules of the client-go peer. A failed download is not an error of the change; a test that
/// cannot build the peer prints that it is skipped.
fn peers(repo: &Repo) -> Result<(), Failure> {
    match repo.go(&["-C", "bench/peers/client-go", "mod", "download"])? {
        Some(output) if output.status.success() => {}
        Some(output) => {
            let error = String::from_utf8_lossy(&output.stderr);
            println!(
                "downloading the modules of client-go failed, only cached ones are used: {}",
                error.trim()
            );
        }
        None => println!("`go` is not on the PATH: the tests of the client-go peer are skipped"),
    }
    Ok(())
}

fn short_fuzz(repo: &Repo) -> Result<(), Failure> {
    fuzz::run(repo, &["--inputs", "10000", "--seed", "1"].map(str::to_owned))
}

/// Checks the accessors with the oldest and the newest Kubernetes types.
///
/// The version is a feature and not `K8S_OPENAPI_ENABLED_VERSION`: cargo caches a build per set of features,
/// so that nothing is built again if nothing changed.
fn check_accessors(repo: &Repo) -> Result<(), Failure> {
    codegen::VERSIONS.iter().try_for_each(|minor| {
        let features = format!("accessors,k8s-openapi/v1_{minor}");
        let args = format!("clippy -p informer --lib --features {features} --locked -- -D warnings");
        repo.run_cargo(&args, &[])
    })
}

/// A line of the summary.
struct Row {
    name: &'static str,
    duration: Duration,
    passed: bool,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = if self.passed { "passed" } else { "failed" };
        write!(f, "{:<14}{:>8.1} s  {outcome}", self.name, self.duration.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(args: &[&str]) -> Result<String, String> {
        let args: Vec<String> = args.iter().map(ToString::to_string).collect();
        match select(&args) {
            Ok(stages) => Ok(stages.iter().map(|stage| stage.name).collect::<Vec<_>>().join(" ")),
            Err(failure) => Err(failure.message()),
        }
    }

    #[test]
    fn all_stages_run_by_default() {
        assert_eq!(
            names(&[]).unwrap(),
            "fmt tidy codegen clippy features accessors msrv powerset deny semver kubectl peers test fuzz control-plane suites shuttle queue doc publish book"
        );
        assert_eq!(names(&["--only", "doc,fmt"]).unwrap(), "fmt doc");
    }

    #[test]
    fn unknown_stage_is_an_error() {
        assert!(names(&["--only", "fmt,clipy"]).unwrap_err().starts_with("unknown stage `clipy`"));
        assert!(names(&["--only", ""]).unwrap_err().starts_with("unknown stage ``"));
        assert_eq!(names(&["--only"]).unwrap_err(), "`ci` does not accept `--only`");
    }

    #[test]
    fn summary_columns_are_aligned() {
        let row = Row { name: "test", duration: Duration::from_millis(12_340), passed: true };
        assert_eq!(row.to_string(), "test              12.3 s  passed");
        let row = Row { name: "clippy", duration: Duration::from_millis(40), passed: false };
        assert_eq!(row.to_string(), "clippy             0.0 s  failed");
    }
}
