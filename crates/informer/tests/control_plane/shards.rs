//! Shard groups on a control plane: ranges are divided, move in order when members join or leave, and after the Lease has
//! expired from members that are killed. Each object is in one cache, and none is deleted because it moved.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use informer::handler::Delivery;
use informer::shard::{ShardGroup, ShardGroupBuilder, ShardKey, describe};
use informer::{Event, InformerOptions, Registration, SharedInformer, SharedInformerFactory};
use k8s_openapi::api::core::v1::ConfigMap;

use crate::rights::{RBAC, account};
use crate::runner::statements;
use crate::shard_members::{Groups, Member};
use crate::targets::{TIMEOUT, Target, map, until, value};

statements![
    each_range_has_one_holder,
    leaving_member_releases_its_objects_to_the_others,
    ranges_of_killed_member_move_within_the_bound,
    ranges_of_killed_coordinator_move_within_the_bound,
    member_whose_lease_was_deleted_joins_again,
    membership_needs_only_its_required_access,
];

/// The documented bounds: a range waits for 19 s if its process was killed, and for 40 s if it was the coordinator. Two
/// more seconds are for the requests, on a busy machine.
const MAX_TAKEOVER: Duration = Duration::from_secs(19 + 2);
const MAX_COORDINATOR_TAKEOVER: Duration = Duration::from_secs(40 + 2);

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/$name/leases";

fn builder(target: &Target, identity: &str) -> ShardGroupBuilder {
    // A client of its own, as another process has.
    ShardGroup::builder(target.again().client, &target.namespace, "shop").identity(identity)
}

/// Joins members one after the other, until they have divided the ranges.
async fn join(target: &Target, groups: &Groups, identities: &[&str]) -> Vec<Member> {
    let mut members = Vec::new();
    for identity in identities {
        members.push(groups.run(builder(target, identity).build().unwrap()));
        wait_for_division(&members.iter().collect::<Vec<_>>()).await;
    }
    members
}

/// Waits until each member has the same number of ranges, rounded up or down, and all together have all.
async fn wait_for_division(members: &[&Member]) {
    let fewest = 256 / members.len();
    for member in members {
        member.wait_until(|member| (fewest..=fewest + 1).contains(&member.ranges())).await;
    }
    let all = || members.iter().map(|member| member.ranges()).sum::<usize>() == 256;
    members[0].wait_until(|_| all() && members.iter().all(|member| member.status().is_settled)).await;
}

/// Deliveries of one handler.
#[derive(Default)]
struct Received {
    /// Name and value of the known objects.
    known: BTreeMap<String, String>,
    /// Objects that were added since the test cleared them.
    added: BTreeSet<String>,
    deleted: BTreeSet<String>,
    released: BTreeSet<String>,
    faults: Vec<String>,
}

impl Received {
    fn take(&mut self, delivery: &Delivery<ConfigMap>) {
        let text = format!("{delivery:?}");
        let (object, was_known) = match delivery {
            Delivery::Event(event @ Event::Added { .. }) => (event.object(), false),
            Delivery::Event(event) => (event.object(), true),
            Delivery::Released { last, .. } => (last, true),
            other => return self.faults.push(format!("{other:?}")),
        };
        let name = object.name().to_owned();
        let data = object.typed().unwrap().data.clone().unwrap_or_default();
        let value = data.get("v").cloned().unwrap_or_default();
        if self.known.contains_key(&name) != was_known {
            self.faults.push(text);
        }
        match delivery {
            Delivery::Event(Event::Deleted { .. }) => {
                self.known.remove(&name);
                self.deleted.insert(name);
            }
            Delivery::Released { .. } => {
                self.known.remove(&name);
                self.released.insert(name);
            }
            Delivery::Event(Event::Added { .. }) => {
                self.known.insert(name.clone(), value);
                self.added.insert(name);
            }
            _ => drop(self.known.insert(name, value)),
        }
    }
}

/// A member with a sharded informer.
struct Process {
    member: Member,
    maps: SharedInformer<ConfigMap>,
    factory: SharedInformerFactory,
    received: Arc<Mutex<Received>>,
    _registration: Registration,
}

impl Process {
    fn start(target: &Target, groups: &Groups, identity: &str) -> Self {
        let group = builder(target, identity).shard_by(ShardKey::Uid).build().unwrap();
        let options = InformerOptions::default().namespace(target.namespace.clone());
        let factory = SharedInformerFactory::with_options(target.again().client, options).sharded(&group);
        let maps = factory.informer::<ConfigMap>();
        let received = Arc::new(Mutex::new(Received::default()));
        let taken = Arc::clone(&received);
        let registration = maps.handler().with_releases();
        let registration = registration.on_event(move |delivery| taken.lock().unwrap().take(&delivery));
        factory.start();
        let member = groups.run(group);
        Self { member, maps, factory, received, _registration: registration }
    }

