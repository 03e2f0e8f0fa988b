//! Lists: order, versions and version match.

use crate::runner::statements;
use crate::targets::{Target, number};

statements![
    a_list_is_in_the_order_of_names,
    a_list_names_its_kind_and_its_items_do_not,
    a_list_is_not_older_than_any_of_its_items,
    a_list_without_a_version_shows_the_last_write,
    a_list_at_version_zero_ignores_the_limit,
    a_list_at_an_exact_version_shows_that_state,
    a_list_not_older_than_a_version_shows_what_came_later_too,
    a_version_with_a_limit_and_no_match_is_exact,
    a_version_without_a_limit_and_a_match_is_not_older,
    a_match_without_a_version_is_refused,
    an_exact_version_zero_is_refused,
    an_unknown_match_is_refused,
    a_list_at_a_version_that_is_no_number_is_refused,
    a_list_at_a_version_of_the_future_times_out,
    a_list_of_a_namespace_that_is_not_there_is_empty,
    a_list_of_all_namespaces_has_those_of_each,
    an_unknown_parameter_is_ignored,
    an_object_can_be_got_at_version_zero,
    an_object_can_be_got_not_older_than_a_version,
    a_get_at_a_version_that_is_no_number_is_an_internal_error,
];

async fn three(target: &Target) -> String {
    for name in ["b", "c", "a"] {
        target.make(name, "1").await;
    }
    target.version().await
}

async fn a_list_is_in_the_order_of_names(target: &Target) {
    three(target).await;
    assert_eq!(target.get("$things").await.expect(200).names(), "a b c");
}

async fn a_list_names_its_kind_and_its_items_do_not(target: &Target) {
    three(target).await;
    let list = target.get("$things").await.expect(200);
    assert_eq!((&list.body["kind"], &list.body["apiVersion"]), (&"SecretList".into(), &"v1".into()));
    assert!(list.items().iter().all(|item| item["kind"].is_null() && item["apiVersion"].is_null()));
}

async fn a_list_is_not_older_than_any_of_its_items(target: &Target) {
    three(target).await;
    let list = target.get("$things").await.expect(200);
    assert!(list.items().iter().all(|item| number(item) <= number(&list.body)));
}

async fn a_list_without_a_version_shows_the_last_write(target: &Target) {
    for round in 0..10 {
        let name = format!("t{round}");
        let made = target.make(&name, "1").await;
        let list = target.get("$things").await.expect(200);
        assert!(list.names().ends_with(&name), "{}", list.names());
        assert!(number(&list.body) >= number(&made));
    }
}

async fn a_list_at_version_zero_ignores_the_limit(target: &Target) {
    // The list in `three` made the cache catch up.
    three(target).await;
    let list = target.get("$things?resourceVersion=0&limit=1").await.expect(200);
    assert_eq!(list.names(), "a b c");
    assert!(list.body["metadata"]["continue"].is_null());
}

async fn a_list_at_an_exact_version_shows_that_state(target: &Target) {
    let then = three(target).await;
    target.unmake("a").await;
    target.set("b", "2").await;
    target.make("d", "1").await;
    let exact = format!("$things?resourceVersion={then}&resourceVersionMatch=Exact");
    let list = target.get(&exact).await.expect(200);
    assert_eq!((list.names(), list.version()), ("a b c".to_owned(), then));
    assert_eq!(list.items()[1]["metadata"]["annotations"]["value"], "1");
}

async fn a_list_not_older_than_a_version_shows_what_came_later_too(target: &Target) {
    let then = three(target).await;
    let made = target.make("d", "1").await;
    let list = target.get(&format!("$things?resourceVersion={then}&resourceVersionMatch=NotOlderThan")).await;
    assert!(number(&list.expect(200).body) >= then.parse().unwrap());
    let now = number(&made);
    let list = target.get(&format!("$things?resourceVersion={now}&resourceVersionMatch=NotOlderThan")).await;
    assert_eq!(list.expect(200).names(), "a b c d");
}

