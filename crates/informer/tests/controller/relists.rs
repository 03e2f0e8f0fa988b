//! What a controller reconciles after a relist (P1).

use super::{Running, event_log};
use crate::cluster::{advance_time, create_pods, gap_with_changes, names, until};
use informer::controller::{Controller, Outcome};
use informer::source::WatchListPolicy;
use informer::{InformerOptions, SharedInformerFactory};
use informer_apiserver::{ApiServer, Verb, faults};
use k8s_openapi::api::core::v1::Pod;
use std::convert::Infallible;
use std::time::Duration;

/// A relist after a gap, stalled half-way by `fault`. The reconciles log the state that they read from the
/// cache.
async fn reconciles_after_relist(options: InformerOptions, fault: fn() -> faults::FaultRule) {
    let server = ApiServer::new();
    create_pods(&server, &["a", "b", "c", "gone"]);
    let factory = SharedInformerFactory::new(server.client());
    factory.configure::<Pod>(options).unwrap();
    let (sender, mut reconciles) = event_log();
    let lister = factory.informer::<Pod>().lister();
    let reader = lister.clone();
    let running = Running::start(Controller::new::<Pod>(&factory).reconcile(move |key, _| {
        let node = match reader.get_by_key(&key) {
            None => "not found".to_owned(),
            Some(pod) => pod.field("spec.nodeName").unwrap_or_else(|| "no node".to_owned()),
        };
        let _ = sender.send(format!("{}: {node}", key.name()));
        std::future::ready(Ok::<_, Infallible>(Outcome::Done))
    }));
    reconciles.expect(&["a: no node", "b: no node", "c: no node", "gone: no node"]).await;

    let halfway = server.inject(fault());
    gap_with_changes(&server).await;
    until(|| halfway.hits() == 1).await;
    advance_time(Duration::from_secs(1)).await;
    assert!(reconciles.is_empty(), "a reconcile started before the list was complete");
    assert_eq!(names(&lister.list()), ["a", "b", "c", "gone"]);

    drop(halfway);
    advance_time(Duration::from_secs(30)).await;
    let mut after = reconciles.take();
    after.sort();
    assert_eq!(after, ["a: node-1", "gone: not found", "zoe: no node"]);
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn p1_c4_reconciles_after_a_paged_relist_read_the_new_state() {
    // A relist in two pages triggered reconciles after the first page, while the store contained the old
    // list: the changed object was reconciled in its old state, the new one was not found, and neither was
    // reconciled again.
    let options = InformerOptions::default().watch_list(WatchListPolicy::Never).page_size(2);
    reconciles_after_relist(options, || faults::stall_request().for_verb(Verb::List).page(2)).await;
}

#[tokio::test(start_paused = true)]
async fn p1_c4_reconciles_after_a_streaming_relist_read_the_new_state() {
    // The same bug in streaming mode, where initial events arrive one by one.
    reconciles_after_relist(InformerOptions::default(), || faults::stall_watch().after_frames(2)).await;
}