    fn received(&self) -> MutexGuard<'_, Received> {
        self.received.lock().unwrap()
    }

    /// Returns the names of the cached objects, each of which must be in the ranges of the process.
    fn cached(&self) -> BTreeSet<String> {
        let cached = self.maps.lister().list();
        cached.iter().filter(|map| self.member.group.owns(map)).map(|map| map.name().to_owned()).collect()
    }
}

/// Waits until the processes have divided the ranges.
async fn wait_for_processes(processes: &[Process]) {
    let members: Vec<&Member> = processes.iter().map(|process| &process.member).collect();
    wait_for_division(&members).await;
}

/// Waits until each object on the server is in the cache of one process, which has delivered it, and no other object is.
async fn wait_for_objects(target: &Target, processes: &[Process]) {
    until("each object is in one cache", async || {
        let mut expected: BTreeSet<String> = names(target).await;
        let is_divided = processes.iter().all(|process| {
            let cached = process.cached();
            let is_delivered = process.received().known.keys().eq(&cached);
            let is_complete = process.maps.lister().list().len() == cached.len();
            is_delivered && is_complete && cached.iter().all(|name| expected.remove(name))
        });
        is_divided && expected.is_empty()
    })
    .await;
    for process in processes {
        assert_eq!(process.received().faults, Vec::<String>::new());
    }
}

/// Returns the names of all config maps, of which one is the assignment.
async fn names(target: &Target) -> BTreeSet<String> {
    target.list::<ConfigMap>().await.into_iter().filter_map(|map| map.metadata.name).collect()
}

/// Fails unless the server filters: without that, two of three frames contain an object of another process. While ranges
/// move, a few may arrive by a watch that is about to be replaced.
fn check_foreign_objects(processes: &[Process]) {
    for process in processes {
        let counters = process.maps.status().reflector;
        assert!(counters.frames > 0 && counters.foreign * 20 <= counters.frames, "{counters:?}");
    }
}

async fn each_range_has_one_holder(target: &Target) {
    let groups = Groups::default();
    let members = join(target, &groups, &["one", "two", "three"]).await;
    assert!((groups.check().share() - 1.0).abs() < 1e-9);
    // Only ranges above the new number have moved.
    assert_eq!(members.iter().map(|member| member.status().gained).collect::<Vec<_>>(), [256, 128, 85]);
    let stored = describe(target.client.clone(), &target.namespace, "shop").await.unwrap();
    assert_eq!((stored.members.len(), stored.ranges.len()), (3, 256));
    for range in &stored.ranges {
        assert!(range.owner.is_some() && range.owner == range.claimed_by && !range.is_releasing, "{range:?}");
    }
    let coordinator = members.iter().find(|member| member.status().is_coordinator).unwrap();
    // With a suffix of the process.
    let expected = format!("{}_", coordinator.group.identity());
    assert!(stored.coordinator.is_some_and(|stored| stored.starts_with(&expected)));
    for member in members {
        member.stop().await;
    }
    let stored = describe(target.client.clone(), &target.namespace, "shop").await.unwrap();
    assert_eq!(stored.members, [], "each member has deleted its Lease");
}

/// Changes all objects in turn until stopped; returns the last value.
async fn change(target: Target, names: Vec<String>, stopped: Arc<AtomicBool>) -> String {
    let mut step = 0_u64;
    while !stopped.load(Ordering::Relaxed) {
        step += 1;
        for name in &names {
            target.merge(&format!("$ns/configmaps/{name}"), &value(&step.to_string())).await;
        }
    }
    step.to_string()
}

