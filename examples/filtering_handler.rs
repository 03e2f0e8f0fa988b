//! A handler that hears only of the objects that match: pods that take up room on a node. An update that makes a pod match is an add to
//! it, one that makes it stop is a delete.
//!
//!     cargo run --example filtering_handler -- [--kubeconfig PATH] [--namespace NAME]

use informer::{Cause, FilteringHandler, Handler, Object, SharedInformer};
use informer_examples::{program, stop_signal};
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "usage: filtering_handler [--kubeconfig PATH] [--namespace NAME]

Prints which pods come to a node and which leave it, and how many it then has, until Ctrl-C.";

#[tokio::main]
async fn main() -> ExitCode {
    program(USAGE, async |mut arguments| {
        let options = arguments.options()?;
        let pods = SharedInformer::with_options(arguments.client().await?, options);
        run(&pods, |line| println!("{line}"), stop_signal()).await
    })
    .await
}

/// Prints how pods come to nodes and leave them until `done`.
pub(crate) async fn run(
    pods: &SharedInformer<Pod>,
    print: impl Fn(String) + Send + 'static,
    done: impl Future<Output = ()>,
) -> Result<(), Box<dyn Error>> {
    let rooms = Rooms { taken: BTreeMap::new(), print };
    // For a closure the same is `pods.handler().filter(takes_room).on(…)`.
    let _counting = pods.add_handler(FilteringHandler::new(takes_room, rooms));
    pods.start();
    pods.wait_for_sync(Duration::from_secs(30)).await?;
    eprintln!("synced: {} pods, on a node or not", pods.lister().len());
    done.await;
    pods.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}

/// A pod takes up room from when it is assigned to a node until it has finished.
fn takes_room(pod: &Object<Pod>) -> bool {
    let Ok(pod) = pod.typed() else { return false };
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let assigned = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    assigned && !matches!(phase, Some("Succeeded" | "Failed"))
}

/// How many pods each node has.
struct Rooms<P> {
    taken: BTreeMap<String, u32>,
    print: P,
}

impl<P: Fn(String) + Send + 'static> Handler<Pod> for Rooms<P> {
    fn on_add(&mut self, pod: Object<Pod>, _initial: bool) {
        let node = node(&pod);
        let taken = self.taken.entry(node.clone()).or_default();
        *taken += 1;
        (self.print)(format!("{node}: + {} ({taken} pods)", pod.key()));
    }

    fn on_update(&mut self, _old: Object<Pod>, _new: Object<Pod>, _cause: Cause) {
        // Matched before and matches still: a pod does not move to another node.
    }

    fn on_delete(&mut self, last: Object<Pod>, _observed: bool) {
        let node = node(&last);
        // Never below zero: every delete follows an add of the same pod, whatever the filter said meanwhile.
        let taken = self.taken.entry(node.clone()).or_default();
        *taken -= 1;
        (self.print)(format!("{node}: - {} ({taken} pods)", last.key()));
    }
}

/// The node of a pod that has one, which does not change. Decoded for the filter a moment ago, and shared.
fn node(pod: &Object<Pod>) -> String {
    let node = pod.typed().ok().and_then(|pod| pod.spec.as_ref()?.node_name.clone());
    node.unwrap_or_else(|| "no node".to_owned())
}
