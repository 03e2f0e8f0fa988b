//! Load test of the embedded server: 200 watches and 2,000 writes per second on one core.
//!
//! Run it with `cargo bench -p informer-apiserver --bench load`; on Linux, `taskset -c 0` in front restricts
//! it to one core. Server, writers and watchers share one thread and one runtime, so the CPU share is that of
//! all of them together. Watchers read only name and version of a frame. The server counts encodings, which
//! must not grow with the number of watches. CPU time is that of the thread as counted by the kernel: on a
//! busy machine it is more meaningful than elapsed time.
#![allow(clippy::unwrap_used, clippy::cast_precision_loss, reason = "a benchmark; counts are below 2^52")]

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
Measures the embedded server under watches and writes, all on one thread.

    cargo bench -p informer-apiserver --bench load [-- OPTIONS]

    --quick             short run of a few seconds
    --seconds N         duration of the rows with a fixed rate [60]
    --watches N         number of watches [200]
    --rate N            writes per second of the rows with a fixed rate [2000]
    --pods              use small pods instead of config maps
    --only TEXT         only rows whose name contains TEXT
    --help              print this help

The exit code is 1 if a watcher did not end with the server's state; a missed target is only reported.";

/// Number of namespaces, and of objects in each.
const NAMESPACES: usize = 20;
const OBJECTS: usize = 50;

/// The options of a run.
#[derive(Debug, Clone)]
struct Plan {
    seconds: u64,
    watches: usize,
    rate: u64,
    /// Number of writes of rows without a fixed rate.
    writes: usize,
    kind: Kind,
    /// Only rows whose name contains this text.
    only: Option<String>,
}

/// The kind of the written objects.
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

    /// Returns the start of the JSON frame of an update, up to the number of the object.
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

    /// Returns an object in the given revision.
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
    let args: Vec<String> = std::env::args().skip(1).collect();
    let plan = match plan(&args) {
        Ok(Some(plan)) => plan,
        Ok(None) => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("load: {error}, see --help");
            return ExitCode::FAILURE;
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let rows = runtime.block_on(measure(&plan));
    println!("\n{} in {NAMESPACES} namespaces, {OBJECTS} in each; all on one thread\n", plan.kind.plural());
    println!("{}", report::head());
    for row in &rows {
        println!("{row}");
    }
    let equal = rows.iter().all(|row| row.equal);
    println!("\ntarget: every watcher ends with the server's state: {}", report::verdict(equal));
    if equal { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn plan(args: &[String]) -> Result<Option<Plan>, String> {
    let mut plan =
        Plan { seconds: 60, watches: 200, rate: 2_000, writes: 20_000, kind: Kind::Maps, only: None };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut count = || {
            let value = args.next().ok_or_else(|| format!("`{arg}` needs a value"))?;
            value.replace(['_', ','], "").parse::<u64>().map_err(|_| format!("`{value}` is not a number"))
        };
        match arg.as_str() {
            "--quick" => (plan.seconds, plan.writes) = (1, 1_000),
            "--seconds" => plan.seconds = count()?.max(1),
            "--watches" => plan.watches = usize::try_from(count()?).unwrap_or(1).max(1),
            "--rate" => plan.rate = count()?.max(1),
            "--only" => plan.only = args.next().cloned(),
            "--pods" => plan.kind = Kind::Pods,
            "--bench" => {} // passed by cargo to every benchmark
            "--help" | "-h" => return Ok(None),
            _ => return Err(format!("unknown argument `{arg}`")),
        }
    }
    Ok(Some(plan))
}

async fn measure(plan: &Plan) -> Vec<Row> {
    let mut rows = Vec::new();
    let (watches_per_run, json) = (plan.watches, Wire::Json(plan.kind.head()));
    for sockets in [false, true] {
        let transport = if sockets { "socket" } else { "process" };
        let cases = [
            (0, Scope::Namespaces, Pace::Full, json, format!("{transport}, no watches")),
            (
                watches_per_run,
                Scope::Namespaces,
                Pace::Fixed,
                json,
                format!("{transport}, {watches_per_run} in {NAMESPACES} namespaces"),
            ),
            (
                watches_per_run,
                Scope::AllNamespaces,
                Pace::Full,
                json,
                format!("{transport}, {watches_per_run} in all namespaces"),
            ),
            (
                watches_per_run,
                Scope::AllNamespaces,
                Pace::Full,
                Wire::Protobuf,
                format!("{transport}, {watches_per_run} in protobuf"),
            ),
        ];
        for (watches, scope, pace, wire, name) in cases {
            if plan.only.as_ref().is_none_or(|only| name.contains(only.as_str())) {
                eprintln!("{name}");
                let run = Run::new(plan.clone(), sockets, wire, watches, scope).await;
                rows.push(match pace {
                    Pace::Full => run.unpaced(&name).await,
                    Pace::Fixed => run.paced(&name).await,
                });
            }
        }
    }
    rows
}

/// The rate of writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// As fast as every watcher can follow.
    Full,
    /// The rate of the plan.
    Fixed,
}

