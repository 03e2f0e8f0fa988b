//! Watches: start, frames and end.

use serde_json::json;

use crate::runner::statements;
use crate::targets::{Target, number, thing, version};

statements![
    a_watch_from_version_zero_starts_with_existing_objects,
    a_watch_without_a_version_starts_with_existing_objects,
    a_watch_from_a_version_sends_only_later_changes,
    a_watch_sends_every_state_of_its_history,
    versions_in_a_watch_strictly_increase,
    a_deleted_object_is_sent_in_its_last_state_at_the_version_of_the_deletion,
    an_update_that_changes_nothing_is_not_sent,
    a_watch_sends_what_a_get_returns,
    a_watch_ends_cleanly_after_its_timeout,
    a_watch_with_a_negative_timeout_ends_immediately,
    a_watch_with_bookmarks_gets_one_before_its_end,
    a_watch_without_bookmarks_gets_none,
    a_watch_from_version_zero_with_bookmarks_gets_its_version,
    a_watch_from_a_version_of_the_future_is_silent,
    a_watch_from_a_version_that_is_no_number_is_an_internal_error,
    a_watch_from_before_the_cache_is_one_error_frame,
    a_watch_ignores_a_limit,
    a_watch_of_one_name_sends_only_that_object,
    a_watch_on_the_path_of_an_object_is_a_get,
    a_watch_of_all_namespaces_sends_objects_of_each,
    a_watch_of_a_missing_namespace_lasts_until_its_timeout,
    the_deprecated_watch_path_is_served,
];

async fn a_watch_from_version_zero_starts_with_existing_objects(target: &Target) {
    target.make("b", "1").await;
    target.make("a", "1").await;
    target.version().await;
    let mut watch = target.watch("$things?watch=1&resourceVersion=0").await;
    watch.expect_frames(&["ADDED a 1", "ADDED b 1"]).await;
    target.set("b", "2").await;
    watch.expect_frames(&["MODIFIED b 2"]).await;
}

async fn a_watch_without_a_version_starts_with_existing_objects(target: &Target) {
    target.make("b", "1").await;
    target.make("a", "1").await;
    let mut watch = target.watch("$things?watch=1").await;
    watch.expect_frames(&["ADDED a 1", "ADDED b 1"]).await;
    target.unmake("a").await;
    watch.expect_frames(&["DELETED a 1"]).await;
}

async fn a_watch_from_a_version_sends_only_later_changes(target: &Target) {
    target.make("a", "1").await;
    let then = target.version().await;
    target.make("b", "1").await;
    let mut watch = target.watch(&format!("$things?watch=1&resourceVersion={then}")).await;
    watch.expect_frames(&["ADDED b 1"]).await;
    target.set("a", "2").await;
    watch.expect_frames(&["MODIFIED a 2"]).await;
}

async fn a_watch_sends_every_state_of_its_history(target: &Target) {
    let then = target.version().await;
    target.make("a", "1").await;
    target.set("a", "2").await;
    target.set("a", "3").await;
    target.unmake("a").await;
    target.make("a", "4").await;
    let mut watch = target.watch(&format!("$things?watch=1&resourceVersion={then}")).await;
    watch.expect_frames(&["ADDED a 1", "MODIFIED a 2", "MODIFIED a 3", "DELETED a 3", "ADDED a 4"]).await;
}

async fn versions_in_a_watch_strictly_increase(target: &Target) {
    let then = target.version().await;
    for name in ["c", "a", "b"] {
        target.make(name, "1").await;
        target.set(name, "2").await;
    }
    target.unmake("a").await;
    let mut watch = target.watch(&format!("$things?watch=1&resourceVersion={then}")).await;
    let mut last = then.parse().unwrap();
    for _ in 0..7 {
        let version = number(&watch.next().await.unwrap()["object"]);
        assert!(version > last, "{version} after {last}");
        last = version;
    }
}

async fn a_deleted_object_is_sent_in_its_last_state_at_the_version_of_the_deletion(target: &Target) {
    let mut made = target.make("a", "1").await;
    let mut watch = target.watch(&format!("$things?watch=1&resourceVersion={}", version(&made))).await;
    target.unmake("a").await;
    let mut gone = watch.object("DELETED").await;
    assert!(number(&gone) > number(&made));
    made["metadata"]["resourceVersion"].take();
    gone["metadata"]["resourceVersion"].take();
    assert_eq!(gone, made);
}

async fn an_update_that_changes_nothing_is_not_sent(target: &Target) {
    let made = target.make("a", "1").await;
    let mut watch = target.watch(&format!("$things?watch=1&resourceVersion={}", version(&made))).await;
    assert_eq!(version(&target.set("a", "1").await), version(&made));
    assert_eq!(target.put("$things/a", &made).await.expect(200).version(), version(&made));
    target.set("a", "2").await;
    watch.expect_frames(&["MODIFIED a 2"]).await;
}

async fn a_watch_sends_what_a_get_returns(target: &Target) {
    let mut watch = target.watch("$things?watch=1").await;
    let made = target.make("a", "1").await;
    assert_eq!(watch.object("ADDED").await, made);
    assert_eq!(target.get("$things/a").await.expect(200).body, made);
}

