//! Shared code of the Rust benchmark programs: commands, responses, delivery statistics and process
//! statistics.
//!
//! The protocol is described in `bench/peers/README.md`; the Go program implements it separately. This crate
//! does not depend on any informer: a program implements [`Peer`].

mod delivered;
mod fields;
mod process_stats;
mod random;

use std::future::Future;
use std::process::ExitCode;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

pub use delivered::{Deliveries, Measurement, SENT, revised, sent_in};
pub use fields::sum_of_fields;
pub use process_stats::ProcessStats;
pub use random::Random;

/// A line sent by the harness.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Command {
    /// Starts the informer; responds when the cache is complete and every handler has received the initial
    /// list.
    Sync(Sync),
    /// Responds when every handler has reached this version.
    Follow {
        /// Version of the last change.
        until: u64,
        /// Whether latencies are measured with the send times in the objects.
        #[serde(default)]
        latency: bool,
    },
    /// Reads objects by random keys as fast as possible for this time.
    Read {
        /// Duration in seconds.
        seconds: f64,
        /// How each object is read.
        through: Through,
    },
    /// Reads six fields of every pod, again and again for this time.
    Walk {
        /// Duration in seconds.
        seconds: f64,
        /// How each object is read.
        through: Through,
    },
    /// Looks up the pods with random values of the index as fast as possible for this time.
    Index {
        /// Duration in seconds.
        seconds: f64,
        /// Looks up groups of this many pods, with the index by group.
        #[serde(default)]
        results: Option<usize>,
        /// How the pods are read.
        #[serde(default)]
        through: Through,
    },
    /// Passes keys through a work queue.
    Queue {
        /// Number of keys.
        keys: usize,
        /// Number of workers besides the task that adds keys; with none, that task takes each key itself.
        workers: usize,
        /// Whether the queue records metrics; informer's queue always does.
        #[serde(default)]
        metrics: bool,
    },
    /// Reports memory and CPU time of the process.
    Report {
        /// Whether the measurement of the peak restarts.
        #[serde(default)]
        reset: bool,
    },
    /// Returns the number of objects and of events delivered so far.
    Count {
        /// Also counts objects whose annotation `revision` has this value.
        #[serde(default)]
        revision: Option<String>,
    },
    /// Patches the annotation `revision` of this many pods on the server; informer only.
    Change {
        /// Number of pods: the first ones in key order.
        pods: usize,
        /// The new value of the annotation.
        revision: String,
    },
    /// Joins a shard group, before a sync; informer only.
    Join {
        /// Name of the group.
        group: String,
        /// Name of this process in the group.
        identity: String,
    },
    /// Returns which ranges this process holds, and since when; informer only.
    Shard,
    /// Returns the number of events by kind, and a sum of the hashes of their objects; informer only.
    Events,
    /// Returns how many writes of Leases the server has counted; informer only.
    LeaseWrites,
    /// Leaves the shard group in order; informer only.
    Leave,
    /// Stops the informer, which saves its cache; informer only.
    Stop,
    /// Exits.
    Quit,
}

/// Parameters of a sync.
#[derive(Debug, Clone, Deserialize)]
#[allow(clippy::struct_excessive_bools, reason = "independent options of a command")]
pub struct Sync {
    /// Always `pods`.
    pub resource: String,
    /// `json` or `protobuf`.
    pub encoding: String,
    /// How the initial list is requested.
    #[serde(default)]
    pub strategy: Strategy,
    /// Number of handlers.
    #[serde(default = "one")]
    pub handlers: usize,
    /// Whether a transform removes `managedFields`; client-go only.
    #[serde(default)]
    pub strip: bool,
    /// Retention of the cache; informer only.
    #[serde(default)]
    pub keep: Keep,
    /// Whether the cache has a projection of six fields; informer only.
    #[serde(default)]
    pub project: bool,
    /// The index of the cache.
    #[serde(default)]
    pub index: IndexBy,
    /// The directory in which the cache is saved, and from which the sync starts; informer only.
    #[serde(default)]
    pub state: Option<std::path::PathBuf>,
    /// Whether there is a durable handler besides the others; informer only.
    #[serde(default)]
    pub durable: bool,
    /// Whether another handler counts the events by kind; informer only.
    #[serde(default)]
    pub tally: bool,
}

