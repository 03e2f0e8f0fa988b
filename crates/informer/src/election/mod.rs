//! Leader election over a Lease: which of several processes does the work.
//!
//! The driver of [`informer_core::election::Election`], which decides everything: this asks the server, minds the clock, and runs the work. It is
//! one loop in the caller's task; nothing is spawned.

mod lease;
mod metrics;

pub use informer_core::election::{ElectionConfig, FencingToken};

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use informer_core::election::{Election, Event, LeaseRequest, LeaseResponse, LossReason};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::clock::{Clock, sleep_until};
use crate::error::ConfigError;
use lease::LeaseClient;

/// A candidate for leadership among processes that name the same Lease.
///
/// The work runs while this process holds the lease, and is dropped the moment that can no longer be said for certain: when the lease could not
/// be renewed in time, counted from when the last renewal was sent, or somebody else has it. When the candidate is told to stop, the work is told
/// too ([`Term::stop_requested`]), the lease is renewed while it ends, and then given back, so that the next leader need not wait.
///
/// Clocks of other machines are never trusted: a lease is left alone for as long as it lasts after it was *seen* to change.
///
/// ```no_run
/// use informer::election::LeaderElector;
///
/// # async fn example(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let elector = LeaderElector::new(client, "kube-system", "my-operator");
/// elector
///     .run(
///         |term| async move {
///             println!("leading, term {}", term.fencing_token().version);
///             term.stop_requested().await; // do the work until the term ends
///         },
///         async { drop(tokio::signal::ctrl_c().await) },
///     )
///     .await?;
/// # Ok(())
/// # }
/// ```
pub struct LeaderElector {
    leases: LeaseClient,
    identity: String,
    config: ElectionConfig,
    seed: u64,
    state: watch::Sender<ElectionStatus>,
}

/// What is known of an election at a moment.
#[derive(Debug, Clone, Default)]
struct ElectionStatus {
    leads: Option<(FencingToken, Instant)>,
    holder: String,
    /// How often a leader had to look at its lease again because it could not simply be renewed.
    slow: u64,
}

/// How an election looks from outside: whether this process leads, and who does. Clones see the same.
#[derive(Debug, Clone)]
pub struct Leadership(watch::Receiver<ElectionStatus>);

/// A term of leadership, in the hands of the work that is done in it.
#[derive(Debug, Clone)]
pub struct Term {
    fencing_token: FencingToken,
    stop_requested: watch::Receiver<bool>,
}

/// How a candidacy ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ElectionOutcome {
    /// It was told to stop.
    Stopped,
    /// The work came to its own end while leading.
    WorkCompleted,
}

impl LeaderElector {
    /// A candidate for the Lease of this name. Its identity is the name of the host, with something random behind it: two processes are never
    /// taken for one.
    pub fn new(client: kube::Client, namespace: &str, name: &str) -> Self {
        let host = crate::host::host();
        let seed = crate::workqueue::seed();
        Self {
            leases: LeaseClient::new(client, namespace, name),
            identity: format!("{host}_{seed:016x}"),
            config: ElectionConfig::default(),
            seed,
            state: watch::Sender::default(),
        }
    }

    /// What others see as the holder, with something random behind it.
    #[must_use]
    pub fn identity(self, name: &str) -> Self {
        Self { identity: format!("{name}_{:016x}", self.seed), ..self }
    }

    /// Other times than 15, 10 and 2 seconds. Times that no election can be held with are an error here.
    pub fn config(self, config: ElectionConfig) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self { config, ..self })
    }

    /// Namespace and name of the Lease.
    pub(crate) fn lease_name(&self) -> String {
        self.leases.to_string()
    }

    /// The election as it looks from outside, before, while and after [`LeaderElector::run`].
    pub fn leadership(&self) -> Leadership {
        Leadership(self.state.subscribe())
    }

    /// Stands for election until `stop`, and does the work whenever it leads: `work` is called once for each term.
    pub async fn run<W, F>(
        self,
        mut work: W,
        stop: impl Future<Output = ()>,
    ) -> Result<ElectionOutcome, ConfigError>
    where
        W: FnMut(Term) -> F,
        F: Future<Output = ()>,
    {
        let mut driver = Driver {
            machine: Election::new(self.identity.clone(), self.config, self.seed)?,
            clock: Clock::new(),
            elector: &self,
            in_flight: None,
            slow: 0,
        };
        let mut stop = std::pin::pin!(stop);
        let mut ended = None;
        let mut working: Option<Working<F>> = None;
        loop {
            while let Some(event) = driver.next_event() {
                match event {
                    Event::Elected(fence) if ended.is_none() => {
                        let (tell, stopping) = watch::channel(false);
                        tracing::info!(lease = %self.leases, version = %fence.version, "leading");
                        working = Some((
                            Box::pin(work(Term { fencing_token: fence, stop_requested: stopping })),
                            tell,
                        ));
                    }
                    Event::LeadershipLost(why) => {
                        // Nothing may be done any more, so nothing is waited for.
                        working = None;
                        tracing::warn!(lease = %self.leases, why = %LossMessage(&why), "not leading any more");
                    }
                    _ => {}
                }
            }
            if ended.is_some() && working.is_none() {
                driver.machine.stop();
                driver.machine.stopped();
            }
            if driver.machine.is_over() {
                return Ok(ended.unwrap_or(ElectionOutcome::Stopped));
            }
            tokio::select! {
                biased;
                () = driver.advance() => {}
                () = &mut stop, if ended.is_none() => {
                    ended = Some(ElectionOutcome::Stopped);
                    if let Some((_, tell)) = &working {
                        tell.send_replace(true);
                    }
                }
                () = done(&mut working) => {
                    working = None;
                    ended.get_or_insert(ElectionOutcome::WorkCompleted);
                }
            }
        }
    }
}

