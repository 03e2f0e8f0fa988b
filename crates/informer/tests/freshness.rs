//! How fresh a cache is and how anybody can know: waiting for versions, status, the error hook, audits, figures.
#![allow(clippy::unwrap_used)]

#[path = "common/cluster.rs"]
mod cluster;

use cluster::{
    Heard, LONG, asked, config_map, create_pods, cut_and, disturb, frame, gap, gap_without_change, live,
    notes, notes_of, pass, pod, until, with,
};
use informer::{
    Metrics, NotReached, Options, Problem, Report, ResourceVersion, SharedInformer, SharedInformerFactory,
    State, Trouble, WatchListPolicy,
};
use informer_apiserver::{ApiServer, Verb, faults};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn listing() -> Options {
    Options::default().watch_list(WatchListPolicy::Never)
}

fn version(number: u64) -> ResourceVersion {
    ResourceVersion::new(&number.to_string())
}

fn version_of(object: &Value) -> ResourceVersion {
    ResourceVersion::new(object["metadata"]["resourceVersion"].as_str().unwrap())
}

#[tokio::test(start_paused = true)]
async fn you_can_read_your_own_writes() {
    let server = ApiServer::new();
    let maps = live::<ConfigMap>(&server, Options::default()).await;
    let api: Api<ConfigMap> = Api::namespaced(server.client(), "default");
    for round in 0..20 {
        let map = serde_json::from_value(config_map("default", &format!("map-{round}"), "1")).unwrap();
        let mut created = api.create(&kube::api::PostParams::default(), &map).await.unwrap();
        let written = ResourceVersion::new(created.metadata.resource_version.as_deref().unwrap());
        maps.wait_for_version(&written, LONG).await.unwrap();
        assert!(maps.lister().get("default", &format!("map-{round}")).is_some());
        assert!(!maps.last_version().unwrap().is_before(&written));

        created.data.as_mut().unwrap().insert("v".to_owned(), "2".to_owned());
        let name = created.metadata.name.clone().unwrap();
        let updated = api.replace(&name, &kube::api::PostParams::default(), &created).await.unwrap();
        let written = ResourceVersion::new(updated.metadata.resource_version.as_deref().unwrap());
        maps.wait_for_version(&written, LONG).await.unwrap();
        let cached = maps.lister().get("default", &name).unwrap();
        assert_eq!(cached.typed().unwrap().data.as_ref().unwrap()["v"], "2");
    }
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_reached_needs_no_wait() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let pods = live::<Pod>(&server, Options::default()).await;
    let now = pods.last_version().unwrap();
    assert_eq!(now, version(server.version()));
    pods.wait_for_version(&now, Duration::ZERO).await.unwrap();
    pods.wait_for_version(&version(1), Duration::ZERO).await.unwrap();
    pods.shutdown(LONG).await.unwrap();
    pods.wait_for_version(&now, Duration::ZERO).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_version_may_begin_before_the_start() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let pods = SharedInformer::<Pod>::new(server.client());
    assert_eq!(pods.last_version(), None);
    let wanted = version(server.version());
    let waiting = tokio::spawn({
        let pods = pods.clone();
        async move { pods.wait_for_version(&wanted, LONG).await }
    });
    pass(seconds(5)).await;
    assert!(!waiting.is_finished());
    pods.start();
    waiting.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn c1_a_rewind_fails_the_waits_that_are_pending() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let backup = server.backup();
    create_pods(&server, &["b", "c"]);
    let heard = Heard::default();
    let pods = live::<Pod>(&server, heard.hook(Options::default())).await;
    let (_on, mut told) = notes(&pods);
    told.expect(&["+a initial", "+b initial", "+c initial"]).await;
    let wanted = version(server.version() + 100);
    let waiting = tokio::spawn({
        let pods = pods.clone();
        async move { pods.wait_for_version(&wanted, Duration::from_hours(24)).await }
    });
    pass(seconds(1)).await;
    server.restore(&backup);
    let error = tokio::time::timeout(Duration::from_hours(2), waiting).await.expect("never noticed").unwrap();
    let error = error.unwrap_err();
    assert_eq!(error.because, NotReached::Rewound, "{error}");
    told.expect(&["-b inferred", "-c inferred"]).await;
    let status = pods.status();
    assert_eq!((status.counters.rewinds, status.changes.rewinds), (1, 1));
    assert_eq!(pods.last_version().unwrap(), version(server.version()), "the truth, also behind what was");
    assert!(heard.any(|problem| matches!(problem, Problem::Server(Report::Rewound { .. }))));
    // A wait that begins now has nothing to do with it.
    let written = version_of(&server.create(&pod("default", "new")).unwrap());
    pods.wait_for_version(&written, LONG).await.unwrap();
    told.expect(&["+new"]).await;
}

