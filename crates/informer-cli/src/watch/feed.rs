//! Handlers that print events: one for each resource, all printing through one lock.
//!
//! The holder of that lock may block on stdout. So only threads that may block take the lock, and it guards
//! nothing that the shutdown needs.
//!
//! The first output error ends the command; a closed pipe is not reported as an error.

use super::counts::EventCounts;
use super::target::Target;
use super::{SHUTDOWN_TIMEOUT, shown_kind};
use crate::args::Watch;
use crate::cli_error::CliError;
use crate::show::{Namespaces, PrintedEvent, Printer, Screen, ShownKind, Verb};
use crate::terminal::Terminal;
use futures::future::{BoxFuture, FutureExt as _, Shared};
use futures::stream::{FuturesUnordered, StreamExt as _};
use informer::handler::Delivery;
use informer::{Event, EventStream, Registration, SharedInformer, SharedInformerFactory, UpdateCause};
use jiff::Timestamp;
use kube::core::DynamicObject;
use std::io::{self, ErrorKind, Write};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Number of events buffered for a slow reader before they are coalesced.
const MAX_PENDING_EVENTS: usize = 100_000;

/// The printing handlers.
pub(crate) struct Feed {
    output: Arc<Output>,
    registrations: Vec<Registration>,
    /// The tasks that print with `--state`, and the ends of their initial lists.
    tasks: tokio::sync::Mutex<JoinSet<()>>,
    initial_lists: Vec<InitialList>,
}

type InitialList = Shared<BoxFuture<'static, bool>>;

struct Output {
    printer: Mutex<Printer<Box<dyn Write + Send>>>,
    counts: EventCounts,
    terminal: Terminal,
    error: watch::Sender<Option<io::Error>>,
}

impl Feed {
    /// Registers a handler with each informer.
    pub(crate) fn new(
        args: &Watch,
        targets: &[Target],
        namespaces: Namespaces,
        informers: &[SharedInformer<DynamicObject>],
        terminal: &Terminal,
    ) -> Self {
        let kinds: Vec<ShownKind> = targets.iter().map(|target| shown_kind(&target.resource)).collect();
        // Only tables are colored; JSON and YAML are data.
        let out: Box<dyn Write + Send> =
            if args.output.is_table() { Box::new(anstream::stdout()) } else { Box::new(io::stdout()) };
        let zone = jiff::tz::TimeZone::system();
        let printer = Mutex::new(Printer::new(args.output, &kinds, namespaces, zone, screen, out));
        let (counts, terminal, error) = (EventCounts::default(), terminal.clone(), watch::channel(None).0);
        let output = Arc::new(Output { printer, counts, terminal, error });
        let (mut registrations, mut tasks) = (Vec::new(), JoinSet::new());
        let mut initial_lists = Vec::new();
        for (informer, shown) in informers.iter().zip(kinds) {
            if args.state.is_some() {
                let events = informer.handler().name("printer").durable("printer").event_stream();
                initial_lists.push(events.wait_for_sync().boxed().shared());
                tasks.spawn(print_durable(events, Arc::new(shown), Arc::clone(&output)));
            } else {
                registrations.push(register(informer, shown, args, &output));
            }
        }
        Self { output, registrations, tasks: tasks.into(), initial_lists }
    }

    /// Waits until the initial lists are printed; each list is flushed as soon as its resource has synced.
    pub(crate) async fn wait_for_initial_lists(&self) {
        let registrations =
            self.registrations.iter().map(|registration| registration.wait_for_sync().boxed());
        let streams = self.initial_lists.iter().map(|list| list.clone().boxed());
        let mut waiting: FuturesUnordered<_> = registrations.chain(streams).collect();
        while waiting.next().await.is_some() {
            self.flush().await;
        }
    }

    /// Prints buffered rows on a thread that may block.
    async fn flush(&self) {
        let output = Arc::clone(&self.output);
        // An error means that the runtime is shutting down.
        drop(tokio::task::spawn_blocking(move || output.write(Printer::flush)).await);
    }

