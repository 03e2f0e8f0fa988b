//! `informer watch` and `informer get`: shared informers for the named resources, and one line for each event or
//! object.
//!
//! Handlers print on threads that may block, so a slow reader delays nothing else. This module connects the parts: the
//! cluster, the resources and the shutdown.

mod counts;
mod feed;
mod get;
mod health;
mod live;
mod sync;
mod target;

use crate::args::{View, Watch};
use crate::cli_error::CliError;
use crate::cluster::{self, Cluster};
use crate::resolve::Served;
use crate::show::{Namespaces, ShownKind};
use crate::terminal::Terminal;
use counts::EventCounts;
use feed::Feed;
use get::Objects;
use informer::{InformerOptions, Selection, SharedInformer, SharedInformerFactory};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use std::time::{Duration, Instant};
use sync::Watched;
use target::{Target, targets};

/// Time limit for printing received events at the end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// Runs the command until a signal, an output error or a permanently rejected request; with `--once`, until
/// the existing objects are printed.
pub(crate) async fn run(args: Watch) -> Result<(), CliError> {
    check_options(&args)?;
    let started = Instant::now();
    let terminal = Terminal::new();
    let mut stop = std::pin::pin!(stop_signal(&terminal)?);
    let (cluster, served) = tokio::select! {
        reached = cluster::reach(&args, &terminal) => reached?,
        () = &mut stop => {
            if args.once {
                return Err(CliError::interrupted());
            }
            terminal.info("stopped before the watch started");
            return Ok(());
        }
    };
    let targets = targets(&served, &args.resources)?;
    check_names(&args, &targets)?;
    let factory = SharedInformerFactory::with_options(cluster.client.clone(), options(&args, &cluster));
    let informers = informers(&factory, &targets)?;
    let session = Session { args, cluster, targets, factory, informers, terminal, started };
    match session.args.view() {
        View::Events => session.print_events(stop).await,
        View::Objects => session.print_objects(stop).await,
        View::Live => session.show_live(stop).await,
    }
}

/// A command after its arguments were resolved. The informers have the order of the targets.
struct Session {
    args: Watch,
    cluster: Cluster,
    targets: Vec<Target>,
    factory: SharedInformerFactory,
    informers: Vec<SharedInformer<DynamicObject>>,
    terminal: Terminal,
    started: Instant,
}

impl Session {
    /// Prints the existing objects and, unless there is `--once`, each change.
    async fn print_events(&self, stop: impl Future<Output = ()>) -> Result<(), CliError> {
        let Self { args, targets, factory, informers, terminal, .. } = self;
        let feed = Feed::new(args, targets, self.namespaces(), informers, terminal);
        terminal.info(&greeting(args, &self.cluster, targets));
        terminal.begin();
        factory.start();
        let work = async {
            if args.once {
                sync::once(factory, &self.watched(), &feed, terminal, self.remaining_time()).await
            } else {
                Err(sync::forever(&self.watched(), &feed, terminal).await)
            }
        };
        let outcome = tokio::select! {
            outcome = work => outcome,
            () = feed.wait_for_output_error() => Ok(()),
            () = stop => {
                terminal.end();
                feed.close(factory).await;
                let summary = summary(feed.counts(), relists(informers));
                terminal.info(&format!("{}: {summary}", self.watched_for()));
                feed.outcome()?;
                // Part of the existing objects must not be taken for all of them.
                return if args.once { Err(CliError::interrupted()) } else { Ok(()) };
            }
        };
        terminal.end();
        feed.close(factory).await;
        outcome.and_then(|()| feed.outcome())
    }

    /// Prints the current objects.
    async fn print_objects(&self, stop: impl Future<Output = ()>) -> Result<(), CliError> {
        let Self { args, targets, factory, informers, terminal, .. } = self;
        let objects = Objects::new(args, targets, informers, self.namespaces());
        let watched = self.watched();
        terminal.begin();
        factory.start();
        tokio::select! {
            synced = sync::wait(factory, &watched, terminal, self.remaining_time()) => synced?,
            () = stop => {
                terminal.end();
                return Err(CliError::interrupted());
            }
        }
        let is_empty = informers.iter().all(|informer| informer.lister().is_empty());
        if is_empty && targets.iter().all(|target| target.name.is_none()) {
            terminal.info(&format!("no {} found{}", names(targets), scope(args, &self.cluster, targets)));
        }
        tokio::task::block_in_place(|| objects.print(feed::screen()))
    }

    /// Shows the current objects until a signal.
    async fn show_live(&self, stop: impl Future<Output = ()>) -> Result<(), CliError> {
        let objects = Objects::new(&self.args, &self.targets, &self.informers, self.namespaces());
        let place = format!(
            "{} of {}; press Ctrl-C to stop",
            scope(&self.args, &self.cluster, &self.targets),
            self.cluster.name
        );
        let watched = self.watched();
        self.factory.start();
        self.terminal.end_on_panic();
        let guard = self.terminal.end_on_drop();
        let error = tokio::select! {
            error = live::run(&objects, &watched, &place, &self.terminal) => Some(error),
            () = stop => None,
        };
        // Not by the guard: if the terminal blocks, the wait is limited.
        guard.disarm();
        let terminal = self.terminal.clone();
        let leave = tokio::task::spawn_blocking(move || terminal.end());
        drop(tokio::time::timeout(SHUTDOWN_TIMEOUT, leave).await);
        if let Some(error) = error {
            return Err(error);
        }
        self.terminal.info(&format!("{}: {}", self.watched_for(), sync::counts(&watched)));
        Ok(())
    }

