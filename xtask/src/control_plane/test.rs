//! `test`: the suites that want a real server: the conformance suite of the embedded one, the examples, and the library.
//!
//! The server is the one that `INFORMER_CONTROL_PLANE_KUBECONFIG` names, or the one that is up, or one that is up for this run only.
//! Only the last is a suite given control of. However the run ends, a server that it started ends with it.

use std::env;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

use super::build::{self, Programs};
use super::control::Control;
use super::interrupt::{Interrupt, Lock};
use super::module::Module;
use super::process::Process;
use super::state::{Condition, StateFolder};
use super::{down, failed, info, up};
use crate::failure::Failure;
use crate::repo::Repo;

/// Names the kubeconfig; the suite reads it.
const KUBECONFIG: &str = "INFORMER_CONTROL_PLANE_KUBECONFIG";

/// Says where etcd is; the suite reads it.
const ETCD: &str = "INFORMER_CONTROL_PLANE_ETCD";

/// Says where to ask for what harms the server; a suite that does not read it harms nothing.
const CONTROL: &str = "INFORMER_CONTROL_PLANE_CONTROL";

/// Names everything that is held against a real server. Every suite has some.
pub(crate) const ARM: &str = "real::";

/// The code of a suite in which nothing has a wanted name.
const NOTHING: u8 = 4;

/// In this order: the last one may leave a server that is not what it was.
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

/// Fails if nothing has the wanted names. What asks for one statement is not in every suite.
pub(super) fn check_ran(ran: usize, filters: &[String]) -> Result<(), Failure> {
    let needed = if filters == [ARM] { SUITES.len() } else { 1 };
    if ran >= needed {
        return Ok(());
    }
    let wanted = filters.join(", ");
    Err(Failure::Failed(format!("only {ran} of {} suites have something named {wanted}", SUITES.len())))
}

/// With all of the workspace in view, so that nothing is built again for the sake of other features.
fn suite(repo: &Repo, name: &str, filters: &[String]) -> Command {
    let mut suite = repo.cargo(&["test", "--workspace", "--locked", "--test", name, "--"]);
    suite.args(filters);
    suite
}

/// Runs them with a server, which is stopped again if it was not up before. Gives back how many had something to do.
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
    // What the suite found is more to the point than a server that does not end.
    match (outcome, down(folder)) {
        (Err(failure), Err(also)) => {
            info(&format!("error: {}", also.message()));
            Err(failure)
        }
        (outcome, ended) => outcome.and_then(|ran| ended.map(|()| ran)),
    }
}

/// Runs them one after the other until one fails. Gives back how many had something to do.
fn run_all(
    suites: Vec<Command>,
    control: Option<&Control<'_>>,
    interrupt: &Interrupt,
) -> Result<usize, Failure> {
    let mut ran = 0;
    for suite in suites {
        match run(suite, control, interrupt) {
            Ok(()) => ran += 1,
            Err(Failure::Ended(NOTHING, _)) => info("that is no failure, if another suite has some"),
            Err(failure) => return Err(failure),
        }
    }
    Ok(ran)
}

fn run(mut suite: Command, control: Option<&Control<'_>>, interrupt: &Interrupt) -> Result<(), Failure> {
    // In a group of its own, cargo and the suite can be ended together.
    let mut child = suite.process_group(0).spawn().map_err(|error| failed("cannot run the suite", &error))?;
    let ended = interrupt.wait_for(Duration::MAX, || {
        if let Some(control) = control {
            control.serve();
        }
        child.try_wait().map_err(|error| failed("cannot wait for the suite", &error))
    });
    if ended.is_err() {
        build::end(&child);
        // It was told to end; how it did is of no interest.
        let _ = child.wait();
    }
    match ended? {
        Some(status) if status.success() => Ok(()),
        Some(status) => {
            // Whatever a signal ended has no code.
            let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
            Err(Failure::Ended(code, format!("the suite gave {status}")))
        }
        None => Err(Failure::Failed("the suite does not end".to_owned())),
    }
}
