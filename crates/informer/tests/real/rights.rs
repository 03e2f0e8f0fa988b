//! Tokens that may little: what is forbidden is said, with the server's words, and hurts no other kind; what is allowed later is followed then.

use informer::{Options, SharedInformerFactory, State};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use kube::Client;
use kube::api::{Api, ListParams};
use kube::core::ApiResource;
use serde_json::{Value, json};

use crate::apart::{apart, slow_wait};
use crate::arm::{Arm, PATIENCE, map, until};
use crate::model::Model;
use crate::runner::statements;

statements![
    what_is_forbidden_is_said_and_followed_once_it_is_allowed,
    rights_in_one_namespace_are_enough_for_a_factory_of_that_namespace,
];

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// A service account that may nothing, and its token.
async fn account(arm: &Arm) -> String {
    arm.post("$ns/serviceaccounts", &json!({"metadata": {"name": "limited"}})).await;
    let token = arm.post("$ns/serviceaccounts/limited/token", &json!({"spec": {}})).await;
    token["status"]["token"].as_str().unwrap().to_owned()
}

fn rules(plural: &str) -> Value {
    json!([{"apiGroups": [""], "resources": [plural], "verbs": ["list", "watch"]}])
}

fn subject(arm: &Arm) -> Value {
    json!([{"kind": "ServiceAccount", "name": "limited", "namespace": arm.namespace}])
}

/// Lets the account see a kind everywhere, or in its namespace.
async fn grant(arm: &Arm, plural: &str, everywhere: bool) {
    let name = format!("{}-{plural}", arm.namespace);
    let kind = if everywhere { "ClusterRole" } else { "Role" };
    let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
    let role = json!({"metadata": {"name": name}, "rules": rules(plural)});
    let binding = json!({"metadata": {"name": name}, "roleRef": reference, "subjects": subject(arm)});
    if everywhere {
        arm.post_outside(&format!("{RBAC}/clusterroles"), &role).await;
        arm.post_outside(&format!("{RBAC}/clusterrolebindings"), &binding).await;
    } else {
        arm.post(&format!("{RBAC}/namespaces/$name/roles"), &role).await;
        arm.post(&format!("{RBAC}/namespaces/$name/rolebindings"), &binding).await;
    }
}

/// Waits until the server has heard of a grant.
async fn may(client: &Client, resource: &ApiResource, namespace: Option<&str>) {
    let api: Api<kube::core::DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
        None => Api::all_with(client.clone(), resource),
    };
    until("it is allowed", async || api.list(&ListParams::default().limit(1)).await.is_ok()).await;
}

async fn what_is_forbidden_is_said_and_followed_once_it_is_allowed(arm: &Arm) {
    apart(arm, later).await;
}

async fn later(arm: Arm) {
    let client = arm.client_of(&account(&arm).await);
    let (of_maps, of_secrets) = (ApiResource::erase::<ConfigMap>(&()), ApiResource::erase::<Secret>(&()));
    grant(&arm, "configmaps", true).await;
    may(&client, &of_maps, None).await;
    let factory = SharedInformerFactory::new(client.clone());
    let (maps, secrets) = (factory.informer::<ConfigMap>(), factory.metadata::<Secret>());
    let services = factory.informer::<Service>();
    let (_maps, told) = Model::follow(&maps);
    let (_secrets, told_of_secrets) = Model::follow(&secrets);
    factory.start();
    let error = factory.wait_for_sync(PATIENCE).await.unwrap_err();
    assert!(error.failed().any(|error| matches!(error.state, State::Forbidden { .. })), "{error}");
    let forbidden = |state: State, plural: &str| match state {
        State::Forbidden { because } => {
            let user = format!("system:serviceaccount:{}:limited", arm.namespace);
            let whose = format!("{plural} is forbidden: User \"{user}\" cannot ");
            assert!(because.contains(&whose), "{because}");
            true
        }
        _ => false,
    };
    until("both are said", async || {
        forbidden(secrets.status().state, "secrets") && forbidden(services.status().state, "services")
    })
    .await;
    maps.wait_for_sync(PATIENCE).await.unwrap();
    arm.post("$ns/configmaps", &map("a", "1")).await;
    until("others go on", async || told.has("+a")).await;

    grant(&arm, "secrets", true).await;
    may(&client, &of_secrets, None).await;
    arm.post("$ns/secrets", &json!({"metadata": {"name": "told-later"}})).await;
    assert!(!secrets.status().synced);
    slow_wait().await;
    until("it is followed", async || secrets.status().state == State::Live).await;
    until("what was allowed later is told", async || told_of_secrets.has("+told-later")).await;
    told_of_secrets.settles(&secrets, async || arm.list_of(&of_secrets, false).await).await;
    assert!(matches!(services.wait_for_sync(PATIENCE).await.unwrap_err().state, State::Forbidden { .. }));
    assert_eq!((maps.status().state, maps.status().counters.failures), (State::Live, 0));
    factory.shutdown(PATIENCE).await.unwrap();
}

async fn rights_in_one_namespace_are_enough_for_a_factory_of_that_namespace(arm: &Arm) {
    let client = arm.client_of(&account(arm).await);
    grant(arm, "configmaps", false).await;
    may(&client, &ApiResource::erase::<ConfigMap>(&()), Some(&arm.namespace)).await;
    let options = Options::default().namespace(arm.namespace.clone());
    let inside = SharedInformerFactory::with_options(client.clone(), options);
    let maps = inside.informer::<ConfigMap>();
    let (_on, told) = Model::follow(&maps);
    inside.start();
    inside.wait_for_sync(PATIENCE).await.unwrap();
    arm.post("$ns/configmaps", &map("a", "1")).await;
    arm.post("$ns/configmaps", &map("b", "1")).await;
    arm.delete("$ns/configmaps/a").await;
    told.settles(&maps, async || arm.list::<ConfigMap>().await).await;

    // Everywhere is more than it may, and so is a namespace of others; its own is not spoilt by that.
    let options = Options::default().namespaces([arm.namespace.as_str(), "default"]);
    for options in [Options::default(), options] {
        let factory = SharedInformerFactory::with_options(client.clone(), options);
        let maps = factory.informer::<ConfigMap>();
        factory.start();
        let error = factory.wait_for_sync(PATIENCE).await.unwrap_err();
        assert!(error.to_string().contains("configmaps is forbidden"), "{error}");
        if maps.status().scopes.len() == 2 {
            until("its own namespace is followed", async || {
                maps.status().scopes.iter().any(|scope| scope.state == State::Live)
            })
            .await;
        }
    }
    inside.shutdown(PATIENCE).await.unwrap();
}
