//! `cargo xtask ci`: every check a change must pass, cheapest first, stopping at the first that fails.
//!
//! The same list runs on a developer's machine and on the build machine; nothing is checked in one place only.

use std::env;
use std::fmt;
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::repo::Repo;
use crate::{codegen, control_plane, fuzz, tidy};

struct Stage {
    name: &'static str,
    work: Work,
}

enum Work {
    /// The rules of [`tidy`], in this process.
    Tidy,
    /// Whether generated files are what would be generated, in this process.
    Codegen,
    /// A `kubectl` for the tests that need a real one, where there is a Go to build it with.
    Kubectl,
    /// The suites that want a real server, where there is a Go to build it with.
    ControlPlane,
    /// What the client-go of `bench/peers` is built from, for the tests that build it, where there is a Go.
    Peers,
    /// Damaged answers for the readers, as many as a change can wait for, always the same ones.
    Fuzz,
    /// The library with its accessors, for the earliest and the latest types of Kubernetes.
    Accessors,
    /// A cargo call, its arguments separated by blanks.
    Cargo { args: &'static str, env: &'static [(&'static str, &'static str)] },
}

impl Work {
    const fn cargo(args: &'static str) -> Self {
        Self::Cargo { args, env: &[] }
    }
}

const STAGES: &[Stage] = &[
    Stage { name: "fmt", work: Work::cargo("fmt --all --check") },
    Stage { name: "tidy", work: Work::Tidy },
    Stage { name: "codegen", work: Work::Codegen },
    Stage { name: "clippy", work: Work::cargo("clippy --workspace --all-targets --locked -- -D warnings") },
    // The library as an application without our features gets it; in the workspace the examples turn them on.
    Stage {
        name: "features",
        work: Work::cargo("clippy -p informer -p informer-core --all-targets --locked -- -D warnings"),
    },
    // In the workspace the examples choose the latest types of Kubernetes, and these differ by version.
    Stage { name: "accessors", work: Work::Accessors },
    Stage { name: "kubectl", work: Work::Kubectl },
    Stage { name: "peers", work: Work::Peers },
    Stage { name: "test", work: Work::cargo("test --workspace --locked") },
    // Behind `test`, which has built it.
    Stage { name: "fuzz", work: Work::Fuzz },
    // Behind `test`, which has built the suites and run the embedded arms.
    Stage { name: "control-plane", work: Work::ControlPlane },
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
];

pub(crate) fn run(repo: &Repo, args: &[String]) -> Result<(), Failure> {
    let mut rows = Vec::new();
    let mut result = Ok(());
    for stage in select(args)? {
        println!("== {}", stage.name);
        let begun = Instant::now();
        let outcome = stage.run(repo);
        rows.push(Row { name: stage.name, took: begun.elapsed(), passed: outcome.is_ok() });
        if let Err(failure) = outcome {
            result = Err(Failure::Failed(format!("stage `{}` failed: {}", stage.name, failure.why())));
            break;
        }
    }
    println!("== summary");
    for row in rows {
        println!("{row}");
    }
    result
}

/// The stages asked for, always in the order of [`STAGES`].
fn select(args: &[String]) -> Result<Vec<&'static Stage>, Failure> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let only: Vec<&str> = match args[..] {
        [] => return Ok(STAGES.iter().collect()),
        ["--only", list] => list.split(',').map(str::trim).collect(),
        _ => return Err(Failure::Usage(format!("`ci` does not take `{}`", args.join(" ")))),
    };
    if let Some(unknown) = only.iter().find(|name| STAGES.iter().all(|stage| stage.name != **name)) {
        let known: Vec<&str> = STAGES.iter().map(|stage| stage.name).collect();
        return Err(Failure::Usage(format!("unknown stage `{unknown}`, take some of {}", known.join(","))));
    }
    Ok(STAGES.iter().filter(|stage| only.contains(&stage.name)).collect())
}

impl Stage {
    fn run(&self, repo: &Repo) -> Result<(), Failure> {
        match self.work {
            Work::Tidy => tidy::run(repo, &[]),
            Work::Codegen => codegen::check(repo),
            Work::Kubectl => kubectl(repo),
            Work::ControlPlane => control_plane_suites(repo),
            Work::Peers => peers(repo),
            Work::Fuzz => fuzz::run(repo, &["--inputs", "10000", "--seed", "1"].map(str::to_owned)),
            Work::Accessors => codegen::VERSIONS.iter().try_for_each(|minor| check_accessors(repo, *minor)),
            Work::Cargo { args, env } => run_cargo(repo, args, env),
        }
    }
}

