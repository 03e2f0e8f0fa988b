//! Check of a client program, included by the tests of each: against the embedded server it syncs, follows
//! changes, reads and counts.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use informer_apiserver::{ApiServer, ListenOptions};
use serde_json::{Value, json};

/// A running program, killed on drop.
struct Program {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Program {
    fn start(path: &str, kubeconfig: &str) -> Self {
        let mut child =
            Command::new(path).arg(kubeconfig).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, input, output: BufReader::new(output) }
    }

    fn request(&mut self, command: &Value) -> Value {
        writeln!(self.input, "{command}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let response: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{command}: `{line}`"));
        assert_eq!(response["error"], Value::Null, "{command}");
        response
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A pod. The last one of the initial list has no node, so that it is removed as soon as it is deleted.
fn pod(number: usize, revision: usize) -> Value {
    let node = (number != 19).then(|| format!("node-{}", number % 3));
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "namespace": "default", "name": format!("pod-{number:03}"),
            "annotations": {"revision": revision.to_string(), "bench.example.com/sent": "1000000000000000000"},
        },
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "nginx"}]},
    })
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// Which changes a client delivers to its handlers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "each test uses some of them")]
pub(crate) enum Delivers {
    /// Every change.
    Each,
    /// The last state, and possibly earlier ones.
    Last,
    /// Every change except deletions, after which a subscriber may never wake up; so nothing is deleted.
    NoDeletion,
}

/// Runs the program at `path` against a new server, once for each strategy, with this many handlers.
pub(crate) async fn check(path: &str, strategies: &[(&str, u64, Delivers)], encoding: &str) {
    for &(strategy, handlers, delivers) in strategies {
        let server = ApiServer::new();
        for number in 0..20 {
            server.create(&pod(number, 0)).unwrap();
        }
        let listening = server.listen(ListenOptions::https()).await.unwrap();
        let program = path.rsplit('/').next().unwrap_or_default();
        let name = format!("informer-{program}-{}-{strategy}-{handlers}-{encoding}", std::process::id());
        let file = std::env::temp_dir().join(name);
        fs::write(&file, listening.kubeconfig()).unwrap();
        let (path, kubeconfig) = (path.to_owned(), file.to_str().unwrap().to_owned());
        let sync = json!({
            "do": "sync", "resource": "pods", "encoding": encoding, "strategy": strategy, "handlers": handlers,
            "project": true,
        });
        // The server needs this thread while the program is running.
        let exchange = tokio::task::spawn_blocking(move || {
            exercise(&server, &path, &kubeconfig, &sync, (handlers, delivers));
        });
        exchange.await.unwrap();
        fs::remove_file(file).unwrap();
    }
}

fn exercise(
    server: &ApiServer,
    path: &str,
    kubeconfig: &str,
    sync: &Value,
    (handlers, delivers): (u64, Delivers),
) {
    let mut program = Program::start(path, kubeconfig);
    assert_eq!(program.request(sync)["objects"], 20, "{sync}");
    for number in 0..10 {
        server.update(&pod(number, 1)).unwrap();
    }
    let deletes = delivers != Delivers::NoDeletion;
    if deletes {
        server.delete("v1", "pods", Some("default"), "pod-019").unwrap();
    }
    let last = server.create(&pod(20, 0)).unwrap();
    let followed = program.request(&json!({"do": "follow", "until": version(&last), "latency": true}));
    let events = followed["events"].as_u64().unwrap();
    // A deleted pod is first marked and then removed, as with kube-apiserver.
    let changes = if deletes { 10 + 2 + 1 } else { 10 + 1 };
    assert!(events <= changes * handlers, "{followed}");
    let counted = program.request(&json!({"do": "count", "revision": "1"}));
    assert_eq!(
        (&counted["objects"], &counted["revised"]),
        (&json!(21 - u64::from(deletes)), &json!(10)),
        "{sync}"
    );
    // Counted from the start, so it does not matter when the program began to follow.
    let (delivered, all) = (counted["delivered"].as_u64().unwrap(), (20 + changes) * handlers);
    let minimum = if delivers == Delivers::Last { 21 * handlers } else { all };
    assert!((minimum..=all).contains(&delivered), "{sync}: {delivered} events instead of {minimum} to {all}");
    for through in ["lister", "snapshot", "projection", "typed"] {
        let read = program.request(&json!({"do": "read", "seconds": 0.01, "through": through}));
        assert_eq!(read["gets"], read["found"], "{through}");
    }
    let objects = 21 - u64::from(deletes);
    // Each pod has an image and a phase, and all but the one that may be deleted have a node.
    let sum = 20 * "node-0".len() as u64 + objects * ("nginx".len() + "Pending".len()) as u64;
    for through in ["projection", "typed"] {
        let walked = program.request(&json!({"do": "walk", "seconds": 0.01, "through": through}));
        assert_eq!((walked["objects"].as_u64().unwrap() % objects, &walked["sum"]), (0, &json!(sum)));
    }
    let looked_up = program.request(&json!({"do": "index", "seconds": 0.01}));
    let (lookups, found) = (looked_up["lookups"].as_u64().unwrap(), looked_up["found"].as_u64().unwrap());
    assert!(lookups > 0 && (6 * lookups..=7 * lookups).contains(&found), "{looked_up}");
    assert!(program.request(&json!({"do": "report", "reset": true}))["cpu"].as_f64().unwrap() > 0.0);
}
