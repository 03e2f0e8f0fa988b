//! Two independent parts of a program get pods from one factory and share one watch and one cache.
//!
//!     cargo example shared_factory -- [--kubeconfig PATH] [--namespace NAME]

use informer::{Event, Registration, SharedInformerFactory};
use informer_examples::{program, stop_signal};
use k8s_openapi::api::core::v1::Pod;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "usage: shared_factory [--kubeconfig PATH] [--namespace NAME]

Prints changes of pods and the number of pods per namespace until Ctrl-C: two handlers, one watch.";

#[tokio::main]
async fn main() -> ExitCode {
    program(USAGE, async |mut arguments| {
        let options = arguments.options()?;
        let factory = SharedInformerFactory::with_options(arguments.client().await?, options);
        run(&factory, |line| println!("{line}"), stop_signal()).await
    })
    .await
}

/// Runs both parts until `done`.
pub(crate) async fn run(
    factory: &SharedInformerFactory,
    print: impl Fn(String) + Clone + Send + 'static,
    done: impl Future<Output = ()>,
) -> Result<(), Box<dyn Error>> {
    let _diary = print_changes(factory, print.clone());
    let _census = print_counts(factory, print);
    // Started only now, so that handlers and indexes exist before the first object arrives.
    factory.start();
    factory.wait_for_sync(Duration::from_secs(30)).await?;
    eprintln!("synced: {} pods", factory.lister::<Pod>().len());
    done.await;
    factory.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}

/// The first part: prints added and deleted pods.
fn print_changes(factory: &SharedInformerFactory, print: impl Fn(String) + Send + 'static) -> Registration {
    let pods = factory.informer::<Pod>();
    pods.on_event(move |event| match event {
        Event::Added { object, .. } => print(format!("+ {}", object.key())),
        Event::Updated { new, .. } => print(format!("~ {}", new.key())),
        Event::Deleted { last, .. } => print(format!("- {}", last.key())),
    })
}

/// The second part: counts the pods of each namespace that changes.
fn print_counts(factory: &SharedInformerFactory, print: impl Fn(String) + Send + 'static) -> Registration {
    // The same kind by its accessor, and so the same informer.
    let pods = factory.core().v1().pods().informer();
    let lister = pods.lister();
    pods.on_event(move |event| {
        // An update changes no count.
        if !matches!(event, Event::Updated { .. }) {
            let namespace = event.object().namespace().unwrap_or_default();
            // The cache contains a delivered change or a newer one.
            print(format!("pods in {namespace}: {}", lister.namespace(namespace).list().len()));
        }
    })
}
