//! The delta FIFO.

use super::{advance_time, object, texts};
use informer::cache::{Delta, DeltaFifo, QueueClosed, Store};
use informer::{Key, Object, ResourceVersion};
use k8s_openapi::api::core::v1::ConfigMap;
use std::time::Duration;

fn list(objects: Vec<Object<ConfigMap>>) -> Delta<ConfigMap> {
    Delta::replaced(objects, ResourceVersion::new("5"))
}

/// C1: every delta is popped, in arrival order; a list is popped alone.
#[tokio::test]
async fn c1_deltas_are_popped_in_order_and_not_merged() {
    let fifo = DeltaFifo::new();
    fifo.push([list(vec![object("a/x u1 1 red")]), Delta::Updated(object("a/x u1 6 red"))]).await.unwrap();
    fifo.push([Delta::Updated(object("a/x u1 7 red")), Delta::deleted(object("a/x u1 8 red"))])
        .await
        .unwrap();
    fifo.push([Delta::deleted(object("a/unknown u1 9 red")), list(Vec::new())]).await.unwrap();
    fifo.close();
    assert_eq!(fifo.push([Delta::Added(object("a/y u1 9 red"))]).await, Err(QueueClosed));
    assert_eq!(fifo.len(), 6, "queued deltas stay");
    let mut popped = Vec::new();
    while let Some(deltas) = fifo.pop(3).await {
        popped.push(deltas.map(|delta| format!("{delta:?}")).collect::<Vec<_>>().join(" "));
    }
    let expected = [
        "Replaced(1 objects in all namespaces, v5)",
        "Updated(a/x@6) Updated(a/x@7) Deleted(a/x, v8)",
        "Deleted(a/unknown, v9)",
        "Replaced(0 objects in all namespaces, v5)",
    ];
    assert_eq!(popped, expected);
}

/// C7: the queue is synced when its first list has been processed, not when it was popped.
#[tokio::test]
async fn c7_queue_is_synced_when_the_first_list_was_processed() {
    let (fifo, store) = (DeltaFifo::new(), Store::new());
    fifo.push([list(vec![object("a/x u1 1 red")]), Delta::Added(object("a/y u2 6 red"))]).await.unwrap();
    let deltas = fifo.pop(10).await.unwrap();
    assert!(deltas.is_initial() && !fifo.has_synced());
    assert_eq!(texts(&store.apply(deltas)), ["+ a/x@1 initial"]);
    assert!(fifo.has_synced());
    let deltas = fifo.pop(10).await.unwrap();
    assert!(!deltas.is_initial() && fifo.is_empty());
    assert_eq!(texts(&store.apply(deltas)), ["+ a/y@6"]);
}

/// C8: a full queue makes the producer wait, and loses nothing.
#[tokio::test(start_paused = true)]
async fn c8_push_waits_while_the_queue_is_full() {
    let fifo = DeltaFifo::with_capacity(4, 1 << 20);
    let producer = tokio::spawn({
        let fifo = fifo.clone();
        async move {
            for version in 1..=20 {
                fifo.push([Delta::Updated(object(&format!("a/x u1 {version} red")))]).await.unwrap();
            }
            fifo.close();
        }
    });
    let mut versions = Vec::new();
    loop {
        // The producer runs until it has to wait.
        advance_time(Duration::from_secs(1)).await;
        assert!(fifo.len() <= 4);
        let Some(deltas) = fifo.pop(1).await else { break };
        versions.extend(deltas.map(|delta| delta.objects()[0].resource_version().to_string()));
    }
    producer.await.unwrap();
    assert!(versions.iter().map(|version| version.parse::<u64>().unwrap()).eq(1..=20));
}

#[test]
fn delta_of_a_deletion_has_the_key_and_version_of_its_object() {
    let delta = Delta::deleted(object("a/x u1 8 red"));
    assert_eq!(delta.key(), Some(&Key::new("a", "x")));
    assert!(matches!(delta, Delta::Deleted { version: Some(version), .. } if version.as_str() == "8"));
}
