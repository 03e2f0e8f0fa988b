//! The library of faults: each does what it says, to whom it says, for as long as its guard lives.

#![allow(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

mod common;

use common::{Watch, by, configmap, raw, server};
use informer_apiserver::{Verb, faults};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WATCH: &str = "/api/v1/namespaces/default/configmaps?watch=1";
const WATCH_LIST: &str = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

#[tokio::test(start_paused = true)]
async fn answers_are_narrowed_and_counted() {
    by(async {
        let server = server();
        let rule = faults::answer(503).on(Verb::List).of("configmaps").in_namespace("default");
        let guard = server.fault(rule.after(1).times(2));
        let mut codes = Vec::new();
        for _ in 0..4 {
            codes.push(raw(&server, MAPS).await.0);
        }
        assert_eq!(codes, [200, 503, 503, 200]);
        assert_eq!(raw(&server, "/api/v1/pods").await.0, 200);
        assert_eq!(guard.hits(), 2);
        drop(guard);
        let seen = server.requests();
        assert_eq!(seen.len(), 5);
        assert_eq!((seen[0].verb, seen[0].plural.as_str()), (Verb::List, "configmaps"));
        assert_eq!(seen[0].namespace.as_deref(), Some("default"));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_body_of_any_kind_can_be_answered() {
    by(async {
        let server = server();
        let _guard = server.fault(faults::answer_with(200, "<html>").of("configmaps"));
        assert_eq!(raw(&server, MAPS).await, (200, serde_json::json!("<html>")));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn only_later_pages_can_fail() {
    by(async {
        let server = server();
        for name in ["a", "b", "c"] {
            server.create(&configmap(name, "1")).unwrap();
        }
        let _guard = server.fault(faults::answer(500).on(Verb::List).page(2));
        let (code, first) = raw(&server, &format!("{MAPS}?limit=1")).await;
        assert_eq!(code, 200);
        let token = first["metadata"]["continue"].as_str().unwrap();
        assert_eq!(raw(&server, &format!("{MAPS}?limit=1&continue={token}")).await.0, 500);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn forbidden_is_worded_as_on_a_real_server() {
    by(async {
        let server = server();
        let guard = server.fault(faults::forbid("secrets"));
        let (code, status) = raw(&server, "/api/v1/secrets").await;
        assert_eq!(code, 403);
        assert_eq!(
            status["message"],
            r#"secrets is forbidden: User "informer" cannot list resource "secrets" in API group "" at the cluster scope"#
        );
        drop(guard);
        assert_eq!(raw(&server, "/api/v1/secrets").await.0, 200);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_running_watch_is_cut() {
    by(async {
        let server = server();
        let from = server.version();
        let mut watch = Watch::open(&server, &format!("{WATCH}&resourceVersion={from}")).await;
        let guard = server.fault(faults::cut_watch().after_frames(2));
        for name in ["a", "b", "c"] {
            server.create(&configmap(name, "1")).unwrap();
        }
        let expected =
            [format!("ADDED a {}", from + 1), format!("ADDED b {}", from + 2), "broken".to_owned()];
        assert_eq!(watch.tell(3).await, expected);
        assert_eq!((guard.hits(), server.open_watches()), (1, 0));
        drop(guard);

        let _guard = server.fault(faults::cut_watch().cleanly().times(1));
        let mut watch = Watch::open(&server, WATCH).await;
        assert_eq!(watch.told().await, "end");
        let mut watch = Watch::open(&server, WATCH).await;
        assert_eq!(watch.told().await, format!("ADDED a {}", from + 1));
    })
    .await;
}

/// A rule that came while the watch was being waited for was noticed and then not looked at: the wait had marked it as seen.
/// The other tests set their rules between two reads.
#[tokio::test(start_paused = true)]
async fn a_watch_that_somebody_waits_for_is_cut() {
    by(async {
        let server = server();
        let mut watch = Watch::open(&server, WATCH).await;
        let started = tokio::time::Instant::now();
        let (told, guard) = tokio::join!(watch.told(), async { server.fault(faults::cut_watch()) });
        assert_eq!(guard.hits(), 1);
        assert_eq!((told.as_str(), started.elapsed().as_secs()), ("broken", 0));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_cut_can_fall_into_the_initial_events() {
    by(async {
        let server = server();
        for name in ["a", "b", "c"] {
            server.create(&configmap(name, "1")).unwrap();
        }
        let _guard = server.fault(faults::cut_watch().after_frames(2));
        let mut watch = Watch::open(&server, &format!("{WATCH}&{WATCH_LIST}")).await;
        let told = watch.tell(3).await;
        assert!(told[0].starts_with("ADDED a") && told[1].starts_with("ADDED b"), "{told:?}");
        assert_eq!(told[2], "broken");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_stalled_watch_says_nothing_until_it_may() {
    by(async {
        let server = server();
        let mut watch =
            Watch::open(&server, &format!("{WATCH}&allowWatchBookmarks=true&timeoutSeconds=90")).await;
        assert!(watch.told().await.starts_with("BOOKMARK"));
        let guard = server.fault(faults::stall_watch());
        server.create(&configmap("a", "1")).unwrap();
        assert!(watch.is_silent(80).await);
        assert_eq!(guard.hits(), 1);
        drop(guard);
        assert!(watch.told().await.starts_with("ADDED a"));
        assert!(watch.told().await.starts_with("BOOKMARK"), "one was due meanwhile");
        assert_eq!(watch.told().await, "end");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn held_requests_wait_for_the_guard() {
    by(async {
        let server = server();
        let guard = server.fault(faults::hold().on(Verb::List));
        let held = tokio::spawn({
            let server = server.clone();
            async move { raw(&server, MAPS).await.0 }
        });
        while guard.hits() == 0 {
            tokio::task::yield_now().await;
        }
        assert!(!held.is_finished());
        drop(guard);
        assert_eq!(held.await.unwrap(), 200);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn watch_lists_can_be_refused_or_never_end() {
    by(async {
        let server = server();
        server.create(&configmap("a", "1")).unwrap();
        let path = format!("{WATCH}&{WATCH_LIST}");
        let guard = server.fault(faults::refuse_watch_list());
        let (code, status) = raw(&server, &path).await;
        assert_eq!((code, status["reason"].as_str()), (422, Some("Invalid")));
        drop(guard);
        let _guard = server.fault(faults::endless_watch_list());
        let mut watch = Watch::open(&server, &path).await;
        assert!(watch.told().await.starts_with("ADDED a"));
        assert!(watch.is_silent(30).await);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn frames_can_be_errors_and_garbage() {
    by(async {
        let server = server();
        let from = server.version();
        let path = format!("{WATCH}&resourceVersion={from}");
        let guard = server.fault(faults::error_frame(410).times(1));
        let mut watch = Watch::open(&server, &path).await;
        assert_eq!(watch.tell(2).await, ["ERROR 410 injected fault", "end"]);
        drop(guard);

        let guard = server.fault(faults::raw_frame("{\"type\":\n").after_frames(1));
        let mut watch = Watch::open(&server, &path).await;
        server.create(&configmap("a", "1")).unwrap();
        server.create(&configmap("b", "1")).unwrap();
        let told = watch.tell(3).await;
        assert_eq!(told[1], "line {\"type\":");
        assert!(told[2].starts_with("ADDED b"));
        assert_eq!(guard.hits(), 1);
    })
    .await;
}
