//! Step 3 of the tutorial: a handler that reports how the phases of pods change.

use informer::{Event, SharedInformer};
use k8s_openapi::api::core::v1::Pod;
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<(), informer::Error> {
    let client = informer::client(kube::Config::infer().await?)?;
    run(client, async { drop(tokio::signal::ctrl_c().await) }).await
}

pub(crate) async fn run(client: kube::Client, stop: impl Future<Output = ()>) -> Result<(), informer::Error> {
    let pods = SharedInformer::<Pod>::new(client);
    let _registration = pods.on_event(|event| {
        if let Some(line) = describe(&event) {
            println!("{line}");
        }
    });
    pods.start();
    pods.wait_for_sync(Duration::from_secs(30)).await?;
    stop.await;
    pods.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}

/// Describes a change of a phase; `None` for other changes.
pub(crate) fn describe(event: &Event<Pod>) -> Option<String> {
    let phase =
        |pod: &informer::Object<Pod>| pod.field("status.phase").unwrap_or_else(|| "Unknown".to_owned());
    match event {
        Event::Added { object, initial: true, .. } => Some(format!("{} is {}", object.key(), phase(object))),
        Event::Added { object, .. } => Some(format!("{} was created", object.key())),
        Event::Updated { old, new, .. } if phase(old) == phase(new) => None,
        Event::Updated { old, new, .. } => Some(format!("{}: {} → {}", new.key(), phase(old), phase(new))),
        Event::Deleted { last, .. } => Some(format!("{} was deleted", last.key())),
    }
}
