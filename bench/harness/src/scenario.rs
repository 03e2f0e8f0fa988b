//! What is measured: scenarios, each of which one client goes through in a process of its own, and the figures it gives.
//!
//! A scenario talks to a program and to a server; how often, in which order and what becomes of the figures is not its concern.

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

/// How long memory may settle before it is read.
const SETTLE_DELAY: Duration = Duration::from_millis(500);
/// How long a cache may take to learn its objects' shape and to compress them.
const TRAINING_DELAY: Duration = Duration::from_secs(4);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Better {
    Less,
    More,
}

/// One number of one run, and the row it belongs to.
pub(super) struct Figure {
    pub(super) row: String,
    pub(super) unit: &'static str,
    pub(super) better: Better,
    pub(super) value: f64,
    /// Where handlers are told of changes: how many calls there were for each change and handler.
    pub(super) delivered: Option<f64>,
}

/// What one client does once.
#[derive(Debug, Clone, Copy)]
pub(super) enum Scenario {
    /// The first set from prepared bytes, memory, and a relist with one pod in a hundred changed.
    Sync { encoding: Encoding, pods: usize },
    /// The first set in the one way or the other.
    By { pods: usize, strategy: &'static str },
    /// The first set without `managedFields`, which ours never keeps and programs on client-go often drop.
    Stripped { pods: usize },
    /// The first set in protobuf, kept compressed; memory, a relist, and what looking at an object takes then.
    Compressed { pods: usize },
    /// The first set from a real server that has these pods.
    ControlPlane { pods: usize },
    /// Changes at full speed.
    Watch { encoding: Encoding, pods: usize, frames: usize },
    /// What a change and a look-up cost in a set of this size.
    Growth { pods: usize, frames: usize },
    /// Changes at a rate, and how late they are told.
    Latency { encoding: Encoding, rate: u32, pods: usize, seconds: u32 },
    /// Reads beside changes at full speed.
    Read { pods: usize, seconds: f64 },
    /// Changes at full speed to many handlers.
    Fan { handlers: usize, pods: usize, frames: usize },
    /// Keys through a work queue.
    Queue { keys: usize },
}

/// What a scenario finds when it begins.
pub(super) struct Stage<'a> {
    pub(super) data: &'a Arc<Data>,
    pub(super) program: &'a Path,
    pub(super) client: Client,
    /// For files of the run.
    pub(super) folder: &'a Path,
    /// Of a real server, if there is one.
    pub(super) control_plane: Option<&'a Path>,
}

impl Scenario {
    /// For the person, and for the filter.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Sync { encoding, pods } => format!("sync {}{}", short(*pods), in_form(*encoding)),
            Self::By { pods, strategy } => format!("sync {} by {strategy}", short(*pods)),
            Self::Stripped { pods } => format!("sync {} stripped", short(*pods)),
            Self::Compressed { pods } => format!("sync {} compressed", short(*pods)),
            Self::ControlPlane { pods } => format!("real sync {}", short(*pods)),
            Self::Watch { encoding, .. } => format!("watch {}", encoding.name()),
            Self::Growth { pods, .. } => format!("growth {}", short(*pods)),
            Self::Latency { encoding, rate, .. } => format!("latency {rate} {}", encoding.name()),
            Self::Read { .. } => "reads".to_owned(),
            Self::Fan { handlers, .. } => format!("fan-out {handlers}"),
            Self::Queue { .. } => "queue".to_owned(),
        }
    }

    /// Who can go through it.
    pub(super) fn clients(&self) -> &'static [Client] {
        match self {
            // kube-rs does not read protobuf.
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

    pub(super) fn run(&self, stage: &Stage<'_>) -> Result<Vec<Figure>, Failure> {
        match *self {
            Self::Sync { encoding, pods } => sync(stage, encoding, pods),
            Self::By { pods, strategy } => {
                let (_replay, mut program) = stage.begin(pods)?;
                let answer = stage.sync(&mut program, pods, &json!({"strategy": strategy}))?;
                let row = format!("initial sync by {strategy}, {} pods", short(pods));
                Ok(vec![less(row, "s", number(&answer, "seconds")?)])
            }
            Self::Stripped { pods } => stripped(stage, pods),
            Self::Compressed { pods } => compressed(stage, pods),
            Self::ControlPlane { pods } => control_plane(stage, pods),
            Self::Watch { encoding, pods, frames } => watch(stage, encoding, pods, frames),
            Self::Growth { pods, frames } => growth(stage, pods, frames),
            Self::Latency { encoding, rate, pods, seconds } => latency(stage, encoding, rate, pods, seconds),
            Self::Read { pods, seconds } => read(stage, pods, seconds),
            Self::Fan { handlers, pods, frames } => fan_out(stage, handlers, pods, frames),
            Self::Queue { keys } => queue(stage, keys),
        }
    }
}