/// The work of a term, and how it is told to end.
type Working<F> = (Pin<Box<F>>, watch::Sender<bool>);

/// Returns when the work has come to its end; never, if there is none.
async fn done<F: Future<Output = ()>>(working: &mut Option<Working<F>>) {
    match working {
        Some((work, _)) => work.as_mut().await,
        None => std::future::pending().await,
    }
}

impl Leadership {
    /// Whether this process leads at this moment.
    pub fn is_leader(&self) -> bool {
        self.fencing_token().is_some()
    }

    /// The token of the term in which it leads at this moment.
    pub fn fencing_token(&self) -> Option<FencingToken> {
        let standing = self.0.borrow();
        standing.leads.as_ref().filter(|(_, until)| Instant::now() < *until).map(|(fence, _)| fence.clone())
    }

    /// Who held the lease when it was last looked at; empty if nobody did, or nobody has looked.
    pub fn holder(&self) -> String {
        self.0.borrow().holder.clone()
    }

    /// How long ago its leadership should have ended, if nobody has noticed.
    pub(crate) fn overdue(&self) -> Option<std::time::Duration> {
        self.0.borrow().leads.as_ref().and_then(|(_, until)| Instant::now().checked_duration_since(*until))
    }

    /// How often a leader had to look at its lease again because it could not simply be renewed.
    pub(crate) fn slow_paths(&self) -> u64 {
        self.0.borrow().slow
    }

    /// Waits until something about it changes; false if the candidate is gone.
    pub async fn changed(&mut self) -> bool {
        self.0.changed().await.is_ok()
    }
}

impl Term {
    /// Tells this term from all others, and is greater than that of any before.
    pub fn fencing_token(&self) -> &FencingToken {
        &self.fencing_token
    }

    /// Returns when the work is asked to end. It is given the time; the lease is renewed meanwhile. When leadership is lost nobody is asked: the
    /// work is dropped.
    pub async fn stop_requested(&self) {
        // If the candidate is gone, so is the work: somebody kept a copy of the term.
        let _gone = self.stop_requested.clone().wait_for(|stopping| *stopping).await.is_err();
    }
}

/// The machine with its clock and its request.
struct Driver<'a> {
    machine: Election,
    clock: Clock,
    elector: &'a LeaderElector,
    in_flight: Option<Pin<Box<dyn Future<Output = LeaseResponse> + Send + 'a>>>,
    slow: u64,
}

impl Driver<'_> {
    fn next_event(&mut self) -> Option<Event> {
        self.machine.handle_timeout(self.clock.now());
        let event = self.machine.poll_event();
        self.publish();
        event
    }

    /// Does the next thing that is to be done: asks, hears an answer, or waits until something is due. Cancel-safe.
    async fn advance(&mut self) {
        let now = self.clock.now();
        if self.in_flight.is_none()
            && let Some(request) = self.machine.poll_request(now, lease::wall_clock())
        {
            if matches!(request, LeaseRequest::Read) && self.machine.fencing_token().is_some() {
                self.slow += 1;
            }
            self.in_flight = Some(Box::pin(self.elector.leases.execute(request)));
        }
        let next = self.machine.next_deadline().map(|next| self.clock.instant(next));
        match &mut self.in_flight {
            Some(asked) => {
                let patience = self.machine.request_deadline().map(|deadline| self.clock.instant(deadline));
                tokio::select! {
                    biased;
                    answer = asked.as_mut() => self.answered(answer),
                    () = sleep_until(patience) => self.answered(LeaseResponse::Failed("no answer in time".to_owned())),
                    () = sleep_until(next) => {}
                }
            }
            None => sleep_until(next).await,
        }
    }

    fn answered(&mut self, answer: LeaseResponse) {
        self.in_flight = None;
        if let LeaseResponse::Failed(why) = &answer {
            tracing::warn!(lease = %self.elector.leases, why, "the lease could not be read or written");
        }
        self.machine.handle_response(self.clock.now(), answer);
    }

    fn publish(&self) {
        let now = self.clock.now();
        let until = self.machine.leads_until().filter(|until| now < *until);
        let leads = self.machine.fencing_token().cloned().zip(until.map(|until| self.clock.instant(until)));
        self.elector.state.send_if_modified(|standing| {
            let same = |a: &Option<(FencingToken, Instant)>, b: &Option<(FencingToken, Instant)>| {
                a.as_ref().map(|(fence, _)| fence) == b.as_ref().map(|(fence, _)| fence)
            };
            let news = !same(&standing.leads, &leads) || standing.holder != self.machine.holder();
            *standing = ElectionStatus { leads, holder: self.machine.holder().to_owned(), slow: self.slow };
            news
        });
    }
}

impl fmt::Debug for LeaderElector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderElector")
            .field("lease", &format_args!("{}", self.leases))
            .field("identity", &self.identity)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// Why leadership ended, in words.
struct LossMessage<'a>(&'a LossReason);

impl fmt::Display for LossMessage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            LossReason::NotRenewed(why) => write!(f, "the lease was not renewed in time: {why}"),
            LossReason::HeldByOther(holder) if holder.is_empty() => {
                f.write_str("the lease was given back by somebody else")
            }
            LossReason::HeldByOther(holder) => write!(f, "{holder} holds the lease"),
            _ => f.write_str("it was told to stop"),
        }
    }
}
