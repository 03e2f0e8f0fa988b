//! A kind of your own. Its definition may be missing: the informer waits for it, comes alive when it appears, and goes back to waiting
//! when it is deleted.
//!
//!     cargo run --example custom_resource -- [--kubeconfig PATH] [--namespace NAME]
//!     cargo run --example custom_resource -- --crd | kubectl apply -f -     # meanwhile, in another terminal

use informer::{Event, Object, SharedInformer, State};
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

/// What a backup should be. The derive makes the kind `Backup` of it, with metadata and this as its `spec`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(group = "informer.example", version = "v1", kind = "Backup", namespaced)]
pub(crate) struct BackupSpec {
    /// When, as cron has it.
    pub(crate) schedule: String,
    /// How many are kept.
    pub(crate) keep: u32,
}

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

/// Prints what happens to backups, and to their kind, until `done`.
pub(crate) async fn run(
    backups: &SharedInformer<Backup>,
    print: impl Fn(String) + Clone + Send + 'static,
    done: impl Future<Output = ()>,
) -> Result<(), Box<dyn Error>> {
    let say = print.clone();
    let _printing = backups.on(move |event| match event {
        Event::Added { object, .. } => say(format!("+ {}: {}", object.key(), plan(&object))),
        Event::Updated { new, .. } => say(format!("~ {}: {}", new.key(), plan(&new))),
        Event::Deleted { last, .. } => say(format!("- {}", last.key())),
    });
    backups.start();
    tokio::select! {
        () = follow_state(backups, print) => {}
        () = done => {}
    }
    backups.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}

/// `wait_for_sync` would give up at once, since a kind that is missing rarely appears. Who expects it to looks at the state.
async fn follow_state(backups: &SharedInformer<Backup>, print: impl Fn(String)) {
    let mut status = backups.watch_status();
    let mut served = None;
    loop {
        let state = status.borrow_and_update().state.clone();
        match state {
            State::NotServed { because } if served != Some(false) => {
                served = Some(false);
                print("waiting for the kind Backup to be defined".to_owned());
                eprintln!("{}: not served: {because}", backups.resource());
            }
            State::Live if served != Some(true) => {
                served = Some(true);
                print("following the kind Backup".to_owned());
            }
            // On the way from one to the other.
            _ => {}
        }
        // An error means that the informer is gone, and so is what there was to follow.
        if status.changed().await.is_err() {
            return;
        }
    }
}

/// The contents of a backup. Whoever wrote the object may have ignored the schema; that is said, and nothing else suffers.
fn plan(backup: &Object<Backup>) -> String {
    match backup.typed() {
        Ok(backup) => format!("at {}, keep {}", backup.spec.schedule, backup.spec.keep),
        Err(error) => error.to_string(),
    }
}