impl Stage<'_> {
    /// A server of so many pods, and the client's program, which has not asked for them yet.
    fn begin(&self, pods: usize) -> Result<(Replay, Program), Failure> {
        let replay = Replay::start(self.data, pods)?;
        let kubeconfig = self.folder.join("kubeconfig");
        std::fs::write(&kubeconfig, replay.kubeconfig())
            .map_err(|error| Failure::Failed(format!("cannot write a kubeconfig: {error}")))?;
        let program = Program::start(self.program, &kubeconfig)?;
        Ok((replay, program))
    }

    fn sync(&self, program: &mut Program, pods: usize, how: &Value) -> Result<Value, Failure> {
        let mut command = json!({"do": "sync", "resource": "pods", "encoding": "json"});
        for (name, value) in how.as_object().into_iter().flatten() {
            command[name] = value.clone();
        }
        let answer = program.request(&command)?;
        // The floor does not count.
        if self.client != Client::Baseline && answer["objects"] != json!(pods) {
            return Err(Failure::Failed(format!("{} of {pods} pods are there", answer["objects"])));
        }
        Ok(answer)
    }

    /// After so many changes of a first set: how many calls of a handler there were for each change and handler. The floor tells nobody.
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
        let told = number(&program.request(&json!({"do": "count"}))?, "delivered")?;
        Ok(Some((told - (pods * handlers) as f64) / (frames * handlers) as f64))
    }
}

impl Figure {
    fn delivered(self, told: Option<f64>) -> Self {
        Self { delivered: told, ..self }
    }
}

fn sync(stage: &Stage<'_>, encoding: Encoding, pods: usize) -> Result<Vec<Figure>, Failure> {
    let (replay, mut program) = stage.begin(pods)?;
    let answer = stage.sync(&mut program, pods, &json!({"encoding": encoding.name()}))?;
    let of = |what: &str| format!("{what}{}, {} pods", in_form(encoding), short(pods));
    thread::sleep(SETTLE_DELAY);
    let report = program.request(&json!({"do": "report", "reset": true}))?;
    let mut figures = vec![
        less(of("initial sync"), "s", number(&answer, "seconds")?),
        less(of("initial sync, CPU time"), "s", number(&answer, "cpu")?),
        less(of("memory, settled"), "MB", megabytes(&report, "rss")?),
        less(of("memory, peak of the sync"), "MB", megabytes(&report, "peak")?),
    ];
    if stage.client != Client::Baseline {
        let report = relist(&replay, &mut program, pods)?;
        figures.push(less(of("memory, peak of a relist"), "MB", megabytes(&report, "peak")?));
        figures.push(less(of("memory, settled after a relist"), "MB", megabytes(&report, "rss")?));
    }
    Ok(figures)
}

/// What memory was like after a relist with one pod in a hundred changed.
fn relist(replay: &Replay, program: &mut Program, pods: usize) -> Result<Value, Failure> {
    let changed = (pods / 100).max(1);
    let until = replay.version_after(changed);
    program.send(&json!({"do": "follow", "until": until}))?;
    replay.expire(changed);
    program.answer()?;
    thread::sleep(SETTLE_DELAY);
    program.request(&json!({"do": "report"}))
}

fn compressed(stage: &Stage<'_>, pods: usize) -> Result<Vec<Figure>, Failure> {
    let (replay, mut program) = stage.begin(pods)?;
    stage.sync(&mut program, pods, &json!({"encoding": "protobuf", "keep": "compressed"}))?;
    thread::sleep(TRAINING_DELAY);
    let report = program.request(&json!({"do": "report", "reset": true}))?;
    let of = |what: &str| format!("{what}, compressed, {} pods", short(pods));
    let looks = program.request(&json!({"do": "read", "seconds": 1, "typed": true}))?;
    let each = number(&looks, "seconds")? * 1e6 / number(&looks, "gets")?;
    let after = relist(&replay, &mut program, pods)?;
    Ok(vec![
        less(of("memory, settled"), "MB", megabytes(&report, "rss")?),
        less(of("memory, peak of the sync"), "MB", megabytes(&report, "peak")?),
        less(of("memory, peak of a relist"), "MB", megabytes(&after, "peak")?),
        less(of("memory, settled after a relist"), "MB", megabytes(&after, "rss")?),
        less(of("typed"), "µs per get", each),
    ])
}

