//! Leader election against the embedded server: acquisition, takeover, and at most one leader at any time.
#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use informer::election::{ElectionConfig, ElectionOutcome, LeaderElector, Leadership};
use informer_apiserver::{ApiServer, Verb, faults};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

const TIMEOUT: Duration = Duration::from_secs(3600);

/// A running candidate.
struct Candidate {
    leadership: Leadership,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<ElectionOutcome>,
}

/// Names of the candidates that are working.
type Working = Arc<Mutex<Vec<&'static str>>>;

/// Marks a candidate as working until dropped; fails if another one is.
struct WorkingGuard(Working, &'static str);

impl WorkingGuard {
    fn new(working: &Working, name: &'static str) -> Self {
        let mut names = working.lock().unwrap();
        assert!(names.is_empty(), "{name} works at the same time as {names:?}");
        names.push(name);
        WorkingGuard(working.clone(), name)
    }
}

impl Drop for WorkingGuard {
    fn drop(&mut self) {
        self.0.lock().unwrap().retain(|name| *name != self.1);
    }
}

impl Candidate {
    fn start(server: &ApiServer, working: &Working, name: &'static str) -> Self {
        let elector = LeaderElector::new(server.client(), "kube-system", "test").identity(name);
        let (leadership, working) = (elector.leadership(), working.clone());
        let (stop, stopped) = oneshot::channel::<()>();
        let work = move |term: informer::election::Term| {
            let working = working.clone();
            async move {
                let _acts = WorkingGuard::new(&working, name);
                term.stop_requested().await;
                // Stopping takes longer than a lease lasts.
                tokio::time::sleep_until(Instant::now() + Duration::from_secs(20)).await;
            }
        };
        let task =
            tokio::spawn(async move { elector.run(work, async { drop(stopped.await) }).await.unwrap() });
        Candidate { leadership, stop: Some(stop), task }
    }

    async fn wait_until_leading(&mut self) {
        let wait = async {
            while !self.leadership.is_leader() {
                assert!(self.leadership.changed().await);
            }
        };
        timeout(TIMEOUT, wait).await.expect("the candidate leads in time");
    }

    async fn stop(mut self) -> ElectionOutcome {
        drop(self.stop.take());
        timeout(TIMEOUT, self.task).await.expect("the candidate ends in time").unwrap()
    }
}

fn lease(server: &ApiServer) -> Value {
    server.get("coordination.k8s.io/v1", "leases", Some("kube-system"), "test").unwrap()
}

fn holder(server: &ApiServer) -> String {
    lease(server)["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(start_paused = true)]
async fn le_2_lease_names_the_leader() {
    let (server, working) = (ApiServer::new(), Working::default());
    let mut one = Candidate::start(&server, &working, "one");
    one.wait_until_leading().await;
    let lease = lease(&server);
    let spec = &lease["spec"];
    assert!(holder(&server).starts_with("one_"), "{spec}");
    assert_eq!((&spec["leaseDurationSeconds"], &spec["leaseTransitions"]), (&json!(15), &json!(0)));
    assert_eq!(spec["renewTime"].as_str().unwrap().len(), "2026-01-01T00:00:00.000000Z".len());
    let fence = one.leadership.fencing_token().unwrap();
    assert_eq!(fence.version, lease["metadata"]["resourceVersion"].as_str().unwrap());
    assert_eq!(one.leadership.holder(), holder(&server));
}

// LE-16, LE-17: the lease is released after the work has ended, and the next candidate leads immediately.
#[tokio::test(start_paused = true)]
async fn stopping_leader_ends_its_work_and_releases_the_lease() {
    let (server, working) = (ApiServer::new(), Working::default());
    let mut one = Candidate::start(&server, &working, "one");
    one.wait_until_leading().await;
    let mut two = Candidate::start(&server, &working, "two");
    let first = one.leadership.fencing_token().unwrap();
    let begun = Instant::now();
    assert_eq!(one.stop().await, ElectionOutcome::Stopped);
    assert!(begun.elapsed() >= Duration::from_secs(20), "the work finished while the lease was held");
    assert_eq!(holder(&server), "");
    two.wait_until_leading().await;
    assert!(begun.elapsed() < Duration::from_secs(26), "{:?}", begun.elapsed());
    let second = two.leadership.fencing_token().unwrap();
    assert!(second.version.parse::<u64>().unwrap() > first.version.parse::<u64>().unwrap());
    assert_eq!(second.transitions, 1);
}

#[tokio::test(start_paused = true)]
async fn killed_leader_is_replaced_after_its_lease_expires() {
    let (server, working) = (ApiServer::new(), Working::default());
    let mut one = Candidate::start(&server, &working, "one");
    one.wait_until_leading().await;
    let mut two = Candidate::start(&server, &working, "two");
    one.task.abort();
    let begun = Instant::now();
    two.wait_until_leading().await;
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs(12) && took < Duration::from_secs(25), "{took:?}");
    assert_eq!(*working.lock().unwrap(), ["two"]);
}

/// The server is unavailable for a minute: the leader stops in time, there is no leader meanwhile, and there
/// is one afterwards.
#[tokio::test(start_paused = true)]
async fn no_candidate_works_without_a_server() {
    let (server, working) = (ApiServer::new(), Working::default());
    let mut one = Candidate::start(&server, &working, "one");
    one.wait_until_leading().await;
    let two = Candidate::start(&server, &working, "two");
    let unavailable = server.inject(faults::respond(503));
    let begun = Instant::now();
    while one.leadership.is_leader() {
        tokio::time::advance(Duration::from_millis(500)).await;
        tokio::task::yield_now().await;
    }
    assert!(begun.elapsed() <= Duration::from_secs(13), "{:?}", begun.elapsed());
    tokio::time::advance(Duration::from_secs(60)).await;
    tokio::task::yield_now().await;
    assert_eq!(*working.lock().unwrap(), [""; 0]);
    drop(unavailable);
    let any_leader = async {
        while !one.leadership.is_leader() && !two.leadership.is_leader() {
            tokio::time::advance(Duration::from_millis(500)).await;
            tokio::task::yield_now().await;
        }
    };
    timeout(TIMEOUT, any_leader).await.unwrap();
}

/// Two candidates with the same configured identity are distinguished.
#[tokio::test(start_paused = true)]
async fn two_candidates_with_the_same_identity_are_distinguished() {
    let (server, working) = (ApiServer::new(), Working::default());
    let mut one = Candidate::start(&server, &working, "same");
    one.wait_until_leading().await;
    let two = Candidate::start(&server, &working, "same");
    for _ in 0..60 {
        tokio::time::advance(Duration::from_secs(1)).await;
        tokio::task::yield_now().await;
        assert!(one.leadership.is_leader() && !two.leadership.is_leader());
    }
}

#[tokio::test(start_paused = true)]
async fn taken_lease_ends_the_term() {
    let (server, working) = (ApiServer::new(), Working::default());
    let mut one = Candidate::start(&server, &working, "one");
    one.wait_until_leading().await;
    let first = one.leadership.fencing_token().unwrap();
    let mut taken = lease(&server);
    taken["spec"]["holderIdentity"] = json!("another holder");
    server.update(&taken).unwrap();
    while one.leadership.is_leader() {
        assert!(one.leadership.changed().await);
    }
    assert_eq!(one.leadership.holder(), "another holder");
    one.wait_until_leading().await;
    let second = one.leadership.fencing_token().unwrap();
    let numbers = [first, second].map(|fence| fence.version.parse::<u64>().unwrap());
    assert!(numbers[0] < numbers[1], "{numbers:?}");
}

/// A renewal is a PUT, which creates a missing lease: its holder continues the same term, unless another
/// candidate was faster.
/// The next renewal is a conflict, after which the leader finds no lease: its term ends, and the next one has its own token.
#[tokio::test(start_paused = true)]
async fn deleted_lease_ends_the_term_and_is_created_again() {
    let (server, working) = (ApiServer::new(), Working::default());
    let mut one = Candidate::start(&server, &working, "one");
    one.wait_until_leading().await;
    let version = |candidate: &Candidate| -> u64 {
        candidate.leadership.fencing_token().expect("it leads").version.parse().unwrap()
    };
    let term = version(&one);
    server.delete("coordination.k8s.io/v1", "leases", Some("kube-system"), "test").unwrap();
    let is_next = |token: informer::election::FencingToken| token.version != term.to_string();
    for _ in 0..100 {
        tokio::time::advance(Duration::from_millis(100)).await;
        tokio::task::yield_now().await;
        if one.leadership.fencing_token().is_some_and(is_next) {
            break;
        }
    }
    assert!(holder(&server).starts_with("one_"));
    assert!(one.leadership.is_leader() && version(&one) > term);
}

/// Labels that others set on the lease are preserved.
#[tokio::test(start_paused = true)]
async fn le_2_foreign_labels_are_preserved() {
    let (server, working) = (ApiServer::new(), Working::default());
    server
        .create(&json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "test", "namespace": "kube-system", "labels": {"team": "a"}},
            "spec": {"holderIdentity": ""},
        }))
        .unwrap();
    let mut one = Candidate::start(&server, &working, "one");
    one.wait_until_leading().await;
    assert_eq!(lease(&server)["metadata"]["labels"], json!({"team": "a"}));
}

