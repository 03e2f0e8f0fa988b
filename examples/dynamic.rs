//! A kind known only at run time, named on the command line: prints changes of its objects and which parts
//! changed.
//!
//!     cargo example dynamic -- deployments
//!     cargo example dynamic -- apps/v1/deployments/Deployment

use informer::discovery::DynamicResource;
use informer::{Event, Object, SharedInformerFactory};
use informer_examples::{program, stop_signal};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use std::collections::BTreeSet;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "usage: dynamic KIND [--kubeconfig PATH] [--namespace NAME]

Prints changes of the objects of a kind until Ctrl-C. KIND is a plural, singular, short name or kind
(deployments, deploy), with its group if that is ambiguous (deployments.apps), or the full name, which needs no
discovery: apps/v1/deployments/Deployment, and for the core group v1/pods/Pod.";

#[tokio::main]
async fn main() -> ExitCode {
    program(USAGE, async |mut arguments| {
        let options = arguments.options()?;
        let kind = arguments.value("KIND")?;
        let client = arguments.client().await?;
        let factory = SharedInformerFactory::with_options(client.clone(), options);
        let print = |line| println!("{line}");
        if kind.contains('/') {
            return run(&factory, &parse_full_name(&kind)?, print, stop_signal()).await;
        }
        // A resolved resource knows its scope: --namespace does not apply to a cluster-scoped one.
        let resource = informer::resolve(&client, &kind).await?.watchable()?;
        run(&factory, &resource, print, stop_signal()).await
    })
    .await
}

/// Parses the full name of a kind, which needs no request.
pub(crate) fn parse_full_name(text: &str) -> Result<ApiResource, Box<dyn Error>> {
    let (group, version, plural, kind) = match text.split('/').collect::<Vec<_>>()[..] {
        [version, plural, kind] => ("", version, plural, kind),
        [group, version, plural, kind] => (group, version, plural, kind),
        _ => {
            return Err(
                format!("{text} is not a kind (expected a name, or group/version/plural/kind)").into()
            );
        }
    };
    Ok(ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural))
}

/// Prints changes of the objects of a kind until `done`.
pub(crate) async fn run(
    factory: &SharedInformerFactory,
    resource: &impl DynamicResource,
    print: impl Fn(String) + Send + 'static,
    done: impl Future<Output = ()>,
) -> Result<(), Box<dyn Error>> {
    let objects = factory.dynamic_informer(resource);
    let _printing = objects.on_event(move |event| match event {
        Event::Added { object, .. } => print(format!("+ {}", object.key())),
        Event::Updated { old, new, .. } => print(format!("~ {}: {}", new.key(), changes(&old, &new))),
        Event::Deleted { last, .. } => print(format!("- {}", last.key())),
    });
    factory.start();
    factory.wait_for_sync(Duration::from_secs(30)).await?;
    eprintln!("synced: {} {}", objects.lister().len(), objects.description());
    done.await;
    factory.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}

/// The parts of an object that differ: `spec, status`. Only updates are decoded.
fn changes(old: &Object<DynamicObject>, new: &Object<DynamicObject>) -> String {
    let (old, new) = match (old.typed(), new.typed()) {
        (Ok(old), Ok(new)) => (old, new),
        (Err(error), _) | (_, Err(error)) => return error.to_string(),
    };
    let parts =
        [&old.data, &new.data].into_iter().filter_map(|data| data.as_object()).flat_map(|data| data.keys());
    let parts: BTreeSet<&String> = parts.filter(|part| old.data.get(part) != new.data.get(part)).collect();
    let mut parts: Vec<&str> = parts.into_iter().map(String::as_str).collect();
    if parts.is_empty() {
        parts.push("metadata");
    }
    parts.join(", ")
}
