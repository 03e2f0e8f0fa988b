//! Discovery, `OpenAPI` documents, version and health checks.

use serde_json::{Value, json};

use crate::runner::statements;
use crate::targets::Target;

statements![
    the_core_has_one_version,
    the_core_versions_are_read_with_get_and_groups_with_any_method,
    every_group_has_versions_and_a_preferred_one,
    a_version_lists_its_resources_and_their_verbs,
    discovery_can_come_in_one_document,
    an_unchanged_discovery_document_is_not_sent_again,
    the_openapi_index_names_a_document_for_every_version,
    an_openapi_document_has_kinds_and_paths,
    an_openapi_document_describes_its_fields,
    openapi_v2_is_served,
    the_version_is_served,
    health_checks_are_served,
    the_root_lists_paths,
    schemas_name_merge_keys_and_list_types,
];

fn find<'a>(list: &'a Value, field: &str, value: &str) -> &'a Value {
    let found = list.as_array().and_then(|list| list.iter().find(|entry| entry[field] == value));
    found.unwrap_or_else(|| panic!("no {field} {value} in {list}"))
}

async fn the_core_has_one_version(target: &Target) {
    let api = target.get("/api").await.expect(200).body;
    assert_eq!((&api["kind"], &api["versions"]), (&"APIVersions".into(), &json!(["v1"])));
}

/// Bug: the embedded server responded to `TRACE /api` and `CONNECT /api` with 200, because it confused the routes of
/// kube-apiserver that ignore the method. The recordings contain only `GET`.
async fn the_core_versions_are_read_with_get_and_groups_with_any_method(target: &Target) {
    for method in ["TRACE", "POST", "OPTIONS", "PUT"] {
        let request = async |path| target.request(method, path, &[], Vec::new()).await;
        for path in ["/api", "/api/v1", "/apis/apps/v1", "/version"] {
            request(path).await.expect_error(405, "MethodNotAllowed", "does not allow this method");
        }
        for path in ["/apis", "/apis/apps", "/healthz", "/openapi/v3"] {
            request(path).await.expect(200);
        }
        request("/apis/unknown").await.expect(404);
    }
}

async fn every_group_has_versions_and_a_preferred_one(target: &Target) {
    let groups = target.get("/apis").await.expect(200).body;
    assert_eq!(groups["kind"], "APIGroupList");
    for name in ["apps", "batch", "coordination.k8s.io", "apiextensions.k8s.io", "rbac.authorization.k8s.io"]
    {
        let group = find(&groups["groups"], "name", name);
        assert_eq!(group["preferredVersion"]["groupVersion"], format!("{name}/v1"));
        find(&group["versions"], "version", "v1");
    }
    let apps = target.get("/apis/apps").await.expect(200).body;
    assert_eq!((&apps["kind"], &apps["name"]), (&"APIGroup".into(), &"apps".into()));
}

async fn a_version_lists_its_resources_and_their_verbs(target: &Target) {
    let list = target.get("/api/v1").await.expect(200).body;
    assert_eq!((&list["kind"], &list["groupVersion"]), (&"APIResourceList".into(), &"v1".into()));
    let pods = find(&list["resources"], "name", "pods");
    assert_eq!(
        (&pods["kind"], &pods["namespaced"], &pods["shortNames"]),
        (&"Pod".into(), &true.into(), &json!(["po"]))
    );
    let verbs = json!(["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]);
    assert_eq!(pods["verbs"], verbs);
    assert_eq!(find(&list["resources"], "name", "nodes")["namespaced"], false);
    assert_eq!(find(&list["resources"], "name", "pods/eviction")["group"], "policy");
}

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

async fn discovery_can_come_in_one_document(target: &Target) {
    let document = target.get_as("/apis", AGGREGATED).await.expect(200).body;
    assert_eq!(document["kind"], "APIGroupDiscoveryList");
    let apps =
        document["items"].as_array().unwrap().iter().find(|it| it["metadata"]["name"] == "apps").unwrap();
    let deployments = find(&apps["versions"][0]["resources"], "resource", "deployments");
    assert_eq!(
        (&deployments["scope"], &deployments["responseKind"]["kind"]),
        (&"Namespaced".into(), &"Deployment".into())
    );
    find(&deployments["subresources"], "subresource", "scale");
}

async fn an_unchanged_discovery_document_is_not_sent_again(target: &Target) {
    // The core group's document: those of other groups change with every definition.
    let first = target.get_as("/api", AGGREGATED).await.expect(200);
    let etag = first.header("etag").to_owned();
    assert!(!etag.is_empty());
    let headers = [("accept", AGGREGATED), ("if-none-match", etag.as_str())];
    let again = target.request("GET", "/api", &headers, Vec::new()).await.expect(304);
    assert!(again.bytes.is_empty());
}

async fn the_openapi_index_names_a_document_for_every_version(target: &Target) {
    let index = target.get("/openapi/v3").await.expect(200).body;
    for path in ["api/v1", "apis/apps/v1"] {
        let url = index["paths"][path]["serverRelativeURL"].as_str().unwrap();
        assert!(url.starts_with(&format!("/openapi/v3/{path}?hash=")), "{url}");
    }
}

async fn an_openapi_document_has_kinds_and_paths(target: &Target) {
    let document = target.get("/openapi/v3/apis/apps/v1").await.expect(200).body;
    let deployment = &document["components"]["schemas"]["io.k8s.api.apps.v1.Deployment"];
    let kind = json!([{"group": "apps", "kind": "Deployment", "version": "v1"}]);
    assert_eq!(deployment["x-kubernetes-group-version-kind"], kind);
    assert!(deployment["properties"]["spec"].is_object());
    assert!(document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"].is_object());
}

async fn an_openapi_document_describes_its_fields(target: &Target) {
    let document = target.get("/openapi/v3/apis/apps/v1").await.expect(200).body;
    let spec = &document["components"]["schemas"]["io.k8s.api.apps.v1.DeploymentSpec"];
    assert!(spec["properties"]["replicas"]["description"].is_string());
}

async fn openapi_v2_is_served(target: &Target) {
    let document = target.get("/openapi/v2").await.expect(200).body;
    assert_eq!(document["swagger"], "2.0");
    assert!(document["definitions"]["io.k8s.api.core.v1.Pod"].is_object());
}

async fn the_version_is_served(target: &Target) {
    let version = target.get("/version").await.expect(200).body;
    assert_eq!(version["major"], "1");
    assert!(version["gitVersion"].as_str().unwrap().starts_with("v1."), "{version}");
}

async fn health_checks_are_served(target: &Target) {
    for path in ["/livez", "/readyz", "/healthz"] {
        assert_eq!(target.get(path).await.expect(200).body, "ok", "{path}");
    }
}

async fn the_root_lists_paths(target: &Target) {
    let root = target.get("/").await.expect(200).body;
    for path in ["/api", "/api/v1", "/apis", "/apis/apps/v1", "/version"] {
        assert!(root["paths"].as_array().unwrap().iter().any(|known| known == path), "{path}");
    }
}

async fn schemas_name_merge_keys_and_list_types(target: &Target) {
    let document = target.get("/openapi/v3/api/v1").await.expect(200).body;
    let spec = &document["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"];
    let containers = &spec["properties"]["containers"];
    assert_eq!(containers["x-kubernetes-list-type"], "map");
    assert_eq!(containers["x-kubernetes-list-map-keys"], json!(["name"]));
    assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
}
