//! The embedded server as a program: `informer apiserver`, built like the other stages of CI.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::files::{Folder, cannot};
use crate::control_plane::{Interrupt, Process};
use crate::failure::Failure;
use crate::repo::Repo;

/// Time limit until the server writes its kubeconfig, on a busy machine.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// What the server prints after it has written its kubeconfig.
const READY: &str = "serving Kubernetes";

/// Builds the program and returns its path.
pub(super) fn build(repo: &Repo) -> Result<PathBuf, Failure> {
    // With `--workspace`, so that the build of `cargo test --workspace` is reused.
    repo.run_cargo("build --quiet --locked --profile test --workspace --bin informer", &[])?;
    let own = std::env::current_exe()
        .map_err(|error| Failure::Failed(format!("cannot find the path of this program: {error}")))?;
    Ok(own.with_file_name(format!("informer{}", std::env::consts::EXE_SUFFIX)))
}

/// Runs `act` with the kubeconfig of a new, empty server, which is stopped afterwards.
pub(super) fn with_embedded<T>(
    program: &Path,
    folder: &Folder,
    interrupt: &Interrupt,
    act: impl FnOnce(&Path) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let (kubeconfig, log) = (folder.path("embedded.kubeconfig"), folder.path("embedded.log"));
    // The log is appended to; the line of an earlier server would be taken for that of this one.
    fs::write(&log, "").map_err(|error| cannot("write", &log, &error))?;
    let mut command = Command::new(program);
    command.args(["apiserver", "--port", "0", "--overwrite", "--kubeconfig"]).arg(&kubeconfig);
    let (process, mut child) = Process::start("informer apiserver", command, &log)?;
    let ready = interrupt.wait_for(READY_TIMEOUT, || {
        let ended = child.try_wait().map_err(|error| cannot("wait for", program, &error))?;
        let text = fs::read_to_string(&log).unwrap_or_default();
        if ended.is_some() {
            return Err(Failure::Failed(format!("informer apiserver ended before it was ready:\n{text}")));
        }
        Ok(text.contains(READY).then_some(()))
    });
    let outcome = match ready {
        Ok(Some(())) => act(&kubeconfig),
        Ok(None) => {
            let seconds = READY_TIMEOUT.as_secs();
            Err(Failure::Failed(format!("informer apiserver is not ready after {seconds} seconds")))
        }
        Err(failure) => Err(failure),
    };
    let stopped = process.stop();
    let _ = child.wait();
    outcome.and_then(|value| stopped.map(|()| value))
}
