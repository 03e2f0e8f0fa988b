//! A handler that receives only matching objects: pods that occupy a node. An update that makes a pod match
//! is delivered as an add, one that makes it stop matching as a delete.
//!
//!     cargo example filtering_handler -- [--kubeconfig PATH] [--namespace NAME]

use informer::handler::FilteringHandler;
use informer::{Handler, Object, SharedInformer, UpdateCause};
use informer_examples::{program, stop_signal};
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "usage: filtering_handler [--kubeconfig PATH] [--namespace NAME]

Prints which pods are assigned to a node or leave it, and the node's number of pods, until Ctrl-C.";

#[tokio::main]
async fn main() -> ExitCode {
    program(USAGE, async |mut arguments| {
        let options = arguments.options()?;
        let pods = SharedInformer::with_options(arguments.client().await?, options);
        run(&pods, |line| println!("{line}"), stop_signal()).await
    })
    .await
}

/// Prints how pods are assigned to nodes and leave them until `done`.
pub(crate) async fn run(
    pods: &SharedInformer<Pod>,
    print: impl Fn(String) + Send + 'static,
    done: impl Future<Output = ()>,
) -> Result<(), Box<dyn Error>> {
    let counts = NodeCounts { pods: BTreeMap::new(), print };
    // For a closure: `pods.handler().filter(occupies_node).on(…)`.
    let _counting = pods.add_handler(FilteringHandler::new(occupies_node, counts));
    pods.start();
    pods.wait_for_sync(Duration::from_secs(30)).await?;
    eprintln!("synced: {} pods, on a node or not", pods.lister().len());
    done.await;
    pods.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}

/// A pod occupies a node from its assignment until it has finished.
fn occupies_node(pod: &Object<Pod>) -> bool {
    let Ok(pod) = pod.typed() else { return false };
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let assigned = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    assigned && !matches!(phase, Some("Succeeded" | "Failed"))
}

/// Number of pods per node.
struct NodeCounts<P> {
    pods: BTreeMap<String, u32>,
    print: P,
}

impl<P: Fn(String) + Send + 'static> Handler<Pod> for NodeCounts<P> {
    fn on_add(&mut self, pod: Object<Pod>, _initial: bool) {
        let node = node(&pod);
        let pods = self.pods.entry(node.clone()).or_default();
        *pods += 1;
        (self.print)(format!("{node}: + {} ({pods} pods)", pod.key()));
    }

    fn on_update(&mut self, _old: Object<Pod>, _new: Object<Pod>, _cause: UpdateCause) {
        // Matched before and still matches: a pod does not move to another node.
    }

    fn on_delete(&mut self, last: Object<Pod>, _observed: bool) {
        let node = node(&last);
        // Never below zero: every delete follows an add of the same pod.
        let pods = self.pods.entry(node.clone()).or_default();
        *pods -= 1;
        (self.print)(format!("{node}: - {} ({pods} pods)", last.key()));
    }
}

/// The node of a pod, which does not change. The filter has decoded the pod just before, and the result is
/// shared.
fn node(pod: &Object<Pod>) -> String {
    let node = pod.typed().ok().and_then(|pod| pod.spec.as_ref()?.node_name.clone());
    node.unwrap_or_else(|| "no node".to_owned())
}
