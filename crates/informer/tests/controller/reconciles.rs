//! What a reconcile may do, and what happens to its key.

use super::{Running, event_log};
use crate::cluster::{advance_time, config_map, create_pods, pod, until, with};
use informer::SharedInformerFactory;
use informer::controller::{Controller, Outcome};
use informer::metrics::{self, Collect};
use informer::workqueue::RetryLimit;
use informer_apiserver::ApiServer;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

/// C14: with a concurrency of sixteen, no key is reconciled twice at the same time, and every change is
/// followed by a reconcile.
#[tokio::test(start_paused = true)]
async fn one_reconcile_per_key_at_a_time_and_one_after_every_change() {
    let server = ApiServer::new();
    let factory = SharedInformerFactory::new(server.client());
    // Number of active reconciles and newest value read, by key.
    let active: Arc<Mutex<BTreeMap<String, (usize, String)>>> = Arc::default();
    let peak_active = Arc::new(AtomicUsize::new(0));
    let (recorded, peak) = (Arc::clone(&active), Arc::clone(&peak_active));
    let controller = Controller::new::<ConfigMap>(&factory).concurrency(16);
    let running = Running::start(controller.reconcile(move |key, ctx| {
        let (recorded, peak) = (Arc::clone(&recorded), Arc::clone(&peak));
        async move {
            let name = key.name().to_owned();
            let all: usize = {
                let mut active = recorded.lock().unwrap();
                let of_key = active.entry(name.clone()).or_default();
                of_key.0 += 1;
                assert_eq!(of_key.0, 1, "two reconciles of {name} at the same time");
                active.values().map(|of_key| of_key.0).sum()
            };
            peak.fetch_max(all, Ordering::Relaxed);
            let seen = ctx.lister::<ConfigMap>().get_by_key(&key).unwrap().typed().unwrap().data.clone();
            advance_time(Duration::from_millis(7)).await;
            let mut active = recorded.lock().unwrap();
            active.insert(name, (0, seen.unwrap()["v"].clone()));
            Ok::<_, Infallible>(Outcome::Done)
        }
    }));
    running.reconciler.wait_until_running().await;
    for round in 0..20 {
        for number in 0..40 {
            let map = config_map("default", &format!("c{number}"), &round.to_string());
            if round == 0 {
                server.create(&map).unwrap()
            } else {
                server.update(&map).unwrap()
            };
        }
        advance_time(Duration::from_millis(3)).await;
    }
    let all_seen = || {
        let active = active.lock().unwrap();
        active.len() == 40 && active.values().all(|of_key| *of_key == (0, "19".to_owned()))
    };
    until(all_seen).await;
    assert_eq!(peak_active.load(Ordering::Relaxed), 16);
    assert_eq!(running.reconciler.metrics().concurrency, 16);
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn error_is_retried_with_growing_delays() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let factory = SharedInformerFactory::new(server.client());
    let tries: Arc<Mutex<Vec<(Instant, u32)>>> = Arc::default();
    let recorded = Arc::clone(&tries);
    let running = Running::start(Controller::new::<Pod>(&factory).reconcile(move |_, ctx| {
        let mut tries = recorded.lock().unwrap();
        tries.push((Instant::now(), ctx.retries()));
        let ended = if tries.len() <= 8 { Err("not yet") } else { Ok(Outcome::Done) };
        async move { ended }
    }));
    until(|| tries.lock().unwrap().len() == 9).await;
    let times = tries.lock().unwrap().clone();
    assert_eq!(times.iter().map(|(_, retries)| *retries).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    let waits: Vec<Duration> = times.windows(2).map(|two| two[1].0 - two[0].0).collect();
    assert!(waits.is_sorted() && waits[7] > 50 * waits[0], "{waits:?}");
    // After a success the backoff starts again.
    server.update(&with(pod("default", "a"), "/spec/containers/0/image", "other")).unwrap();
    until(|| tries.lock().unwrap().len() == 10).await;
    assert_eq!(tries.lock().unwrap()[9].1, 0);
    assert_eq!(running.reconciler.metrics().failed, 8);
    running.stop().await.unwrap();
}

/// P13: a panicking reconcile function stopped the whole controller.
#[tokio::test(start_paused = true)]
async fn p13_panic_affects_only_its_own_key() {
    let server = ApiServer::new();
    create_pods(&server, &["bad", "early", "good"]);
    let (sender, mut reconciles) = event_log();
    let factory = SharedInformerFactory::new(server.client());
    let running = Running::start(Controller::new::<Pod>(&factory).reconcile(move |key, ctx| {
        let _ = sender.send(format!("{} {}", key.name(), ctx.retries()));
        // Panics before the future is created, and inside of it.
        assert!(key.name() != "early" || ctx.retries() > 0, "intended panic");
        async move {
            assert!(key.name() != "bad" || ctx.retries() > 1, "intended panic");
            Ok::<_, Infallible>(Outcome::Done)
        }
    }));
    reconciles.expect(&["bad 0", "early 0", "good 0"]).await;
    let mut again = vec![];
    while again.len() < 3 {
        again.push(reconciles.0.recv().await.unwrap());
    }
    again.sort();
    assert_eq!(again, ["bad 1", "bad 2", "early 1"]);
    until(|| running.reconciler.metrics().succeeded == 3).await;
    assert_eq!(running.reconciler.metrics().panicked, 3);
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn hanging_reconcile_times_out_and_is_retried() {
    let server = ApiServer::new();
    create_pods(&server, &["hangs", "other"]);
    let (sender, mut reconciles) = event_log();
    let factory = SharedInformerFactory::new(server.client());
    let controller =
        Controller::new::<Pod>(&factory).reconcile_timeout(Duration::from_secs(10)).concurrency(2);
    let running = Running::start(controller.reconcile(move |key, ctx| {
        let _ = sender.send(format!("{} {}", key.name(), ctx.retries()));
        async move {
            if key.name() == "hangs" && ctx.retries() == 0 {
                pending::<()>().await;
            }
            Ok::<_, Infallible>(Outcome::Done)
        }
    }));
    reconciles.expect(&["hangs 0", "other 0"]).await;
    advance_time(Duration::from_secs(5)).await;
    let (key, since) = running.reconciler.active_reconciles().remove(0);
    assert_eq!(key.name(), "hangs");
    assert!(since >= Duration::from_secs(5));
    reconciles.expect(&["hangs 1"]).await;
    assert_eq!(running.reconciler.metrics().timed_out, 1);
    running.stop().await.unwrap();
}

/// A key that always fails is retried less and less often and affects no other key.
#[tokio::test(start_paused = true)]
async fn failing_key_is_retried_less_and_less_often() {
    let server = ApiServer::new();
    create_pods(&server, &["fails"]);
    let factory = SharedInformerFactory::new(server.client());
    let running = Running::start(
        Controller::new::<Pod>(&factory).reconcile(|_, _| async { Err::<Outcome, _>("always") }),
    );
    advance_time(Duration::from_secs(86_400)).await;
    let failed = running.reconciler.metrics().failed;
    // Eighteen doublings from 5 ms to 1,000 s, then one per 1,000 s; delays vary by up to a fifth.
    assert!((80..=150).contains(&failed), "{failed} attempts in a day");
    running.stop().await.unwrap();
}

/// Regression (kubernetes/kubernetes#132805): each of many events of a failing object doubled its delay. The
/// tests of failing keys had no events.
#[tokio::test(start_paused = true)]
async fn events_of_a_failing_object_do_not_increase_its_delay() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let factory = SharedInformerFactory::new(server.client());
    let retries = Arc::new(AtomicU32::new(0));
    let recorded = Arc::clone(&retries);
    let running = Running::start(Controller::new::<Pod>(&factory).reconcile(move |_, ctx| {
        recorded.store(ctx.retries(), Ordering::Relaxed);
        async { Err::<Outcome, _>("always") }
    }));
    running.reconciler.wait_until_running().await;
    for number in 0..200 {
        let label = format!("l{number}");
        server.update(&with(pod("default", "a"), "/metadata/labels/app", label)).unwrap();
        advance_time(Duration::from_millis(50)).await;
    }
    // 5 ms, doubled eleven times, are ten seconds.
    assert!(retries.load(Ordering::Relaxed) <= 11, "{retries:?}");
    assert!(running.reconciler.metrics().failed >= 200);
    running.stop().await.unwrap();
}

/// 1,000 pods fail for a minute: at most 100 retries start per second, and all succeed soon after. Without the
/// limit, more start.
#[tokio::test(start_paused = true)]
async fn retries_of_many_failing_keys_are_limited() {
    for limit in [Some(RetryLimit::default()), None] {
        let server = ApiServer::new();
        let factory = SharedInformerFactory::new(server.client());
        for number in 0..1_000 {
            server.create(&pod("default", &format!("p{number}"))).unwrap();
        }
        let is_down = Arc::new(AtomicBool::new(true));
        let retries: Arc<Mutex<Vec<Instant>>> = Arc::default();
        let (down, recorded) = (Arc::clone(&is_down), Arc::clone(&retries));
        let mut controller = Controller::new::<Pod>(&factory).concurrency(8);
        if limit.is_none() {
            controller = controller.retry_limit(limit);
        }
        let running = Running::start(controller.reconcile(move |_, ctx| {
            if ctx.retries() > 0 {
                recorded.lock().unwrap().push(Instant::now());
            }
            let down = Arc::clone(&down);
            async move {
                advance_time(Duration::from_millis(2)).await;
                if down.load(Ordering::Relaxed) { Err("down") } else { Ok(Outcome::Done) }
            }
        }));
        until(|| running.reconciler.metrics().failed >= 1_000).await;
        advance_time(Duration::from_secs(60)).await;
        let starts = std::mem::take(&mut *retries.lock().unwrap());
        let window = Duration::from_secs(1);
        let from = |first: usize| starts[first..].partition_point(|start| *start < starts[first] + window);
        let max = (0..starts.len()).map(from).max().unwrap();
        assert_eq!(max <= 100, limit.is_some(), "{max} retries per second");
        is_down.store(false, Ordering::Relaxed);
        let end = Instant::now();
        until(|| running.reconciler.metrics().succeeded >= 1_000).await;
        assert!(limit.is_none() || end.elapsed() < Duration::from_secs(40), "{:?}", end.elapsed());
        running.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn last_outcome_decides_the_next_reconcile() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let (sender, mut reconciles) = event_log();
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
                _ => Outcome::RequeueAfter(Duration::from_secs(60)),
            })
        }
    }));
    let update = |image: &str| {
        server.update(&with(pod("default", "a"), "/spec/containers/0/image", image)).unwrap();
    };
    reconciles.expect(&["nginx 0", "nginx 60"]).await;
    advance_time(Duration::from_secs(30)).await;
    // A reconcile half-way to the next one restarts the minute.
    update("other");
    reconciles.expect(&["other 90", "other 150"]).await;
    advance_time(Duration::from_secs(10)).await;
    update("done");
    reconciles.expect(&["done 160"]).await;
    advance_time(Duration::from_secs(3600)).await;
    update("bad");
    reconciles.expect(&["bad 3760"]).await;
    advance_time(Duration::from_secs(3600)).await;
    assert!(reconciles.is_empty());
    let metrics = running.reconciler.metrics();
    assert_eq!((metrics.succeeded, metrics.requeued, metrics.terminal, metrics.failed), (1, 4, 1, 0));
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn success_resets_the_failures() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let (sender, mut reconciles) = event_log();
    let factory = SharedInformerFactory::new(server.client());
    let count = AtomicUsize::new(0);
    let running = Running::start(Controller::new::<Pod>(&factory).reconcile(move |_, ctx| {
        let _ = sender.send(ctx.retries().to_string());
        let failed = count.fetch_add(1, Ordering::Relaxed) < 3;
        let again = Outcome::RequeueAfter(Duration::from_secs(60));
        async move { if failed { Err("not yet") } else { Ok(again) } }
    }));
    reconciles.expect(&["0", "1", "2", "3", "0", "0"]).await;
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn metrics_have_controller_runtime_names() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let factory = SharedInformerFactory::new(server.client());
    let controller = Controller::new::<Pod>(&factory).name("pod-labeller").concurrency(3);
    let running = Running::start(controller.reconcile(|_, _| async { Ok::<_, Infallible>(Outcome::Done) }));
    until(|| running.reconciler.metrics().succeeded == 1).await;
    let text = metrics::encode([&running.reconciler as &dyn Collect]);
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