    /// Waits for an output error.
    pub(crate) async fn wait_for_output_error(&self) {
        let mut error = self.output.error.subscribe();
        if error.wait_for(Option::is_some).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Stops the informers and prints the events received so far, with a time limit.
    pub(crate) async fn close(&self, factory: &SharedInformerFactory) {
        if factory.shutdown(SHUTDOWN_TIMEOUT).await.is_ok() {
            let mut tasks = self.tasks.lock().await;
            let printed = async { while tasks.join_next().await.is_some() {} };
            drop(tokio::time::timeout(SHUTDOWN_TIMEOUT, printed).await);
            drop(tokio::time::timeout(SHUTDOWN_TIMEOUT, self.flush()).await);
        }
    }

    /// Returns the output error, unless the pipe was closed.
    pub(crate) fn outcome(&self) -> Result<(), CliError> {
        match &*self.output.error.borrow() {
            Some(error) if error.kind() != ErrorKind::BrokenPipe => {
                Err(CliError::new(format!("write output: {error}"), "is the disk full?"))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn counts(&self) -> &EventCounts {
        &self.output.counts
    }
}

impl Output {
    fn print(&self, shown: &ShownKind, event: &Event<DynamicObject>) {
        let (verb, old) = match event {
            Event::Added { previous: Some(previous), .. } => (Verb::Updated, Some(previous)),
            Event::Added { .. } => (Verb::Added, None),
            Event::Updated { old, cause: UpdateCause::Change, .. } => (Verb::Updated, Some(old)),
            Event::Updated { .. } => (Verb::Resync, None),
            Event::Deleted { .. } => (Verb::Deleted, None),
        };
        let object = event.object();
        // An object that cannot be decoded is printed without its contents.
        let [new_json, old_json] =
            [Some(object), old].map(|object| object.map(|object| object.to_json().unwrap_or_default()));
        let printed = PrintedEvent {
            time: Timestamp::now(),
            verb,
            shown,
            namespace: object.namespace(),
            name: object.name(),
            object: new_json.as_deref().unwrap_or_default(),
            old: old_json.as_deref(),
        };
        self.counts.count(verb);
        self.write(|printer| printer.print(&printed));
    }

    fn write(&self, print: impl FnOnce(&mut Printer<Box<dyn Write + Send>>) -> io::Result<()>) {
        let mut printer = self.printer.lock().unwrap_or_else(PoisonError::into_inner);
        if self.error.borrow().is_some() {
            return;
        }
        if let Err(error) = self.terminal.suspend(|| print(&mut printer)) {
            self.error.send_replace(Some(error));
        }
    }
}

fn register(
    informer: &SharedInformer<DynamicObject>,
    shown: ShownKind,
    args: &Watch,
    output: &Arc<Output>,
) -> Registration {
    let (output, once) = (Arc::clone(output), args.once);
    let mut handler =
        informer.handler().uncoalesced_with_capacity(MAX_PENDING_EVENTS).name("printer").blocking();
    if let Some(period) = args.resync_period {
        handler = handler.resync_period(period);
    }
    handler.on_event(move |delivery| match delivery {
        // With --once, only the initial list is printed.
        Delivery::Event(event) if once && !matches!(event, Event::Added { initial: true, .. }) => {}
        Delivery::Event(event) => output.print(&shown, &event),
        Delivery::Lagged { skipped, .. } => {
            output.terminal.warn(&format!(
                "{}: slow output, {skipped} events coalesced into later ones",
                shown.resource
            ));
        }
        _ => {}
    })
}

/// Prints the events of a durable handler. They are acknowledged when they are written: what is not is printed by the
/// next run.
async fn print_durable(mut events: EventStream<DynamicObject>, shown: Arc<ShownKind>, output: Arc<Output>) {
    loop {
        let batch = events.next_batch(MAX_PENDING_EVENTS).await;
        let (output, shown) = (Arc::clone(&output), Arc::clone(&shown));
        let print = move || {
            batch.iter().filter(|event| has_changed(event)).for_each(|event| output.print(&shown, event));
            output.write(Printer::flush);
            !batch.is_empty() && output.error.borrow().is_none()
        };
        // An error means that the runtime is shutting down.
        if !tokio::task::spawn_blocking(print).await.unwrap_or_default() {
            return;
        }
    }
}

/// Returns whether an event is news: an object in the state of the last run is not.
fn has_changed(event: &Event<DynamicObject>) -> bool {
    match event {
        Event::Added { object, previous: Some(previous), .. } => {
            previous.resource_version() != object.resource_version()
        }
        _ => true,
    }
}

/// Returns the size of the terminal, if stdout is one.
pub(crate) fn screen() -> Option<Screen> {
    let (rows, columns) = console::Term::stdout().size_checked()?;
    // A terminal of unknown size reports zero.
    (columns > 0).then(|| Screen { columns: columns.into(), rows: rows.into() })
}
