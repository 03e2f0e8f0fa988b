//! Events as a stream, read one by one by a task that may wait in between, until it is stopped. It receives
//! every state, and a notice if it was too slow for that.
//!
//!     cargo example event_stream -- [--kubeconfig PATH] [--namespace NAME]

use informer::handler::Delivery;
use informer::{Event, EventStream, SharedInformer};
use informer_examples::{program, stop_signal};
use k8s_openapi::api::core::v1::Pod;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

const USAGE: &str = "usage: event_stream [--kubeconfig PATH] [--namespace NAME]

Prints every version of every pod until Ctrl-C. If the reader of the output is slow, the number of missed versions is
printed, and the memory of the program does not grow.";

/// Maximum number of pending states.
const CAPACITY: usize = 100;

#[tokio::main]
async fn main() -> ExitCode {
    program(USAGE, async |mut arguments| {
        let options = arguments.options()?;
        let pods = SharedInformer::with_options(arguments.client().await?, options);
        let (out, mut lines) = mpsc::channel(1);
        // Printing may block if the output is a pipe.
        let printing = tokio::task::spawn_blocking(move || {
            while let Some(line) = lines.blocking_recv() {
                println!("{line}");
            }
        });
        run(&pods, out, stop_signal()).await?;
        Ok(printing.await?)
    })
    .await
}

/// Sends every state of every pod to `out` until `done`.
pub(crate) async fn run(
    pods: &SharedInformer<Pod>,
    out: mpsc::Sender<String>,
    done: impl Future<Output = ()>,
) -> Result<(), Box<dyn Error>> {
    // `pods.events()` would coalesce: at most one pending event per pod, however slow the reader is.
    let stream = pods.handler().uncoalesced_with_capacity(CAPACITY).event_stream();
    let (stop, stopped) = oneshot::channel();
    let following = tokio::spawn(follow(stream, out, stopped));
    pods.start();
    pods.wait_for_sync(Duration::from_secs(30)).await?;
    eprintln!("synced: {} pods", pods.lister().len());
    done.await;
    drop(stop);
    following.await?;
    pods.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}

/// Reads events until the other end of `stopped` is dropped.
async fn follow(
    mut stream: EventStream<Pod, Delivery<Pod>>,
    out: mpsc::Sender<String>,
    mut stopped: oneshot::Receiver<()>,
) {
    loop {
        let delivery = tokio::select! {
            // Waiting for the next event is cancel safe: no event is lost.
            delivery = stream.next() => delivery,
            _ = &mut stopped => return,
        };
        let line = match delivery {
            Some(Delivery::Event(event)) => describe(&event),
            Some(Delivery::Lagged { skipped, .. }) => format!("… lagged: {skipped} states were coalesced"),
            // Further kinds of delivery may be added.
            Some(_) => continue,
            // The informer has stopped.
            None => return,
        };
        tokio::select! {
            sent = out.send(line) => if sent.is_err() { return },
            _ = &mut stopped => return,
        }
    }
}

fn describe(event: &Event<Pod>) -> String {
    match event {
        Event::Added { object, .. } => format!("+ {} {}", object.key(), object.resource_version()),
        Event::Updated { old, new, .. } => {
            format!("~ {} {} -> {}", new.key(), old.resource_version(), new.resource_version())
        }
        Event::Deleted { last, .. } => format!("- {}", last.key()),
    }
}
