//! The scenarios: each runs one client in its own process and returns figures.
//!
//! A scenario communicates with a program and a server. It does not know the number and order of runs, nor
//! what happens to the figures.

mod changes;
mod reads;
mod sharded;
mod syncs;
mod warm;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::data::{Data, Size};
use super::program::{Client, Program};
use super::replay::Replay;
use super::wire::Encoding;
use crate::failure::Failure;

/// Delay before memory is measured.
const SETTLE_DELAY: Duration = Duration::from_millis(500);

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
    /// Share of the changes of a fixed rate that the client applied meanwhile.
    pub(super) applied: Option<f64>,
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
    /// Initial sync in protobuf with a projection: memory.
    Projected { pods: usize },
    /// Initial sync in protobuf with a compressed cache of very many pods: memory.
    Huge { pods: usize },
    /// Initial sync from a control plane that contains these pods.
    ControlPlane { pods: usize },
    /// Warm starts from a saved cache: time, memory, size of the file, and what a durable handler receives.
    Warm { encoding: Encoding, pods: usize },
    /// Warm start from a saved cache of very many pods of 1 KB.
    WarmSmall { pods: usize },
    /// Warm start from a saved cache of a control plane that contains these pods.
    WarmControlPlane { pods: usize },
    /// Several processes that divide the pods of a control plane among themselves.
    ShardedControlPlane { pods: usize },
    /// How often processes that share a group write Leases.
    ShardedAtRest { members: usize },
    /// Cost of saving for changes at a fixed rate.
    Saving { encoding: Encoding, rate: u32, pods: usize, seconds: u32 },
    /// Changes at full speed.
    Watch { encoding: Encoding, pods: usize, frames: usize },
    /// Changes at full speed, with and without a projection.
    ProjectedWatch { encoding: Encoding, pods: usize, frames: usize },
    /// Cost of a change and of a look-up in a set of this size.
    Growth { pods: usize, frames: usize },
    /// Cost of a change and of look-ups with fixed numbers of results in a set of pods of 1 KB.
    Small { pods: usize, frames: usize },
    /// Latency of delivery for changes at a fixed rate.
    Latency { encoding: Encoding, rate: u32, pods: usize, seconds: u32 },
    /// Reads during changes at full speed.
    Read { pods: usize, seconds: f64 },
    /// Reads during changes at a fixed rate, or without changes if it is zero.
    ReadAt { rate: u32, pods: usize, seconds: f64 },
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
            Self::Compressed { pods } | Self::Huge { pods } => format!("sync {} compressed", short(*pods)),
            Self::Projected { pods } => format!("sync {} projection", short(*pods)),
            Self::ControlPlane { pods } => format!("control-plane sync {}", short(*pods)),
            Self::Warm { encoding, pods } => {
                format!("warm start {}{}", short(*pods), encoding_suffix(*encoding))
            }
            Self::WarmSmall { pods } => format!("warm start {} small", short(*pods)),
            Self::WarmControlPlane { pods } => format!("control-plane warm start {}", short(*pods)),
            Self::ShardedControlPlane { pods } => format!("control-plane sharded {}", short(*pods)),
            Self::ShardedAtRest { members } => format!("control-plane sharded at rest {members}"),
            Self::Saving { encoding, rate, .. } => format!("saving {rate} {}", encoding.name()),
            Self::Watch { encoding, .. } => format!("watch {}", encoding.name()),
            Self::ProjectedWatch { encoding, .. } => format!("watch {} projection", encoding.name()),
            Self::Growth { pods, .. } => format!("growth {}", short(*pods)),
            Self::Small { pods, .. } => format!("small {}", short(*pods)),
            Self::Latency { encoding, rate, .. } => format!("latency {rate} {}", encoding.name()),
            Self::Read { .. } => "reads".to_owned(),
            Self::ReadAt { rate, .. } => format!("reads at {rate}"),
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
            Self::Compressed { .. }
            | Self::Projected { .. }
            | Self::Huge { .. }
            | Self::Warm { .. }
            | Self::WarmSmall { .. }
            | Self::WarmControlPlane { .. }
            | Self::ShardedControlPlane { .. }
            | Self::ShardedAtRest { .. }
            | Self::Saving { .. }
            | Self::ProjectedWatch { .. } => &[Client::Informer],
            Self::Latency { encoding: Encoding::Protobuf, .. }
            | Self::Growth { .. }
            | Self::Small { .. }
            | Self::Queue { .. } => &[Client::Informer, Client::Go],
            Self::Latency { .. } | Self::Read { .. } | Self::ReadAt { .. } | Self::Fan { .. } => {
                &[Client::Informer, Client::Go, Client::KubeRs]
            }
        }
    }

    /// Returns the number of pods that the control plane must contain; `None` if the scenario needs none.
    pub(super) fn control_plane_pods(&self) -> Option<usize> {
        match self {
            Self::ControlPlane { pods }
            | Self::WarmControlPlane { pods }
            | Self::ShardedControlPlane { pods } => Some(*pods),
            Self::ShardedAtRest { .. } => Some(0),
            _ => None,
        }
    }

    pub(super) fn run(&self, context: &RunContext<'_>) -> Result<Vec<Figure>, Failure> {
        match *self {
            Self::Sync { encoding, pods } => syncs::sync(context, encoding, pods),
            Self::By { pods, strategy } => syncs::by(context, pods, strategy),
            Self::Stripped { pods } => syncs::stripped(context, pods),
            Self::Compressed { pods } => syncs::compressed(context, pods),
            Self::Projected { pods } => syncs::projected(context, pods),
            Self::Huge { pods } => syncs::huge(context, pods),
            Self::ControlPlane { pods } => syncs::control_plane(context, pods),
            Self::Warm { encoding, pods } => warm::warm(context, encoding, pods),
            Self::WarmSmall { pods } => warm::small(context, pods),
            Self::WarmControlPlane { pods } => warm::control_plane(context, pods),
            Self::ShardedControlPlane { pods } => sharded::control_plane(context, pods),
            Self::ShardedAtRest { members } => sharded::lease_writes(context, members),
            Self::Saving { encoding, rate, pods, seconds } => {
                warm::saving(context, encoding, rate, pods, seconds)
            }
            Self::Watch { encoding, pods, frames } => changes::watch(context, encoding, pods, frames),
            Self::ProjectedWatch { encoding, pods, frames } => {
                changes::projected(context, encoding, pods, frames)
            }
            Self::Growth { pods, frames } => changes::growth(context, pods, frames),
            Self::Small { pods, frames } => changes::small(context, pods, frames),
            Self::Latency { encoding, rate, pods, seconds } => {
                changes::latency(context, encoding, rate, pods, seconds)
            }
            Self::Read { pods, seconds } => reads::during_writes(context, pods, seconds),
            Self::ReadAt { rate, pods, seconds } => reads::at_rate(context, rate, pods, seconds),
            Self::Fan { handlers, pods, frames } => changes::fan_out(context, handlers, pods, frames),
            Self::Queue { keys } => queue(context, keys),
        }
    }
}

