//! Leader election with a Lease: only one of several processes does the work.
//!
//! This is the driver of [`informer_core::election::Election`], which makes all decisions; the driver sends
//! requests, waits for deadlines and runs the work. The driver is one loop in the caller's task and spawns
//! nothing.

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

/// A candidate for leadership among the processes that use the same Lease.
///
/// The work runs while this process holds the lease. The work is dropped as soon as another process holds the
/// lease, or may hold it because the lease was not renewed in time. That time begins when the last successful
/// renewal was sent, not when its response arrived. When the candidate is stopped, the work is asked to end
/// ([`Term::stop_requested`]); the lease is renewed until the work has ended, and then released, so that the
/// next leader does not have to wait.
///
/// Clocks of other machines are not trusted: a lease counts as expired one lease duration after this process
/// last *observed* a change of the lease.
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
///             term.stop_requested().await; // do the work until then
///         },
///         async { drop(tokio::signal::ctrl_c().await) },
///     )
///     .await?;
/// # Ok(())
/// # }
/// ```
pub struct LeaderElector {
    lease: LeaseClient,
    identity: String,
    config: ElectionConfig,
    seed: u64,
    status: watch::Sender<ElectionStatus>,
}

/// The published status of an election.
#[derive(Debug, Clone, Default)]
struct ElectionStatus {
    /// The term in which this process is the leader, and when it expires unless the lease is renewed.
    term: Option<(FencingToken, Instant)>,
    holder: String,
    /// Number of renewals for which the leader had to read the lease first.
    slow_paths: u64,
}

/// A handle to observe an election: whether this process is the leader, and which process holds the lease.
///
/// Clones observe the same election.
#[derive(Debug, Clone)]
pub struct Leadership(watch::Receiver<ElectionStatus>);

/// A term of leadership, passed to the work done in it.
#[derive(Debug, Clone)]
pub struct Term {
    fencing_token: FencingToken,
    stop_requested: watch::Receiver<bool>,
}

/// The reason why [`LeaderElector::run`] returned.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ElectionOutcome {
    /// The `stop` future completed.
    Stopped,
    /// The work completed while this process was the leader.
    WorkCompleted,
}

impl LeaderElector {
    /// Creates a candidate for the Lease of this name.
    ///
    /// Its identity is the host name with a random suffix, so that no two processes have the same identity.
    pub fn new(client: kube::Client, namespace: &str, name: &str) -> Self {
        let host = crate::host::host();
        let seed = crate::workqueue::seed();
        Self {
            lease: LeaseClient::new(client, namespace, name),
            identity: format!("{host}_{seed:016x}"),
            config: ElectionConfig::default(),
            seed,
            status: watch::Sender::default(),
        }
    }

    /// Sets the name that the Lease shows as its holder; a random suffix is appended. Defaults to the host
    /// name.
    #[must_use]
    pub fn identity(self, name: &str) -> Self {
        Self { identity: format!("{name}_{:016x}", self.seed), ..self }
    }

    /// Sets lease duration, renew deadline and retry period. Defaults to 15 s, 10 s and 2 s.
    ///
    /// # Errors
    ///
    /// Returns an error if no election is possible with these durations.
    pub fn config(self, config: ElectionConfig) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self { config, ..self })
    }

    /// Returns namespace and name of the Lease.
    pub(crate) fn lease_name(&self) -> String {
        self.lease.to_string()
    }

    /// Returns a handle to observe the election, which can be used before, during and after
    /// [`LeaderElector::run`].
    pub fn leadership(&self) -> Leadership {
        Leadership(self.status.subscribe())
    }

    /// Takes part in the election until `stop` completes or the work has completed; `work` is called once per
    /// term.
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
            slow_paths: 0,
        };
        let mut stop = std::pin::pin!(stop);
        let mut outcome = None;
        let mut working: Option<Working<F>> = None;
        loop {
            while let Some(event) = driver.next_event() {
                match event {
                    Event::Elected(fencing_token) if outcome.is_none() => {
                        let (stop_sender, stop_requested) = watch::channel(false);
                        tracing::info!(lease = %self.lease, version = %fencing_token.version, "became the leader");
                        working = Some((Box::pin(work(Term { fencing_token, stop_requested })), stop_sender));
                    }
                    Event::LeadershipLost(reason) => {
                        // Another process may lead already, so the work is dropped, not asked to end.
                        working = None;
                        tracing::warn!(lease = %self.lease, reason = %LossMessage(&reason), "no longer the leader");
                    }
                    // The holder changed, or this process was elected after it was asked to stop. In the
                    // second case the lease is released below.
                    _ => {}
                }
            }
            // The run ends and no work runs any more: ends the candidacy and releases the lease.
            if outcome.is_some() && working.is_none() {
                driver.machine.stop();
                driver.machine.record_work_ended();
            }
            if driver.machine.is_over() {
                return Ok(outcome.unwrap_or(ElectionOutcome::Stopped));
            }
            tokio::select! {
                biased;
                () = driver.advance() => {}
                () = &mut stop, if outcome.is_none() => {
                    outcome = Some(ElectionOutcome::Stopped);
                    if let Some((_, stop_sender)) = &working {
                        stop_sender.send_replace(true);
                    }
                }
                () = wait_for_work(&mut working) => {
                    working = None;
                    outcome.get_or_insert(ElectionOutcome::WorkCompleted);
                }
            }
        }
    }
}

/// The work of a term, and the sender that asks it to end.
type Working<F> = (Pin<Box<F>>, watch::Sender<bool>);

