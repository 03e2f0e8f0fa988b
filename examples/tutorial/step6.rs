//! Step 6 of the tutorial: a manager with leader election, probes, metrics and logs.

mod cleanup;

pub(crate) use cleanup::Cleanup;
use informer::election::LeaderElector;
use informer::manager::Manager;
use kube::CustomResourceExt as _;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    if std::env::args().nth(1).as_deref() == Some("--crd") {
        println!("{}", serde_json::to_string_pretty(&Cleanup::crd())?);
        return Ok(());
    }
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let client = informer::client(kube::Config::infer().await?)?;
    let port = std::env::var("PORT").ok().and_then(|port| port.parse().ok()).unwrap_or(8080);
    manager(client)?.serve_on_all_addresses(port).run().await?;
    Ok(())
}

/// Creates the manager. Several replicas may run; the one that holds the lease reconciles.
pub(crate) fn manager(client: kube::Client) -> Result<Manager, informer::Error> {
    let namespace = client.default_namespace().to_owned();
    let elector = LeaderElector::new(client.clone(), &namespace, "cleanup");
    Ok(Manager::new().controller(cleanup::controller(client)?).leader_election(elector))
}
