//! Resources by name against the embedded server.
#![allow(clippy::unwrap_used)]

use informer::controller::Controller;
use informer::error::{ErrorKind, ResolveError};
use informer::{Error, InformerOptions, SharedInformer, SharedInformerFactory, discovery};
use informer_apiserver::ApiServer;
use serde_json::json;
use std::time::Duration;
use tower::Service as _;

#[tokio::test(start_paused = true)]
async fn built_in_resources_are_found_by_every_name() {
    let server = ApiServer::new();
    let client = server.client();
    for name in ["deployments", "deployment", "deploy", "Deployment", "deployments.apps", "deploy.v1.apps"] {
        let resource = informer::resolve(&client, name).await.unwrap();
        assert_eq!(resource.name(), "deployments.apps", "{name}");
        assert_eq!(resource.api_resource().api_version, "apps/v1", "{name}");
        assert!(resource.namespaced && resource.supports("watch"), "{name}");
    }
    for name in ["pods.v1.", "pods.v1"] {
        assert_eq!(informer::resolve(&client, name).await.unwrap().name(), "pods", "{name}");
    }
    for name in ["pods/web-0", "pods,services", "pods/status", "all", ""] {
        let error = informer::resolve(&client, name).await.unwrap_err();
        assert!(matches!(error, ResolveError::Unknown { .. }), "{name}: {error}");
    }
    let error = informer::resolve(&client, "zebras").await.unwrap_err();
    assert!(matches!(&error, ResolveError::Unknown { name, .. } if name == "zebras"), "{error}");
    assert_eq!(Error::from(error).kind(), ErrorKind::NotServed);
}

#[tokio::test(start_paused = true)]
async fn custom_resource_is_found_and_watched() {
    let server = ApiServer::new();
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": schema});
    server
        .create(&json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "websites.example.com"},
            "spec": {"group": "example.com", "scope": "Namespaced", "versions": [version],
                "names": {"plural": "websites", "singular": "website", "kind": "Website", "shortNames": ["ws"]}}}))
        .unwrap();
    server
        .create(&json!({"apiVersion": "example.com/v1", "kind": "Website",
            "metadata": {"name": "site", "namespace": "default"}}))
        .unwrap();
    let resource = informer::resolve(&server.client(), "WS").await.unwrap();
    let options = InformerOptions::default().namespace("default");
    let factory = SharedInformerFactory::with_options(server.client(), options);
    let sites = factory.dynamic_informer(&resource);
    factory.start();
    sites.wait_for_sync(Duration::from_secs(30)).await.unwrap();
    assert!(sites.lister().get("default", "site").is_some());
}

/// Regression: the scope of a resolved resource was lost, so a factory with namespaces requested nodes in a
/// namespace, which no server has. Dynamic informers took only an `ApiResource`, which has no scope; tests
/// resolved namespaced resources, or used factories without namespaces.
#[tokio::test(start_paused = true)]
async fn namespaces_do_not_apply_to_a_cluster_scoped_resource() {
    let server = ApiServer::new();
    let client = server.client();
    let options = InformerOptions::default().namespace("default");
    let factory = SharedInformerFactory::with_options(client.clone(), options.clone());
    let resource = informer::resolve(&client, "storageclasses").await.unwrap();
    factory.configure_dynamic(&resource, InformerOptions::default().page_size(7)).unwrap();
    let (classes, metadata) =
        (factory.dynamic_informer(&resource), factory.dynamic_metadata_informer(&resource));
    let alone = SharedInformer::dynamic(client.clone(), &resource, options);
    let nodes = informer::resolve(&client, "nodes").await.unwrap();
    let _controller = Controller::dynamic(&factory, &nodes.api_resource(), &nodes.scope());
    let nodes = factory.dynamic_informer(&nodes);
    alone.start();
    factory.start();
    factory.wait_for_sync(Duration::from_secs(30)).await.unwrap();
    alone.wait_for_sync(Duration::from_secs(30)).await.unwrap();
    for description in
        [classes.description(), metadata.description(), alone.description(), nodes.description()]
    {
        assert!(!description.contains("default"), "{description}");
    }
}

#[tokio::test(start_paused = true)]
async fn resource_that_cannot_be_watched_is_an_error_with_its_verbs() {
    let server = ApiServer::new();
    let resource = informer::resolve(&server.client(), "tokenreviews").await.unwrap();
    let error = resource.watchable().unwrap_err();
    assert!(matches!(&error, ResolveError::NotWatchable { verbs, .. } if verbs == &["create"]), "{error}");
    let text = "resolve resource \"tokenreviews.authentication.k8s.io\": cannot be watched \
                (supported verbs: create)";
    assert_eq!(error.to_string(), text);
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(informer::resolve(&server.client(), "pods").await.unwrap().watchable().is_ok());
}

/// The server of an aggregated API may be down: other groups are found, and the error for an unknown name lists
/// the groups that could not be discovered.
#[tokio::test(start_paused = true)]
async fn failing_group_does_not_affect_others() {
    let server = ApiServer::new();
    let client = without_path(&server, "/apis/batch/v1");
    assert_eq!(informer::resolve(&client, "deploy").await.unwrap().name(), "deployments.apps");
    let discovered = discovery::discover(&client).await.unwrap();
    let failed: Vec<&str> = discovered.failures.iter().map(|(version, _)| &**version).collect();
    assert_eq!(failed, ["batch/v1"]);
    let error = informer::resolve(&client, "cronjobs").await.unwrap_err();
    let text = "resolve resource \"cronjobs\": not served (batch/v1 could not be discovered)";
    assert_eq!(error.to_string(), text);
    assert!(std::error::Error::source(&error).is_some());
    // A resource of the same name in another group is not what was meant, and other groups do not matter.
    let error = informer::resolve(&client, "events.batch").await.unwrap_err();
    let text = "resolve resource \"events.batch\": not served (batch/v1 could not be discovered)";
    assert_eq!(error.to_string(), text);
    let error = informer::resolve(&client, "events.apps").await.unwrap_err();
    assert!(error.to_string().contains("did you mean events"), "{error}");

    let client = without_path(&server, "/apis");
    let error = informer::resolve(&client, "deploy").await.unwrap_err();
    assert!(matches!(error, ResolveError::Request { .. }), "{error}");
    assert_eq!(error.to_string(), "resolve resource \"deploy\": discovery failed");
    assert_eq!(error.kind(), ErrorKind::NotServed);
}

/// A client for which the server does not serve this path.
fn without_path(server: &ApiServer, path: &'static str) -> kube::Client {
    let mut service = server.service();
    let redirected = tower::service_fn(move |mut request: http::Request<kube::client::Body>| {
        if request.uri().path() == path {
            *request.uri_mut() = http::Uri::from_static("/not-served");
        }
        service.call(request)
    });
    kube::Client::new(redirected, "default")
}
