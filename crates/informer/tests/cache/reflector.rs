//! A reflector that feeds a sink of the program.

use super::database::Database;
use super::{advance_time, texts, typed};
use futures::stream::{self, StreamExt as _};
use informer::cache::{Delta, Reflector, Retention, Store};
use informer::source::{ListWatch, ListWatchError, WatchEvent};
use informer::status::InformerState;
use informer::{InformerOptions, ResourceVersion};
use informer_apiserver::ApiServer;
use k8s_openapi::api::core::v1::ConfigMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;

const TIMEOUT: Duration = Duration::from_secs(60);

/// A reflector that runs in a task, and the deltas that its sink has received.
struct Running {
    reflector: Arc<Reflector<ConfigMap>>,
    deltas: mpsc::UnboundedReceiver<Delta<ConfigMap>>,
    task: tokio::task::JoinHandle<()>,
}

impl Running {
    fn start(source: ListWatch<ConfigMap>) -> Self {
        let reflector = Arc::new(Reflector::with_source(source, InformerOptions::default().jitter_seed(7)));
        let (sender, deltas) = mpsc::unbounded_channel();
        let running = Arc::clone(&reflector);
        let task = tokio::spawn(async move {
            let sink = move |deltas: Vec<Delta<ConfigMap>>| {
                for delta in deltas {
                    sender.send(delta).unwrap();
                }
                async { Ok::<_, Infallible>(()) }
            };
            running.run(sink).await.unwrap();
        });
        Self { reflector, deltas, task }
    }

    async fn next(&mut self) -> String {
        let delta = tokio::time::timeout(TIMEOUT, self.deltas.recv()).await.expect("a delta").unwrap();
        format!("{delta:?}")
    }
}

/// C1, C2: first a list, then the changes in order; after a gap another list.
#[tokio::test(start_paused = true)]
async fn c1_c2_sink_receives_a_list_and_then_changes_in_order() {
    let database = Database::default();
    database.put("a/x", "u1", "red");
    let mut running = Running::start(database.source());
    assert_eq!(running.next().await, "Replaced(1 objects in all namespaces, v1)");
    running.reflector.wait_for_sync(TIMEOUT).await.unwrap();
    database.put("a/x", "u1", "blue");
    database.put("a/y", "u2", "red");
    database.delete("a/x");
    assert_eq!(running.next().await, "Updated(a/x@2)");
    assert_eq!(running.next().await, "Added(a/y@3)");
    assert_eq!(running.next().await, "Deleted(a/x, v4)");
    assert_eq!(running.reflector.status().resource_version, Some(ResourceVersion::new("4")));
    database.delete("a/y");
    database.compact();
    assert_eq!(running.next().await, "Replaced(0 objects in all namespaces, v6)");
    assert_eq!(running.reflector.status().state, InformerState::Live);
    running.task.abort();
    assert!(running.task.await.unwrap_err().is_cancelled());
    let error = running.reflector.wait_for_sync(TIMEOUT).await.unwrap_err();
    assert_eq!(error.informers[0].state, InformerState::Stopped, "C7");
}

/// C1: a store as the sink drops states that are older than the stored one.
#[tokio::test(start_paused = true)]
async fn c1_store_as_a_sink_drops_outdated_states() {
    let source = ListWatch::new(
        || async { Ok((vec![typed("a/x u1 5 red")], ResourceVersion::new("5"))) },
        |_| async {
            let versions =
                [7, 6, 8].map(|version| Ok(WatchEvent::Modified(typed(&format!("a/x u1 {version} red")))));
            Ok(stream::iter(versions).chain(stream::pending()))
        },
    );
    let (reflector, store) =
        (Reflector::<ConfigMap>::with_source(source, InformerOptions::default()), Store::new());
    let mut all = Vec::new();
    let run = reflector.run(|deltas| {
        all.extend(texts(&store.apply(deltas)));
        std::future::ready(if all.len() < 3 { Ok(()) } else { Err("enough") })
    });
    assert_eq!(tokio::time::timeout(TIMEOUT, run).await.unwrap(), Err("enough"));
    assert_eq!(all, ["+ a/x@5 initial", "~ a/x@5>7", "~ a/x@7>8"]);
    assert_eq!(store.snapshot().resource_version(), Some(&ResourceVersion::new("8")));
}