fn one() -> usize {
    1
}

/// How the cache stores each object.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Keep {
    /// The client's default.
    #[default]
    Default,
    /// Compressed bytes.
    Compressed,
    /// The decoded object too.
    Decoded,
}

/// How an object in the cache is read. A cache that stores decoded objects has two ways: undecoded and decoded
/// reads differ only in the type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Through {
    /// An owned object from the lister, not decoded.
    #[default]
    Lister,
    /// A borrowed object from a snapshot, not decoded.
    Snapshot,
    /// The value of the projection.
    Projection,
    /// The decoded object.
    Typed,
}

impl Through {
    /// Returns whether fields of the object are read.
    pub fn is_decoded(self) -> bool {
        matches!(self, Self::Projection | Self::Typed)
    }
}

/// The values of the index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IndexBy {
    /// `spec.nodeName`.
    #[default]
    Node,
    /// The label [`GROUP`].
    Group,
}

/// Label with the group of a pod: the size of the group and its number, such as `020-0000007`.
pub const GROUP: &str = "group";

/// Returns the values of the complete groups of this size, in a cache with this many pods. Each 122 pods are a
/// group of 2, one of 20 and one of 100.
pub fn groups(results: usize, pods: usize) -> Vec<String> {
    (0..pods / 122).map(|number| format!("{results:03}-{number:07}")).collect()
}

/// How the initial list is requested.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// The client's default.
    #[default]
    Default,
    /// A list request.
    List,
    /// A watch that starts with existing objects.
    WatchList,
}

/// A client program.
pub trait Peer {
    /// Executes one command and returns its response. Unsupported commands and failures are errors.
    fn execute(&mut self, command: Command) -> impl Future<Output = Result<Value, Failure>>;
}

/// Any error; the harness receives it as `{"error": …}`.
pub type Failure = Box<dyn std::error::Error + Send + std::marker::Sync>;

impl Sync {
    /// Rejects syncs that a client without transforms and retention settings, and with these encodings, does
    /// not support.
    pub fn check(&self, encodings: &[&str]) -> Result<(), Failure> {
        if self.strip {
            return Err("this program does not support `strip`".into());
        }
        match self.resource.as_str() {
            "pods" if encodings.contains(&self.encoding.as_str()) => Ok(()),
            "pods" => Err(format!("encoding {} is not supported by this client", self.encoding).into()),
            resource => Err(format!("unknown resource `{resource}` (use `pods`)").into()),
        }
    }
}

/// Runs a program: its argument is the path of a kubeconfig; each line of input is a command, each line of
/// output a response.
pub fn run<P: Peer>(create: impl FnOnce(kube::Config) -> Result<P, Failure>) -> ExitCode {
    let served = || -> Result<(), Failure> {
        let path = std::env::args().nth(1).ok_or("the path of a kubeconfig is missing")?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let served = runtime.block_on(async { serve(create(config(&path).await?)?).await });
        // Pending requests no longer matter.
        runtime.shutdown_background();
        served
    };
    match served() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            println!("{}", json!({"error": failure.to_string()}));
            ExitCode::FAILURE
        }
    }
}

async fn config(path: &str) -> Result<kube::Config, Failure> {
    let kubeconfig = kube::config::Kubeconfig::read_from(path)?;
    Ok(kube::Config::from_custom_kubeconfig(kubeconfig, &kube::config::KubeConfigOptions::default()).await?)
}

async fn serve(mut peer: impl Peer) -> Result<(), Failure> {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let response = match serde_json::from_str(&line) {
            Ok(Command::Quit) => break,
            Ok(Command::Report { reset }) => Ok(ProcessStats::report(reset)),
            Ok(command) => peer.execute(command).await,
            Err(error) => Err(format!("invalid command: {error}").into()),
        };
        println!("{}", response.unwrap_or_else(|failure| json!({"error": failure.to_string()})));
    }
    Ok(())
}