/// Objects move under writes, to the other members and to a new one; no move is delivered as a deletion.
async fn leaving_member_releases_its_objects_to_the_others(target: &Target) {
    let maps: Vec<String> = (0..60).map(|number| format!("map-{number}")).collect();
    for name in &maps {
        target.post("$ns/configmaps", &map(name, "0")).await;
    }
    let groups = Groups::default();
    let mut processes: Vec<Process> =
        ["one", "two", "three"].map(|identity| Process::start(target, &groups, identity)).into();
    wait_for_processes(&processes).await;
    wait_for_objects(target, &processes).await;
    let stopped = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn(change(target.again(), maps.clone(), Arc::clone(&stopped)));
    let leaving = processes.remove(0);
    let released: BTreeSet<String> = leaving.received().known.keys().cloned().collect();
    assert!(!released.is_empty());
    for process in &processes {
        process.received().added.clear();
    }
    leaving.member.stop().await;
    wait_for_objects(target, &processes).await;
    let received = || leaving.received.lock().unwrap();
    until("the leaving process has delivered the releases", async || received().known.is_empty()).await;
    let gained: BTreeSet<String> =
        processes.iter().flat_map(|process| process.received().added.clone()).collect();
    assert_eq!(gained, released, "exactly the objects of the leaving process have moved");
    assert_eq!(leaving.maps.lister().list().len(), 0);
    let Received { released: delivered, deleted, .. } = std::mem::take(&mut *received());
    assert_eq!((delivered, deleted), (released, BTreeSet::new()));

    // A process that joins takes objects of the others.
    processes.push(Process::start(target, &groups, "four"));
    wait_for_processes(&processes).await;
    wait_for_objects(target, &processes).await;
    stopped.store(true, Ordering::Relaxed);
    let last = writer.await.unwrap();
    until("the last value is delivered", async || {
        let is_last = |process: &Process| {
            let received = process.received();
            received.known.iter().all(|(name, value)| !name.starts_with("map-") || *value == last)
        };
        processes.iter().all(is_last)
    })
    .await;
    wait_for_objects(target, &processes).await;
    for process in &processes {
        assert_eq!(process.received().deleted, BTreeSet::new());
    }
    // A real deletion is delivered once.
    for name in &maps[..20] {
        target.delete(&format!("$ns/configmaps/{name}")).await;
    }
    wait_for_objects(target, &processes).await;
    let deleted: Vec<String> =
        processes.iter().flat_map(|process| process.received().deleted.clone()).collect();
    assert_eq!(deleted.len(), 20, "{deleted:?}");
    check_foreign_objects(&processes);
    for process in processes {
        process.member.stop().await;
        process.factory.shutdown(TIMEOUT).await.unwrap();
    }
}

/// Starts three processes with objects and kills one of them. Returns the time until the others act for its ranges.
async fn time_after_kill(target: &Target, is_coordinator: bool) -> Duration {
    for number in 0..30 {
        target.post("$ns/configmaps", &map(&format!("map-{number}"), "0")).await;
    }
    let groups = Groups::default();
    let mut processes: Vec<Process> =
        ["one", "two", "three"].map(|identity| Process::start(target, &groups, identity)).into();
    wait_for_processes(&processes).await;
    wait_for_objects(target, &processes).await;
    let killed = processes
        .iter()
        .position(|process| process.member.group.status().is_coordinator == is_coordinator)
        .unwrap();
    let killed = processes.remove(killed);
    assert!(!killed.cached().is_empty());
    let group = killed.member.kill();
    let begun = tokio::time::Instant::now();
    wait_for_processes(&processes).await;
    let took = begun.elapsed();
    wait_for_objects(target, &processes).await;
    groups.check();
    assert!(!group.owns_hash(0) && !group.status().is_running);
    for process in &processes {
        assert_eq!(process.received().deleted, BTreeSet::new());
        assert_eq!(process.member.group.status().lost, 0);
    }
    took
}

async fn ranges_of_killed_member_move_within_the_bound(target: &Target) {
    let took = time_after_kill(target, false).await;
    assert!(took < MAX_TAKEOVER, "{took:?}");
}

async fn ranges_of_killed_coordinator_move_within_the_bound(target: &Target) {
    let took = time_after_kill(target, true).await;
    assert!(took < MAX_COORDINATOR_TAKEOVER, "{took:?}");
}

/// kube-apiserver refuses an update with the uid of a Lease that was deleted, so that the member notices.
async fn member_whose_lease_was_deleted_joins_again(target: &Target) {
    let groups = Groups::default();
    // Alone: another member may act before this one notices, which is documented.
    let one = groups.run(builder(target, "one").build().unwrap());
    one.wait_for_ranges(256).await;
    let path = format!("{LEASES}/shop-one");
    let uid = async || target.request("GET", &path, None).await.unwrap()["metadata"]["uid"].clone();
    let deleted = uid().await;
    target.delete(&path).await;
    one.wait_until(|one| one.ranges() == 256 && one.status().gained == 512).await;
    assert_ne!(uid().await, deleted);
    assert_eq!(one.status().lost + one.status().released, 256);
    one.stop().await;
}

async fn membership_needs_only_its_required_access(target: &Target) {
    let client = target.client_of(&account(target).await);
    let groups = Groups::default();
    let build = |client| ShardGroup::builder(client, &target.namespace, "shop");
    let group = build(client).identity("limited").build().unwrap();
    for manifest in group.required_access().manifests("limited", &target.namespace) {
        let plural = format!("{}s", manifest["kind"].as_str().unwrap().to_lowercase());
        target.post(&format!("{RBAC}/namespaces/$name/{plural}"), &manifest).await;
    }
    let limited = groups.run(group);
    limited.wait_for_ranges(256).await;
    let other = groups.run(builder(target, "other").build().unwrap());
    wait_for_division(&[&limited, &other]).await;
    // As coordinator, it divides the ranges of one that leaves.
    other.stop().await;
    limited.wait_for_ranges(256).await;
    let status = limited.status();
    assert!(status.is_coordinator && status.last_error.is_none(), "{status:?}");
}
