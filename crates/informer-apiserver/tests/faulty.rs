//! Fault injection: each fault rule has its effect on the matching requests while its guard is alive.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use crate::common::{Watch, configmap, raw, send, server, with_timeout};
use std::time::Duration;

use informer_apiserver::{Verb, faults};
use tokio::time::Instant;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WATCH: &str = "/api/v1/namespaces/default/configmaps?watch=1";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const WATCH_LIST: &str = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

#[tokio::test(start_paused = true)]
async fn rule_applies_to_matching_requests_and_counts_hits() {
    with_timeout(async {
        let server = server();
        let rule =
            faults::respond(503).for_verb(Verb::List).for_resource("configmaps").in_namespace("default");
        let guard = server.inject(rule.skip_first(1).max_hits(2));
        let mut codes = Vec::new();
        for _ in 0..4 {
            codes.push(raw(&server, MAPS).await.0);
        }
        assert_eq!(codes, [200, 503, 503, 200]);
        assert_eq!(raw(&server, "/api/v1/pods").await.0, 200);
        assert_eq!(guard.hits(), 2);
        drop(guard);
        let seen = server.recorded_requests();
        assert_eq!(seen.len(), 5);
        assert_eq!((seen[0].verb, seen[0].plural.as_str()), (Verb::List, "configmaps"));
        assert_eq!(seen[0].namespace.as_deref(), Some("default"));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn rule_responds_with_arbitrary_body() {
    with_timeout(async {
        let server = server();
        let _guard = server.inject(faults::respond_with(200, "<html>").for_resource("configmaps"));
        assert_eq!(raw(&server, MAPS).await, (200, serde_json::json!("<html>")));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn rule_applies_to_selected_page_only() {
    with_timeout(async {
        let server = server();
        for name in ["a", "b", "c"] {
            server.create(&configmap(name, "1")).unwrap();
        }
        let _guard = server.inject(faults::respond(500).for_verb(Verb::List).page(2));
        let (code, first) = raw(&server, &format!("{MAPS}?limit=1")).await;
        assert_eq!(code, 200);
        let token = first["metadata"]["continue"].as_str().unwrap();
        assert_eq!(raw(&server, &format!("{MAPS}?limit=1&continue={token}")).await.0, 500);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn forbidden_message_matches_kube_apiserver() {
    with_timeout(async {
        let server = server();
        let guard = server.inject(faults::forbid("secrets"));
        let (code, status) = raw(&server, "/api/v1/secrets").await;
        assert_eq!(code, 403);
        assert_eq!(
            status["message"],
            r#"secrets is forbidden: User "admin" cannot list resource "secrets" in API group "" at the cluster scope"#
        );
        drop(guard);
        assert_eq!(raw(&server, "/api/v1/secrets").await.0, 200);
        // Regression: the message named the pod instead of its subresource.
        let _guard = server.inject(faults::forbid("pods"));
        assert_eq!(
            raw(&server, "/api/v1/namespaces/default/pods/p/status").await.1["message"],
            r#"pods "p" is forbidden: User "admin" cannot get resource "pods/status" in API group "" in the namespace "default""#
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn break_watch_ends_open_watch() {
    with_timeout(async {
        let server = server();
        let from = server.resource_version();
        let mut watch = Watch::open(&server, &format!("{WATCH}&resourceVersion={from}")).await;
        let guard = server.inject(faults::break_watch().after_frames(2));
        for name in ["a", "b", "c"] {
            server.create(&configmap(name, "1")).unwrap();
        }
        let expected =
            [format!("ADDED a {}", from + 1), format!("ADDED b {}", from + 2), "broken".to_owned()];
        assert_eq!(watch.next_summaries(3).await, expected);
        assert_eq!((guard.hits(), server.open_watches()), (1, 0));
        drop(guard);

        let _guard = server.inject(faults::break_watch().with_clean_end().max_hits(1));
        let mut watch = Watch::open(&server, WATCH).await;
        assert_eq!(watch.next_summary().await, "end");
        let mut watch = Watch::open(&server, WATCH).await;
        assert_eq!(watch.next_summary().await, format!("ADDED a {}", from + 1));
    })
    .await;
}

/// Regression: a rule injected while a read of the watch was pending had no effect, because the pending read had
/// already marked it as seen. The other tests inject rules between two reads.
#[tokio::test(start_paused = true)]
async fn break_watch_ends_watch_with_pending_read() {
    with_timeout(async {
        let server = server();
        let mut watch = Watch::open(&server, WATCH).await;
        let started = tokio::time::Instant::now();
        let (last, guard) =
            tokio::join!(watch.next_summary(), async { server.inject(faults::break_watch()) });
        assert_eq!(guard.hits(), 1);
        assert_eq!((last.as_str(), started.elapsed().as_secs()), ("broken", 0));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn break_watch_can_interrupt_initial_events() {
    with_timeout(async {
        let server = server();
        for name in ["a", "b", "c"] {
            server.create(&configmap(name, "1")).unwrap();
        }
        let _guard = server.inject(faults::break_watch().after_frames(2));
        let mut watch = Watch::open(&server, &format!("{WATCH}&{WATCH_LIST}")).await;
        let frames = watch.next_summaries(3).await;
        assert!(frames[0].starts_with("ADDED a") && frames[1].starts_with("ADDED b"), "{frames:?}");
        assert_eq!(frames[2], "broken");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn stalled_watch_is_silent_until_guard_is_dropped() {
    with_timeout(async {
        let server = server();
        let mut watch =
            Watch::open(&server, &format!("{WATCH}&allowWatchBookmarks=true&timeoutSeconds=90")).await;
        assert!(watch.next_summary().await.starts_with("BOOKMARK"));
        let guard = server.inject(faults::stall_watch());
        server.create(&configmap("a", "1")).unwrap();
        assert!(watch.is_silent(80).await);
        assert_eq!(guard.hits(), 1);
        drop(guard);
        assert!(watch.next_summary().await.starts_with("ADDED a"));
        assert!(watch.next_summary().await.starts_with("BOOKMARK"), "a bookmark became due during the stall");
        assert_eq!(watch.next_summary().await, "end");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn stalled_request_continues_when_guard_is_dropped() {
    with_timeout(async {
        let server = server();
        let guard = server.inject(faults::stall_request().for_verb(Verb::List));
        let stalled = tokio::spawn({
            let server = server.clone();
            async move { raw(&server, MAPS).await.0 }
        });
        while guard.hits() == 0 {
            tokio::task::yield_now().await;
        }
        assert!(!stalled.is_finished());
        drop(guard);
        assert_eq!(stalled.await.unwrap(), 200);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn watch_list_is_rejected_or_never_completes() {
    with_timeout(async {
        let server = server();
        server.create(&configmap("a", "1")).unwrap();
        let path = format!("{WATCH}&{WATCH_LIST}");
        let guard = server.inject(faults::refuse_watch_list());
        let (code, status) = raw(&server, &path).await;
        assert_eq!((code, status["reason"].as_str()), (422, Some("Invalid")));
        drop(guard);
        let _guard = server.inject(faults::endless_watch_list());
        let mut watch = Watch::open(&server, &path).await;
        assert!(watch.next_summary().await.starts_with("ADDED a"));
        assert!(watch.is_silent(30).await);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn error_frames_and_raw_frames_are_injected() {
    with_timeout(async {
        let server = server();
        let from = server.resource_version();
        let path = format!("{WATCH}&resourceVersion={from}");
        let guard = server.inject(faults::error_frame(410).max_hits(1));
        let mut watch = Watch::open(&server, &path).await;
        assert_eq!(watch.next_summaries(2).await, ["ERROR 410 injected fault", "end"]);
        drop(guard);

        let guard = server.inject(faults::raw_frame("{\"type\":\n").after_frames(1));
        let mut watch = Watch::open(&server, &path).await;
        server.create(&configmap("a", "1")).unwrap();
        server.create(&configmap("b", "1")).unwrap();
        let frames = watch.next_summaries(3).await;
        assert_eq!(frames[1], "line {\"type\":");
        assert!(frames[2].starts_with("ADDED b"));
        assert_eq!(guard.hits(), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn rules_apply_to_request_in_order() {
    with_timeout(async {
        let server = server();
        let _first = server.inject(faults::exempt().for_resource("configmaps").max_hits(1));
        let slow = server.inject(faults::delay(Duration::from_secs(4)).for_resource("configmaps"));
        let _busy = server.inject(faults::too_many_requests(2).for_verb(Verb::List));
        let began = Instant::now();
        assert_eq!(raw(&server, MAPS).await.0, 200, "exempted by the first rule");
        assert_eq!(began.elapsed().as_secs(), 0);
        let response = send(&server, "GET", MAPS, "application/json", None).await;
        assert_eq!((response.status().as_u16(), began.elapsed().as_secs()), (429, 4));
        assert_eq!(response.headers()["retry-after"], "2");
        // Dropping the guard ends the delay, and the next rule applies.
        let (code, ()) = tokio::join!(async { raw(&server, MAPS).await.0 }, async {
            let _ = tokio::time::timeout(Duration::from_secs(1), std::future::pending::<()>()).await;
            drop(slow);
        });
        assert_eq!((code, began.elapsed().as_secs()), (429, 5));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn probability_is_deterministic_for_a_seed() {
    with_timeout(async {
        let codes = async |seed: u64| {
            let server = server();
            let guard =
                server.inject(faults::respond(500).for_resource("configmaps").probability_percent(30, seed));
            let mut codes = Vec::new();
            for _ in 0..200 {
                codes.push(raw(&server, MAPS).await.0);
            }
            assert!((30..90).contains(&guard.hits()), "{} of 200", guard.hits());
            codes
        };
        assert_eq!(codes(1).await, codes(1).await);
        assert_ne!(codes(1).await, codes(2).await);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn gone_expires_open_watches_and_lists() {
    with_timeout(async {
        let server = server();
        let mut watch = Watch::open(&server, WATCH).await;
        let guard = server.inject(faults::gone().for_resource("configmaps"));
        assert!(watch.next_summary().await.starts_with("ERROR 410 too old resource version"));
        assert_eq!(watch.next_summary().await, "end");
        let (code, status) = raw(&server, MAPS).await;
        assert_eq!((code, status["reason"].as_str()), (410, Some("Expired")));
        assert_eq!((guard.hits(), guard.affected_watches()), (2, 1));
        assert_eq!(raw(&server, &format!("{MAPS}/a")).await.0, 404, "reads of a single object cannot expire");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn connection_breaks_before_headers_or_within_body() {
    with_timeout(async {
        let server = server();
        server.create(&configmap("a", "1")).unwrap();
        let broken = server.inject(faults::drop_connection().for_resource("configmaps").max_hits(1));
        let request = http::Request::get(MAPS).body(kube::client::Body::empty()).unwrap();
        assert!(tower::ServiceExt::oneshot(server.service(), request).await.is_err());
        assert_eq!(broken.hits(), 1);

        let body = async || {
            let response = send(&server, "GET", MAPS, "application/json", None).await;
            let read = http_body_util::BodyExt::collect(response.into_body());
            tokio::time::timeout(Duration::from_secs(3600), read).await
        };
        let guard = server.inject(faults::truncate(20));
        assert!(body().await.unwrap().is_err(), "the body ends with an error");
        drop(guard);
        let guard = server.inject(faults::truncate(20).with_clean_end());
        assert_eq!(body().await.unwrap().unwrap().to_bytes().len(), 20);
        drop(guard);
        let _guard = server.inject(faults::truncate(20).without_end());
        assert!(body().await.is_err(), "the body neither continues nor ends");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn half_open_watch_stays_silent_after_restart() {
    with_timeout(async {
        let server = server();
        let mut watch = Watch::open(&server, &format!("{WATCH}&timeoutSeconds=5")).await;
        let guard = server.inject(faults::half_open());
        assert!(watch.is_silent(10).await);
        drop(guard);
        server.create(&configmap("a", "1")).unwrap();
        server.restart();
        assert!(watch.is_silent(100).await, "the end of the watch must not be sent either");
        assert_eq!(server.open_watches(), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn frames_are_dropped_duplicated_corrupted_and_truncated() {
    with_timeout(async {
        let server = server();
        let from = server.resource_version();
        let path = format!("{WATCH}&resourceVersion={from}");
        for name in ["a", "b", "c", "d"] {
            server.create(&configmap(name, "1")).unwrap();
        }
        let names = |frames: Vec<String>| -> Vec<String> {
            frames.iter().map(|line| line.split(' ').nth(1).unwrap_or(line).to_owned()).collect()
        };
        let guard = server.inject(faults::drop_frame().after_frames(1).frames(2));
        let mut watch = Watch::open(&server, &path).await;
        assert_eq!(names(watch.next_summaries(2).await), ["a", "d"]);
        assert_eq!(guard.hits(), 2);
        drop(guard);

        let one = server.inject(faults::duplicate_frame());
        let two = server.inject(faults::duplicate_frame().after_frames(2));
        let mut watch = Watch::open(&server, &path).await;
        assert_eq!(names(watch.next_summaries(6).await), ["a", "a", "b", "c", "c", "d"]);
        drop((one, two));

        let guard = server.inject(faults::break_mid_frame().after_frames(1).max_hits(1));
        let mut watch = Watch::open(&server, &path).await;
        assert_eq!(names(watch.next_summaries(2).await), ["a", "broken"]);
        assert_eq!(guard.hits(), 1);
        drop(guard);

        let guard = server.inject(faults::malformed_object().for_verb(Verb::Watch).after_frames(1));
        let mut watch = Watch::open(&server, &path).await;
        watch.next_summary().await;
        let crate::common::Got::Frame(frame) = watch.next().await else { panic!("no frame") };
        assert_eq!(
            (&frame["object"]["spec"], &frame["object"]["metadata"]["name"]),
            (&7.into(), &"b".into())
        );
        drop(guard);

        let _guard = server.inject(faults::malformed_object().for_verb(Verb::List));
        let (_, list) = raw(&server, MAPS).await;
        assert_eq!((&list["items"][0]["spec"], list["items"][1].get("spec")), (&7.into(), None));
        assert_eq!(list["items"].as_array().map(Vec::len), Some(4));
    })
    .await;
}

/// Regression: lists in YAML, protobuf or gzip, tables and empty lists were sent unchanged but counted as hits.
#[tokio::test(start_paused = true)]
async fn lists_are_corrupted_in_every_encoding() {
    with_timeout(async {
        let server = server();
        let guard = server.inject(faults::malformed_object().for_verb(Verb::List));
        assert_eq!(raw(&server, MAPS).await.1["items"], serde_json::json!([]));
        assert_eq!(guard.hits(), 0, "an empty list has no object to corrupt");
        drop(guard);
        for name in ["a", "b"] {
            server.create(&configmap(name, &"long ".repeat(20_000))).unwrap();
        }
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        for (accept, gzipped) in
            [("application/json", true), ("application/yaml", false), (PROTOBUF, false), (table, false)]
        {
            let read = async || {
                let request = http::Request::get(MAPS).header("accept", accept);
                let request = if gzipped { request.header("accept-encoding", "gzip") } else { request };
                let request = request.body(kube::client::Body::empty()).unwrap();
                let response = tower::ServiceExt::oneshot(server.service(), request).await.unwrap();
                assert_eq!(response.headers().contains_key("content-encoding"), gzipped);
                let bytes = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
                let gunzip = || std::io::read_to_string(flate2::read::GzDecoder::new(&bytes[..])).unwrap();
                if gzipped { gunzip().into_bytes() } else { bytes.to_vec() }
            };
            let good = read().await;
            let guard = server.inject(faults::malformed_object().for_verb(Verb::List).max_hits(1));
            let bad = read().await;
            assert_eq!((read().await, guard.hits()), (good.clone(), 1), "{accept}: corrupted only once");
            let text = String::from_utf8_lossy(&bad);
            match accept {
                "application/json" => assert_eq!(text.matches(r#""spec":7"#).count(), 1),
                "application/yaml" => assert_eq!(text.matches("  spec: 7\n").count(), 1),
                PROTOBUF => assert_eq!(bad.len(), good.len() + 2),
                _ => assert!(text.contains(r#""rows":7"#), "{text}"),
            }
        }
    })
    .await;
}

/// Regression: in protobuf watches, objects were not corrupted, error frames and frames without an object were JSON,
/// and bookmarks were not recognized.
#[tokio::test(start_paused = true)]
async fn stream_faults_use_protobuf_in_protobuf_watches() {
    with_timeout(async {
        let server = server();
        server.create(&configmap("a", "1")).unwrap();
        let path = format!("{WATCH}&{WATCH_LIST}");
        let mut watch = Watch::open_as(&server, &path, PROTOBUF).await;
        let good = watch.next_protobuf().await.unwrap();
        let guard = server.inject(faults::malformed_object().for_verb(Verb::Watch));
        let mut watch = Watch::open_as(&server, &path, PROTOBUF).await;
        assert_eq!(watch.next_protobuf().await.unwrap().len(), good.len() + 2);
        assert_eq!(guard.hits(), 1);
        drop(guard);
        let guard = server.inject(faults::malformed_object().for_verb(Verb::Watch).after_frames(1));
        let mut watch = Watch::open_as(&server, &path, PROTOBUF).await;
        assert_eq!(watch.next_protobuf().await.unwrap(), good);
        assert!(watch.next_protobuf().await.unwrap()[2..].starts_with(b"BOOKMARK"));
        assert_eq!(guard.hits(), 0, "a bookmark has no object");
        drop(guard);

        let guard = server.inject(faults::frame_without_object());
        let mut watch = Watch::open_as(&server, &path, PROTOBUF).await;
        assert_eq!(watch.next_protobuf().await.unwrap(), b"\x0a\x08MODIFIED\x12\x03\x0a\x017");
        assert_eq!(watch.next_protobuf().await.unwrap(), good);
        drop(guard);

        let _guard = server.inject(faults::error_frame(410));
        let response = send(&server, "GET", WATCH, PROTOBUF, None).await;
        assert_eq!(response.headers()["content-type"], format!("{PROTOBUF};stream=watch"));
        let mut watch = Watch::open_as(&server, WATCH, PROTOBUF).await;
        let error = watch.next_protobuf().await.unwrap();
        assert!(
            error[2..].starts_with(b"ERROR") && String::from_utf8_lossy(&error).contains("injected fault")
        );
        assert_eq!(watch.next_protobuf().await, None);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn stale_read_affects_only_reads_that_allow_it() {
    with_timeout(async {
        let server = server();
        for name in ["a", "b", "c", "d"] {
            server.create(&configmap(name, "1")).unwrap();
        }
        let newest = server.resource_version();
        let _guard = server.inject(faults::stale_read().lag_writes(2).for_resource("configmaps"));
        let list = async |query: &str| {
            let (_, list) = raw(&server, &format!("{MAPS}{query}")).await;
            let version = list["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
            (list["items"].as_array().unwrap().len(), version)
        };
        assert_eq!(list("").await, (4, newest), "a consistent read");
        assert_eq!(list("?resourceVersion=0").await, (2, newest - 2));
        assert_eq!(list(&format!("?resourceVersion={}", newest - 1)).await, (3, newest - 1));
        assert_eq!(raw(&server, &format!("{MAPS}/d?resourceVersion=0")).await.0, 404);
        assert_eq!(raw(&server, &format!("{MAPS}/d")).await.0, 200);
        let _further = server.inject(faults::stale_read().lag_writes(1_000).for_resource("configmaps"));
        assert_eq!(list("?resourceVersion=0").await, (0, 1), "lists never have version 0");
        server.compact();
        assert_eq!(list("?resourceVersion=0").await, (4, newest), "older states were compacted");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn schedule_is_deterministic_for_a_seed() {
    with_timeout(async {
        let rendered = |seed: u64| -> Vec<String> {
            let scheduled = faults::Schedule::seeded(seed).for_resource("pods").take(300);
            scheduled.map(|fault| format!("{:?} {} {:?}", fault.start, fault.rule, fault.duration)).collect()
        };
        assert_eq!(rendered(3), rendered(3));
        assert_ne!(rendered(3), rendered(4));
        let server = server();
        faults::Schedule::seeded(3).run(&server, Duration::from_secs(600)).await;
        assert_eq!(raw(&server, MAPS).await.0, 200, "no rule stays active");
        let busy = faults::respond(429).retry_after(2).for_verb(Verb::List).for_resource("pods").max_hits(3);
        assert_eq!(busy.to_string(), "respond 429 for list pods, at most 3 times");
    })
    .await;
}

/// The table of the module documentation: what a rule does to a watch that is open and idle when the rule is injected,
/// and to the watch once an object is created.
#[tokio::test(start_paused = true)]
async fn open_watches_are_affected_as_documented() {
    const UNAFFECTED: [&str; 2] = ["silent", "ADDED a"];
    let cases = [
        (faults::break_watch(), ["broken", "end"]),
        (faults::outage(), ["broken", "end"]),
        (faults::break_watch().with_clean_end(), ["end", "end"]),
        (faults::gone(), ["ERROR 410", "end"]),
        (faults::half_open(), ["silent", "silent"]),
        (faults::stall_watch(), ["silent", "silent"]),
        (faults::raw_frame("x\n"), ["line x", "ADDED a"]),
        (faults::frame_without_object(), ["MODIFIED -", "ADDED a"]),
        (faults::break_mid_frame(), ["silent", "broken"]),
        (faults::drop_frame(), ["silent", "silent"]),
        (faults::duplicate_frame(), UNAFFECTED),
        (faults::malformed_object(), UNAFFECTED),
        (faults::respond(503), UNAFFECTED),
        (faults::respond_with(200, "x"), UNAFFECTED),
        (faults::too_many_requests(1), UNAFFECTED),
        (faults::forbid("configmaps"), UNAFFECTED),
        (faults::exempt(), UNAFFECTED),
        (faults::delay(Duration::from_secs(3600)), UNAFFECTED),
        (faults::stall_request(), UNAFFECTED),
        (faults::drop_connection(), UNAFFECTED),
        (faults::truncate(0), UNAFFECTED),
        (faults::stale_read(), UNAFFECTED),
        (faults::lagging_cache(), ["silent", "silent"]),
        (faults::refuse_watch_list(), UNAFFECTED),
        (faults::endless_watch_list(), UNAFFECTED),
        (faults::error_frame(500), UNAFFECTED),
    ];
    for (rule, expected) in cases {
        let server = server();
        let from = server.resource_version();
        let mut watch = Watch::open(&server, &format!("{WATCH}&resourceVersion={from}")).await;
        assert!(watch.is_silent(1).await, "the watch is idle");
        let name = rule.to_string();
        let guard = server.inject(rule);
        let idle = next_or_silence(&mut watch).await;
        server.create(&configmap("a", "1")).unwrap();
        let changed = next_or_silence(&mut watch).await;
        // Without the last word, which is a version.
        let matches =
            |actual: &str, expected: &str| actual == expected || actual.starts_with(&format!("{expected} "));
        assert!(matches(&idle, expected[0]) && matches(&changed, expected[1]), "{name}: {idle}, {changed}");
        let has_effect = expected != UNAFFECTED
            || name.starts_with("DuplicateFrame")
            || name.starts_with("MalformedObject");
        assert_eq!(
            (guard.hits(), guard.affected_watches()),
            (has_effect.into(), has_effect.into()),
            "{name}"
        );
    }
}

async fn next_or_silence(watch: &mut Watch) -> String {
    let next = tokio::time::timeout(Duration::from_secs(50), watch.next_summary()).await;
    next.unwrap_or_else(|_| "silent".to_owned())
}

#[tokio::test(start_paused = true)]
async fn outage_lasts_until_guard_is_dropped() {
    with_timeout(async {
        let server = server();
        let from = server.resource_version();
        let path = format!("{WATCH}&resourceVersion={from}");
        let mut watch = Watch::open(&server, &path).await;
        let request = async |path: &str| {
            let request = http::Request::get(path).body(kube::client::Body::empty()).unwrap();
            tower::ServiceExt::oneshot(server.service(), request)
                .await
                .map(|response| response.status().as_u16())
                .ok()
        };
        let outage = server.inject(faults::outage());
        assert_eq!(watch.next_summary().await, "broken");
        for path in [MAPS, path.as_str(), "/apis", "/version", "/readyz", "/openapi/v2"] {
            assert_eq!(request(path).await, None, "{path}");
        }
        assert_eq!((outage.hits(), outage.affected_watches()), (7, 1));
        // Direct writes are not requests.
        server.create(&configmap("a", "1")).unwrap();
        drop(outage);
        assert_eq!((request(MAPS).await, request("/apis").await), (Some(200), Some(200)));
        let mut watch = Watch::open(&server, &path).await;
        assert_eq!(watch.next_summary().await, format!("ADDED a {}", from + 1), "no change is lost");

        // With a condition on the resource, the rest of the server stays reachable.
        let _outage = server.inject(faults::outage().for_resource("configmaps"));
        assert_eq!(watch.next_summary().await, "broken");
        let responses = [request(MAPS).await, request("/api/v1/pods").await, request("/apis").await];
        assert_eq!(responses, [None, Some(200), Some(200)]);
    })
    .await;
}

/// Bug: during an outage, requests without a valid token or without permission got 401 or 403, and an exempted user
/// could not read discovery. Access control came first, and only the outage was checked for other paths. The tests used
/// full access.
#[tokio::test(start_paused = true)]
async fn outage_hides_access_control_and_respects_exemptions() {
    with_timeout(async {
        let server = server();
        let access = informer_apiserver::AccessControl::new()
            .token("root", informer_apiserver::User::admin("root"))
            .token("guest", informer_apiserver::User::new("guest"));
        let service = server.service_with_access(access);
        let request = async |token: &str, path: &str| {
            let request = http::Request::get(path).header("Authorization", format!("Bearer {token}"));
            let request = request.body(kube::client::Body::empty()).unwrap();
            let response = tower::ServiceExt::oneshot(service.clone(), request).await;
            response.map(|response| response.status().as_u16()).ok()
        };
        let responses = async |path: &str| {
            [request("wrong", path).await, request("guest", path).await, request("root", path).await]
        };
        assert_eq!(responses(MAPS).await, [Some(401), Some(403), Some(200)]);
        assert_eq!(responses("/metrics").await, [Some(401), Some(403), Some(200)]);

        let exemption = server.inject(faults::exempt().for_user("guest"));
        assert_eq!(exemption.hits(), 0);
        let outage = server.inject(faults::outage());
        for path in [MAPS, "/metrics"] {
            assert_eq!(responses(path).await, [None, Some(403), None], "{path}");
        }
        assert_eq!((request("guest", "/apis").await, request("root", "/apis").await), (Some(200), None));
        assert_eq!((exemption.hits(), outage.hits()), (3, 5));
        drop(exemption);
        assert_eq!(responses(MAPS).await, [None; 3]);
        drop(outage);

        let _outage = server.inject(faults::outage().for_user("guest"));
        assert_eq!(responses(MAPS).await, [Some(401), None, Some(200)]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn watch_resumes_after_restart_unless_it_missed_a_change() {
    with_timeout(async {
        let server = server();
        server.create(&configmap("a", "1")).unwrap();
        let from = server.resource_version();
        let path = format!("{WATCH}&resourceVersion={from}");
        let mut watch = Watch::open(&server, &path).await;
        assert!(watch.is_silent(1).await);
        server.restart();
        assert_eq!(watch.next_summary().await, "broken");
        let mut watch = Watch::open(&server, &path).await;
        server.create(&configmap("b", "1")).unwrap();
        assert_eq!(watch.next_summary().await, format!("ADDED b {}", from + 1));
        server.restart();
        assert_eq!(watch.next_summary().await, "broken");
        let mut late = Watch::open(&server, &path).await;
        assert!(late.next_summary().await.starts_with("ERROR 410"));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn truncate_breaks_watches_that_are_opened_later() {
    with_timeout(async {
        let server = server();
        server.create(&configmap("a", "1")).unwrap();
        let _guard = server.inject(faults::truncate(20));
        let mut watch = Watch::open(&server, WATCH).await;
        assert_eq!(watch.next_summary().await, "broken");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn break_watch_accepts_and_breaks_new_watches_while_active() {
    with_timeout(async {
        let server = server();
        let guard = server.inject(faults::break_watch().max_hits(2));
        for _ in 0..2 {
            let mut watch = Watch::open(&server, WATCH).await;
            assert_eq!(watch.next_summary().await, "broken");
        }
        let mut watch = Watch::open(&server, WATCH).await;
        assert!(watch.is_silent(1).await);
        assert_eq!((guard.hits(), guard.affected_watches()), (2, 3), "the third one reached the limit");
    })
    .await;
}
