//! Representations of a response: tables, metadata only, protobuf, YAML and gzip.

use serde_json::{Value, json};

use crate::runner::statements;
use crate::targets::{Target, number, version};

statements![
    an_object_as_a_table_is_one_row,
    a_list_as_a_table_has_columns_and_rows,
    a_table_can_have_whole_objects_or_none,
    a_watch_as_tables_has_its_columns_once,
    an_object_as_metadata_has_nothing_else,
    a_metadata_list_has_items_with_their_kind,
    a_metadata_watch_sends_metadata,
    a_built_in_object_can_be_protobuf,
    a_list_can_be_protobuf,
    a_watch_can_be_protobuf,
    a_body_can_be_protobuf,
    a_custom_object_cannot_be_protobuf,
    metadata_of_a_custom_object_can_be_protobuf,
    an_object_can_be_yaml,
    an_object_can_be_pretty,
    an_unknown_media_type_is_not_acceptable,
    a_kind_of_table_that_is_not_known_is_not_acceptable,
    the_first_known_media_type_is_used,
    a_long_answer_is_compressed_where_that_is_accepted,
    a_short_answer_is_not_compressed,
];

const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

fn columns(table: &Value) -> Vec<&str> {
    let columns = table["columnDefinitions"].as_array().map_or(&[][..], Vec::as_slice);
    columns.iter().map(|column| column["name"].as_str().unwrap()).collect()
}

async fn an_object_as_a_table_is_one_row(target: &Target) {
    let made = target.make("a", "1").await;
    let table = target.get_as("$things/a", TABLE).await.expect(200).body;
    assert_eq!((&table["kind"], &table["apiVersion"]), (&"Table".into(), &"meta.k8s.io/v1".into()));
    assert_eq!(columns(&table), ["Name", "Type", "Data", "Age"]);
    assert_eq!(version(&table), version(&made));
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(cells[..3], [json!("a"), json!("Opaque"), json!(0)]);
}

async fn a_list_as_a_table_has_columns_and_rows(target: &Target) {
    target.make("a", "1").await;
    target.make("b", "1").await;
    let table = target.get_as("$things", TABLE).await.expect(200).body;
    let rows = table["rows"].as_array().unwrap();
    assert_eq!(rows.iter().map(|row| &row["cells"][0]).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(rows[0]["object"]["kind"], "PartialObjectMetadata");
    assert!(number(&table) > 0);
}

async fn a_table_can_have_whole_objects_or_none(target: &Target) {
    let made = target.make("a", "1").await;
    let table = target.get_as("$things?includeObject=Object", TABLE).await.expect(200).body;
    assert_eq!(table["rows"][0]["object"], made);
    let table = target.get_as("$things?includeObject=None", TABLE).await.expect(200).body;
    assert!(table["rows"][0]["object"].is_null());
}

async fn a_watch_as_tables_has_its_columns_once(target: &Target) {
    target.make("a", "1").await;
    let mut watch = target.watch_as("$things?watch=1", TABLE).await;
    let first = watch.object("ADDED").await;
    assert_eq!(columns(&first), ["Name", "Type", "Data", "Age"]);
    target.set("a", "2").await;
    let second = watch.object("MODIFIED").await;
    assert_eq!((&second["kind"], &second["columnDefinitions"]), (&"Table".into(), &Value::Null));
    assert_eq!(second["rows"][0]["cells"][0], "a");
}

async fn an_object_as_metadata_has_nothing_else(target: &Target) {
    let made = target.make("a", "1").await;
    let got = target.get_as("$things/a", METADATA).await.expect(200).body;
    let expected = json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": made["metadata"],
    });
    assert_eq!(got, expected);
}

async fn a_metadata_list_has_items_with_their_kind(target: &Target) {
    let made = target.make("a", "1").await;
    let list = target.get_as("$things", METADATA_LIST).await.expect(200);
    assert_eq!(list.body["kind"], "PartialObjectMetadataList");
    assert_eq!(list.items()[0]["kind"], "PartialObjectMetadata");
    assert_eq!(list.items()[0]["metadata"], made["metadata"]);
    assert!(list.items()[0]["type"].is_null());
}

async fn a_metadata_watch_sends_metadata(target: &Target) {
    let mut watch = target.watch_as("$things?watch=1", METADATA).await;
    let made = target.make("a", "1").await;
    let object = watch.object("ADDED").await;
    assert_eq!((&object["kind"], &object["metadata"]), (&"PartialObjectMetadata".into(), &made["metadata"]));
    assert!(object["type"].is_null());
}

