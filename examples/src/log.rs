//! What the library says, on the screen: warnings and errors, and what it begins and ends. Programs take `tracing-subscriber` for this, which does far
//! more; here it is a page.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// From now on, what the library says is printed to standard error. If somebody listens already, nothing changes.
pub fn log() {
    drop(tracing::subscriber::set_global_default(Log::new(|line| eprintln!("{line}"))));
}

thread_local! {
    /// The spans that this thread is in, the outermost first.
    static INSIDE: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

struct Log<P> {
    print: P,
    next: AtomicU64,
    /// What the spans that are open say.
    spans: Mutex<HashMap<u64, String>>,
}

impl<P: Fn(String) + 'static> Log<P> {
    fn new(print: P) -> Self {
        Self { print, next: AtomicU64::new(1), spans: Mutex::default() }
    }

    fn spans(&self) -> MutexGuard<'_, HashMap<u64, String>> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P: Fn(String) + Send + Sync + 'static> Subscriber for Log<P> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO && metadata.target().starts_with("informer")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut line = Line::default();
        span.record(&mut line);
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.spans().insert(id, line.fields);
        Id::from_u64(id)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let spans = self.spans();
        let around: String =
            INSIDE.with_borrow(|inside| inside.iter().filter_map(|id| spans.get(id)).cloned().collect());
        drop(spans);
        (self.print)(format!("{:5} {}{around}{}", event.metadata().level(), line.message, line.fields));
    }

    fn enter(&self, span: &Id) {
        INSIDE.with_borrow_mut(|inside| inside.push(span.into_u64()));
    }

    fn exit(&self, _: &Id) {
        INSIDE.with_borrow_mut(|inside| inside.truncate(inside.len().saturating_sub(1)));
    }

    fn try_close(&self, span: Id) -> bool {
        self.spans().remove(&span.into_u64()).is_some()
    }
}

/// What is said, and ` name=value` for each field.
#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a text does not fail.
        let _written = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_line_has_the_message_and_the_fields_around_it() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let printed = Arc::clone(&lines);
        let log = Log::new(move |line| printed.lock().unwrap().push(line));
        tracing::subscriber::with_default(log, || {
            let span = tracing::info_span!("turn", key = %"shop/blog");
            span.in_scope(|| tracing::warn!(tries = 2, "it failed"));
            drop(span);
            tracing::info!("running");
            tracing::debug!("nobody wants to know");
            tracing::error!(target: "hyper", "not ours");
        });
        assert_eq!(*lines.lock().unwrap(), ["WARN  it failed key=shop/blog tries=2", "INFO  running"]);
    }
}
