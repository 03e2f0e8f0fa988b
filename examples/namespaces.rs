//! One cache for several namespaces, for a user without permissions in the others; and reading one's own
//! writes: the cache is read only after it contains them.
//!
//!     cargo example namespaces -- settings shop billing search

use informer::{InformerOptions, ResourceVersion, SharedInformer};
use informer_examples::program;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "usage: namespaces NAME FROM TO... [--kubeconfig PATH]

Copies the config map NAME of the namespace FROM to the namespaces TO, unless they have an equal one.";

#[tokio::main]
async fn main() -> ExitCode {
    program(USAGE, async |mut arguments| {
        let (name, from, mut to) =
            (arguments.value("NAME")?, arguments.value("FROM")?, vec![arguments.value("TO")?]);
        while let Ok(namespace) = arguments.value("TO") {
            to.push(namespace);
        }
        run(arguments.client().await?, &name, &from, &to, |line| println!("{line}")).await
    })
    .await
}

/// Copies a config map from one namespace to the others.
pub(crate) async fn run(
    client: kube::Client,
    name: &str,
    from: &str,
    to: &[String],
    print: impl Fn(String),
) -> Result<(), Box<dyn Error>> {
    // One list and one watch per namespace, in one cache with one set of handlers and indexes.
    let namespaces = [from].into_iter().chain(to.iter().map(String::as_str));
    let maps = SharedInformer::<ConfigMap>::with_options(
        client.clone(),
        InformerOptions::default().namespaces(namespaces),
    );
    maps.start();
    maps.wait_for_sync(Duration::from_secs(30)).await?;
    for scope in &maps.status().scopes {
        eprintln!("{}: {}", scope.scope, scope.state); // each namespace has its own state
    }
    let lister = maps.lister();
    let original = lister.get(from, name).ok_or_else(|| format!("{from}/{name} does not exist"))?.typed()?;
    for namespace in to {
        let copy = lister.get(namespace, name).map(|copy| copy.typed()).transpose()?;
        if copy.is_some_and(|copy| copy.data == original.data) {
            print(format!("{namespace}/{name}: unchanged"));
            continue;
        }
        let api = Api::<ConfigMap>::namespaced(client.clone(), namespace);
        let metadata = json!({"name": name});
        let patch =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": original.data});
        let params = PatchParams::apply("namespaces-example").force();
        let written = api.patch(name, &params, &Patch::Apply(&patch)).await?;
        // The cache follows the server with a short delay: a read at this point might return the old state.
        let version = ResourceVersion::new(&written.metadata.resource_version.unwrap_or_default());
        // The other namespaces may be quiet and need not reach this version.
        maps.wait_for_resource_version_in(namespace, &version, Duration::from_secs(30)).await?;
        let copy = lister.get(namespace, name).ok_or("the config map was deleted meanwhile")?;
        print(format!("{namespace}/{name}: copied, cached at version {}", copy.resource_version()));
    }
    maps.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}
