//! Errors as users of kube-rs receive them: `kube::Error::Api` with the code and reason that its helpers
//! check.

use informer_apiserver::{ListenOptions, User};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, VersionMatch, WatchParams};
use kube::core::Status;
use serde_json::json;

use crate::world::{World, client, config_map, merge, object};

fn error_status<T: std::fmt::Debug>(response: kube::Result<T>) -> Box<Status> {
    match response.unwrap_err() {
        kube::Error::Api(status) => {
            assert!(status.is_failure(), "{status:?}");
            status
        }
        other => panic!("{other}"),
    }
}

fn api_error<T: std::fmt::Debug>(response: kube::Result<T>) -> (u16, String, String) {
    let status = error_status(response);
    (status.code, status.reason.clone(), status.message.clone())
}

#[tokio::test]
async fn missing_object_is_not_found() {
    let world = World::new().await;
    let (maps, name) = (world.maps(), "missing");
    let missing = (404, "NotFound".to_owned(), "configmaps \"missing\" not found".to_owned());
    assert_eq!(api_error(maps.get(name).await), missing);
    assert_eq!(api_error(maps.delete(name, &DeleteParams::default()).await), missing);
    assert_eq!(api_error(maps.patch(name, &PatchParams::default(), &merge(json!({}))).await), missing);
    assert_eq!(api_error(maps.replace(name, &PostParams::default(), &config_map(name, "1")).await), missing);
    let status = error_status(maps.get(name).await);
    assert!(status.is_not_found());
    let details = status.details.unwrap();
    assert_eq!((details.name.as_str(), details.kind.as_str()), ("missing", "configmaps"));

    let nowhere: Api<ConfigMap> = Api::namespaced(world.client.clone(), "no-such-place");
    let (code, reason, message) =
        api_error(nowhere.create(&PostParams::default(), &config_map("a", "1")).await);
    assert_eq!((code, reason.as_str()), (404, "NotFound"));
    assert_eq!(message, "namespaces \"no-such-place\" not found");
}

#[tokio::test]
async fn unserved_resource_is_not_found() {
    let world = World::new().await;
    let kind = kube::core::GroupVersionKind::gvk("nowhere.example.com", "v1", "Nothing");
    let kind = kube::api::ApiResource::from_gvk(&kind);
    let api: Api<kube::api::DynamicObject> = Api::all_with(world.client.clone(), &kind);
    // The body is plain text, from which kube-rs builds a status.
    let status = error_status(api.list(&ListParams::default()).await);
    assert_eq!(status.code, 404);
    assert!(status.message.contains("404 page not found"), "{status:?}");
}

#[tokio::test]
async fn create_of_existing_object_already_exists() {
    let world = World::new().await;
    world.create_maps(&["a"]).await;
    let status = error_status(world.maps().create(&PostParams::default(), &config_map("a", "1")).await);
    assert!(status.is_already_exists());
    assert_eq!((status.code, status.message.as_str()), (409, "configmaps \"a\" already exists"));
}

#[tokio::test]
async fn update_at_old_version_conflicts() {
    let world = World::new().await;
    let maps = world.maps();
    let first = maps.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    let mut second = first.clone();
    second.data = config_map("a", "2").data;
    maps.replace("a", &PostParams::default(), &second).await.unwrap();
    let mut third = first;
    third.data = config_map("a", "3").data;
    let status = error_status(maps.replace("a", &PostParams::default(), &third).await);
    assert!(status.is_conflict());
    assert_eq!(
        status.message,
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; \
         please apply your changes to the latest version and try again"
    );
}

#[tokio::test]
async fn invalid_object_lists_causes_by_field() {
    let world = World::new().await;
    let status = error_status(world.maps().create(&PostParams::default(), &config_map("No_Name", "1")).await);
    assert!(status.is_invalid() && status.code == 422, "{status:?}");
    let causes = status.details.unwrap().causes;
    assert_eq!((causes[0].field.as_str(), causes[0].reason.as_str()), ("metadata.name", "FieldValueInvalid"));

    let pod = object(json!({"metadata": {"name": "a"}, "spec": {"containers": []}}));
    let status = error_status(world.pods().create(&PostParams::default(), &pod).await);
    assert!(status.is_invalid(), "{status:?}");
    assert_eq!(status.message, "Pod \"a\" is invalid: spec.containers: Required value");

    let secrets: Api<Secret> = world.api();
    let secret: Secret =
        object(json!({"metadata": {"name": "a"}, "immutable": true, "stringData": {"k": "v"}}));
    let mut made = secrets.create(&PostParams::default(), &secret).await.unwrap();
    assert_eq!((made.type_.as_deref(), &made.string_data), (Some("Opaque"), &None));
    made.data.as_mut().unwrap().get_mut("k").unwrap().0.push(b'!');
    let status = error_status(secrets.replace("a", &PostParams::default(), &made).await);
    assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"), "{status:?}");
    assert!(status.message.contains("field is immutable when `immutable` is set"), "{status:?}");
}

