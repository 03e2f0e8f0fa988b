//! Tokens with few rights: a forbidden kind is reported with the server's message and affects no other kind;
//! once allowed, it is followed.

use informer::status::InformerState;
use informer::{InformerOptions, SharedInformerFactory};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use kube::Client;
use kube::api::{Api, ListParams};
use kube::core::ApiResource;
use serde_json::{Value, json};

use crate::apart::{run_on_own_thread, slow_wait};
use crate::model::Model;
use crate::runner::statements;
use crate::targets::{TIMEOUT, Target, map, until};

statements![
    forbidden_kind_is_reported_and_followed_once_allowed,
    namespaced_rights_suffice_for_a_namespaced_factory,
];

/// The path of the group of roles and bindings.
pub(crate) const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Creates a service account without rights and returns its token.
pub(crate) async fn account(target: &Target) -> String {
    target.post("$ns/serviceaccounts", &json!({"metadata": {"name": "limited"}})).await;
    let token = target.post("$ns/serviceaccounts/limited/token", &json!({"spec": {}})).await;
    token["status"]["token"].as_str().unwrap().to_owned()
}

fn rules(plural: &str) -> Value {
    json!([{"apiGroups": [""], "resources": [plural], "verbs": ["list", "watch"]}])
}

fn subject(target: &Target) -> Value {
    json!([{"kind": "ServiceAccount", "name": "limited", "namespace": target.namespace}])
}

/// Allows the account to read a kind, in all namespaces or in its own.
async fn grant(target: &Target, plural: &str, everywhere: bool) {
    let name = format!("{}-{plural}", target.namespace);
    let kind = if everywhere { "ClusterRole" } else { "Role" };
    let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
    let role = json!({"metadata": {"name": name}, "rules": rules(plural)});
    let binding = json!({"metadata": {"name": name}, "roleRef": reference, "subjects": subject(target)});
    if everywhere {
        target.post_outside(&format!("{RBAC}/clusterroles"), &role).await;
        target.post_outside(&format!("{RBAC}/clusterrolebindings"), &binding).await;
    } else {
        target.post(&format!("{RBAC}/namespaces/$name/roles"), &role).await;
        target.post(&format!("{RBAC}/namespaces/$name/rolebindings"), &binding).await;
    }
}

/// Waits until the server has applied a grant.
async fn wait_for_access(client: &Client, resource: &ApiResource, namespace: Option<&str>) {
    let api: Api<kube::core::DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
        None => Api::all_with(client.clone(), resource),
    };
    until("access is granted", async || api.list(&ListParams::default().limit(1)).await.is_ok()).await;
}

async fn forbidden_kind_is_reported_and_followed_once_allowed(target: &Target) {
    run_on_own_thread(target, allowed_later).await;
}

async fn allowed_later(target: Target) {
    let client = target.client_of(&account(&target).await);
    let (of_maps, secrets_resource) =
        (ApiResource::erase::<ConfigMap>(&()), ApiResource::erase::<Secret>(&()));
    grant(&target, "configmaps", true).await;
    wait_for_access(&client, &of_maps, None).await;
    let factory = SharedInformerFactory::new(client.clone());
    let (maps, secrets) = (factory.informer::<ConfigMap>(), factory.metadata_informer::<Secret>());
    let services = factory.informer::<Service>();
    let (_maps, model) = Model::follow(&maps);
    let (_secrets, secrets_model) = Model::follow(&secrets);
    factory.start();
    let error = factory.wait_for_sync(TIMEOUT).await.unwrap_err();
    assert!(error.failed().any(|error| matches!(error.state, InformerState::Forbidden { .. })), "{error}");
    let forbidden = |state: InformerState, plural: &str| match state {
        InformerState::Forbidden { failure } => {
            let user = format!("system:serviceaccount:{}:limited", target.namespace);
            let expected = format!("{plural} is forbidden: User \"{user}\" cannot ");
            assert!(failure.message().contains(&expected), "{failure}");
            true
        }
        _ => false,
    };
    until("both states are reported", async || {
        forbidden(secrets.status().state, "secrets") && forbidden(services.status().state, "services")
    })
    .await;
    maps.wait_for_sync(TIMEOUT).await.unwrap();
    target.post("$ns/configmaps", &map("a", "1")).await;
    until("the other kind is followed", async || model.has("+a")).await;

    grant(&target, "secrets", true).await;
    wait_for_access(&client, &secrets_resource, None).await;
    target.post("$ns/secrets", &json!({"metadata": {"name": "allowed-later"}})).await;
    assert!(!secrets.status().synced);
    slow_wait().await;
    until("the informer is live", async || secrets.status().state == InformerState::Live).await;
    until("objects of the allowed kind are delivered", async || secrets_model.has("+allowed-later")).await;
    secrets_model.settles(&secrets, async || target.list_of(&secrets_resource, false).await).await;
    assert!(matches!(
        services.wait_for_sync(TIMEOUT).await.unwrap_err().informers[0].state,
        InformerState::Forbidden { .. }
    ));
    assert_eq!((maps.status().state, maps.status().reflector.failures), (InformerState::Live, 0));
    factory.shutdown(TIMEOUT).await.unwrap();
}

async fn namespaced_rights_suffice_for_a_namespaced_factory(target: &Target) {
    let client = target.client_of(&account(target).await);
    grant(target, "configmaps", false).await;
    wait_for_access(&client, &ApiResource::erase::<ConfigMap>(&()), Some(&target.namespace)).await;
    let options = InformerOptions::default().namespace(target.namespace.clone());
    let inside = SharedInformerFactory::with_options(client.clone(), options);
    let maps = inside.informer::<ConfigMap>();
    let (_on, model) = Model::follow(&maps);
    inside.start();
    inside.wait_for_sync(TIMEOUT).await.unwrap();
    target.post("$ns/configmaps", &map("a", "1")).await;
    target.post("$ns/configmaps", &map("b", "1")).await;
    target.delete("$ns/configmaps/a").await;
    model.settles(&maps, async || target.list::<ConfigMap>().await).await;

    // All namespaces and a foreign namespace are forbidden; the account's own namespace is unaffected by
    // that.
    let options = InformerOptions::default().namespaces([target.namespace.as_str(), "default"]);
    for options in [InformerOptions::default(), options] {
        let factory = SharedInformerFactory::with_options(client.clone(), options);
        let maps = factory.informer::<ConfigMap>();
        factory.start();
        let error = factory.wait_for_sync(TIMEOUT).await.unwrap_err();
        assert!(error.to_string().contains("configmaps is forbidden"), "{error}");
        if maps.status().scopes.len() == 2 {
            until("its own namespace is followed", async || {
                maps.status().scopes.iter().any(|scope| scope.state == InformerState::Live)
            })
            .await;
        }
    }
    inside.shutdown(TIMEOUT).await.unwrap();
}
