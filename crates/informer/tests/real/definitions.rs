//! Definitions that come and go under a running factory: an informer of a kind that is not there waits for it, follows it while it is there,
//! tells that its objects are gone with it, and follows again when it comes back. Nobody else is disturbed.

use informer::{SharedInformerFactory, State};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::apart::{apart, slow_wait};
use crate::arm::{Arm, PATIENCE, map, until};
use crate::model::Model;
use crate::runner::statements;

statements![an_informer_follows_a_kind_whose_definition_comes_and_goes];

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn group(arm: &Arm) -> String {
    format!("{}.example.com", arm.namespace)
}

/// Stores the definition, and waits until the kind can be watched.
async fn define(arm: &Arm, path: &str) {
    let (group, keep) = (group(arm), json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}));
    let definition = json!({
        "metadata": {"name": format!("gadgets.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"plural": "gadgets", "kind": "Gadget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": keep}}],
        },
    });
    arm.post_outside(DEFINITIONS, &definition).await;
    let watch = format!("{path}?watch=1&resourceVersion=0&timeoutSeconds=-1");
    until("the kind is served", async || {
        // Of an empty stream there is nothing to read.
        !matches!(arm.request("GET", &watch, None).await, Err(kube::Error::Api(_)))
    })
    .await;
}

fn gadget(arm: &Arm, name: &str) -> Value {
    json!({"apiVersion": format!("{}/v1", group(arm)), "kind": "Gadget", "metadata": {"name": name}, "spec": {"size": 1}})
}

async fn an_informer_follows_a_kind_whose_definition_comes_and_goes(arm: &Arm) {
    apart(arm, comes_and_goes).await;
}

async fn comes_and_goes(arm: Arm) {
    let resource =
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(&group(&arm), "v1", "Gadget"), "gadgets");
    let path = format!("/apis/{}/v1/namespaces/{}/gadgets", group(&arm), arm.namespace);
    let definition = format!("{DEFINITIONS}/gadgets.{}", group(&arm));
    let factory = SharedInformerFactory::new(arm.client.clone());
    let (gadgets, maps) = (factory.dynamic(&resource), factory.informer::<ConfigMap>());
    let (_gadgets, told) = Model::follow(&gadgets);
    let (_maps, told_of_maps) = Model::follow(&maps);
    factory.start();
    let error = factory.wait_for_sync(PATIENCE).await.unwrap_err();
    let failed: Vec<&State> = error.failed().map(|error| &error.state).collect();
    assert!(failed.iter().any(|state| matches!(state, State::NotServed { .. })), "{error}");
    maps.wait_for_sync(PATIENCE).await.unwrap();
    let not_served = || matches!(gadgets.status().state, State::NotServed { .. });

    for round in 0..2 {
        assert!(not_served(), "{}", gadgets.status().state);
        define(&arm, &path).await;
        slow_wait().await;
        until("the kind is followed", async || gadgets.status().state == State::Live).await;
        gadgets.wait_for_sync(PATIENCE).await.unwrap();
        for name in ["a", "b"] {
            arm.post(&path, &gadget(&arm, name)).await;
        }
        arm.merge(&format!("{path}/a"), &json!({"spec": {"size": 2}})).await;
        told.settles(&gadgets, async || arm.list_of(&resource, true).await).await;
        assert_eq!(gadgets.lister().len(), 2);
        arm.delete(&format!("{path}/b")).await;
        // Others are followed meanwhile.
        let name = format!("map-{round}");
        arm.post("$ns/configmaps", &map(&name, "1")).await;
        until("others go on", async || told_of_maps.has(&format!("+{name}"))).await;

        arm.delete(&definition).await;
        until("the kind is gone", async || {
            matches!(arm.request("GET", &definition, None).await, Err(kube::Error::Api(status)) if status.code == 404)
        })
        .await;
        until("it is said that the kind is gone", async || not_served()).await;
        until("its objects are told to be gone", async || gadgets.lister().is_empty()).await;
        until("the handler hears it", async || told.version(&format!("{}/a", arm.namespace)).is_none()).await;
    }
    assert_eq!(maps.status().counters.failures, 0);
    told_of_maps
        .settles(&maps, async || arm.list_of(&ApiResource::erase::<ConfigMap>(&()), false).await)
        .await;
    factory.shutdown(PATIENCE).await.unwrap();
}
