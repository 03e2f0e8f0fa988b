//! Step 2 of the tutorial: look-ups by key, label and index.

use informer::selector::LabelSelector;
use informer::{Index, IndexHandle, SharedInformer, Snapshot};
use k8s_openapi::api::core::v1::Pod;
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<(), informer::Error> {
    let client = informer::client(kube::Config::infer().await?)?;
    run(client).await
}

pub(crate) async fn run(client: kube::Client) -> Result<(), informer::Error> {
    let pods = SharedInformer::<Pod>::new(client);
    let by_phase = pods.add_index(Index::field("status.phase"))?;
    let by_node = pods.add_index(Index::field("spec.nodeName"))?;
    pods.start();
    pods.wait_for_sync(Duration::from_secs(30)).await?;

    let snapshot = pods.snapshot();
    for (node, count) in count(&snapshot, &by_node) {
        println!("{node}: {count} pods");
    }
    for pod in snapshot.by_index(&by_phase, "Failed") {
        println!("{} failed", pod.key());
    }
    let web: LabelSelector = "app=web".parse()?;
    for pod in pods.lister().namespace("shop").list_matching(&web) {
        println!("{} is a web server on {}", pod.name(), pod.field("spec.nodeName").unwrap_or_default());
    }
    Ok(())
}

/// Returns the values of an index, each with the number of its pods.
pub(crate) fn count(pods: &Snapshot<Pod>, index: &IndexHandle<Pod>) -> Vec<(String, usize)> {
    let values = pods.index_values(index);
    values.map(|value| (value.to_string(), pods.by_index(index, &value).count())).collect()
}
