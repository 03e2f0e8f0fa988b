//! Lists as watches: `sendInitialEvents`.

use crate::runner::statements;
use crate::targets::{Target, number};
use crate::watch_stream::is_end;

statements![
    initial_events_end_with_an_annotated_bookmark,
    after_the_initial_events_the_stream_is_a_watch,
    a_collection_without_objects_begins_with_the_bookmark,
    initial_events_show_the_last_write,
    initial_events_are_those_of_the_selection,
    initial_events_without_bookmarks_have_no_end_marker,
    initial_events_can_be_metadata_alone,
    initial_events_declined_begin_now,
    initial_events_declined_begin_at_a_version,
    initial_events_without_a_match_are_refused,
    initial_events_of_an_exact_version_are_refused,
    a_match_without_initial_events_is_refused,
    initial_events_of_a_list_are_refused,
    initial_events_of_the_future_time_out_in_the_stream,
];

const INITIAL: &str =
    "$things?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

async fn initial_events_end_with_an_annotated_bookmark(target: &Target) {
    target.make("b", "1").await;
    let last = target.make("a", "1").await;
    let mut watch = target.watch(INITIAL).await;
    watch.expect_frames(&["ADDED a 1", "ADDED b 1"]).await;
    let bookmark = watch.object("BOOKMARK").await;
    assert!(is_end(&bookmark) && number(&bookmark) >= number(&last), "{bookmark}");
    assert_eq!((&bookmark["kind"], &bookmark["apiVersion"]), (&"Secret".into(), &"v1".into()));
}

async fn after_the_initial_events_the_stream_is_a_watch(target: &Target) {
    target.make("a", "1").await;
    let mut watch = target.watch(INITIAL).await;
    watch.expect_frames(&["ADDED a 1", "BOOKMARK end"]).await;
    target.set("a", "2").await;
    target.make("b", "1").await;
    target.unmake("a").await;
    watch.expect_frames(&["MODIFIED a 2", "ADDED b 1", "DELETED a 2"]).await;
}

async fn a_collection_without_objects_begins_with_the_bookmark(target: &Target) {
    let then = target.version().await;
    let mut watch = target.watch(INITIAL).await;
    let bookmark = watch.object("BOOKMARK").await;
    assert!(is_end(&bookmark) && number(&bookmark) >= then.parse().unwrap(), "{bookmark}");
}

async fn initial_events_show_the_last_write(target: &Target) {
    target.make("a", "0").await;
    for round in 1..8 {
        let value = round.to_string();
        target.set("a", &value).await;
        target.watch(INITIAL).await.expect_frames(&[&format!("ADDED a {value}"), "BOOKMARK end"]).await;
    }
}

async fn initial_events_are_those_of_the_selection(target: &Target) {
    target.make("a", "1").await;
    target.make("b", "1").await;
    let mut watch = target.watch(&format!("{INITIAL}&fieldSelector=metadata.name!%3Da")).await;
    watch.expect_frames(&["ADDED b 1", "BOOKMARK end"]).await;
}

async fn initial_events_without_bookmarks_have_no_end_marker(target: &Target) {
    target.make("a", "1").await;
    let path = "$things?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=1";
    let mut watch = target.watch(path).await;
    watch.expect_frames(&["ADDED a 1"]).await;
    watch.ends().await;
}

async fn initial_events_can_be_metadata_alone(target: &Target) {
    target.make("a", "1").await;
    let accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    let mut watch = target.watch_as(INITIAL, accept).await;
    assert_eq!(watch.object("ADDED").await["kind"], "PartialObjectMetadata");
    let bookmark = watch.object("BOOKMARK").await;
    assert!(is_end(&bookmark) && bookmark["kind"] == "PartialObjectMetadata", "{bookmark}");
}

async fn initial_events_declined_begin_now(target: &Target) {
    target.make("a", "1").await;
    let path = "$things?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
    let mut watch = target.watch(path).await;
    target.set("a", "2").await;
    watch.expect_frames(&["MODIFIED a 2"]).await;
}

async fn initial_events_declined_begin_at_a_version(target: &Target) {
    let then = target.version().await;
    target.make("a", "1").await;
    let path = "$things?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
    let mut watch = target.watch(&format!("{path}&resourceVersion={then}")).await;
    watch.expect_frames(&["ADDED a 1"]).await;
}

async fn initial_events_without_a_match_are_refused(target: &Target) {
    let response = target.get("$things?watch=1&sendInitialEvents=true").await;
    let words = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
    response.expect_error(422, "Invalid", words);
}

async fn initial_events_of_an_exact_version_are_refused(target: &Target) {
    let response = target
        .get("$things?watch=1&sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=1")
        .await;
    let words = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
    response.expect_error(422, "Invalid", words);
}

async fn a_match_without_initial_events_is_refused(target: &Target) {
    let response = target.get("$things?watch=1&resourceVersion=1&resourceVersionMatch=NotOlderThan").await;
    let words = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
    response.expect_error(422, "Invalid", words);
}

async fn initial_events_of_a_list_are_refused(target: &Target) {
    let response = target.get("$things?sendInitialEvents=true").await;
    response.expect_error(422, "Invalid", "sendInitialEvents is forbidden for list");
}

async fn initial_events_of_the_future_time_out_in_the_stream(target: &Target) {
    let future = target.version().await + "000";
    let mut watch = target.watch(&format!("{INITIAL}&resourceVersion={future}")).await;
    let error = watch.object("ERROR").await;
    assert_eq!((&error["code"], &error["reason"]), (&504.into(), &"Timeout".into()), "{error}");
    watch.ends().await;
}
