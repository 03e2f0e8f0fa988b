//! Sources made of two functions, good ones and bad ones. Time is virtual.

use super::database::Database;
use super::{advance_time, texts, typed};
use futures::stream::{self, BoxStream, StreamExt as _};
use informer::source::{ListWatch, ListWatchError, WatchEvent};
use informer::status::{Diagnostic, InformerState};
use informer::{EventStream, InformerOptions, ResourceVersion, SharedInformer};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::DynamicObject;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(60);

type Changes = BoxStream<'static, Result<WatchEvent<ConfigMap>, ListWatchError>>;

async fn started(source: ListWatch<ConfigMap>, options: InformerOptions) -> SharedInformer<ConfigMap> {
    let maps = SharedInformer::with_source(source, options.jitter_seed(7));
    maps.start();
    maps.wait_for_sync(TIMEOUT).await.unwrap();
    maps
}

/// Returns the next `count` events.
async fn next(events: &mut EventStream<ConfigMap>, count: usize) -> Vec<String> {
    let some = events.by_ref().take(count).collect::<Vec<_>>();
    texts(&tokio::time::timeout(TIMEOUT, some).await.expect("events"))
}

/// Returns a source with these lists, one per call, the last one repeated, and what `watch` returns.
fn scripted(
    lists: Vec<(Vec<&'static str>, &'static str)>,
    watch: impl Fn(u64, &ResourceVersion) -> Result<Changes, ListWatchError> + Send + Sync + 'static,
) -> ListWatch<ConfigMap> {
    let (list_calls, watch_calls) = (AtomicU64::new(0), AtomicU64::new(0));
    ListWatch::new(
        move || {
            let call = usize::try_from(list_calls.fetch_add(1, Ordering::Relaxed)).unwrap();
            let (objects, version) = lists[call.min(lists.len() - 1)].clone();
            async move {
                let objects = objects.into_iter().map(typed).collect();
                Ok((objects, ResourceVersion::new(version)))
            }
        },
        move |after| {
            let opened = watch(watch_calls.fetch_add(1, Ordering::Relaxed), &after);
            async move { opened }
        },
    )
}

fn silent() -> Changes {
    stream::pending().boxed()
}

/// Returns a stream of changes that happen a second after it was opened, so that the events of the list are
/// received before.
fn changes(list: Vec<WatchEvent<ConfigMap>>) -> Changes {
    let changes = async {
        advance_time(Duration::from_secs(1)).await;
        stream::iter(list).map(Ok)
    };
    stream::once(changes).flatten().chain(stream::pending()).boxed()
}

/// Collects diagnostics.
fn recorded() -> (Arc<Mutex<Vec<String>>>, InformerOptions) {
    let diagnostics = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&diagnostics);
    let hook = move |_: &str, diagnostic: &Diagnostic| all.lock().unwrap().push(diagnostic.to_string());
    (diagnostics, InformerOptions::default().on_diagnostic(hook))
}

/// C1, C2, C4: the states of an object arrive in order, and the cache contains them first.
#[tokio::test(start_paused = true)]
async fn c1_c2_changes_of_a_source_are_delivered_in_order() {
    let database = Database::default();
    database.put("a/x", "u1", "red");
    database.put("b/y", "u2", "red");
    let (diagnostics, options) = recorded();
    let maps = started(database.source(), options).await;
    let mut events = maps.event_stream();
    assert_eq!(next(&mut events, 2).await, ["+ a/x@1 initial", "+ b/y@2 initial"]);
    database.put("a/x", "u1", "blue");
    assert_eq!(next(&mut events, 1).await, ["~ a/x@1>3"]);
    database.delete("b/y");
    assert_eq!(next(&mut events, 1).await, ["- b/y@4"]);
    assert!(maps.lister().get("b", "y").is_none(), "C4");
    database.put("b/y", "u3", "red");
    assert_eq!(next(&mut events, 1).await, ["+ b/y@5"]);
    assert_eq!(maps.resource_version(), Some(ResourceVersion::new("5")));
    // A source of two functions is neither probed nor asked for a watch-list.
    assert_eq!((database.state().lists, diagnostics.lock().unwrap().len()), (1, 0));
}

/// C2: after an expired version the source is listed again, and deletions in the gap are delivered.
#[tokio::test(start_paused = true)]
async fn c2_expired_version_causes_a_list_that_finds_deletions() {
    let database = Database::default();
    database.put("a/x", "u1", "red");
    database.put("a/y", "u2", "red");
    let maps = started(database.source(), InformerOptions::default()).await;
    let mut events = maps.event_stream();
    next(&mut events, 2).await;
    {
        // The change and the compaction happen before the watch can read the change.
        database.delete("a/x");
        database.put("a/z", "u3", "red");
        database.compact();
    }
    assert_eq!(next(&mut events, 2).await, ["- a/x@1 inferred", "+ a/z@4"]);
    assert_eq!((database.state().lists, maps.status().reflector.relists.expired), (2, 1));
    assert_eq!(maps.status().cache.rewinds, 0);
}

