//! The programs: found in the user's cache folder, or built into it by the Go on the PATH.
//!
//! A folder of the cache bears the name of what was built and appears whole, by renaming; so what is found needs no
//! check of its contents, and no Go.

use std::collections::VecDeque;
use std::env;
use std::ffi::OsString;
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
use crate::repo::Repo;

/// How often a build says that it goes on.
const PROGRESS: Duration = Duration::from_secs(15);

/// How many lines of Go's complaint are shown.
const COMPLAINT: usize = 20;

/// `informer/real` in the user's cache folder.
pub(super) fn cache_folder() -> Result<PathBuf, Failure> {
    cache_folder_of(env::var_os("XDG_CACHE_HOME"), env::var_os("HOME"))
        .ok_or_else(|| Failure::Failed("no cache folder: set XDG_CACHE_HOME or HOME".to_owned()))
}

fn cache_folder_of(xdg: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    // The XDG specification has relative paths ignored.
    let absolute = |path: Option<OsString>| path.map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute(xdg).or_else(|| absolute(home).map(|home| home.join(".cache")))?;
    Some(cache.join("informer/real"))
}

/// The folder of one build.
pub(super) struct Programs {
    folder: PathBuf,
    build: String,
    names: &'static [&'static str],
}

impl Programs {
    /// The programs of the module, built if they are not there yet.
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

    /// `kubectl` alone, which takes a fraction of the time; from the build of all programs if there is one.
    pub(super) fn kubectl(
        repo: &Repo,
        module: &Module,
        cache: &Path,
        interrupt: &Interrupt,
    ) -> Result<PathBuf, Failure> {
        let build = module.build_name.clone();
        let whole = Self { folder: cache.join(&build), build, names: PROGRAMS };
        if whole.are_there() {
            return Ok(whole.path("kubectl"));
        }
        let build = format!("{}-kubectl", module.build_name);
        let alone = Self { folder: cache.join(&build), build, names: &["kubectl"] };
        Ok(alone.built(repo, module, cache, interrupt)?.path("kubectl"))
    }

    fn built(
        self,
        repo: &Repo,
        module: &Module,
        cache: &Path,
        interrupt: &Interrupt,
    ) -> Result<Self, Failure> {
        let programs = self;
        if !programs.are_there() {
            // One build at a time; whoever waited for it finds it done.
            let _lock = Lock::acquire(cache, "build", interrupt)?;
            if !programs.are_there() {
                programs.build(&repo.path(module::FOLDER), module, cache, interrupt)?;
            }
        }
        Ok(programs)
    }

    /// Programs that are there already.
    #[cfg(test)]
    pub(super) fn at(folder: &Path, build: &str) -> Self {
        Self { folder: folder.to_owned(), build: build.to_owned(), names: PROGRAMS }
    }

    /// The name of the build.
    pub(super) fn build_name(&self) -> &str {
        &self.build
    }

    pub(super) fn path(&self, program: &str) -> PathBuf {
        self.folder.join(program)
    }

    fn are_there(&self) -> bool {
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
            "building Kubernetes {} into {} (once; it takes minutes)",
            module.kubernetes,
            self.folder.display()
        ));
        // Under the lock nobody else builds: a folder of that name is the rest of a build that was killed.
        let partial = cache.join("partial");
        let begun = Instant::now();
        let outcome = remove(&partial)
            .and_then(|()| go_build(sources, module, self.names, &partial, interrupt))
            .and_then(|()| remove(&self.folder))
            .and_then(|()| {
                let what = format!("cannot rename {} to {}", partial.display(), self.folder.display());
                fs::rename(&partial, &self.folder).map_err(|error| failed(&what, &error))
            });
        match outcome {
            Ok(()) => info(&format!("built in {}", clock(begun.elapsed()))),
            // The first failure is the one to tell.
            Err(_) => drop(remove(&partial)),
        }
        outcome
    }
}

/// Fails with one line if Go is missing or too old.
fn check_go(sources: &Path, module: &Module) -> Result<(), Failure> {
    let needed = format!("Go {} or later is needed to build Kubernetes {}", module.go, module.kubernetes);
    // Asked in the module's folder, where an older Go may fetch and become the one that is needed.
    let output = match go(sources).args(["env", "GOVERSION"]).output() {
        Ok(output) => output,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Failure::Failed(format!(
                "{needed}: there is no `go` on the PATH (see https://go.dev/dl)"
            )));
        }
        Err(error) => return Err(failed(&needed, &error)),
    };
    let found = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() && module.is_built_by(&found) {
        return Ok(());
    }
    let complaint = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let found = if complaint.is_empty() { found } else { complaint };
    Err(Failure::Failed(format!("{needed}: the `go` on the PATH says `{found}`")))
}

