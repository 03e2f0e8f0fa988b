//! The scenarios: each runs one client in its own process and returns figures.
//!
//! A scenario communicates with a program and a server. It does not know the number and order of runs, nor
//! what happens to the figures.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::data::Data;
use super::program::{Client, Program};
use super::replay::Replay;
use super::wire::Encoding;
use crate::failure::Failure;

/// Delay before memory is measured.
const SETTLE_DELAY: Duration = Duration::from_millis(500);
/// Delay until a cache has trained a dictionary and compressed its objects.
const TRAINING_DELAY: Duration = Duration::from_secs(4);

/// Which values of a figure are better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Better {
    Less,
    More,
}

/// A value of one run, and the row that it belongs to.
pub(super) struct Figure {
    pub(super) row: String,
    pub(super) unit: &'static str,
    pub(super) better: Better,
    pub(super) value: f64,
    /// Handler calls per change and handler, if changes are delivered.
    pub(super) delivered: Option<f64>,
}

/// A scenario with its parameters.
#[derive(Debug, Clone, Copy)]
pub(super) enum Scenario {
    /// Initial sync from prepared bytes, memory, and a relist after one pod in a hundred changed.
    Sync { encoding: Encoding, pods: usize },
    /// Initial sync with this strategy.
    By { pods: usize, strategy: &'static str },
    /// Initial sync without `managedFields`, which informer never stores and users of client-go often drop.
    Stripped { pods: usize },
    /// Initial sync in protobuf with a compressed cache: memory, a relist, and the time of a typed read.
    Compressed { pods: usize },
    /// Initial sync from a control plane that contains these pods.
    ControlPlane { pods: usize },
    /// Changes at full speed.
    Watch { encoding: Encoding, pods: usize, frames: usize },
    /// Cost of a change and of a look-up in a set of this size.
    Growth { pods: usize, frames: usize },
    /// Latency of delivery for changes at a fixed rate.
    Latency { encoding: Encoding, rate: u32, pods: usize, seconds: u32 },
    /// Reads during changes at full speed.
    Read { pods: usize, seconds: f64 },
    /// Changes at full speed, delivered to several handlers.
    Fan { handlers: usize, pods: usize, frames: usize },
    /// Keys that pass through a work queue.
    Queue { keys: usize },
}

/// The environment of a run.
pub(super) struct RunContext<'a> {
    pub(super) data: &'a Arc<Data>,
    pub(super) program: &'a Path,
    pub(super) client: Client,
    /// Folder for temporary files.
    pub(super) folder: &'a Path,
    /// Path of the kubeconfig of the control plane, if one is given.
    pub(super) control_plane: Option<&'a Path>,
}