/// Regression (C2): a source restarted and lost its counter. The next watch started from a version of the old
/// counter, and brought nothing until the new counter had passed it: these changes were lost. The documentation
/// asked for `Expired` only for old versions, and the source of these tests had the same gap.
#[tokio::test(start_paused = true)]
async fn c2_restarted_source_with_a_lower_version_is_listed_again() {
    let database = Database::default();
    for name in ["a/x", "a/y", "a/z"] {
        database.put(name, "u1", "red");
    }
    let maps = started(database.source(), InformerOptions::default()).await;
    let mut events = maps.event_stream();
    next(&mut events, 3).await;
    database.restart();
    database.put("a/w", "u2", "red");
    let expected = ["- a/x@1 inferred", "- a/y@2 inferred", "- a/z@3 inferred", "+ a/w@1"];
    assert_eq!(next(&mut events, 4).await, expected);
    database.put("a/v", "u3", "red");
    assert_eq!(next(&mut events, 1).await, ["+ a/v@2"]);
    // A list with a lower version is requested once more, to be sure that it is the newest state.
    assert_eq!((database.state().lists, maps.status().reflector.relists.expired), (3, 1));
}

/// Regression (C2): the same for a source that opens a watch from any version. Its first event with a version
/// below that of the watch was applied, and what had happened before it stayed unknown.
#[tokio::test(start_paused = true)]
async fn c2_version_below_that_of_the_watch_ends_it_as_expired() {
    for event in [WatchEvent::Added(typed("a/y u2 3 red")), WatchEvent::Bookmark(ResourceVersion::new("3"))] {
        let lists = vec![(vec!["a/x u1 8 red"], "9"), (vec!["a/y u2 3 red", "a/z u3 2 red"], "3")];
        let source = scripted(lists, move |_, after| match after.as_str() {
            "9" => Ok(changes(vec![event.clone()])),
            _ => Ok(silent()),
        });
        let maps = started(source, InformerOptions::default()).await;
        let mut events = maps.event_stream();
        assert_eq!(next(&mut events, 1).await, ["+ a/x@8 initial"]);
        assert_eq!(next(&mut events, 3).await, ["- a/x@8 inferred", "+ a/y@3", "+ a/z@2"]);
        assert_eq!(maps.status().reflector.relists.expired, 1);
    }
}

/// C9: an object without a name is skipped and reported, and of duplicates the last one counts.
#[tokio::test(start_paused = true)]
async fn c9_bad_objects_of_a_list_affect_nothing_else() {
    let (diagnostics, options) = recorded();
    let source = ListWatch::new(
        || async {
            let mut list: Vec<_> = ["a/x u1 1 old", "a/y u2 2 red", "a/x u1 1 new"].map(typed).into();
            list.insert(1, ConfigMap::default());
            Ok((list, ResourceVersion::new("2")))
        },
        |_| async { Ok(silent()) },
    );
    let maps = started(source, options).await;
    assert_eq!(maps.lister().list().iter().map(super::value).collect::<Vec<_>>(), ["new", "red"]);
    assert_eq!(maps.status().cache.duplicates, 1);
    let diagnostics = diagnostics.lock().unwrap();
    assert!(matches!(&diagnostics[..], [one] if one.contains("metadata.name")), "{diagnostics:?}");
}

/// C9, C2: an event without a name is skipped; one without a version ends the watch with an error that names the
/// object.
#[tokio::test(start_paused = true)]
async fn c9_bad_events_are_reported() {
    let (diagnostics, options) = recorded();
    let source = scripted(
        vec![(vec!["a/x u1 1 red"], "1"), (vec!["a/x u1 1 red", "a/z u4 9 red"], "9")],
        |call, _| {
            let mut nameless = ConfigMap::default();
            nameless.metadata.resource_version = Some("2".to_owned());
            let mut unversioned = typed("a/z u4 9 red");
            unversioned.metadata.resource_version = None;
            match call {
                0 => Ok(changes(vec![
                    WatchEvent::Added(nameless),
                    WatchEvent::Added(typed("a/y u2 3 red")),
                    WatchEvent::Added(unversioned),
                ])),
                1..4 => Ok(changes(vec![WatchEvent::Added(unversioned)])),
                _ => Ok(silent()),
            }
        },
    );
    let maps = started(source, options).await;
    let mut events = maps.event_stream();
    assert_eq!(next(&mut events, 2).await, ["+ a/x@1 initial", "+ a/y@3"]);
    // After some watches that bring nothing, a list brings what they could not.
    assert_eq!(next(&mut events, 2).await, ["- a/y@3 inferred", "+ a/z@9"]);
    let text = diagnostics.lock().unwrap().join("\n");
    assert!(text.contains("metadata.name"), "{text}");
    assert!(text.contains("event of a/z: metadata.resourceVersion is missing"), "{text}");
}

