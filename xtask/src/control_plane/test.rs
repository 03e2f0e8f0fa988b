//! `test`: runs the test suites that need kube-apiserver: conformance of the embedded server, examples, and
//! the library.
//!
//! The control plane is the one in `INFORMER_CONTROL_PLANE_KUBECONFIG`, or the one that is already up, or one
//! that is started for this run. Only the last may be damaged by a suite, and it always ends with the run.

use std::env;
use std::fs;
use std::process::Command;

use super::build::{self, Programs};
use super::control::Control;
use super::interrupt::{Interrupt, Lock};
use super::module::Module;
use super::process::Process;
use super::state::{Condition, StateFolder};
use super::{down_after, info, up};
use crate::failure::Failure;
use crate::repo::Repo;

/// Environment variable with the path of the kubeconfig.
const KUBECONFIG: &str = "INFORMER_CONTROL_PLANE_KUBECONFIG";

/// Environment variable with the address of etcd.
const ETCD: &str = "INFORMER_CONTROL_PLANE_ETCD";

/// Environment variable with the path of the control socket; without it, a suite must not damage the control
/// plane.
const CONTROL: &str = "INFORMER_CONTROL_PLANE_CONTROL";

/// Prefix of the names of all tests that run against kube-apiserver. Every suite has such tests.
pub(crate) const ARM: &str = "real::";

/// Exit code of a suite without a matching test.
const NO_MATCH: u8 = 4;

/// The suites in the order of execution. The last one may leave a damaged control plane.
const SUITES: &[&str] = &["conformance", "programs", "control_plane"];

pub(super) fn test(
    repo: &Repo,
    folder: &StateFolder,
    filters: &[String],
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let suites: Vec<Command> = SUITES.iter().map(|name| suite(repo, name, filters)).collect();
    if env::var_os(KUBECONFIG).is_some_and(|path| !path.is_empty()) {
        return run_all(suites, None, interrupt).and_then(|ran| check_ran(ran, filters));
    }
    let cache = build::cache_folder()?;
    let _lock = Lock::acquire(&cache, folder.name(), interrupt)?;
    let module = Module::read(repo)?;
    up::check_build(folder, &module.build_name)?;
    let programs = Programs::ready(repo, &module, &cache, interrupt)?;
    with_server(folder, &programs, interrupt, suites).and_then(|ran| check_ran(ran, filters))
}

/// Fails if too few suites have matching tests: all must if the filter is [`ARM`], at least one otherwise.
pub(super) fn check_ran(ran: usize, filters: &[String]) -> Result<(), Failure> {
    let needed = if filters == [ARM] { SUITES.len() } else { 1 };
    if ran >= needed {
        return Ok(());
    }
    let filters = filters.join(", ");
    Err(Failure::Failed(format!("only {ran} of {} suites have a test named {filters}", SUITES.len())))
}

/// Returns the command that runs a suite. With `--workspace`, it has the features of other stages and is not
/// built again.
fn suite(repo: &Repo, name: &str, filters: &[String]) -> Command {
    let mut suite = repo.cargo(&["test", "--workspace", "--locked", "--test", name, "--"]);
    suite.args(filters);
    suite
}

/// Runs the suites with a control plane, which is stopped afterwards if it was not up before. Returns the
/// number of suites with matching tests.
pub(super) fn with_server(
    folder: &StateFolder,
    programs: &Programs,
    interrupt: &Interrupt,
    mut suites: Vec<Command>,
) -> Result<usize, Failure> {
    let was_up = folder.load()?.is_some_and(|state| state.condition(Process::is_alive) == Condition::Up);
    let kubeconfig = up::up(folder, programs, interrupt)?;
    let etcd = fs::read_to_string(folder.file(up::ETCD_ADDRESS)).ok();
    for suite in &mut suites {
        suite.env(KUBECONFIG, &kubeconfig).env_remove(CONTROL);
        if let Some(address) = &etcd {
            suite.env(ETCD, address.trim());
        }
    }
    if was_up {
        return run_all(suites, None, interrupt);
    }
    let outcome = Control::open(folder, programs, interrupt).and_then(|control| {
        for suite in &mut suites {
            suite.env(CONTROL, control.path());
        }
        run_all(suites, Some(&control), interrupt)
    });
    down_after(folder, outcome)
}

/// Runs the suites one after the other until one fails. Returns the number of suites with matching tests.
fn run_all(
    suites: Vec<Command>,
    control: Option<&Control<'_>>,
    interrupt: &Interrupt,
) -> Result<usize, Failure> {
    let mut ran = 0;
    for suite in suites {
        match run(suite, control, interrupt) {
            Ok(()) => ran += 1,
            Err(Failure::Ended(NO_MATCH, _)) => info("not a failure if another suite has matching tests"),
            Err(failure) => return Err(failure),
        }
    }
    Ok(ran)
}

fn run(suite: Command, control: Option<&Control<'_>>, interrupt: &Interrupt) -> Result<(), Failure> {
    let status = interrupt.run("the suite", suite, || {
        if let Some(control) = control {
            control.serve();
        }
    })?;
    if status.success() {
        return Ok(());
    }
    // A process that was ended by a signal has no exit code.
    let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    Err(Failure::Ended(code, format!("the suite failed: {status}")))
}
