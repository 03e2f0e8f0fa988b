//! From informers to the printer: one handler for each resource, all printing through one lock.
//!
//! Whoever holds that lock may wait for a reader who has stopped reading. So only threads that may block take it, and what the end of the
//! program needs is outside of it.
//!
//! The first error of the output ends everything; that nobody reads any more is not an error to tell.

use super::LAST_WORDS;
use super::tally::Tally;
use crate::args::Watch;
use crate::failure::Failure;
use crate::resolve::Served;
use crate::show::{Format, Printer, Shown, Told, Verb};
use crate::talk::Talk;
use futures::stream::{FuturesUnordered, StreamExt as _};
use informer::{Cause, Delivery, Event, Registration, SharedInformer, SharedInformerFactory};
use jiff::Timestamp;
use kube::core::DynamicObject;
use std::io::{self, ErrorKind, Write};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

/// So many states wait for a slow reader before they are told in larger steps.
const PENDING: usize = 100_000;

/// What the handlers share.
pub(crate) struct Feed {
    output: Arc<Output>,
    registrations: Vec<Registration>,
}

struct Output {
    printer: Mutex<Printer<Box<dyn Write + Send>>>,
    tally: Tally,
    talk: Talk,
    error: watch::Sender<Option<io::Error>>,
}

impl Feed {
    /// Registers a handler with each informer.
    pub(crate) fn new(
        args: &Watch,
        resources: &[Served],
        informers: &[SharedInformer<DynamicObject>],
        talk: &Talk,
    ) -> Self {
        let kinds: Vec<Shown> = resources.iter().map(shown).collect();
        // Colours are for columns; JSON and YAML are data.
        let out: Box<dyn Write + Send> = match args.output {
            Format::Table | Format::Wide => Box::new(anstream::stdout()),
            Format::Json | Format::Yaml | Format::Name => Box::new(io::stdout()),
        };
        let zone = jiff::tz::TimeZone::system();
        let printer = Mutex::new(Printer::new(args.output, &kinds, zone, width, out));
        let (tally, talk, error) = (Tally::default(), talk.clone(), watch::channel(None).0);
        let output = Arc::new(Output { printer, tally, talk, error });
        let handlers = informers.iter().zip(kinds);
        let registrations =
            handlers.map(|(informer, shown)| register(informer, shown, args, &output)).collect();
        Self { output, registrations }
    }

    /// Waits until every event of the initial set is printed, resource by resource; those of one do not wait for another.
    pub(crate) async fn synced(&self) {
        let mut waiting: FuturesUnordered<_> = self.registrations.iter().map(Registration::synced).collect();
        while waiting.next().await.is_some() {
            self.flush().await;
        }
    }

    /// Prints what is held back, on a thread that may wait for the reader.
    async fn flush(&self) {
        let output = Arc::clone(&self.output);
        // An error would mean that the program is ending.
        drop(tokio::task::spawn_blocking(move || output.write(Printer::flush)).await);
    }

    /// Waits until the output takes no more.
    pub(crate) async fn broken(&self) {
        let mut error = self.output.error.subscribe();
        if error.wait_for(Option::is_some).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Ends the informers, and prints what they have received until now, as far as somebody reads it.
    pub(crate) async fn close(&self, factory: &SharedInformerFactory) {
        if factory.shutdown(LAST_WORDS).await.is_ok() {
            drop(tokio::time::timeout(LAST_WORDS, self.flush()).await);
        }
    }

    /// How the output fared.
    pub(crate) fn outcome(&self) -> Result<(), Failure> {
        match &*self.output.error.borrow() {
            Some(error) if error.kind() != ErrorKind::BrokenPipe => {
                Err(Failure::new(format!("the output cannot be written: {error}"), "is the disk full?"))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.output.tally
    }
}

impl Output {
    fn write(&self, print: impl FnOnce(&mut Printer<Box<dyn Write + Send>>) -> io::Result<()>) {
        let mut printer = self.printer.lock().unwrap_or_else(PoisonError::into_inner);
        if self.error.borrow().is_some() {
            return;
        }
        if let Err(error) = self.talk.aside(|| print(&mut printer)) {
            self.error.send_replace(Some(error));
        }
    }
}

fn register(
    informer: &SharedInformer<DynamicObject>,
    shown: Shown,
    args: &Watch,
    output: &Arc<Output>,
) -> Registration {
    let (output, once) = (Arc::clone(output), args.once);
    let mut handler = informer.handler().every_state_up_to(PENDING).name("printer").blocking();
    if let Some(period) = args.resync {
        handler = handler.resync(period);
    }
    handler.on(move |delivery| match delivery {
        // What happens after the first set is complete is not asked for.
        Delivery::Event(event) if once && !matches!(event, Event::Added { initial: true, .. }) => {}
        Delivery::Event(event) => {
            let (verb, old) = match &event {
                Event::Added { .. } => (Verb::Added, None),
                Event::Updated { old, cause: Cause::Change, .. } => (Verb::Updated, Some(old.clone())),
                Event::Updated { .. } => (Verb::Resync, None),
                Event::Deleted { .. } => (Verb::Deleted, None),
            };
            let object = event.object();
            // One that does not decode is shown without its contents.
            let [now, before] = [Some(object), old.as_ref()]
                .map(|object| object.map(|object| object.json().unwrap_or_default()));
            let told = Told {
                time: Timestamp::now(),
                verb,
                shown: &shown,
                namespace: object.namespace(),
                name: object.name(),
                object: now.as_deref().unwrap_or_default(),
                old: before.as_deref(),
            };
            output.tally.count(verb);
            output.write(|printer| printer.print(&told));
        }
        Delivery::Lagged { skipped, .. } => {
            output.talk.warn(&format!(
                "{}: the output is slow; {skipped} events are told as part of later ones",
                shown.resource
            ));
        }
        _ => {}
    })
}

fn shown(served: &Served) -> Shown {
    Shown {
        group: served.group.clone(),
        kind: served.kind.clone(),
        resource: served.name(),
        singular: served.singular_name(),
    }
}

/// The width of the window on stdout, if that is a terminal.
fn width() -> Option<usize> {
    console::Term::stdout().size_checked().map(|(_, columns)| columns.into())
}