#[tokio::test(start_paused = true)]
async fn inaccessible_lease_is_retried_at_the_retry_period() {
    let (server, working) = (ApiServer::new(), Working::default());
    let forbidden = server.inject(faults::respond(403).for_verb(Verb::Create));
    let mut one = Candidate::start(&server, &working, "one");
    tokio::time::advance(Duration::from_secs(60)).await;
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    assert!(!one.leadership.is_leader());
    assert!(server.recorded_requests().len() < 80, "{}", server.recorded_requests().len());
    drop(forbidden);
    one.wait_until_leading().await;
    server
        .insert_unchecked(&json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "test", "namespace": "kube-system"},
            "spec": {"holderIdentity": "x", "leaseDurationSeconds": "soon"},
        }))
        .unwrap();
    while one.leadership.is_leader() {
        assert!(one.leadership.changed().await);
    }
    assert_eq!(*working.lock().unwrap(), [""; 0]);
}

/// Regression: a candidate whose attempt to acquire the lease had conflicted, and that was stopped after another one
/// acquired it, read the lease, found nothing to release, and never ended.
#[tokio::test(start_paused = true)]
async fn stopped_candidate_that_lost_a_race_ends() {
    let (server, working) = (ApiServer::new(), Working::default());
    let free = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "test", "namespace": "kube-system"}, "spec": {"holderIdentity": ""},
    });
    server.create(&free).unwrap();
    let conflict = server.inject(faults::respond(409).for_verb(Verb::Update).max_hits(1));
    let one = Candidate::start(&server, &working, "one");
    while conflict.hits() == 0 {
        tokio::task::yield_now().await;
    }
    let mut taken = lease(&server);
    taken["spec"] = json!({"holderIdentity": "another holder", "leaseDurationSeconds": 15});
    server.update(&taken).unwrap();
    assert_eq!(one.stop().await, ElectionOutcome::Stopped);
    assert_eq!(holder(&server), "another holder");
}

