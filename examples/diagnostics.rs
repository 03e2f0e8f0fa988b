//! What an informer reports about itself: failures as they happen, its state, and an audit that compares the
//! cache with the server.
//!
//!     cargo example diagnostics -- [--kubeconfig PATH] [--namespace NAME]

use informer::status::Diagnostic;
use informer::{InformerOptions, SharedInformer};
use informer_examples::{program, stop_signal};
use k8s_openapi::api::core::v1::Pod;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "usage: diagnostics [--kubeconfig PATH] [--namespace NAME]

Prints the state of an informer for pods and everything that goes wrong, until Ctrl-C, and then its counters.
Stop the server for a while, or delete your permission to list pods.";

#[tokio::main]
async fn main() -> ExitCode {
    program(USAGE, async |mut arguments| {
        let options = arguments.options()?;
        let client = arguments.client().await?;
        run(client, options, |line| println!("{line}"), stop_signal()).await
    })
    .await
}

/// Prints diagnostics and states until `done`, then counters.
pub(crate) async fn run(
    client: kube::Client,
    options: InformerOptions,
    print: impl Fn(String) + Clone + Send + Sync + 'static,
    done: impl Future<Output = ()>,
) -> Result<(), Box<dyn Error>> {
    let report = print.clone();
    let options = options
        // A full list once per period; unnecessary unless you distrust a proxy or this library.
        .audit_period(Duration::from_secs(600))
        // Called by the informer, so it must not block. Diagnostics contain no contents of objects.
        .on_diagnostic(move |informer, diagnostic| {
            let level = diagnostic.level();
            match diagnostic {
                // Decide by variants and kinds, never by texts.
                Diagnostic::CacheDrift { changes, .. } => {
                    report(format!("{level} {informer}: the cache missed changes: {changes} (report a bug)"));
                }
                diagnostic => report(format!("{level} {informer}: {diagnostic}")),
            }
        });
    let pods = SharedInformer::<Pod>::with_options(client, options);
    pods.start();
    tokio::select! {
        () = print_states(&pods, &print) => {}
        () = done => {}
    }
    let status = pods.status();
    let (requests, cache) = (&status.reflector, &status.cache);
    print(format!("added {}, updated {}, deleted {}", cache.added, cache.updated, cache.deleted));
    print(format!(
        "failures {}, audits {}, drift {}",
        requests.failures, requests.relists.audit, cache.drift
    ));
    for (key, reason) in &status.unreadable_objects {
        print(format!("unreadable: {key}: {reason}"));
    }
    pods.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}

/// Prints every new state.
async fn print_states(pods: &SharedInformer<Pod>, print: &impl Fn(String)) {
    let mut changes = pods.subscribe_status();
    let mut last = None;
    loop {
        // The receiver also reports new versions and the progress of a list, which are not printed.
        let state = changes.borrow_and_update().state.clone();
        let variant = std::mem::discriminant(&state);
        if last.replace(variant) != Some(variant) {
            print(format!("state: {state}"));
        }
        // An error means that the informer was dropped.
        if changes.changed().await.is_err() {
            return;
        }
    }
}
