//! Informers come and go, a thousand times over: nothing of them stays behind.
//!
//! In a file of its own, since it counts all memory of the process.
#![allow(clippy::unwrap_used)]

#[path = "common/cluster.rs"]
mod cluster;

use cluster::{LONG, pod, until};
use informer::{Event, Index, SharedInformerFactory};
use informer_apiserver::ApiServer;
use k8s_openapi::api::core::v1::Pod;
use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// The life of one informer: started, synced, with an index, a handler, a stream and a lister, then dropped.
async fn one_life(server: &ApiServer, factory: &SharedInformerFactory, round: usize) {
    let pods = factory.informer::<Pod>();
    let by_node = pods.add_index(Index::field("spec.nodeName")).unwrap();
    let on = pods.on(drop);
    let mut events = pods.events();
    let lister = pods.lister();
    pods.wait_for_sync(LONG).await.unwrap();
    assert!(on.synced().await);
    assert!(matches!(events.next().await, Some(Event::Added { initial: true, .. })));
    assert_eq!(lister.by(&by_node, "node-1").len(), 0);
    match round % 3 {
        0 => on.remove().await,
        1 => drop(on),
        _ => pods.shutdown(LONG).await.unwrap(),
    }
    drop((pods, events, lister));
    until(|| server.open_watches() == 0).await;
}

#[tokio::test]
async fn a_thousand_informers_leave_no_task_connection_or_memory_behind() {
    let server = ApiServer::new();
    for number in 0..20 {
        server.create(&pod("default", &format!("pod-{number}"))).unwrap();
    }
    let factory = SharedInformerFactory::new(server.client());
    factory.start();
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    // Buffers, thread-locals, the request log of the server: what is there once is no leak.
    for round in 0..300 {
        one_life(&server, &factory, round).await;
    }
    let (tasks_before, memory_before) = (tasks(), MEMORY.current_usage());
    for round in 0..1000 {
        one_life(&server, &factory, round).await;
    }
    until(|| tasks() <= tasks_before).await;
    let grown = MEMORY.current_usage().saturating_sub(memory_before);
    // The server's log remembers each request, with about 400 bytes. An informer, a listener or a task that stayed would be more than that.
    assert!(grown < 600 * 1000, "{grown} bytes more after a thousand informers");
    assert_eq!(server.open_watches(), 0);
}