fn stripped(stage: &Stage<'_>, pods: usize) -> Result<Vec<Figure>, Failure> {
    let (_replay, mut program) = stage.begin(pods)?;
    stage.sync(&mut program, pods, &json!({"strip": true}))?;
    thread::sleep(SETTLE_DELAY);
    let report = program.request(&json!({"do": "report"}))?;
    let of = |what: &str| format!("{what} without managedFields, {} pods", short(pods));
    Ok(vec![
        less(of("memory, settled"), "MB", megabytes(&report, "rss")?),
        less(of("memory, peak of the sync"), "MB", megabytes(&report, "peak")?),
    ])
}

fn control_plane(stage: &Stage<'_>, pods: usize) -> Result<Vec<Figure>, Failure> {
    let kubeconfig =
        stage.control_plane.ok_or_else(|| Failure::Failed("there is no real server".to_owned()))?;
    let mut figures = Vec::new();
    for encoding in [Encoding::Json, Encoding::Protobuf] {
        if (stage.client, encoding) == (Client::KubeRs, Encoding::Protobuf) {
            continue;
        }
        let mut program = Program::start(stage.program, kubeconfig)?;
        let answer = stage.sync(&mut program, pods, &json!({"encoding": encoding.name()}))?;
        let of = |what: &str| format!("{what}{}, {} pods", in_form(encoding), short(pods));
        figures.extend([
            less(of("initial sync from kube-apiserver"), "s", number(&answer, "seconds")?),
            less(of("initial sync from kube-apiserver, CPU time"), "s", number(&answer, "cpu")?),
        ]);
    }
    Ok(figures)
}

#[allow(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
fn watch(stage: &Stage<'_>, encoding: Encoding, pods: usize, frames: usize) -> Result<Vec<Figure>, Failure> {
    let (replay, mut program) = stage.begin(pods)?;
    let how = json!({"encoding": encoding.name()});
    stage.sync(&mut program, pods, &how)?;
    let answer = follow(&replay, &mut program, frames, None)?;
    let told = stage.delivered_per_change(&mut program, pods, frames, 1)?;
    let name = if encoding == Encoding::Json { "JSON" } else { "protobuf" };
    let each = number(&answer, "cpu")? * 1e6 / frames as f64;
    Ok(vec![
        more(format!("watch throughput, {name}"), "events/s", frames as f64 / number(&answer, "seconds")?)
            .delivered(told),
        less(format!("watch, {name}, CPU time"), "µs per event", each).delivered(told),
    ])
}

/// In a set that nobody writes to, a look-up finds as many objects as a five-hundredth of it.
#[allow(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
fn growth(stage: &Stage<'_>, pods: usize, frames: usize) -> Result<Vec<Figure>, Failure> {
    let (replay, mut program) = stage.begin(pods)?;
    stage.sync(&mut program, pods, &json!({"encoding": "protobuf"}))?;
    let changes = follow(&replay, &mut program, frames, None)?;
    let looks = program.request(&json!({"do": "index", "seconds": 1}))?;
    let each = number(&changes, "cpu")? * 1e6 / frames as f64;
    let found = number(&looks, "seconds")? * 1e9 / number(&looks, "found")?;
    let of = |what: &str| format!("{what}, {} pods", short(pods));
    Ok(vec![
        less(of("change, protobuf, CPU time"), "µs", each),
        less(of("look-up by node, per object found"), "ns", found),
    ])
}

fn latency(
    stage: &Stage<'_>,
    encoding: Encoding,
    rate: u32,
    pods: usize,
    seconds: u32,
) -> Result<Vec<Figure>, Failure> {
    let (replay, mut program) = stage.begin(pods)?;
    stage.sync(&mut program, pods, &json!({"encoding": encoding.name()}))?;
    let frames = (rate * seconds) as usize;
    let answer = follow(&replay, &mut program, frames, Some(rate))?;
    let told = stage.delivered_per_change(&mut program, pods, frames, 1)?;
    check_timed(&answer["latency"], frames, told)?;
    let how = in_form(encoding);
    let figures = [("p50", "p50"), ("p99", "p99"), ("p99.9", "p999")].map(|(name, field)| {
        let row = format!("latency at {rate} events/s{how}, {name}");
        Ok(less(row, "ms", number(&answer["latency"], field)? / 1000.0).delivered(told))
    });
    figures.into_iter().collect()
}

