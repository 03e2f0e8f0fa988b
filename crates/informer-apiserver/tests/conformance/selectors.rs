//! Label and field selectors, in lists and in watches.

use serde_json::{Value, json};

use crate::runner::statements;
use crate::targets::{Target, number, thing, version};

statements![
    a_label_selects_by_its_value,
    a_label_selects_by_sets_of_values,
    a_label_selects_by_being_there,
    all_requirements_must_hold,
    a_label_selector_that_cannot_be_read_is_refused,
    a_field_selects_by_name_and_by_other_names,
    a_field_of_the_kind_selects,
    an_unknown_field_is_refused,
    an_unknown_field_of_a_kind_with_fields_is_refused,
    an_object_that_starts_to_match_is_sent_as_added,
    an_object_that_stops_matching_is_sent_as_deleted_in_its_last_matching_state,
    an_object_that_never_matched_is_not_sent,
    history_is_filtered_by_the_selector,
    a_watch_by_field_follows_the_field,
];

async fn label(target: &Target, name: &str, labels: Value) -> Value {
    let mut thing = thing(name, "1");
    thing["metadata"]["labels"] = labels;
    target.post("$things", &thing).await.expect(201).body
}

async fn relabel(target: &Target, name: &str, labels: Value) -> Value {
    let patch = json!({"metadata": {"labels": labels, "annotations": {"value": "2"}}});
    target.merge(&format!("$things/{name}"), &patch).await.expect(200).body
}

async fn check(target: &Target, cases: &[(&str, &str)]) {
    label(target, "a", json!({"app": "x", "tier": "front"})).await;
    label(target, "b", json!({"app": "y"})).await;
    label(target, "c", json!({"tier": ""})).await;
    for (selector, expected) in cases {
        let query: String = form_urlencoded::byte_serialize(selector.as_bytes()).collect();
        let list = target.get(&format!("$things?labelSelector={query}")).await.expect(200);
        assert_eq!(list.names(), *expected, "{selector}");
    }
}

async fn a_label_selects_by_its_value(target: &Target) {
    check(target, &[("app=x", "a"), ("app==y", "b"), ("app!=x", "b c"), ("tier=", "c"), ("app=z", "")]).await;
}

async fn a_label_selects_by_sets_of_values(target: &Target) {
    check(target, &[("app in (x,y)", "a b"), ("app notin (x)", "b c"), ("tier in (front,)", "a c")]).await;
}

async fn a_label_selects_by_being_there(target: &Target) {
    check(target, &[("app", "a b"), ("!app", "c"), ("tier", "a c"), ("!absent", "a b c"), ("", "a b c")])
        .await;
}

async fn all_requirements_must_hold(target: &Target) {
    check(target, &[("app,tier", "a"), ("app=x,tier!=front", ""), ("app in (x,y),!tier", "b")]).await;
}

async fn a_label_selector_that_cannot_be_read_is_refused(target: &Target) {
    for selector in ["app%20in%20x", "app%3D%3D%3Dx", "a%20b", "-a%3Dx"] {
        let list = target.get(&format!("$things?labelSelector={selector}")).await;
        assert_eq!(list.expect(400).body["reason"], "BadRequest", "{selector}");
    }
}

async fn a_field_selects_by_name_and_by_other_names(target: &Target) {
    for name in ["a", "b", "c"] {
        target.make(name, "1").await;
    }
    for (selector, names) in [("metadata.name%3Db", "b"), ("metadata.name!%3Db", "a c")] {
        assert_eq!(target.get(&format!("$things?fieldSelector={selector}")).await.expect(200).names(), names);
    }
}

async fn a_field_of_the_kind_selects(target: &Target) {
    target.make("a", "1").await;
    let mut other = thing("b", "1");
    other["type"] = "example.com/other".into();
    target.post("$things", &other).await.expect(201);
    assert_eq!(target.get("$things?fieldSelector=type%3DOpaque").await.expect(200).names(), "a");
    assert_eq!(target.get("$things?fieldSelector=type!%3DOpaque").await.expect(200).names(), "b");
}

async fn an_unknown_field_is_refused(target: &Target) {
    let list = target.get("$ns/configmaps?fieldSelector=data.v%3D1").await;
    let words = "\"data.v\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"";
    list.expect_error(400, "BadRequest", words);
}

async fn an_unknown_field_of_a_kind_with_fields_is_refused(target: &Target) {
    let list = target.get("$ns/pods?fieldSelector=spec.containers%3D1").await;
    list.expect_error(400, "BadRequest", "field label not supported: spec.containers");
}

async fn an_object_that_starts_to_match_is_sent_as_added(target: &Target) {
    let made = label(target, "a", json!({"app": "x"})).await;
    let path = format!("$things?watch=1&labelSelector=app%3Dy&resourceVersion={}", version(&made));
    let mut watch = target.watch(&path).await;
    let changed = relabel(target, "a", json!({"app": "y"})).await;
    assert_eq!(watch.object("ADDED").await, changed);
}

async fn an_object_that_stops_matching_is_sent_as_deleted_in_its_last_matching_state(target: &Target) {
    let mut made = label(target, "a", json!({"app": "x"})).await;
    let path = format!("$things?watch=1&labelSelector=app%3Dx&resourceVersion={}", version(&made));
    let mut watch = target.watch(&path).await;
    let changed = relabel(target, "a", json!({"app": "y"})).await;
    let last = watch.object("DELETED").await;
    // The state before the update that made it leave, at the version of that update.
    assert_eq!(number(&last), number(&changed));
    made["metadata"]["resourceVersion"] = version(&changed).into();
    assert_eq!(last, made);
}

async fn an_object_that_never_matched_is_not_sent(target: &Target) {
    let mut watch = target.watch("$things?watch=1&labelSelector=app%3Dx").await;
    label(target, "a", json!({"app": "y"})).await;
    relabel(target, "a", json!({"app": "z"})).await;
    target.unmake("a").await;
    label(target, "b", json!({"app": "x"})).await;
    watch.expect_frames(&["ADDED b 1"]).await;
}

async fn history_is_filtered_by_the_selector(target: &Target) {
    let then = target.version().await;
    label(target, "a", json!({"app": "x"})).await;
    relabel(target, "a", json!({"app": "y"})).await;
    relabel(target, "a", json!({"app": "x"})).await;
    target.unmake("a").await;
    let path = format!("$things?watch=1&labelSelector=app%3Dx&resourceVersion={then}");
    let mut watch = target.watch(&path).await;
    watch.expect_frames(&["ADDED a 1", "DELETED a 1", "ADDED a 2", "DELETED a 2"]).await;
}

async fn a_watch_by_field_follows_the_field(target: &Target) {
    target.make_pod("p").await;
    let mut watch = target.watch("$ns/pods?watch=1&fieldSelector=spec.nodeName%3D").await;
    assert!(watch.object("ADDED").await["spec"]["nodeName"].is_null());
    let bound = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    target.post("$ns/pods/p/binding", &bound).await.expect(201);
    assert!(watch.object("DELETED").await["spec"]["nodeName"].is_null());
}
