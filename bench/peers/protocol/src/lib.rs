//! What the Rust programs of the benchmark have in common: commands, answers, what handlers note, and gauges.
//!
//! The protocol itself is described in `bench/peers/README.md`; the Go program speaks it with code of its own. This crate knows
//! nothing of informers: a program says what it does by implementing [`Peer`].

mod gauge;
mod random;
mod told;

use std::future::Future;
use std::process::ExitCode;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

pub use gauge::Gauge;
pub use random::Random;
pub use told::{SENT, Told, revised, sent_in};

/// A line that the harness sends.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Command {
    /// Begin, and answer when the cache is complete and every handler has been told.
    Sync(Sync),
    /// Answer when every handler has been told of this version.
    Follow {
        /// The version of the last change.
        until: u64,
        /// Whether the send times in the objects are looked at.
        #[serde(default)]
        latency: bool,
    },
    /// Get objects by key, at random, as often as possible for so long.
    Read {
        /// How long.
        seconds: f64,
        /// Whether each is looked at as a typed object.
        #[serde(default)]
        typed: bool,
    },
    /// Ask for the pods of a node, at random, as often as possible for so long.
    Index {
        /// How long.
        seconds: f64,
    },
    /// Put keys through a work queue.
    Queue {
        /// How many.
        keys: usize,
        /// Workers beside the adder; with none, the adder takes each key itself.
        workers: usize,
    },
    /// Say what the process takes.
    Report {
        /// Whether the peak is counted anew from here.
        #[serde(default)]
        reset: bool,
    },
    /// Say how many objects there are, and how many events handlers have been told since the beginning.
    Count {
        /// Also how many have this in their annotation `revision`.
        #[serde(default)]
        revision: Option<String>,
    },
    /// End.
    Quit,
}

/// What to sync, and how.
#[derive(Debug, Clone, Deserialize)]
pub struct Sync {
    /// Always `pods`.
    pub resource: String,
    /// `json` or `protobuf`.
    pub encoding: String,
    /// How the first set is asked for.
    #[serde(default)]
    pub strategy: Strategy,
    /// How many handlers.
    #[serde(default = "one")]
    pub handlers: usize,
    /// Whether a transform drops `managedFields`; for client-go.
    #[serde(default)]
    pub strip: bool,
    /// What the cache keeps; for ours.
    #[serde(default)]
    pub keep: Keep,
}

fn one() -> usize {
    1
}

/// What a cache keeps of each object.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Keep {
    /// What it does if nobody says anything.
    #[default]
    Default,
    /// Compressed bytes.
    Compressed,
    /// The decoded object too.
    Decoded,
}

/// How the first set is asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// As the client does if nobody says anything.
    #[default]
    Default,
    /// By a list.
    List,
    /// By a watch that begins with what is there.
    WatchList,
}

/// A client program.
pub trait Peer {
    /// Answers one command with an object. What this client has no means for is an error, as is what failed.
    fn answer(&mut self, command: Command) -> impl Future<Output = Result<Value, Failure>>;
}

/// Whatever went wrong; the harness gets it as `{"error": …}`.
pub type Failure = Box<dyn std::error::Error + Send + std::marker::Sync>;

impl Sync {
    /// Refuses what a client that reads pods in these encodings, and as they are, cannot do.
    pub fn check(&self, encodings: &[&str]) -> Result<(), Failure> {
        if self.strip {
            return Err("this client has no transform here".into());
        }
        match self.resource.as_str() {
            "pods" if encodings.contains(&self.encoding.as_str()) => Ok(()),
            "pods" => Err(format!("this client does not read {}", self.encoding).into()),
            resource => Err(format!("`{resource}` is not known here, take `pods`").into()),
        }
    }
}

/// Runs a program: one argument, the path of a kubeconfig; then a command per line, and an answer per line.
pub fn run<P: Peer>(begin: impl FnOnce(kube::Config) -> Result<P, Failure>) -> ExitCode {
    let served = || -> Result<(), Failure> {
        let path = std::env::args().nth(1).ok_or("the path of a kubeconfig is missing")?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let served = runtime.block_on(async { serve(begin(config(&path).await?)?).await });
        // Whatever still waits for a server is of no interest any more.
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
        let answer = match serde_json::from_str(&line) {
            Ok(Command::Quit) => break,
            Ok(Command::Report { reset }) => Ok(Gauge::report(reset)),
            Ok(command) => peer.answer(command).await,
            Err(error) => Err(format!("not a command: {error}").into()),
        };
        println!("{}", answer.unwrap_or_else(|failure| json!({"error": failure.to_string()})));
    }
    Ok(())
}