async fn a_built_in_object_can_be_protobuf(target: &Target) {
    target.make("a", "1").await;
    let response = target.get_as("$things/a", PROTOBUF).await.expect(200);
    assert_eq!(response.header("content-type"), PROTOBUF);
    // The magic bytes, then a TypeMeta with version and kind.
    assert!(response.bytes.starts_with(b"k8s\0\x0a\x0c\x0a\x02v1\x12\x06Secret"), "{:?}", response.bytes);
}

async fn a_list_can_be_protobuf(target: &Target) {
    target.make("a", "1").await;
    let response = target.get_as("$things", PROTOBUF).await.expect(200);
    assert!(response.bytes.starts_with(b"k8s\0\x0a\x10\x0a\x02v1\x12\x0aSecretList"), "{:?}", response.bytes);
}

async fn a_watch_can_be_protobuf(target: &Target) {
    target.make("a", "1").await;
    let mut watch = target.watch_as("$things?watch=1", &format!("{PROTOBUF};stream=watch")).await;
    let frame = watch.protobuf().await.unwrap();
    assert!(frame.starts_with(b"\x0a\x05ADDED\x12"), "{frame:?}");
    assert!(frame.windows(4).any(|bytes| bytes == b"k8s\0"));
}

async fn a_body_can_be_protobuf(target: &Target) {
    target.make("a", "1").await;
    let object = target.get_as("$things/a", PROTOBUF).await.expect(200).bytes;
    let headers = [("content-type", PROTOBUF), ("accept", "application/json")];
    let response = target.request("PUT", "$things/a", &headers, object).await.expect(200);
    assert_eq!(response.body["metadata"]["annotations"]["value"], "1");
}

async fn a_custom_object_cannot_be_protobuf(target: &Target) {
    let path = target.define(|_| {}).await;
    target.get_as(&path, PROTOBUF).await.expect(406);
    let either = target.get_as(&path, &format!("{PROTOBUF},application/json")).await.expect(200);
    assert_eq!(either.header("content-type"), "application/json");
}

async fn metadata_of_a_custom_object_can_be_protobuf(target: &Target) {
    let path = target.define(|_| {}).await;
    target.post(&path, &target.gadget("g", &json!({}))).await.expect(201);
    let accept = format!("{PROTOBUF};as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
    let response = target.get_as(&format!("{path}/g"), &accept).await.expect(200);
    assert!(response.bytes.starts_with(b"k8s\0"));
}

async fn an_object_can_be_yaml(target: &Target) {
    target.make("a", "1").await;
    let response = target.get_as("$things/a", "application/yaml").await.expect(200);
    assert_eq!(response.header("content-type"), "application/yaml");
    let text = String::from_utf8(response.bytes).unwrap();
    assert!(text.starts_with("apiVersion: v1\nkind: Secret\nmetadata:\n"), "{text}");
}

async fn an_object_can_be_pretty(target: &Target) {
    target.make("a", "1").await;
    let response = target.get("$things/a?pretty=true").await.expect(200);
    assert!(response.bytes.starts_with(b"{\n  \"kind\": \"Secret\",\n"));
    assert!(target.get("$things/a").await.bytes.starts_with(b"{\"kind\":\"Secret\","));
}

async fn an_unknown_media_type_is_not_acceptable(target: &Target) {
    let response = target.get_as("$things", "image/png").await;
    response.expect_error(
        406,
        "NotAcceptable",
        "Available representations: application/json, application/yaml",
    );
}

async fn a_kind_of_table_that_is_not_known_is_not_acceptable(target: &Target) {
    let response = target.get_as("$things", "application/json;as=Chart;g=meta.k8s.io;v=v1").await;
    response.expect_error(406, "NotAcceptable", "only the following media types are accepted");
}

async fn the_first_known_media_type_is_used(target: &Target) {
    target.make("a", "1").await;
    let accept = format!("image/png, {TABLE}, application/json");
    assert_eq!(target.get_as("$things", &accept).await.expect(200).body["kind"], "Table");
}

async fn a_long_answer_is_compressed_where_that_is_accepted(target: &Target) {
    let long = "x".repeat(200_000);
    target.make("a", &long).await;
    let headers = [("accept", "application/json"), ("accept-encoding", "gzip")];
    let response = target.request("GET", "$things", &headers, Vec::new()).await.expect(200);
    assert_eq!((response.header("content-encoding"), response.header("vary")), ("gzip", "Accept-Encoding"));
    assert!(response.bytes.starts_with(&[0x1f, 0x8b]) && response.bytes.len() < 50_000);
    assert_eq!(target.get("$things").await.header("content-encoding"), "");
}

async fn a_short_answer_is_not_compressed(target: &Target) {
    target.make("a", "1").await;
    let headers = [("accept", "application/json"), ("accept-encoding", "gzip")];
    let response = target.request("GET", "$things", &headers, Vec::new()).await.expect(200);
    assert_eq!((response.header("content-encoding"), response.names().as_str()), ("", "a"));
}