/// C8: while the sink is busy, the source is read only until the queue is full.
#[tokio::test(start_paused = true)]
async fn c8_slow_sink_stops_reading_from_the_source() {
    let read = Arc::new(AtomicU64::new(1));
    let counter = Arc::clone(&read);
    let source = ListWatch::new(
        || async { Ok((vec![typed("a/x u1 1 red")], ResourceVersion::new("1"))) },
        move |_| {
            let counter = Arc::clone(&counter);
            async move {
                Ok(stream::repeat_with(move || {
                    let version = counter.fetch_add(1, Ordering::Relaxed) + 1;
                    Ok(WatchEvent::Modified(typed(&format!("a/x u1 {version} red"))))
                }))
            }
        },
    );
    let reflector = Reflector::<ConfigMap>::with_source(source, InformerOptions::default());
    let (mut last, max_ahead) = (1, AtomicU64::new(0));
    let run = reflector.run(|deltas| {
        let processed = last;
        for delta in deltas.iter().filter(|delta| delta.key().is_some()) {
            last += 1;
            assert_eq!(delta.objects()[0].resource_version().as_str(), last.to_string(), "none is lost");
        }
        let is_complete = last >= 20_000;
        let (read, max_ahead) = (&read, &max_ahead);
        async move {
            // In virtual time, the source is read until it has to wait.
            advance_time(Duration::from_secs(1)).await;
            max_ahead.fetch_max(read.load(Ordering::Relaxed) - processed, Ordering::Relaxed);
            if is_complete { Err("enough") } else { Ok(()) }
        }
    });
    assert_eq!(run.await, Err("enough"));
    let max_ahead = max_ahead.into_inner();
    assert!((4096..4096 + 1024).contains(&max_ahead), "{max_ahead} changes ahead of the sink");
}

/// A sink that fails ends the run; the next run begins with a list, so that nothing is lost (C2).
#[tokio::test(start_paused = true)]
async fn failed_sink_ends_the_run_and_the_next_run_lists_again() {
    let database = Database::default();
    database.put("a/x", "u1", "red");
    let reflector = Reflector::<ConfigMap>::with_source(database.source(), InformerOptions::default());
    let (seen, calls) = (Mutex::new(Vec::new()), AtomicU64::new(0));
    let run = || {
        reflector.run(|deltas| {
            seen.lock().unwrap().extend(deltas.iter().map(|delta| format!("{delta:?}")));
            let first = calls.fetch_add(1, Ordering::Relaxed) == 0;
            async move { if first { Err("the database is down") } else { Err::<(), _>("done") } }
        })
    };
    // The second call waits for the end of the first one.
    let (first, second) = tokio::join!(run(), run());
    assert_eq!((first, second), (Err("the database is down"), Err("done")));
    let list = "Replaced(1 objects in all namespaces, v1)".to_owned();
    assert_eq!(*seen.lock().unwrap(), [list.clone(), list]);
}

/// Regression (C7): a second run inherited the status of the first. A wait for its sync succeeded before its first
/// list, or failed because the first run had stopped. No test waited for the sync of a second run.
#[tokio::test(start_paused = true)]
async fn c7_second_run_syncs_again() {
    let database = Database::default();
    database.put("a/x", "u1", "red");
    let reflector = Reflector::<ConfigMap>::with_source(database.source(), InformerOptions::default());
    let processed = AtomicU64::new(0);
    for run in 1..=3 {
        let running = reflector.run(|_| async {
            advance_time(Duration::from_secs(1)).await;
            processed.fetch_add(1, Ordering::Relaxed);
            Ok::<_, Infallible>(())
        });
        let status = reflector.status();
        assert_eq!((status.state, status.synced), (InformerState::NotStarted, false));
        assert_eq!(status.resource_version, None);
        tokio::select! {
            biased; // the wait is polled before the run
            synced = reflector.wait_for_sync(TIMEOUT) => synced.unwrap(),
            stopped = running => panic!("{stopped:?}"),
        }
        assert_eq!(processed.load(Ordering::Relaxed), run, "the sink has processed the list of this run");
        let error = reflector.wait_for_sync(TIMEOUT).await.unwrap_err();
        assert_eq!(error.informers[0].state, InformerState::Stopped);
    }
    // A call while the reflector runs does not change its status.
    let sink = |_| async { Ok::<_, Infallible>(()) };
    let check = async {
        reflector.wait_for_sync(TIMEOUT).await.unwrap();
        drop(reflector.run(sink));
        assert_eq!(reflector.status().state, InformerState::Live);
    };
    tokio::select! {
        stopped = reflector.run(sink) => panic!("{stopped:?}"),
        () = check => {}
    }
}