/// A config map that serializes only while it is readable.
struct Record {
    map: ConfigMap,
    readable: bool,
}

impl serde::Serialize for Record {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if !self.readable {
            return Err(serde::ser::Error::custom("the record is encrypted"));
        }
        self.map.serialize(serializer)
    }
}

/// Regression (C2): an object that did not serialize was skipped. In a list this was an invented deletion of a
/// known object; in a watch its change was lost, and the report did not say why. No test had such an object.
#[tokio::test(start_paused = true)]
async fn c2_object_that_does_not_serialize_fails_the_list_or_watch() {
    let record = |text: &str, readable| Record { map: typed(text), readable };
    let (lists, watches) = (Arc::new(AtomicU64::new(0)), AtomicU64::new(0));
    let list_calls = Arc::clone(&lists);
    let source = ListWatch::new(
        move || {
            let call = list_calls.fetch_add(1, Ordering::Relaxed);
            async move {
                // The second and the third list contain the known object, which does not serialize.
                let list =
                    vec![record("a/w u1 1 red", true), record("a/x u2 2 red", !(1..3).contains(&call))];
                Ok((list, ResourceVersion::new(if call == 0 { "2" } else { "9" })))
            }
        },
        move |_| {
            let changes = match watches.fetch_add(1, Ordering::Relaxed) {
                0 => vec![
                    Ok(WatchEvent::Added(record("a/y u3 3 red", true))),
                    Ok(WatchEvent::Modified(record("a/x u2 4 red", false))),
                ],
                // The watch continues after the last good event.
                1 => {
                    vec![Ok(WatchEvent::Modified(record("a/x u2 4 red", true))), Err(ListWatchError::Expired)]
                }
                _ => vec![],
            };
            async move { Ok(stream::iter(changes).chain(stream::pending())) }
        },
    );
    let (diagnostics, options) = recorded();
    let maps = SharedInformer::<ConfigMap>::with_source(source, options.jitter_seed(7));
    let mut events = maps.event_stream();
    maps.start();
    let expected = ["+ a/w@1 initial", "+ a/x@2 initial", "+ a/y@3", "~ a/x@2>4"];
    assert_eq!(next(&mut events, 4).await, expected);
    // Only what the fourth list does not contain is deleted; its older state of a/x is accepted.
    assert_eq!(next(&mut events, 2).await, ["- a/y@3 inferred", "~ a/x@4>2"]);
    assert_eq!(lists.load(Ordering::Relaxed), 4);
    let text = diagnostics.lock().unwrap().join("\n");
    for object in ["object 1 of the list", "the object of an event"] {
        let message =
            format!("the list or watch failed: {object} does not serialize: the record is encrypted");
        assert!(text.contains(&message), "{text}");
    }
}

/// C1: versions that go back in a stream are dropped; a list that goes back is a rewind.
#[tokio::test(start_paused = true)]
async fn c1_versions_that_go_back() {
    let lists = vec![(vec!["a/x u1 5 red"], "9"), (vec!["a/x u1 3 old"], "4")];
    let source = scripted(lists, |call, after| match (call, after.as_str()) {
        (0, "9") => {
            let list = vec![
                WatchEvent::Modified(typed("a/x u1 11 new")),
                WatchEvent::Modified(typed("a/x u1 10 old")),
                WatchEvent::Deleted(typed("a/x u1 10 old")),
                WatchEvent::Bookmark(ResourceVersion::new("12")),
            ];
            let expired = async {
                advance_time(TIMEOUT / 2).await;
                Err(ListWatchError::Expired)
            };
            Ok(changes(list).take(4).chain(stream::once(expired)).boxed())
        }
        _ => Ok(silent()),
    });
    let maps = started(source, InformerOptions::default()).await;
    let mut events = maps.event_stream();
    assert_eq!(next(&mut events, 2).await, ["+ a/x@5 initial", "~ a/x@5>11"]);
    maps.wait_for_resource_version(&ResourceVersion::new("12"), TIMEOUT).await.unwrap();
    assert_eq!(maps.status().cache.stale_deltas, 2);
    assert_eq!(next(&mut events, 1).await, ["~ a/x@11>3"], "a consistent list is accepted");
    assert_eq!(maps.status().cache.rewinds, 1);
}

