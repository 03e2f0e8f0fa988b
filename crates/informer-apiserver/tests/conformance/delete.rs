//! Deletion: responses, finalizers, grace periods and preconditions.

use serde_json::{Value, json};

use crate::runner::statements;
use crate::targets::{Target, number, thing, version};

statements![
    a_deletion_is_answered_by_a_status_with_the_uid,
    a_deletion_of_what_is_not_there_is_refused,
    a_finalizer_keeps_the_object_and_marks_it,
    an_object_is_removed_with_its_last_finalizer,
    a_second_deletion_changes_nothing,
    no_finalizer_can_be_added_to_an_object_being_deleted,
    a_name_stays_taken_while_the_object_is_being_deleted,
    a_watch_sends_the_deletion_timestamp_and_then_the_deletion,
    a_deletion_of_another_uid_is_a_conflict,
    a_deletion_of_another_version_is_a_conflict,
    a_deletion_of_this_uid_and_version_is_done,
    a_deletion_that_orphans_leaves_a_finalizer,
    a_deletion_in_the_foreground_leaves_a_finalizer,
    two_settings_for_dependents_are_refused,
    an_unknown_policy_is_refused,
    a_dry_run_of_a_deletion_changes_nothing,
    options_in_the_body_override_those_in_the_query,
    a_collection_can_be_deleted,
    a_selection_of_a_collection_can_be_deleted,
    a_collection_keeps_what_has_finalizers,
    a_pod_on_a_node_gets_its_grace_period,
    an_unscheduled_pod_is_removed_immediately,
    a_shorter_grace_period_moves_the_deletion_forward,
    a_pod_without_grace_period_is_removed_immediately,
    a_namespace_is_terminating_until_it_is_finalized,
];

async fn with_finalizer(target: &Target, name: &str) -> Value {
    let mut thing = thing(name, "1");
    thing["metadata"]["finalizers"] = json!(["example.com/hold"]);
    target.post("$things", &thing).await.expect(201).body
}

async fn a_deletion_is_answered_by_a_status_with_the_uid(target: &Target) {
    let made = target.make("a", "1").await;
    let status = target.delete("$things/a").await.expect(200).body;
    let details = json!({"name": "a", "kind": "secrets", "uid": made["metadata"]["uid"]});
    let expected = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
    });
    assert_eq!(status, expected);
    target.get("$things/a").await.expect(404);
}

async fn a_deletion_of_what_is_not_there_is_refused(target: &Target) {
    let response = target.delete("$things/a").await.expect_error(404, "NotFound", "secrets \"a\" not found");
    assert_eq!(response.body["details"], json!({"name": "a", "kind": "secrets"}));
}

async fn a_finalizer_keeps_the_object_and_marks_it(target: &Target) {
    let made = with_finalizer(target, "a").await;
    let marked = target.delete("$things/a").await.expect(200).body;
    let metadata = &marked["metadata"];
    assert_eq!((&marked["kind"], &metadata["uid"]), (&"Secret".into(), &made["metadata"]["uid"]));
    assert!(metadata["deletionTimestamp"].is_string() && number(&marked) > number(&made));
    assert_eq!(metadata["deletionGracePeriodSeconds"], 0);
    assert_eq!(target.get("$things/a").await.expect(200).body, marked);
}

async fn an_object_is_removed_with_its_last_finalizer(target: &Target) {
    with_finalizer(target, "a").await;
    target.delete("$things/a").await.expect(200);
    let last = target.merge("$things/a", &json!({"metadata": {"finalizers": null}})).await.expect(200).body;
    assert!(last["metadata"]["finalizers"].is_null());
    target.get("$things/a").await.expect(404);
}

async fn a_second_deletion_changes_nothing(target: &Target) {
    with_finalizer(target, "a").await;
    let marked = target.delete("$things/a").await.expect(200).body;
    assert_eq!(target.delete("$things/a").await.expect(200).body, marked);
    assert_eq!(target.get("$things/a").await.body, marked);
}

