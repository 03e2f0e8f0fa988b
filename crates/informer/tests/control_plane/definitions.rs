//! Definitions that are created and deleted while a factory runs: an informer of a missing kind waits for it,
//! follows it once it is served, delivers the deletion of its objects with the kind, and follows it again
//! when it returns. Other kinds are unaffected.

use informer::SharedInformerFactory;
use informer::status::InformerState;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::apart::{run_on_own_thread, slow_wait};
use crate::model::Model;
use crate::runner::statements;
use crate::targets::{TIMEOUT, Target, map, until};

statements![informer_follows_a_kind_through_deletion_of_its_definition];

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn group(target: &Target) -> String {
    format!("{}.example.com", target.namespace)
}

/// Creates the definition and waits until the kind can be watched.
async fn define(target: &Target, path: &str) {
    let (group, any_object) =
        (group(target), json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}));
    let definition = json!({
        "metadata": {"name": format!("gadgets.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"plural": "gadgets", "kind": "Gadget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": any_object}}],
        },
    });
    target.post_outside(DEFINITIONS, &definition).await;
    let watch = format!("{path}?watch=1&resourceVersion=0&timeoutSeconds=-1");
    until("the kind is served", async || {
        // An empty stream returns nothing to parse.
        !matches!(target.request("GET", &watch, None).await, Err(kube::Error::Api(_)))
    })
    .await;
}

fn gadget(target: &Target, name: &str) -> Value {
    json!({"apiVersion": format!("{}/v1", group(target)), "kind": "Gadget", "metadata": {"name": name}, "spec": {"size": 1}})
}

async fn informer_follows_a_kind_through_deletion_of_its_definition(target: &Target) {
    run_on_own_thread(target, define_and_delete).await;
}

async fn define_and_delete(target: Target) {
    let resource =
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(&group(&target), "v1", "Gadget"), "gadgets");
    let path = format!("/apis/{}/v1/namespaces/{}/gadgets", group(&target), target.namespace);
    let definition = format!("{DEFINITIONS}/gadgets.{}", group(&target));
    let factory = SharedInformerFactory::new(target.client.clone());
    let (gadgets, maps) = (factory.dynamic_informer(&resource), factory.informer::<ConfigMap>());
    let (_gadgets, model) = Model::follow(&gadgets);
    let (_maps, maps_model) = Model::follow(&maps);
    factory.start();
    let error = factory.wait_for_sync(TIMEOUT).await.unwrap_err();
    let failed: Vec<&InformerState> = error.failed().map(|error| &error.state).collect();
    assert!(failed.iter().any(|state| matches!(state, InformerState::NotServed { .. })), "{error}");
    maps.wait_for_sync(TIMEOUT).await.unwrap();
    let not_served = || matches!(gadgets.status().state, InformerState::NotServed { .. });

    for round in 0..2 {
        assert!(not_served(), "{}", gadgets.status().state);
        define(&target, &path).await;
        slow_wait().await;
        until("the informer is live", async || gadgets.status().state == InformerState::Live).await;
        gadgets.wait_for_sync(TIMEOUT).await.unwrap();
        for name in ["a", "b"] {
            target.post(&path, &gadget(&target, name)).await;
        }
        target.merge(&format!("{path}/a"), &json!({"spec": {"size": 2}})).await;
        model.settles(&gadgets, async || target.list_of(&resource, true).await).await;
        assert_eq!(gadgets.lister().len(), 2);
        target.delete(&format!("{path}/b")).await;
        // Other kinds are followed at the same time.
        let name = format!("map-{round}");
        target.post("$ns/configmaps", &map(&name, "1")).await;
        until("the other kind is followed", async || maps_model.has(&format!("+{name}"))).await;

        target.delete(&definition).await;
        until("the kind is not served", async || {
            matches!(target.request("GET", &definition, None).await, Err(kube::Error::Api(status)) if status.code == 404)
        })
        .await;
        until("the state is NotServed", async || not_served()).await;
        until("the cache is empty", async || gadgets.lister().is_empty()).await;
        until("the deletion is delivered", async || {
            model.version(&format!("{}/a", target.namespace)).is_none()
        })
        .await;
    }
    assert_eq!(maps.status().reflector.failures, 0);
    maps_model
        .settles(&maps, async || target.list_of(&ApiResource::erase::<ConfigMap>(&()), false).await)
        .await;
    factory.shutdown(TIMEOUT).await.unwrap();
}
