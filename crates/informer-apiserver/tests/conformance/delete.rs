//! Deletion: responses, finalizers, grace periods and preconditions.

use serde_json::{Value, json};

use crate::runner::statements;
use crate::targets::{Arm, number, thing, version};

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

async fn with_finalizer(arm: &Arm, name: &str) -> Value {
    let mut thing = thing(name, "1");
    thing["metadata"]["finalizers"] = json!(["example.com/hold"]);
    arm.post("$things", &thing).await.expect(201).body
}

async fn a_deletion_is_answered_by_a_status_with_the_uid(arm: &Arm) {
    let made = arm.make("a", "1").await;
    let status = arm.delete("$things/a").await.expect(200).body;
    let details = json!({"name": "a", "kind": "secrets", "uid": made["metadata"]["uid"]});
    let expected = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
    });
    assert_eq!(status, expected);
    arm.get("$things/a").await.expect(404);
}

async fn a_deletion_of_what_is_not_there_is_refused(arm: &Arm) {
    let response = arm.delete("$things/a").await.expect_error(404, "NotFound", "secrets \"a\" not found");
    assert_eq!(response.body["details"], json!({"name": "a", "kind": "secrets"}));
}

async fn a_finalizer_keeps_the_object_and_marks_it(arm: &Arm) {
    let made = with_finalizer(arm, "a").await;
    let marked = arm.delete("$things/a").await.expect(200).body;
    let metadata = &marked["metadata"];
    assert_eq!((&marked["kind"], &metadata["uid"]), (&"Secret".into(), &made["metadata"]["uid"]));
    assert!(metadata["deletionTimestamp"].is_string() && number(&marked) > number(&made));
    assert_eq!(metadata["deletionGracePeriodSeconds"], 0);
    assert_eq!(arm.get("$things/a").await.expect(200).body, marked);
}

async fn an_object_is_removed_with_its_last_finalizer(arm: &Arm) {
    with_finalizer(arm, "a").await;
    arm.delete("$things/a").await.expect(200);
    let last = arm.merge("$things/a", &json!({"metadata": {"finalizers": null}})).await.expect(200).body;
    assert!(last["metadata"]["finalizers"].is_null());
    arm.get("$things/a").await.expect(404);
}

async fn a_second_deletion_changes_nothing(arm: &Arm) {
    with_finalizer(arm, "a").await;
    let marked = arm.delete("$things/a").await.expect(200).body;
    assert_eq!(arm.delete("$things/a").await.expect(200).body, marked);
    assert_eq!(arm.get("$things/a").await.body, marked);
}

