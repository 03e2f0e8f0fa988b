//! Two hundred watches and two thousand writes a second on one core: whether the server keeps up, what it costs, and where it ends.
//!
//! `cargo bench -p informer-apiserver --bench load`; on Linux `taskset -c 0` before it holds it to one core. Server, writers and watchers run
//! on one thread and one runtime, so the share of the core is that of all of them together. Watchers read nothing but name and version out
//! of a frame. How often objects were encoded is the server's own count: it must not grow with the watches. Running time is the thread's own, by the kernel's count: on a busy machine it says more than the clock does.
#![allow(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    reason = "a program that measures, and counts below 2^52"
)]

#[path = "load/report.rs"]
mod report;
#[path = "load/transport.rs"]
mod transport;
#[path = "load/watcher.rs"]
mod watcher;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use informer_apiserver::{ApiServer, EncodingCounters, ListenOptions, RunningServer};

use report::{Meter, Row};
use transport::Transport;
use watcher::{Board, Watchers, Wire};

const HELP: &str = "\
Measures the embedded server under watches and writes, everything on one thread.

    cargo bench -p informer-apiserver --bench load [-- OPTIONS]

    --quick             a few seconds, for a check that it works
    --seconds N         how long the paced rows take [60]
    --watches N         how many watches [200]
    --rate N            how many writes a second the paced rows ask for [2000]
    --pods              small pods instead of config maps
    --only TEXT         only the rows that have this in their name
    --help              this text

Exit code 1 if a watcher did not end with what the server has; a bar that is missed is only told.";

/// Namespaces, and objects in each.
const NAMESPACES: usize = 20;
const OBJECTS: usize = 50;

/// What is measured.
#[derive(Debug, Clone)]
struct Plan {
    seconds: u64,
    watches: usize,
    rate: u64,
    /// Writes of a row that is not paced.
    writes: usize,
    kind: Kind,
    /// Only rows with this in their name.
    only: Option<String>,
}

/// What is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Maps,
    Pods,
}

impl Kind {
    fn plural(self) -> &'static str {
        match self {
            Kind::Maps => "configmaps",
            Kind::Pods => "pods",
        }
    }

    /// How the frame of an update begins, up to the number of the object.
    fn head(self) -> &'static str {
        match self {
            Kind::Maps => {
                r#"{"type":"MODIFIED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"object-"#
            }
            Kind::Pods => {
                r#"{"type":"MODIFIED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"object-"#
            }
        }
    }

    /// An object of a namespace in its n-th revision.
    fn object(self, namespace: usize, number: usize, revision: usize) -> String {
        let metadata = format!(
            r#"{{"name":"object-{number:03}","namespace":"ns-{namespace:02}","labels":{{"app":"web"}},"annotations":{{"revision":"{revision}"}}}}"#
        );
        match self {
            Kind::Maps => format!(
                r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{metadata},"data":{{"revision":"{revision}","text":"some lines of configuration"}}}}"#
            ),
            Kind::Pods => format!(
                r#"{{"kind":"Pod","apiVersion":"v1","metadata":{metadata},"spec":{{"nodeName":"node-1","containers":[{{"name":"main","image":"registry.example/app:1"}}]}}}}"#
            ),
        }
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let plan = match plan(&words) {
        Ok(Some(plan)) => plan,
        Ok(None) => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(why) => {
            eprintln!("load: {why}, see --help");
            return ExitCode::FAILURE;
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let rows = runtime.block_on(measure(&plan));
    println!(
        "\n{} in {NAMESPACES} namespaces, {OBJECTS} in each; everything on one thread\n",
        plan.kind.plural()
    );
    println!("{}", report::head());
    for row in &rows {
        println!("{row}");
    }
    let equal = rows.iter().all(|row| row.equal);
    println!("\nbar: every watcher ends with what the server has: {}", report::verdict(equal));
    if equal { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn plan(words: &[String]) -> Result<Option<Plan>, String> {
    let mut plan =
        Plan { seconds: 60, watches: 200, rate: 2_000, writes: 20_000, kind: Kind::Maps, only: None };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut count = || {
            let value = words.next().ok_or_else(|| format!("`{word}` needs a value"))?;
            value.replace(['_', ','], "").parse::<u64>().map_err(|_| format!("`{value}` is no count"))
        };
        match word.as_str() {
            "--quick" => (plan.seconds, plan.writes) = (1, 1_000),
            "--seconds" => plan.seconds = count()?.max(1),
            "--watches" => plan.watches = usize::try_from(count()?).unwrap_or(1).max(1),
            "--rate" => plan.rate = count()?.max(1),
            "--only" => plan.only = words.next().cloned(),
            "--pods" => plan.kind = Kind::Pods,
            "--bench" => {} // cargo says so to every bench
            "--help" | "-h" => return Ok(None),
            _ => return Err(format!("unknown argument `{word}`")),
        }
    }
    Ok(Some(plan))
}

async fn measure(plan: &Plan) -> Vec<Row> {
    let mut rows = Vec::new();
    let (many, json) = (plan.watches, Wire::Json(plan.kind.head()));
    for sockets in [false, true] {
        let way = if sockets { "socket" } else { "process" };
        let cases = [
            (0, Scope::Namespaces, Pace::Full, json, format!("{way}, no watches")),
            (many, Scope::Namespaces, Pace::Fixed, json, format!("{way}, {many} in {NAMESPACES} namespaces")),
            (many, Scope::Everything, Pace::Full, json, format!("{way}, {many} of everything")),
            (many, Scope::Everything, Pace::Full, Wire::Protobuf, format!("{way}, {many} in protobuf")),
        ];
        for (watches, scope, pace, wire, what) in cases {
            if plan.only.as_ref().is_none_or(|only| what.contains(only.as_str())) {
                eprintln!("{what}");
                let run = Run::new(plan.clone(), sockets, wire, watches, scope).await;
                rows.push(match pace {
                    Pace::Full => run.unpaced(&what).await,
                    Pace::Fixed => run.paced(&what).await,
                });
            }
        }
    }
    rows
}

/// How fast is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// As fast as every watcher can follow.
    Full,
    /// So many a second.
    Fixed,
}

/// What a watch is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// Each of one namespace, evenly.
    Namespaces,
    /// Each of all.
    Everything,
}

