//! Two parts of a program that know nothing of each other ask one factory for pods, and share one watch and one cache.
//!
//!     cargo run --example shared_factory -- [--kubeconfig PATH] [--namespace NAME]

use informer::{Event, Registration, SharedInformerFactory};
use informer_examples::{program, stop_signal};
use k8s_openapi::api::core::v1::Pod;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "usage: shared_factory [--kubeconfig PATH] [--namespace NAME]

Prints what happens to pods, and how many each namespace then has, until Ctrl-C: two handlers, one watch.";

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
    let _diary = diary(factory, print.clone());
    let _census = census(factory, print);
    // Only now, so that handlers and indexes are there before the first object is.
    factory.start();
    factory.wait_for_sync(Duration::from_secs(30)).await?;
    eprintln!("synced: {} pods", factory.lister::<Pod>().len());
    done.await;
    factory.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}

/// The first part: says what comes and goes.
fn diary(factory: &SharedInformerFactory, print: impl Fn(String) + Send + 'static) -> Registration {
    let pods = factory.informer::<Pod>();
    pods.on(move |event| match event {
        Event::Added { object, .. } => print(format!("+ {}", object.key())),
        Event::Updated { new, .. } => print(format!("~ {}", new.key())),
        Event::Deleted { last, .. } => print(format!("- {}", last.key())),
    })
}

/// The second part: counts the pods of each namespace in which something happens.
fn census(factory: &SharedInformerFactory, print: impl Fn(String) + Send + 'static) -> Registration {
    // The same kind by name, and so the same informer.
    let pods = factory.core().v1().pods().informer();
    let lister = pods.lister();
    pods.on(move |event| {
        // An update changes no count.
        if !matches!(event, Event::Updated { .. }) {
            let namespace = event.object().namespace().unwrap_or_default();
            // The cache holds what a handler is told, or something newer.
            print(format!("pods in {namespace}: {}", lister.namespace(namespace).list().len()));
        }
    })
}