#[tokio::test]
async fn malformed_parameters_are_bad_requests() {
    let world = World::new().await;
    let (maps, list) = (world.maps(), ListParams::default());
    assert_eq!(api_error(maps.list(&list.clone().labels("a=b=c")).await).0, 400);
    let (code, reason, message) = api_error(world.pods().list(&list.fields("spec.color=red")).await);
    assert_eq!((code, reason.as_str()), (400, "BadRequest"));
    assert_eq!(message, "field label not supported: spec.color");
    let named_otherwise = maps.replace("a", &PostParams::default(), &config_map("b", "1")).await;
    let message = "the name of the object (b) does not match the name on the URL (a)".to_owned();
    assert_eq!(api_error(named_otherwise), (400, "BadRequest".to_owned(), message));
}

#[tokio::test]
async fn compacted_version_has_expired() {
    let (server, world) = World::embedded().await;
    world.create_maps(&["a", "b", "c"]).await;
    let maps = world.maps();
    let page = maps.list(&ListParams::default().limit(1)).await.unwrap();
    let version = page.metadata.resource_version.unwrap();
    world.create_maps(&["d"]).await;
    server.compact();
    let token = page.metadata.continue_.unwrap();
    let status = error_status(maps.list(&ListParams::default().limit(1).continue_token(&token)).await);
    assert!(status.code == 410 && status.reason == "Expired", "{status:?}");
    // The error contains a token with which an inconsistent list can continue.
    assert!(status.metadata.is_some_and(|meta| meta.continue_.is_some()));
    let exact = ListParams::default().at(&version).matching(VersionMatch::Exact);
    let status = error_status(maps.list(&exact).await);
    assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));

    // A watch is opened and reports the error in a frame.
    let mut frames = Box::pin(maps.watch(&WatchParams::default(), &version).await.unwrap());
    let frame = futures::TryStreamExt::try_next(&mut frames).await.unwrap().unwrap();
    let kube::core::WatchEvent::Error(status) = frame else { panic!("{frame:?}") };
    assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
}

#[tokio::test]
async fn missing_permission_is_forbidden_and_unknown_token_unauthorized() {
    let (server, _) = World::embedded().await;
    let listening = server
        .listen(ListenOptions::https().user("guest-token", User::new("guest")).anonymous(false))
        .await
        .unwrap();
    let with_token = |token: &str| {
        let text = listening.kubeconfig().replace(listening.token(), token);
        client(kube::config::Kubeconfig::from_yaml(&text).unwrap())
    };
    let maps: Api<ConfigMap> = Api::default_namespaced(with_token("guest-token").await);
    let status = error_status(maps.list(&ListParams::default()).await);
    assert!(status.is_forbidden() && status.code == 403, "{status:?}");
    let message = "configmaps is forbidden: User \"guest\" cannot list resource \"configmaps\" in API group \"\" in the namespace \"default\"";
    assert_eq!(status.message, message);
    let unknown: Api<ConfigMap> = Api::default_namespaced(with_token("who-is-this").await);
    let status = error_status(unknown.get("a").await);
    assert_eq!((status.code, status.reason.as_str()), (401, "Unauthorized"));
}

#[tokio::test]
async fn unsupported_verb_is_not_allowed() {
    let world = World::new().await;
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    let all = namespaces.delete_collection(&DeleteParams::default(), &ListParams::default()).await;
    let status = error_status(all.map(|_| ()));
    assert_eq!((status.code, status.reason.as_str()), (405, "MethodNotAllowed"), "{status:?}");
}

#[tokio::test]
async fn apply_without_field_manager_is_rejected() {
    let world = World::new().await;
    let config = Patch::Apply(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}));
    let status = error_status(world.maps().patch("a", &PatchParams::default(), &config).await);
    assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"));
    assert!(
        status.message.contains("fieldManager: Required value: is required for apply patch"),
        "{status:?}"
    );
    assert!(
        world
            .maps()
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .iter()
            .all(|map| map.name_any() != "a")
    );
}
