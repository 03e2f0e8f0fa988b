//! Looking things up in the cache: indexes on a field, on a label, and on whatever a closure finds, and several
//! answers from one state.
//!
//!     cargo run --example lister_index -- [--kubeconfig PATH] [--namespace NAME]

use informer::{Index, Object, SharedInformerFactory};
use informer_examples::program;
use k8s_openapi::api::core::v1::Pod;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "usage: lister_index [--kubeconfig PATH] [--namespace NAME]

Prints the pods of each node, and how many pods each app (by the label app) and each image has.";

#[tokio::main]
async fn main() -> ExitCode {
    program(USAGE, async |mut arguments| {
        let options = arguments.options()?;
        let factory = SharedInformerFactory::with_options(arguments.client().await?, options);
        run(&factory, |line| println!("{line}")).await
    })
    .await
}

/// Prints what runs where, once.
pub(crate) async fn run(
    factory: &SharedInformerFactory,
    print: impl Fn(String),
) -> Result<(), Box<dyn Error>> {
    let informer = factory.informer::<Pod>();
    // Neither a field nor a label is decoded for its index; a closure may decode, once for each state of an object.
    let by_node = informer.add_index(Index::field("spec.nodeName"))?;
    let by_app = informer.add_index(Index::label("app"))?;
    let by_image = informer.add_index(Index::by("image", images))?;
    factory.start();
    factory.wait_for_sync(Duration::from_secs(30)).await?;

    // Every answer from one state. The lister itself answers from the newest, so two of its answers may not fit together.
    let pods = informer.lister().snapshot();
    let mut assigned = 0;
    for node in pods.values_of(&by_node) {
        let names: Vec<_> = pods.by(&by_node, &node).iter().map(|pod| pod.key().to_string()).collect();
        assigned += names.len();
        print(format!("node {node}: {}", names.join(" ")));
    }
    // What lacks the field is not in the index.
    print(format!("without a node: {}", pods.len() - assigned));
    for app in pods.values_of(&by_app) {
        // Nobody asked for more than the number, so no object is touched.
        print(format!("app {app}: {}", pods.keys_by(&by_app, &app).len()));
    }
    for image in pods.values_of(&by_image) {
        print(format!("image {image}: {}", pods.keys_by(&by_image, &image).len()));
    }
    factory.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}

/// The images of a pod's containers. What does not decode has none.
fn images(pod: &Object<Pod>) -> Vec<String> {
    let Ok(pod) = pod.typed() else { return Vec::new() };
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers.filter_map(|container| container.image.clone()).collect()
}
