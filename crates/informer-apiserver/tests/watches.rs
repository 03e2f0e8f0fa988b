//! Watches: start, frames and end; and definitions created, changed and deleted during a watch.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::time::Duration;

use crate::common::{Watch, configmap, definition, raw, server, widget, with_timeout};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{WatchEvent, WatchParams};
use serde_json::json;

const MAPS: &str = "/api/v1/namespaces/default/configmaps?watch=1";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const WATCH_LIST: &str = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

#[tokio::test(start_paused = true)]
async fn watch_sends_changes_after_its_version() {
    with_timeout(async {
        let server = server();
        server.create(&configmap("a", "1")).unwrap();
        let from = server.resource_version();
        let mut watch = Watch::open(&server, &format!("{MAPS}&resourceVersion={from}")).await;
        server.create(&configmap("b", "1")).unwrap();
        server.update(&configmap("a", "2")).unwrap();
        server.update(&configmap("a", "2")).unwrap();
        server.delete("v1", "configmaps", Some("default"), "a").unwrap();
        let expected = [
            format!("ADDED b {}", from + 1),
            format!("MODIFIED a {}", from + 2),
            format!("DELETED a {}", from + 3),
        ];
        assert_eq!(watch.next_summaries(3).await, expected);
        assert_eq!(server.resource_version(), from + 3, "an update without changes must not take a version");
        assert!(watch.is_silent(50).await);
        assert_eq!(server.open_watches(), 1);
        drop(watch);
        assert_eq!(server.open_watches(), 0);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_kube_client_can_watch() {
    with_timeout(async {
        let server = server();
        let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
        let stream = maps.watch(&WatchParams::default().disable_bookmarks(), "0").await.unwrap();
        tokio::pin!(stream);
        server.create(&configmap("a", "1")).unwrap();
        let started = tokio::time::Instant::now();
        match stream.try_next().await.unwrap() {
            Some(WatchEvent::Added(map)) => assert_eq!(map.metadata.name.as_deref(), Some("a")),
            other => panic!("{other:?}"),
        }
        assert_eq!(started.elapsed().as_secs(), 0, "the frame must be sent immediately");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn watch_list_ends_with_bookmark_then_sends_changes() {
    with_timeout(async {
        let server = server();
        for name in ["c", "a", "b"] {
            server.create(&configmap(name, "1")).unwrap();
        }
        let version = server.resource_version();
        let mut watch = Watch::open(&server, &format!("{MAPS}&{WATCH_LIST}")).await;
        server.create(&configmap("d", "1")).unwrap();
        let expected = [
            format!("ADDED a {}", version - 1),
            format!("ADDED b {version}"),
            format!("ADDED c {}", version - 2),
            format!("BOOKMARK - {version} end"),
            format!("ADDED d {}", version + 1),
        ];
        assert_eq!(watch.next_summaries(5).await, expected);
    })
    .await;
}

/// Regression: every object was decoded from JSON and encoded again for each protobuf watcher, and converted again
/// for each watcher of `events.k8s.io`.
#[tokio::test(start_paused = true)]
async fn objects_are_encoded_once_for_all_watchers() {
    with_timeout(async {
        const WATCHERS: usize = 7;
        let server = server();
        let from = server.resource_version();
        let path = |plural: &str| format!("{plural}?watch=1&resourceVersion={from}");
        let (mut json, mut protobuf, mut metadata) = (Vec::new(), Vec::new(), Vec::new());
        let partial = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        for _ in 0..WATCHERS {
            json.push(Watch::open(&server, &path("/api/v1/configmaps")).await);
            protobuf.push(Watch::open_as(&server, &path("/api/v1/configmaps"), PROTOBUF).await);
            metadata.push(Watch::open_as(&server, &path("/api/v1/configmaps"), partial).await);
        }
        let before = server.encoding_counters();
        server.create(&configmap("a", "1")).unwrap();
        server.update(&configmap("a", "2")).unwrap();
        server.update(&configmap("a", "3")).unwrap();
        server.delete("v1", "configmaps", Some("default"), "a").unwrap();
        for watch in &mut json {
            assert_eq!(watch.next_summaries(4).await[3], format!("DELETED a {}", from + 4));
        }
        for watch in protobuf.iter_mut().chain(&mut metadata) {
            for (kind, version) in ["ADDED", "MODIFIED", "MODIFIED", "DELETED"].iter().zip(from + 1..) {
                let frame = watch.next_protobuf().await.unwrap();
                assert!(frame[2..].starts_with(kind.as_bytes()), "{kind}");
                let version = version.to_string();
                assert!(frame.windows(version.len()).any(|part| part == version.as_bytes()), "{version}");
            }
        }
        let after = server.encoding_counters();
        // A deletion needs no new JSON: it is the last state with another version.
        assert_eq!(after.json - before.json, 3);
        assert_eq!(after.protobuf - before.protobuf, 4 + 4, "once whole and once as metadata");
        assert_eq!(after.rows, before.rows);
    })
    .await;
}

/// Regression: see `objects_are_encoded_once_for_all_watchers`.
#[tokio::test(start_paused = true)]
async fn converted_objects_are_encoded_once_for_all_watchers() {
    with_timeout(async {
        let server = server();
        let from = server.resource_version();
        let path = format!("/apis/events.k8s.io/v1/events?watch=1&resourceVersion={from}");
        let (mut json, mut protobuf) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            json.push(Watch::open(&server, &path).await);
            protobuf.push(Watch::open_as(&server, &path, PROTOBUF).await);
        }
        let before = server.encoding_counters();
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "default"},
            "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}, "message": "hello",
        });
        server.create(&event).unwrap();
        server.delete("v1", "events", Some("default"), "e").unwrap();
        for watch in &mut json {
            for (kind, version) in ["ADDED", "DELETED"].iter().zip(from + 1..) {
                let crate::common::Got::Frame(frame) = watch.next().await else { panic!("no frame") };
                assert_eq!((&frame["type"], &frame["object"]["note"]), (&json!(kind), &json!("hello")));
                assert_eq!(frame["object"]["apiVersion"], "events.k8s.io/v1");
                assert_eq!(frame["object"]["metadata"]["resourceVersion"], version.to_string());
            }
        }
        for watch in &mut protobuf {
            assert!(watch.next_protobuf().await.is_some() && watch.next_protobuf().await.is_some());
        }
        let after = server.encoding_counters();
        assert_eq!((after.json - before.json, after.protobuf - before.protobuf), (2, 2));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn bookmarks_are_sent_every_minute_and_before_the_end() {
    with_timeout(async {
        let server = server();
        let from = server.resource_version();
        let path = format!("{MAPS}&resourceVersion={from}&allowWatchBookmarks=true&timeoutSeconds=75");
        let mut watch = Watch::open(&server, &path).await;
        server.create(&crate::common::pod("p")).unwrap();
        assert_eq!(watch.next_summary().await, format!("BOOKMARK - {}", from + 1));
        server.create(&crate::common::pod("q")).unwrap();
        assert_eq!(watch.next_summary().await, format!("BOOKMARK - {}", from + 2), "the final bookmark");
        assert_eq!(watch.next_summary().await, "end");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn too_old_version_is_an_error_frame_and_future_version_is_silent() {
    with_timeout(async {
        let server = server();
        let from = server.resource_version();
        server.create(&configmap("a", "1")).unwrap();
        server.compact();
        let now = server.resource_version();
        let mut old = Watch::open(&server, &format!("{MAPS}&resourceVersion={from}")).await;
        assert_eq!(old.next_summary().await, format!("ERROR 410 too old resource version: {from} ({now})"));
        assert_eq!(old.next_summary().await, "end");

        let path = format!("{MAPS}&resourceVersion={}&allowWatchBookmarks=true&timeoutSeconds=100", now + 2);
        let mut future = Watch::open(&server, &path).await;
        server.create(&configmap("b", "1")).unwrap();
        server.create(&configmap("c", "1")).unwrap();
        assert!(future.is_silent(59).await);
        server.create(&configmap("d", "1")).unwrap();
        assert_eq!(future.next_summary().await, format!("ADDED d {}", now + 3));

        let path = format!("{MAPS}&{WATCH_LIST}&resourceVersion={}", now + 100);
        let mut ahead = Watch::open(&server, &path).await;
        assert!(ahead.next_summary().await.starts_with("ERROR 504 Timeout: Too large resource version"));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn watcher_behind_history_receives_expired_error() {
    with_timeout(async {
        let server = informer_apiserver::ApiServer::builder().history_limit(3).build();
        let from = server.resource_version();
        let mut watch = Watch::open(&server, &format!("{MAPS}&resourceVersion={from}")).await;
        for number in 0..10 {
            server.create(&configmap(&format!("m-{number}"), "1")).unwrap();
        }
        assert_eq!(
            watch.next_summary().await,
            format!("ERROR 410 too old resource version: {from} ({})", from + 7)
        );
        assert_eq!(watch.next_summary().await, "end");
        assert_eq!(server.open_watches(), 0);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn selector_turns_updates_into_added_and_deleted() {
    with_timeout(async {
        let server = server();
        let labelled = |value: &str, on: &str| {
            let mut map = configmap("b", value);
            map["metadata"]["labels"] = json!({"on": on});
            map
        };
        server.create(&labelled("1", "no")).unwrap();
        let from = server.resource_version();
        let mut watch =
            Watch::open(&server, &format!("{MAPS}&labelSelector=on%3Dyes&resourceVersion={from}")).await;
        for (value, on) in [("1", "yes"), ("2", "yes"), ("3", "no"), ("4", "no")] {
            server.update(&labelled(value, on)).unwrap();
        }
        let expected = [format!("ADDED b {}", from + 1), format!("MODIFIED b {}", from + 2)];
        assert_eq!(watch.next_summaries(2).await, expected);
        // DELETED carries the last matching state with the version of the change.
        let crate::common::Got::Frame(left) = watch.next().await else { panic!("no frame") };
        assert_eq!(crate::common::summary(&left), format!("DELETED b {}", from + 3));
        assert_eq!(left["object"]["metadata"]["labels"]["on"], "yes");
        assert_eq!(left["object"]["data"]["k"], "2");
        assert!(watch.is_silent(10).await);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn deleted_pod_is_modified_then_deleted() {
    with_timeout(async {
        let server = server();
        server.create(&crate::common::pod("p")).unwrap();
        let from = server.resource_version();
        let path = format!("/api/v1/pods?watch=1&resourceVersion={from}");
        let mut watch = Watch::open(&server, &path).await;
        server.delete("v1", "pods", Some("default"), "p").unwrap();
        let crate::common::Got::Frame(terminating) = watch.next().await else { panic!("no frame") };
        assert_eq!(crate::common::summary(&terminating), format!("MODIFIED p {}", from + 1));
        assert_eq!(terminating["object"]["metadata"]["generation"], 2);
        assert_eq!(watch.next_summary().await, format!("DELETED p {}", from + 2));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn metadata_watch_sends_partial_objects() {
    with_timeout(async {
        let server = server();
        server.create(&configmap("a", "1")).unwrap();
        let accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        let mut watch = Watch::open_as(&server, &format!("{MAPS}&{WATCH_LIST}"), accept).await;
        for expected in ["ADDED", "BOOKMARK"] {
            let crate::common::Got::Frame(frame) = watch.next().await else { panic!("no frame") };
            assert_eq!(frame["type"], expected);
            assert_eq!(frame["object"]["kind"], "PartialObjectMetadata");
            assert!(frame["object"].get("data").is_none());
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn definition_is_served_from_create_to_delete() {
    with_timeout(async {
        let server = server();
        let path = "/apis/rec.example.com/v1/namespaces/default/widgets";
        assert_eq!(raw(&server, path).await, (404, json!("404 page not found\n")));
        server.create(&definition()).unwrap();
        let definitions = ("apiextensions.k8s.io/v1", "customresourcedefinitions");
        let defined = server.get(definitions.0, definitions.1, None, "widgets.rec.example.com").unwrap();
        assert_eq!(defined["status"]["conditions"][1]["type"], "Established");
        assert_eq!(defined["status"]["acceptedNames"]["listKind"], "WidgetList");
        let (code, empty) = raw(&server, path).await;
        assert_eq!((code, empty["kind"].as_str()), (200, Some("WidgetList")));

        server.create(&widget("one")).unwrap();
        let alpha = server.get("rec.example.com/v1alpha1", "widgets", Some("default"), "one").unwrap();
        assert_eq!(alpha["apiVersion"], "rec.example.com/v1alpha1");
        let (_, list) = raw(&server, "/apis/rec.example.com/v1alpha1/widgets").await;
        assert_eq!(list["items"][0]["apiVersion"], "rec.example.com/v1alpha1");

        let mut watch = Watch::open(&server, &format!("{path}?watch=1")).await;
        assert!(watch.next_summary().await.starts_with("ADDED one"));
        let mut changed = definition();
        changed["spec"]["names"]["shortNames"] = json!(["wd"]);
        server.create(&widget("two")).unwrap();
        server.update(&changed).unwrap();
        assert!(watch.next_summary().await.starts_with("ADDED two"), "changes before the end must be sent");
        assert_eq!(watch.next_summary().await, "end", "a change of the definition ends its watches");

        let mut watch = Watch::open(&server, &format!("{path}?watch=1")).await;
        watch.next_summaries(2).await;
        let name = "widgets.rec.example.com";
        server.delete("apiextensions.k8s.io/v1", "customresourcedefinitions", None, name).unwrap();
        let frames = watch.next_summaries(3).await;
        assert!(frames[0].starts_with("DELETED one") && frames[1].starts_with("DELETED two"), "{frames:?}");
        assert_eq!(frames[2], "end");
        assert_eq!(raw(&server, path).await, (404, json!("404 page not found\n")));
        assert!(server.get("apiextensions.k8s.io/v1", "customresourcedefinitions", None, name).is_none());

        server.create(&definition()).unwrap();
        assert_eq!(
            server.list("rec.example.com/v1", "widgets", None).len(),
            0,
            "the old objects must not reappear"
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn deleted_definition_waits_for_its_last_object() {
    with_timeout(async {
        let server = server();
        server.create(&definition()).unwrap();
        let mut held = widget("held");
        held["metadata"]["finalizers"] = json!(["example.com/x"]);
        let created = server.create(&held).unwrap();
        let (group, name) = ("apiextensions.k8s.io/v1", "widgets.rec.example.com");
        server.delete(group, "customresourcedefinitions", None, name).unwrap();
        assert!(server.get(group, "customresourcedefinitions", None, name).is_some());
        let refused = server.create(&widget("late")).unwrap_err();
        assert_eq!((refused.code, refused.reason.as_str()), (403, "Forbidden"));
        let mut last = server.get("rec.example.com/v1", "widgets", Some("default"), "held").unwrap();
        assert_eq!(last["metadata"]["uid"], created["metadata"]["uid"]);
        last["metadata"]["finalizers"] = json!([]);
        server.update(&last).unwrap();
        assert!(server.get(group, "customresourcedefinitions", None, name).is_none());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn restored_server_has_older_version() {
    with_timeout(async {
        let server = server();
        server.create(&configmap("kept", "1")).unwrap();
        let backup = server.backup();
        let then = server.resource_version();
        server.create(&configmap("lost", "1")).unwrap();
        server.create(&definition()).unwrap();
        let ahead = server.resource_version();
        let mut watch = Watch::open(&server, &format!("{MAPS}&resourceVersion={ahead}")).await;
        server.restore(&backup);
        assert_eq!(watch.next_summary().await, "broken");
        assert_eq!((server.resource_version(), server.open_watches()), (then, 0));
        assert_eq!(server.list("v1", "configmaps", None).len(), 1);
        assert_eq!(raw(&server, "/apis/rec.example.com/v1/widgets").await.0, 404);

        let mut silent = Watch::open(&server, &format!("{MAPS}&resourceVersion={ahead}")).await;
        let again = server.create(&configmap("again", "1")).unwrap();
        assert_eq!(again["metadata"]["resourceVersion"], (then + 1).to_string());
        assert!(silent.is_silent(30).await);
        let mut older = Watch::open(&server, &format!("{MAPS}&resourceVersion={}", then - 1)).await;
        assert_eq!(
            older.next_summary().await,
            format!("ERROR 410 too old resource version: {} ({then})", then - 1)
        );
    })
    .await;
}

/// Writers and watchers on several threads: no watcher misses a change or stays asleep after the last one.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn watchers_miss_nothing_under_concurrent_writes() {
    const WRITERS: usize = 4;
    const WRITES: usize = 250;
    let server = server();
    let from = server.resource_version();
    let watchers: Vec<_> = (0..3)
        .map(|_| {
            let server = server.clone();
            tokio::spawn(async move {
                let mut watch = Watch::open(&server, &format!("{MAPS}&resourceVersion={from}")).await;
                watch.next_summaries(WRITERS * WRITES).await
            })
        })
        .collect();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let server = server.clone();
            tokio::task::spawn_blocking(move || {
                for number in 0..WRITES {
                    server.create(&configmap(&format!("m-{writer}-{number}"), "1")).unwrap();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    for watcher in watchers {
        let frames =
            tokio::time::timeout(Duration::from_secs(20), watcher).await.expect("a watcher hangs").unwrap();
        let versions: Vec<u64> =
            frames.iter().filter_map(|frame| frame.rsplit(' ').next()?.parse().ok()).collect();
        let expected: Vec<u64> = (from + 1..=from + (WRITERS * WRITES) as u64).collect();
        assert_eq!(versions, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn selectable_fields_follow_the_definition() {
    with_timeout(async {
        let server = server();
        let mut defined = definition();
        server.create(&defined).unwrap();
        let mut blue = widget("blue");
        blue["spec"]["color"] = json!("blue");
        server.create(&blue).unwrap();
        server.create(&widget("plain")).unwrap();
        let path = "/apis/rec.example.com/v1/widgets?fieldSelector=spec.color%3Dblue";
        assert_eq!(raw(&server, path).await.1["message"], "field label not supported: spec.color");
        defined["spec"]["versions"][1]["schema"]["openAPIV3Schema"]["properties"] = json!({
            "spec": {"type": "object", "properties": {"color": {"type": "string"}}},
        });
        defined["spec"]["versions"][1]["selectableFields"] = json!([{"jsonPath": ".spec.color"}]);
        server.update(&defined).unwrap();
        let (code, list) = raw(&server, path).await;
        assert_eq!((code, list["items"].as_array().unwrap().len()), (200, 1));
        assert_eq!(list["items"][0]["metadata"]["name"], "blue");
    })
    .await;
}