async fn a_version_with_a_limit_and_no_match_is_exact(target: &Target) {
    let then = three(target).await;
    target.make("aa", "1").await;
    let list = target.get(&format!("$things?resourceVersion={then}&limit=2")).await.expect(200);
    assert_eq!((list.names(), list.version()), ("a b".to_owned(), then));
}

async fn a_version_without_a_limit_and_a_match_is_not_older(target: &Target) {
    let then = three(target).await;
    target.make("d", "1").await;
    let now = target.version().await;
    let list = target.get(&format!("$things?resourceVersion={then}")).await.expect(200);
    assert_eq!(list.names(), "a b c d");
    assert!(number(&list.body) >= now.parse().unwrap());
}

async fn a_match_without_a_version_is_refused(target: &Target) {
    for rule in ["Exact", "NotOlderThan"] {
        let list = target.get(&format!("$things?resourceVersionMatch={rule}")).await;
        let words = "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided";
        list.expect_error(422, "Invalid", words);
    }
}

async fn an_exact_version_zero_is_refused(target: &Target) {
    let list = target.get("$things?resourceVersion=0&resourceVersionMatch=Exact").await;
    let words = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
    list.expect_error(422, "Invalid", words);
}

async fn an_unknown_match_is_refused(target: &Target) {
    let list = target.get("$things?resourceVersion=1&resourceVersionMatch=Nearly").await;
    list.expect_error(422, "Invalid", "resourceVersionMatch: Unsupported value: \"Nearly\"");
}

async fn a_list_at_a_version_that_is_no_number_is_refused(target: &Target) {
    let list = target.get("$things?resourceVersion=new").await;
    list.expect_error(400, "BadRequest", "Invalid value: \"new\"");
}

async fn a_list_at_a_version_of_the_future_times_out(target: &Target) {
    let future = target.version().await + "000";
    let list =
        target.get(&format!("$things?resourceVersion={future}&resourceVersionMatch=NotOlderThan")).await;
    let refusal = list.expect_error(504, "Timeout", "Too large resource version");
    assert_eq!(refusal.body["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    assert_eq!(
        (refusal.header("retry-after"), &refusal.body["details"]["retryAfterSeconds"]),
        ("1", &1.into())
    );
}

async fn a_list_of_a_namespace_that_is_not_there_is_empty(target: &Target) {
    let list = target.get("$ns-not/secrets").await.expect(200);
    assert_eq!(list.body["items"], serde_json::json!([]));
}

async fn a_list_of_all_namespaces_has_those_of_each(target: &Target) {
    let mut thing = crate::targets::thing("a", "1");
    thing["metadata"]["labels"]["of"] = target.namespace.clone().into();
    target.post("$things", &thing).await.expect(201);
    let list = target.get("/api/v1/secrets?labelSelector=of%3D$name").await.expect(200);
    assert_eq!(list.items()[0]["metadata"]["namespace"], target.namespace);
    assert_eq!(list.names(), "a");
}

async fn an_unknown_parameter_is_ignored(target: &Target) {
    three(target).await;
    assert_eq!(target.get("$things?flavour=sweet").await.expect(200).names(), "a b c");
}

async fn an_object_can_be_got_at_version_zero(target: &Target) {
    three(target).await;
    let got = target.get("$things/a?resourceVersion=0").await.expect(200);
    assert_eq!(got.body["kind"], "Secret");
}

async fn an_object_can_be_got_not_older_than_a_version(target: &Target) {
    let now = target.make("a", "1").await;
    let got = target.get(&format!("$things/a?resourceVersion={}", number(&now))).await.expect(200);
    assert_eq!(number(&got.body), number(&now));
}

async fn a_get_at_a_version_that_is_no_number_is_an_internal_error(target: &Target) {
    target.make("a", "1").await;
    let got = target.get("$things/a?resourceVersion=new").await.expect(500);
    assert_eq!(got.body["kind"], "Status");
}
