//! Waits for the initial lists and reports the health of informers.

use super::feed::Feed;
use super::health::{HealthChange, HealthReporter};
use super::span;
use super::target::Target;
use crate::cli_error::{CliError, hint, response_hint};
use crate::terminal::Terminal;
use informer::status::{ColdStartReason, InformerState, StartKind};
use informer::{SharedInformer, SharedInformerFactory};
use kube::core::DynamicObject;
use std::time::{Duration, Instant};

/// The watched targets and their informers, in the same order.
pub(crate) struct Watched<'a> {
    pub(crate) targets: &'a [Target],
    pub(crate) informers: &'a [SharedInformer<DynamicObject>],
}

/// Period at which the states of informers are checked.
const POLL_PERIOD: Duration = Duration::from_millis(100);

/// Prints the existing objects; returns an error if the informers do not sync in time.
pub(crate) async fn once(
    factory: &SharedInformerFactory,
    watched: &Watched<'_>,
    feed: &Feed,
    terminal: &Terminal,
    timeout: Duration,
) -> Result<(), CliError> {
    let started = Instant::now();
    wait(factory, watched, terminal, timeout).await?;
    feed.wait_for_initial_lists().await;
    terminal.info(&synced_line(watched, started.elapsed()));
    watched.informers.iter().for_each(|informer| report_start(informer, terminal));
    Ok(())
}

/// Waits until the informers have synced; shows their progress.
pub(crate) async fn wait(
    factory: &SharedInformerFactory,
    watched: &Watched<'_>,
    terminal: &Terminal,
    timeout: Duration,
) -> Result<(), CliError> {
    let sync = factory.wait_for_sync(timeout);
    let synced = tokio::select! {
        synced = sync => synced,
        error = show_progress(watched, terminal) => {
            terminal.end();
            return Err(error);
        }
    };
    terminal.end();
    let Err(error) = synced else { return Ok(()) };
    for one in error.informers.iter().filter(|_| error.informers.len() > 1) {
        let state = if one.synced { "synced".to_owned() } else { one.state.display_at(one.now).to_string() };
        terminal.info(&format!("{}: {state}", one.informer));
    }
    let first_hint = error.failed().next().map_or("", |one| hint(&one.state));
    Err(CliError::new(error.to_string(), first_hint))
}

/// Reports the health of the informers; returns only if a request is rejected permanently.
pub(crate) async fn forever(watched: &Watched<'_>, feed: &Feed, terminal: &Terminal) -> CliError {
    let started = Instant::now();
    let initial_lists = async {
        feed.wait_for_initial_lists().await;
        std::future::pending().await
    };
    let health = async {
        let mut reporters: Vec<HealthReporter> =
            watched.informers.iter().map(|_| HealthReporter::default()).collect();
        let mut synced = false;
        let mut ticks = tokio::time::interval(POLL_PERIOD);
        loop {
            ticks.tick().await;
            if let Some(error) = permanent_error(watched) {
                return error;
            }
            for (informer, reporter) in watched.informers.iter().zip(&mut reporters) {
                let status = informer.status();
                match reporter.observe(started.elapsed(), &status.state, status.staleness()) {
                    Some(HealthChange::Started(text)) => {
                        terminal.warn(&format!("{}: {text}", informer.description()));
                    }
                    Some(HealthChange::Ended(text)) => {
                        terminal.info(&format!("{}: {text}", informer.description()));
                    }
                    None => {}
                }
            }
            if !synced {
                synced = watched.informers.iter().all(|informer| informer.status().synced);
                if synced {
                    terminal.end();
                    terminal.info(&synced_line(watched, started.elapsed()));
                    watched.informers.iter().for_each(|informer| report_start(informer, terminal));
                } else {
                    update_progress(watched, terminal);
                }
            }
        }
    };
    tokio::select! {
        error = initial_lists => error,
        error = health => error,
    }
}

/// Prints from which state an informer with `--state` continues.
fn report_start(informer: &SharedInformer<DynamicObject>, terminal: &Terminal) {
    let description = informer.description();
    match informer.status().persistence.map(|status| status.start) {
        Some(StartKind::Warm { as_of, .. }) => {
            terminal.info(&format!("{description}: changes since {as_of:.0}"));
        }
        Some(StartKind::Cold(ColdStartReason::NothingSaved)) => {
            terminal.info(&format!("{description}: no saved state, all objects are new"));
        }
        Some(StartKind::Cold(reason)) => {
            terminal
                .warn(&format!("{description}: the saved state is not used, all objects are new: {reason}"));
        }
        _ => {}
    }
}

/// Updates the progress bar until all informers have synced; returns only if a request is rejected
/// permanently.
async fn show_progress(watched: &Watched<'_>, terminal: &Terminal) -> CliError {
    let mut ticks = tokio::time::interval(POLL_PERIOD);
    while !watched.informers.iter().all(|informer| informer.status().synced) {
        ticks.tick().await;
        if let Some(error) = permanent_error(watched) {
            return error;
        }
        update_progress(watched, terminal);
    }
    std::future::pending().await
}

/// Returns the error of a permanently rejected request.
pub(crate) fn permanent_error(watched: &Watched<'_>) -> Option<CliError> {
    watched.informers.iter().find_map(|informer| {
        let status = informer.status();
        let InformerState::BackingOff { failure, .. } = &status.state else { return None };
        (!status.synced && failure.is_permanent())
            .then(|| CliError::new(format!("{}: {failure}", informer.description()), response_hint(failure)))
    })
}

/// Updates the progress bar with the sum of all informers.
fn update_progress(watched: &Watched<'_>, terminal: &Terminal) {
    let (mut done, mut total, mut waiting) = (0, Some(0), Vec::new());
    for informer in watched.informers {
        let status = informer.status();
        let (received, expected) = match status.state {
            InformerState::Listing { received, total } => (received, total),
            _ => (informer.lister().len() as u64, None),
        };
        done += received;
        let expected = if status.synced { Some(received) } else { expected };
        total = total.zip(expected).map(|(sum, expected)| sum + expected.max(received));
        if !status.synced {
            waiting.push(informer.description().to_owned());
        }
    }
    terminal.progress(done, total, &format!("syncing {}", waiting.join(", ")));
}

fn synced_line(watched: &Watched<'_>, took: Duration) -> String {
    format!("synced in {}: {}", span(took), counts(watched))
}

/// Returns the number of objects of each target: `40 pods, 1 node`.
pub(crate) fn counts(watched: &Watched<'_>) -> String {
    let pairs = watched.informers.iter().zip(watched.targets);
    let counted =
        |(informer, target): (&SharedInformer<DynamicObject>, &Target)| match informer.lister().len() {
            1 => format!("1 {}", target.resource.singular_name()),
            count => format!("{count} {}", target.resource.name()),
        };
    pairs.map(counted).collect::<Vec<_>>().join(", ")
}
