//! How much memory a cache takes: all fields or some, a transform, compression; and when objects are decoded.
//!
//!     cargo example memory --release -- [--kubeconfig PATH] [--namespace NAME]

use informer::cache::Retention;
use informer::{InformerOptions, SharedInformer};
use informer_examples::program;
use k8s_openapi::api::core::v1::Pod;
use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const USAGE: &str = "usage: memory [--kubeconfig PATH] [--namespace NAME]

Caches the pods of a cluster in several ways and prints the memory of each, and how long it takes to decode all pods.";

#[tokio::main]
async fn main() -> ExitCode {
    program(USAGE, async |mut arguments| {
        let options = arguments.options()?;
        run(&arguments.client().await?, &options, |line| println!("{line}")).await
    })
    .await
}

/// Prints memory and decoding time of each way.
pub(crate) async fn run(
    client: &kube::Client,
    options: &InformerOptions,
    print: impl Fn(String),
) -> Result<(), Box<dyn Error>> {
    for (name, options) in ways(options)? {
        let pods = SharedInformer::<Pod>::with_options(client.clone(), options);
        pods.start();
        pods.wait_for_sync(Duration::from_secs(30)).await?;
        let (count, kilobytes) = (pods.lister().len(), settled_memory(&pods).await / 1_000);
        let [first, second] = [decode_all(&pods)?, decode_all(&pods)?];
        print(format!("{name}: {count} pods, {kilobytes} KB, decoded in {first:.1?}, again in {second:.1?}"));
        pods.shutdown(Duration::from_secs(5)).await?;
    }
    Ok(())
}

/// The ways to cache pods, cheapest to use first.
fn ways(options: &InformerOptions) -> Result<Vec<(&'static str, InformerOptions)>, Box<dyn Error>> {
    let options = || options.clone();
    Ok(vec![
        // The bytes that the server sent, without managedFields.
        ("all fields", options()),
        // Fields are left out while an object is read. In the types of k8s-openapi they have their default value.
        ("without status and annotations", options().drop_fields(["status", "metadata.annotations"])?),
        ("only phase and node", options().keep_fields(["spec.nodeName", "status.phase"])?),
        // For what paths cannot express. Objects are requested as JSON, decoded and encoded again, so prefer
        // field filters. An error leaves the object as received and is reported (`transform_fallback`).
        (
            "transformed",
            options().transform(|pod: &mut Pod| {
                for container in pod.spec.iter_mut().flat_map(|spec| &mut spec.containers) {
                    container.env = None; // may contain passwords
                }
                pod.status = None;
                Ok(())
            }),
        ),
        // Many objects, few of them read.
        ("compressed", options().retention(Retention::Compressed)),
        // Few objects, read often: decoded values stay in memory, in addition to what is printed.
        ("decoded", options().retention(Retention::Decoded)),
    ])
}

/// The memory of the cache once it stays the same: objects are compressed in the background, after a
/// dictionary was trained on them.
async fn settled_memory(pods: &SharedInformer<Pod>) -> usize {
    let mut last = None;
    loop {
        let bytes = pods.metrics().memory_bytes;
        if last.replace(bytes) == Some(bytes) {
            return bytes;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

fn decode_all(pods: &SharedInformer<Pod>) -> Result<Duration, Box<dyn Error>> {
    let start = Instant::now();
    for pod in &pods.snapshot() {
        pod.typed()?;
    }
    Ok(start.elapsed())
}