/// One server with its watches.
struct Run {
    plan: Plan,
    server: ApiServer,
    _listening: Option<RunningServer>,
    transport: Transport,
    watchers: Watchers,
    scope: Scope,
    /// How many writes there were.
    written: usize,
    board: Arc<Board>,
    /// How often objects had been encoded before.
    encodings: EncodingCounters,
}

impl Run {
    async fn new(plan: Plan, sockets: bool, wire: Wire, count: usize, scope: Scope) -> Self {
        // As many changes as a server remembers by default would only measure memory.
        let server = ApiServer::builder().history_limit(20_000).build();
        for namespace in 0..NAMESPACES {
            let metadata = serde_json::json!({"name": format!("ns-{namespace:02}")});
            let object = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
            server.create(&object).unwrap();
            for number in 0..OBJECTS {
                let object: serde_json::Value =
                    serde_json::from_str(&plan.kind.object(namespace, number, 0)).unwrap();
                server.create(&object).unwrap();
            }
        }
        let listening = if sockets {
            Some(server.listen(ListenOptions::http().without_access_control()).await.unwrap())
        } else {
            None
        };
        let door = match &listening {
            Some(listening) => Transport::Socket(listening.client()),
            None => Transport::Process(server.service()),
        };
        let board = Arc::new(Board::new(server.resource_version()));
        let mut watchers = Watchers::new(board.clone(), wire);
        for number in 0..count {
            let namespace = (scope == Scope::Namespaces).then_some(number % NAMESPACES);
            let path = path(plan.kind, namespace, None);
            let path = format!(
                "{path}?watch=true&allowWatchBookmarks=true&resourceVersion={}",
                server.resource_version()
            );
            watchers.open(door.get(&path, wire.accept()).await, namespace);
        }
        assert_eq!(server.open_watches(), count);
        let encodings = server.encoding_counters();
        Run {
            plan,
            server,
            _listening: listening,
            transport: door,
            watchers,
            scope,
            written: 0,
            board,
            encodings,
        }
    }

    /// Updates the next object: the namespaces take turns, and so do the objects of each.
    async fn write(&mut self) {
        let (round, namespace) = (self.written / NAMESPACES, self.written % NAMESPACES);
        let (revision, number) = (round / OBJECTS + 1, round % OBJECTS);
        let body = self.plan.kind.object(namespace, number, revision);
        let path = path(self.plan.kind, Some(namespace), Some(number));
        self.written += 1;
        self.board.writing();
        self.transport.put(&path, body).await;
    }

    /// How many frames there must be by now.
    fn frames(&self) -> u64 {
        let watches = self.watchers.len();
        let each = match self.scope {
            Scope::Everything => watches,
            Scope::Namespaces => watches / NAMESPACES,
        };
        let odd = if self.scope == Scope::Namespaces { watches % NAMESPACES } else { 0 };
        let full = self.written / NAMESPACES * odd + (self.written % NAMESPACES).min(odd);
        (self.written * each + full) as u64
    }

    /// Writes as many a second as asked for, for as long as asked for.
    async fn paced(mut self, what: &str) -> Row {
        let (meter, begun) = (Meter::begin(), Instant::now());
        let total = self.plan.rate * self.plan.seconds;
        let mut tick = tokio::time::interval(Duration::from_millis(1));
        while (self.written as u64) < total {
            tick.tick().await;
            let due = u128::from(self.plan.rate) * begun.elapsed().as_micros() / 1_000_000;
            while (self.written as u128) < due.min(u128::from(total)) {
                self.write().await;
                // Whoever is behind must not hold up the watchers too.
                tokio::task::yield_now().await;
            }
        }
        let asked = self.plan.rate;
        self.finish(what, meter, Some(asked)).await
    }

    /// Writes at full speed, in rounds that every watcher has seen before the next begins.
    async fn unpaced(mut self, what: &str) -> Row {
        let meter = Meter::begin();
        while self.written < self.plan.writes {
            for _ in 0..10 {
                self.write().await;
                tokio::task::yield_now().await;
            }
            self.board.until(self.frames()).await;
        }
        self.finish(what, meter, None).await
    }

    async fn finish(self, what: &str, meter: Meter, asked: Option<u64>) -> Row {
        let frames = self.frames();
        self.board.until(frames).await;
        let spent = meter.end();
        let equal = self.watchers.all_equal(&self.server.list("v1", self.plan.kind.plural(), None));
        let latencies = self.board.latencies();
        let (before, after) = (self.encodings, self.server.encoding_counters());
        let encodings = (after.json - before.json, after.protobuf - before.protobuf);
        Row {
            what: what.to_owned(),
            writes: self.written,
            frames,
            spent,
            target_writes_per_second: asked,
            latencies,
            equal,
            encodings,
        }
    }
}

fn path(kind: Kind, namespace: Option<usize>, number: Option<usize>) -> String {
    let namespace = namespace.map(|number| format!("/namespaces/ns-{number:02}")).unwrap_or_default();
    let name = number.map(|number| format!("/object-{number:03}")).unwrap_or_default();
    format!("/api/v1{namespace}/{}{name}", kind.plural())
}
