//! A thousand informers are created and dropped without leaks.
//!
//! In its own file because it counts all memory of the process.
#![allow(clippy::unwrap_used)]

#[path = "common/cluster.rs"]
mod cluster;

use cluster::{TIMEOUT, pod, until};
use informer::{Event, Index, SharedInformerFactory};
use informer_apiserver::ApiServer;
use k8s_openapi::api::core::v1::Pod;
use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// One informer from start to end: synced, with an index, a handler, a stream and a lister, then dropped.
async fn run_one_informer(server: &ApiServer, factory: &SharedInformerFactory, round: usize) {
    let pods = factory.informer::<Pod>();
    let by_node = pods.add_index(Index::field("spec.nodeName")).unwrap();
    let registration = pods.on_event(drop);
    let mut events = pods.event_stream();
    let lister = pods.lister();
    pods.wait_for_sync(TIMEOUT).await.unwrap();
    assert!(registration.wait_for_sync().await);
    assert!(matches!(events.next().await, Some(Event::Added { initial: true, .. })));
    assert_eq!(lister.by_index(&by_node, "node-1").len(), 0);
    match round % 3 {
        0 => registration.remove().await,
        1 => drop(registration),
        _ => pods.shutdown(TIMEOUT).await.unwrap(),
    }
    drop((pods, events, lister));
    until(|| server.open_watches() == 0).await;
}

#[tokio::test]
async fn thousand_informers_leak_no_task_connection_or_memory() {
    let server = ApiServer::new();
    for number in 0..20 {
        server.create(&pod("default", &format!("pod-{number}"))).unwrap();
    }
    let factory = SharedInformerFactory::new(server.client());
    factory.start();
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    // Buffers, thread-locals and the server's request log are allocated once and are no leak.
    for round in 0..300 {
        run_one_informer(&server, &factory, round).await;
    }
    let (tasks_before, memory_before) = (tasks(), MEMORY.current_usage());
    for round in 0..1000 {
        run_one_informer(&server, &factory, round).await;
    }
    until(|| tasks() <= tasks_before).await;
    let grown = MEMORY.current_usage().saturating_sub(memory_before);
    // The server records each request with about 400 bytes. A leaked informer, listener or task would need
    // more.
    assert!(grown < 600 * 1000, "{grown} bytes more after a thousand informers");
    assert_eq!(server.open_watches(), 0);
}