fn has_go() -> bool {
    let on_path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&on_path).any(|folder| folder.join("go").is_file())
}

#[allow(clippy::unnecessary_wraps, reason = "a stage has an outcome")]
fn kubectl(repo: &Repo) -> Result<(), Failure> {
    if !has_go() {
        println!("there is no `go` on the PATH: tests with kubectl run only if a kubectl is found");
        return Ok(());
    }
    // Whether the sources can be fetched is not for us to decide; what was built before, or is on the PATH, is used all the same.
    if let Err(failure) = control_plane::run(repo, &["kubectl".to_owned()]) {
        println!("kubectl cannot be built, so its tests run only if another is found: {}", failure.why());
    }
    Ok(())
}

fn control_plane_suites(repo: &Repo) -> Result<(), Failure> {
    if !has_go() {
        println!("there is no `go` on the PATH: nothing is compared with a real server");
        return Ok(());
    }
    let begun = Instant::now();
    // What cannot be fetched is not a mistake of the change; what cannot be built may be.
    if let Some(why) = control_plane::build(repo)? {
        println!("a real server cannot be fetched, so nothing is compared with one: {why}");
        return Ok(());
    }
    println!("kube-apiserver and etcd are there after {:.0} s", begun.elapsed().as_secs_f64());
    control_plane::run(repo, &["test".to_owned(), control_plane::ARM.to_owned()])
}

/// Whether they can be fetched is not for us to decide: a test that cannot build it says so.
fn peers(repo: &Repo) -> Result<(), Failure> {
    match repo.go(&["-C", "bench/peers/client-go", "mod", "download"])? {
        Some(output) if output.status.success() => {}
        Some(output) => {
            let why = String::from_utf8_lossy(&output.stderr);
            println!(
                "what client-go is built from cannot be fetched, so only what is there is used: {}",
                why.trim()
            );
        }
        None => println!("there is no `go` on the PATH: client-go is left out of the tests of peers"),
    }
    Ok(())
}

/// The version is a feature here and not `K8S_OPENAPI_ENABLED_VERSION`: cargo keeps what it built with other features, so
/// that nothing is built again when nothing changed.
fn check_accessors(repo: &Repo, minor: u8) -> Result<(), Failure> {
    let features = format!("accessors,k8s-openapi/v1_{minor}");
    run_cargo(repo, &format!("clippy -p informer --lib --features {features} --locked -- -D warnings"), &[])
}

fn run_cargo(repo: &Repo, args: &str, env: &[(&str, &str)]) -> Result<(), Failure> {
    let words: Vec<&str> = args.split_whitespace().collect();
    let status = repo
        .cargo(&words)
        .envs(env.iter().copied())
        .status()
        .map_err(|error| Failure::Failed(format!("cannot run cargo: {error}")))?;
    if status.success() { Ok(()) } else { Err(Failure::Failed(format!("`cargo {args}` gave {status}"))) }
}

/// A line of the closing table.
struct Row {
    name: &'static str,
    took: Duration,
    passed: bool,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = if self.passed { "passed" } else { "failed" };
        write!(f, "{:<10}{:>8.1} s  {outcome}", self.name, self.took.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(args: &[&str]) -> Result<String, String> {
        let args: Vec<String> = args.iter().map(ToString::to_string).collect();
        match select(&args) {
            Ok(stages) => Ok(stages.iter().map(|stage| stage.name).collect::<Vec<_>>().join(" ")),
            Err(failure) => Err(failure.why()),
        }
    }

    #[test]
    fn all_stages_run_unless_some_are_named() {
        assert_eq!(
            names(&[]).unwrap(),
            "fmt tidy codegen clippy features accessors kubectl peers test fuzz real shuttle queue doc"
        );
        assert_eq!(names(&["--only", "doc,fmt"]).unwrap(), "fmt doc");
    }

    #[test]
    fn a_misspelt_stage_is_not_a_pass() {
        assert!(names(&["--only", "fmt,clipy"]).unwrap_err().starts_with("unknown stage `clipy`"));
        assert!(names(&["--only", ""]).unwrap_err().starts_with("unknown stage ``"));
        assert_eq!(names(&["--only"]).unwrap_err(), "`ci` does not take `--only`");
    }

    #[test]
    fn the_summary_lines_up() {
        let row = Row { name: "test", took: Duration::from_millis(12_340), passed: true };
        assert_eq!(row.to_string(), "test          12.3 s  passed");
        let row = Row { name: "clippy", took: Duration::from_millis(40), passed: false };
        assert_eq!(row.to_string(), "clippy         0.0 s  failed");
    }
}
