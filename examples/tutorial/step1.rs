//! Step 1 of the tutorial: a local copy of the pods of a cluster.

use informer::SharedInformer;
use k8s_openapi::api::core::v1::Pod;
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<(), informer::Error> {
    let client = informer::client(kube::Config::infer().await?)?;
    run(client).await
}

pub(crate) async fn run(client: kube::Client) -> Result<(), informer::Error> {
    let pods = SharedInformer::<Pod>::new(client);
    pods.start();
    pods.wait_for_sync(Duration::from_secs(30)).await?;
    let pods = pods.snapshot();
    for pod in &pods {
        println!("{}", pod.key());
    }
    println!("{} pods", pods.len());
    Ok(())
}