async fn no_finalizer_can_be_added_to_an_object_being_deleted(arm: &Arm) {
    with_finalizer(arm, "a").await;
    arm.delete("$things/a").await.expect(200);
    let patch = json!({"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}});
    let words = "no new finalizers can be added if the object is being deleted";
    arm.merge("$things/a", &patch).await.expect_error(422, "Invalid", words);
}

async fn a_name_stays_taken_while_the_object_is_being_deleted(arm: &Arm) {
    with_finalizer(arm, "a").await;
    arm.delete("$things/a").await.expect(200);
    let again = arm.post("$things", &thing("a", "2")).await;
    again.expect_error(409, "AlreadyExists", "object is being deleted: secrets \"a\" already exists");
}

async fn a_watch_sends_the_deletion_timestamp_and_then_the_deletion(arm: &Arm) {
    let made = with_finalizer(arm, "a").await;
    let mut watch = arm.watch(&format!("$things?watch=1&resourceVersion={}", version(&made))).await;
    let marked = arm.delete("$things/a").await.expect(200).body;
    assert_eq!(watch.object("MODIFIED").await, marked);
    arm.merge("$things/a", &json!({"metadata": {"finalizers": null}})).await.expect(200);
    // The state before the finalizer was removed.
    let gone = watch.object("DELETED").await;
    assert_eq!(gone["metadata"]["finalizers"], json!(["example.com/hold"]));
    assert!(number(&gone) > number(&marked));
}

async fn a_deletion_of_another_uid_is_a_conflict(arm: &Arm) {
    arm.make("a", "1").await;
    let options = json!({"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}});
    let words =
        "the UID in the precondition (00000000-0000-0000-0000-000000000000) does not match the UID in record";
    arm.delete_with("$things/a", &options).await.expect_error(409, "Conflict", words);
    arm.get("$things/a").await.expect(200);
}

async fn a_deletion_of_another_version_is_a_conflict(arm: &Arm) {
    let made = arm.make("a", "1").await;
    arm.set("a", "2").await;
    let options = json!({"preconditions": {"resourceVersion": version(&made)}});
    let words = "does not match the ResourceVersion in record";
    arm.delete_with("$things/a", &options).await.expect_error(409, "Conflict", words);
}

async fn a_deletion_of_this_uid_and_version_is_done(arm: &Arm) {
    let made = arm.make("a", "1").await;
    let preconditions = json!({"uid": made["metadata"]["uid"], "resourceVersion": version(&made)});
    arm.delete_with("$things/a", &json!({"preconditions": preconditions})).await.expect(200);
}

async fn a_deletion_that_orphans_leaves_a_finalizer(arm: &Arm) {
    arm.make("a", "1").await;
    let marked = arm.delete_with("$things/a", &json!({"propagationPolicy": "Orphan"})).await.expect(200).body;
    assert_eq!(marked["metadata"]["finalizers"], json!(["orphan"]));
}

async fn a_deletion_in_the_foreground_leaves_a_finalizer(arm: &Arm) {
    arm.make("a", "1").await;
    let marked = arm.delete("$things/a?propagationPolicy=Foreground").await.expect(200).body;
    assert_eq!(marked["metadata"]["finalizers"], json!(["foregroundDeletion"]));
}

async fn two_settings_for_dependents_are_refused(arm: &Arm) {
    arm.make("a", "1").await;
    let options = json!({"propagationPolicy": "Orphan", "orphanDependents": true});
    let words = "orphanDependents and deletionPropagation cannot be both set";
    arm.delete_with("$things/a", &options).await.expect_error(422, "Invalid", words);
}

async fn an_unknown_policy_is_refused(arm: &Arm) {
    arm.make("a", "1").await;
    let response = arm.delete_with("$things/a", &json!({"propagationPolicy": "Later"})).await;
    response.expect_error(422, "Invalid", "propagationPolicy: Unsupported value: \"Later\"");
}

async fn a_dry_run_of_a_deletion_changes_nothing(arm: &Arm) {
    let made = arm.make("a", "1").await;
    arm.delete("$things/a?dryRun=All").await.expect(200);
    assert_eq!(arm.get("$things/a").await.expect(200).body, made);
}

async fn options_in_the_body_override_those_in_the_query(arm: &Arm) {
    arm.make("a", "1").await;
    arm.delete_with("$things/a?dryRun=All", &json!({"gracePeriodSeconds": 0})).await.expect(200);
    arm.get("$things/a").await.expect(404);
}

async fn a_collection_can_be_deleted(arm: &Arm) {
    arm.make("a", "1").await;
    arm.make("b", "1").await;
    let response = arm.delete("$things").await.expect(200);
    assert_eq!((response.body["kind"].as_str(), response.names().as_str()), (Some("SecretList"), "a b"));
    assert_eq!(arm.get("$things").await.names(), "");
}

async fn a_selection_of_a_collection_can_be_deleted(arm: &Arm) {
    for name in ["a", "b", "c"] {
        let mut thing = thing(name, "1");
        thing["metadata"]["labels"]["app"] = name.into();
        arm.post("$things", &thing).await.expect(201);
    }
    arm.delete("$things?labelSelector=app%20in%20(a,c)").await.expect(200);
    assert_eq!(arm.get("$things").await.names(), "b");
}

async fn a_collection_keeps_what_has_finalizers(arm: &Arm) {
    arm.make("a", "1").await;
    with_finalizer(arm, "b").await;
    arm.delete("$things").await.expect(200);
    let left = arm.get("$things").await.expect(200);
    assert_eq!(left.names(), "b");
    assert!(left.items()[0]["metadata"]["deletionTimestamp"].is_string());
}

async fn bound_pod(arm: &Arm) -> Value {
    arm.make_pod("p").await;
    let bound = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "not-a-node"}});
    arm.post("$ns/pods/p/binding", &bound).await.expect(201);
    arm.get("$ns/pods/p").await.expect(200).body
}

async fn a_pod_on_a_node_gets_its_grace_period(arm: &Arm) {
    let pod = bound_pod(arm).await;
    let marked = arm.delete("$ns/pods/p").await.expect(200).body;
    assert_eq!(
        (&marked["kind"], &marked["metadata"]["deletionGracePeriodSeconds"]),
        (&"Pod".into(), &30.into())
    );
    let generation = |pod: &Value| pod["metadata"]["generation"].as_u64().unwrap();
    assert_eq!(generation(&marked), generation(&pod) + 1);
    arm.get("$ns/pods/p").await.expect(200);
}

async fn an_unscheduled_pod_is_removed_immediately(arm: &Arm) {
    let pod = arm.make_pod("p").await;
    let mut watch = arm.watch(&format!("$ns/pods?watch=1&resourceVersion={}", version(&pod))).await;
    arm.delete("$ns/pods/p").await.expect(200);
    arm.get("$ns/pods/p").await.expect(404);
    let marked = watch.object("MODIFIED").await;
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
    assert!(number(&watch.object("DELETED").await) > number(&marked));
}

async fn a_shorter_grace_period_moves_the_deletion_forward(arm: &Arm) {
    bound_pod(arm).await;
    let grace = async |seconds: u64| {
        let options = json!({"gracePeriodSeconds": seconds});
        let pod = arm.delete_with("$ns/pods/p", &options).await.expect(200).body;
        pod["metadata"]["deletionGracePeriodSeconds"].as_u64().unwrap()
    };
    assert_eq!(grace(600).await, 600);
    assert_eq!(grace(60).await, 60);
    assert_eq!(grace(300).await, 60);
}

async fn a_pod_without_grace_period_is_removed_immediately(arm: &Arm) {
    bound_pod(arm).await;
    arm.delete_with("$ns/pods/p", &json!({"gracePeriodSeconds": 0})).await.expect(200);
    arm.get("$ns/pods/p").await.expect(404);
}

async fn a_namespace_is_terminating_until_it_is_finalized(arm: &Arm) {
    let marked = arm.delete("$ns").await.expect(200).body;
    assert_eq!(marked["status"]["phase"], "Terminating");
    assert_eq!(marked["spec"]["finalizers"], json!(["kubernetes"]));
    let words = "because it is being terminated";
    arm.post("$things", &thing("a", "1")).await.expect_error(403, "Forbidden", words);
}
