//! Watches: where they begin, what they bring, how they end; and definitions that come and go under them.

#![allow(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

mod common;

use std::time::Duration;

use common::{Watch, by, configmap, definition, raw, server, widget};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{WatchEvent, WatchParams};
use serde_json::json;

const MAPS: &str = "/api/v1/namespaces/default/configmaps?watch=1";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const WATCH_LIST: &str = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

#[tokio::test(start_paused = true)]
async fn changes_follow_a_version() {
    by(async {
        let server = server();
        server.create(&configmap("a", "1")).unwrap();
        let from = server.version();
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
        assert_eq!(watch.tell(3).await, expected);
        assert_eq!(server.version(), from + 3, "an update that changes nothing takes no version");
        assert!(watch.is_silent(50).await);
        assert_eq!(server.open_watches(), 1);
        drop(watch);
        assert_eq!(server.open_watches(), 0);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_kube_client_can_watch() {
    by(async {
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
        assert_eq!(started.elapsed().as_secs(), 0, "told at once, and not by a timer");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_list_ends_with_its_bookmark() {
    by(async {
        let server = server();
        for name in ["c", "a", "b"] {
            server.create(&configmap(name, "1")).unwrap();
        }
        let version = server.version();
        let mut watch = Watch::open(&server, &format!("{MAPS}&{WATCH_LIST}")).await;
        server.create(&configmap("d", "1")).unwrap();
        let expected = [
            format!("ADDED a {}", version - 1),
            format!("ADDED b {version}"),
            format!("ADDED c {}", version - 2),
            format!("BOOKMARK - {version} end"),
            format!("ADDED d {}", version + 1),
        ];
        assert_eq!(watch.tell(5).await, expected);
    })
    .await;
}

/// Each watcher of protobuf had every object read from JSON and encoded again for itself, and each watcher of the other events had them
/// converted for itself.
#[tokio::test(start_paused = true)]
async fn objects_are_encoded_once_for_all_watchers() {
    by(async {
        const WATCHERS: usize = 7;
        let server = server();
        let from = server.version();
        let path = |plural: &str| format!("{plural}?watch=1&resourceVersion={from}");
        let (mut json, mut protobuf, mut metadata) = (Vec::new(), Vec::new(), Vec::new());
        let partial = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        for _ in 0..WATCHERS {
            json.push(Watch::open(&server, &path("/api/v1/configmaps")).await);
            protobuf.push(Watch::open_as(&server, &path("/api/v1/configmaps"), PROTOBUF).await);
            metadata.push(Watch::open_as(&server, &path("/api/v1/configmaps"), partial).await);
        }
        let before = server.encodings();
        server.create(&configmap("a", "1")).unwrap();
        server.update(&configmap("a", "2")).unwrap();
        server.update(&configmap("a", "3")).unwrap();
        server.delete("v1", "configmaps", Some("default"), "a").unwrap();
        for watch in &mut json {
            assert_eq!(watch.tell(4).await[3], format!("DELETED a {}", from + 4));
        }
        for watch in protobuf.iter_mut().chain(&mut metadata) {
            for (kind, version) in ["ADDED", "MODIFIED", "MODIFIED", "DELETED"].iter().zip(from + 1..) {
                let frame = watch.next_protobuf().await.unwrap();
                assert!(frame[2..].starts_with(kind.as_bytes()), "{kind}");
                let version = version.to_string();
                assert!(frame.windows(version.len()).any(|part| part == version.as_bytes()), "{version}");
            }
        }
        let spent = server.encodings();
        // A deletion has nothing new to encode as JSON: it is the last state with another version.
        assert_eq!(spent.json - before.json, 3);
        assert_eq!(spent.protobuf - before.protobuf, 4 + 4, "whole, and metadata alone");
        assert_eq!(spent.rows, before.rows);
    })
    .await;
}

/// See above.
#[tokio::test(start_paused = true)]
async fn another_form_is_made_once_for_all_watchers() {
    by(async {
        let server = server();
        let from = server.version();
        let path = format!("/apis/events.k8s.io/v1/events?watch=1&resourceVersion={from}");
        let (mut json, mut protobuf) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            json.push(Watch::open(&server, &path).await);
            protobuf.push(Watch::open_as(&server, &path, PROTOBUF).await);
        }
        let before = server.encodings();
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "default"},
            "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}, "message": "hello",
        });
        server.create(&event).unwrap();
        server.delete("v1", "events", Some("default"), "e").unwrap();
        for watch in &mut json {
            for (kind, version) in ["ADDED", "DELETED"].iter().zip(from + 1..) {
                let common::Got::Frame(frame) = watch.next().await else { panic!("no frame") };
                assert_eq!((&frame["type"], &frame["object"]["note"]), (&json!(kind), &json!("hello")));
                assert_eq!(frame["object"]["apiVersion"], "events.k8s.io/v1");
                assert_eq!(frame["object"]["metadata"]["resourceVersion"], version.to_string());
            }
        }
        for watch in &mut protobuf {
            assert!(watch.next_protobuf().await.is_some() && watch.next_protobuf().await.is_some());
        }
        let spent = server.encodings();
        assert_eq!((spent.json - before.json, spent.protobuf - before.protobuf), (2, 2));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_about_every_minute() {
    by(async {
        let server = server();
        let from = server.version();
        let path = format!("{MAPS}&resourceVersion={from}&allowWatchBookmarks=true&timeoutSeconds=75");
        let mut watch = Watch::open(&server, &path).await;
        server.create(&common::pod("p")).unwrap();
        assert_eq!(watch.told().await, format!("BOOKMARK - {}", from + 1));
        server.create(&common::pod("q")).unwrap();
        assert_eq!(watch.told().await, format!("BOOKMARK - {}", from + 2), "the last before the end");
        assert_eq!(watch.told().await, "end");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn too_old_is_an_error_frame_and_a_future_is_silent() {
    by(async {
        let server = server();
        let from = server.version();
        server.create(&configmap("a", "1")).unwrap();
        server.compact();
        let now = server.version();
        let mut old = Watch::open(&server, &format!("{MAPS}&resourceVersion={from}")).await;
        assert_eq!(old.told().await, format!("ERROR 410 too old resource version: {from} ({now})"));
        assert_eq!(old.told().await, "end");

        let path = format!("{MAPS}&resourceVersion={}&allowWatchBookmarks=true&timeoutSeconds=100", now + 2);
        let mut future = Watch::open(&server, &path).await;
        server.create(&configmap("b", "1")).unwrap();
        server.create(&configmap("c", "1")).unwrap();
        assert!(future.is_silent(59).await);
        server.create(&configmap("d", "1")).unwrap();
        assert_eq!(future.told().await, format!("ADDED d {}", now + 3));

        let path = format!("{MAPS}&{WATCH_LIST}&resourceVersion={}", now + 100);
        let mut ahead = Watch::open(&server, &path).await;
        assert!(ahead.told().await.starts_with("ERROR 504 Timeout: Too large resource version"));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_watcher_that_falls_behind_is_told() {
    by(async {
        let server = informer_apiserver::ApiServer::builder().history(3).build();
        let from = server.version();
        let mut watch = Watch::open(&server, &format!("{MAPS}&resourceVersion={from}")).await;
        for number in 0..10 {
            server.create(&configmap(&format!("m-{number}"), "1")).unwrap();
        }
        assert_eq!(watch.told().await, format!("ERROR 410 too old resource version: {from} ({})", from + 7));
        assert_eq!(watch.told().await, "end");
        assert_eq!(server.open_watches(), 0);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn selectors_turn_changes_into_arrivals_and_departures() {
    by(async {
        let server = server();
        let labelled = |value: &str, on: &str| {
            let mut map = configmap("b", value);
            map["metadata"]["labels"] = json!({"on": on});
            map
        };
        server.create(&labelled("1", "no")).unwrap();
        let from = server.version();
        let mut watch =
            Watch::open(&server, &format!("{MAPS}&labelSelector=on%3Dyes&resourceVersion={from}")).await;
        for (value, on) in [("1", "yes"), ("2", "yes"), ("3", "no"), ("4", "no")] {
            server.update(&labelled(value, on)).unwrap();
        }
        let expected = [format!("ADDED b {}", from + 1), format!("MODIFIED b {}", from + 2)];
        assert_eq!(watch.tell(2).await, expected);
        // Leaving shows the object as it was, with the version of the change.
        let common::Got::Frame(left) = watch.next().await else { panic!("no frame") };
        assert_eq!(common::told(&left), format!("DELETED b {}", from + 3));
        assert_eq!(left["object"]["metadata"]["labels"]["on"], "yes");
        assert_eq!(left["object"]["data"]["k"], "2");
        assert!(watch.is_silent(10).await);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_pod_is_seen_going_and_gone() {
    by(async {
        let server = server();
        server.create(&common::pod("p")).unwrap();
        let from = server.version();
        let path = format!("/api/v1/pods?watch=1&resourceVersion={from}");
        let mut watch = Watch::open(&server, &path).await;
        server.delete("v1", "pods", Some("default"), "p").unwrap();
        let common::Got::Frame(going) = watch.next().await else { panic!("no frame") };
        assert_eq!(common::told(&going), format!("MODIFIED p {}", from + 1));
        assert_eq!(going["object"]["metadata"]["generation"], 2);
        assert_eq!(watch.told().await, format!("DELETED p {}", from + 2));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn metadata_watches_show_metadata() {
    by(async {
        let server = server();
        server.create(&configmap("a", "1")).unwrap();
        let accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        let mut watch = Watch::open_as(&server, &format!("{MAPS}&{WATCH_LIST}"), accept).await;
        for expected in ["ADDED", "BOOKMARK"] {
            let common::Got::Frame(frame) = watch.next().await else { panic!("no frame") };
            assert_eq!(frame["type"], expected);
            assert_eq!(frame["object"]["kind"], "PartialObjectMetadata");
            assert!(frame["object"].get("data").is_none());
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_definition_is_served_from_birth_to_death() {
    by(async {
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
        assert!(watch.told().await.starts_with("ADDED one"));
        let mut changed = definition();
        changed["spec"]["names"]["shortNames"] = json!(["wd"]);
        server.create(&widget("two")).unwrap();
        server.update(&changed).unwrap();
        assert!(watch.told().await.starts_with("ADDED two"), "what came before the cut is told");
        assert_eq!(watch.told().await, "end", "a change of the definition ends its watches");

        let mut watch = Watch::open(&server, &format!("{path}?watch=1")).await;
        watch.tell(2).await;
        let name = "widgets.rec.example.com";
        server.delete("apiextensions.k8s.io/v1", "customresourcedefinitions", None, name).unwrap();
        let told = watch.tell(3).await;
        assert!(told[0].starts_with("DELETED one") && told[1].starts_with("DELETED two"), "{told:?}");
        assert_eq!(told[2], "end");
        assert_eq!(raw(&server, path).await, (404, json!("404 page not found\n")));
        assert!(server.get("apiextensions.k8s.io/v1", "customresourcedefinitions", None, name).is_none());

        server.create(&definition()).unwrap();
        assert_eq!(server.list("rec.example.com/v1", "widgets", None).len(), 0, "nothing of the old life");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_definition_waits_for_its_last_object() {
    by(async {
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
async fn a_restored_server_goes_back() {
    by(async {
        let server = server();
        server.create(&configmap("kept", "1")).unwrap();
        let backup = server.backup();
        let then = server.version();
        server.create(&configmap("lost", "1")).unwrap();
        server.create(&definition()).unwrap();
        let ahead = server.version();
        let mut watch = Watch::open(&server, &format!("{MAPS}&resourceVersion={ahead}")).await;
        server.restore(&backup);
        assert_eq!(watch.told().await, "broken");
        assert_eq!((server.version(), server.open_watches()), (then, 0));
        assert_eq!(server.list("v1", "configmaps", None).len(), 1);
        assert_eq!(raw(&server, "/apis/rec.example.com/v1/widgets").await.0, 404);

        let mut silent = Watch::open(&server, &format!("{MAPS}&resourceVersion={ahead}")).await;
        let again = server.create(&configmap("again", "1")).unwrap();
        assert_eq!(again["metadata"]["resourceVersion"], (then + 1).to_string());
        assert!(silent.is_silent(30).await);
        let mut older = Watch::open(&server, &format!("{MAPS}&resourceVersion={}", then - 1)).await;
        assert_eq!(older.told().await, format!("ERROR 410 too old resource version: {} ({then})", then - 1));
    })
    .await;
}

/// Writers and watchers on several threads: nothing is lost, and nobody sleeps through the last change.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn watchers_miss_nothing_under_concurrent_writes() {
    const WRITERS: usize = 4;
    const WRITES: usize = 250;
    let server = server();
    let from = server.version();
    let watchers: Vec<_> = (0..3)
        .map(|_| {
            let server = server.clone();
            tokio::spawn(async move {
                let mut watch = Watch::open(&server, &format!("{MAPS}&resourceVersion={from}")).await;
                watch.tell(WRITERS * WRITES).await
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
        let told =
            tokio::time::timeout(Duration::from_secs(20), watcher).await.expect("a watcher hangs").unwrap();
        let versions: Vec<u64> =
            told.iter().filter_map(|frame| frame.rsplit(' ').next()?.parse().ok()).collect();
        let expected: Vec<u64> = (from + 1..=from + (WRITERS * WRITES) as u64).collect();
        assert_eq!(versions, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_definition_says_what_can_be_selected() {
    by(async {
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
