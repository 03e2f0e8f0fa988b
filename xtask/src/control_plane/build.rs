//! The programs of the control plane: taken from the user's cache folder, or built into it with Go.
//!
//! A folder of the cache is named after its build and is created by renaming a finished one. A folder that
//! exists is therefore complete and needs neither a check of its contents nor Go.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use super::interrupt::{Interrupt, Lock};
use super::module::{self, Module, PROGRAMS};
use super::{failed, info};
use crate::failure::Failure;
use crate::repo::{self, Repo};

/// Period of progress messages during a build.
const PROGRESS_PERIOD: Duration = Duration::from_secs(15);

/// Number of lines of Go's errors that are shown.
const ERROR_LINES: usize = 20;

/// Returns the folder of the control plane in the user's cache folder.
pub(super) fn cache_folder() -> Result<PathBuf, Failure> {
    Ok(repo::cache_folder()?.join("control-plane"))
}

/// The programs of one build.
pub(super) struct Programs {
    folder: PathBuf,
    build: String,
    names: &'static [&'static str],
}

impl Programs {
    /// Returns all programs of the module, built if necessary.
    pub(super) fn ready(
        repo: &Repo,
        module: &Module,
        cache: &Path,
        interrupt: &Interrupt,
    ) -> Result<Self, Failure> {
        let build = module.build_name.clone();
        let programs = Self { folder: cache.join(&build), build, names: PROGRAMS };
        programs.built(repo, module, cache, interrupt)
    }

    /// Returns whether all programs of the module are in the cache.
    pub(super) fn are_built(module: &Module, cache: &Path) -> bool {
        let build = module.build_name.clone();
        Self { folder: cache.join(&build), build, names: PROGRAMS }.exist()
    }

    /// Returns the path of `kubectl`, from the build of all programs if there is one. Otherwise only
    /// `kubectl` is built, which takes a fraction of the time.
    pub(super) fn kubectl(
        repo: &Repo,
        module: &Module,
        cache: &Path,
        interrupt: &Interrupt,
    ) -> Result<PathBuf, Failure> {
        let build = module.build_name.clone();
        let all = Self { folder: cache.join(&build), build, names: PROGRAMS };
        if all.exist() {
            return Ok(all.path("kubectl"));
        }
        let build = format!("{}-kubectl", module.build_name);
        let only_kubectl = Self { folder: cache.join(&build), build, names: &["kubectl"] };
        Ok(only_kubectl.built(repo, module, cache, interrupt)?.path("kubectl"))
    }

    fn built(
        self,
        repo: &Repo,
        module: &Module,
        cache: &Path,
        interrupt: &Interrupt,
    ) -> Result<Self, Failure> {
        let programs = self;
        if !programs.exist() {
            // One build at a time; another process may have finished it meanwhile.
            let _lock = Lock::acquire(cache, "build", interrupt)?;
            if !programs.exist() {
                programs.build(&repo.path(module::FOLDER), module, cache, interrupt)?;
            }
        }
        Ok(programs)
    }

    /// Returns existing programs.
    #[cfg(test)]
    pub(super) fn at(folder: &Path, build: &str) -> Self {
        Self { folder: folder.to_owned(), build: build.to_owned(), names: PROGRAMS }
    }

    /// Returns the name of the build.
    pub(super) fn build_name(&self) -> &str {
        &self.build
    }

    pub(super) fn path(&self, program: &str) -> PathBuf {
        self.folder.join(program)
    }

    fn exist(&self) -> bool {
        self.names.iter().all(|program| self.path(program).is_file())
    }

    fn build(
        &self,
        sources: &Path,
        module: &Module,
        cache: &Path,
        interrupt: &Interrupt,
    ) -> Result<(), Failure> {
        check_go(sources, module)?;
        info(&format!(
            "building Kubernetes {} into {} (only once; takes several minutes)",
            module.kubernetes,
            self.folder.display()
        ));
        // The lock is held, so an existing folder of this name is left from a killed build.
        let partial = cache.join("partial");
        let started = Instant::now();
        let outcome = remove(&partial)
            .and_then(|()| go_build(sources, module, self.names, &partial, interrupt))
            .and_then(|()| remove(&self.folder))
            .and_then(|()| {
                let what = format!("cannot rename {} to {}", partial.display(), self.folder.display());
                fs::rename(&partial, &self.folder).map_err(|error| failed(&what, &error))
            });
        match outcome {
            Ok(()) => info(&format!("built in {}", minutes(started.elapsed()))),
            // The first failure is reported, not one of the cleanup.
            Err(_) => drop(remove(&partial)),
        }
        outcome
    }
}

