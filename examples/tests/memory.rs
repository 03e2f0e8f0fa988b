//! The memory example against an embedded server.
#![allow(clippy::unwrap_used)]

use crate::common::cluster::{pod, with};
use crate::common::{output, rest, server};
use crate::programs::memory;
use informer::InformerOptions;
use serde_json::json;

#[tokio::test(start_paused = true)]
async fn smaller_ways_take_less_memory() {
    let server = server();
    for number in 0..200 {
        let web = with(pod("shop", &format!("web-{number}")), "/spec/nodeName", "node-1");
        let env: Vec<_> =
            (0..20).map(|n| json!({"name": format!("V{n}"), "value": "x".repeat(20)})).collect();
        let web = with(web, "/spec/containers/0/env", env);
        server.create(&with(web, "/metadata/annotations", json!({"note": "n".repeat(500)}))).unwrap();
    }
    let (print, lines) = output();
    memory::run(&server.client(), &InformerOptions::default(), print).await.unwrap();
    let lines = rest(lines).await;
    let kilobytes = |way: &str| -> u32 {
        let line = lines.iter().find(|line| line.starts_with(&format!("{way}: 200 pods, "))).unwrap();
        line.split(' ').rev().skip_while(|word| *word != "KB,").nth(1).unwrap().parse().unwrap()
    };
    let all = kilobytes("all fields");
    for way in ["without status and annotations", "only phase and node", "compressed"] {
        assert!(kilobytes(way) < all, "{way}: {lines:?}");
    }
    assert_eq!(kilobytes("decoded"), all, "decoded values come on top: {lines:?}");
    // JSON takes more than protobuf, but not more than the removed variables.
    assert!(kilobytes("transformed") < all, "{lines:?}");
}