async fn no_finalizer_can_be_added_to_an_object_being_deleted(target: &Target) {
    with_finalizer(target, "a").await;
    target.delete("$things/a").await.expect(200);
    let patch = json!({"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}});
    let words = "no new finalizers can be added if the object is being deleted";
    target.merge("$things/a", &patch).await.expect_error(422, "Invalid", words);
}

async fn a_name_stays_taken_while_the_object_is_being_deleted(target: &Target) {
    with_finalizer(target, "a").await;
    target.delete("$things/a").await.expect(200);
    let again = target.post("$things", &thing("a", "2")).await;
    again.expect_error(409, "AlreadyExists", "object is being deleted: secrets \"a\" already exists");
}

async fn a_watch_sends_the_deletion_timestamp_and_then_the_deletion(target: &Target) {
    let made = with_finalizer(target, "a").await;
    let mut watch = target.watch(&format!("$things?watch=1&resourceVersion={}", version(&made))).await;
    let marked = target.delete("$things/a").await.expect(200).body;
    assert_eq!(watch.object("MODIFIED").await, marked);
    target.merge("$things/a", &json!({"metadata": {"finalizers": null}})).await.expect(200);
    // The state before the finalizer was removed.
    let gone = watch.object("DELETED").await;
    assert_eq!(gone["metadata"]["finalizers"], json!(["example.com/hold"]));
    assert!(number(&gone) > number(&marked));
}

async fn a_deletion_of_another_uid_is_a_conflict(target: &Target) {
    target.make("a", "1").await;
    let options = json!({"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}});
    let words =
        "the UID in the precondition (00000000-0000-0000-0000-000000000000) does not match the UID in record";
    target.delete_with("$things/a", &options).await.expect_error(409, "Conflict", words);
    target.get("$things/a").await.expect(200);
}

async fn a_deletion_of_another_version_is_a_conflict(target: &Target) {
    let made = target.make("a", "1").await;
    target.set("a", "2").await;
    let options = json!({"preconditions": {"resourceVersion": version(&made)}});
    let words = "does not match the ResourceVersion in record";
    target.delete_with("$things/a", &options).await.expect_error(409, "Conflict", words);
}

async fn a_deletion_of_this_uid_and_version_is_done(target: &Target) {
    let made = target.make("a", "1").await;
    let preconditions = json!({"uid": made["metadata"]["uid"], "resourceVersion": version(&made)});
    target.delete_with("$things/a", &json!({"preconditions": preconditions})).await.expect(200);
}

async fn a_deletion_that_orphans_leaves_a_finalizer(target: &Target) {
    target.make("a", "1").await;
    let marked =
        target.delete_with("$things/a", &json!({"propagationPolicy": "Orphan"})).await.expect(200).body;
    assert_eq!(marked["metadata"]["finalizers"], json!(["orphan"]));
}

async fn a_deletion_in_the_foreground_leaves_a_finalizer(target: &Target) {
    target.make("a", "1").await;
    let marked = target.delete("$things/a?propagationPolicy=Foreground").await.expect(200).body;
    assert_eq!(marked["metadata"]["finalizers"], json!(["foregroundDeletion"]));
}

async fn two_settings_for_dependents_are_refused(target: &Target) {
    target.make("a", "1").await;
    let options = json!({"propagationPolicy": "Orphan", "orphanDependents": true});
    let words = "orphanDependents and deletionPropagation cannot be both set";
    target.delete_with("$things/a", &options).await.expect_error(422, "Invalid", words);
}

async fn an_unknown_policy_is_refused(target: &Target) {
    target.make("a", "1").await;
    let response = target.delete_with("$things/a", &json!({"propagationPolicy": "Later"})).await;
    response.expect_error(422, "Invalid", "propagationPolicy: Unsupported value: \"Later\"");
}

async fn a_dry_run_of_a_deletion_changes_nothing(target: &Target) {
    let made = target.make("a", "1").await;
    target.delete("$things/a?dryRun=All").await.expect(200);
    assert_eq!(target.get("$things/a").await.expect(200).body, made);
}

async fn options_in_the_body_override_those_in_the_query(target: &Target) {
    target.make("a", "1").await;
    target.delete_with("$things/a?dryRun=All", &json!({"gracePeriodSeconds": 0})).await.expect(200);
    target.get("$things/a").await.expect(404);
}

async fn a_collection_can_be_deleted(target: &Target) {
    target.make("a", "1").await;
    target.make("b", "1").await;
    let response = target.delete("$things").await.expect(200);
    assert_eq!((response.body["kind"].as_str(), response.names().as_str()), (Some("SecretList"), "a b"));
    assert_eq!(target.get("$things").await.names(), "");
}

async fn a_selection_of_a_collection_can_be_deleted(target: &Target) {
    for name in ["a", "b", "c"] {
        let mut thing = thing(name, "1");
        thing["metadata"]["labels"]["app"] = name.into();
        target.post("$things", &thing).await.expect(201);
    }
    target.delete("$things?labelSelector=app%20in%20(a,c)").await.expect(200);
    assert_eq!(target.get("$things").await.names(), "b");
}

async fn a_collection_keeps_what_has_finalizers(target: &Target) {
    target.make("a", "1").await;
    with_finalizer(target, "b").await;
    target.delete("$things").await.expect(200);
    let left = target.get("$things").await.expect(200);
    assert_eq!(left.names(), "b");
    assert!(left.items()[0]["metadata"]["deletionTimestamp"].is_string());
}

async fn bound_pod(target: &Target) -> Value {
    target.make_pod("p").await;
    let bound = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "not-a-node"}});
    target.post("$ns/pods/p/binding", &bound).await.expect(201);
    target.get("$ns/pods/p").await.expect(200).body
}

async fn a_pod_on_a_node_gets_its_grace_period(target: &Target) {
    let pod = bound_pod(target).await;
    let marked = target.delete("$ns/pods/p").await.expect(200).body;
    assert_eq!(
        (&marked["kind"], &marked["metadata"]["deletionGracePeriodSeconds"]),
        (&"Pod".into(), &30.into())
    );
    let generation = |pod: &Value| pod["metadata"]["generation"].as_u64().unwrap();
    assert_eq!(generation(&marked), generation(&pod) + 1);
    target.get("$ns/pods/p").await.expect(200);
}

async fn an_unscheduled_pod_is_removed_immediately(target: &Target) {
    let pod = target.make_pod("p").await;
    let mut watch = target.watch(&format!("$ns/pods?watch=1&resourceVersion={}", version(&pod))).await;
    target.delete("$ns/pods/p").await.expect(200);
    target.get("$ns/pods/p").await.expect(404);
    let marked = watch.object("MODIFIED").await;
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
    assert!(number(&watch.object("DELETED").await) > number(&marked));
}

async fn a_shorter_grace_period_moves_the_deletion_forward(target: &Target) {
    bound_pod(target).await;
    let grace = async |seconds: u64| {
        let options = json!({"gracePeriodSeconds": seconds});
        let pod = target.delete_with("$ns/pods/p", &options).await.expect(200).body;
        pod["metadata"]["deletionGracePeriodSeconds"].as_u64().unwrap()
    };
    assert_eq!(grace(600).await, 600);
    assert_eq!(grace(60).await, 60);
    assert_eq!(grace(300).await, 60);
}

async fn a_pod_without_grace_period_is_removed_immediately(target: &Target) {
    bound_pod(target).await;
    target.delete_with("$ns/pods/p", &json!({"gracePeriodSeconds": 0})).await.expect(200);
    target.get("$ns/pods/p").await.expect(404);
}

async fn a_namespace_is_terminating_until_it_is_finalized(target: &Target) {
    let marked = target.delete("$ns").await.expect(200).body;
    assert_eq!(marked["status"]["phase"], "Terminating");
    assert_eq!(marked["spec"]["finalizers"], json!(["kubernetes"]));
    let words = "because it is being terminated";
    target.post("$things", &thing("a", "1")).await.expect_error(403, "Forbidden", words);
}
