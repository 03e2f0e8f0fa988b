//! Requests for compacted versions. Events have no watch cache, so they expire with the storage.

use serde_json::{Value, json};

use crate::runner::{Needs, statements};
use crate::targets::{Response, Target};

statements![
    needs: Needs::Compaction;
    an_expired_token_is_gone_and_returns_another_one,
    the_returned_token_continues_at_the_newest_version,
    an_exact_list_of_a_compacted_version_is_gone,
    a_watch_from_a_compacted_version_is_one_error_frame,
    a_watch_of_a_cached_kind_is_not_affected_by_compaction,
];

/// Creates three events, lists the first, and compacts the storage.
async fn forgotten(target: &Target) -> Response {
    for name in ["a", "b", "c"] {
        let about = json!({"kind": "Node", "name": "n", "namespace": target.namespace});
        let event = json!({"metadata": {"name": name}, "involvedObject": about, "reason": "Tested"});
        target.post("$ns/events", &event).await.expect(201);
    }
    let page = target.get("$ns/events?limit=1").await.expect(200);
    target.compact().await;
    page
}

fn token(response: &Value) -> &str {
    response["metadata"]["continue"].as_str().unwrap_or_default()
}

async fn an_expired_token_is_gone_and_returns_another_one(target: &Target) {
    let page = forgotten(target).await;
    let response = target.get(&format!("$ns/events?limit=1&continue={}", token(&page.body))).await;
    let gone = response.expect_error(
        410,
        "Expired",
        "The provided continue parameter is too old to display a consistent list",
    );
    assert!(!token(&gone.body).is_empty() && token(&gone.body) != token(&page.body));
}

async fn the_returned_token_continues_at_the_newest_version(target: &Target) {
    let page = forgotten(target).await;
    let gone = target.get(&format!("$ns/events?limit=1&continue={}", token(&page.body))).await.expect(410);
    target.delete("$ns/events/b").await.expect(200);
    let next = target.get(&format!("$ns/events?limit=9&continue={}", token(&gone.body))).await.expect(200);
    assert_eq!(next.names(), "c");
    assert!(crate::targets::number(&next.body) > crate::targets::number(&page.body));
}

async fn an_exact_list_of_a_compacted_version_is_gone(target: &Target) {
    let page = forgotten(target).await;
    let exact = format!("$ns/events?resourceVersion={}&resourceVersionMatch=Exact", page.version());
    target.get(&exact).await.expect_error(
        410,
        "Expired",
        "The resourceVersion for the provided list is too old.",
    );
}

async fn a_watch_from_a_compacted_version_is_one_error_frame(target: &Target) {
    let page = forgotten(target).await;
    let mut watch = target.watch(&format!("$ns/events?watch=1&resourceVersion={}", page.version())).await;
    let error = watch.object("ERROR").await;
    assert_eq!((&error["code"], &error["reason"]), (&410.into(), &"Expired".into()), "{error}");
    watch.ends().await;
}

async fn a_watch_of_a_cached_kind_is_not_affected_by_compaction(target: &Target) {
    let then = target.version().await;
    target.make("a", "1").await;
    target.compact().await;
    let mut watch = target.watch(&format!("$things?watch=1&resourceVersion={then}")).await;
    watch.expect_frames(&["ADDED a 1"]).await;
}
