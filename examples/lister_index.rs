//! Lookups in the cache: indexes on a field, on a label, and on the result of a closure, and several lookups
//! in one snapshot.
//!
//!     cargo example lister_index -- [--kubeconfig PATH] [--namespace NAME]

use informer::{Index, Object, SharedInformerFactory};
use informer_examples::program;
use k8s_openapi::api::core::v1::Pod;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "usage: lister_index [--kubeconfig PATH] [--namespace NAME]

Prints the pods of each node, and the number of pods of each app (label app) and of each image.";

#[tokio::main]
async fn main() -> ExitCode {
    program(USAGE, async |mut arguments| {
        let options = arguments.options()?;
        let factory = SharedInformerFactory::with_options(arguments.client().await?, options);
        run(&factory, |line| println!("{line}")).await
    })
    .await
}

/// Prints the pods by node, app and image, once.
pub(crate) async fn run(
    factory: &SharedInformerFactory,
    print: impl Fn(String),
) -> Result<(), Box<dyn Error>> {
    let informer = factory.informer::<Pod>();
    // Field and label indexes decode nothing; a closure may decode, once per state of an object.
    let by_node = informer.add_index(Index::field("spec.nodeName"))?;
    let by_app = informer.add_index(Index::label("app"))?;
    let by_image = informer.add_index(Index::from_fn("image", images))?;
    factory.start();
    factory.wait_for_sync(Duration::from_secs(30)).await?;

    // All reads of a snapshot see the same state; a lister reads the newest state at each call.
    let pods = informer.snapshot();
    let mut assigned = 0;
    for node in pods.index_values(&by_node) {
        let mut names: Vec<_> = pods.by_index(&by_node, &node).map(|pod| pod.key().to_string()).collect();
        names.sort_unstable(); // look-ups of a snapshot are in no particular order
        assigned += names.len();
        print(format!("node {node}: {}", names.join(" ")));
    }
    // Objects without the field are not in the index.
    print(format!("without a node: {}", pods.len() - assigned));
    for app in pods.index_values(&by_app) {
        print(format!("app {app}: {}", pods.index_keys(&by_app, &app).count()));
    }
    for image in pods.index_values(&by_image) {
        print(format!("image {image}: {}", pods.index_keys(&by_image, &image).count()));
    }
    factory.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}

/// The images of a pod's containers. An undecodable pod has none.
fn images(pod: &Object<Pod>) -> Vec<String> {
    let Ok(pod) = pod.typed() else { return Vec::new() };
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers.filter_map(|container| container.image.clone()).collect()
}
