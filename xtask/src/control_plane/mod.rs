//! `cargo xtask control-plane`: a Kubernetes control plane (etcd and kube-apiserver) to compare the embedded
//! server with.
//!
//! The programs are built once from the Go module in `xtask/control-plane` and cached in the user's cache folder.
//! Running processes are recorded in one state folder per checkout, so that `down` ends exactly the processes
//! that `up` started. Texts, flags and records come from pure functions ([`module`], [`config`], [`state`]);
//! the other files act on them. Paths for scripts are printed to stdout, everything else to stderr.

mod build;
mod config;
mod control;
mod interrupt;
mod module;
mod process;
mod state;
mod test;
#[cfg(test)]
mod tests;
mod up;

use std::io::{self, Write as _};
use std::path::Path;

use crate::failure::Failure;
use crate::repo::Repo;
use build::Programs;
pub(crate) use interrupt::Interrupt;
use interrupt::Lock;
use module::Module;
pub(crate) use module::is_network_error;
pub(crate) use process::Process;
use state::StateFolder;
pub(crate) use test::ARM;

/// A subcommand.
#[derive(Debug, PartialEq, Eq)]
enum Action {
    Up,
    Down,
    Kubectl,
    /// Filters: only tests whose names contain one of them run.
    Test(Vec<String>),
}

/// Builds the programs if they are not in the cache. Returns the error if their sources cannot be downloaded.
pub(crate) fn build(repo: &Repo) -> Result<Option<String>, Failure> {
    let interrupt = Interrupt::listen()?;
    let cache = build::cache_folder()?;
    match Programs::ready(repo, &Module::read(repo)?, &cache, &interrupt) {
        Ok(_) => Ok(None),
        Err(Failure::Failed(reason)) if is_network_error(&reason) => Ok(Some(reason)),
        Err(failure) => Err(failure),
    }
}

/// Returns whether the programs are in the cache, so that [`with_new`] does not build them.
pub(crate) fn is_built(repo: &Repo) -> Result<bool, Failure> {
    Ok(Programs::are_built(&Module::read(repo)?, &build::cache_folder()?))
}

/// Runs `act` with the kubeconfig of a new control plane, which is stopped afterwards. The control plane of
/// `up` is not used.
pub(crate) fn with_new<T>(
    repo: &Repo,
    interrupt: &Interrupt,
    act: impl FnOnce(&Path) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let cache = build::cache_folder()?;
    let folder = StateFolder::of(&repo.path("new"));
    let _lock = Lock::acquire(&cache, folder.name(), interrupt)?;
    let programs = Programs::ready(repo, &Module::read(repo)?, &cache, interrupt)?;
    // Left from a run that was killed.
    if let Some(state) = folder.load()? {
        folder.clear(&state)?;
    }
    let kubeconfig = up::up(&folder, &programs, interrupt)?;
    down_after(&folder, act(&kubeconfig))
}

pub(crate) fn run(repo: &Repo, args: &[String]) -> Result<(), Failure> {
    let action = action(args)?;
    let interrupt = Interrupt::listen()?;
    let cache = build::cache_folder()?;
    let folder = StateFolder::of(&repo.path(""));
    match action {
        Action::Up => {
            let _lock = Lock::acquire(&cache, folder.name(), &interrupt)?;
            let module = Module::read(repo)?;
            up::check_build(&folder, &module.build_name)?;
            let programs = Programs::ready(repo, &module, &cache, &interrupt)?;
            print(&up::up(&folder, &programs, &interrupt)?)
        }
        Action::Down => {
            let _lock = Lock::acquire(&cache, folder.name(), &interrupt)?;
            down(&folder)
        }
        Action::Test(filters) => test::test(repo, &folder, &filters, &interrupt),
        Action::Kubectl => print(&Programs::kubectl(repo, &Module::read(repo)?, &cache, &interrupt)?),
    }
}

fn action(args: &[String]) -> Result<Action, Failure> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["up"] => Ok(Action::Up),
        ["down"] => Ok(Action::Down),
        ["kubectl"] => Ok(Action::Kubectl),
        ["test", ref filters @ ..] if filters.iter().all(|filter| !filter.starts_with('-')) => {
            Ok(Action::Test(filters.iter().map(ToString::to_string).collect()))
        }
        [] => Err(Failure::Usage("`control-plane` needs `up`, `down`, `kubectl` or `test`".to_owned())),
        _ => Err(Failure::Usage(format!("`control-plane` does not accept `{}`", args.join(" ")))),
    }
}

/// Ends the recorded processes and removes the state folder. Succeeds if nothing is recorded.
fn down(folder: &StateFolder) -> Result<(), Failure> {
    match folder.load()? {
        None => info("no control plane is running"),
        Some(state) => {
            folder.clear(&state)?;
            info(&format!("down: removed {}", folder.path().display()));
        }
    }
    Ok(())
}

/// Ends the recorded processes. A failure of what was done with them is more important than one of `down`.
fn down_after<T>(folder: &StateFolder, outcome: Result<T, Failure>) -> Result<T, Failure> {
    match (outcome, down(folder)) {
        (Err(failure), Err(also)) => {
            info(&format!("error: {}", also.message()));
            Err(failure)
        }
        (outcome, ended) => outcome.and_then(|value| ended.map(|()| value)),
    }
}

/// Prints a line to stderr. Unlike `eprintln!`, it does not panic if stderr is closed.
fn info(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Prints a path to stdout.
fn print(path: &Path) -> Result<(), Failure> {
    writeln!(io::stdout(), "{}", path.display()).map_err(|error| failed("cannot write to stdout", &error))
}

fn failed(what: &str, reason: &dyn std::fmt::Display) -> Failure {
    Failure::Failed(format!("{what}: {reason}"))
}
