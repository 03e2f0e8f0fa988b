//! `--live`: the current objects as tables that are redrawn in place.
//!
//! Warnings are part of the screen, because messages between the tables would destroy it.

use super::feed;
use super::get::Objects;
use super::health::{HealthChange, HealthReporter};
use super::sync::{self, Watched};
use crate::cli_error::CliError;
use crate::show::LiveStatus;
use crate::terminal::Terminal;
use informer::Registration;
use jiff::Timestamp;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

/// Delay between two drawings, however often objects change.
const MIN_REDRAW_DELAY: Duration = Duration::from_millis(250);
/// Period at which an unchanged table is drawn again, because ages and warnings change.
const REDRAW_PERIOD: Duration = Duration::from_secs(1);

/// SIGTSTP. tokio has no constant for it.
const STOP: i32 = if cfg!(any(target_os = "linux", target_os = "android")) { 20 } else { 18 };

/// Whether stdout is a terminal that can be redrawn.
pub(crate) fn is_supported() -> bool {
    feed::screen().is_some() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Draws the objects after each change; returns only if a request is rejected permanently or the output fails.
/// `place` follows the numbers of objects in the first line.
pub(crate) async fn run(
    objects: &Objects<'_>,
    watched: &Watched<'_>,
    place: &str,
    terminal: &Terminal,
) -> CliError {
    let signals = || Ok((signal(SignalKind::window_change())?, signal(SignalKind::from_raw(STOP))?));
    // Nothing waits for Ctrl-Z, so it has no effect: the shell would get the screen of the table.
    let (mut resized, _stop) = match signals() {
        Ok(signals) => signals,
        Err::<_, std::io::Error>(error) => {
            return CliError::new(format!("install signal handlers: {error}"), "");
        }
    };
    let changed = Arc::new(Notify::new());
    let _registrations: Vec<Registration> = watched
        .informers
        .iter()
        .map(|informer| {
            let changed = Arc::clone(&changed);
            informer.on_event(move |_| changed.notify_one())
        })
        .collect();
    let mut health = Health::new(watched);
    loop {
        if let Some(error) = sync::permanent_error(watched) {
            return error;
        }
        let warnings = health.warnings(watched);
        if let Err(error) =
            draw(objects, LiveStatus { summary: summary(watched, place), warnings }, terminal).await
        {
            return CliError::new(format!("write output: {error}"), "is the terminal still open?");
        }
        tokio::time::sleep(MIN_REDRAW_DELAY).await;
        tokio::select! {
            () = changed.notified() => {}
            _ = resized.recv() => {}
            () = tokio::time::sleep(REDRAW_PERIOD.saturating_sub(MIN_REDRAW_DELAY)) => {}
        }
    }
}

/// Draws the screen on a thread that may block.
async fn draw(objects: &Objects<'_>, status: LiveStatus, terminal: &Terminal) -> std::io::Result<()> {
    // The size may have changed. Without a size, there is no terminal any more.
    let Some(screen) = feed::screen() else { return Ok(()) };
    let lines = objects.listing.live(&status, objects.first_objects(screen.rows), Timestamp::now(), screen);
    let terminal = terminal.clone();
    // Without a result, the runtime is shutting down, or the drawing panicked and the next one fails.
    tokio::task::spawn_blocking(move || terminal.draw(&lines, screen.rows)).await.unwrap_or(Ok(()))
}

fn summary(watched: &Watched<'_>, place: &str) -> String {
    let syncing: Vec<String> = watched
        .informers
        .iter()
        .filter(|informer| !informer.status().synced)
        .map(|informer| informer.description().to_owned())
        .collect();
    let counts = sync::counts(watched);
    if syncing.is_empty() {
        format!("{counts}{place}")
    } else {
        format!("syncing {}; {counts}{place}", syncing.join(", "))
    }
}

/// The current warning of each informer.
struct Health {
    started: Instant,
    informers: Vec<(HealthReporter, Option<String>)>,
}

impl Health {
    fn new(watched: &Watched<'_>) -> Self {
        Self {
            started: Instant::now(),
            informers: watched.informers.iter().map(|_| Default::default()).collect(),
        }
    }

    /// Checks the informers, and returns their warnings.
    fn warnings(&mut self, watched: &Watched<'_>) -> Vec<String> {
        let now = self.started.elapsed();
        for (informer, (reporter, warning)) in watched.informers.iter().zip(&mut self.informers) {
            let status = informer.status();
            match reporter.observe(now, &status.state, status.staleness()) {
                Some(HealthChange::Started(text)) => {
                    *warning = Some(format!("{}: {text}", informer.description()));
                }
                Some(HealthChange::Ended(_)) => *warning = None,
                None => {}
            }
        }
        self.informers.iter().filter_map(|(_, warning)| warning.clone()).collect()
    }
}