/// Regression: with [`Retention::Decoded`] the objects of a reflector kept their typed values, and nothing limited
/// or freed them. No test read such an object.
#[tokio::test(start_paused = true)]
async fn objects_of_a_reflector_keep_no_typed_values() {
    for retention in [Retention::Decoded, Retention::RecentlyDecoded { max_encoded_bytes: 1 << 20 }] {
        let database = Database::default();
        database.put("a/x", "u1", "red");
        let options = InformerOptions::default().retention(retention);
        let reflector = Reflector::<ConfigMap>::with_source(database.source(), options);
        let run = reflector.run(|deltas| {
            let object = &deltas[0].objects()[0];
            assert_eq!(super::value(object), "red");
            assert!(object.typed_ref().is_none(), "{retention:?}");
            async { Err("enough") }
        });
        assert_eq!(run.await, Err("enough"));
    }
}

/// C7: waiting ends with a reason.
#[tokio::test(start_paused = true)]
async fn c7_waiting_ends_with_the_state() {
    let source: ListWatch<ConfigMap> = ListWatch::new(
        || async { Err(ListWatchError::Forbidden("no access".into())) },
        |_| async { Ok(stream::pending()) },
    );
    let reflector = Reflector::<ConfigMap>::with_source(source, InformerOptions::default());
    let error = reflector.wait_for_sync(TIMEOUT).await.unwrap_err();
    assert_eq!(error.informers[0].state, InformerState::NotStarted);
    tokio::select! {
        stopped = reflector.run(|_| async { Ok::<_, Infallible>(()) }) => panic!("{stopped:?}"),
        synced = reflector.wait_for_sync(TIMEOUT) => {
            let error = synced.unwrap_err();
            assert!(matches!(error.informers[0].state, InformerState::Forbidden { .. }), "{error}");
        }
    }
    assert_eq!(format!("{reflector:?}"), "reflector for configmaps in all namespaces: stopped");
}

/// Over an API server, with several namespaces: each list replaces its own namespace.
#[tokio::test(start_paused = true)]
async fn namespaces_of_a_server_are_reflected_separately() {
    let server = ApiServer::new();
    let create = |namespace: &str, name: &str| {
        let metadata = serde_json::json!({"name": name, "namespace": namespace});
        let map = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        server.create(&map).unwrap();
    };
    for (namespace, name) in [("a", "x"), ("b", "y"), ("c", "z")] {
        let metadata = serde_json::json!({"name": namespace});
        let object = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
        server.create(&object).unwrap();
        create(namespace, name);
    }
    let options = InformerOptions::default().namespaces(["a", "b"]);
    let reflector = Arc::new(Reflector::<ConfigMap>::with_options(server.client(), options));
    let (store, running) = (Store::new(), Arc::clone(&reflector));
    let sink = store.clone();
    let task = tokio::spawn(async move {
        let applied = running.run(|deltas| {
            sink.apply(deltas);
            async { Ok::<_, Infallible>(()) }
        });
        applied.await
    });
    reflector.wait_for_sync(TIMEOUT).await.unwrap();
    let keys = || store.lister().list().iter().map(|map| map.key().to_string()).collect::<Vec<_>>();
    assert_eq!(keys(), ["a/x", "b/y"]);
    create("b", "w");
    let changed = async {
        while keys().len() < 3 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, changed).await.unwrap();
    assert_eq!(keys(), ["a/x", "b/w", "b/y"]);
    task.abort();
}
