//! The library of faults: each does what it says, to whom it says, for as long as its guard lives.

#![allow(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

mod common;

use common::{Watch, by, configmap, raw, send, server};
use std::time::Duration;

use informer_apiserver::{Verb, faults};
use tokio::time::Instant;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WATCH: &str = "/api/v1/namespaces/default/configmaps?watch=1";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
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
            r#"secrets is forbidden: User "admin" cannot list resource "secrets" in API group "" at the cluster scope"#
        );
        drop(guard);
        assert_eq!(raw(&server, "/api/v1/secrets").await.0, 200);
        // The subresource was left out, as if the whole pod were meant.
        let _guard = server.fault(faults::forbid("pods"));
        assert_eq!(
            raw(&server, "/api/v1/namespaces/default/pods/p/status").await.1["message"],
            r#"pods "p" is forbidden: User "admin" cannot get resource "pods/status" in API group "" in the namespace "default""#
        );
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

#[tokio::test(start_paused = true)]
async fn rules_meet_a_request_one_after_the_other() {
    by(async {
        let server = server();
        let _first = server.fault(faults::pass().of("configmaps").times(1));
        let slow = server.fault(faults::delay(Duration::from_secs(4)).of("configmaps"));
        let _busy = server.fault(faults::too_many_requests(2).on(Verb::List));
        let began = Instant::now();
        assert_eq!(raw(&server, MAPS).await.0, 200, "let pass");
        assert_eq!(began.elapsed().as_secs(), 0);
        let answer = send(&server, "GET", MAPS, "application/json", None).await;
        assert_eq!((answer.status().as_u16(), began.elapsed().as_secs()), (429, 4));
        assert_eq!(answer.headers()["retry-after"], "2");
        // A delay is over with its guard, and the next rule has its turn.
        let (code, ()) = tokio::join!(async { raw(&server, MAPS).await.0 }, async {
            let _ = tokio::time::timeout(Duration::from_secs(1), std::future::pending::<()>()).await;
            drop(slow);
        });
        assert_eq!((code, began.elapsed().as_secs()), (429, 5));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn chance_follows_from_the_seed() {
    by(async {
        let codes = async |seed: u64| {
            let server = server();
            let guard = server.fault(faults::status(500).of("configmaps").chance(30, seed));
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
async fn the_position_is_lost_at_once() {
    by(async {
        let server = server();
        let mut watch = Watch::open(&server, WATCH).await;
        let guard = server.fault(faults::gone().of("configmaps"));
        assert!(watch.told().await.starts_with("ERROR 410 too old resource version"));
        assert_eq!(watch.told().await, "end");
        let (code, status) = raw(&server, MAPS).await;
        assert_eq!((code, status["reason"].as_str()), (410, Some("Expired")));
        assert_eq!((guard.hits(), guard.reached_watches()), (2, 1));
        assert_eq!(raw(&server, &format!("{MAPS}/a")).await.0, 404, "reads of one object have no position");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn connections_break_before_headers_and_bodies_after_some_bytes() {
    by(async {
        let server = server();
        server.create(&configmap("a", "1")).unwrap();
        let broken = server.fault(faults::drop_connection().of("configmaps").times(1));
        let request = http::Request::get(MAPS).body(kube::client::Body::empty()).unwrap();
        assert!(tower::ServiceExt::oneshot(server.service(), request).await.is_err());
        assert_eq!(broken.hits(), 1);

        let body = async || {
            let answer = send(&server, "GET", MAPS, "application/json", None).await;
            let read = http_body_util::BodyExt::collect(answer.into_body());
            tokio::time::timeout(Duration::from_hours(1), read).await
        };
        let guard = server.fault(faults::truncate(20));
        assert!(body().await.unwrap().is_err(), "broken");
        drop(guard);
        let guard = server.fault(faults::truncate(20).cleanly());
        assert_eq!(body().await.unwrap().unwrap().to_bytes().len(), 20);
        drop(guard);
        let _guard = server.fault(faults::truncate(20).silently());
        assert!(body().await.is_err(), "nothing more, and no end");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_half_open_watch_stays_so() {
    by(async {
        let server = server();
        let mut watch = Watch::open(&server, &format!("{WATCH}&timeoutSeconds=5")).await;
        let guard = server.fault(faults::half_open());
        assert!(watch.is_silent(10).await);
        drop(guard);
        server.create(&configmap("a", "1")).unwrap();
        server.restart();
        assert!(watch.is_silent(100).await, "not even its end is told");
        assert_eq!(server.open_watches(), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn frames_are_dropped_doubled_spoilt_and_cut() {
    by(async {
        let server = server();
        let from = server.version();
        let path = format!("{WATCH}&resourceVersion={from}");
        for name in ["a", "b", "c", "d"] {
            server.create(&configmap(name, "1")).unwrap();
        }
        let names = |told: Vec<String>| -> Vec<String> {
            told.iter().map(|line| line.split(' ').nth(1).unwrap_or(line).to_owned()).collect()
        };
        let guard = server.fault(faults::drop_frame().after_frames(1).frames(2));
        let mut watch = Watch::open(&server, &path).await;
        assert_eq!(names(watch.tell(2).await), ["a", "d"]);
        assert_eq!(guard.hits(), 2);
        drop(guard);

        let one = server.fault(faults::duplicate_frame());
        let two = server.fault(faults::duplicate_frame().after_frames(2));
        let mut watch = Watch::open(&server, &path).await;
        assert_eq!(names(watch.tell(6).await), ["a", "a", "b", "c", "c", "d"]);
        drop((one, two));

        let guard = server.fault(faults::cut_mid_frame().after_frames(1).times(1));
        let mut watch = Watch::open(&server, &path).await;
        assert_eq!(names(watch.tell(2).await), ["a", "broken"]);
        assert_eq!(guard.hits(), 1);
        drop(guard);

        let guard = server.fault(faults::undecodable_object().on(Verb::Watch).after_frames(1));
        let mut watch = Watch::open(&server, &path).await;
        watch.told().await;
        let common::Got::Frame(frame) = watch.next().await else { panic!("no frame") };
        assert_eq!(
            (&frame["object"]["spec"], &frame["object"]["metadata"]["name"]),
            (&7.into(), &"b".into())
        );
        drop(guard);

        let _guard = server.fault(faults::undecodable_object().on(Verb::List));
        let (_, list) = raw(&server, MAPS).await;
        assert_eq!((&list["items"][0]["spec"], list["items"][1].get("spec")), (&7.into(), None));
        assert_eq!(list["items"].as_array().map(Vec::len), Some(4));
    })
    .await;
}

/// Lists in YAML, protobuf or gzip, and tables, went out as they were, and the rule was counted all the same; so was an empty list.
#[tokio::test(start_paused = true)]
async fn lists_are_spoilt_in_every_form() {
    by(async {
        let server = server();
        let guard = server.fault(faults::undecodable_object().on(Verb::List));
        assert_eq!(raw(&server, MAPS).await.1["items"], serde_json::json!([]));
        assert_eq!(guard.hits(), 0, "there was nothing to spoil");
        drop(guard);
        for name in ["a", "b"] {
            server.create(&configmap(name, &"long ".repeat(20_000))).unwrap();
        }
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        for (accept, packed) in
            [("application/json", true), ("application/yaml", false), (PROTOBUF, false), (table, false)]
        {
            let read = async || {
                let request = http::Request::get(MAPS).header("accept", accept);
                let request = if packed { request.header("accept-encoding", "gzip") } else { request };
                let request = request.body(kube::client::Body::empty()).unwrap();
                let answer = tower::ServiceExt::oneshot(server.service(), request).await.unwrap();
                assert_eq!(answer.headers().contains_key("content-encoding"), packed);
                let bytes = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
                let unpack = || std::io::read_to_string(flate2::read::GzDecoder::new(&bytes[..])).unwrap();
                if packed { unpack().into_bytes() } else { bytes.to_vec() }
            };
            let good = read().await;
            let guard = server.fault(faults::undecodable_object().on(Verb::List).times(1));
            let bad = read().await;
            assert_eq!((read().await, guard.hits()), (good.clone(), 1), "{accept}: only once");
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

/// In protobuf, spoilt objects were whole, errors and frames without an object were JSON, and bookmarks were not known as such.
#[tokio::test(start_paused = true)]
async fn watches_in_protobuf_are_disturbed_in_protobuf() {
    by(async {
        let server = server();
        server.create(&configmap("a", "1")).unwrap();
        let path = format!("{WATCH}&{WATCH_LIST}");
        let mut watch = Watch::open_as(&server, &path, PROTOBUF).await;
        let good = watch.next_protobuf().await.unwrap();
        let guard = server.fault(faults::undecodable_object().on(Verb::Watch));
        let mut watch = Watch::open_as(&server, &path, PROTOBUF).await;
        assert_eq!(watch.next_protobuf().await.unwrap().len(), good.len() + 2);
        assert_eq!(guard.hits(), 1);
        drop(guard);
        let guard = server.fault(faults::undecodable_object().on(Verb::Watch).after_frames(1));
        let mut watch = Watch::open_as(&server, &path, PROTOBUF).await;
        assert_eq!(watch.next_protobuf().await.unwrap(), good);
        assert!(watch.next_protobuf().await.unwrap()[2..].starts_with(b"BOOKMARK"));
        assert_eq!(guard.hits(), 0, "a bookmark has no object");
        drop(guard);

        let guard = server.fault(faults::undecodable_frame());
        let mut watch = Watch::open_as(&server, &path, PROTOBUF).await;
        assert_eq!(watch.next_protobuf().await.unwrap(), b"\x0a\x08MODIFIED\x12\x03\x0a\x017");
        assert_eq!(watch.next_protobuf().await.unwrap(), good);
        drop(guard);

        let _guard = server.fault(faults::error_frame(410));
        let answer = send(&server, "GET", WATCH, PROTOBUF, None).await;
        assert_eq!(answer.headers()["content-type"], format!("{PROTOBUF};stream=watch"));
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
async fn a_lagging_replica_shows_old_states_to_those_who_allow_it() {
    by(async {
        let server = server();
        for name in ["a", "b", "c", "d"] {
            server.create(&configmap(name, "1")).unwrap();
        }
        let newest = server.version();
        let _guard = server.fault(faults::stale_read().behind(2).of("configmaps"));
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
        let _further = server.fault(faults::stale_read().behind(1_000).of("configmaps"));
        assert_eq!(list("?resourceVersion=0").await, (0, 1), "no list has the version 0");
        server.compact();
        assert_eq!(list("?resourceVersion=0").await, (4, newest), "the rest is forgotten");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn schedules_repeat_themselves() {
    by(async {
        let shown = |seed: u64| -> Vec<String> {
            let turns = faults::Schedule::seeded(seed).of("pods").take(300);
            turns.map(|turn| format!("{:?} {} {:?}", turn.start, turn.rule, turn.lasts)).collect()
        };
        assert_eq!(shown(3), shown(3));
        assert_ne!(shown(3), shown(4));
        let server = server();
        faults::Schedule::seeded(3).play(&server, Duration::from_mins(10)).await;
        assert_eq!(raw(&server, MAPS).await.0, 200, "nothing is left in force");
        let busy = faults::status(429).retry_after(2).on(Verb::List).of("pods").times(3);
        assert_eq!(busy.to_string(), "status 429 of list pods, 3 times");
    })
    .await;
}