impl Scenario {
    /// Returns the name for messages and for the filter.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Sync { encoding, pods } => format!("sync {}{}", short(*pods), encoding_suffix(*encoding)),
            Self::By { pods, strategy } => format!("sync {} by {strategy}", short(*pods)),
            Self::Stripped { pods } => format!("sync {} stripped", short(*pods)),
            Self::Compressed { pods } => format!("sync {} compressed", short(*pods)),
            Self::ControlPlane { pods } => format!("control-plane sync {}", short(*pods)),
            Self::Watch { encoding, .. } => format!("watch {}", encoding.name()),
            Self::Growth { pods, .. } => format!("growth {}", short(*pods)),
            Self::Latency { encoding, rate, .. } => format!("latency {rate} {}", encoding.name()),
            Self::Read { .. } => "reads".to_owned(),
            Self::Fan { handlers, .. } => format!("fan-out {handlers}"),
            Self::Queue { .. } => "queue".to_owned(),
        }
    }

    /// Returns the clients that support the scenario.
    pub(super) fn clients(&self) -> &'static [Client] {
        match self {
            // kube-rs does not support protobuf.
            Self::Sync { encoding: Encoding::Protobuf, .. }
            | Self::Watch { encoding: Encoding::Protobuf, .. } => {
                &[Client::Informer, Client::Go, Client::Baseline]
            }
            Self::Sync { .. } | Self::By { .. } | Self::ControlPlane { .. } | Self::Watch { .. } => {
                &Client::ALL
            }
            Self::Stripped { .. } => &[Client::Go],
            Self::Compressed { .. } => &[Client::Informer],
            Self::Latency { encoding: Encoding::Protobuf, .. } | Self::Growth { .. } | Self::Queue { .. } => {
                &[Client::Informer, Client::Go]
            }
            Self::Latency { .. } | Self::Read { .. } | Self::Fan { .. } => {
                &[Client::Informer, Client::Go, Client::KubeRs]
            }
        }
    }

    pub(super) fn run(&self, context: &RunContext<'_>) -> Result<Vec<Figure>, Failure> {
        match *self {
            Self::Sync { encoding, pods } => sync(context, encoding, pods),
            Self::By { pods, strategy } => {
                let (_replay, mut program) = context.start(pods)?;
                let response = context.sync(&mut program, pods, &json!({"strategy": strategy}))?;
                let row = format!("initial sync by {strategy}, {} pods", short(pods));
                Ok(vec![less(row, "s", number(&response, "seconds")?)])
            }
            Self::Stripped { pods } => stripped(context, pods),
            Self::Compressed { pods } => compressed(context, pods),
            Self::ControlPlane { pods } => control_plane(context, pods),
            Self::Watch { encoding, pods, frames } => watch(context, encoding, pods, frames),
            Self::Growth { pods, frames } => growth(context, pods, frames),
            Self::Latency { encoding, rate, pods, seconds } => {
                latency(context, encoding, rate, pods, seconds)
            }
            Self::Read { pods, seconds } => read(context, pods, seconds),
            Self::Fan { handlers, pods, frames } => fan_out(context, handlers, pods, frames),
            Self::Queue { keys } => queue(context, keys),
        }
    }
}

impl RunContext<'_> {
    /// Starts a server with this many pods and the client's program, which has not synced yet.
    fn start(&self, pods: usize) -> Result<(Replay, Program), Failure> {
        let replay = Replay::start(self.data, pods)?;
        let kubeconfig = self.folder.join("kubeconfig");
        std::fs::write(&kubeconfig, replay.kubeconfig())
            .map_err(|error| Failure::Failed(format!("cannot write the kubeconfig: {error}")))?;
        let program = Program::start(self.program, &kubeconfig)?;
        Ok((replay, program))
    }

    /// Lets the program sync with these additional fields, and checks the number of objects.
    fn sync(&self, program: &mut Program, pods: usize, fields: &Value) -> Result<Value, Failure> {
        let mut command = json!({"do": "sync", "resource": "pods", "encoding": "json"});
        for (name, value) in fields.as_object().into_iter().flatten() {
            command[name] = value.clone();
        }
        let response = program.request(&command)?;
        // The baseline does not count objects.
        if self.client != Client::Baseline && response["objects"] != json!(pods) {
            return Err(Failure::Failed(format!("synced {} of {pods} pods", response["objects"])));
        }
        Ok(response)
    }

    /// Returns the handler calls per change and handler, after `frames` changes that followed the initial
    /// list. `None` for the baseline, which has no handlers.
    #[allow(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
    fn delivered_per_change(
        &self,
        program: &mut Program,
        pods: usize,
        frames: usize,
        handlers: usize,
    ) -> Result<Option<f64>, Failure> {
        if self.client == Client::Baseline {
            return Ok(None);
        }
        let delivered = number(&program.request(&json!({"do": "count"}))?, "delivered")?;
        Ok(Some((delivered - (pods * handlers) as f64) / (frames * handlers) as f64))
    }
}

impl Figure {
    fn with_delivered(self, delivered: Option<f64>) -> Self {
        Self { delivered, ..self }
    }
}

