//! Leader election against the embedded server: who leads, who takes over, and that never two do.
#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use informer::{ElectionConfig, Ended, LeaderElector, Leadership};
use informer_apiserver::{ApiServer, Verb, faults};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

const LONG: Duration = Duration::from_hours(1);

/// A candidate that runs.
struct Candidate {
    leadership: Leadership,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Ended>,
}

/// Who acts, as their work says.
type Acting = Arc<Mutex<Vec<&'static str>>>;

/// Says that somebody acts until it is dropped.
struct Acts(Acting, &'static str);

impl Acts {
    fn new(acting: &Acting, name: &'static str) -> Self {
        let mut names = acting.lock().unwrap();
        assert!(names.is_empty(), "{name} acts beside {names:?}");
        names.push(name);
        Acts(acting.clone(), name)
    }
}

impl Drop for Acts {
    fn drop(&mut self) {
        self.0.lock().unwrap().retain(|name| *name != self.1);
    }
}

impl Candidate {
    fn start(server: &ApiServer, acting: &Acting, name: &'static str) -> Self {
        let elector = LeaderElector::new(server.client(), "kube-system", "test").identity(name);
        let (leadership, acting) = (elector.leadership(), acting.clone());
        let (stop, stopped) = oneshot::channel::<()>();
        let work = move |term: informer::Term| {
            let acting = acting.clone();
            async move {
                let _acts = Acts::new(&acting, name);
                term.stopping().await;
                // Ending takes longer than a lease lasts.
                tokio::time::sleep_until(Instant::now() + Duration::from_secs(20)).await;
            }
        };
        let task =
            tokio::spawn(async move { elector.run(work, async { drop(stopped.await) }).await.unwrap() });
        Candidate { leadership, stop: Some(stop), task }
    }

    async fn leads(&mut self) {
        let wait = async {
            while !self.leadership.is_leader() {
                assert!(self.leadership.changed().await);
            }
        };
        timeout(LONG, wait).await.expect("it comes to lead");
    }

    async fn stop(mut self) -> Ended {
        drop(self.stop.take());
        timeout(LONG, self.task).await.expect("it ends").unwrap()
    }
}

fn lease(server: &ApiServer) -> Value {
    server.get("coordination.k8s.io/v1", "leases", Some("kube-system"), "test").unwrap()
}

fn holder(server: &ApiServer) -> String {
    lease(server)["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(start_paused = true)]
async fn le_2_the_lease_says_who_leads() {
    let (server, acting) = (ApiServer::new(), Acting::default());
    let mut one = Candidate::start(&server, &acting, "one");
    one.leads().await;
    let lease = lease(&server);
    let spec = &lease["spec"];
    assert!(holder(&server).starts_with("one_"), "{spec}");
    assert_eq!((&spec["leaseDurationSeconds"], &spec["leaseTransitions"]), (&json!(15), &json!(0)));
    assert_eq!(spec["renewTime"].as_str().unwrap().len(), "2026-01-01T00:00:00.000000Z".len());
    let fence = one.leadership.fence().unwrap();
    assert_eq!(fence.version, lease["metadata"]["resourceVersion"].as_str().unwrap());
    assert_eq!(one.leadership.holder(), holder(&server));
}

// LE-16, LE-17: it is given back when the work has ended, and not before; the next leads at once.
#[tokio::test(start_paused = true)]
async fn a_leader_that_stops_ends_its_work_and_hands_over() {
    let (server, acting) = (ApiServer::new(), Acting::default());
    let mut one = Candidate::start(&server, &acting, "one");
    one.leads().await;
    let mut two = Candidate::start(&server, &acting, "two");
    let first = one.leadership.fence().unwrap();
    let begun = Instant::now();
    assert_eq!(one.stop().await, Ended::Stopped);
    assert!(begun.elapsed() >= Duration::from_secs(20), "the work had its time, and kept its lease");
    assert_eq!(holder(&server), "");
    two.leads().await;
    assert!(begun.elapsed() < Duration::from_secs(26), "{:?}", begun.elapsed());
    let second = two.leadership.fence().unwrap();
    assert!(second.version.parse::<u64>().unwrap() > first.version.parse::<u64>().unwrap());
    assert_eq!(second.transitions, 1);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_dies_is_followed_when_its_lease_is_over() {
    let (server, acting) = (ApiServer::new(), Acting::default());
    let mut one = Candidate::start(&server, &acting, "one");
    one.leads().await;
    let mut two = Candidate::start(&server, &acting, "two");
    one.task.abort();
    let begun = Instant::now();
    two.leads().await;
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs(12) && took < Duration::from_secs(25), "{took:?}");
    assert_eq!(*acting.lock().unwrap(), ["two"]);
}

/// The server is gone for a minute: the leader stops in time, nobody leads meanwhile, and somebody does afterwards.
#[tokio::test(start_paused = true)]
async fn without_a_server_nobody_acts() {
    let (server, acting) = (ApiServer::new(), Acting::default());
    let mut one = Candidate::start(&server, &acting, "one");
    one.leads().await;
    let two = Candidate::start(&server, &acting, "two");
    let gone = server.fault(faults::status(503));
    let begun = Instant::now();
    while one.leadership.is_leader() {
        tokio::time::advance(Duration::from_millis(500)).await;
        tokio::task::yield_now().await;
    }
    assert!(begun.elapsed() <= Duration::from_secs(13), "{:?}", begun.elapsed());
    tokio::time::advance(Duration::from_mins(1)).await;
    tokio::task::yield_now().await;
    assert_eq!(*acting.lock().unwrap(), [""; 0]);
    drop(gone);
    let somebody = async {
        while !one.leadership.is_leader() && !two.leadership.is_leader() {
            tokio::time::advance(Duration::from_millis(500)).await;
            tokio::task::yield_now().await;
        }
    };
    timeout(LONG, somebody).await.unwrap();
}

/// Two managers are configured with the same identity: they are told apart all the same.
#[tokio::test(start_paused = true)]
async fn two_of_one_name_do_not_take_each_other_for_themselves() {
    let (server, acting) = (ApiServer::new(), Acting::default());
    let mut one = Candidate::start(&server, &acting, "same");
    one.leads().await;
    let two = Candidate::start(&server, &acting, "same");
    for _ in 0..60 {
        tokio::time::advance(Duration::from_secs(1)).await;
        tokio::task::yield_now().await;
        assert!(one.leadership.is_leader() && !two.leadership.is_leader());
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_taken_ends_the_term() {
    let (server, acting) = (ApiServer::new(), Acting::default());
    let mut one = Candidate::start(&server, &acting, "one");
    one.leads().await;
    let first = one.leadership.fence().unwrap();
    let mut taken = lease(&server);
    taken["spec"]["holderIdentity"] = json!("somebody else");
    server.update(&taken).unwrap();
    while one.leadership.is_leader() {
        assert!(one.leadership.changed().await);
    }
    assert_eq!(one.leadership.holder(), "somebody else");
    one.leads().await;
    let second = one.leadership.fence().unwrap();
    let numbers = [first, second].map(|fence| fence.version.parse::<u64>().unwrap());
    assert!(numbers[0] < numbers[1], "{numbers:?}");
}

/// A renewal is a PUT, which creates a lease that is not there: its holder goes on in the same term, unless somebody was faster.
#[tokio::test(start_paused = true)]
async fn a_lease_that_is_deleted_comes_back_with_the_next_renewal() {
    let (server, acting) = (ApiServer::new(), Acting::default());
    let mut one = Candidate::start(&server, &acting, "one");
    one.leads().await;
    let term = one.leadership.fence();
    server.delete("coordination.k8s.io/v1", "leases", Some("kube-system"), "test").unwrap();
    tokio::time::advance(Duration::from_secs(3)).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(holder(&server).starts_with("one_"));
    assert_eq!((one.leadership.fence(), one.leadership.is_leader()), (term, true));
}

/// What others wrote on the lease is not theirs to lose.
#[tokio::test(start_paused = true)]
async fn le_2_labels_of_others_stay() {
    let (server, acting) = (ApiServer::new(), Acting::default());
    server
        .create(&json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "test", "namespace": "kube-system", "labels": {"team": "a"}},
            "spec": {"holderIdentity": ""},
        }))
        .unwrap();
    let mut one = Candidate::start(&server, &acting, "one");
    one.leads().await;
    assert_eq!(lease(&server)["metadata"]["labels"], json!({"team": "a"}));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_cannot_be_read_or_written_is_tried_again_without_hurry() {
    let (server, acting) = (ApiServer::new(), Acting::default());
    let forbidden = server.fault(faults::status(403).on(Verb::Create));
    let mut one = Candidate::start(&server, &acting, "one");
    tokio::time::advance(Duration::from_mins(1)).await;
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    assert!(!one.leadership.is_leader());
    assert!(server.requests().len() < 80, "{}", server.requests().len());
    drop(forbidden);
    one.leads().await;
    server
        .plant(&json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "test", "namespace": "kube-system"},
            "spec": {"holderIdentity": "x", "leaseDurationSeconds": "soon"},
        }))
        .unwrap();
    while one.leadership.is_leader() {
        assert!(one.leadership.changed().await);
    }
    assert_eq!(*acting.lock().unwrap(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn work_that_ends_by_itself_ends_the_candidacy() {
    let server = ApiServer::new();
    let elector = LeaderElector::new(server.client(), "kube-system", "test");
    let ended = elector.run(|_| async {}, std::future::pending()).await.unwrap();
    assert_eq!((ended, holder(&server).as_str()), (Ended::WorkDone, ""));
    let seconds = Duration::from_secs;
    let elector = LeaderElector::new(server.client(), "kube-system", "test");
    assert!(elector.times(ElectionConfig::new(seconds(10), seconds(10), seconds(2))).is_err());
}

/// A request that is never answered does not hold a candidate for ever.
#[tokio::test(start_paused = true)]
async fn a_request_that_hangs_is_given_up() {
    let server = ApiServer::new();
    let acting = Acting::default();
    let held = server.fault(faults::hold().of("leases").times(1));
    let mut candidate = Candidate::start(&server, &acting, "a");
    candidate.leads().await;
    assert_eq!(held.hits(), 1);
    candidate.stop().await;
}

/// A lease whose contents nobody understands is left alone, whatever they mean; when somebody has put it right, the election goes on.
#[tokio::test(start_paused = true)]
async fn a_lease_that_cannot_be_read_is_left_alone() {
    let server = ApiServer::new();
    let acting = Acting::default();
    let odd = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"namespace": "kube-system", "name": "test"},
        "spec": {"holderIdentity": 7, "leaseDurationSeconds": "long"},
    });
    server.plant(&odd).unwrap();
    let mut candidate = Candidate::start(&server, &acting, "a");
    let waited = timeout(Duration::from_mins(10), candidate.leads()).await;
    assert!(waited.is_err(), "it leads by a lease that it cannot read");
    assert_eq!(lease(&server)["spec"]["holderIdentity"], json!(7));
    server.delete("coordination.k8s.io/v1", "leases", Some("kube-system"), "test").unwrap();
    candidate.leads().await;
    candidate.stop().await;
}

/// The clock jumps by an hour, again and again: a machine that slept. Whoever led finds that its time is over before anybody else acts; the work itself
/// checks that nobody acts beside it.
#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_makes_no_second_leader() {
    let server = ApiServer::new();
    let acting = Acting::default();
    let mut candidates = [Candidate::start(&server, &acting, "a"), Candidate::start(&server, &acting, "b")];
    for jump in 0..20 {
        let leads = |candidates: &[Candidate; 2]| candidates.iter().any(|one| one.leadership.is_leader());
        let wait = async {
            while !leads(&candidates) {
                let [first, second] = &mut candidates;
                tokio::select! {
                    changed = first.leadership.changed() => assert!(changed),
                    changed = second.leadership.changed() => assert!(changed),
                }
            }
        };
        timeout(LONG, wait).await.expect("somebody leads");
        tokio::time::advance(Duration::from_secs(3_600 + jump)).await;
        assert!(!leads(&candidates), "an hour ago is no longer certain");
    }
    let [first, second] = candidates;
    first.stop().await;
    second.stop().await;
}
