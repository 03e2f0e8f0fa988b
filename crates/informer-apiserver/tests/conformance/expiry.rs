//! What a server says of versions it has forgotten. Events have no cache in front of the storage, so they forget with it.

use serde_json::{Value, json};

use crate::arm::{Answer, Arm};
use crate::runner::{Needs, statements};

statements![
    needs: Needs::Compaction;
    a_forgotten_token_is_gone_and_brings_another_one,
    the_other_token_goes_on_behind_the_last_page_at_the_newest_version,
    an_exact_list_of_a_forgotten_version_is_gone,
    a_watch_from_a_forgotten_version_is_one_error_frame,
    a_watch_of_a_cached_kind_outlives_the_storage,
];

/// Makes three events, lists the first, and makes the storage forget that moment.
async fn forgotten(arm: &Arm) -> Answer {
    for name in ["a", "b", "c"] {
        let about = json!({"kind": "Node", "name": "n", "namespace": arm.namespace});
        let event = json!({"metadata": {"name": name}, "involvedObject": about, "reason": "Tested"});
        arm.post("$ns/events", &event).await.expect(201);
    }
    let page = arm.get("$ns/events?limit=1").await.expect(200);
    arm.compact().await;
    page
}

fn token(answer: &Value) -> &str {
    answer["metadata"]["continue"].as_str().unwrap_or_default()
}

async fn a_forgotten_token_is_gone_and_brings_another_one(arm: &Arm) {
    let page = forgotten(arm).await;
    let answer = arm.get(&format!("$ns/events?limit=1&continue={}", token(&page.body))).await;
    let gone = answer.refuses(
        410,
        "Expired",
        "The provided continue parameter is too old to display a consistent list",
    );
    assert!(!token(&gone.body).is_empty() && token(&gone.body) != token(&page.body));
}

async fn the_other_token_goes_on_behind_the_last_page_at_the_newest_version(arm: &Arm) {
    let page = forgotten(arm).await;
    let gone = arm.get(&format!("$ns/events?limit=1&continue={}", token(&page.body))).await.expect(410);
    arm.delete("$ns/events/b").await.expect(200);
    let next = arm.get(&format!("$ns/events?limit=9&continue={}", token(&gone.body))).await.expect(200);
    assert_eq!(next.names(), "c");
    assert!(crate::arm::number(&next.body) > crate::arm::number(&page.body));
}

async fn an_exact_list_of_a_forgotten_version_is_gone(arm: &Arm) {
    let page = forgotten(arm).await;
    let exact = format!("$ns/events?resourceVersion={}&resourceVersionMatch=Exact", page.version());
    arm.get(&exact).await.refuses(410, "Expired", "The resourceVersion for the provided list is too old.");
}

async fn a_watch_from_a_forgotten_version_is_one_error_frame(arm: &Arm) {
    let page = forgotten(arm).await;
    let mut watch = arm.watch(&format!("$ns/events?watch=1&resourceVersion={}", page.version())).await;
    let error = watch.object("ERROR").await;
    assert_eq!((&error["code"], &error["reason"]), (&410.into(), &"Expired".into()), "{error}");
    watch.ends().await;
}

async fn a_watch_of_a_cached_kind_outlives_the_storage(arm: &Arm) {
    let then = arm.version().await;
    arm.make("a", "1").await;
    arm.compact().await;
    let mut watch = arm.watch(&format!("$things?watch=1&resourceVersion={then}")).await;
    watch.tells(&["ADDED a 1"]).await;
}
