//! `informer watch --state`: runs that continue where the last one ended, or was killed.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Server, TIMEOUT, check, informer, runtime};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;

/// The number of runs that are killed. `INFORMER_KILLS` changes it.
const KILLS: u64 = 100;

/// A cluster whose config maps a test changes.
struct Cluster {
    runtime: tokio::runtime::Runtime,
    server: Server,
    maps: kube::Api<ConfigMap>,
    directory: PathBuf,
}

impl Cluster {
    fn start(name: &str) -> Self {
        let ((server, _), runtime) = (Server::start(name, &[]), runtime());
        let maps = kube::Api::namespaced(server.client(&runtime), "default");
        let directory = std::env::temp_dir().join(format!("informer-{}-{name}-dir", std::process::id()));
        Self { runtime, server, maps, directory }
    }

    fn create(&self, name: &str) {
        let map = serde_json::from_value(json!({"metadata": {"name": name}, "data": {"v": "1"}}));
        self.runtime.block_on(self.maps.create(&PostParams::default(), &map.unwrap())).unwrap();
    }

    fn update(&self, name: &str, value: &str) {
        let patch = Patch::Merge(json!({"data": {"v": value}}));
        self.runtime.block_on(self.maps.patch(name, &PatchParams::default(), &patch)).unwrap();
    }

    fn delete(&self, name: &str) {
        self.runtime.block_on(self.maps.delete(name, &DeleteParams::default())).unwrap();
    }

    /// The name, uid and version of each object.
    fn objects(&self) -> BTreeMap<String, (String, u64)> {
        let list = self.runtime.block_on(self.maps.list(&ListParams::default())).unwrap();
        let object = |map: ConfigMap| {
            let version = map.metadata.resource_version.unwrap().parse().unwrap();
            (map.metadata.name.unwrap(), (map.metadata.uid.unwrap(), version))
        };
        list.items.into_iter().map(object).collect()
    }

    fn arguments(&self) -> Vec<&str> {
        let (state, kubeconfig) = (self.directory.to_str().unwrap(), self.server.file.path());
        vec!["watch", "cm", "-n", "default", "--state", state, "--kubeconfig", kubeconfig]
    }

    fn stop(self) {
        std::fs::remove_dir_all(self.directory).unwrap();
        self.server.stop();
    }
}

/// A run prints what has changed since the last one: nothing twice, and deletions too.
#[test]
fn state_continues_where_the_last_run_ended() {
    let cluster = Cluster::start("state");
    for name in ["changed", "deleted", "kept"] {
        cluster.create(name);
    }
    let watch = || {
        let (stdout, stderr) = check(&[&cluster.arguments()[..], &["--once"]].concat(), 0);
        // TIME EVENT NAMESPACE NAME …
        let rows = stdout.lines().skip(1).map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            format!("{} {}", words[1], words[3])
        });
        let rows: Vec<String> = rows.filter(|row| !row.contains("kube-root-ca")).collect();
        (rows, stderr)
    };
    let (rows, stderr) = watch();
    assert_eq!(rows, ["ADDED changed", "ADDED deleted", "ADDED kept"]);
    let expected = "configmaps in namespace default: no saved state, all objects are new";
    assert!(stderr.contains(expected), "{stderr}");
    cluster.update("changed", "2");
    cluster.delete("deleted");
    cluster.create("new");
    let (rows, stderr) = watch();
    assert_eq!(rows, ["DELETED deleted", "UPDATED changed", "ADDED new"]);
    assert!(stderr.contains("configmaps in namespace default: changes since 20"), "{stderr}");
    assert_eq!(watch().0, [""; 0], "nothing has changed");
    cluster.stop();
}

#[test]
fn state_that_cannot_be_saved_is_rejected() {
    let cluster = Cluster::start("state-rejected");
    let kubeconfig = ["--kubeconfig", cluster.server.file.path()];
    let (_, stderr) = check(&[&["watch", "secrets", "--state", "unused"], &kubeconfig[..]].concat(), 2);
    assert!(stderr.contains("the state of secrets is not saved"), "{stderr}");
    let (_, stderr) = check(&[&["get", "cm", "--state", "unused"], &kubeconfig[..]].concat(), 2);
    assert!(stderr.contains("--state prints events"), "{stderr}");
    let (_, stderr) = check(&["watch", "pods", "--state", "unused"], 1);
    assert!(stderr.contains("no kubeconfig and no service account found"), "{stderr}");
    cluster.server.stop();
}

