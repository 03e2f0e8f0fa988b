//! The time until the first set is complete, and what is told about informers after that.

use super::feed::Feed;
use super::span;
use super::trouble::{News, Trouble};
use crate::failure::{Failure, hint, is_final};
use crate::resolve::Served;
use crate::talk::Talk;
use informer::{SharedInformer, SharedInformerFactory, State};
use kube::core::DynamicObject;
use std::time::{Duration, Instant};

/// What is watched: a resource and its informer have the same place.
pub(crate) struct Watched<'a> {
    pub(crate) resources: &'a [Served],
    pub(crate) informers: &'a [SharedInformer<DynamicObject>],
}

/// How often the informers are looked at.
const EVERY: Duration = Duration::from_millis(100);

/// Prints what is there; fails if that is not known in time.
pub(crate) async fn once(
    factory: &SharedInformerFactory,
    watched: &Watched<'_>,
    feed: &Feed,
    talk: &Talk,
    timeout: Duration,
) -> Result<(), Failure> {
    let begun = Instant::now();
    let sync = factory.wait_for_sync(timeout);
    let synced = tokio::select! {
        synced = sync => synced,
        failure = show_progress(watched, talk) => {
            talk.end();
            return Err(failure);
        }
    };
    talk.end();
    let Err(error) = synced else {
        feed.synced().await;
        talk.say(&synced_line(watched, begun.elapsed()));
        return Ok(());
    };
    for kind in error.kinds.iter().filter(|_| error.kinds.len() > 1) {
        let state = kind
            .error
            .as_ref()
            .map_or_else(|| "synced".to_owned(), |one| one.state.seen_from(one.now).to_string());
        talk.say(&format!("{}: {state}", kind.resource));
    }
    let first = error.failed().next().map_or("", |one| hint(&one.state));
    Err(Failure::new(error.to_string(), first))
}

/// Tells how the informers do, for as long as it is polled; ends if one of them never can.
pub(crate) async fn forever(watched: &Watched<'_>, feed: &Feed, talk: &Talk) -> Failure {
    let begun = Instant::now();
    let told = async {
        feed.synced().await;
        std::future::pending().await
    };
    let look = async {
        let mut troubles: Vec<Trouble> = watched.informers.iter().map(|_| Trouble::default()).collect();
        let mut synced = false;
        let mut ticks = tokio::time::interval(EVERY);
        loop {
            ticks.tick().await;
            if let Some(failure) = refused(watched) {
                return failure;
            }
            for (informer, trouble) in watched.informers.iter().zip(&mut troubles) {
                let status = informer.status();
                match trouble.look(begun.elapsed(), &status.state, status.synced) {
                    Some(News::Begins(text)) => talk.warn(&format!("{}: {text}", informer.resource())),
                    Some(News::Ends(text)) => talk.say(&format!("{}: {text}", informer.resource())),
                    None => {}
                }
            }
            if !synced {
                synced = watched.informers.iter().all(|informer| informer.status().synced);
                if synced {
                    talk.end();
                    talk.say(&synced_line(watched, begun.elapsed()));
                } else {
                    show(watched, talk);
                }
            }
        }
    };
    tokio::select! {
        failure = told => failure,
        failure = look => failure,
    }
}

/// Moves the bar until everything is there; ends only if that never will be.
async fn show_progress(watched: &Watched<'_>, talk: &Talk) -> Failure {
    let mut ticks = tokio::time::interval(EVERY);
    while !watched.informers.iter().all(|informer| informer.status().synced) {
        ticks.tick().await;
        if let Some(failure) = refused(watched) {
            return failure;
        }
        show(watched, talk);
    }
    std::future::pending().await
}

/// What the server will never answer.
fn refused(watched: &Watched<'_>) -> Option<Failure> {
    watched.informers.iter().find_map(|informer| {
        let status = informer.status();
        let State::BackingOff { because, .. } = &status.state else { return None };
        let last = !status.synced && is_final(&status.state);
        last.then(|| Failure::new(format!("{}: {because}", informer.resource()), hint(&status.state)))
    })
}

/// Moves the bar to where the informers are together.
fn show(watched: &Watched<'_>, talk: &Talk) {
    let (mut done, mut total, mut waiting) = (0, Some(0), Vec::new());
    for informer in watched.informers {
        let status = informer.status();
        let (so_far, of) = match status.state {
            State::Listing { done, total } => (done, total),
            _ => (informer.lister().len() as u64, None),
        };
        done += so_far;
        let of = if status.synced { Some(so_far) } else { of };
        total = total.zip(of).map(|(sum, of)| sum + of.max(so_far));
        if !status.synced {
            waiting.push(informer.resource().to_owned());
        }
    }
    talk.progress(done, total, &format!("syncing {}", waiting.join(", ")));
}

fn synced_line(watched: &Watched<'_>, took: Duration) -> String {
    let pairs = watched.informers.iter().zip(watched.resources);
    let counted =
        |(informer, served): (&SharedInformer<DynamicObject>, &Served)| match informer.lister().len() {
            1 => format!("1 {}", served.singular_name()),
            count => format!("{count} {}", served.name()),
        };
    let each: Vec<String> = pairs.map(counted).collect();
    format!("synced in {}: {}", span(took), each.join(", "))
}