fn sync(context: &RunContext<'_>, encoding: Encoding, pods: usize) -> Result<Vec<Figure>, Failure> {
    let (replay, mut program) = context.start(pods)?;
    let response = context.sync(&mut program, pods, &json!({"encoding": encoding.name()}))?;
    let row_name = |what: &str| format!("{what}{}, {} pods", encoding_suffix(encoding), short(pods));
    thread::sleep(SETTLE_DELAY);
    let report = program.request(&json!({"do": "report", "reset": true}))?;
    let mut figures = vec![
        less(row_name("initial sync"), "s", number(&response, "seconds")?),
        less(row_name("initial sync, CPU time"), "s", number(&response, "cpu")?),
        less(row_name("memory, settled"), "MB", megabytes(&report, "rss")?),
        less(row_name("memory, peak of the sync"), "MB", megabytes(&report, "peak")?),
    ];
    if context.client != Client::Baseline {
        let report = relist(&replay, &mut program, pods)?;
        figures.push(less(row_name("memory, peak of a relist"), "MB", megabytes(&report, "peak")?));
        figures.push(less(row_name("memory, settled after a relist"), "MB", megabytes(&report, "rss")?));
    }
    Ok(figures)
}

/// Causes a relist after one pod in a hundred changed, and returns the memory report.
fn relist(replay: &Replay, program: &mut Program, pods: usize) -> Result<Value, Failure> {
    let changed = (pods / 100).max(1);
    let until = replay.version_after(changed);
    program.send(&json!({"do": "follow", "until": until}))?;
    replay.expire(changed);
    program.response()?;
    thread::sleep(SETTLE_DELAY);
    program.request(&json!({"do": "report"}))
}

fn compressed(context: &RunContext<'_>, pods: usize) -> Result<Vec<Figure>, Failure> {
    let (replay, mut program) = context.start(pods)?;
    context.sync(&mut program, pods, &json!({"encoding": "protobuf", "keep": "compressed"}))?;
    thread::sleep(TRAINING_DELAY);
    let report = program.request(&json!({"do": "report", "reset": true}))?;
    let row_name = |what: &str| format!("{what}, compressed, {} pods", short(pods));
    let reads = program.request(&json!({"do": "read", "seconds": 1, "typed": true}))?;
    let each = number(&reads, "seconds")? * 1e6 / number(&reads, "gets")?;
    let after = relist(&replay, &mut program, pods)?;
    Ok(vec![
        less(row_name("memory, settled"), "MB", megabytes(&report, "rss")?),
        less(row_name("memory, peak of the sync"), "MB", megabytes(&report, "peak")?),
        less(row_name("memory, peak of a relist"), "MB", megabytes(&after, "peak")?),
        less(row_name("memory, settled after a relist"), "MB", megabytes(&after, "rss")?),
        less(row_name("typed"), "µs per get", each),
    ])
}

fn stripped(context: &RunContext<'_>, pods: usize) -> Result<Vec<Figure>, Failure> {
    let (_replay, mut program) = context.start(pods)?;
    context.sync(&mut program, pods, &json!({"strip": true}))?;
    thread::sleep(SETTLE_DELAY);
    let report = program.request(&json!({"do": "report"}))?;
    let row_name = |what: &str| format!("{what} without managedFields, {} pods", short(pods));
    Ok(vec![
        less(row_name("memory, settled"), "MB", megabytes(&report, "rss")?),
        less(row_name("memory, peak of the sync"), "MB", megabytes(&report, "peak")?),
    ])
}

fn control_plane(context: &RunContext<'_>, pods: usize) -> Result<Vec<Figure>, Failure> {
    let kubeconfig =
        context.control_plane.ok_or_else(|| Failure::Failed("no control plane is given".to_owned()))?;
    let mut figures = Vec::new();
    for encoding in [Encoding::Json, Encoding::Protobuf] {
        if (context.client, encoding) == (Client::KubeRs, Encoding::Protobuf) {
            continue;
        }
        let mut program = Program::start(context.program, kubeconfig)?;
        let response = context.sync(&mut program, pods, &json!({"encoding": encoding.name()}))?;
        let row_name = |what: &str| format!("{what}{}, {} pods", encoding_suffix(encoding), short(pods));
        figures.extend([
            less(row_name("initial sync from kube-apiserver"), "s", number(&response, "seconds")?),
            less(row_name("initial sync from kube-apiserver, CPU time"), "s", number(&response, "cpu")?),
        ]);
    }
    Ok(figures)
}

