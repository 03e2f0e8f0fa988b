//! What a turn may do, and what becomes of its key.

use crate::cluster::{config_map, create_pods, pass, pod, until, with};
use crate::{Running, diary};
use informer::{Controller, Outcome, SharedInformerFactory};
use informer_apiserver::ApiServer;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

/// C14: with sixteen at a time, no key has two turns at once, and every change is followed by one.
#[tokio::test(start_paused = true)]
async fn one_turn_per_key_at_a_time_and_one_after_every_change() {
    let server = ApiServer::new();
    let factory = SharedInformerFactory::new(server.client());
    // How many turns go on, and the newest value that one has seen, by key.
    let going: Arc<Mutex<BTreeMap<String, (usize, String)>>> = Arc::default();
    let most = Arc::new(AtomicUsize::new(0));
    let (noted, peak) = (Arc::clone(&going), Arc::clone(&most));
    let controller = Controller::new::<ConfigMap>(&factory).concurrency(16);
    let running = Running::start(controller.reconcile(move |key, ctx| {
        let (noted, peak) = (Arc::clone(&noted), Arc::clone(&peak));
        async move {
            let name = key.name().to_owned();
            let all: usize = {
                let mut going = noted.lock().unwrap();
                let of_key = going.entry(name.clone()).or_default();
                of_key.0 += 1;
                assert_eq!(of_key.0, 1, "two turns of {name}");
                going.values().map(|of_key| of_key.0).sum()
            };
            peak.fetch_max(all, Ordering::Relaxed);
            let seen = ctx.lister::<ConfigMap>().get_by_key(&key).unwrap().typed().unwrap().data.clone();
            pass(Duration::from_millis(7)).await;
            let mut going = noted.lock().unwrap();
            going.insert(name, (0, seen.unwrap()["v"].clone()));
            Ok::<_, Infallible>(Outcome::Done)
        }
    }));
    running.reconciler.running().await;
    for round in 0..20 {
        for number in 0..40 {
            let map = config_map("default", &format!("c{number}"), &round.to_string());
            if round == 0 {
                server.create(&map).unwrap()
            } else {
                server.update(&map).unwrap()
            };
        }
        pass(Duration::from_millis(3)).await;
    }
    let all_seen = || {
        let going = going.lock().unwrap();
        going.len() == 40 && going.values().all(|of_key| *of_key == (0, "19".to_owned()))
    };
    until(all_seen).await;
    assert_eq!(most.load(Ordering::Relaxed), 16);
    assert_eq!(running.reconciler.metrics().concurrency, 16);
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_error_is_tried_again_after_waits_that_grow() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let factory = SharedInformerFactory::new(server.client());
    let tries: Arc<Mutex<Vec<(Instant, u32)>>> = Arc::default();
    let noted = Arc::clone(&tries);
    let running = Running::start(Controller::new::<Pod>(&factory).reconcile(move |_, ctx| {
        let mut tries = noted.lock().unwrap();
        tries.push((Instant::now(), ctx.retries()));
        let ended = if tries.len() <= 8 { Err("not yet") } else { Ok(Outcome::Done) };
        async move { ended }
    }));
    until(|| tries.lock().unwrap().len() == 9).await;
    let times = tries.lock().unwrap().clone();
    assert_eq!(times.iter().map(|(_, retries)| *retries).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    let waits: Vec<Duration> = times.windows(2).map(|two| two[1].0 - two[0].0).collect();
    assert!(waits.is_sorted() && waits[7] > 50 * waits[0], "{waits:?}");
    // Having gone well, it begins anew.
    server.update(&with(pod("default", "a"), "/spec/containers/0/image", "other")).unwrap();
    until(|| tries.lock().unwrap().len() == 10).await;
    assert_eq!(tries.lock().unwrap()[9].1, 0);
    assert_eq!(running.reconciler.metrics().failed, 8);
    running.stop().await.unwrap();
}

/// P13: a reconciler that panicked took the whole controller down.
#[tokio::test(start_paused = true)]
async fn p13_a_panic_hurts_its_own_key_alone() {
    let server = ApiServer::new();
    create_pods(&server, &["bad", "early", "good"]);
    let (sender, mut turns) = diary();
    let factory = SharedInformerFactory::new(server.client());
    let running = Running::start(Controller::new::<Pod>(&factory).reconcile(move |key, ctx| {
        let _ = sender.send(format!("{} {}", key.name(), ctx.retries()));
        // Before there is a future, and inside of it.
        assert!(key.name() != "early" || ctx.retries() > 0, "on purpose");
        async move {
            assert!(key.name() != "bad" || ctx.retries() > 1, "on purpose");
            Ok::<_, Infallible>(Outcome::Done)
        }
    }));
    turns.expect(&["bad 0", "early 0", "good 0"]).await;
    let mut again = vec![];
    while again.len() < 3 {
        again.push(turns.0.recv().await.unwrap());
    }
    again.sort();
    assert_eq!(again, ["bad 1", "bad 2", "early 1"]);
    until(|| running.reconciler.metrics().done == 3).await;
    assert_eq!(running.reconciler.metrics().panicked, 3);
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_hangs_ends_in_time_and_is_tried_again() {
    let server = ApiServer::new();
    create_pods(&server, &["hangs", "other"]);
    let (sender, mut turns) = diary();
    let factory = SharedInformerFactory::new(server.client());
    let controller = Controller::new::<Pod>(&factory).timeout(Duration::from_secs(10)).concurrency(2);
    let running = Running::start(controller.reconcile(move |key, ctx| {
        let _ = sender.send(format!("{} {}", key.name(), ctx.retries()));
        async move {
            if key.name() == "hangs" && ctx.retries() == 0 {
                pending::<()>().await;
            }
            Ok::<_, Infallible>(Outcome::Done)
        }
    }));
    turns.expect(&["hangs 0", "other 0"]).await;
    pass(Duration::from_secs(5)).await;
    let (held, since) = running.reconciler.turns().remove(0);
    assert_eq!(held.name(), "hangs");
    assert!(since >= Duration::from_secs(5));
    turns.expect(&["hangs 1"]).await;
    assert_eq!(running.reconciler.metrics().timed_out, 1);
    running.stop().await.unwrap();
}

/// A key that always fails costs less and less, and nobody else anything.
#[tokio::test(start_paused = true)]
async fn a_key_that_always_fails_is_tried_ever_more_seldom() {
    let server = ApiServer::new();
    create_pods(&server, &["fails"]);
    let factory = SharedInformerFactory::new(server.client());
    let running = Running::start(
        Controller::new::<Pod>(&factory).reconcile(|_, _| async { Err::<Outcome, _>("always") }),
    );
    pass(Duration::from_hours(24)).await;
    let failed = running.reconciler.metrics().failed;
    // Eighteen doublings from 5 ms to 1,000 s, then one in 1,000 s; waits are up to a fifth shorter or longer.
    assert!((80..=150).contains(&failed), "{failed} tries in a day");
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_last_turn_says_when_the_next_one_comes() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let (sender, mut turns) = diary();
    let factory = SharedInformerFactory::new(server.client());
    let began = Instant::now();
    let running = Running::start(Controller::new::<Pod>(&factory).reconcile(move |_, ctx| {
        let image = ctx.lister::<Pod>().get("default", "a").unwrap().typed().unwrap();
        let image = image.spec.as_ref().unwrap().containers[0].image.clone().unwrap();
        let _ = sender.send(format!("{image} {}", began.elapsed().as_secs()));
        async move {
            Ok::<_, Infallible>(match image.as_str() {
                "done" => Outcome::Done,
                "bad" => Outcome::terminal("never"),
                _ => Outcome::RequeueAfter(Duration::from_mins(1)),
            })
        }
    }));
    let update = |image: &str| {
        server.update(&with(pod("default", "a"), "/spec/containers/0/image", image)).unwrap();
    };
    turns.expect(&["nginx 0", "nginx 60"]).await;
    pass(Duration::from_secs(30)).await;
    // Half-way to the next turn there is one, and the minute begins anew.
    update("other");
    turns.expect(&["other 90", "other 150"]).await;
    pass(Duration::from_secs(10)).await;
    update("done");
    turns.expect(&["done 160"]).await;
    pass(Duration::from_hours(1)).await;
    update("bad");
    turns.expect(&["bad 3760"]).await;
    pass(Duration::from_hours(1)).await;
    assert!(turns.is_empty());
    let metrics = running.reconciler.metrics();
    assert_eq!((metrics.done, metrics.requeued, metrics.terminal, metrics.failed), (1, 4, 1, 0));
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_goes_well_at_last_has_no_failures_left() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let (sender, mut turns) = diary();
    let factory = SharedInformerFactory::new(server.client());
    let count = AtomicUsize::new(0);
    let running = Running::start(Controller::new::<Pod>(&factory).reconcile(move |_, ctx| {
        let _ = sender.send(ctx.retries().to_string());
        let failed = count.fetch_add(1, Ordering::Relaxed) < 3;
        let again = Outcome::RequeueAfter(Duration::from_mins(1));
        async move { if failed { Err("not yet") } else { Ok(again) } }
    }));
    turns.expect(&["0", "1", "2", "3", "0", "0"]).await;
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn figures_have_the_names_that_dashboards_know() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let factory = SharedInformerFactory::new(server.client());
    let controller = Controller::new::<Pod>(&factory).name("pod-labeller").concurrency(3);
    let running = Running::start(controller.reconcile(|_, _| async { Ok::<_, Infallible>(Outcome::Done) }));
    until(|| running.reconciler.metrics().done == 1).await;
    let text = informer::controllers_prometheus(std::slice::from_ref(&running.reconciler));
    for line in [
        "controller_runtime_reconcile_total{controller=\"pod-labeller\",result=\"success\"} 1",
        "controller_runtime_reconcile_errors_total{controller=\"pod-labeller\"} 0",
        "controller_runtime_max_concurrent_reconciles{controller=\"pod-labeller\"} 3",
        "controller_runtime_active_workers{controller=\"pod-labeller\"} 0",
        "controller_runtime_reconcile_time_seconds_count{controller=\"pod-labeller\"} 1",
        "workqueue_adds_total{name=\"pod-labeller\"} 1",
    ] {
        assert!(text.contains(&format!("\n{line}\n")), "{line}:\n{text}");
    }
    running.stop().await.unwrap();
}
