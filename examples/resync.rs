//! A resync: the handler receives every object again from time to time, to notice what is not a change. Here:
//! pods that stay pending for too long.
//!
//!     cargo example resync -- [--kubeconfig PATH] [--namespace NAME] [--minutes N]

use informer::{Event, Object, SharedInformer, UpdateCause};
use informer_examples::{program, stop_signal};
use k8s_openapi::api::core::v1::Pod;
use std::collections::HashMap;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::Instant;

const USAGE: &str = "usage: resync [--kubeconfig PATH] [--namespace NAME] [--minutes N]

Prints each pod that has been pending for N minutes (default 5), counted from the start of this program, until Ctrl-C.";

/// How late a pod may be reported. A resync reads the cache and sends no request, so it may be short.
const RESYNC_PERIOD: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> ExitCode {
    program(USAGE, async |mut arguments| {
        let minutes: u64 = arguments.parsed("--minutes")?.unwrap_or(5);
        let limit = Duration::from_secs(minutes.saturating_mul(60));
        let options = arguments.options()?;
        let pods = SharedInformer::with_options(arguments.client().await?, options);
        run(&pods, limit, |line| println!("{line}"), stop_signal()).await
    })
    .await
}

/// Prints pods that have been pending for `limit` until `done`.
pub(crate) async fn run(
    pods: &SharedInformer<Pod>,
    limit: Duration,
    print: impl Fn(String) + Send + 'static,
    done: impl Future<Output = ()>,
) -> Result<(), Box<dyn Error>> {
    let mut pending_since = HashMap::new();
    // The period belongs to the handler; `InformerOptions::resync_period` sets it for all of them.
    let handler = pods.handler().name("pending").resync_period(RESYNC_PERIOD);
    // With a filter, a pod that starts running is delivered as deleted.
    let _reporting = handler.filter(is_pending).on_event(move |event| match event {
        Event::Added { object, .. } => drop(pending_since.insert(object.key().clone(), Instant::now())),
        Event::Updated { new, cause: UpdateCause::Resync, .. } => {
            // Reported once: the entry is removed.
            if pending_since.get(new.key()).is_some_and(|since| since.elapsed() >= limit) {
                pending_since.remove(new.key());
                print(format!("{} has been pending for {} minutes", new.key(), limit.as_secs() / 60));
            }
        }
        Event::Updated { .. } => {}
        Event::Deleted { last, .. } => drop(pending_since.remove(last.key())),
    });
    pods.start();
    pods.wait_for_sync(Duration::from_secs(30)).await?;
    eprintln!("synced: {} pods", pods.lister().len());
    done.await;
    pods.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}

fn is_pending(pod: &Object<Pod>) -> bool {
    pod.field("status.phase").as_deref() == Some("Pending")
}