/// The objects that a watch includes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// Those of one namespace; the watches are distributed evenly.
    Namespaces,
    /// Those of all namespaces.
    AllNamespaces,
}

/// One server with its watches.
struct Run {
    plan: Plan,
    server: ApiServer,
    _running: Option<RunningServer>,
    transport: Transport,
    watchers: Watchers,
    scope: Scope,
    /// Number of writes so far.
    written: usize,
    board: Arc<Board>,
    /// Encodings before the measurement.
    encodings: EncodingCounters,
}

impl Run {
    async fn new(plan: Plan, sockets: bool, wire: Wire, count: usize, scope: Scope) -> Self {
        // The default limit would mainly measure memory.
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
        let running = if sockets {
            Some(server.listen(ListenOptions::http().without_access_control()).await.unwrap())
        } else {
            None
        };
        let transport = match &running {
            Some(running) => Transport::Socket(running.client()),
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
            watchers.open(transport.get(&path, wire.accept()).await, namespace);
        }
        assert_eq!(server.open_watches(), count);
        let encodings = server.encoding_counters();
        Run { plan, server, _running: running, transport, watchers, scope, written: 0, board, encodings }
    }

    /// Updates the next object: cycles through the namespaces, and through the objects of each.
    async fn write(&mut self) {
        let (round, namespace) = (self.written / NAMESPACES, self.written % NAMESPACES);
        let (revision, number) = (round / OBJECTS + 1, round % OBJECTS);
        let body = self.plan.kind.object(namespace, number, revision);
        let path = path(self.plan.kind, Some(namespace), Some(number));
        self.written += 1;
        self.board.writing();
        self.transport.put(&path, body).await;
    }

    /// Returns the number of frames that all watchers together must have received.
    fn frames(&self) -> u64 {
        let watches = self.watchers.len();
        let each = match self.scope {
            Scope::AllNamespaces => watches,
            Scope::Namespaces => watches / NAMESPACES,
        };
        let remainder = if self.scope == Scope::Namespaces { watches % NAMESPACES } else { 0 };
        let extra = self.written / NAMESPACES * remainder + (self.written % NAMESPACES).min(remainder);
        (self.written * each + extra) as u64
    }

    /// Writes at the rate and for the duration of the plan.
    async fn paced(mut self, name: &str) -> Row {
        let (meter, started) = (Meter::begin(), Instant::now());
        let total = self.plan.rate * self.plan.seconds;
        let mut tick = tokio::time::interval(Duration::from_millis(1));
        while (self.written as u64) < total {
            tick.tick().await;
            let due = u128::from(self.plan.rate) * started.elapsed().as_micros() / 1_000_000;
            while (self.written as u128) < due.min(u128::from(total)) {
                self.write().await;
                // If the writer is late, it must not delay the watchers too.
                tokio::task::yield_now().await;
            }
        }
        let rate = self.plan.rate;
        self.finish(name, meter, Some(rate)).await
    }

    /// Writes at full speed, in rounds that every watcher has received before the next one starts.
    async fn unpaced(mut self, name: &str) -> Row {
        let meter = Meter::begin();
        while self.written < self.plan.writes {
            for _ in 0..10 {
                self.write().await;
                tokio::task::yield_now().await;
            }
            self.board.until(self.frames()).await;
        }
        self.finish(name, meter, None).await
    }

    async fn finish(self, name: &str, meter: Meter, target_writes_per_second: Option<u64>) -> Row {
        let frames = self.frames();
        self.board.until(frames).await;
        let spent = meter.end();
        let equal = self.watchers.all_equal(&self.server.list("v1", self.plan.kind.plural(), None));
        let latencies = self.board.latencies();
        let (before, after) = (self.encodings, self.server.encoding_counters());
        let encodings = (after.json - before.json, after.protobuf - before.protobuf);
        Row {
            name: name.to_owned(),
            writes: self.written,
            frames,
            spent,
            target_writes_per_second,
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
