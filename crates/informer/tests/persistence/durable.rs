//! Durable handlers: what they have acknowledged survives the process.

use super::{Disk, contents, saved_on, synced};
use crate::cluster::{EventLog, TIMEOUT, advance_time, config_map, describe, log_events_with, until};
use informer::status::Diagnostic;
use informer::{Event, InformerOptions, Registration, SharedInformer};
use informer_apiserver::ApiServer;
use k8s_openapi::api::core::v1::ConfigMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn durable(informer: &SharedInformer<ConfigMap>) -> (Registration, EventLog) {
    log_events_with(informer.handler().durable("test"))
}

fn create(server: &ApiServer, names: &[&str]) {
    for name in names {
        server.create(&config_map("default", name, "1")).unwrap();
    }
}

fn delete(server: &ApiServer, name: &str) {
    server.delete("v1", "configmaps", Some("default"), name).unwrap();
}

/// Ends the process in order.
async fn shutdown(informer: SharedInformer<ConfigMap>) {
    informer.shutdown(TIMEOUT).await.unwrap();
}

/// A process with a durable handler that has received these events, and nothing else.
async fn expect(server: &ApiServer, disk: &Disk, events: &[&str]) -> SharedInformer<ConfigMap> {
    let informer = synced(server, saved_on(disk)).await;
    let (registration, mut log) = durable(&informer);
    log.expect(events).await;
    advance_time(Duration::from_secs(3)).await;
    assert_eq!(log.take(), [""; 0]);
    registration.detach();
    informer
}

/// A server with the objects `a`, `b` and `c`, which a durable handler knows.
async fn known() -> (ApiServer, Disk) {
    let (server, disk) = (ApiServer::new(), Disk::default());
    create(&server, &["a", "b", "c"]);
    shutdown(expect(&server, &disk, &["+a initial", "+b initial", "+c initial"]).await).await;
    (server, disk)
}

#[tokio::test(start_paused = true)]
async fn c2_deletions_between_two_processes_are_delivered_first() {
    let (server, disk) = known().await;
    delete(&server, "a");
    delete(&server, "c");
    create(&server, &["d"]);
    let events = ["-a inferred", "-c inferred", "+b initial", "+d initial"];
    shutdown(expect(&server, &disk, &events).await).await;
    // They are acknowledged, and not repeated.
    shutdown(expect(&server, &disk, &["+b initial", "+d initial"]).await).await;
}

#[tokio::test(start_paused = true)]
async fn c2_deletions_are_delivered_after_an_expired_version() {
    let (server, disk) = known().await;
    delete(&server, "b");
    server.compact();
    shutdown(expect(&server, &disk, &["-b inferred", "+a initial", "+c initial"]).await).await;
}

#[tokio::test(start_paused = true)]
async fn c3_object_that_was_created_again_is_two_events() {
    let (server, disk) = known().await;
    delete(&server, "b");
    create(&server, &["b"]);
    let events = ["-b inferred", "+a initial", "+b initial", "+c initial"];
    shutdown(expect(&server, &disk, &events).await).await;
}

