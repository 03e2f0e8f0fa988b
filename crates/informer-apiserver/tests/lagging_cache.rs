//! A watch cache that lags behind the server.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use crate::common::{Watch, configmap, raw, server, with_timeout};
use std::time::Duration;

use informer_apiserver::{User, faults};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::{Api, Client};
use serde_json::json;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WATCH: &str = "/api/v1/namespaces/default/configmaps?watch=1";

/// The table of `faults::lagging_cache`: what each request gets from a cache that lags by two writes.
#[tokio::test(start_paused = true)]
async fn lagging_cache_serves_old_state_as_documented() {
    with_timeout(async {
        let server = server();
        for name in ["a", "b", "c", "d"] {
            server.create(&configmap(name, "1")).unwrap();
        }
        let newest = server.resource_version();
        let cached = newest - 2;
        let guard = server.inject(faults::lagging_cache().lag_writes(2));
        let get = async |query: &str| {
            let began = tokio::time::Instant::now();
            let (code, body) = raw(&server, &format!("{MAPS}{query}")).await;
            let items = body["items"].as_array().map(Vec::len);
            (code, items, began.elapsed().as_secs())
        };
        assert_eq!(get("?resourceVersion=0").await, (200, Some(2), 0));
        assert_eq!(get(&format!("?resourceVersion={cached}")).await, (200, Some(2), 0));
        assert_eq!(get(&format!("?resourceVersion={newest}")).await, (504, None, 3), "version too large");
        assert_eq!(get("").await, (200, Some(4), 3), "a consistent list waits, and reads from the storage");
        let exact = format!("?resourceVersion={}&resourceVersionMatch=Exact", newest - 1);
        assert_eq!(get(&exact).await, (200, Some(3), 0));
        let (_, page) = raw(&server, &format!("{MAPS}?limit=1")).await;
        let next = format!("?limit=3&continue={}", page["metadata"]["continue"].as_str().unwrap());
        assert_eq!(get(&next).await, (200, Some(3), 0), "the next page");
        assert_eq!(raw(&server, "/api/v1/events?resourceVersion=0").await.0, 200, "no watch cache");
        assert_eq!(get("/d?resourceVersion=0").await, (404, None, 0));
        assert_eq!(get("/d").await, (200, None, 0));
        assert_eq!(get(&format!("/d?resourceVersion={newest}")).await, (504, None, 3));
        let too_large = format!("Timeout: Too large resource version: {newest}, current: {cached}");
        let (_, error) = raw(&server, &format!("{MAPS}?resourceVersion={newest}")).await;
        assert_eq!(error["message"], too_large);

        let initial = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
        let mut old = Watch::open(&server, &format!("{WATCH}{initial}&resourceVersion=0")).await;
        assert_eq!(old.next_summary().await, format!("ADDED a {}", cached - 1));
        assert_eq!(old.next_summary().await, format!("ADDED b {cached}"));
        assert_eq!(old.next_summary().await, format!("BOOKMARK - {cached} end"));
        let mut consistent = Watch::open(&server, &format!("{WATCH}{initial}")).await;
        assert_eq!(consistent.next_summary().await, format!("ERROR 504 {too_large}"));
        let mut ahead = Watch::open(&server, &format!("{WATCH}&resourceVersion={newest}")).await;
        let mut now = Watch::open(
            &server,
            &format!("{WATCH}&resourceVersion=0&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"),
        )
        .await;
        server.create(&configmap("e", "1")).unwrap();
        for watch in [&mut old, &mut ahead, &mut now] {
            assert!(watch.is_silent(20).await);
        }
        drop(guard);
        assert_eq!(ahead.next_summary().await, format!("ADDED e {}", newest + 1));
        for watch in [&mut old, &mut now] {
            assert_eq!(watch.next_summary().await, format!("ADDED c {}", newest - 1));
            assert_eq!(watch.next_summary().await, format!("ADDED d {newest}"));
        }
        assert_eq!(get("?resourceVersion=0").await, (200, Some(5), 0));
    })
    .await;
}

/// Bug: an open watch whose last bookmark was newer than the cache got a bookmark with the older version of the cache,
/// which a client takes for a server that was restored. The other tests opened their watches after the injection.
#[tokio::test(start_paused = true)]
async fn lagging_cache_sends_no_older_bookmark() {
    with_timeout(async {
        let server = server();
        let path = format!("{WATCH}&resourceVersion={}&allowWatchBookmarks=true", server.resource_version());
        let mut watch = Watch::open(&server, &path).await;
        for number in 0..10 {
            let name = format!("n{number}");
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            server.create(&namespace).unwrap();
        }
        assert_eq!(watch.next_summary().await, format!("BOOKMARK - {}", server.resource_version()));
        let guard = server.inject(faults::lagging_cache().lag_writes(5));
        assert!(watch.is_silent(150).await, "no bookmark of an older version");
        drop(guard);
        assert_eq!(watch.next_summary().await, format!("BOOKMARK - {}", server.resource_version()));
    })
    .await;
}

/// Bug: the start of a watch used every rule that matched, also one whose hits were used up, and did not count.
#[tokio::test(start_paused = true)]
async fn start_of_a_watch_counts_as_a_hit() {
    with_timeout(async {
        let server = server();
        server.create(&configmap("a", "1")).unwrap();
        let guard = server.inject(faults::lagging_cache().lag_writes(1).max_hits(1));
        let initial = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
        let mut first = Watch::open(&server, &format!("{WATCH}{initial}")).await;
        assert!(first.next_summary().await.starts_with("ERROR 504"));
        assert_eq!((guard.hits(), guard.affected_watches()), (1, 1));
        let mut second = Watch::open(&server, &format!("{WATCH}{initial}")).await;
        assert_eq!(second.next_summary().await, format!("ADDED a {}", server.resource_version()));
        assert_eq!(guard.hits(), 1);
    })
    .await;
}

/// A request that waits for the cache continues as soon as the cache has caught up, and other clients are not affected.
#[tokio::test(start_paused = true)]
async fn cache_lags_for_one_client_until_it_catches_up() {
    with_timeout(async {
        let server = server();
        server.create(&configmap("a", "1")).unwrap();
        let guard = server.inject(faults::lagging_cache().lag_writes(1).for_user("operator-2"));
        let maps = |user: &str| -> Api<ConfigMap> {
            Api::default_namespaced(Client::new(server.service_for(User::new(user)), "default"))
        };
        let (first, second) = (maps("operator-1"), maps("operator-2"));
        let cached = ListParams::default().match_any();
        assert_eq!(first.list(&cached).await.unwrap().items.len(), 1);
        assert_eq!(second.list(&cached).await.unwrap().items.len(), 0);
        let began = tokio::time::Instant::now();
        let catch_up = async {
            tokio::time::advance(Duration::from_secs(1)).await;
            drop(guard);
        };
        let consistent = ListParams::default();
        let (list, ()) = tokio::join!(second.list(&consistent), catch_up);
        assert_eq!((list.unwrap().items.len(), began.elapsed().as_secs()), (1, 1));
    })
    .await;
}
