//! Shard selectors (KEP-5866), in lists, watches and deletions of collections.

use serde_json::{Value, json};

use crate::runner::statements;
use crate::targets::{Target, version};

statements![
    a_shard_contains_the_objects_whose_hash_is_in_its_range,
    several_ranges_are_joined,
    a_list_contains_the_normalised_selector,
    a_protobuf_list_contains_the_selector,
    lists_in_other_forms_do_not_contain_the_selector,
    a_shard_by_namespace_contains_all_objects_of_it_or_none,
    a_shard_is_combined_with_other_selectors,
    pages_count_the_objects_of_all_shards_and_continue_with_any,
    a_get_ignores_the_selector,
    a_watch_sends_changes_of_its_shard_only,
    a_watch_list_sends_the_objects_of_its_shard,
    a_collection_is_deleted_within_the_shard,
    an_invalid_shard_selector_is_refused_with_500,
    an_empty_shard_selector_selects_everything,
];

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const LOWER: [&str; 2] = ["0x0000000000000000", "0x8000000000000000"];
const UPPER: [&str; 2] = ["0x8000000000000000", "0x10000000000000000"];

fn range(path: &str, [start, end]: [&str; 2]) -> String {
    format!("shardRange(object.metadata.{path}, '{start}', '{end}')")
}

fn query(selector: &str) -> String {
    let value: String = form_urlencoded::byte_serialize(selector.as_bytes()).collect();
    format!("shardSelector={value}")
}