/// Percentiles must be of what was told. A program may have been told of the first changes before it began to look at send times.
#[allow(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
fn check_timed(latency: &Value, frames: usize, told: Option<f64>) -> Result<(), Failure> {
    let (timed, told) = (number(latency, "n")?, told.unwrap_or(1.0) * frames as f64);
    if timed < 0.95 * told {
        return Err(Failure::Failed(format!("{timed} of {told} changes that were told have a latency")));
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
    program.answer()
}

fn read(stage: &Stage<'_>, pods: usize, seconds: f64) -> Result<Vec<Figure>, Failure> {
    let (replay, mut program) = stage.begin(pods)?;
    stage.sync(&mut program, pods, &json!({}))?;
    let stop = replay.flood();
    let mut ask = |command: Value, count: &str| {
        let answer = program.request(&command)?;
        Ok(number(&answer, count)? / number(&answer, "seconds")?)
    };
    let gets = ask(json!({"do": "read", "seconds": seconds}), "gets")?;
    let typed = ask(json!({"do": "read", "seconds": seconds, "typed": true}), "gets")?;
    let lookups = ask(json!({"do": "index", "seconds": seconds}), "lookups")?;
    stop.store(true, Ordering::Relaxed);
    let mut figures = vec![
        more("get during writes".to_owned(), "1,000/s", gets / 1000.0),
        more("get during writes, typed".to_owned(), "1,000/s", typed / 1000.0),
        more("look-up by node during writes".to_owned(), "1,000/s", lookups / 1000.0),
    ];
    if stage.client == Client::Informer {
        figures.push(decoded(stage, pods, seconds)?);
    }
    Ok(figures)
}

/// Typed reads from a cache that keeps what it has decoded once, as those of the peers do from the beginning.
fn decoded(stage: &Stage<'_>, pods: usize, seconds: f64) -> Result<Figure, Failure> {
    let (replay, mut program) = stage.begin(pods)?;
    stage.sync(&mut program, pods, &json!({"keep": "decoded"}))?;
    let stop = replay.flood();
    let answer = program.request(&json!({"do": "read", "seconds": seconds, "typed": true}))?;
    stop.store(true, Ordering::Relaxed);
    let gets = number(&answer, "gets")? / number(&answer, "seconds")?;
    Ok(more("get during writes, typed, decoded".to_owned(), "1,000/s", gets / 1000.0))
}

#[allow(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
fn fan_out(stage: &Stage<'_>, handlers: usize, pods: usize, frames: usize) -> Result<Vec<Figure>, Failure> {
    let (replay, mut program) = stage.begin(pods)?;
    stage.sync(&mut program, pods, &json!({"handlers": handlers}))?;
    let answer = follow(&replay, &mut program, frames, None)?;
    let plural = if handlers == 1 { "" } else { "s" };
    let row = format!("watch throughput, {handlers} handler{plural}");
    let told = stage.delivered_per_change(&mut program, pods, frames, handlers)?;
    Ok(vec![more(row, "events/s", frames as f64 / number(&answer, "seconds")?).delivered(told)])
}

#[allow(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
fn queue(stage: &Stage<'_>, keys: usize) -> Result<Vec<Figure>, Failure> {
    let (_replay, mut program) = stage.begin(1)?;
    let mut figures = Vec::new();
    for workers in [0, 1, 4, 16] {
        let answer = program.request(&json!({"do": "queue", "keys": keys, "workers": workers}))?;
        if answer["keys"] != json!(keys) {
            return Err(Failure::Failed(format!("{} of {keys} keys were done", answer["keys"])));
        }
        let row = match workers {
            0 => "work queue, one thread".to_owned(),
            1 => "work queue, 1 worker".to_owned(),
            _ => format!("work queue, {workers} workers"),
        };
        figures.push(less(row, "ns per key", number(&answer, "seconds")? * 1e9 / keys as f64));
    }
    Ok(figures)
}

fn less(row: String, unit: &'static str, value: f64) -> Figure {
    Figure { row, unit, better: Better::Less, value, delivered: None }
}

fn more(row: String, unit: &'static str, value: f64) -> Figure {
    Figure { row, unit, better: Better::More, value, delivered: None }
}

fn number(answer: &Value, field: &str) -> Result<f64, Failure> {
    answer[field].as_f64().ok_or_else(|| Failure::Failed(format!("no `{field}` in the answer {answer}")))
}

fn megabytes(answer: &Value, field: &str) -> Result<f64, Failure> {
    Ok(number(answer, field)? / 1e6)
}

/// What is said of a form that is not JSON.
fn in_form(encoding: Encoding) -> &'static str {
    match encoding {
        Encoding::Json => "",
        Encoding::Protobuf => ", protobuf",
    }
}

/// `50k` for 50,000.
pub(super) fn short(count: usize) -> String {
    if count >= 1000 && count.is_multiple_of(1000) { format!("{}k", count / 1000) } else { count.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_of_what_was_told() {
        assert!(check_timed(&json!({"n": 955}), 1000, Some(1.0)).is_ok());
        assert!(check_timed(&json!({"n": 480}), 1000, Some(0.5)).is_ok());
        let Err(failure) = check_timed(&json!({"n": 495}), 1000, Some(1.0)) else {
            panic!("half is not all")
        };
        assert_eq!(failure.message(), "495 of 1000 changes that were told have a latency");
    }
}