/// Waits until the work has completed; forever if there is none.
async fn wait_for_work<F: Future<Output = ()>>(working: &mut Option<Working<F>>) {
    match working {
        Some((work, _)) => work.as_mut().await,
        None => std::future::pending().await,
    }
}

impl Leadership {
    /// Returns whether this process is the leader now.
    pub fn is_leader(&self) -> bool {
        self.fencing_token().is_some()
    }

    /// Returns the fencing token of the current term; `None` if this process is not the leader now.
    pub fn fencing_token(&self) -> Option<FencingToken> {
        let status = self.0.borrow();
        status.term.as_ref().filter(|(_, until)| Instant::now() < *until).map(|(token, _)| token.clone())
    }

    /// Returns the identity that held the lease when it was last read; empty if it was free or has not been
    /// read yet.
    pub fn holder(&self) -> String {
        self.0.borrow().holder.clone()
    }

    /// Returns how long ago the current term expired without the elector having noticed; `None` if it has not
    /// expired.
    pub(crate) fn overdue(&self) -> Option<std::time::Duration> {
        self.0.borrow().term.as_ref().and_then(|(_, until)| Instant::now().checked_duration_since(*until))
    }

    /// Returns the number of renewals for which the leader had to read the lease first.
    pub(crate) fn slow_paths(&self) -> u64 {
        self.0.borrow().slow_paths
    }

    /// Waits until the term or the holder changes; returns false if the elector has been dropped.
    pub async fn changed(&mut self) -> bool {
        self.0.changed().await.is_ok()
    }
}

impl Term {
    /// Returns the fencing token of this term, which is greater than that of every earlier term.
    pub fn fencing_token(&self) -> &FencingToken {
        &self.fencing_token
    }

    /// Waits until the work is asked to end.
    ///
    /// The lease is renewed until the work has ended. When leadership is lost, the work is dropped instead.
    pub async fn stop_requested(&self) {
        // An error means that the term is over, which only a clone kept beyond the work can observe.
        let _term_over = self.stop_requested.clone().wait_for(|requested| *requested).await.is_err();
    }
}

/// The election state machine with its clock and the request in flight.
struct Driver<'a> {
    machine: Election,
    clock: Clock,
    elector: &'a LeaderElector,
    in_flight: Option<Pin<Box<dyn Future<Output = LeaseResponse> + Send + 'a>>>,
    slow_paths: u64,
}

impl Driver<'_> {
    /// Ends the term if it has expired, publishes the status, and returns the next event of the election.
    fn next_event(&mut self) -> Option<Event> {
        self.machine.handle_timeout(self.clock.now());
        let event = self.machine.poll_event();
        self.publish();
        event
    }

    /// Sends a request if one is due, then waits for its response or for the next deadline.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: the request in flight is kept.
    async fn advance(&mut self) {
        let now = self.clock.now();
        if self.in_flight.is_none()
            && let Some(request) = self.machine.poll_request(now, lease::wall_clock())
        {
            if matches!(request, LeaseRequest::Read) && self.machine.fencing_token().is_some() {
                self.slow_paths += 1;
            }
            self.in_flight = Some(Box::pin(self.elector.lease.execute(request)));
        }
        let next_deadline = self.machine.next_deadline().map(|deadline| self.clock.instant(deadline));
        match &mut self.in_flight {
            Some(request) => {
                let request_deadline =
                    self.machine.request_deadline().map(|deadline| self.clock.instant(deadline));
                tokio::select! {
                    biased;
                    response = request.as_mut() => self.handle_response(response),
                    () = sleep_until(request_deadline) => self.handle_response(LeaseResponse::Failed("request timed out".to_owned())),
                    () = sleep_until(next_deadline) => {}
                }
            }
            None => sleep_until(next_deadline).await,
        }
    }

    fn handle_response(&mut self, response: LeaseResponse) {
        self.in_flight = None;
        if let LeaseResponse::Failed(error) = &response {
            tracing::warn!(lease = %self.elector.lease, error, "reading or writing the lease failed");
        }
        self.machine.handle_response(self.clock.now(), response);
    }

    fn publish(&self) {
        let now = self.clock.now();
        let until = self.machine.leads_until().filter(|until| now < *until);
        let term = self.machine.fencing_token().cloned().zip(until.map(|until| self.clock.instant(until)));
        self.elector.status.send_if_modified(|status| {
            // A renewal moves the end of a term, but is no change to observers.
            let same = |a: &Option<(FencingToken, Instant)>, b: &Option<(FencingToken, Instant)>| {
                a.as_ref().map(|(token, _)| token) == b.as_ref().map(|(token, _)| token)
            };
            let changed = !same(&status.term, &term) || status.holder != self.machine.holder();
            let (holder, slow_paths) = (self.machine.holder().to_owned(), self.slow_paths);
            *status = ElectionStatus { term, holder, slow_paths };
            changed
        });
    }
}

impl fmt::Debug for LeaderElector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderElector")
            .field("lease", &format_args!("{}", self.lease))
            .field("identity", &self.identity)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// Displays the reason why leadership was lost.
struct LossMessage<'a>(&'a LossReason);

impl fmt::Display for LossMessage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            LossReason::NotRenewed(error) => write!(f, "the lease was not renewed in time: {error}"),
            LossReason::HeldByOther(holder) if holder.is_empty() => {
                f.write_str("another client cleared the holder of the lease")
            }
            LossReason::HeldByOther(holder) => write!(f, "{holder} holds the lease"),
            _ => f.write_str("stop requested"),
        }
    }
}