#[tokio::test(start_paused = true)]
async fn versions_that_do_not_compare_are_refused_at_once() {
    let server = ApiServer::new();
    let pods = live::<Pod>(&server, Options::default()).await;
    for text in ["abc", "0", "", "12a"] {
        let error = pods.wait_for_version(&ResourceVersion::new(text), LONG).await.unwrap_err();
        assert_eq!(error.because, NotReached::NotComparable, "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn at_the_deadline_the_error_says_how_far_the_cache_was() {
    let server = ApiServer::new();
    let pods = SharedInformer::<Pod>::new(server.client());
    let error = pods.wait_for_version(&version(77), seconds(3)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "pods in all namespaces: version 77 was not reached: after 3s the cache is at no version: \
         not started (call start)"
    );
    pods.start();
    pods.wait_for_sync(LONG).await.unwrap();
    let begun = tokio::time::Instant::now();
    let error = pods.wait_for_version(&version(9_999), seconds(5)).await.unwrap_err();
    assert_eq!(begun.elapsed(), seconds(5));
    let at = server.version();
    assert_eq!(
        error.to_string(),
        format!("pods in all namespaces: version 9999 was not reached: after 5s the cache is at {at}: live")
    );
}

#[tokio::test(start_paused = true)]
async fn c10_a_stop_ends_the_waits_for_a_version() {
    let server = ApiServer::new();
    let pods = live::<Pod>(&server, Options::default()).await;
    let waiting = tokio::spawn({
        let pods = pods.clone();
        async move { pods.wait_for_version(&version(9_999), LONG).await }
    });
    pass(seconds(1)).await;
    pods.shutdown(LONG).await.unwrap();
    let error = tokio::time::timeout(seconds(1), waiting).await.expect("waits on").unwrap().unwrap_err();
    assert_eq!(error.because, NotReached::Stopped);
    let again = pods.wait_for_version(&version(9_999), LONG).await.unwrap_err();
    assert_eq!(again.because, NotReached::Stopped);
}

#[tokio::test(start_paused = true)]
async fn what_a_selector_hides_is_reached_with_the_next_bookmark() {
    let server = ApiServer::new();
    let options = Options::default().labels("app=db".parse().unwrap());
    let pods = live::<Pod>(&server, options).await;
    // Right after its initial events a stream tells once more where it stands.
    pass(seconds(2)).await;
    let hidden = version_of(&server.create(&pod("default", "web")).unwrap());
    assert!(pods.wait_for_version(&hidden, seconds(50)).await.is_err());
    pods.wait_for_version(&hidden, seconds(30)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn silence_grows_while_a_watch_is_stalled_and_staleness_when_it_is_given_up() {
    let server = ApiServer::new();
    let pods = live::<Pod>(&server, Options::default()).await;
    pass(seconds(130)).await;
    assert_eq!(pods.status().staleness(), Some(Duration::ZERO));
    assert!(pods.status().silence().unwrap() <= seconds(60), "bookmarks are signs of life");
    // The watch falls silent; those after it will get no answer.
    let stalled = disturb(&server, faults::stall_watch()).await;
    until(|| stalled.hits() == 1).await;
    let _held = server.fault(faults::hold());
    let begun = pods.status().silence().unwrap();
    pass(seconds(60)).await;
    let status = pods.status();
    assert_eq!((&status.state, status.staleness()), (&State::Live, Some(Duration::ZERO)));
    assert_eq!(status.silence().unwrap(), begun + seconds(60));
    // Three bookmarks are missing: it is given up (C11).
    until(|| pods.status().counters.silent == 1).await;
    pass(seconds(1)).await;
    let status = pods.status();
    assert!(matches!(status.state, State::Stale { .. }), "{:?}", status.state);
    assert!(status.staleness().unwrap() >= seconds(180), "{:?}", status.staleness());
    assert_eq!(status.staleness(), status.silence());
    assert_eq!(pods.metrics().staleness, pods.status().staleness());
}

#[tokio::test(start_paused = true)]
async fn staleness_counts_from_when_it_was_live_also_while_the_server_answers_errors() {
    // An error is a sign of life, but says nothing about the objects: a cache that was cut off ten minutes ago is ten minutes behind,
    // however recently the server said 500 or 403.
    for code in [500, 403] {
        let server = ApiServer::new();
        create_pods(&server, &["a"]);
        let pods = live::<Pod>(&server, Options::default()).await;
        let _broken = cut_and(&server, faults::answer(code));
        pass(LONG).await;
        let status = pods.status();
        assert_ne!(status.state, State::Live);
        let staleness = status.staleness().unwrap();
        assert!(staleness >= seconds(590), "after ten minutes of {code}: {staleness:?} ({})", status.state);
    }
}

#[tokio::test(start_paused = true)]
async fn the_status_can_be_watched() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let pods = SharedInformer::<Pod>::new(server.client());
    let mut statuses = pods.watch_status();
    assert_eq!(statuses.borrow_and_update().state, State::NotStarted);
    pods.start();
    let live = statuses.wait_for(|status| status.synced && status.state == State::Live);
    let first = tokio::time::timeout(LONG, live).await.unwrap().unwrap().version.clone().unwrap();
    create_pods(&server, &["b"]);
    let moved = statuses.wait_for(|status| status.version.as_ref() != Some(&first));
    let second = tokio::time::timeout(LONG, moved).await.unwrap().unwrap().version.clone().unwrap();
    assert!(first.is_before(&second));
    let _held = cut_and(&server, faults::hold());
    let stale = statuses.wait_for(|status| status.state != State::Live);
    assert!(tokio::time::timeout(LONG, stale).await.unwrap().unwrap().synced, "synced never goes back");
    pods.shutdown(LONG).await.unwrap();
    let stopped = statuses.wait_for(|status| status.state == State::Stopped);
    assert!(tokio::time::timeout(LONG, stopped).await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn c9_the_hook_hears_what_the_server_refuses() {
    let server = ApiServer::new();
    let heard = Heard::default();
    let forbidden = server.fault(faults::forbid("pods"));
    let pods = SharedInformer::<Pod>::with_options(server.client(), heard.hook(listing()));
    pods.start();
    let error = pods.wait_for_sync(LONG).await.unwrap_err();
    assert!(
        matches!(&error.state, State::Forbidden { because } if because.contains("cannot list")),
        "{error}"
    );
    assert!(heard.any(|problem| problem.trouble() == Some(Trouble::Forbidden)));
    drop(forbidden);

    let error_frame = server.fault(faults::error_frame(500).times(1));
    until(|| pods.status().state == State::Live && error_frame.hits() == 1).await;
    assert!(
        heard.any(|problem| problem.trouble() == Some(Trouble::Transient)
            && problem.to_string().starts_with("watch: ")),
        "{:?}",
        heard.texts()
    );

    gap(&server, "pods", || create_pods(&server, &["a"])).await;
    until(|| pods.lister().len() == 1).await;
    assert!(heard.any(|problem| problem.trouble() == Some(Trouble::Expired)));
}

#[tokio::test(start_paused = true)]
async fn c9_the_hook_hears_what_goes_wrong_here() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let heard = Heard::default();
    let pods = live::<Pod>(&server, heard.hook(Options::default().protobuf(false))).await;
    let on = pods.handler().name("shaky").on(|_| panic!("on purpose"));
    until(|| on.panics() == 1).await;
    let by_name = |problem: &Problem| matches!(problem, Problem::HandlerPanicked { handler, .. } if &**handler == "shaky");
    assert!(heard.any(by_name));
    let nobody =
        serde_json::json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"labels": {"secret": "hush"}}});
    let _forged = disturb(&server, faults::raw_frame(frame("ADDED", &nobody)).times(1)).await;
    until(|| heard.any(|problem| matches!(problem, Problem::Server(Report::Unreadable(_))))).await;
    assert!(!heard.texts().concat().contains("hush"), "contents are never told");
    assert_eq!(pods.metrics().wire.unreadable, 1);
}

#[tokio::test(start_paused = true)]
async fn c9_a_hook_that_panics_hurts_nobody() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let _refused = server.fault(faults::answer(500).times(2));
    let options = Options::default().on_error(|_, _| panic!("on purpose"));
    let pods = live::<Pod>(&server, options).await;
    assert_eq!(pods.lister().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_audit_finds_nothing_in_a_healthy_cache() {
    for options in [Options::default(), listing().page_size(2)] {
        let server = ApiServer::new();
        create_pods(&server, &["a", "b", "c"]);
        let heard = Heard::default();
        let pods = live::<Pod>(&server, heard.hook(options.relist_every(seconds(60)))).await;
        let (_on, mut told) = notes(&pods);
        told.expect(&["+a initial", "+b initial", "+c initial"]).await;
        for round in 0..7 {
            pass(seconds(30)).await;
            server.update(&with(pod("default", "b"), "/metadata/labels/round", round.to_string())).unwrap();
        }
        let status = pods.status();
        assert_eq!((status.counters.relists.audit, status.changes.drift), (3, 0));
        assert_eq!(told.take(), ["~b"; 6], "what changed, and nothing else");
        assert!(!heard.any(|problem| matches!(problem, Problem::Drift { .. })));
        let exact = asked(&server, Verb::List, "pods")
            .iter()
            .filter(|seen| seen.parameter("resourceVersionMatch").as_deref() == Some("Exact"))
            .count();
        assert!(exact >= 3, "compared at the very version of the cache");
    }
}

#[tokio::test(start_paused = true)]
async fn an_audit_tells_counts_and_repairs_drift() {
    let server = ApiServer::new();
    create_pods(&server, &["changed", "lost"]);
    let newest = server.create(&pod("default", "same")).unwrap();
    let heard = Heard::default();
    let pods =
        live::<Pod>(&server, heard.hook(Options::default().protobuf(false).relist_every(seconds(60)))).await;
    let (_on, mut told) = notes(&pods);
    told.expect(&["+changed initial", "+lost initial", "+same initial"]).await;

    // What no server sends: a deletion and a change that never were, at the current version.
    let at = &newest["metadata"]["resourceVersion"];
    let get = |name: &str| server.get("v1", "pods", Some("default"), name).unwrap();
    let lost = with(get("lost"), "/metadata/resourceVersion", at.clone());
    let changed = with(get("changed"), "/metadata/resourceVersion", at.clone());
    let changed = with(changed, "/metadata/labels/app", "forged");
    let ghost = with(with(get("same"), "/metadata/name", "ghost"), "/metadata/uid", "ghost");
    let forged = frame("DELETED", &lost) + &frame("MODIFIED", &changed) + &frame("ADDED", &ghost);
    let _forged = disturb(&server, faults::raw_frame(forged).times(1)).await;
    told.expect(&["-lost", "~changed", "+ghost"]).await;

    told.expect(&["-ghost inferred", "~changed", "+lost"]).await;
    assert_eq!((pods.status().changes.drift, pods.metrics().drift), (3, 3));
    assert!(heard.any(|problem| matches!(problem, Problem::Drift { changes: 3, .. })), "{:?}", heard.texts());
    assert_eq!(pods.lister().get("default", "changed").unwrap().labels().get("app"), Some("web"));
    pass(seconds(135)).await;
    assert_eq!((pods.status().counters.relists.audit, pods.status().changes.drift), (3, 3), "and no more");
    create_pods(&server, &["next"]);
    told.expect(&["+next"]).await;
}

#[tokio::test(start_paused = true)]
async fn figures_follow_what_happens() {
    let server = ApiServer::new();
    create_pods(&server, &["a", "b"]);
    let pods = SharedInformer::<Pod>::with_options(server.client(), Options::default().protobuf(false));
    let before = pods.metrics();
    assert_eq!((before.state, before.synced, before.objects, before.bytes), (State::NotStarted, false, 0, 0));
    assert_eq!((before.staleness, before.silence), (None, None));
    let (_on, mut told) = notes_of(pods.handler().name("notes"));
    pods.start();
    told.expect(&["+a initial", "+b initial"]).await;
    server.plant(&with(pod("default", "a"), "/spec/containers", "none")).unwrap();
    server.delete("v1", "pods", Some("default"), "b").unwrap();
    told.expect(&["~a", "-b"]).await;
    let broken = pods.lister().get("default", "a").unwrap();
    assert!(broken.typed().is_err() && broken.typed().is_err());
    gap_without_change(&server).await;
    until(|| pods.metrics().wire.replaces == 2).await;
    let m = pods.metrics();
    // The deletion of a pod is told to be near, which is an update, and then done.
    assert_eq!((m.added, m.updated, m.deleted, m.objects, m.decode_errors), (2, 2, 1, 1, 2));
    assert_eq!((m.wire.relists.first, m.wire.relists.forgotten, m.wire.expired), (1, 1, 1));
    assert!(m.synced && m.bytes > 0);
    assert_eq!((&*m.handlers[0].name, m.handlers[0].told, m.handlers[0].pending), ("notes", 4, 0));
}

/// The samples of a text for Prometheus, after checking that it is one.
#[track_caller]
fn samples(text: &str) -> Vec<(String, String)> {
    let (mut families, mut samples) = (BTreeSet::new(), Vec::new());
    let mut family = ("", "");
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').unwrap();
            assert!(!help.is_empty() && families.insert(name), "{name} has one HELP");
            let kind = lines.next().and_then(|line| line.strip_prefix("# TYPE ")?.strip_prefix(name));
            family = (name, kind.expect("TYPE follows HELP").trim());
            assert!(matches!(family.1, "gauge" | "counter"), "{family:?}");
            assert_eq!(family.1 == "counter", name.ends_with("_total"), "{name}");
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        let labels = series.strip_prefix(family.0).expect("samples stand with their family");
        assert!(labels.starts_with('{') && labels.ends_with('}'), "{line}");
        assert!(value.parse::<f64>().is_ok(), "{line}");
        samples.push((series.to_owned(), value.to_owned()));
    }
    let different: BTreeSet<_> = samples.iter().map(|(series, _)| series).collect();
    assert_eq!(different.len(), samples.len(), "no series stands there twice:\n{text}");
    samples
}

#[tokio::test(start_paused = true)]
async fn the_text_for_prometheus_is_well_formed_and_moves() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let factory = SharedInformerFactory::new(server.client());
    let (pods, maps) = (factory.informer::<Pod>(), factory.informer::<ConfigMap>());
    let name = "says \"hi\"\\\nand goes";
    let (_on, mut told) = notes_of(pods.handler().name(name));
    let (_twin, _) = notes_of(pods.handler().name(name));
    let early = samples(&factory.prometheus());
    assert!(early.iter().any(|(series, value)| series.contains("staleness") && value == "NaN"));
    factory.start();
    factory.wait_for_sync(LONG).await.unwrap();
    told.expect(&["+a initial"]).await;
    let find = |series: &str| {
        let all = samples(&factory.prometheus());
        let found = all.iter().find(|(known, _)| known == series);
        found.unwrap_or_else(|| unreachable!("{series} is not in {all:#?}")).1.clone()
    };
    let pods_of = |family: &str| find(&format!("{family}{{resource=\"pods in all namespaces\"}}"));
    assert_eq!((pods_of("informer_objects"), pods_of("informer_synced")), ("1".to_owned(), "1".to_owned()));
    assert_eq!(pods_of("informer_staleness_seconds"), "0.000");
    let told_to = r#"informer_handler_events_total{resource="pods in all namespaces",handler="says \"hi\"\\\nand goes",number="0"}"#;
    assert_eq!(find(told_to), "1");
    create_pods(&server, &["b"]);
    told.expect(&["+b"]).await;
    assert_eq!((pods_of("informer_objects"), find(told_to)), ("2".to_owned(), "2".to_owned()));
    assert_eq!(find(r#"informer_events_total{resource="pods in all namespaces",kind="added"}"#), "2");
    assert_eq!(find(r#"informer_state{resource="pods in all namespaces",state="live"}"#), "1");
    assert_eq!(find(r#"informer_relists_total{resource="configmaps in all namespaces",cause="first"}"#), "1");
    assert_eq!(maps.metrics().objects, 0);
    samples(&Metrics::prometheus(&[]));
}

#[tokio::test(start_paused = true)]
async fn two_selections_of_one_kind_are_two_series() {
    // Both were `pods in all namespaces`, or `pods in 2 namespaces`: the same series twice, which Prometheus refuses.
    let server = ApiServer::new();
    let factory = SharedInformerFactory::new(server.client());
    let web = factory.select(Options::default().labels("app=web".parse().unwrap()));
    let (_all, _web) = (factory.informer::<Pod>(), web.informer::<Pod>());
    let names =
        |names: [&str; 2]| factory.select(Options::default().namespaces(names)).informer::<ConfigMap>();
    let (_one, _other) = (names(["a", "b"]), names(["c", "d"]));
    samples(&factory.prometheus());
}