/// C11: streams that end at once cause no hot loop.
#[tokio::test(start_paused = true)]
async fn c11_streams_that_end_at_once_are_opened_with_backoff() {
    let watches = Arc::new(AtomicU64::new(0));
    let calls = Arc::clone(&watches);
    let source = scripted(vec![(vec!["a/x u1 1 red"], "1")], move |_, _| {
        calls.fetch_add(1, Ordering::Relaxed);
        Ok(stream::empty().boxed())
    });
    let maps = started(source, InformerOptions::default()).await;
    advance_time(Duration::from_secs(3600)).await;
    let (watches, relists) = (watches.load(Ordering::Relaxed), maps.status().reflector.relists.failed);
    assert!((60..400).contains(&watches) && relists < 200, "{watches} watches, {relists} lists in an hour");
    assert_eq!(maps.lister().len(), 1);
}

/// C11: a stream that brings one frame and ends, again and again, is opened at most twice per second.
#[tokio::test(start_paused = true)]
async fn c11_streams_of_one_event_are_opened_at_most_twice_per_second() {
    let watches = Arc::new(AtomicU64::new(0));
    let calls = Arc::clone(&watches);
    let source = scripted(vec![(vec!["a/x u1 1 red"], "1")], move |call, _| {
        calls.fetch_add(1, Ordering::Relaxed);
        let event = WatchEvent::Modified(typed(&format!("a/x u1 {} red", call + 2)));
        Ok(stream::iter([Ok(event)]).boxed())
    });
    let maps = started(source, InformerOptions::default()).await;
    advance_time(Duration::from_secs(600)).await;
    let watches = watches.load(Ordering::Relaxed);
    assert!((100..=1202).contains(&watches), "{watches} watches in ten minutes");
    assert_eq!(maps.lister().list()[0].resource_version().as_str(), (watches + 1).to_string());
}

/// C11: a stream that never brings anything is opened again from time to time, and costs few lists.
#[tokio::test(start_paused = true)]
async fn c11_silent_streams_are_replaced_from_time_to_time() {
    let (lists, watches) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (list_calls, watch_calls) = (Arc::clone(&lists), Arc::clone(&watches));
    let source = ListWatch::new(
        move || {
            list_calls.fetch_add(1, Ordering::Relaxed);
            async { Ok((vec![typed("a/x u1 1 red")], ResourceVersion::new("1"))) }
        },
        move |_| {
            watch_calls.fetch_add(1, Ordering::Relaxed);
            async { Ok(silent()) }
        },
    );
    let maps = started(source, InformerOptions::default()).await;
    advance_time(Duration::from_secs(3600)).await;
    let (lists, watches) = (lists.load(Ordering::Relaxed), watches.load(Ordering::Relaxed));
    assert!((6..60).contains(&watches), "{watches} watches in an hour");
    assert!(lists <= 4, "{lists} lists in an hour");
    assert_eq!(maps.status().state, InformerState::Live);
}