impl RunContext<'_> {
    /// Starts a server with this many pods of 10 KB and the client's program, which has not synced yet.
    fn start(&self, pods: usize) -> Result<(Replay, Program), Failure> {
        self.start_with(Size::Usual, pods)
    }

    /// Starts a server with this many pods and the client's program, which has not synced yet.
    fn start_with(&self, size: Size, pods: usize) -> Result<(Replay, Program), Failure> {
        let replay = Replay::start(self.data, size, pods)?;
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

    fn with_applied(self, applied: Option<f64>) -> Self {
        Self { applied, ..self }
    }
}

#[allow(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
fn queue(context: &RunContext<'_>, keys: usize) -> Result<Vec<Figure>, Failure> {
    let (_replay, mut program) = context.start(1)?;
    let mut figures = Vec::new();
    // informer's queue always records metrics, so one measurement is for both rows.
    let with_metrics: &[bool] = if context.client == Client::Informer { &[true] } else { &[false, true] };
    for workers in [0, 1, 4, 16] {
        let who = match workers {
            0 => "one thread".to_owned(),
            1 => "1 worker".to_owned(),
            _ => format!("{workers} workers"),
        };
        for metrics in with_metrics {
            let command = json!({"do": "queue", "keys": keys, "workers": workers, "metrics": metrics});
            let response = program.request(&command)?;
            if response["keys"] != json!(keys) {
                return Err(Failure::Failed(format!("completed {} of {keys} keys", response["keys"])));
            }
            let row = if *metrics {
                format!("work queue with metrics, {who}")
            } else {
                format!("work queue, {who}")
            };
            figures.push(less(row, "ns per key", number(&response, "seconds")? * 1e9 / keys as f64));
        }
    }
    Ok(figures)
}

fn less(row: String, unit: &'static str, value: f64) -> Figure {
    Figure { row, unit, better: Better::Less, value, delivered: None, applied: None }
}

fn more(row: String, unit: &'static str, value: f64) -> Figure {
    Figure { row, unit, better: Better::More, value, delivered: None, applied: None }
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

/// Formats a number: `50k` for 50,000, `1M` for a million.
pub(super) fn short(count: usize) -> String {
    match count {
        1_000_000.. if count.is_multiple_of(1_000_000) => format!("{}M", count / 1_000_000),
        1000.. if count.is_multiple_of(1000) => format!("{}k", count / 1000),
        _ => count.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!([122, 1000, 50_000, 1_000_000].map(short), ["122", "1k", "50k", "1M"]);
    }
}
