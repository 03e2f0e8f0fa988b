//! Updates: preconditions, immutable fields and generations.

use serde_json::{Value, json};

use crate::runner::statements;
use crate::targets::{Target, deployment, name, number, thing, version};

statements![
    an_update_at_the_current_version_is_accepted,
    an_update_at_an_old_version_is_a_conflict,
    an_update_without_a_version_is_accepted,
    an_update_with_another_uid_is_a_conflict,
    an_update_of_another_name_is_refused,
    an_update_of_what_is_not_there_is_refused,
    an_update_of_a_lease_that_is_not_there_creates_it,
    an_update_of_a_lease_with_a_uid_that_is_not_there_is_a_conflict,
    an_update_that_changes_nothing_keeps_the_version,
    an_update_replaces_the_whole_object,
    an_update_keeps_uid_and_creation_time,
    an_update_at_a_version_that_is_no_number_is_an_internal_error,
    a_field_that_cannot_change_is_refused,
    an_immutable_object_cannot_change,
    a_dry_run_of_an_update_changes_nothing,
    a_generation_rises_with_the_spec_alone,
    a_kind_without_a_spec_has_no_generation,
    an_update_adds_its_own_managed_fields_entry,
];

fn changed(object: &Value, value: &str) -> Value {
    let mut object = object.clone();
    object["metadata"]["annotations"]["value"] = value.into();
    object
}

async fn an_update_at_the_current_version_is_accepted(target: &Target) {
    let made = target.make("a", "1").await;
    let written = target.put("$things/a", &changed(&made, "2")).await.expect(200).body;
    assert!(number(&written) > number(&made));
    assert_eq!(target.get("$things/a").await.expect(200).body, written);
}

async fn an_update_at_an_old_version_is_a_conflict(target: &Target) {
    let made = target.make("a", "1").await;
    target.set("a", "2").await;
    let response = target.put("$things/a", &changed(&made, "3")).await;
    let words = "Operation cannot be fulfilled on secrets \"a\": the object has been modified; please apply your changes \
                 to the latest version and try again";
    let response = response.expect_error(409, "Conflict", words);
    assert_eq!(response.body["details"], json!({"name": "a", "kind": "secrets"}));
    assert_eq!(target.get("$things/a").await.body["metadata"]["annotations"]["value"], "2");
}

async fn an_update_without_a_version_is_accepted(target: &Target) {
    target.make("a", "1").await;
    target.set("a", "2").await;
    target.put("$things/a", &thing("a", "3")).await.expect(200);
}

async fn an_update_with_another_uid_is_a_conflict(target: &Target) {
    let mut made = target.make("a", "1").await;
    made["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000".into();
    let response = target.put("$things/a", &changed(&made, "2")).await;
    response.expect_error(409, "Conflict", "Precondition failed: UID in precondition:");
}

async fn an_update_of_another_name_is_refused(target: &Target) {
    target.make("a", "1").await;
    let response = target.put("$things/a", &thing("b", "1")).await;
    response.expect_error(
        400,
        "BadRequest",
        "the name of the object (b) does not match the name on the URL (a)",
    );
}

async fn an_update_of_what_is_not_there_is_refused(target: &Target) {
    let response = target.put("$things/a", &thing("a", "1")).await;
    response.expect_error(404, "NotFound", "secrets \"a\" not found");
}

async fn an_update_of_a_lease_that_is_not_there_creates_it(target: &Target) {
    let path = "/apis/coordination.k8s.io/v1/namespaces/$name/leases/l";
    let lease = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}});
    assert_eq!(name(&target.put(path, &lease).await.expect(201).body), "l");
}

/// Bug: the embedded server ignored the uid and created the Lease. A client that renewed a Lease which had been deleted
/// received another one, on this server only; the tests of shard groups had to expect both.
async fn an_update_of_a_lease_with_a_uid_that_is_not_there_is_a_conflict(target: &Target) {
    let (uid, path) =
        ("00000000-0000-0000-0000-000000000000", "/apis/coordination.k8s.io/v1/namespaces/$name/leases/l");
    let lease = json!({"metadata": {"name": "l", "uid": uid}, "spec": {"holderIdentity": "me"}});
    let response = target.put(path, &lease).await;
    let words = format!(
        "Operation cannot be fulfilled on leases.coordination.k8s.io \"l\": StorageError: invalid object, Code: 4, Key: \
         /registry/leases/{}/l, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID \
         in object meta: ",
        target.namespace
    );
    let response = response.expect_error(409, "Conflict", &words);
    let details = json!({"name": "l", "group": "coordination.k8s.io", "kind": "leases"});
    assert_eq!(response.body["details"], details);
    target.get(path).await.expect(404);
    // Of kinds that PUT does not create, the uid makes no difference.
    let mut secret = thing("a", "1");
    secret["metadata"]["uid"] = uid.into();
    target.put("$things/a", &secret).await.expect_error(404, "NotFound", "secrets \"a\" not found");
}

