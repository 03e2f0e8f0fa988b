//! `informer watch`: shared informers for the named resources, and one line for each event.
//!
//! Handlers print on threads that may block, so a slow reader delays nothing else. This module connects the parts: the
//! cluster, the resources and the shutdown.

mod counts;
mod feed;
mod health;
mod sync;

use crate::args::Watch;
use crate::cli_error::CliError;
use crate::cluster::{self, Cluster};
use crate::resolve::{Served, resolve};
use crate::show::Namespaces;
use crate::terminal::Terminal;
use counts::EventCounts;
use feed::Feed;
use informer::{InformerOptions, SharedInformer, SharedInformerFactory};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use std::time::{Duration, Instant};
use sync::Watched;

/// Time limit for printing received events at the end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// Runs the command until a signal, an output error or a permanently rejected request; with `--once`, until
/// the existing objects are printed.
pub(crate) async fn run(args: Watch) -> Result<(), CliError> {
    let started = Instant::now();
    let terminal = Terminal::new();
    let mut stop = std::pin::pin!(stop_signal(&terminal)?);
    let (cluster, served) = tokio::select! {
        reached = cluster::reach(&args, &terminal) => reached?,
        () = &mut stop => {
            terminal.info("stopped before the watch started");
            return Ok(());
        }
    };
    let resources = resources(&served, &args.resources)?;
    let factory = SharedInformerFactory::with_options(cluster.client.clone(), options(&args, &cluster));
    let informers = informers(&factory, &resources)?;
    let namespaces = match namespace(&args, &cluster) {
        Some(_) => Namespaces::One,
        None => Namespaces::All,
    };
    let feed = Feed::new(&args, &resources, namespaces, &informers, &terminal);
    terminal.info(&greeting(&args, &cluster, &resources));
    terminal.begin();
    factory.start();

    let work = async {
        if args.once {
            sync::once(
                &factory,
                &Watched { resources: &resources, informers: &informers },
                &feed,
                &terminal,
                remaining(args.timeout, started.elapsed()),
            )
            .await
        } else {
            let watched = Watched { resources: &resources, informers: &informers };
            Err(sync::forever(&watched, &feed, &terminal).await)
        }
    };
    let outcome = tokio::select! {
        outcome = work => outcome,
        () = feed.wait_for_output_error() => Ok(()),
        () = stop => {
            terminal.end();
            feed.close(&factory).await;
            terminal.info(&summary(&resources, feed.counts(), relists(&informers), started.elapsed()));
            return feed.outcome();
        }
    };
    terminal.end();
    feed.close(&factory).await;
    outcome.and_then(|()| feed.outcome())
}

/// Returns the remaining time, rounded up to tenths of a second and never zero.
fn remaining(timeout: Duration, elapsed: Duration) -> Duration {
    let tenths = timeout.saturating_sub(elapsed).as_millis().div_ceil(100).max(1);
    Duration::from_millis(100) * u32::try_from(tenths).unwrap_or(u32::MAX)
}

/// Returns a future that resolves on SIGINT or SIGTERM; a second signal exits immediately.
pub(crate) fn stop_signal(terminal: &Terminal) -> Result<impl Future<Output = ()> + use<>, CliError> {
    use tokio::signal::unix::{SignalKind, signal};
    let listen =
        |kind| signal(kind).map_err(|error| CliError::new(format!("install signal handlers: {error}"), ""));
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    let (stop_requested, stop) = tokio::sync::oneshot::channel();
    let terminal = terminal.clone();
    tokio::spawn(async move {
        let mut stop_requested = Some(stop_requested);
        loop {
            tokio::select! { _ = interrupt.recv() => {} _ = terminate.recv() => {} }
            let Some(sender) = stop_requested.take() else {
                // Bounded, because a thread that is blocked on the terminal may hold the lock of the progress
                // bar.
                let (terminal, clear_timeout) = (terminal.clone(), Duration::from_millis(200));
                drop(
                    tokio::time::timeout(clear_timeout, tokio::task::spawn_blocking(move || terminal.end()))
                        .await,
                );
                std::process::exit(130);
            };
            // Without a receiver the program is ending already.
            let _ = sender.send(());
        }
    });
    Ok(async move { drop(stop.await) })
}