#[tokio::test(start_paused = true)]
async fn completed_work_ends_the_candidacy() {
    let server = ApiServer::new();
    let elector = LeaderElector::new(server.client(), "kube-system", "test");
    let ended = elector.run(|_| async {}, std::future::pending()).await.unwrap();
    assert_eq!((ended, holder(&server).as_str()), (ElectionOutcome::WorkCompleted, ""));
    let seconds = Duration::from_secs;
    let elector = LeaderElector::new(server.client(), "kube-system", "test");
    assert!(elector.config(ElectionConfig::new(seconds(10), seconds(10), seconds(2))).is_err());
}

/// A request without a response does not block a candidate forever.
#[tokio::test(start_paused = true)]
async fn hanging_request_is_cancelled() {
    let server = ApiServer::new();
    let working = Working::default();
    let stalled = server.inject(faults::stall_request().for_resource("leases").max_hits(1));
    let mut candidate = Candidate::start(&server, &working, "a");
    candidate.wait_until_leading().await;
    assert_eq!(stalled.hits(), 1);
    candidate.stop().await;
}

/// A lease with invalid contents is left unchanged; once it is repaired, the election continues.
#[tokio::test(start_paused = true)]
async fn invalid_lease_is_left_unchanged() {
    let server = ApiServer::new();
    let working = Working::default();
    let odd = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"namespace": "kube-system", "name": "test"},
        "spec": {"holderIdentity": 7, "leaseDurationSeconds": "long"},
    });
    server.insert_unchecked(&odd).unwrap();
    let mut candidate = Candidate::start(&server, &working, "a");
    let waited = timeout(Duration::from_secs(600), candidate.wait_until_leading()).await;
    assert!(waited.is_err(), "it leads with an invalid lease");
    assert_eq!(lease(&server)["spec"]["holderIdentity"], json!(7));
    server.delete("coordination.k8s.io/v1", "leases", Some("kube-system"), "test").unwrap();
    candidate.wait_until_leading().await;
    candidate.stop().await;
}

