//! The driver of the coordinator: runs on the elected member, assigns ranges and removes members that have ended.

use super::assignment;
use super::client::GroupClient;
use super::state::GroupState;
use super::watch::{ObjectWatch, Objects, Selected};
use crate::clock::{Clock, sleep_until};
use crate::election::Term;
use informer_core::shard::{Coordinator, CoordinatorRequest, CoordinatorResponse, MemberRecord};
use kube::core::DynamicObject;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The state machine of a coordinator with its clock and the request in flight.
pub(super) struct CoordinatorDriver {
    machine: Coordinator,
    clock: Clock,
    client: Arc<GroupClient>,
    identity: Arc<str>,
    leases: watch::Receiver<Objects>,
    assignment: watch::Receiver<Objects>,
    /// The uids of the observed Leases by identity, each with the version of the Lease.
    uids: BTreeMap<String, (String, Option<String>)>,
    /// The newest version in the last list. Until the watch has reached it, what it shows is older.
    listed_version: Option<u64>,
    in_flight: Option<InFlight>,
    /// The version of the assignment that was read or written last.
    known_version: Option<String>,
    /// Whether the assignment that was written or read last contains this member.
    is_assigned: bool,
}

/// The parts of which the coordinator of one term consists.
pub(super) struct CoordinatorParts {
    pub(super) machine: Coordinator,
    pub(super) client: Arc<GroupClient>,
    pub(super) identity: Arc<str>,
    pub(super) state: Arc<GroupState>,
    pub(super) assignment: watch::Receiver<Objects>,
    pub(super) seed: u64,
}

struct InFlight {
    request: CoordinatorRequest,
    response: Pin<Box<dyn Future<Output = (CoordinatorResponse, Vec<DynamicObject>)> + Send>>,
}

/// Shows in the status that this process is the coordinator, until dropped.
struct CoordinatorFlag(Arc<GroupState>);

impl CoordinatorFlag {
    fn new(state: Arc<GroupState>) -> Self {
        state.status.send_modify(|status| status.is_coordinator = true);
        Self(state)
    }
}

impl Drop for CoordinatorFlag {
    fn drop(&mut self) {
        self.0.status.send_modify(|status| status.is_coordinator = false);
    }
}

/// Coordinates the group for one term: until it is asked to end, and then until the ranges of this member, which has
/// left, belong to others, or `end_timeout` has passed.
pub(super) async fn coordinate(parts: CoordinatorParts, term: Term, end_timeout: Duration) {
    let mut watch = ObjectWatch::new(&parts.client, &Selected::Leases, parts.seed);
    let _flag = CoordinatorFlag::new(Arc::clone(&parts.state));
    let mut driver = CoordinatorDriver::new(parts, watch.subscribe());
    let run = async {
        let mut is_ending = false;
        let mut end_deadline = None;
        while !(is_ending && driver.has_handed_over()) {
            tokio::select! {
                biased;
                () = driver.advance() => {}
                () = sleep_until(end_deadline) => return,
                () = term.stop_requested(), if !is_ending => {
                    is_ending = true;
                    end_deadline = Some(tokio::time::Instant::now() + end_timeout);
                }
            }
        }
    };
    tokio::select! {
        biased;
        () = run => {}
        // Ends only with the watch's reflector, which nothing stops.
        () = watch.run() => tracing::error!("the watch of the leases has ended"),
    }
}

impl CoordinatorDriver {
    fn new(parts: CoordinatorParts, leases: watch::Receiver<Objects>) -> Self {
        let CoordinatorParts { machine, client, identity, mut assignment, .. } = parts;
        // The machine reads the assignment first.
        assignment.mark_unchanged();
        Self {
            machine,
            clock: Clock::new(),
            client,
            identity,
            leases,
            assignment,
            uids: BTreeMap::new(),
            listed_version: None,
            in_flight: None,
            known_version: None,
            is_assigned: true,
        }
    }

    /// Returns whether no range belongs to this member, or there is no other member.
    fn has_handed_over(&self) -> bool {
        let is_alone = self.uids.keys().all(|identity| **identity == *self.identity);
        self.in_flight.is_none()
            && (is_alone || (!self.is_assigned && !self.uids.contains_key(&*self.identity)))
    }

