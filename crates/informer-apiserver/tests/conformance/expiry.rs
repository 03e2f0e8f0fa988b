//! Requests for compacted versions. Events have no watch cache, so they expire with the storage.

use serde_json::{Value, json};

use crate::runner::{Needs, statements};
use crate::targets::{Arm, Response};

statements![
    needs: Needs::Compaction;
    an_expired_token_is_gone_and_returns_another_one,
    the_returned_token_continues_at_the_newest_version,
    an_exact_list_of_a_compacted_version_is_gone,
    a_watch_from_a_compacted_version_is_one_error_frame,
    a_watch_of_a_cached_kind_is_not_affected_by_compaction,
];

/// Creates three events, lists the first, and compacts the storage.
async fn forgotten(arm: &Arm) -> Response {
    for name in ["a", "b", "c"] {
        let about = json!({"kind": "Node", "name": "n", "namespace": arm.namespace});
        let event = json!({"metadata": {"name": name}, "involvedObject": about, "reason": "Tested"});
        arm.post("$ns/events", &event).await.expect(201);
    }
    let page = arm.get("$ns/events?limit=1").await.expect(200);
    arm.compact().await;
    page
}

fn token(response: &Value) -> &str {
    response["metadata"]["continue"].as_str().unwrap_or_default()
}

async fn an_expired_token_is_gone_and_returns_another_one(arm: &Arm) {
    let page = forgotten(arm).await;
    let response = arm.get(&format!("$ns/events?limit=1&continue={}", token(&page.body))).await;
    let gone = response.expect_error(
        410,
        "Expired",
        "The provided continue parameter is too old to display a consistent list",
    );
    assert!(!token(&gone.body).is_empty() && token(&gone.body) != token(&page.body));
}

async fn the_returned_token_continues_at_the_newest_version(arm: &Arm) {
    let page = forgotten(arm).await;
    let gone = arm.get(&format!("$ns/events?limit=1&continue={}", token(&page.body))).await.expect(410);
    arm.delete("$ns/events/b").await.expect(200);
    let next = arm.get(&format!("$ns/events?limit=9&continue={}", token(&gone.body))).await.expect(200);
    assert_eq!(next.names(), "c");
    assert!(crate::targets::number(&next.body) > crate::targets::number(&page.body));
}

async fn an_exact_list_of_a_compacted_version_is_gone(arm: &Arm) {
    let page = forgotten(arm).await;
    let exact = format!("$ns/events?resourceVersion={}&resourceVersionMatch=Exact", page.version());
    arm.get(&exact).await.expect_error(
        410,
        "Expired",
        "The resourceVersion for the provided list is too old.",
    );
}

async fn a_watch_from_a_compacted_version_is_one_error_frame(arm: &Arm) {
    let page = forgotten(arm).await;
    let mut watch = arm.watch(&format!("$ns/events?watch=1&resourceVersion={}", page.version())).await;
    let error = watch.object("ERROR").await;
    assert_eq!((&error["code"], &error["reason"]), (&410.into(), &"Expired".into()), "{error}");
    watch.ends().await;
}

async fn a_watch_of_a_cached_kind_is_not_affected_by_compaction(arm: &Arm) {
    let then = arm.version().await;
    arm.make("a", "1").await;
    arm.compact().await;
    let mut watch = arm.watch(&format!("$things?watch=1&resourceVersion={then}")).await;
    watch.expect_frames(&["ADDED a 1"]).await;
}