#[tokio::test(start_paused = true)]
async fn previous_state_tells_what_has_changed() {
    let (server, disk) = known().await;
    server.insert_unchecked(&config_map("default", "b", "2")).unwrap();
    create(&server, &["d"]);
    let informer = synced(&server, saved_on(&disk)).await;
    let changes = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&changes);
    let registration = informer.handler().durable("test").on_event(move |event| {
        if let Event::Added { object, previous, .. } = &event {
            let value = previous.as_ref().map(|previous| previous.field("data.v").unwrap());
            let is_new =
                previous.as_ref().map(informer::Object::resource_version) != Some(object.resource_version());
            log.lock().unwrap().push((object.name().to_owned(), value, is_new));
        }
    });
    registration.wait_for_sync().await;
    let expected =
        [("a", Some("1"), false), ("b", Some("1"), true), ("c", Some("1"), false), ("d", None, true)];
    let expected =
        expected.map(|(name, value, is_new)| (name.to_owned(), value.map(ToOwned::to_owned), is_new));
    assert_eq!(*changes.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn handler_that_is_missing_in_one_process_catches_up_in_the_next() {
    let (server, disk) = known().await;
    delete(&server, "a");
    // A process without the handler, which saves other objects.
    let without = synced(&server, saved_on(&disk)).await;
    create(&server, &["brief"]);
    delete(&server, "b");
    until(|| without.lister().len() == 2).await;
    advance_time(Duration::from_secs(3)).await;
    delete(&server, "brief");
    create(&server, &["b"]);
    shutdown(without).await;
    delete(&server, "c");
    shutdown(expect(&server, &disk, &["-a inferred", "-b inferred", "-c inferred", "+b initial"]).await)
        .await;
}

#[tokio::test(start_paused = true)]
async fn handler_that_is_removed_and_added_again_continues() {
    let (server, disk) = known().await;
    let informer = expect(&server, &disk, &["+a initial", "+b initial", "+c initial"]).await;
    shutdown(informer).await;
    let informer = synced(&server, saved_on(&disk)).await;
    let (registration, mut log) = durable(&informer);
    log.expect(&["+a initial", "+b initial", "+c initial"]).await;
    advance_time(Duration::from_secs(1)).await;
    registration.remove().await;
    delete(&server, "b");
    until(|| informer.lister().len() == 2).await;
    let (_registration, mut log) = durable(&informer);
    log.expect(&["-b inferred", "+a initial", "+c initial"]).await;
}

/// A process that dies while its handler is stuck in a call repeats that event and those after it, and no other.
#[tokio::test(start_paused = true)]
async fn events_that_were_not_acknowledged_are_repeated() {
    let (server, disk) = (ApiServer::new(), Disk::default());
    create(&server, &["a", "b", "c"]);
    let informer = synced(&server, saved_on(&disk)).await;
    let mut events = informer.handler().durable("test").event_stream();
    let mut take = async || describe(&events.next().await.unwrap());
    assert_eq!((take().await, take().await), ("+a initial".to_owned(), "+b initial".to_owned()));
    // The handler works on `b`: only `a` is acknowledged.
    advance_time(Duration::from_secs(3)).await;
    disk.kill();
    drop((events, informer));
    let informer = synced(&server, saved_on(&disk)).await;
    let mut events = informer.handler().durable("test").event_stream();
    events.wait_for_initial_list().await;
    let known = events.next_batch(10).await.into_iter().map(|event| {
        let is_known = matches!(event, Event::Added { previous: Some(_), .. });
        (event.object().name().to_owned(), is_known)
    });
    let expected = [("a", true), ("b", false), ("c", false)].map(|(name, known)| (name.to_owned(), known));
    assert_eq!(known.collect::<Vec<_>>(), expected);
}

/// A process that dies repeats the deletions that were not acknowledged.
#[tokio::test(start_paused = true)]
async fn deletions_that_were_not_acknowledged_are_repeated() {
    let (server, disk) = known().await;
    delete(&server, "a");
    delete(&server, "b");
    let informer = synced(&server, saved_on(&disk)).await;
    let mut events = informer.handler().durable("test").event_stream();
    let mut take = async || describe(&events.next().await.unwrap());
    assert_eq!((take().await, take().await), ("-a inferred".to_owned(), "-b inferred".to_owned()));
    advance_time(Duration::from_secs(3)).await;
    disk.kill();
    drop((events, informer));
    shutdown(expect(&server, &disk, &["-b inferred", "+c initial"]).await).await;
}

/// A batch is acknowledged as a whole, when the next one is requested.
#[tokio::test(start_paused = true)]
async fn batch_is_repeated_until_the_next_one_is_requested() {
    let (server, disk) = (ApiServer::new(), Disk::default());
    create(&server, &["a", "b", "c"]);
    for _ in 0..2 {
        let informer = synced(&server, saved_on(&disk)).await;
        let mut events = informer.handler().durable("test").event_stream();
        events.wait_for_initial_list().await;
        assert_eq!(events.next_batch(10).await.len(), 3);
        advance_time(Duration::from_secs(3)).await;
        disk.kill();
        drop((events, informer));
    }
    let informer = synced(&server, saved_on(&disk)).await;
    let mut events = informer.handler().durable("test").event_stream();
    let is_known = |event: &Event<ConfigMap>| matches!(event, Event::Added { previous: Some(_), .. });
    events.wait_for_initial_list().await;
    assert!(!events.next_batch(10).await.iter().any(is_known), "nothing was acknowledged");
    let more = tokio::spawn(async move { events.next_batch(1).await });
    advance_time(Duration::from_secs(3)).await;
    disk.kill();
    more.abort();
    let informer = synced(&server, saved_on(&disk)).await;
    let mut events = informer.handler().durable("test").event_stream();
    events.wait_for_initial_list().await;
    assert!(events.next_batch(10).await.iter().all(is_known), "everything was acknowledged");
}

/// A handler in a process that stops receives what the informer has received, and stopping does not wait for the
/// next save.
#[tokio::test(start_paused = true)]
async fn c10_shutdown_delivers_the_last_events() {
    let (server, disk) = known().await;
    let informer = synced(&server, saved_on(&disk)).await;
    let (registration, mut log) = durable(&informer);
    log.expect(&["+a initial", "+b initial", "+c initial"]).await;
    registration.detach();
    create(&server, &["d"]);
    delete(&server, "a");
    until(|| informer.lister().len() == 3 && informer.lister().get("default", "d").is_some()).await;
    let started = tokio::time::Instant::now();
    shutdown(informer).await;
    assert!(started.elapsed() < Duration::from_millis(100), "{:?}", started.elapsed());
    log.expect(&["+d", "-a"]).await;
    shutdown(expect(&server, &disk, &["+b initial", "+c initial", "+d initial"]).await).await;
}

/// A shutdown waits a second for streams: what they process meanwhile is acknowledged, and not repeated.
#[tokio::test(start_paused = true)]
async fn c10_shutdown_waits_for_the_last_events_of_streams() {
    let (server, disk) = (ApiServer::new(), Disk::default());
    let informer = synced(&server, saved_on(&disk)).await;
    let mut events = informer.handler().durable("test").event_stream();
    let task = tokio::spawn(async move {
        let mut received = Vec::new();
        loop {
            let batch = events.next_batch(10).await;
            if batch.is_empty() {
                return received;
            }
            advance_time(Duration::from_millis(300)).await;
            received.extend(batch.iter().map(describe));
        }
    });
    advance_time(Duration::from_secs(3)).await;
    // Not saved yet when the informer stops.
    create(&server, &["a", "b"]);
    until(|| contents(&informer).len() == 2).await;
    shutdown(informer).await;
    assert_eq!(task.await.unwrap(), ["+a", "+b"]);
    let informer = synced(&server, saved_on(&disk)).await;
    let mut events = informer.handler().durable("test").event_stream();
    events.wait_for_initial_list().await;
    for event in events.next_batch(10).await {
        let Event::Added { object, previous: Some(previous), .. } = event else { panic!("{event:?}") };
        assert_eq!(previous.resource_version(), object.resource_version(), "acknowledged");
    }
    // A stream that is not polled does not prevent the shutdown.
    create(&server, &["c"]);
    until(|| contents(&informer).len() == 3).await;
    shutdown(informer).await;
    assert_eq!(events.next_batch(10).await.iter().map(describe).collect::<Vec<_>>(), ["+c"]);
}

/// A deletion that the watch has delivered has its final state, as for other handlers.
#[tokio::test(start_paused = true)]
async fn deletions_in_a_running_process_are_observed() {
    let (server, disk) = known().await;
    let informer = synced(&server, saved_on(&disk)).await;
    let (_registration, mut log) = durable(&informer);
    log.expect(&["+a initial", "+b initial", "+c initial"]).await;
    server.insert_unchecked(&config_map("default", "b", "2")).unwrap();
    log.expect(&["~b"]).await;
    delete(&server, "a");
    log.expect(&["-a"]).await;
    delete(&server, "b");
    create(&server, &["b"]);
    log.expect(&["-b", "+b"]).await;
}

/// A panic in the database is a failed save.
#[tokio::test(start_paused = true)]
async fn database_that_panics_does_not_stop_handlers() {
    let (server, disk) = known().await;
    let informer = synced(&server, saved_on(&disk)).await;
    let (_registration, mut log) = durable(&informer);
    log.expect(&["+a initial", "+b initial", "+c initial"]).await;
    disk.set_panics(true);
    create(&server, &["d"]);
    log.expect(&["+d"]).await;
    disk.set_panics(false);
    create(&server, &["e"]);
    log.expect(&["+e"]).await;
    until(|| informer.status().persistence.unwrap().error.is_none()).await;
}

/// Handlers do not wait for a disk that fails.
#[tokio::test(start_paused = true)]
async fn failing_disk_does_not_stop_handlers() {
    let (server, disk) = known().await;
    let informer = synced(&server, saved_on(&disk)).await;
    let (_registration, mut log) = durable(&informer);
    log.expect(&["+a initial", "+b initial", "+c initial"]).await;
    disk.stop_after(0);
    create(&server, &["d"]);
    log.expect(&["+d"]).await;
    delete(&server, "d");
    log.expect(&["-d"]).await;
    assert!(informer.status().persistence.unwrap().error.is_some());
}

#[tokio::test(start_paused = true)]
async fn handlers_that_cannot_be_durable_are_reported() {
    let (server, disk) = known().await;
    let reported = Arc::new(Mutex::new(Vec::new()));
    let options = |options: InformerOptions| {
        let reported = Arc::clone(&reported);
        options.on_diagnostic(move |_, diagnostic| {
            if let Diagnostic::NotDurable { reason, .. } = diagnostic {
                reported.lock().unwrap().push(reason.to_string());
            }
        })
    };
    let events = ["+a initial", "+b initial", "+c initial"];
    let informer = synced(&server, options(saved_on(&disk))).await;
    let (_first, mut log) = durable(&informer);
    log.expect(&events).await;
    let (_second, mut log) = durable(&informer);
    log.expect(&events).await;
    let (_filtered, mut log) = log_events_with(informer.handler().durable("filtered").filter(|_| true));
    log.expect(&events).await;
    let _long = informer.handler().durable("x".repeat(300)).on_event(|_| {});
    let other = synced(&server, options(InformerOptions::default())).await;
    let (_other, mut log) = durable(&other);
    log.expect(&events).await;
    until(|| reported.lock().unwrap().len() == 4).await;
    let expected = [
        "another handler has its durable name",
        "it has a filter",
        "its durable name is too long",
        "the cache is not persisted",
    ];
    assert_eq!(*reported.lock().unwrap(), expected);
}