/// Fails if Go is missing or too old.
fn check_go(sources: &Path, module: &Module) -> Result<(), Failure> {
    let needed = format!("building Kubernetes {} needs Go {} or later", module.kubernetes, module.go);
    // In the module's folder, where an older Go may download and run the required version.
    let output = match go(sources).args(["env", "GOVERSION"]).output() {
        Ok(output) => output,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Failure::Failed(format!(
                "{needed}: `go` is not on the PATH (see https://go.dev/dl)"
            )));
        }
        Err(error) => return Err(failed(&needed, &error)),
    };
    let found = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() && module.is_built_by(&found) {
        return Ok(());
    }
    let error = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let found = if error.is_empty() { found } else { error };
    Err(Failure::Failed(format!("{needed}: `go env GOVERSION` printed `{found}`")))
}

fn go(sources: &Path) -> Command {
    let mut command = Command::new("go");
    // The module is independent of any Go workspace around it and needs no C compiler.
    command.current_dir(sources).env("GOWORK", "off").env("CGO_ENABLED", "0").stdin(Stdio::null());
    command
}

fn go_build(
    sources: &Path,
    module: &Module,
    programs: &[&str],
    into: &Path,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let mut child = go(sources)
        // The slash marks a folder that does not exist yet.
        .args(module.build_args(programs, &format!("{}/", into.display())))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        // In its own process group, Go and its compilers can be killed together.
        .process_group(0)
        .spawn()
        .map_err(|error| failed("cannot run `go build`", &error))?;
    let result = follow(&lines_of(&mut child), interrupt);
    if result.is_err() {
        kill_group(&child);
    }
    let status = child.wait().map_err(|error| failed("cannot wait for `go build`", &error))?;
    let errors = result?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::Failed(format!("`go build` failed: {status}; last lines:\n{errors}")))
}

/// Returns the lines that the child writes to stderr.
fn lines_of(child: &mut Child) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    if let Some(stderr) = child.stderr.take() {
        thread::spawn(move || {
            let lines = BufReader::new(stderr).lines().map_while(Result::ok);
            // Sending fails if the receiver was dropped; the remaining lines are not needed then.
            lines.map(|line| sender.send(line)).take_while(Result::is_ok).for_each(drop);
        });
    }
    lines
}

/// Prints the progress until the lines end; returns the last error lines.
fn follow(lines: &Receiver<String>, interrupt: &Interrupt) -> Result<String, Failure> {
    let started = Instant::now();
    let (mut progress, mut printed) = (Progress::default(), started);
    loop {
        interrupt.check()?;
        match lines.recv_timeout(Duration::from_millis(100)) {
            Ok(line) => progress.add(line),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(progress.last_lines()),
        }
        if printed.elapsed() >= PROGRESS_PERIOD {
            printed = Instant::now();
            info(&format!("… {} {}", minutes(started.elapsed()), progress.summary()));
        }
    }
}

/// Kills the process group of a child. The child must not have been waited for, so that its pid is still
/// valid.
pub(super) fn kill_group(child: &Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // The group may have ended already.
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
    }
}

/// The output of `go build -v` so far: downloads, compiled packages and errors.
#[derive(Default)]
struct Progress {
    downloads: usize,
    packages: usize,
    /// Last error lines, newest first.
    last: VecDeque<String>,
}

impl Progress {
    fn add(&mut self, line: String) {
        if line.starts_with("go: downloading ") {
            self.downloads += 1;
        } else if !line.contains([' ', '\t']) {
            self.packages += 1;
        } else {
            self.last.truncate(ERROR_LINES - 1);
            self.last.push_front(line);
        }
    }

    fn summary(&self) -> String {
        let Self { downloads, packages, .. } = self;
        match (downloads, packages) {
            (0, _) => format!("{packages} packages compiled"),
            (_, 0) => format!("{downloads} modules downloaded"),
            _ => format!("{downloads} modules downloaded, {packages} packages compiled"),
        }
    }

    fn last_lines(self) -> String {
        self.last.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

fn minutes(time: Duration) -> String {
    format!("{}:{:02} min", time.as_secs() / 60, time.as_secs() % 60)
}

/// Removes a folder if it exists.
fn remove(folder: &Path) -> Result<(), Failure> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(failed(&format!("cannot remove {}", folder.display()), &error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_counts_lines_and_keeps_errors() {
        let mut progress = Progress::default();
        assert_eq!(progress.summary(), "0 packages compiled");
        progress.add("go: downloading k8s.io/api v0.36.4".to_owned());
        assert_eq!(progress.summary(), "1 modules downloaded");
        progress.add("k8s.io/api/core/v1".to_owned());
        assert_eq!(progress.summary(), "1 modules downloaded, 1 packages compiled");
        for line in 0..30 {
            progress.add(format!("main.go:{line}: undefined"));
        }
        let errors = progress.last_lines();
        assert_eq!(errors.lines().count(), ERROR_LINES);
        assert!(errors.starts_with("main.go:10: ") && errors.ends_with("main.go:29: undefined"));
    }

    #[test]
    fn times_are_printed_in_minutes() {
        assert_eq!(minutes(Duration::from_secs(367)), "6:07 min");
    }
}
