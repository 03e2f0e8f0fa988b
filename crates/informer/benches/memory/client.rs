//! The measured process: one informer of pods with handlers that count events.
//!
//! It runs the phases of [`Phase`] and prints a reading after each. Over a separate connection it makes the
//! server expire the informer's position.

use crate::process_stats::{self, Reading};
use crate::{Failure, Mode};
use informer::cache::Retention;
use informer::source::WatchListPolicy;
use informer::status::InformerState;
use informer::{Event, InformerOptions, SharedInformer};
use k8s_openapi::api::core::v1::Pod;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Command line that starts this program as the client: `measure PORT OBJECTS HANDLERS MODE COMPRESSED`.
pub(crate) const COMMAND: &str = "measure";

/// Time without progress after which the measurement fails.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// The measured phases, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Client and informer exist; no request was sent yet.
    Before,
    Sync,
    /// The position expires, and one pod in a hundred has changed.
    RelistFew,
    /// The position expires, and every pod has changed.
    RelistAll,
    /// The previous phase again, to find memory growth.
    RelistAgain,
}

impl Phase {
    pub(crate) const ALL: [Self; 5] =
        [Self::Before, Self::Sync, Self::RelistFew, Self::RelistAll, Self::RelistAgain];

    /// Number of pods that change.
    fn changed(self, objects: usize) -> usize {
        match self {
            Self::Before | Self::Sync => 0,
            Self::RelistFew => objects / 100,
            Self::RelistAll | Self::RelistAgain => objects,
        }
    }

    fn description(self) -> &'static str {
        match self {
            Self::Before => "starting",
            Self::Sync => "syncing",
            Self::RelistFew => "relisting, 1 % changed",
            Self::RelistAll => "relisting, all changed",
            Self::RelistAgain => "relisting, all changed again",
        }
    }
}

/// Number of events delivered to the handlers.
#[derive(Default)]
struct EventCounts {
    added: AtomicU64,
    updated: AtomicU64,
    deleted: AtomicU64,
}

struct Client {
    port: u16,
    objects: usize,
    handlers: usize,
    mode: Mode,
    informer: SharedInformer<Pod>,
    delivered: Arc<EventCounts>,
}

/// Runs the measurement and prints a line for each phase.
pub(crate) fn run(
    port: u16,
    objects: usize,
    handlers: usize,
    mode: Mode,
    compressed: bool,
) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = Client::new(port, objects, handlers, mode, compressed)?;
        let count = || {
            let delivered = Arc::clone(&client.delivered);
            client.informer.on_event(move |event| delivered.count(&event))
        };
        let _counting: Vec<_> = (0..handlers).map(|_| count()).collect();
        for phase in Phase::ALL {
            println!("{}", client.measure(phase).await?.line());
        }
        Ok(())
    })
}

impl EventCounts {
    fn count(&self, event: &Event<Pod>) {
        let counter = match event {
            Event::Added { .. } => &self.added,
            Event::Updated { .. } => &self.updated,
            Event::Deleted { .. } => &self.deleted,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn all(&self) -> u64 {
        [&self.added, &self.updated, &self.deleted]
            .map(|counter| counter.load(Ordering::Relaxed))
            .iter()
            .sum()
    }
}

#[cfg(feature = "compression")]
fn compressed_retention() -> Retention {
    Retention::Compressed
}

/// Unreachable: without the feature the argument is rejected.
#[cfg(not(feature = "compression"))]
fn compressed_retention() -> Retention {
    Retention::Bytes
}

impl Client {
    fn new(
        port: u16,
        objects: usize,
        handlers: usize,
        mode: Mode,
        compressed: bool,
    ) -> Result<Self, Failure> {
        let config = kube::Config::new(format!("http://127.0.0.1:{port}").parse()?);
        let policy = match mode {
            Mode::List => WatchListPolicy::Never,
            Mode::WatchList => WatchListPolicy::Auto,
        };
        // The second expired position within seconds causes a backoff, which is kept short here.
        let options = InformerOptions::default()
            .watch_list(policy)
            .backoff(Duration::from_millis(10), Duration::from_millis(100));
        let options = if compressed { options.retention(compressed_retention()) } else { options };
        let informer = SharedInformer::with_options(informer::client(config)?, options);
        Ok(Self { port, objects, handlers, mode, informer, delivered: Arc::default() })
    }

    async fn measure(&self, phase: Phase) -> Result<Reading, Failure> {
        let lists = self.informer.status().reflector.full_lists;
        process_stats::begin();
        let start = Instant::now();
        match phase {
            Phase::Before => {
                process_stats::settle().await;
                return Ok(process_stats::read(0.0));
            }
            Phase::Sync => self.informer.start(),
            _ => self.expire(phase.changed(self.objects))?,
        }
        let events = self.delivered.all() + self.expected(phase);
        self.wait(phase, lists + 1, events).await?;
        let seconds = start.elapsed().as_secs_f64();
        process_stats::settle().await;
        self.check()?;
        Ok(process_stats::read(seconds))
    }

    /// Number of events of a phase.
    fn expected(&self, phase: Phase) -> u64 {
        let pods = if phase == Phase::Sync { self.objects } else { phase.changed(self.objects) };
        (pods * self.handlers) as u64
    }

    /// Waits until the informer has received this many complete lists, is live, and has delivered this many
    /// events.
    async fn wait(&self, phase: Phase, lists: u64, events: u64) -> Result<(), Failure> {
        let (mut last, mut moved, mut printed) =
            ((0, InformerState::Connecting), Instant::now(), Instant::now());
        loop {
            let status = self.informer.status();
            if status.reflector.full_lists >= lists
                && status.state == InformerState::Live
                && self.delivered.all() >= events
            {
                return Ok(());
            }
            let progress = (self.delivered.all() + status.reflector.frames, status.state);
            if printed.elapsed() >= Duration::from_secs(1) {
                let left = events.saturating_sub(self.delivered.all());
                eprintln!(
                    "{}: {}: {}, {left} events missing",
                    self.mode.name(),
                    phase.description(),
                    progress.1
                );
                printed = Instant::now();
            }
            if progress != last {
                (last, moved) = (progress, Instant::now());
            } else if moved.elapsed() > STALL_TIMEOUT {
                return Err(format!(
                    "no progress for {STALL_TIMEOUT:?} while {}: {}",
                    phase.description(),
                    last.1
                )
                .into());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Checks that the intended case was measured: every pod, each delivered once, with the requested mode.
    fn check(&self) -> Result<(), Failure> {
        let counters = self.informer.status().reflector;
        let by_stream = counters.watch_lists > 0 && counters.lists == 0;
        let (cached, added) = (self.informer.lister().len(), self.delivered.added.load(Ordering::Relaxed));
        let deleted = self.delivered.deleted.load(Ordering::Relaxed);
        if by_stream == (self.mode == Mode::WatchList)
            && cached == self.objects
            && added == (self.objects * self.handlers) as u64
            && deleted == 0
        {
            return Ok(());
        }
        Err(format!(
            "unexpected result: {cached} in the cache, {added} added, {deleted} deleted, {counters:?}"
        )
        .into())
    }

    /// Makes the server change pods and end the watch with a 410.
    fn expire(&self, changed: usize) -> Result<(), Failure> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        write!(stream, "POST /control?changed={changed} HTTP/1.1\r\nhost: server\r\n\r\n")?;
        let mut status = [0; 12];
        stream.read_exact(&mut status)?;
        if status == *b"HTTP/1.1 204" {
            Ok(())
        } else {
            Err("the server rejected the control request".into())
        }
    }
}