async fn a_watch_ends_cleanly_after_its_timeout(target: &Target) {
    target.make("a", "1").await;
    let begun = std::time::Instant::now();
    let mut watch = target.watch("$things?watch=1&timeoutSeconds=1").await;
    watch.expect_frames(&["ADDED a 1"]).await;
    watch.ends().await;
    assert!(begun.elapsed().as_millis() >= 950, "{:?}", begun.elapsed());
}

async fn a_watch_with_a_negative_timeout_ends_immediately(target: &Target) {
    target.make("a", "1").await;
    target.watch("$things?watch=1&timeoutSeconds=-1").await.all().await;
}

async fn a_watch_with_bookmarks_gets_one_before_its_end(target: &Target) {
    let then = target.version().await;
    let path = format!("$things?watch=1&resourceVersion={then}&allowWatchBookmarks=true&timeoutSeconds=10");
    let mut watch = target.watch(&format!("{path}&labelSelector=absent")).await;
    let hidden = target.make("a", "1").await;
    // Its version increases with writes that the selector excludes.
    let bookmark = watch.object("BOOKMARK").await;
    assert!(number(&bookmark) >= number(&hidden));
    let expected = json!({
        "kind": "Secret", "apiVersion": "v1", "metadata": {"resourceVersion": version(&bookmark)},
    });
    assert_eq!(bookmark, expected);
}

async fn a_watch_without_bookmarks_gets_none(target: &Target) {
    target.make("a", "1").await;
    let mut watch = target.watch("$things?watch=1&timeoutSeconds=4").await;
    watch.expect_frames(&["ADDED a 1"]).await;
    watch.ends().await;
}

async fn a_watch_from_version_zero_with_bookmarks_gets_its_version(target: &Target) {
    let made = target.make("a", "1").await;
    target.version().await;
    let mut watch = target.watch("$things?watch=1&resourceVersion=0&allowWatchBookmarks=true").await;
    watch.expect_frames(&["ADDED a 1"]).await;
    let bookmark = watch.object("BOOKMARK").await;
    assert!(crate::watch_stream::is_end(&bookmark) && number(&bookmark) >= number(&made), "{bookmark}");
}

async fn a_watch_from_a_version_of_the_future_is_silent(target: &Target) {
    let future = target.version().await + "000";
    let path = format!("$things?watch=1&resourceVersion={future}&allowWatchBookmarks=true&timeoutSeconds=2");
    let mut watch = target.watch(&path).await;
    target.make("a", "1").await;
    watch.ends().await;
}

async fn a_watch_from_a_version_that_is_no_number_is_an_internal_error(target: &Target) {
    let response = target.get("$things?watch=1&resourceVersion=new").await.expect(500);
    assert_eq!(response.body["kind"], "Status");
}

async fn a_watch_from_before_the_cache_is_one_error_frame(target: &Target) {
    let before = target.make("a", "1").await;
    target.set("a", "2").await;
    let gadgets = target.define(|_| {}).await;
    let mut watch = target.watch(&format!("{gadgets}?watch=1&resourceVersion={}", version(&before))).await;
    let error = watch.object("ERROR").await;
    assert_eq!((&error["kind"], &error["status"]), (&"Status".into(), &"Failure".into()));
    assert_eq!((&error["code"], &error["reason"]), (&410.into(), &"Expired".into()));
    let message = error["message"].as_str().unwrap();
    assert!(message.starts_with(&format!("too old resource version: {} (", number(&before))), "{message}");
    watch.ends().await;
}

async fn a_watch_ignores_a_limit(target: &Target) {
    target.make("a", "1").await;
    target.make("b", "1").await;
    target.watch("$things?watch=1&limit=1").await.expect_frames(&["ADDED a 1", "ADDED b 1"]).await;
}

async fn a_watch_of_one_name_sends_only_that_object(target: &Target) {
    target.make("a", "1").await;
    target.make("b", "1").await;
    let mut watch = target.watch("$things?watch=1&fieldSelector=metadata.name%3Db").await;
    watch.expect_frames(&["ADDED b 1"]).await;
    target.set("a", "2").await;
    target.set("b", "3").await;
    watch.expect_frames(&["MODIFIED b 3"]).await;
}

async fn a_watch_on_the_path_of_an_object_is_a_get(target: &Target) {
    let made = target.make("a", "1").await;
    assert_eq!(target.get("$things/a?watch=1").await.expect(200).body, made);
}

async fn a_watch_of_all_namespaces_sends_objects_of_each(target: &Target) {
    let mut watch = target.watch("/api/v1/secrets?watch=1&labelSelector=of%3D$name").await;
    let mut thing = thing("a", "1");
    thing["metadata"]["labels"]["of"] = target.namespace.clone().into();
    target.post("$things", &thing).await.expect(201);
    let object = watch.object("ADDED").await;
    assert_eq!(object["metadata"]["namespace"], target.namespace);
}

async fn a_watch_of_a_missing_namespace_lasts_until_its_timeout(target: &Target) {
    target.watch("$ns-not/secrets?watch=1&timeoutSeconds=1").await.ends().await;
}

async fn the_deprecated_watch_path_is_served(target: &Target) {
    target.make("a", "1").await;
    let mut watch = target.watch("/api/v1/watch/namespaces/$name/secrets").await;
    watch.expect_frames(&["ADDED a 1"]).await;
}
