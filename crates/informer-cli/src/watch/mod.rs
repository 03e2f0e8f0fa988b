//! `informer watch`: shared informers for whatever is named, and one line for each event.
//!
//! Handlers print, on threads that may block, so that a slow reader slows nobody but himself. This file only brings things together:
//! which cluster, which resources, when to stop.

mod feed;
mod sync;
mod tally;
mod trouble;

use crate::args::Watch;
use crate::cluster::{self, Cluster};
use crate::failure::Failure;
use crate::resolve::{Served, resolve};
use crate::talk::Talk;
use feed::Feed;
use informer::{Options, SharedInformer, SharedInformerFactory};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use std::time::{Duration, Instant};
use sync::Watched;
use tally::Tally;

/// How long what was received may take to be printed when the program ends.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Runs until it is stopped, or with `--once` until everything was printed.
pub(crate) async fn run(args: Watch) -> Result<(), Failure> {
    let begun = Instant::now();
    let talk = Talk::new();
    let mut stop = std::pin::pin!(stop_signal(&talk)?);
    let (cluster, served) = tokio::select! {
        reached = cluster::reach(&args, &talk) => reached?,
        () = &mut stop => {
            talk.say("stopped before anything was watched");
            return Ok(());
        }
    };
    let resources = resources(&served, &args.resources)?;
    let factory = SharedInformerFactory::with_options(cluster.client.clone(), options(&args, &cluster));
    let informers = informers(&factory, &resources)?;
    let feed = Feed::new(&args, &resources, &informers, &talk);
    talk.say(&greeting(&args, &cluster, &resources));
    talk.begin();
    factory.start();

    let work = async {
        if args.once {
            sync::once(
                &factory,
                &Watched { resources: &resources, informers: &informers },
                &feed,
                &talk,
                left(args.timeout, begun.elapsed()),
            )
            .await
        } else {
            let watched = Watched { resources: &resources, informers: &informers };
            Err(sync::forever(&watched, &feed, &talk).await)
        }
    };
    let outcome = tokio::select! {
        outcome = work => outcome,
        () = feed.broken() => Ok(()),
        () = stop => {
            talk.end();
            feed.close(&factory).await;
            talk.say(&summary(&resources, feed.tally(), relists(&informers), begun.elapsed()));
            return feed.outcome();
        }
    };
    talk.end();
    feed.close(&factory).await;
    outcome.and_then(|()| feed.outcome())
}

/// What is left of a time, at least a little, in steps that people read.
fn left(time: Duration, gone: Duration) -> Duration {
    let tenths = time.saturating_sub(gone).as_millis().div_ceil(100).max(1);
    Duration::from_millis(100) * u32::try_from(tenths).unwrap_or(u32::MAX)
}

/// Resolves when somebody asks us to stop; asked twice, the program ends at once.
pub(crate) fn stop_signal(talk: &Talk) -> Result<impl Future<Output = ()> + use<>, Failure> {
    use tokio::signal::unix::{SignalKind, signal};
    let listen =
        |kind| signal(kind).map_err(|error| Failure::new(format!("signals cannot be heard: {error}"), ""));
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    let (asked, stop) = tokio::sync::oneshot::channel();
    let talk = talk.clone();
    tokio::spawn(async move {
        let mut asked = Some(asked);
        loop {
            tokio::select! { _ = interrupt.recv() => {} _ = terminate.recv() => {} }
            let Some(first) = asked.take() else {
                // Whoever prints to a terminal that has stopped holds the bar.
                let (talk, clear) = (talk.clone(), Duration::from_millis(200));
                drop(tokio::time::timeout(clear, tokio::task::spawn_blocking(move || talk.end())).await);
                std::process::exit(130);
            };
            // Whoever does not listen any more is ending anyway.
            let _ = first.send(());
        }
    });
    Ok(async move { drop(stop.await) })
}

/// A span of time for people: `40ms`, `12s`, `1h5m`.
pub(crate) fn span(span: Duration) -> String {
    if span < Duration::from_secs(1) {
        return format!("{}ms", span.as_millis());
    }
    crate::show::columns::age(jiff::SignedDuration::try_from(span).unwrap_or(jiff::SignedDuration::MAX))
}

/// What the names mean, each resource once.
fn resources(served: &[Served], names: &[String]) -> Result<Vec<Served>, Failure> {
    let mut found: Vec<Served> = Vec::new();
    for name in names.iter().filter(|name| !name.is_empty()) {
        let one = resolve(served, name)?;
        if !found.contains(one) {
            found.push(one.clone());
        }
    }
    if found.is_empty() {
        return Err(Failure::usage("no resource is named", "informer watch pods"));
    }
    Ok(found)
}

fn options(args: &Watch, cluster: &Cluster) -> Options {
    // What is shown is all that the server has, also what only it knows.
    let mut options = Options::default().protobuf(false);
    if let Some(namespace) = namespace(args, cluster) {
        options = options.namespace(namespace);
    }
    if let Some(labels) = &args.selector {
        options = options.labels(labels.clone());
    }
    if let Some(fields) = &args.field_selector {
        options = options.fields(fields.clone());
    }
    options
}

/// The one namespace that is watched; `None` means all.
fn namespace<'a>(args: &'a Watch, cluster: &'a Cluster) -> Option<&'a str> {
    if args.all_namespaces { None } else { args.namespace.as_deref().or(cluster.namespace.as_deref()) }
}

fn informers(
    factory: &SharedInformerFactory,
    resources: &[Served],
) -> Result<Vec<SharedInformer<DynamicObject>>, Failure> {
    let informer = |served: &Served| {
        let kind = GroupVersionKind::gvk(&served.group, &served.version, &served.kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, &served.plural);
        if !served.namespaced {
            // What lives outside namespaces is not in the one that was chosen.
            let all = Options::default().all_namespaces();
            factory.configure_dynamic(&resource, all).map_err(|error| Failure::new(error.to_string(), ""))?;
        }
        Ok(factory.dynamic(&resource))
    };
    resources.iter().map(informer).collect()
}

fn greeting(args: &Watch, cluster: &Cluster, resources: &[Served]) -> String {
    let names: Vec<String> = resources.iter().map(Served::name).collect();
    let place = match namespace(args, cluster) {
        _ if resources.iter().all(|one| !one.namespaced) => String::new(),
        Some(namespace) => format!(" in namespace {namespace}"),
        None => " in all namespaces".to_owned(),
    };
    let (verb, end) = if args.once { ("listing", "") } else { ("watching", "; Ctrl-C ends it") };
    format!("{verb} {}{place} of {}{end}", names.join(", "), cluster.name)
}

fn summary(resources: &[Served], tally: &Tally, relists: u64, took: Duration) -> String {
    let names: Vec<String> = resources.iter().map(Served::name).collect();
    let relists = match relists {
        1 => "1 relist".to_owned(),
        relists => format!("{relists} relists"),
    };
    format!("watched {} for {}: {tally}; {relists}", names.join(", "), span(took))
}

/// How often the whole set was asked for again.
fn relists(informers: &[SharedInformer<DynamicObject>]) -> u64 {
    let of_one = |informer: &SharedInformer<DynamicObject>| {
        let causes = informer.status().counters.relists.by_cause();
        causes.iter().filter(|(cause, _)| *cause != "first").map(|(_, count)| count).sum::<u64>()
    };
    informers.iter().map(of_one).sum()
}
