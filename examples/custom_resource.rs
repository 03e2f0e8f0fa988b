//! A custom kind. Its definition may be missing: the informer waits for it, follows the kind once it is
//! served, and waits again when the definition is deleted.
//!
//!     cargo example custom_resource -- [--kubeconfig PATH] [--namespace NAME]
//!     cargo example custom_resource -- --crd | kubectl apply -f -     # meanwhile, in another terminal

use informer::status::InformerState;
use informer::{Event, Object, SharedInformer};
use informer_examples::{program, stop_signal};
use kube::{CustomResource, CustomResourceExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "usage: custom_resource [--kubeconfig PATH] [--namespace NAME] | --crd

Prints what happens to objects of kind Backup (informer.example), and whether the server has that kind, until Ctrl-C.
With --crd it prints the kind's definition, for kubectl, and ends.";

// ANCHOR: kind
/// The spec of a backup. The derive creates the kind `Backup` with metadata and this `spec`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(group = "informer.example", version = "v1", kind = "Backup", namespaced)]
pub(crate) struct BackupSpec {
    /// Schedule in cron format.
    pub(crate) schedule: String,
    /// Number of backups to keep.
    pub(crate) keep: u32,
}
// ANCHOR_END: kind

#[tokio::main]
async fn main() -> ExitCode {
    program(USAGE, async |mut arguments| {
        if arguments.flag("--crd") {
            println!("{}", serde_json::to_string_pretty(&Backup::crd())?);
            return Ok(());
        }
        let options = arguments.options()?;
        let backups = SharedInformer::with_options(arguments.client().await?, options);
        run(&backups, |line| println!("{line}"), stop_signal()).await
    })
    .await
}

/// Prints changes of backups and of their kind until `done`.
pub(crate) async fn run(
    backups: &SharedInformer<Backup>,
    print: impl Fn(String) + Clone + Send + 'static,
    done: impl Future<Output = ()>,
) -> Result<(), Box<dyn Error>> {
    let print_event = print.clone();
    let _printing = backups.on_event(move |event| match event {
        Event::Added { object, .. } => print_event(format!("+ {}: {}", object.key(), plan(&object))),
        Event::Updated { new, .. } => print_event(format!("~ {}: {}", new.key(), plan(&new))),
        Event::Deleted { last, .. } => print_event(format!("- {}", last.key())),
    });
    backups.start();
    tokio::select! {
        () = follow_state(backups, print) => {}
        () = done => {}
    }
    backups.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}

/// `wait_for_sync` would return an error immediately, since a missing kind rarely appears. This program
/// expects it to, so it watches the state.
async fn follow_state(backups: &SharedInformer<Backup>, print: impl Fn(String)) {
    let mut status = backups.subscribe_status();
    let mut served = None;
    loop {
        let state = status.borrow_and_update().state.clone();
        match state {
            InformerState::NotServed { failure } if served != Some(false) => {
                served = Some(false);
                print("waiting for the kind Backup to be defined".to_owned());
                eprintln!("{}: not served: {failure}", backups.description());
            }
            InformerState::Live if served != Some(true) => {
                served = Some(true);
                print("following the kind Backup".to_owned());
            }
            // Transitional states.
            _ => {}
        }
        // An error means that the informer was dropped.
        if status.changed().await.is_err() {
            return;
        }
    }
}

/// The contents of a backup. An object may violate the schema; that is printed and affects nothing else.
fn plan(backup: &Object<Backup>) -> String {
    match backup.typed() {
        Ok(backup) => format!("at {}, keep {}", backup.spec.schedule, backup.spec.keep),
        Err(error) => error.to_string(),
    }
}