fn hash(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

fn is_lower(object: &Value) -> bool {
    hash(object["metadata"]["uid"].as_str().unwrap()) < 1 << 63
}

/// Creates things until both halves of the hashes have two; returns the names of each half, and of all.
async fn halves(target: &Target) -> [String; 3] {
    let (mut lower, mut upper, mut all) = (Vec::new(), Vec::new(), Vec::new());
    while lower.len() < 2 || upper.len() < 2 {
        let name = format!("t{:02}", all.len());
        let made = target.make(&name, "1").await;
        if is_lower(&made) { &mut lower } else { &mut upper }.push(name.clone());
        all.push(name);
    }
    [lower, upper, all].map(|names| names.join(" "))
}

async fn a_shard_contains_the_objects_whose_hash_is_in_its_range(target: &Target) {
    let [lower, upper, _] = halves(target).await;
    for (half, expected) in [(LOWER, lower), (UPPER, upper)] {
        let list = target.get(&format!("$things?{}", query(&range("uid", half)))).await.expect(200);
        assert_eq!(list.names(), expected);
    }
}

async fn several_ranges_are_joined(target: &Target) {
    let [_, _, all] = halves(target).await;
    for both in [[LOWER, UPPER], [UPPER, LOWER]] {
        let selector = both.map(|half| range("uid", half)).join(" || ");
        let list = target.get(&format!("$things?{}", query(&selector))).await.expect(200);
        assert_eq!(list.names(), all);
        assert_eq!(list.body["metadata"]["shardInfo"]["selector"], selector);
    }
    // Ranges may overlap.
    let twice = format!("{0} || {0}", range("uid", ["0x0000000000000000", "0x10000000000000000"]));
    let list = target.get(&format!("$things?{}", query(&twice))).await.expect(200);
    assert_eq!(list.names(), all);
}

async fn a_list_contains_the_normalised_selector(target: &Target) {
    let text = "shardRange(object.metadata.uid,\"0x0000000000000000\",\"0x8000000000000000\")";
    let list = target.get(&format!("$things?{}", query(text))).await.expect(200);
    assert_eq!(list.body["metadata"]["shardInfo"], json!({"selector": range("uid", LOWER)}));
    let list = target.get("$things").await.expect(200);
    assert!(list.body["metadata"].get("shardInfo").is_none());
}

async fn a_protobuf_list_contains_the_selector(target: &Target) {
    let selector = range("uid", LOWER);
    // Field 5 of the metadata is a message with the text as field 1.
    let length = u8::try_from(selector.len()).unwrap();
    let expected = [&[0x2a, length + 2, 0x0a, length][..], selector.as_bytes()].concat();
    let list = target.get_as(&format!("$things?{}", query(&selector)), PROTOBUF).await.expect(200);
    assert!(list.bytes.windows(expected.len()).any(|bytes| bytes == expected), "{:?}", list.bytes);
}

async fn lists_in_other_forms_do_not_contain_the_selector(target: &Target) {
    let [lower, ..] = halves(target).await;
    let path = format!("$things?{}", query(&range("uid", LOWER)));
    for kind in ["PartialObjectMetadataList", "Table"] {
        let accept = format!("application/json;as={kind};g=meta.k8s.io;v=v1");
        let list = target.get_as(&path, &accept).await.expect(200);
        assert_eq!(list.body["kind"], kind);
        assert!(list.body["metadata"].get("shardInfo").is_none(), "{kind}");
        let field = if kind == "Table" { "rows" } else { "items" };
        assert_eq!(list.body[field].as_array().unwrap().len(), lower.split(' ').count());
    }
}

async fn a_shard_by_namespace_contains_all_objects_of_it_or_none(target: &Target) {
    let [_, _, all] = halves(target).await;
    let own = if hash(&target.namespace) < 1 << 63 { LOWER } else { UPPER };
    for half in [LOWER, UPPER] {
        let list = target.get(&format!("$things?{}", query(&range("namespace", half)))).await.expect(200);
        assert_eq!(list.names(), if half == own { &*all } else { "" });
    }
}

async fn a_shard_is_combined_with_other_selectors(target: &Target) {
    let [lower, upper, _] = halves(target).await;
    let (inside, outside) = (lower.split(' ').next().unwrap(), upper.split(' ').next().unwrap());
    let shard = query(&range("uid", LOWER));
    for (name, expected) in [(inside, inside), (outside, "")] {
        let path = format!("$things?{shard}&fieldSelector=metadata.name%3D{name}&resourceVersion=0");
        let list = target.soon(async || {
            let list = target.get(&path).await.expect(200);
            (list.names() == expected).then_some(list)
        });
        list.await;
    }
}

async fn pages_count_the_objects_of_all_shards_and_continue_with_any(target: &Target) {
    let [lower, upper, all] = halves(target).await;
    let shard = query(&range("uid", LOWER));
    let page = target.get(&format!("$things?{shard}&limit=1")).await.expect(200);
    let first = lower.split(' ').next().unwrap();
    assert_eq!(page.names(), first);
    let remaining = all.split(' ').count() - 1;
    assert_eq!(page.body["metadata"]["remainingItemCount"], json!(remaining), "of all shards");
    let token = page.body["metadata"]["continue"].as_str().unwrap();
    let rest = target.get(&format!("$things?{shard}&continue={token}")).await.expect(200);
    assert_eq!(format!("{first} {}", rest.names()), lower);
    // The token does not contain the selector: another one gets its own objects behind the same key.
    let other =
        target.get(&format!("$things?{}&continue={token}", query(&range("uid", UPPER)))).await.expect(200);
    let behind: Vec<&str> = upper.split(' ').filter(|name| *name > first).collect();
    assert_eq!(other.names(), behind.join(" "));
}

async fn a_get_ignores_the_selector(target: &Target) {
    let [lower, ..] = halves(target).await;
    let name = lower.split(' ').next().unwrap();
    target.get(&format!("$things/{name}?{}", query(&range("uid", UPPER)))).await.expect(200);
}

async fn a_watch_sends_changes_of_its_shard_only(target: &Target) {
    let [lower, upper, _] = halves(target).await;
    let then = target.version().await;
    let path = format!("$things?watch=1&resourceVersion={then}&{}", query(&range("uid", LOWER)));
    let mut watch = target.watch(&path).await;
    let (inside, outside) = (lower.split(' ').next().unwrap(), upper.split(' ').next().unwrap());
    target.set(outside, "2").await;
    target.unmake(outside).await;
    target.set(inside, "2").await;
    target.unmake(inside).await;
    watch.expect_frames(&[&format!("MODIFIED {inside} 2"), &format!("DELETED {inside} 2")]).await;
}

async fn a_watch_list_sends_the_objects_of_its_shard(target: &Target) {
    let [lower, ..] = halves(target).await;
    let options = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = target.watch(&format!("$things?{options}&{}", query(&range("uid", LOWER)))).await;
    let mut names = Vec::new();
    for _ in lower.split(' ') {
        names.push(watch.object("ADDED").await["metadata"]["name"].as_str().unwrap().to_owned());
    }
    names.sort();
    assert_eq!(names.join(" "), lower);
    let bookmark = watch.object("BOOKMARK").await;
    assert_eq!(bookmark["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    assert!(bookmark["metadata"].get("shardInfo").is_none() && !version(&bookmark).is_empty());
}

async fn a_collection_is_deleted_within_the_shard(target: &Target) {
    let [_, upper, _] = halves(target).await;
    target.delete(&format!("$things?{}", query(&range("uid", LOWER)))).await.expect(200);
    assert_eq!(target.get("$things").await.expect(200).names(), upper);
}

async fn an_invalid_shard_selector_is_refused_with_500(target: &Target) {
    let lower = range("uid", LOWER);
    for (selector, message) in [
        (
            range("uid", ["0x0", UPPER[0]]),
            r#"hexStart must be a 0x-prefixed 16-digit hex value, got "0x0" (did you mean "0x0000000000000000"?)"#,
        ),
        (
            range("uid", ["0X0000000000000000", UPPER[0]]),
            r#"hexStart must have '0x' prefix, got "0X0000000000000000""#,
        ),
        (
            range("name", LOWER),
            r#"unsupported field path "object.metadata.name"; supported: object.metadata.uid, object.metadata.namespace"#,
        ),
        (
            range("uid", ["0x8000000000000000", "0x0000000000000000"]),
            "shard range start 0x8000000000000000 must be less than end 0x0000000000000000",
        ),
        (
            range("uid", ["0x0000000000000000", "0x20000000000000000"]),
            r#"hexEnd: 17-digit hex value must be '0x10000000000000000' (2^64), got "0x20000000000000000""#,
        ),
        (
            format!("{lower} || {}", range("namespace", UPPER)),
            r#"all shard ranges must use the same field, got "object.metadata.uid" and "object.metadata.namespace""#,
        ),
        ("hello".to_owned(), "unexpected expression kind 3; expected shardRange() call or || operator"),
        (
            format!("{lower} && {lower}"),
            r#"unsupported function "_&&_"; only shardRange() and || are allowed"#,
        ),
    ] {
        for path in ["$things?", "$things?watch=1&"] {
            let response = target.get(&format!("{path}{}", query(&selector))).await.expect(500);
            let expected = format!("invalid shard selector: {message}");
            assert_eq!(response.body["message"], expected, "{selector}");
        }
    }
}

async fn an_empty_shard_selector_selects_everything(target: &Target) {
    let [_, _, all] = halves(target).await;
    let list = target.get("$things?shardSelector=").await.expect(200);
    assert_eq!(list.names(), all);
    assert!(list.body["metadata"].get("shardInfo").is_none());
}
