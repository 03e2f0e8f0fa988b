//! Tests of a control plane from `up` to `down`, with shell scripts instead of the programs, so that Go is
//! not needed.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::build::Programs;
use super::interrupt::Interrupt;
use super::process::Process;
use super::state::{State, StateFolder};
use super::{action, down, test, up};
use crate::failure::Failure;

const ETCD: &str = "#!/bin/sh
mkdir -p \"$1\"
echo http://127.0.0.1:1 >\"$2.new\"
mv \"$2.new\" \"$2\"
exec sleep 60
";
const KEYGEN: &str = "#!/bin/sh\necho key\n";
const APISERVER: &str = "#!/bin/sh
for arg; do case $arg in --cert-dir=*) folder=${arg#*=};; esac; done
mkdir -p \"$folder\"
for name in leaf authority; do
  printf -- '-----BEGIN CERTIFICATE-----\\n%s\\n-----END CERTIFICATE-----\\n' $name
done >\"$folder/apiserver.crt\"
exec sleep 60
";
const KUBECTL: &str = "#!/bin/sh\nexit 0\n";

/// A checkout with its own programs and state folder.
struct Scene {
    root: PathBuf,
    folder: StateFolder,
}

impl Scene {
    fn new(name: &str) -> Self {
        let root =
            std::env::temp_dir().join(format!("informer-control-plane-test-{name}-{}", std::process::id()));
        let scene = Self { folder: StateFolder::of(&root), root };
        let scripts =
            [("etcd", ETCD), ("keygen", KEYGEN), ("kube-apiserver", APISERVER), ("kubectl", KUBECTL)];
        for (program, script) in scripts {
            scene.install(program, script);
        }
        scene
    }

    /// Writes a script with another process: if this process wrote it, a child forked by a concurrent test
    /// could hold it open for writing, and it could not be executed.
    fn install(&self, program: &str, script: &str) {
        fs::create_dir_all(&self.root).unwrap();
        let write = "printf %s \"$1\" >\"$2\" && chmod +x \"$2\"";
        let path = self.root.join(program);
        let status = Command::new("sh").args(["-c", write, "sh", script]).arg(path).status().unwrap();
        assert!(status.success());
    }

    fn up(&self, build: &str) -> Result<PathBuf, String> {
        up::check_build(&self.folder, build).map_err(message)?;
        let programs = Programs::at(&self.root, build);
        up::up(&self.folder, &programs, &Interrupt::by(Arc::default())).map_err(message)
    }

    /// Runs a shell script as the suite.
    fn test(&self, script: &str) -> Result<usize, Failure> {
        let programs = Programs::at(&self.root, "one");
        let mut suite = Command::new("sh");
        suite.args(["-c", script]);
        test::with_server(&self.folder, &programs, &Interrupt::by(Arc::default()), vec![suite])
    }

    fn state(&self) -> Option<State> {
        self.folder.load().map_err(message).unwrap()
    }

    fn down(&self) {
        down(&self.folder).map_err(message).unwrap();
        assert_eq!(self.state(), None);
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // Failures of the test have been reported before.
        let _ = down(&self.folder);
        let _ = fs::remove_dir_all(&self.root);
    }
}

fn message(failure: Failure) -> String {
    failure.message()
}

/// Starts a process that is not part of a control plane.
fn unrelated_process(log: &Path) -> (Process, Child) {
    let mut command = Command::new("sleep");
    command.arg("60");
    Process::start("sleep", command, log).map_err(message).unwrap()
}

#[test]
fn subcommands_are_parsed() {
    let parse = |args: &[&str]| match action(&args.iter().map(ToString::to_string).collect::<Vec<_>>()) {
        Ok(action) => format!("{action:?}"),
        Err(Failure::Usage(reason)) => reason,
        Err(failure) => panic!("not a usage error: {}", failure.message()),
    };
    assert_eq!(parse(&["up"]), "Up");
    assert_eq!(parse(&["down"]), "Down");
    assert_eq!(parse(&["kubectl"]), "Kubectl");
    assert_eq!(parse(&["test"]), "Test([])");
    assert_eq!(parse(&["test", "real::watch"]), "Test([\"real::watch\"])");
    assert_eq!(parse(&["test", "--list"]), "`control-plane` does not accept `test --list`");
    assert_eq!(parse(&[]), "`control-plane` needs `up`, `down`, `kubectl` or `test`");
    assert_eq!(parse(&["up", "--foreground"]), "`control-plane` does not accept `up --foreground`");
    assert_eq!(parse(&["sideways"]), "`control-plane` does not accept `sideways`");
}

/// A suite that succeeds if the environment variables are set.
const CHECK_ENVIRONMENT: &str = "test -r \"$INFORMER_CONTROL_PLANE_KUBECONFIG\" && test \"$INFORMER_CONTROL_PLANE_ETCD\" = http://127.0.0.1:1";

#[test]
fn control_plane_started_for_a_test_ends_with_it() {
    let scene = Scene::new("test");
    assert!(scene.test(CHECK_ENVIRONMENT).is_ok());
    assert_eq!(scene.state(), None);
    let Err(Failure::Ended(101, reason)) = scene.test("exit 101") else { panic!("no exit code") };
    assert_eq!(reason, "the suite failed: exit status: 101");
    assert_eq!(scene.state(), None);
}

#[test]
fn control_plane_that_was_up_stays_up_after_a_test() {
    let scene = Scene::new("test-up");
    scene.up("one").unwrap();
    let state = scene.state().unwrap();
    assert!(scene.test(CHECK_ENVIRONMENT).is_ok());
    assert!(scene.test("exit 1").is_err());
    assert_eq!(scene.test("exit 4").ok(), Some(0), "no test matches");
    // A suite must not damage this control plane.
    assert!(scene.test("test -z \"$INFORMER_CONTROL_PLANE_CONTROL\"").is_ok());
    assert_eq!(scene.state().unwrap(), state);
    assert!(state.processes.iter().all(Process::is_alive));
}

/// Sends a command like a suite and returns the response.
fn send(scene: &Scene, command: &str) -> String {
    let mut stream = UnixStream::connect(scene.folder.file("control")).unwrap();
    writeln!(stream, "{command}").unwrap();
    let mut response = String::new();
    BufReader::new(stream).read_line(&mut response).unwrap();
    response.trim_end().to_owned()
}

/// Writes the file that a suite waits for when it is dropped, so that a failed assertion also ends the suite.
struct EndSuite(PathBuf);

impl Drop for EndSuite {
    fn drop(&mut self) {
        let _ = fs::write(&self.0, "");
    }
}

#[test]
fn suite_may_damage_control_plane_started_for_it() {
    let scene = Scene::new("test-control");
    let end = scene.root.join("end");
    let suite = format!(
        "test -S \"$INFORMER_CONTROL_PLANE_CONTROL\" || exit 1; while ! test -e {}; do sleep 0.01; done",
        end.display()
    );
    let data = scene.folder.file("etcd/data");
    let alive = || scene.state().unwrap().processes.iter().map(Process::is_alive).collect::<Vec<_>>();
    let pids = || scene.state().unwrap().processes.iter().map(|process| process.pid).collect::<Vec<_>>();
    thread::scope(|scope| {
        let end_suite = EndSuite(end);
        let test = scope.spawn(|| scene.test(&suite));
        while !scene.folder.file("control").exists() && !test.is_finished() {
            thread::yield_now();
        }
        let before = pids();
        assert_eq!(send(&scene, "kill"), "done");
        assert_eq!((alive(), pids()), (vec![true, false], before.clone()));
        // Another process may use the port for a short time: the first server creates a file and fails, and
        // `kubectl` succeeds only after the second server has started.
        let mark = |name: &str| scene.root.join(name).display().to_string();
        let (lost, second) = (mark("lost"), mark("second"));
        let loser = format!(
            "#!/bin/sh\nif ! [ -e {lost} ]; then touch {lost}; echo address already in use; exit 1; fi; touch {second}\n"
        );
        scene.install("kube-apiserver", &APISERVER.replacen("#!/bin/sh\n", &loser, 1));
        scene.install("kubectl", &format!("#!/bin/sh\n[ -e {second} ]\n"));
        assert_eq!(send(&scene, "start"), "done");
        assert_eq!((alive(), pids()[0]), (vec![true, true], before[0]));
        fs::write(&data, "old").unwrap();
        assert_eq!(send(&scene, "save"), "done");
        fs::write(&data, "new").unwrap();
        assert_eq!(send(&scene, "restore"), "done");
        assert_eq!(fs::read_to_string(&data).unwrap(), "old");
        assert_eq!((alive(), pids()[0] == before[0]), (vec![true, true], false));
        assert_eq!(send(&scene, "stop"), "failed: unknown command: \"stop\\n\"");
        drop(end_suite);
        assert!(test.join().unwrap().is_ok());
    });
    assert_eq!(scene.state(), None);
}

#[test]
fn signal_ends_the_test_and_its_control_plane() {
    let scene = Scene::new("test-signal");
    let interrupted = Arc::new(AtomicBool::new(false));
    let interrupt = Interrupt::by(Arc::clone(&interrupted));
    let programs = Programs::at(&scene.root, "one");
    let started = scene.root.join("started");
    let mut suite = Command::new("sh");
    suite.args(["-c", "touch \"$1\"; exec sleep 60", "sh"]).arg(&started);
    let outcome = thread::scope(|scope| {
        scope.spawn(|| {
            while !started.exists() {
                thread::yield_now();
            }
            interrupted.store(true, Ordering::Relaxed);
        });
        test::with_server(&scene.folder, &programs, &interrupt, vec![suite]).map_err(message)
    });
    assert_eq!(outcome.unwrap_err(), "interrupted");
    assert_eq!(scene.state(), None);
}

/// Otherwise a suite whose target was renamed would run no test and pass.
#[test]
fn filter_without_matching_tests_fails() {
    let check = |ran, filter: &str| test::check_ran(ran, &[filter.to_owned()]).map_err(message);
    assert_eq!(check(1, "watch"), Ok(()));
    assert_eq!(check(0, "wacth").unwrap_err(), "only 0 of 3 suites have a test named wacth");
    assert_eq!(check(3, "real::"), Ok(()));
    assert!(check(2, "real::").is_err());
}

#[test]
fn control_plane_runs_from_up_to_down() {
    let scene = Scene::new("life");
    let kubeconfig = scene.up("one").unwrap();
    let state = scene.state().unwrap();
    assert!(state.ready);
    let names: Vec<&str> = state.processes.iter().map(|process| process.name.as_str()).collect();
    assert_eq!(names, ["etcd", "kube-apiserver"]);
    assert!(state.processes.iter().all(Process::is_alive));
    assert!(fs::read_to_string(&kubeconfig).unwrap().contains("server: https://127.0.0.1:"));
    assert_eq!(fs::metadata(&kubeconfig).unwrap().permissions().mode() & 0o777, 0o600);

    assert_eq!(scene.up("one").unwrap(), kubeconfig);
    assert_eq!(scene.state().unwrap(), state);
    let other = scene.up("two").unwrap_err();
    assert_eq!(other, "one is running, but two is needed (run `cargo xtask control-plane down` first)");

    scene.down();
    assert!(!state.processes.iter().any(Process::is_alive));
    scene.down();
}

#[test]
fn ended_server_is_detected() {
    let scene = Scene::new("gone");
    scene.up("one").unwrap();
    let before = scene.state().unwrap();
    before.processes[1].stop().map_err(message).unwrap();
    scene.up("one").unwrap();
    let after = scene.state().unwrap();
    assert!(after.processes.iter().all(Process::is_alive));
    assert!(!before.processes.iter().any(Process::is_alive), "the remaining etcd must be ended");
}

#[test]
fn record_with_reused_pids_ends_no_process() {
    let scene = Scene::new("reused");
    scene.folder.create().map_err(message).unwrap();
    let (unrelated, mut child) = unrelated_process(&scene.folder.file("log"));
    let reused = Process { name: "etcd".to_owned(), started: "long ago".to_owned(), ..unrelated.clone() };
    let state = State { build: "one".to_owned(), ready: true, processes: vec![reused] };
    scene.folder.save(&state).map_err(message).unwrap();
    scene.down();
    assert!(unrelated.is_alive());
    unrelated.stop().map_err(message).unwrap();
    child.wait().unwrap();
}

#[test]
fn ended_server_ends_the_others() {
    let scene = Scene::new("ends");
    scene.install("kube-apiserver", "#!/bin/sh\necho for a reason\nexit 3\n");
    let reason = scene.up("one").unwrap_err();
    assert_eq!(reason, "kube-apiserver ended before it was ready; last lines of its log:\nfor a reason");
    assert_eq!(scene.state(), None);
    scene.install("etcd", "#!/bin/sh\necho for another\nexit 3\n");
    let reason = scene.up("one").unwrap_err();
    assert_eq!(reason, "etcd ended before it was ready; last lines of its log:\nfor another");
    assert_eq!(scene.state(), None);
}

#[test]
fn port_conflict_is_retried() {
    let scene = Scene::new("race");
    // The first server creates a file and fails.
    let lose = "#!/bin/sh\nif ! [ -e lost ]; then touch lost; echo address already in use; exit 1; fi\n";
    scene.install("kube-apiserver", &APISERVER.replacen("#!/bin/sh\n", lose, 1));
    scene.up("one").unwrap();
    let state = scene.state().unwrap();
    assert_eq!(state.processes.len(), 2);
    assert!(state.processes.iter().all(Process::is_alive));
}

#[test]
fn signal_during_up_ends_everything() {
    let scene = Scene::new("signal");
    // The server never becomes ready.
    scene.install("kubectl", "#!/bin/sh\nexit 1\n");
    let programs = Programs::at(&scene.root, "one");
    let record = scene.folder.file("state.json");
    let interrupted = Arc::new(AtomicBool::new(false));
    let interrupt = Interrupt::by(Arc::clone(&interrupted));
    let signal = thread::spawn(move || {
        while !fs::read_to_string(&record).is_ok_and(|text| text.contains("kube-apiserver")) {
            thread::yield_now();
        }
        interrupted.store(true, Ordering::Relaxed);
    });
    let outcome = up::up(&scene.folder, &programs, &interrupt).map_err(message);
    signal.join().unwrap();
    assert_eq!(outcome.unwrap_err(), "interrupted");
    assert_eq!(scene.state(), None);
}
