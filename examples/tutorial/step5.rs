//! Step 5 of the tutorial: a program that runs a controller.

mod cleanup;

use cleanup::Cleanup;
use kube::CustomResourceExt as _;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    if std::env::args().nth(1).as_deref() == Some("--crd") {
        println!("{}", serde_json::to_string_pretty(&Cleanup::crd())?);
        return Ok(());
    }
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let client = informer::client(kube::Config::infer().await?)?;
    cleanup::controller(client)?.run().await?;
    Ok(())
}
