//! The process that is measured: one informer of pods with handlers that count.
//!
//! It goes through the phases of [`Phase`] and prints a reading after each. It tells the server itself when to lose the
//! informer's position, over a connection of its own.

use crate::gauge::{self, Reading};
use crate::{Failure, Mode};
use informer::{Event, Options, Retention, SharedInformer, State, WatchListPolicy};
use k8s_openapi::api::core::v1::Pod;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How this program is told to be the client: `measure PORT OBJECTS HANDLERS MODE COMPRESSED`.
pub(crate) const COMMAND: &str = "measure";

/// So long without any progress means that something is broken.
const STALLED: Duration = Duration::from_mins(1);

/// What is measured, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Client and informer exist, nothing was asked yet.
    Before,
    Sync,
    /// The position is lost, and one pod in a hundred has changed.
    RelistFew,
    /// The position is lost, and every pod has changed.
    RelistAll,
    /// The same once more: does memory creep?
    RelistAgain,
}

impl Phase {
    pub(crate) const ALL: [Self; 5] =
        [Self::Before, Self::Sync, Self::RelistFew, Self::RelistAll, Self::RelistAgain];

    /// How many pods change in it.
    fn changed(self, objects: usize) -> usize {
        match self {
            Self::Before | Self::Sync => 0,
            Self::RelistFew => objects / 100,
            Self::RelistAll | Self::RelistAgain => objects,
        }
    }

    fn doing(self) -> &'static str {
        match self {
            Self::Before => "starting",
            Self::Sync => "syncing",
            Self::RelistFew => "listing again, 1 % changed",
            Self::RelistAll => "listing again, all changed",
            Self::RelistAgain => "listing again, all changed once more",
        }
    }
}

/// How many events the handlers were told.
#[derive(Default)]
struct Told {
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
    told: Arc<Told>,
}

/// Measures, and prints a line for each phase.
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
            let told = Arc::clone(&client.told);
            client.informer.on(move |event| told.count(&event))
        };
        let _counting: Vec<_> = (0..handlers).map(|_| count()).collect();
        for phase in Phase::ALL {
            println!("{}", client.measure(phase).await?.line());
        }
        Ok(())
    })
}

impl Told {
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

#[cfg(feature = "compressed")]
fn compressed_retention() -> Retention {
    Retention::Compressed
}

/// Not asked for: without the feature the argument is refused.
#[cfg(not(feature = "compressed"))]
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
        // The second lost position within seconds takes the back-off; it need not take long here.
        let options = Options::default()
            .watch_list(policy)
            .backoff(Duration::from_millis(10), Duration::from_millis(100));
        let options = if compressed { options.retention(compressed_retention()) } else { options };
        let informer = SharedInformer::with_options(informer::client(config)?, options);
        Ok(Self { port, objects, handlers, mode, informer, told: Arc::default() })
    }

    async fn measure(&self, phase: Phase) -> Result<Reading, Failure> {
        let sets = self.informer.status().counters.replaces;
        gauge::begin();
        let start = Instant::now();
        match phase {
            Phase::Before => {
                gauge::settle().await;
                return Ok(gauge::read(0.0));
            }
            Phase::Sync => self.informer.start(),
            _ => self.expire(phase.changed(self.objects))?,
        }
        let events = self.told.all() + self.expected(phase);
        self.wait(phase, sets + 1, events).await?;
        let seconds = start.elapsed().as_secs_f64();
        gauge::settle().await;
        self.check()?;
        Ok(gauge::read(seconds))
    }

    /// How many events a phase brings.
    fn expected(&self, phase: Phase) -> u64 {
        let pods = if phase == Phase::Sync { self.objects } else { phase.changed(self.objects) };
        (pods * self.handlers) as u64
    }

    /// Waits until the informer has had so many complete sets, watches again, and has told so many events.
    async fn wait(&self, phase: Phase, sets: u64, events: u64) -> Result<(), Failure> {
        let (mut last, mut moved, mut said) = ((0, State::Connecting), Instant::now(), Instant::now());
        loop {
            let status = self.informer.status();
            if status.counters.replaces >= sets && status.state == State::Live && self.told.all() >= events {
                return Ok(());
            }
            let seen = (self.told.all() + status.counters.frames, status.state);
            if said.elapsed() >= Duration::from_secs(1) {
                let left = events.saturating_sub(self.told.all());
                eprintln!("{}: {}: {}, {left} events to come", self.mode.name(), phase.doing(), seen.1);
                said = Instant::now();
            }
            if seen != last {
                (last, moved) = (seen, Instant::now());
            } else if moved.elapsed() > STALLED {
                return Err(format!("no progress for {STALLED:?} while {}: {}", phase.doing(), last.1).into());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// What is measured must be what was meant: every pod, each told once, by the way that was asked for.
    fn check(&self) -> Result<(), Failure> {
        let counters = self.informer.status().counters;
        let by_stream = counters.watch_lists > 0 && counters.lists == 0;
        let (cached, added) = (self.informer.lister().len(), self.told.added.load(Ordering::Relaxed));
        let deleted = self.told.deleted.load(Ordering::Relaxed);
        if by_stream == (self.mode == Mode::WatchList)
            && cached == self.objects
            && added == (self.objects * self.handlers) as u64
            && deleted == 0
        {
            return Ok(());
        }
        Err(format!("not as meant: {cached} in the cache, {added} added, {deleted} deleted, {counters:?}")
            .into())
    }

    /// Makes the server change pods and end the watch with a 410.
    fn expire(&self, changed: usize) -> Result<(), Failure> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        write!(stream, "POST /control?changed={changed} HTTP/1.1\r\nhost: server\r\n\r\n")?;
        let mut status = [0; 12];
        stream.read_exact(&mut status)?;
        if status == *b"HTTP/1.1 204" { Ok(()) } else { Err("the server refuses to be controlled".into()) }
    }
}
