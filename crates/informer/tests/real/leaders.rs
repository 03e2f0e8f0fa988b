//! Leader election with real leases: one leads, the next takes over from one that stops at once, and from one that dies when its lease has
//! run out. Never two at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use informer::{ElectionConfig, Ended, LeaderElector, Leadership, Term};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::arm::{Arm, until};
use crate::runner::statements;

statements![leaders_follow_each_other];

struct Candidate {
    leadership: Leadership,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Ended>,
}

/// Counts who acts.
struct Acts(Arc<AtomicUsize>);

impl Drop for Acts {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Longer than a busy machine keeps anybody waiting.
const LEASE: Duration = Duration::from_secs(15);

fn start(arm: &Arm, acting: &Arc<AtomicUsize>, name: &str) -> Candidate {
    let times = ElectionConfig::new(LEASE, Duration::from_secs(10), Duration::from_secs(1));
    let elector = LeaderElector::new(arm.client.clone(), &arm.namespace, "election").identity(name);
    let elector = elector.times(times).unwrap();
    let (leadership, acting) = (elector.leadership(), Arc::clone(acting));
    let (stop, stopped) = oneshot::channel::<()>();
    let work = move |term: Term| {
        assert_eq!(acting.fetch_add(1, Ordering::SeqCst), 0, "two act");
        let acts = Acts(Arc::clone(&acting));
        async move {
            term.stopping().await;
            drop(acts);
        }
    };
    let task = tokio::spawn(async move { elector.run(work, async { drop(stopped.await) }).await.unwrap() });
    Candidate { leadership, stop, task }
}

async fn leaders_follow_each_other(arm: &Arm) {
    let acting = Arc::new(AtomicUsize::new(0));
    let one = start(arm, &acting, "one");
    until("one leads", async || one.leadership.is_leader()).await;
    let two = start(arm, &acting, "two");
    until("two knows who leads", async || two.leadership.holder().starts_with("one_")).await;
    let path = "/apis/coordination.k8s.io/v1/namespaces/$name/leases/election";
    let lease = arm.request("GET", path, None).await.unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], one.leadership.holder(), "{lease}");
    let fence = one.leadership.fence().unwrap();

    drop(one.stop);
    assert_eq!(one.task.await.unwrap(), Ended::Stopped);
    let begun = Instant::now();
    until("two takes over", async || two.leadership.is_leader()).await;
    assert!(begun.elapsed() < LEASE, "a lease that was given back is free");
    assert!(fence.version < two.leadership.fence().unwrap().version);

    let three = start(arm, &acting, "three");
    until("three knows who leads", async || three.leadership.holder().starts_with("two_")).await;
    two.task.abort();
    assert!(two.task.await.unwrap_err().is_cancelled());
    until("three takes over", async || three.leadership.is_leader()).await;
    let lease = arm.request("GET", path, None).await.unwrap();
    assert_eq!(lease["spec"]["leaseTransitions"], 2, "{lease}");
    drop(three.stop);
    assert_eq!(three.task.await.unwrap(), Ended::Stopped);
    let lease = arm.request("GET", path, None).await.unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], "", "{lease}");
}