/// The clock repeatedly jumps by an hour, as on a machine that was suspended. The former leader notices that
/// its term is over before another one works; the work function checks that it runs alone.
#[tokio::test(start_paused = true)]
async fn jumping_clock_causes_no_second_leader() {
    let server = ApiServer::new();
    let working = Working::default();
    let mut candidates = [Candidate::start(&server, &working, "a"), Candidate::start(&server, &working, "b")];
    for jump in 0..20 {
        let wait_until_leading =
            |candidates: &[Candidate; 2]| candidates.iter().any(|one| one.leadership.is_leader());
        let wait = async {
            while !wait_until_leading(&candidates) {
                let [first, second] = &mut candidates;
                tokio::select! {
                    changed = first.leadership.changed() => assert!(changed),
                    changed = second.leadership.changed() => assert!(changed),
                }
            }
        };
        timeout(TIMEOUT, wait).await.expect("a candidate leads");
        tokio::time::advance(Duration::from_secs(3_600 + jump)).await;
        assert!(!wait_until_leading(&candidates), "a term from an hour ago has expired");
    }
    let [first, second] = candidates;
    first.stop().await;
    second.stop().await;
}

/// Regression: the lease was renewed by the task that ran the work. Work that blocked its thread lost the
/// lease after 15 s, and overlapped with the work of the next leader. All tests used work that awaits.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn lease_is_renewed_while_the_work_blocks_its_thread() {
    let (server, gate) = (ApiServer::new(), Arc::new(std::sync::Barrier::new(2)));
    let mut config = ElectionConfig::default();
    (config.lease_duration, config.renew_deadline) = (Duration::from_secs(2), Duration::from_secs(1));
    config.retry_period = Duration::from_millis(100);
    let elector = LeaderElector::new(server.client(), "kube-system", "test").identity("one");
    let elector = elector.config(config).unwrap();
    let (leadership, at_gate) = (elector.leadership(), Arc::clone(&gate));
    let (blocked, mut is_blocked) = tokio::sync::watch::channel(None);
    let work = move |term: informer::election::Term| {
        let (gate, blocked) = (Arc::clone(&at_gate), blocked.clone());
        async move {
            blocked.send_replace(Some(term.clone()));
            gate.wait();
        }
    };
    let candidate = tokio::spawn(elector.run(work, std::future::pending()));
    let term = is_blocked.wait_for(Option::is_some).await.unwrap().clone().unwrap();
    let renewed = |server: &ApiServer| lease(server)["spec"]["renewTime"].as_str().unwrap().to_owned();
    // Renewed for longer than the lease lasts.
    let (start, mut last, mut renewals) = (std::time::Instant::now(), renewed(&server), 0);
    while start.elapsed() < Duration::from_millis(2_500) || renewals < 10 {
        let wait = async {
            while renewed(&server) == last {
                tokio::time::sleep_until(Instant::now() + Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(30), wait).await.expect("the lease is renewed");
        (last, renewals) = (renewed(&server), renewals + 1);
    }
    assert!(leadership.is_leader() && term.is_current());
    assert_eq!(lease(&server)["spec"]["leaseTransitions"], 0);
    gate.wait();
    let outcome = timeout(Duration::from_secs(30), candidate).await.expect("the candidate ends in time");
    assert_eq!(outcome.unwrap().unwrap(), ElectionOutcome::WorkCompleted);
    assert!(!term.is_current());
}