    /// Sends a request if one is due, then waits for its response, for a change or for the next deadline.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: the request in flight is kept.
    async fn advance(&mut self) {
        let now = self.clock.now();
        // Without the Leases nothing can be decided.
        let is_ready = self.leases.borrow().is_some();
        if is_ready
            && self.in_flight.is_none()
            && let Some(request) = self.machine.poll_request(now)
        {
            self.send(request);
        }
        let instant = |moment| self.clock.instant(moment);
        let next_deadline = self.machine.next_deadline().filter(|_| is_ready).map(instant);
        let request_deadline = self.machine.request_deadline().map(instant);
        let Self { in_flight, leases, assignment, .. } = self;
        let is_idle = in_flight.is_none();
        let response = async {
            match in_flight {
                Some(in_flight) => in_flight.response.as_mut().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            (response, listed) = response => self.handle_response(response, &listed),
            () = sleep_until(request_deadline) => self.handle_response(CoordinatorResponse::Failed, &[]),
            Ok(()) = leases.changed() => self.observe_leases(),
            // The version that the request in flight writes is not a change by another client.
            Ok(()) = assignment.changed(), if is_idle => self.observe_assignment(),
            () = sleep_until(next_deadline) => {}
        }
    }

    fn send(&mut self, request: CoordinatorRequest) {
        let uid = match &request {
            CoordinatorRequest::DeleteLease(identity, version) => {
                tracing::warn!(group = %self.client, identity, "a member has not renewed its lease; removing it");
                let observed = self.uids.get(identity).filter(|(observed, _)| observed == version);
                observed.and_then(|(_, uid)| uid.clone())
            }
            _ => None,
        };
        let (client, sent) = (Arc::clone(&self.client), request.clone());
        let response = Box::pin(async move { client.coordinate(sent, uid).await });
        self.in_flight = Some(InFlight { request, response });
    }

    fn handle_response(&mut self, mut response: CoordinatorResponse, listed: &[DynamicObject]) {
        let Some(InFlight { request, .. }) = self.in_flight.take() else { return };
        if matches!(response, CoordinatorResponse::Leases(_)) && !self.handle_list(listed) {
            response = CoordinatorResponse::Failed;
        }
        if let CoordinatorResponse::Assignment(stored) = &response {
            self.known_version = stored.as_ref().map(|stored| stored.version.clone());
            let assignment = stored.as_ref().and_then(|stored| stored.assignment.as_ref());
            self.is_assigned = assignment.is_none_or(|assignment| {
                assignment.iter().any(|(_, assigned)| assigned.owner.as_deref() == Some(&*self.identity))
            });
        }
        self.machine.handle_response(self.clock.now(), &request, response);
    }

    /// Records the Leases of a list. Returns whether they are not older than those that the watch has shown.
    fn handle_list(&mut self, listed: &[DynamicObject]) -> bool {
        let newest = newest_version(listed);
        let watched = self.leases.borrow().clone();
        let watched = watched.and_then(|watched| newest_version(watched.values().map(|lease| &**lease)));
        let (is_older, is_newer) = newest
            .zip(watched)
            .map_or((false, true), |(newest, watched)| (newest < watched, newest > watched));
        if is_older {
            return false;
        }
        if is_newer {
            tracing::warn!(group = %self.client, "the watch of the leases is late; using a list");
        }
        self.listed_version = newest;
        self.record_uids(listed);
        true
    }

    fn observe_leases(&mut self) {
        let Some(objects) = self.leases.borrow_and_update().clone() else { return };
        let leases = || objects.values().map(|lease| &**lease);
        if newest_version(leases()).zip(self.listed_version).is_some_and(|(newest, listed)| newest < listed) {
            return;
        }
        self.listed_version = None;
        let observed = self.record_uids(leases());
        self.machine.observe_leases(self.clock.now(), observed);
    }

    /// Records the uids of the Leases. Returns what they contain, with their versions.
    fn record_uids<'a>(
        &mut self,
        leases: impl IntoIterator<Item = &'a DynamicObject>,
    ) -> Vec<(MemberRecord, String)> {
        let mut observed: Vec<(MemberRecord, String)> = Vec::new();
        self.uids.clear();
        for (record, lease) in self.client.records(leases) {
            let version = lease.metadata.resource_version.clone().unwrap_or_default();
            self.uids.insert(record.identity.clone(), (version.clone(), lease.metadata.uid.clone()));
            observed.push((record, version));
        }
        observed
    }

    /// Passes an assignment that another client has written to the state machine.
    fn observe_assignment(&mut self) {
        let Some(objects) = self.assignment.borrow_and_update().clone() else { return };
        let object = objects.values().next();
        let stored = object.map(|object| assignment::decode(object));
        let version = stored.as_ref().map(|stored| stored.version.clone());
        if version == self.known_version || is_older(version.as_deref(), self.known_version.as_deref()) {
            return;
        }
        if let Some(object) = object {
            self.client.remember_assignment(Arc::clone(object));
        }
        self.known_version = version;
        self.machine.observe_assignment(stored);
    }
}

/// Returns the highest version of some Leases. If versions cannot be compared, the Leases that were received last count.
fn newest_version<'a>(leases: impl IntoIterator<Item = &'a DynamicObject>) -> Option<u64> {
    let versions =
        leases.into_iter().filter_map(|lease| lease.metadata.resource_version.as_deref()?.parse().ok());
    versions.max()
}

/// Returns whether a version is lower than another one. Versions are compared only to save requests.
fn is_older(version: Option<&str>, other: Option<&str>) -> bool {
    let number = |version: Option<&str>| version?.parse::<u64>().ok();
    number(version).zip(number(other)).is_some_and(|(version, other)| version < other)
}