#[allow(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
fn watch(
    context: &RunContext<'_>,
    encoding: Encoding,
    pods: usize,
    frames: usize,
) -> Result<Vec<Figure>, Failure> {
    let (replay, mut program) = context.start(pods)?;
    context.sync(&mut program, pods, &json!({"encoding": encoding.name()}))?;
    let response = follow(&replay, &mut program, frames, None)?;
    let delivered = context.delivered_per_change(&mut program, pods, frames, 1)?;
    let name = if encoding == Encoding::Json { "JSON" } else { "protobuf" };
    let each = number(&response, "cpu")? * 1e6 / frames as f64;
    Ok(vec![
        more(format!("watch throughput, {name}"), "events/s", frames as f64 / number(&response, "seconds")?)
            .with_delivered(delivered),
        less(format!("watch, {name}, CPU time"), "µs per event", each).with_delivered(delivered),
    ])
}

/// Measures changes and then look-ups, which run without concurrent writes and find one in five hundred
/// objects each.
#[allow(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
fn growth(context: &RunContext<'_>, pods: usize, frames: usize) -> Result<Vec<Figure>, Failure> {
    let (replay, mut program) = context.start(pods)?;
    context.sync(&mut program, pods, &json!({"encoding": "protobuf"}))?;
    let changes = follow(&replay, &mut program, frames, None)?;
    let lookups = program.request(&json!({"do": "index", "seconds": 1}))?;
    let each = number(&changes, "cpu")? * 1e6 / frames as f64;
    let found = number(&lookups, "seconds")? * 1e9 / number(&lookups, "found")?;
    let row_name = |what: &str| format!("{what}, {} pods", short(pods));
    Ok(vec![
        less(row_name("change, protobuf, CPU time"), "µs", each),
        less(row_name("look-up by node, per object found"), "ns", found),
    ])
}

fn latency(
    context: &RunContext<'_>,
    encoding: Encoding,
    rate: u32,
    pods: usize,
    seconds: u32,
) -> Result<Vec<Figure>, Failure> {
    let (replay, mut program) = context.start(pods)?;
    context.sync(&mut program, pods, &json!({"encoding": encoding.name()}))?;
    let frames = (rate * seconds) as usize;
    let response = follow(&replay, &mut program, frames, Some(rate))?;
    let delivered = context.delivered_per_change(&mut program, pods, frames, 1)?;
    check_timed(&response["latency"], frames, delivered)?;
    let suffix = encoding_suffix(encoding);
    let figures = [("p50", "p50"), ("p99", "p99"), ("p99.9", "p999")].map(|(name, field)| {
        let row = format!("latency at {rate} events/s{suffix}, {name}");
        Ok(less(row, "ms", number(&response["latency"], field)? / 1000.0).with_delivered(delivered))
    });
    figures.into_iter().collect()
}

/// Checks that nearly all delivered changes have a latency. A program may have received the first changes
/// before it started to measure.
#[allow(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
fn check_timed(latency: &Value, frames: usize, delivered: Option<f64>) -> Result<(), Failure> {
    let (timed, delivered) = (number(latency, "n")?, delivered.unwrap_or(1.0) * frames as f64);
    if timed < 0.95 * delivered {
        return Err(Failure::Failed(format!("only {timed} of {delivered} delivered changes have a latency")));
    }
    Ok(())
}

fn follow(
    replay: &Replay,
    program: &mut Program,
    frames: usize,
    rate: Option<u32>,
) -> Result<Value, Failure> {
    let until = replay.version_after(frames);
    program.send(&json!({"do": "follow", "until": until, "latency": rate.is_some()}))?;
    replay.write(frames, rate);
    program.response()
}

fn read(context: &RunContext<'_>, pods: usize, seconds: f64) -> Result<Vec<Figure>, Failure> {
    let (replay, mut program) = context.start(pods)?;
    context.sync(&mut program, pods, &json!({}))?;
    let stop = replay.flood();
    let mut measure = |command: Value, count: &str| {
        let response = program.request(&command)?;
        Ok(number(&response, count)? / number(&response, "seconds")?)
    };
    let gets = measure(json!({"do": "read", "seconds": seconds}), "gets")?;
    let typed = measure(json!({"do": "read", "seconds": seconds, "typed": true}), "gets")?;
    let lookups = measure(json!({"do": "index", "seconds": seconds}), "lookups")?;
    stop.store(true, Ordering::Relaxed);
    let mut figures = vec![
        more("get during writes".to_owned(), "thousand/s", gets / 1000.0),
        more("get during writes, typed".to_owned(), "thousand/s", typed / 1000.0),
        more("look-up by node during writes".to_owned(), "thousand/s", lookups / 1000.0),
    ];
    if context.client == Client::Informer {
        figures.push(decoded(context, pods, seconds)?);
    }
    Ok(figures)
}

