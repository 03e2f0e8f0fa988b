//! The classic first program: prints changes of the pods of a cluster until Ctrl-C.
//!
//!     cargo example pod_informer -- [--kubeconfig PATH] [--namespace NAME]

use informer::{Event, InformerOptions, SharedInformer};
use k8s_openapi::api::core::v1::Pod;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "usage: pod_informer [--kubeconfig PATH] [--namespace NAME]

Prints what happens to pods, until Ctrl-C. The cluster is the one of --kubeconfig, $KUBECONFIG, ~/.kube/config,
or the one this program runs in.";

#[tokio::main]
async fn main() -> ExitCode {
    match start(std::env::args().skip(1)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn start(mut arguments: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    let (mut kubeconfig, mut options) = (None, InformerOptions::default());
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value\n\n{USAGE}"));
        match argument.as_str() {
            "--kubeconfig" => kubeconfig = Some(value()?),
            "--namespace" => options = options.namespace(value()?),
            "--help" | "-h" => {
                println!("{USAGE}");
                return Ok(());
            }
            _ => return Err(format!("unknown argument {argument}\n\n{USAGE}").into()),
        }
    }
    let config = match kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path)?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?
        }
        None => Config::infer()
            .await
            .map_err(|_| "no cluster found (set KUBECONFIG, or pass --kubeconfig PATH)")?,
    };
    let pods = SharedInformer::with_options(informer::client(config)?, options);
    let ctrl_c = async { drop(tokio::signal::ctrl_c().await) };
    run(&pods, |line| println!("{line}"), ctrl_c).await
}

/// Prints changes of pods until `done`.
pub(crate) async fn run(
    pods: &SharedInformer<Pod>,
    print: impl Fn(String) + Send + 'static,
    done: impl Future<Output = ()>,
) -> Result<(), Box<dyn Error>> {
    let _printing = pods.on_event(move |event| match event {
        Event::Added { object, .. } => print(format!("New Pod Added to Store: {}", object.name())),
        Event::Updated { old, new, .. } => print(format!("{} Pod Updated to {}", old.name(), new.name())),
        Event::Deleted { last, .. } => print(format!("Pod Deleted from Store: {}", last.name())),
    });
    pods.start();
    tokio::select! {
        result = report_sync(pods) => result?,
        () = done => {}
    }
    pods.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}

/// Reports the progress of the initial sync, then waits forever. Only permanent failures are errors.
async fn report_sync(pods: &SharedInformer<Pod>) -> Result<(), Box<dyn Error>> {
    while let Err(error) = pods.wait_for_sync(Duration::from_secs(2)).await {
        match error.timeout {
            Some(_) => eprintln!("{error}"),
            None => return Err(error.into()),
        }
    }
    eprintln!("synced: {} pods; press Ctrl-C to stop", pods.lister().len());
    std::future::pending().await
}