/// Formats a duration: `40ms`, `12s`, `1h5m`.
pub(crate) fn span(span: Duration) -> String {
    if span < Duration::from_secs(1) {
        return format!("{}ms", span.as_millis());
    }
    crate::show::columns::age(jiff::SignedDuration::try_from(span).unwrap_or(jiff::SignedDuration::MAX))
}

/// Resolves the names of resources, without duplicates.
fn resources(served: &[Served], names: &[String]) -> Result<Vec<Served>, CliError> {
    let mut resolved: Vec<Served> = Vec::new();
    for name in names.iter().filter(|name| !name.is_empty()) {
        let resource = resolve(served, name)?;
        if !resolved.contains(resource) {
            resolved.push(resource.clone());
        }
    }
    if resolved.is_empty() {
        return Err(CliError::usage("no resource given", "example: informer watch pods"));
    }
    Ok(resolved)
}

fn options(args: &Watch, cluster: &Cluster) -> InformerOptions {
    // JSON contains all fields of the server, including those unknown to this program.
    let mut options = InformerOptions::default().prefer_protobuf(false);
    if let Some(namespace) = namespace(args, cluster) {
        options = options.namespace(namespace);
    }
    if let Some(labels) = &args.selector {
        options = options.label_selector(labels.clone());
    }
    if let Some(fields) = &args.field_selector {
        options = options.field_selector(fields.clone());
    }
    options
}

/// Returns the watched namespace; `None` means all.
fn namespace<'a>(args: &'a Watch, cluster: &'a Cluster) -> Option<&'a str> {
    if args.all_namespaces { None } else { args.namespace.as_deref().or(cluster.namespace.as_deref()) }
}

fn informers(
    factory: &SharedInformerFactory,
    resources: &[Served],
) -> Result<Vec<SharedInformer<DynamicObject>>, CliError> {
    let informer = |served: &Served| {
        let kind = GroupVersionKind::gvk(&served.group, &served.version, &served.kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, &served.plural);
        if !served.namespaced {
            // Cluster-scoped objects are not in the selected namespace.
            let all = InformerOptions::default().all_namespaces();
            factory
                .configure_dynamic(&resource, all)
                .map_err(|error| CliError::new(error.to_string(), ""))?;
        }
        Ok(factory.dynamic_informer(&resource))
    };
    resources.iter().map(informer).collect()
}

fn greeting(args: &Watch, cluster: &Cluster, resources: &[Served]) -> String {
    let names: Vec<String> = resources.iter().map(Served::name).collect();
    let scope = match namespace(args, cluster) {
        _ if resources.iter().all(|one| !one.namespaced) => String::new(),
        Some(namespace) => format!(" in namespace {namespace}"),
        None => " in all namespaces".to_owned(),
    };
    let (verb, end) = if args.once { ("listing", "") } else { ("watching", "; press Ctrl-C to stop") };
    format!("{verb} {}{scope} of {}{end}", names.join(", "), cluster.name)
}

fn summary(resources: &[Served], counts: &EventCounts, relists: u64, took: Duration) -> String {
    let names: Vec<String> = resources.iter().map(Served::name).collect();
    let relists = match relists {
        1 => "1 relist".to_owned(),
        relists => format!("{relists} relists"),
    };
    format!("watched {} for {}: {counts}; {relists}", names.join(", "), span(took))
}

/// Returns the number of relists after the initial lists.
fn relists(informers: &[SharedInformer<DynamicObject>]) -> u64 {
    let of_one = |informer: &SharedInformer<DynamicObject>| {
        let relists = informer.status().reflector.relists;
        relists.by_reason().iter().map(|(_, count)| count).sum::<u64>() - relists.initial
    };
    informers.iter().map(of_one).sum()
}