async fn an_update_that_changes_nothing_keeps_the_version(target: &Target) {
    let made = target.make("a", "1").await;
    assert_eq!(target.put("$things/a", &made).await.expect(200).body, made);
}

async fn an_update_replaces_the_whole_object(target: &Target) {
    let mut thing = thing("a", "1");
    thing["data"] = json!({"x": "eA==", "y": "eQ=="});
    target.post("$things", &thing).await.expect(201);
    thing["data"] = json!({"z": "eg=="});
    target.put("$things/a", &thing).await.expect(200);
    assert_eq!(target.get("$things/a").await.body["data"], json!({"z": "eg=="}));
}

async fn an_update_keeps_uid_and_creation_time(target: &Target) {
    let made = target.make("a", "1").await;
    let written = target.put("$things/a", &thing("a", "2")).await.expect(200).body;
    for field in ["uid", "creationTimestamp"] {
        assert_eq!(written["metadata"][field], made["metadata"][field]);
    }
}

async fn an_update_at_a_version_that_is_no_number_is_an_internal_error(target: &Target) {
    let mut made = target.make("a", "1").await;
    made["metadata"]["resourceVersion"] = "new".into();
    assert_eq!(target.put("$things/a", &made).await.expect(500).body["kind"], "Status");
}

async fn a_field_that_cannot_change_is_refused(target: &Target) {
    let mut made = target.make("a", "1").await;
    made["type"] = "example.com/other".into();
    let response = target.put("$things/a", &made).await;
    let response = response.expect_error(
        422,
        "Invalid",
        "type: Invalid value: \"example.com/other\": field is immutable",
    );
    assert_eq!(response.body["details"]["causes"][0]["field"], "type");
}

async fn an_immutable_object_cannot_change(target: &Target) {
    let mut thing = thing("a", "1");
    thing["immutable"] = true.into();
    thing["data"] = json!({"x": "eA=="});
    target.post("$things", &thing).await.expect(201);
    let response = target.merge("$things/a", &json!({"data": {"x": "eQ=="}})).await;
    response.expect_error(422, "Invalid", "data: Forbidden: field is immutable when `immutable` is set");
    let response = target.merge("$things/a", &json!({"immutable": false})).await;
    response.expect_error(422, "Invalid", "immutable: Forbidden: field is immutable when `immutable` is set");
    target.set("a", "2").await;
}

async fn a_dry_run_of_an_update_changes_nothing(target: &Target) {
    let made = target.make("a", "1").await;
    let dry = target.put("$things/a?dryRun=All", &changed(&made, "2")).await.expect(200).body;
    assert_eq!((version(&dry), &dry["metadata"]["annotations"]["value"]), (version(&made), &"2".into()));
    assert_eq!(target.get("$things/a").await.body, made);
}

async fn a_generation_rises_with_the_spec_alone(target: &Target) {
    let all = "/apis/apps/v1/namespaces/$name/deployments";
    let made = target.post(all, &deployment("d")).await.expect(201).body;
    assert_eq!(made["metadata"]["generation"], 1);
    let generation = async |part: &str, change: Value| {
        let response = target.merge(&format!("{all}/d{part}"), &change).await.expect(200);
        response.body["metadata"]["generation"].clone()
    };
    assert_eq!(generation("", json!({"metadata": {"labels": {"x": "y"}}})).await, 1);
    assert_eq!(generation("", json!({"spec": {"minReadySeconds": 5}})).await, 2);
    assert_eq!(generation("/status", json!({"status": {"observedGeneration": 2}})).await, 2);
    // A generation in the request is ignored.
    assert_eq!(generation("", json!({"metadata": {"generation": 7}})).await, 2);
}

async fn a_kind_without_a_spec_has_no_generation(target: &Target) {
    target.make("a", "1").await;
    assert!(target.set("a", "2").await["metadata"]["generation"].is_null());
}

async fn an_update_adds_its_own_managed_fields_entry(target: &Target) {
    let made = target.post("$things?fieldManager=one", &thing("a", "1")).await.expect(201).body;
    let mut more = made.clone();
    more["metadata"]["annotations"]["more"] = "1".into();
    let written = target.put("$things/a?fieldManager=two", &more).await.expect(200).body;
    let entries = written["metadata"]["managedFields"].as_array().unwrap();
    let of =
        |manager: &str| entries.iter().find(|entry| entry["manager"] == manager).unwrap()["fieldsV1"].clone();
    assert_eq!(of("two"), json!({"f:metadata": {"f:annotations": {"f:more": {}}}}));
    assert_eq!(of("one"), made["metadata"]["managedFields"][0]["fieldsV1"]);
}
