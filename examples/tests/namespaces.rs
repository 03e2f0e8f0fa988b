//! The namespaces example against an embedded server.
#![allow(clippy::unwrap_used)]

use crate::common::cluster::{config_map, create_namespace, requests_for};
use crate::common::{output, server};
use crate::programs::namespaces;
use informer_apiserver::Verb;

#[tokio::test(start_paused = true)]
async fn copies_are_written_once_and_read_back() {
    let server = server();
    for name in ["billing", "search", "secret"] {
        create_namespace(&server, name);
    }
    let to = ["billing".to_owned(), "search".to_owned()];
    server.create(&config_map("shop", "settings", "new")).unwrap();
    server.create(&config_map("search", "settings", "old")).unwrap();
    server.create(&config_map("secret", "settings", "own")).unwrap();
    let version = |namespace: &str| {
        let map = server.get("v1", "configmaps", Some(namespace), "settings").unwrap();
        assert_eq!(map["data"]["v"], "new");
        map["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
    };

    let (print, mut lines) = output();
    namespaces::run(server.client(), "settings", "shop", &to, print).await.unwrap();
    let copied = |name: &str| format!("{name}/settings: copied, cached at version {}", version(name));
    assert_eq!(lines.take(), [copied("billing"), copied("search")]);
    assert_eq!(requests_for(&server, Verb::Patch, "configmaps").len(), 2);
    let foreign = |seen: &informer_apiserver::RecordedRequest| {
        !matches!(seen.namespace.as_deref(), Some("shop" | "billing" | "search"))
    };
    assert!(!server.recorded_requests().iter().any(foreign), "needs permissions in three namespaces only");

    let (print, mut lines) = output();
    namespaces::run(server.client(), "settings", "shop", &to, print).await.unwrap();
    assert_eq!(lines.take(), ["billing/settings: unchanged", "search/settings: unchanged"]);

    let error = namespaces::run(server.client(), "none", "shop", &to, |_| {}).await.unwrap_err();
    assert_eq!(error.to_string(), "shop/none does not exist");
}
