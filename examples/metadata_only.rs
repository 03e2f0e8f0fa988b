//! Only the metadata of a kind: the server sends nothing else, so this program knows the owners of secrets
//! without ever receiving their data.
//!
//!     cargo example metadata_only -- [--kubeconfig PATH] [--namespace NAME]

use informer::{Event, Object, SharedInformerFactory};
use informer_examples::{program, stop_signal};
use k8s_openapi::api::core::v1::Secret;
use kube::core::PartialObjectMeta;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "usage: metadata_only [--kubeconfig PATH] [--namespace NAME]

Prints the owners and labels of secrets that are added or changed until Ctrl-C. Their data is never requested.";

#[tokio::main]
async fn main() -> ExitCode {
    program(USAGE, async |mut arguments| {
        let options = arguments.options()?;
        let factory = SharedInformerFactory::with_options(arguments.client().await?, options);
        run(&factory, |line| println!("{line}"), stop_signal()).await
    })
    .await
}

/// Prints changes of the metadata of secrets until `done`.
pub(crate) async fn run(
    factory: &SharedInformerFactory,
    print: impl Fn(String) + Send + 'static,
    done: impl Future<Output = ()>,
) -> Result<(), Box<dyn Error>> {
    // A separate cache: `factory.informer::<Secret>()` would be another one, with full secrets.
    let secrets = factory.metadata_informer::<Secret>();
    let _printing = secrets.on_event(move |event| match event {
        Event::Added { object, .. } => print(format!("+ {}", describe(&object))),
        Event::Updated { new, .. } => print(format!("~ {}", describe(&new))),
        Event::Deleted { last, .. } => print(format!("- {}", last.key())),
    });
    factory.start();
    factory.wait_for_sync(Duration::from_secs(30)).await?;
    eprintln!("synced: {} secrets in {} bytes", secrets.lister().len(), secrets.metrics().memory_bytes);
    done.await;
    factory.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}

/// Owner and labels. Nothing is decoded: the head of every object contains them.
fn describe(secret: &Object<PartialObjectMeta<Secret>>) -> String {
    let key = secret.key().to_string();
    let owners = secret.owners().iter().map(|owner| format!("of {} {}", owner.kind, owner.name));
    let labels = secret.labels().iter().map(|(name, value)| format!("{name}={value}"));
    std::iter::once(key).chain(owners).chain(labels).collect::<Vec<_>>().join(" ")
}
