//! Clocks that are wrong: no deletion is lost.
//!
//! Found by attack: the day on which a durable handler was used last was saved, and compared with the current day. If the
//! clock of one process was more than 30 days ahead, the handler was forgotten although every process adds it: 10 of 20
//! deletions were never delivered, the start was warm, and the status showed nothing.

use super::{Disk, saved_on, synced, wait_for_save};
use crate::cluster::{TIMEOUT, config_map, until};
use informer::Event;
use informer_apiserver::ApiServer;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 3_600);
const YEAR: Duration = Duration::from_secs(365 * 24 * 3_600);

/// Runs a process whose clock is ahead by this time, and steps forwards by another one while it runs.
fn run_process(
    (server, disk): (&ApiServer, &Disk),
    (ahead, step): (Duration, Duration),
    known: &Arc<Mutex<BTreeSet<String>>>,
    change: impl FnOnce(),
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.unwrap().block_on(async {
        tokio::time::advance(ahead).await;
        let informer = synced(server, saved_on(disk)).await;
        let own = Arc::clone(known);
        let _registration = informer.handler().durable("test").on_event(move |event| {
            let name = event.object().name().to_owned();
            let mut known = own.lock().unwrap();
            if matches!(event, Event::Deleted { .. }) {
                known.remove(&name)
            } else {
                known.insert(name)
            };
        });
        change();
        tokio::time::advance(step).await;
        let names = || -> BTreeSet<String> {
            let objects = server.list("v1", "configmaps", None);
            objects.iter().map(|object| object["metadata"]["name"].as_str().unwrap().to_owned()).collect()
        };
        until(|| *known.lock().unwrap() == names()).await;
        wait_for_save(&informer).await;
        informer.shutdown(TIMEOUT).await.unwrap();
    });
}

#[test]
fn wrong_clock_loses_no_deletion() {
    let none = Duration::ZERO;
    // How far the clocks of three processes are ahead (so they go back as well), and their steps.
    let cases = [
        ([none, 40 * DAY, none], none),
        ([40 * DAY, none, 40 * DAY], none),
        ([none, 20 * YEAR, none], none),
        ([20 * YEAR, none, 20 * YEAR], none),
        ([none; 3], 40 * DAY),
        ([40 * DAY, none, none], 20 * YEAR),
    ];
    for (ahead, step) in cases {
        let (server, disk, known) = (ApiServer::new(), Disk::default(), Arc::default());
        let delete = |names: std::ops::Range<u32>| {
            for name in names {
                server.delete("v1", "configmaps", Some("default"), &format!("m{name:02}")).unwrap();
            }
        };
        for name in 0..30 {
            server.create(&config_map("default", &format!("m{name:02}"), "1")).unwrap();
        }
        for (process, ahead) in (0..).zip(ahead) {
            // Five objects are deleted before each process but the first, and five while it runs.
            let first = process * 10;
            if process > 0 {
                delete(first..first + 5);
            }
            run_process((&server, &disk), (ahead, step), &known, || delete(first + 5..first + 10));
        }
        assert_eq!(known.lock().unwrap().len(), 5, "{ahead:?} ahead, steps of {step:?}");
    }
}
