//! Concurrent writers.

use std::collections::BTreeSet;

use futures::future::join_all;
use serde_json::json;

use crate::runner::statements;
use crate::targets::{Target, name, number, thing, value, version};

statements![
    writers_that_retry_conflicts_lose_no_update,
    of_concurrent_creates_of_one_name_one_succeeds,
    of_concurrent_updates_at_one_version_one_succeeds,
    concurrent_patches_all_succeed,
    concurrently_generated_names_differ,
    concurrent_watchers_receive_the_same_frames,
    a_watch_sends_every_write_once_and_in_order,
    concurrent_applies_each_keep_their_field,
];

const WRITERS: usize = 20;

async fn writers_that_retry_conflicts_lose_no_update(target: &Target) {
    let made = target.make("count", "0").await;
    let writers = (0..WRITERS).map(async |_| {
        loop {
            let mut object = target.get("$things/count").await.expect(200).body;
            let next = value(&object).parse::<usize>().unwrap() + 1;
            object["metadata"]["annotations"]["value"] = next.to_string().into();
            let response = target.put("$things/count", &object).await;
            if response.code == 200 {
                return;
            }
            assert_eq!(response.expect(409).body["reason"], "Conflict");
        }
    });
    join_all(writers).await;
    assert_eq!(value(&target.get("$things/count").await.body), WRITERS.to_string());
    let mut watch = target.watch(&format!("$things?watch=1&resourceVersion={}", version(&made))).await;
    let mut last = number(&made);
    for count in 1..=WRITERS {
        let frames = watch.object("MODIFIED").await;
        assert_eq!(value(&frames), count.to_string());
        assert!(number(&frames) > last);
        last = number(&frames);
    }
}

async fn of_concurrent_creates_of_one_name_one_succeeds(target: &Target) {
    let responses =
        join_all((0..WRITERS).map(async |_| target.post("$things", &thing("a", "1")).await.code)).await;
    assert_eq!(responses.iter().filter(|code| **code == 201).count(), 1);
    assert_eq!(responses.iter().filter(|code| **code == 409).count(), WRITERS - 1);
}

async fn of_concurrent_updates_at_one_version_one_succeeds(target: &Target) {
    let made = target.make("a", "0").await;
    let responses = join_all((1..=WRITERS).map(async |writer| {
        let mut object = made.clone();
        object["metadata"]["annotations"]["value"] = writer.to_string().into();
        target.put("$things/a", &object).await.code
    }));
    let responses = responses.await;
    assert_eq!(responses.iter().filter(|code| **code == 200).count(), 1);
    assert_eq!(responses.iter().filter(|code| **code == 409).count(), WRITERS - 1);
}

async fn concurrent_patches_all_succeed(target: &Target) {
    target.make("a", "0").await;
    // kube-apiserver retries each patch five times, so there must not be more.
    join_all((0..5).map(async |writer| {
        let patch = json!({"metadata": {"annotations": {format!("writer-{writer}"): "was here"}}});
        target.merge("$things/a", &patch).await.expect(200);
    }))
    .await;
    let object = target.get("$things/a").await.expect(200).body;
    assert_eq!(object["metadata"]["annotations"].as_object().unwrap().len(), 6);
}

async fn concurrently_generated_names_differ(target: &Target) {
    let made = join_all((0..WRITERS).map(async |_| {
        target.post("$things", &json!({"metadata": {"generateName": "made-"}})).await.expect(201).body
    }));
    let made = made.await;
    assert_eq!(made.iter().map(name).collect::<BTreeSet<_>>().len(), WRITERS);
}

async fn concurrent_watchers_receive_the_same_frames(target: &Target) {
    let then = target.version().await;
    let path = format!("$things?watch=1&resourceVersion={then}");
    let mut watches = join_all((0..5).map(async |_| target.watch(&path).await)).await;
    join_all((0..10).map(async |writer| target.make(&format!("t{writer}"), "1").await)).await;
    let mut all = Vec::new();
    for watch in &mut watches {
        let mut frames = Vec::new();
        for _ in 0..10 {
            frames.push(watch.object("ADDED").await);
        }
        all.push(frames);
    }
    assert!(all.iter().all(|frames| *frames == all[0]));
}

async fn a_watch_sends_every_write_once_and_in_order(target: &Target) {
    let mut watch = target.watch("$things?watch=1").await;
    let written = join_all((0..WRITERS).map(async |writer| {
        let name = format!("t{writer}");
        let made = number(&target.make(&name, "1").await);
        let changed = number(&target.set(&name, "2").await);
        target.unmake(&name).await;
        [made, changed]
    }));
    let (written, mut last, mut frames) = (written.await, 0, BTreeSet::new());
    for _ in 0..3 * WRITERS {
        let frame = watch.next().await.unwrap();
        let version = number(&frame["object"]);
        assert!(version > last, "{version} after {last}");
        last = version;
        if frame["type"] != "DELETED" {
            frames.insert(version);
        }
    }
    assert_eq!(frames, written.into_iter().flatten().collect());
}

async fn concurrent_applies_each_keep_their_field(target: &Target) {
    let settings =
        |data| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "s"}, "data": data});
    target.post("$ns/configmaps", &settings(json!({"first": "1"}))).await.expect(201);
    join_all((0..5).map(async |writer| {
        let path = format!("$ns/configmaps/s?fieldManager=writer-{writer}");
        let own = json!({format!("key-{writer}"): "1"});
        target.apply(&path, &settings(own)).await.expect(200);
    }))
    .await;
    let stored = target.get("$ns/configmaps/s").await.expect(200).body;
    assert_eq!(stored["data"].as_object().unwrap().len(), 6);
    assert_eq!(stored["metadata"]["managedFields"].as_array().unwrap().len(), 6);
}