/// C7: a wait for a forbidden source ends immediately, with its message.
#[tokio::test(start_paused = true)]
async fn c7_forbidden_source_ends_the_wait() {
    let source: ListWatch<ConfigMap> = ListWatch::new(
        || async { Err(ListWatchError::Forbidden("no access to the vault".into())) },
        |_| async { Ok(silent()) },
    );
    let maps = SharedInformer::<ConfigMap>::with_source(source, InformerOptions::default());
    maps.start();
    let (started, error) = (tokio::time::Instant::now(), maps.wait_for_sync(TIMEOUT).await.unwrap_err());
    assert!(matches!(error.informers[0].state, InformerState::Forbidden { .. }), "{error}");
    assert!(error.to_string().contains("no access to the vault"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(1));
}

/// C11: the delay of an unavailable source is honoured, and other errors are retried with backoff.
#[tokio::test(start_paused = true)]
async fn c11_errors_are_retried_with_their_delay() {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let times = Arc::clone(&calls);
    let source = ListWatch::new(
        move || {
            let mut times = times.lock().unwrap();
            times.push(tokio::time::Instant::now());
            let call = times.len();
            async move {
                match call {
                    1 => Err(ListWatchError::Unavailable {
                        retry_after: Some(Duration::from_secs(40)),
                        source: "maintenance".into(),
                    }),
                    2 => Err(ListWatchError::failed("disk full")),
                    // Unwinds without calling the panic hook, so that nothing is printed.
                    3 => std::panic::resume_unwind(Box::new("a bug")),
                    _ => Ok((vec![typed("a/x u1 1 red")], ResourceVersion::new("1"))),
                }
            }
        },
        |_| async { Ok(silent()) },
    );
    let (diagnostics, options) = recorded();
    let maps = SharedInformer::<ConfigMap>::with_source(source, options);
    maps.start();
    maps.wait_for_sync(Duration::from_secs(300)).await.unwrap();
    let calls = calls.lock().unwrap();
    assert!(calls[1] - calls[0] >= Duration::from_secs(40), "{:?}", calls[1] - calls[0]);
    assert!(calls.windows(2).all(|two| two[1] - two[0] >= Duration::from_millis(100)));
    let text = diagnostics.lock().unwrap().join("\n");
    for expected in ["maintenance", "disk full", "the source panicked"] {
        assert!(text.contains(expected), "{text}");
    }
}

/// C9: a panic inside a stream fails that watch only.
#[tokio::test(start_paused = true)]
async fn c9_panic_in_a_stream_fails_one_watch() {
    let source = scripted(vec![(vec!["a/x u1 1 red"], "1")], |call, _| match call {
        0 => Ok(stream::once(async { std::panic::resume_unwind(Box::new("a bug")) }).boxed()),
        _ => Ok(changes(vec![WatchEvent::Added(typed("a/y u2 2 red"))])),
    });
    let maps = started(source, InformerOptions::default()).await;
    maps.wait_for_resource_version(&ResourceVersion::new("2"), TIMEOUT).await.unwrap();
    assert_eq!(maps.lister().len(), 2);
}

/// Selectors are applied by the source: an object that no longer matches is deleted for the informer.
#[tokio::test(start_paused = true)]
async fn selectors_are_applied_locally() {
    let database = Database::default();
    database.put("a/x", "u1", "red");
    database.put("a/y", "u2", "blue");
    database.put("b/z", "u3", "red");
    let source = database.source().label_selector("value=red".parse().unwrap());
    let source = source.field_selector("metadata.namespace=a".parse().unwrap());
    let maps = started(source, InformerOptions::default()).await;
    let mut events = maps.event_stream();
    assert_eq!(next(&mut events, 1).await, ["+ a/x@1 initial"]);
    database.put("a/y", "u2", "red");
    assert_eq!(next(&mut events, 1).await, ["+ a/y@4"]);
    database.put("a/x", "u1", "blue");
    assert_eq!(next(&mut events, 1).await, ["- a/x@5"]);
    database.put("b/z", "u3", "red");
    maps.wait_for_resource_version(&ResourceVersion::new("6"), TIMEOUT).await.unwrap();
    assert_eq!(maps.lister().len(), 1);
}

/// Dynamic objects are as good as typed ones, and a list may have no versions.
#[tokio::test(start_paused = true)]
async fn dynamic_objects_without_versions_are_listed() {
    let source = ListWatch::new(
        || async {
            let json = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "x", "namespace": "a"}, "data": {"value": "red"}});
            let object: DynamicObject = serde_json::from_value(json).unwrap();
            Ok((vec![object], ResourceVersion::new("1")))
        },
        |_| async { Ok(stream::pending()) },
    );
    let maps = SharedInformer::<ConfigMap>::with_source(source, InformerOptions::default());
    maps.start();
    maps.wait_for_sync(TIMEOUT).await.unwrap();
    let map = maps.lister().get("a", "x").unwrap();
    assert_eq!((super::value(&map).as_str(), map.resource_version().as_str()), ("red", "0"));
}

/// An audit compares two lists of one version. Changes that a list of another version contains are no drift.
#[tokio::test(start_paused = true)]
async fn audit_at_another_version_reports_no_drift() {
    let database = Database::default();
    database.put("a/x", "u1", "red");
    let lists = database.clone();
    let list = move || {
        let listed = lists.list();
        async move { Ok(listed) }
    };
    let source = ListWatch::new(list, |_| async { Ok(silent()) });
    let maps = started(source, InformerOptions::default().audit_period(Duration::from_secs(60))).await;
    database.put("a/y", "u2", "red"); // the silent watch does not bring it
    let mut events = maps.event_stream();
    let expected = ["+ a/x@1 initial", "+ a/y@2"];
    let found =
        tokio::time::timeout(Duration::from_secs(300), events.by_ref().take(2).collect::<Vec<_>>()).await;
    assert_eq!(texts(&found.unwrap()), expected);
    assert_eq!(maps.status().cache.drift, 0);
}
