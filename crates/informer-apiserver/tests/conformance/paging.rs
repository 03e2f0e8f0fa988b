//! Paginated lists.

use crate::runner::statements;
use crate::targets::Target;

statements![
    pages_together_are_the_list,
    a_page_says_how_many_remain,
    the_last_page_has_neither_token_nor_count,
    a_page_of_a_selection_does_not_say_how_many_remain,
    later_pages_show_the_state_of_the_first,
    a_token_can_be_used_twice_and_with_another_limit,
    a_page_as_long_as_the_list_is_the_last,
    a_token_with_a_version_is_refused,
    a_token_with_version_zero_is_accepted_and_the_limit_ignored,
    a_token_with_a_match_is_refused,
    an_invalid_token_is_refused,
    pages_go_across_namespaces,
    pages_of_a_namespace_selected_by_field_do_not_continue,
];

/// Creates things, lists the first two and returns the continue token.
async fn first(target: &Target) -> String {
    for name in ["a", "b", "c", "d", "e"] {
        target.make(name, "1").await;
    }
    token(&target.get("$things?limit=2").await.expect(200))
}

fn token(page: &crate::targets::Response) -> String {
    page.body["metadata"]["continue"].as_str().unwrap_or_default().to_owned()
}

async fn pages_together_are_the_list(target: &Target) {
    let mut next = first(target).await;
    let mut names = Vec::new();
    while !next.is_empty() {
        let page = target.get(&format!("$things?limit=2&continue={next}")).await.expect(200);
        names.push(page.names());
        next = token(&page);
    }
    assert_eq!(names, ["c d", "e"]);
}

async fn a_page_says_how_many_remain(target: &Target) {
    let next = first(target).await;
    let page = target.get(&format!("$things?limit=2&continue={next}")).await.expect(200);
    assert_eq!(page.body["metadata"]["remainingItemCount"], 1);
}

async fn the_last_page_has_neither_token_nor_count(target: &Target) {
    let next = first(target).await;
    let page = target.get(&format!("$things?limit=3&continue={next}")).await.expect(200);
    assert_eq!(page.names(), "c d e");
    let metadata = &page.body["metadata"];
    assert!(metadata["continue"].is_null() && metadata["remainingItemCount"].is_null(), "{metadata}");
}

async fn a_page_of_a_selection_does_not_say_how_many_remain(target: &Target) {
    first(target).await;
    let page = target.get("$things?limit=2&labelSelector=!absent").await.expect(200);
    assert_eq!(page.names(), "a b");
    assert!(!token(&page).is_empty() && page.body["metadata"]["remainingItemCount"].is_null());
}

async fn later_pages_show_the_state_of_the_first(target: &Target) {
    first(target).await;
    let one = target.get("$things?limit=2").await.expect(200);
    target.unmake("c").await;
    target.make("cc", "1").await;
    let two = target.get(&format!("$things?limit=9&continue={}", token(&one))).await.expect(200);
    assert_eq!((two.names(), two.version()), ("c d e".to_owned(), one.version()));
}

async fn a_token_can_be_used_twice_and_with_another_limit(target: &Target) {
    let next = first(target).await;
    for (limit, names) in [(1, "c"), (2, "c d"), (1, "c")] {
        let page = target.get(&format!("$things?limit={limit}&continue={next}")).await.expect(200);
        assert_eq!(page.names(), names);
    }
}

async fn a_page_as_long_as_the_list_is_the_last(target: &Target) {
    first(target).await;
    let page = target.get("$things?limit=5").await.expect(200);
    assert_eq!((page.names(), token(&page)), ("a b c d e".to_owned(), String::new()));
}

async fn a_token_with_a_version_is_refused(target: &Target) {
    let next = first(target).await;
    let page = target.get(&format!("$things?limit=2&continue={next}&resourceVersion=1")).await;
    page.expect_error(400, "BadRequest", "specifying resource version is not allowed when using continue");
}

async fn a_token_with_version_zero_is_accepted_and_the_limit_ignored(target: &Target) {
    let next = first(target).await;
    let page = target.get(&format!("$things?limit=2&continue={next}&resourceVersion=0")).await.expect(200);
    assert_eq!(page.names(), "c d e");
}

async fn a_token_with_a_match_is_refused(target: &Target) {
    let next = first(target).await;
    let page = target.get(&format!("$things?continue={next}&resourceVersionMatch=NotOlderThan")).await;
    page.expect_error(422, "Invalid", "resourceVersionMatch is forbidden when continue is provided");
}

async fn an_invalid_token_is_refused(target: &Target) {
    let page = target.get("$things?limit=2&continue=further").await;
    page.expect_error(400, "BadRequest", "continue key is not valid");
}

async fn pages_go_across_namespaces(target: &Target) {
    for name in ["a", "b", "c"] {
        let mut thing = crate::targets::thing(name, "1");
        thing["metadata"]["labels"]["of"] = target.namespace.clone().into();
        target.post("$things", &thing).await.expect(201);
    }
    let path = "/api/v1/secrets?limit=2&labelSelector=of%3D$name";
    let one = target.get(path).await.expect(200);
    let two = target.get(&format!("{path}&continue={}", token(&one))).await.expect(200);
    assert_eq!((one.names(), two.names()), ("a b".to_owned(), "c".to_owned()));
}

/// A bug of kube-apiserver: the token contains the name only, but is read as if it began with a namespace. The next
/// page begins at whatever sorts after that name.
async fn pages_of_a_namespace_selected_by_field_do_not_continue(target: &Target) {
    first(target).await;
    let path = "/api/v1/secrets?limit=3&fieldSelector=metadata.namespace%3D$name";
    let one = target.get(path).await.expect(200);
    let two = target.get(&format!("{path}&continue={}", token(&one))).await.expect(200);
    assert_eq!((one.names(), two.names()), ("a b c".to_owned(), "a b c".to_owned()));
}