    fn watched(&self) -> Watched<'_> {
        Watched { targets: &self.targets, informers: &self.informers }
    }

    fn namespaces(&self) -> Namespaces {
        let is_namespaced = self.targets.iter().any(|target| target.resource.namespaced);
        match namespace(&self.args, &self.cluster) {
            None if is_namespaced => Namespaces::All,
            _ => Namespaces::One,
        }
    }

    fn remaining_time(&self) -> Duration {
        remaining(self.args.timeout, self.started.elapsed())
    }

    fn watched_for(&self) -> String {
        format!("watched {} for {}", names(&self.targets), span(self.started.elapsed()))
    }
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

/// Formats a duration: `40ms`, `12s`, `3h5m`.
pub(crate) fn span(span: Duration) -> String {
    if span < Duration::from_secs(1) {
        return format!("{}ms", span.as_millis());
    }
    crate::show::columns::age(jiff::SignedDuration::try_from(span).unwrap_or(jiff::SignedDuration::MAX))
}

/// Rejects options that exclude each other or do not suit the output.
fn check_options(args: &Watch) -> Result<(), CliError> {
    match args.view() {
        View::Objects if args.state.is_some() => {
            Err(CliError::usage("--state prints events", "use informer watch, or informer get -w"))
        }
        View::Live if !args.output.is_table() => {
            Err(CliError::usage("--live shows a table", "leave out -o, or use -o wide"))
        }
        View::Live if !live::is_supported() => {
            let hint = "leave out --live to print events, or use informer get";
            Err(CliError::usage("--live needs a terminal as standard output", hint))
        }
        _ => Ok(()),
    }
}

/// Rejects selectors together with names of objects.
fn check_names(args: &Watch, targets: &[Target]) -> Result<(), CliError> {
    if let Some(target) = targets.iter().find(|target| target.name.is_some())
        && (args.selector.is_some() || args.field_selector.is_some())
    {
        let message = format!("{}: a name cannot be combined with a selector", target.display());
        return Err(CliError::usage(message, "use either"));
    }
    let is_secret =
        |target: &&Target| target.resource.group.is_empty() && target.resource.plural == "secrets";
    if args.state.is_some() && targets.iter().any(|target| is_secret(&target)) {
        return Err(CliError::usage("the state of secrets is not saved", "leave out --state"));
    }
    Ok(())
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
    if let Some(persistence) = &cluster.persistence {
        options = options.persist(persistence.clone());
    }
    options
}

/// Returns the watched namespace; `None` means all.
fn namespace<'a>(args: &'a Watch, cluster: &'a Cluster) -> Option<&'a str> {
    if args.all_namespaces { None } else { args.namespace.as_deref().or(cluster.namespace.as_deref()) }
}

fn informers(
    factory: &SharedInformerFactory,
    targets: &[Target],
) -> Result<Vec<SharedInformer<DynamicObject>>, CliError> {
    let informer = |target: &Target| {
        let Target { resource: served, .. } = target;
        let kind = GroupVersionKind::gvk(&served.group, &served.version, &served.kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, &served.plural);
        let mut selection = Selection::default();
        if !served.namespaced {
            // Cluster-scoped objects are not in the selected namespace.
            selection = selection.all_namespaces();
        }
        if let Some(fields) = target.field_selector()? {
            selection = selection.field_selector(fields);
        }
        Ok(factory.select(selection).dynamic_informer(&resource))
    };
    targets.iter().map(informer).collect()
}

fn shown_kind(served: &Served) -> ShownKind {
    ShownKind {
        group: served.group.clone(),
        kind: served.kind.clone(),
        resource: served.name(),
        singular: served.singular_name(),
    }
}

fn names(targets: &[Target]) -> String {
    targets.iter().map(Target::display).collect::<Vec<_>>().join(", ")
}

fn scope(args: &Watch, cluster: &Cluster, targets: &[Target]) -> String {
    match namespace(args, cluster) {
        _ if targets.iter().all(|target| !target.resource.namespaced) => String::new(),
        Some(namespace) => format!(" in namespace {namespace}"),
        None => " in all namespaces".to_owned(),
    }
}

fn greeting(args: &Watch, cluster: &Cluster, targets: &[Target]) -> String {
    let (verb, end) = if args.once { ("listing", "") } else { ("watching", "; press Ctrl-C to stop") };
    format!("{verb} {}{} of {}{end}", names(targets), scope(args, cluster, targets), cluster.name)
}

fn summary(counts: &EventCounts, relists: u64) -> String {
    match relists {
        1 => format!("{counts}; 1 relist"),
        relists => format!("{counts}; {relists} relists"),
    }
}

/// Returns the number of relists after the initial lists.
fn relists(informers: &[SharedInformer<DynamicObject>]) -> u64 {
    let of_one = |informer: &SharedInformer<DynamicObject>| {
        let relists = informer.status().reflector.relists;
        relists.by_reason().iter().map(|(_, count)| count).sum::<u64>() - relists.initial
    };
    informers.iter().map(of_one).sum()
}
