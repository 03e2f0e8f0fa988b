//! The lister example against an embedded server.
#![allow(clippy::unwrap_used)]

use crate::common::cluster::{pod, with};
use crate::common::{output, rest, server};
use crate::programs::lister_index;
use informer::SharedInformerFactory;
use serde_json::json;

#[tokio::test(start_paused = true)]
async fn prints_pods_by_node_app_and_image() {
    let server = server();
    let on = |name: &str, node: &str| with(pod("shop", name), "/spec/nodeName", node);
    server.create(&on("web-1", "node-b")).unwrap();
    server.create(&on("web-0", "node-b")).unwrap();
    server.create(&with(on("cart", "node-a"), "/metadata/labels/app", "cart")).unwrap();
    let two = json!([{"name": "main", "image": "nginx"}, {"name": "side", "image": "envoy"}]);
    server.create(&with(pod("shop", "new"), "/spec/containers", two)).unwrap();

    let (print, lines) = output();
    lister_index::run(&SharedInformerFactory::new(server.client()), print).await.unwrap();
    let expected = [
        "node node-a: shop/cart",
        "node node-b: shop/web-0 shop/web-1",
        "without a node: 1",
        "app cart: 1",
        "app web: 3",
        "image envoy: 1",
        "image nginx: 4",
    ];
    assert_eq!(rest(lines).await, expected);
}

#[tokio::test(start_paused = true)]
async fn cluster_without_pods_is_no_error() {
    let (print, lines) = output();
    lister_index::run(&SharedInformerFactory::new(server().client()), print).await.unwrap();
    assert_eq!(rest(lines).await, ["without a node: 0"]);
}