/// Measures typed reads from a cache that stores decoded objects, as the caches of the peers always do.
fn decoded(context: &RunContext<'_>, pods: usize, seconds: f64) -> Result<Figure, Failure> {
    let (replay, mut program) = context.start(pods)?;
    context.sync(&mut program, pods, &json!({"keep": "decoded"}))?;
    let stop = replay.flood();
    let response = program.request(&json!({"do": "read", "seconds": seconds, "typed": true}))?;
    stop.store(true, Ordering::Relaxed);
    let gets = number(&response, "gets")? / number(&response, "seconds")?;
    Ok(more("get during writes, typed, decoded".to_owned(), "thousand/s", gets / 1000.0))
}

#[allow(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
fn fan_out(
    context: &RunContext<'_>,
    handlers: usize,
    pods: usize,
    frames: usize,
) -> Result<Vec<Figure>, Failure> {
    let (replay, mut program) = context.start(pods)?;
    context.sync(&mut program, pods, &json!({"handlers": handlers}))?;
    let response = follow(&replay, &mut program, frames, None)?;
    let plural = if handlers == 1 { "" } else { "s" };
    let row = format!("watch throughput, {handlers} handler{plural}");
    let delivered = context.delivered_per_change(&mut program, pods, frames, handlers)?;
    Ok(vec![more(row, "events/s", frames as f64 / number(&response, "seconds")?).with_delivered(delivered)])
}

#[allow(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
fn queue(context: &RunContext<'_>, keys: usize) -> Result<Vec<Figure>, Failure> {
    let (_replay, mut program) = context.start(1)?;
    let mut figures = Vec::new();
    for workers in [0, 1, 4, 16] {
        let response = program.request(&json!({"do": "queue", "keys": keys, "workers": workers}))?;
        if response["keys"] != json!(keys) {
            return Err(Failure::Failed(format!("completed {} of {keys} keys", response["keys"])));
        }
        let row = match workers {
            0 => "work queue, one thread".to_owned(),
            1 => "work queue, 1 worker".to_owned(),
            _ => format!("work queue, {workers} workers"),
        };
        figures.push(less(row, "ns per key", number(&response, "seconds")? * 1e9 / keys as f64));
    }
    Ok(figures)
}

fn less(row: String, unit: &'static str, value: f64) -> Figure {
    Figure { row, unit, better: Better::Less, value, delivered: None }
}

fn more(row: String, unit: &'static str, value: f64) -> Figure {
    Figure { row, unit, better: Better::More, value, delivered: None }
}

fn number(response: &Value, field: &str) -> Result<f64, Failure> {
    response[field]
        .as_f64()
        .ok_or_else(|| Failure::Failed(format!("no `{field}` in the response {response}")))
}

fn megabytes(response: &Value, field: &str) -> Result<f64, Failure> {
    Ok(number(response, field)? / 1e6)
}

/// Returns the part of a row's name for an encoding other than JSON.
fn encoding_suffix(encoding: Encoding) -> &'static str {
    match encoding {
        Encoding::Json => "",
        Encoding::Protobuf => ", protobuf",
    }
}

/// Formats a number: `50k` for 50,000.
pub(super) fn short(count: usize) -> String {
    if count >= 1000 && count.is_multiple_of(1000) { format!("{}k", count / 1000) } else { count.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_latencies_are_an_error() {
        assert!(check_timed(&json!({"n": 955}), 1000, Some(1.0)).is_ok());
        assert!(check_timed(&json!({"n": 480}), 1000, Some(0.5)).is_ok());
        let Err(failure) = check_timed(&json!({"n": 495}), 1000, Some(1.0)) else {
            panic!("half of the latencies are missing")
        };
        assert_eq!(failure.message(), "only 495 of 1000 delivered changes have a latency");
    }
}
