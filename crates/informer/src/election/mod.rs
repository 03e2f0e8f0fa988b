//! Leader election with a Lease: only one of several processes does the work.
//!
//! [`informer_core::election::Election`] makes all decisions. A driver in a task of its own sends the
//! requests and waits for deadlines; the work runs in the caller's task.

mod driver;
mod lease;
mod metrics;

pub use informer_core::election::{ElectionConfig, FencingToken};

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use informer_core::election::{Election, Event, LossReason};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::access::RequiredAccess;
use crate::error::ConfigError;
use driver::{Driver, ElectionStatus};
use lease::LeaseClient;

/// A candidate for leadership among the processes that use the same Lease.
///
/// The work runs while this process holds the lease. The work is dropped as soon as another process holds the
/// lease, or may hold it because the lease was not renewed in time. That time begins when the last successful
/// renewal was sent, not when its response arrived. When the candidate is stopped, the work is asked to end
/// ([`Term::stop_requested`]); the lease is renewed until the work has ended, and then released, so that the
/// next leader does not have to wait.
///
/// Renewals do not wait for the work: they are sent from a task of their own. Work that blocks its thread
/// keeps the lease, as long as the runtime has another thread. If every thread of the runtime is blocked, or
/// the server cannot be reached, the lease expires and another process may become the leader while blocked
/// work still runs: work can only be dropped when it awaits. [`Leadership::is_leader`] and
/// [`Term::is_current`] are exact in this case too, and a write that must not come from an earlier leader
/// carries the [fencing token](Term::fencing_token), which the receiver compares with the highest one it has
/// seen.
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
    max_lease_duration: Duration,
    seed: u64,
    status: watch::Sender<ElectionStatus>,
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
    leadership: Leadership,
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
            max_lease_duration: Duration::MAX,
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

    /// Limits the time for which the Lease counts without a change, whatever duration another client has written into it.
    pub(crate) fn max_lease_duration(self, max: Duration) -> Self {
        Self { max_lease_duration: max, ..self }
    }

    /// Returns namespace and name of the Lease.
    pub(crate) fn lease_name(&self) -> String {
        self.lease.to_string()
    }

    /// Adds the permissions that the election needs.
    pub(crate) fn add_required_access(&self, access: &mut RequiredAccess) {
        self.lease.add_required_access(access);
    }

    /// Returns a handle to observe the election, which can be used before, during and after
    /// [`LeaderElector::run`].
    pub fn leadership(&self) -> Leadership {
        Leadership(self.status.subscribe())
    }

    /// Takes part in the election until `stop` completes or the work has completed; `work` is called once per
    /// term.
    ///
    /// # Errors
    ///
    /// Returns an error if no election is possible with this configuration. Failed requests are no errors: they
    /// are logged and retried.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work and ends the candidacy immediately. The lease is not released: another
    /// process becomes the leader when it expires, after 15 s unless [configured](Self::config). Complete `stop`
    /// to release it.
    pub async fn run<W, F>(
        self,
        mut work: W,
        stop: impl Future<Output = ()>,
    ) -> Result<ElectionOutcome, ConfigError>
    where
        W: FnMut(Term) -> F,
        F: Future<Output = ()>,
    {
        let machine = Election::new(self.identity.clone(), self.config, self.seed)?
            .with_max_lease_duration(self.max_lease_duration);
        let (lease, leadership) = (Arc::new(self.lease), Leadership(self.status.subscribe()));
        let (event_sender, mut events) = mpsc::unbounded_channel();
        let end_candidacy = watch::Sender::new(false);
        let driver = Driver::new(machine, Arc::clone(&lease), self.status);
        // Dropping the set aborts the driver; the lease then expires.
        let mut driver_task = JoinSet::new();
        driver_task.spawn(driver.run(event_sender, end_candidacy.subscribe()).in_current_span());
        let mut stop = std::pin::pin!(stop);
        let mut outcome = None;
        let mut working: Option<Working<F>> = None;
        loop {
            tokio::select! {
                biased;
                event = events.recv() => match event {
                    Some(Event::Elected(fencing_token)) if outcome.is_none() => {
                        let (stop_sender, stop_requested) = watch::channel(false);
                        let term = Term { fencing_token, stop_requested, leadership: leadership.clone() };
                        tracing::info!(%lease, version = %term.fencing_token.version, "became the leader");
                        // A term that is over already is followed by `LeadershipLost`.
                        if term.is_current() {
                            working = Some((term.clone(), Box::pin(work(term)), stop_sender));
                        }
                    }
                    Some(Event::LeadershipLost(reason)) => {
                        // Another process may lead already, so the work is dropped, not asked to end.
                        working = None;
                        tracing::warn!(%lease, reason = %LossMessage(&reason), "no longer the leader");
                    }
                    // The holder changed, or this process was elected after it was asked to stop. In the
                    // second case the driver releases the lease.
                    Some(_) => {}
                    None => break,
                },
                () = &mut stop, if outcome.is_none() => {
                    outcome = Some(ElectionOutcome::Stopped);
                    if let Some((_, _, stop_sender)) = &working {
                        stop_sender.send_replace(true);
                    }
                }
                () = wait_for_work(&mut working) => {
                    working = None;
                    outcome.get_or_insert(ElectionOutcome::WorkCompleted);
                }
            }
            if outcome.is_some() && working.is_none() {
                end_candidacy.send_replace(true);
            }
        }
        if let Some(Err(error)) = driver_task.join_next().await
            && error.is_panic()
        {
            std::panic::resume_unwind(error.into_panic());
        }
        Ok(outcome.unwrap_or(ElectionOutcome::Stopped))
    }
}

/// The work of a term, and the sender that asks it to end.
type Working<F> = (Term, Pin<Box<F>>, watch::Sender<bool>);

/// Waits until the work has completed; forever if there is none.
async fn wait_for_work<F: Future<Output = ()>>(working: &mut Option<Working<F>>) {
    match working {
        // Work of a term that has ended is not polled again; it is dropped when the driver notices the end.
        Some((term, work, _)) => {
            let poll_work = |context: &mut Context<'_>| {
                if term.is_current() { work.as_mut().poll(context) } else { Poll::Pending }
            };
            poll_fn(poll_work).await;
        }
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

    /// Returns whether this process is still the leader in this term.
    ///
    /// The work is dropped at the end of the term, but only when it awaits. Work that runs for long without
    /// awaiting checks this before it writes.
    pub fn is_current(&self) -> bool {
        self.leadership.fencing_token().as_ref() == Some(&self.fencing_token)
    }

    /// Waits until the work is asked to end.
    ///
    /// The lease is renewed until the work has ended. When leadership is lost, the work is dropped instead.
    pub async fn stop_requested(&self) {
        // An error means that the term is over, which only a clone kept beyond the work can observe.
        let _term_over = self.stop_requested.clone().wait_for(|requested| *requested).await.is_err();
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
