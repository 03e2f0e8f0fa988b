//! The metadata example against an embedded server.
#![allow(clippy::unwrap_used)]

use crate::common::cluster::{until, with};
use crate::common::{Program, output, server};
use crate::programs::metadata_only;
use informer::SharedInformerFactory;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};

fn secret() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {
            "namespace": "shop", "name": "tls", "labels": {"app": "web", "tier": "edge"},
            "ownerReferences": [{"apiVersion": "cert.example/v1", "kind": "Certificate", "name": "web", "uid": "1-2-3"}],
        },
        "data": {"key": "c2VjcmV0"},
    })
}

#[tokio::test(start_paused = true)]
async fn owners_and_labels_are_printed_and_no_data_is_received() {
    let server = server();
    server.create(&secret()).unwrap();
    let factory = SharedInformerFactory::new(server.client());
    let (print, mut lines) = output();
    let running = factory.clone();
    let program = Program::start(|stopped| async move {
        metadata_only::run(&running, print, async { drop(stopped.await) }).await
    });
    lines.expect(&["+ shop/tls of Certificate web app=web tier=edge"]).await;
    server.update(&with(secret(), "/metadata/labels", json!({"app": "cart"}))).unwrap();
    lines.expect(&["~ shop/tls of Certificate web app=cart"]).await;

    // The cache of the example, shared by the factory.
    let cached = factory.metadata_informer::<Secret>().lister().get("shop", "tls").unwrap();
    let raw: Value = serde_json::from_slice(&cached.to_json().unwrap()).unwrap();
    let parts: Vec<&String> = raw.as_object().unwrap().keys().collect();
    assert_eq!(parts, ["apiVersion", "kind", "metadata"]);
    assert_eq!(raw["kind"], "PartialObjectMetadata");
    assert_eq!(server.open_watches(), 1);
    drop(cached);

    server.delete("v1", "secrets", Some("shop"), "tls").unwrap();
    lines.expect(&["- shop/tls"]).await;
    program.stop().await;
    until(|| server.open_watches() == 0).await;
}
