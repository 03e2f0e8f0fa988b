//! Leader election with leases of a control plane: one candidate leads, the next one takes over immediately
//! from one that stops, and after the lease has expired from one that is killed. There are never two leaders.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use informer::election::{ElectionConfig, ElectionOutcome, LeaderElector, Leadership, Term};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::runner::statements;
use crate::targets::{Target, until};

statements![leadership_is_handed_over];

struct Candidate {
    leadership: Leadership,
    stop: oneshot::Sender<()>,
    task: JoinHandle<ElectionOutcome>,
}

/// Counts the candidates that are working.
struct WorkingGuard(Arc<AtomicUsize>);

impl Drop for WorkingGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Longer than a busy machine delays a renewal.
const LEASE: Duration = Duration::from_secs(15);

fn start(target: &Target, working: &Arc<AtomicUsize>, name: &str) -> Candidate {
    let times = ElectionConfig::new(LEASE, Duration::from_secs(10), Duration::from_secs(1));
    let elector = LeaderElector::new(target.client.clone(), &target.namespace, "election").identity(name);
    let elector = elector.config(times).unwrap();
    let (leadership, working) = (elector.leadership(), Arc::clone(working));
    let (stop, stopped) = oneshot::channel::<()>();
    let work = move |term: Term| {
        assert_eq!(working.fetch_add(1, Ordering::SeqCst), 0, "two candidates work at the same time");
        let acts = WorkingGuard(Arc::clone(&working));
        async move {
            term.stop_requested().await;
            drop(acts);
        }
    };
    let task = tokio::spawn(async move { elector.run(work, async { drop(stopped.await) }).await.unwrap() });
    Candidate { leadership, stop, task }
}

async fn leadership_is_handed_over(target: &Target) {
    let working = Arc::new(AtomicUsize::new(0));
    let one = start(target, &working, "one");
    until("one leads", async || one.leadership.is_leader()).await;
    let two = start(target, &working, "two");
    until("two knows who leads", async || two.leadership.holder().starts_with("one_")).await;
    let path = "/apis/coordination.k8s.io/v1/namespaces/$name/leases/election";
    let lease = target.request("GET", path, None).await.unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], one.leadership.holder(), "{lease}");
    let fence = one.leadership.fencing_token().unwrap();

    drop(one.stop);
    assert_eq!(one.task.await.unwrap(), ElectionOutcome::Stopped);
    let begun = Instant::now();
    until("two takes over", async || two.leadership.is_leader()).await;
    assert!(begun.elapsed() < LEASE, "a released lease is free");
    assert!(fence.version < two.leadership.fencing_token().unwrap().version);

    let three = start(target, &working, "three");
    until("three knows who leads", async || three.leadership.holder().starts_with("two_")).await;
    two.task.abort();
    assert!(two.task.await.unwrap_err().is_cancelled());
    until("three takes over", async || three.leadership.is_leader()).await;
    let lease = target.request("GET", path, None).await.unwrap();
    assert_eq!(lease["spec"]["leaseTransitions"], 2, "{lease}");
    drop(three.stop);
    assert_eq!(three.task.await.unwrap(), ElectionOutcome::Stopped);
    let lease = target.request("GET", path, None).await.unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], "", "{lease}");
}
