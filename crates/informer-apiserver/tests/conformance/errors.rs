//! Error responses: codes and bodies.

use serde_json::json;

use crate::runner::statements;
use crate::targets::Target;

statements![
    a_missing_object_is_a_status_that_names_it,
    a_resource_that_is_not_there_is_a_status_without_a_name,
    a_group_that_is_not_there_is_plain_text,
    a_version_that_is_not_there_is_not_found,
    a_collection_cannot_be_put,
    an_object_cannot_be_posted_to,
    a_collection_of_all_namespaces_cannot_be_deleted,
    namespaces_cannot_be_deleted_as_a_collection,
    a_body_of_an_unknown_type_is_refused,
    an_invalid_quantity_is_refused,
    an_unknown_subresource_is_not_found,
    a_limit_that_is_no_number_is_refused,
    a_trailing_slash_does_not_matter,
    every_answer_has_an_audit_id,
    an_audit_id_of_the_client_is_kept,
];

async fn a_missing_object_is_a_status_that_names_it(target: &Target) {
    let response = target.get("$things/a").await.expect(404);
    let expected = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "secrets \"a\" not found", "reason": "NotFound",
        "details": {"name": "a", "kind": "secrets"}, "code": 404,
    });
    assert_eq!(response.body, expected);
}

async fn a_resource_that_is_not_there_is_a_status_without_a_name(target: &Target) {
    let response = target.get("$ns/gizmos").await;
    let response = response.expect_error(404, "NotFound", "the server could not find the requested resource");
    assert_eq!(response.body["details"], json!({}));
}

async fn a_group_that_is_not_there_is_plain_text(target: &Target) {
    let response = target.get("/apis/nowhere.example.com/v1/gizmos").await.expect(404);
    assert_eq!(
        (&response.body, response.header("content-type")),
        (&"404 page not found\n".into(), "text/plain; charset=utf-8")
    );
}

async fn a_version_that_is_not_there_is_not_found(target: &Target) {
    target.get("/apis/apps/v7/deployments").await.expect(404);
}

async fn a_collection_cannot_be_put(target: &Target) {
    let response = target.put("$things", &json!({})).await;
    response.expect_error(
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
    );
}

async fn an_object_cannot_be_posted_to(target: &Target) {
    let response = target.post("$things/a", &json!({})).await;
    response.expect_error(
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
    );
}

async fn a_collection_of_all_namespaces_cannot_be_deleted(target: &Target) {
    target.delete("/api/v1/secrets?labelSelector=of%3Dnobody").await.expect(405);
}

async fn namespaces_cannot_be_deleted_as_a_collection(target: &Target) {
    target.delete("/api/v1/namespaces?labelSelector=of%3Dnobody").await.expect(405);
}

async fn a_body_of_an_unknown_type_is_refused(target: &Target) {
    let headers = [("content-type", "text/plain"), ("accept", "application/json")];
    let response = target.request("POST", "$things", &headers, b"{}".to_vec()).await;
    response.expect_error(415, "UnsupportedMediaType", "the body of the request was in an unknown format");
}

async fn an_invalid_quantity_is_refused(target: &Target) {
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "many"}}});
    let response = target.post("$ns/resourcequotas", &quota).await;
    response.expect_error(400, "BadRequest", "quantities must match the regular expression");
}

async fn an_unknown_subresource_is_not_found(target: &Target) {
    target.make("a", "1").await;
    target.get("$things/a/status").await.expect_error(
        404,
        "NotFound",
        "the server could not find the requested resource",
    );
}

async fn a_limit_that_is_no_number_is_refused(target: &Target) {
    target.get("$things?limit=few").await.expect(400);
}

async fn a_trailing_slash_does_not_matter(target: &Target) {
    target.make("a", "1").await;
    assert_eq!(target.get("$things/").await.expect(200).names(), "a");
}

async fn every_answer_has_an_audit_id(target: &Target) {
    for path in ["$things", "$things/absent"] {
        let response = target.get(path).await;
        assert_eq!(response.header("audit-id").len(), 36, "{path}");
        assert_eq!(response.header("cache-control"), "no-cache, private");
    }
}

async fn an_audit_id_of_the_client_is_kept(target: &Target) {
    let response = target.request("GET", "$things", &[("audit-id", "of-the-client")], Vec::new()).await;
    assert_eq!(response.expect(200).header("audit-id"), "of-the-client");
}