/// Starts a run that prints JSON.
fn run(cluster: &Cluster, arguments: &[&str]) -> (Child, mpsc::Receiver<String>) {
    let mut command = informer(&[&cluster.arguments()[..], &["-o", "json"], arguments].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = lines(child.stdout.take().unwrap());
    (child, lines)
}

fn interrupt(child: &Child) {
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-s", "INT", &id]).status().unwrap().success());
}

/// Regression: a run that was interrupted shortly after a change printed it, and the next run printed it again.
#[test]
fn interrupted_run_prints_nothing_that_the_next_one_repeats() {
    let cluster = Cluster::start("interrupted");
    cluster.create("a");
    let (mut reader, mut printed) = (Reader::default(), BTreeSet::new());
    let mut read = |line: String, number: u64| {
        reader.read(&line, number);
        // Without the time at which it was printed.
        let event: Value = serde_json::from_str(&line).unwrap();
        let metadata = &event["object"]["metadata"];
        let event = format!("{} {} {}", event["type"], metadata["uid"], metadata["resourceVersion"]);
        assert!(printed.insert(event), "printed again by run {number}: {line}");
    };
    let runs = 8;
    for number in 0..runs {
        let (mut child, lines) = run(&cluster, &[]);
        if number > 0 {
            // Changed before the run, or while it starts.
            cluster.update("a", &format!("before {number}"));
        }
        read(lines.recv_timeout(TIMEOUT).unwrap(), number);
        cluster.update("a", &number.to_string());
        if number % 2 == 0 {
            read(lines.recv_timeout(TIMEOUT).unwrap(), number);
        }
        interrupt(&child);
        for line in lines {
            read(line, number);
        }
        assert!(child.wait().unwrap().success());
    }
    let (mut child, lines) = run(&cluster, &["--once"]);
    for line in lines {
        read(line, runs);
    }
    assert!(child.wait().unwrap().success());
    assert_eq!(reader.objects, cluster.objects());
    cluster.stop();
}

/// A reader that has stopped reading does not keep the program from ending.
#[test]
fn interrupt_ends_a_run_with_a_stalled_reader() {
    let cluster = Cluster::start("stalled");
    for index in 0..10 {
        cluster.create(&format!("m{index}"));
        cluster.update(&format!("m{index}"), &"x".repeat(20_000));
    }
    let mut command = informer(&[&cluster.arguments()[..], &["-o", "json"]].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // More than a pipe holds is left.
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 1_000]).unwrap();
    interrupt(&child);
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert!(child.wait().unwrap().success(), "{errors}");
    drop(stdout);
    cluster.stop();
}

/// What a reader of the output of all runs has written elsewhere.
#[derive(Default)]
struct Reader {
    objects: BTreeMap<String, (String, u64)>,
    /// The uids of objects whose deletion was printed, and the run.
    deleted: BTreeMap<String, u64>,
}

impl Reader {
    fn read(&mut self, line: &str, run: u64) {
        let event: Value = serde_json::from_str(line).unwrap();
        let text = |pointer: &str| event.pointer(pointer).unwrap().as_str().unwrap().to_owned();
        let [name, uid] = ["name", "uid"].map(|field| text(&format!("/object/metadata/{field}")));
        let version: u64 = text("/object/metadata/resourceVersion").parse().unwrap();
        let known = self.objects.get(&name);
        if text("/type") == "DELETED" {
            let earlier = self.deleted.insert(uid.clone(), run);
            assert_ne!(earlier, Some(run), "{name} was deleted twice in one run");
            if known.is_some_and(|known| known.0 == uid) {
                self.objects.remove(&name);
            } else {
                assert!(known.is_none() || earlier.is_some(), "{name}: not the object that the reader knows");
            }
            return;
        }
        assert!(!self.deleted.contains_key(&uid), "{name} was deleted, but exists");
        if let Some((known_uid, known_version)) = known {
            assert_eq!(*known_uid, uid, "C2: {name}: the deletion of the previous object is missing");
            assert!(*known_version <= version, "C1: {name} went back from {known_version} to {version}");
        }
        self.objects.insert(name, (uid, version));
    }
}

/// Passes complete lines on until the process ends.
fn lines(stdout: ChildStdout) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut reader, mut line) = (BufReader::new(stdout), String::new());
        while reader.read_line(&mut line).unwrap_or_default() > 0 && line.ends_with('\n') {
            let _ended = sender.send(std::mem::take(&mut line)).is_err();
        }
    });
    receiver
}

/// A small generator (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (value ^ (value >> 31)) % limit
    }
}

/// C2 across restarts, with processes that are killed (SIGKILL) at random moments: the events that all of them have
/// printed lead to the objects of the cluster, and no deletion is missing.
#[test]
fn c2_runs_that_are_killed_print_every_deletion() {
    let cluster = Cluster::start("killed");
    let kills = std::env::var("INFORMER_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(KILLS);
    let (mut random, mut reader, mut events) = (Random(1), Reader::default(), 0);
    let change = |random: &mut Random| {
        let name = format!("m{}", random.below(8));
        let exists = cluster.objects().contains_key(&name);
        match (exists, random.below(3)) {
            (true, 0) => cluster.delete(&name),
            (true, 1) => {
                cluster.delete(&name);
                cluster.create(&name);
            }
            (true, _) => cluster.update(&name, &random.below(1000).to_string()),
            (false, _) => cluster.create(&name),
        }
    };
    for number in 0..=kills {
        let once: &[&str] = if number == kills { &["--once"] } else { &[] };
        let (mut child, lines) = run(&cluster, once);
        if number < kills {
            // Killed after some changes, and after some of its lines.
            let wait_for = random.below(4);
            for _ in 0..random.below(12) {
                change(&mut random);
            }
            for _ in 0..wait_for {
                change(&mut random);
                reader.read(&lines.recv_timeout(TIMEOUT).unwrap(), number);
                events += 1;
            }
            for _ in 0..random.below(12) {
                change(&mut random);
            }
            child.kill().unwrap();
        }
        for line in lines {
            reader.read(&line, number);
            events += 1;
        }
        child.wait().unwrap();
    }
    assert_eq!(reader.objects, cluster.objects(), "after {kills} killed runs and {events} events");
    assert!(events > kills, "{events} events in {kills} runs");
    cluster.stop();
}