fn go(sources: &Path) -> Command {
    let mut command = Command::new("go");
    // The module stands alone, whatever workspace lies around it, and needs no C.
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
        // With the slash it is a folder, also before it exists.
        .args(module.build_args(programs, &format!("{}/", into.display())))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        // In a group of its own, Go and its compilers can be ended together.
        .process_group(0)
        .spawn()
        .map_err(|error| failed("cannot run `go build`", &error))?;
    let followed = follow(&lines_of(&mut child), interrupt);
    if followed.is_err() {
        end(&child);
    }
    let status = child.wait().map_err(|error| failed("cannot wait for `go build`", &error))?;
    let complaint = followed?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::Failed(format!("`go build` gave {status}; it said last:\n{complaint}")))
}

/// The lines the child says on stderr, as they come.
fn lines_of(child: &mut Child) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    if let Some(stderr) = child.stderr.take() {
        thread::spawn(move || {
            let lines = BufReader::new(stderr).lines().map_while(Result::ok);
            // Fails when nobody listens any more, and then there is nothing to do.
            lines.map(|line| sender.send(line)).take_while(Result::is_ok).for_each(drop);
        });
    }
    lines
}

/// Tells the progress until the lines end; gives back the last of them.
fn follow(lines: &Receiver<String>, interrupt: &Interrupt) -> Result<String, Failure> {
    let begun = Instant::now();
    let (mut progress, mut told) = (Progress::default(), begun);
    loop {
        interrupt.check()?;
        match lines.recv_timeout(Duration::from_millis(100)) {
            Ok(line) => progress.take(line),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(progress.complaint()),
        }
        if told.elapsed() >= PROGRESS {
            told = Instant::now();
            info(&format!("… {} {}", clock(begun.elapsed()), progress.sentence()));
        }
    }
}

/// Ends a group with everything it started. The child was not waited for, so the number is still its own.
pub(super) fn end(child: &Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // It may have ended by itself.
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
    }
}

/// What `go build -v` has said so far: packages by name, downloads, and complaints.
#[derive(Default)]
struct Progress {
    downloads: usize,
    packages: usize,
    last: VecDeque<String>,
}

impl Progress {
    fn take(&mut self, line: String) {
        if line.starts_with("go: downloading ") {
            self.downloads += 1;
        } else if !line.contains([' ', '\t']) {
            self.packages += 1;
        } else {
            self.last.truncate(COMPLAINT - 1);
            self.last.push_front(line);
        }
    }

    fn sentence(&self) -> String {
        let Self { downloads, packages, .. } = self;
        match (downloads, packages) {
            (0, _) => format!("{packages} packages compiled"),
            (_, 0) => format!("{downloads} modules fetched"),
            _ => format!("{downloads} modules fetched, {packages} packages compiled"),
        }
    }

    fn complaint(self) -> String {
        self.last.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

fn clock(time: Duration) -> String {
    format!("{}:{:02} min", time.as_secs() / 60, time.as_secs() % 60)
}

/// Removes a folder if it is there.
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
    fn the_cache_is_where_the_user_wants_it() {
        let folder = |xdg: Option<&str>, home: Option<&str>| {
            cache_folder_of(xdg.map(OsString::from), home.map(OsString::from))
                .map(|path| path.display().to_string())
        };
        assert_eq!(folder(Some("/x"), Some("/h")).as_deref(), Some("/x/informer/real"));
        assert_eq!(folder(None, Some("/h")).as_deref(), Some("/h/.cache/informer/real"));
        assert_eq!(folder(Some(""), Some("/h")).as_deref(), Some("/h/.cache/informer/real"));
        assert_eq!(folder(Some("x"), Some("/h")).as_deref(), Some("/h/.cache/informer/real"));
        assert_eq!(folder(None, None), None);
    }

    #[test]
    fn progress_counts_and_keeps_the_complaint() {
        let mut progress = Progress::default();
        assert_eq!(progress.sentence(), "0 packages compiled");
        progress.take("go: downloading k8s.io/api v0.36.4".to_owned());
        assert_eq!(progress.sentence(), "1 modules fetched");
        progress.take("k8s.io/api/core/v1".to_owned());
        assert_eq!(progress.sentence(), "1 modules fetched, 1 packages compiled");
        for line in 0..30 {
            progress.take(format!("main.go:{line}: undefined"));
        }
        let complaint = progress.complaint();
        assert_eq!(complaint.lines().count(), COMPLAINT);
        assert!(complaint.starts_with("main.go:10: ") && complaint.ends_with("main.go:29: undefined"));
    }

    #[test]
    fn times_are_told_in_minutes() {
        assert_eq!(clock(Duration::from_secs(367)), "6:07 min");
    }
}
