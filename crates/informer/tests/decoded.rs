//! Retention of decoded objects: decoded when they arrive, or kept while they are used.
#![allow(clippy::unwrap_used)]

use crate::cluster::{TIMEOUT, advance_time, config_map, create_pods, pod, synced_informer, until, with};
use informer::cache::Retention;
use informer::controller::{Controller, Outcome};
use informer::{Event, InformerOptions, SharedInformerFactory};
use informer_apiserver::ApiServer;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn decoded() -> InformerOptions {
    InformerOptions::default().retention(Retention::Decoded)
}

/// > C4: When a handler runs, the cache already contains that change or a newer one.
///
/// With `Retention::Decoded` that includes the decoded object.
#[tokio::test(start_paused = true)]
async fn c4_handlers_borrow_decoded_objects() {
    for protobuf in [false, true] {
        let server = ApiServer::new();
        create_pods(&server, &["a", "b"]);
        let pods = synced_informer::<Pod>(&server, decoded().prefer_protobuf(protobuf)).await;
        assert_eq!(pods.metrics().decoded.values, 2, "decoded before anyone reads them");
        let log = Arc::new(Mutex::new(Vec::new()));
        let nodes = Arc::clone(&log);
        let _registration = pods.on_event(move |event: Event<Pod>| {
            let node = |pod: &Pod| pod.spec.as_ref().unwrap().node_name.clone().unwrap_or_default();
            nodes.lock().unwrap().push(node(event.object().typed_ref().unwrap()));
        });
        until(|| log.lock().unwrap().len() == 2).await;
        server.insert_unchecked(&with(pod("default", "a"), "/spec/nodeName", "node-1")).unwrap();
        until(|| log.lock().unwrap().len() == 3).await;
        assert_eq!(*log.lock().unwrap(), ["", "", "node-1"], "protobuf: {protobuf}");
        let metrics = pods.metrics().decoded;
        assert_eq!((metrics.values, metrics.evictions), (2, 0));
        let snapshot = pods.snapshot();
        let bytes: usize = snapshot.iter().map(|pod| pod.raw_bytes().len()).sum();
        assert_eq!(metrics.encoded_bytes, bytes);
    }
}

#[tokio::test(start_paused = true)]
async fn only_typed_informer_handles_decode_ahead() {
    let server = ApiServer::new();
    let factory = SharedInformerFactory::with_options(server.client(), decoded());
    let lister = factory.lister::<Pod>();
    let resource = kube::core::ApiResource::erase::<Pod>(&());
    let dynamic = factory.dynamic_informer(&resource);
    factory.start();
    factory.wait_for_sync(TIMEOUT).await.unwrap();
    create_pods(&server, &["a"]);
    until(|| lister.len() == 1).await;
    assert_eq!(dynamic.metrics().decoded.values, 0, "a lister and a dynamic informer decode nothing ahead");
    let pods = factory.informer::<Pod>();
    create_pods(&server, &["b"]);
    until(|| lister.len() == 2).await;
    assert_eq!(dynamic.metrics().decoded.values, 1);
    drop(pods);
    create_pods(&server, &["c"]);
    until(|| lister.len() == 3).await;
    assert_eq!(dynamic.metrics().decoded.values, 1, "the handle was dropped");
    assert_eq!(lister.snapshot().iter().filter_map(|pod| pod.typed_ref()).count(), 3);
    assert_eq!(dynamic.metrics().decoded.values, 3, "decoded on their first read, and kept");
}

/// Bug: a kind that a controller only reads was decoded on the first read by a reconcile. Its source kept the
/// informer running, but not the handle that has objects decoded when they arrive. Other sources keep it in the
/// closure that maps events to keys, and only those were considered.
#[tokio::test(start_paused = true)]
async fn kinds_that_a_controller_reads_are_decoded_ahead() {
    let server = ApiServer::new();
    let factory = SharedInformerFactory::with_options(server.client(), decoded());
    let controller = Controller::new::<Pod>(&factory).reads::<ConfigMap>();
    let controller = controller.reconcile(|_key, _ctx| async { Ok::<_, informer::Error>(Outcome::Done) });
    factory.start();
    factory.wait_for_sync(TIMEOUT).await.unwrap();
    let maps = factory.dynamic_informer(&kube::core::ApiResource::erase::<ConfigMap>(&()));
    server.create(&config_map("default", "a", "1")).unwrap();
    until(|| maps.snapshot().len() == 1).await;
    assert_eq!(maps.metrics().decoded.values, 1);
    drop(controller);
    server.create(&config_map("default", "b", "1")).unwrap();
    until(|| maps.snapshot().len() == 2).await;
    assert_eq!(maps.metrics().decoded.values, 1, "the controller was dropped");
}

#[tokio::test(start_paused = true)]
async fn bounded_retention_keeps_what_is_used() {
    let server = ApiServer::new();
    let names: Vec<String> = (0..400).map(|number| format!("pod-{number:03}")).collect();
    create_pods(&server, &names.iter().map(String::as_str).collect::<Vec<_>>());
    let bytes = synced_informer::<Pod>(&server, InformerOptions::default()).await.snapshot();
    let bytes: usize = bytes.iter().map(|pod| pod.raw_bytes().len()).sum();
    let limit = bytes / 4;
    let options =
        InformerOptions::default().retention(Retention::RecentlyDecoded { max_encoded_bytes: limit });
    let pods = synced_informer::<Pod>(&server, options).await;
    let decoded = || pods.metrics().decoded;
    assert_eq!(decoded().values, 0, "nothing is decoded ahead");
    for name in &names[..80] {
        pods.snapshot().get(&informer::Key::new("default", name)).unwrap().typed().unwrap();
    }
    assert_eq!((decoded().values, decoded().evictions), (80, 0));

    // One pod is read again and again while all others are read once: it stays.
    let hot = informer::Key::new("default", "pod-007");
    for name in &names {
        pods.snapshot().get(&informer::Key::new("default", name)).unwrap().typed().unwrap();
        assert!(pods.snapshot().get(&hot).unwrap().typed_ref().is_some(), "evicted at {name}");
        assert!(decoded().encoded_bytes <= limit, "{:?}", decoded());
        advance_time(Duration::from_millis(50)).await;
    }
    assert!(decoded().evictions > 100, "{:?}", decoded());
    assert!(pods.metrics().updated == 0 && pods.snapshot().len() == 400, "an eviction is no change");
}
