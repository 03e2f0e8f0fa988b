//! Servers and proxies that end healthy watches after a few seconds.

use super::super::RequestKind;
use super::script::{Run, check};
use std::time::Duration;

const STEP: Duration = Duration::from_millis(10);
/// The version of the list; each change increments it.
const FIRST_VERSION: u64 = 100;

/// A server that changes one object periodically and ends each watch after some time.
struct Server {
    change_period: Duration,
    watch_duration: Duration,
}

/// The figures of one run.
struct Outcome {
    /// The time from each change to its delivery, sorted.
    lags: Vec<Duration>,
    requests: usize,
    full_lists: u64,
}

impl Server {
    /// Runs a reflector against the server for `time`.
    fn run(&self, seed: u64, time: Duration) -> Outcome {
        let mut run = Run::quiet(seed);
        let (mut lags, mut requests) = (Vec::new(), 0);
        // The last version that was sent, and the time at which the watch ends.
        let (mut sent, mut end) = (FIRST_VERSION, None);
        while run.now().since_origin() < time {
            let now = run.now().since_origin();
            let changes = now.as_millis() / self.change_period.as_millis();
            let version = FIRST_VERSION + u64::try_from(changes).unwrap();
            if run.has_new_request() {
                requests += 1;
                match run.open_request() {
                    Some(RequestKind::List) => run.respond_with(&format!("list v={version} a/x@{version}")),
                    Some(RequestKind::WatchList) => {
                        run.respond_with(&format!("200 / BOOKMARK @{version} end"));
                    }
                    _ => run.respond_with("200"),
                }
                sent = sent.max(if requests == 1 { version } else { 0 });
                end = Some(now + self.watch_duration);
                continue;
            }
            if run.open_request().is_some_and(|kind| kind != RequestKind::List) {
                while sent < version {
                    sent += 1;
                    run.respond_with(&format!("MODIFIED a/x@{sent}"));
                    let sent_at = self.change_period * u32::try_from(sent - FIRST_VERSION).unwrap();
                    lags.push(now.saturating_sub(sent_at));
                }
                if end.is_some_and(|end| now >= end) {
                    run.respond_with("end");
                    continue;
                }
            }
            run.after(STEP);
        }
        lags.sort_unstable();
        Outcome { lags, requests, full_lists: run.machine().counters().full_lists }
    }
}

/// Regression: with watches of 5 to 9 seconds and ten changes per second, each watch was followed by a growing
/// backoff: the cache was up to 56 s behind. A watch that received a frame proves that the server works.
#[test]
fn c11_cache_is_current_if_watches_are_short() {
    for millis in [1500, 5000, 9000, 9990] {
        let server = Server {
            change_period: Duration::from_millis(100),
            watch_duration: Duration::from_millis(millis),
        };
        let time = Duration::from_secs(600);
        let Outcome { lags, requests, full_lists } = server.run(7, time);
        let p99 = lags[lags.len() * 99 / 100];
        assert!(lags.len() > 5990, "{} changes were delivered", lags.len());
        assert!(p99 <= Duration::from_millis(100), "watches of {millis} ms: p99 of the lag is {p99:?}");
        assert!(requests <= 2 * 600, "watches of {millis} ms: {requests} requests in {time:?}");
        assert_eq!(full_lists, 1, "watches of {millis} ms");
    }
}

/// C11: watches of a quiet kind receive no frame for a minute. The delay before the next one is at most the
/// duration of the last, and no relist is needed.
#[test]
fn c11_quiet_kind_with_short_watches_lags_by_at_most_one_watch() {
    let server = Server { change_period: Duration::from_secs(60), watch_duration: Duration::from_secs(5) };
    let Outcome { lags, requests, full_lists } = server.run(7, Duration::from_secs(3600));
    let max = lags.last().copied();
    assert!(lags.len() >= 58 && max <= Some(Duration::from_secs(6)), "{} changes, lag {max:?}", lags.len());
    assert!(requests <= 1200, "{requests} requests in an hour");
    assert_eq!(full_lists, 1);
}

/// Regression: if the probe between two short watches expired, the relist followed without a backoff, about
/// twice per second. The scripts gave probes and lists the same response.
#[test]
fn c11_probes_that_expire_between_short_watches_cause_no_relist_loop() {
    check(
        "
        live v=9 a/x@5
        > state live
        after 1s
        MODIFIED a/x@10
        > push updated a/x@10
        end
        > watch failed: the watch ended early; retry now
        > list limit=1 rv=10 match=NotOlderThan
        > state stale
        reject 410 Expired
        > list failed: 410 Expired; retry now
        > list limit=500
        list v=11 a/x@11
        > push replaced @11 [a/x@11]
        > watch rv=11
        200
        > state live
        after 1s
        MODIFIED a/x@12
        > push updated a/x@12
        end
        > watch failed: the watch ended early; retry now
        > list limit=1 rv=12 match=NotOlderThan
        > state stale
        reject 410 Expired
        > list failed: 410 Expired; retry in 800ms..1.6s
        > state backing off: 410 Expired
        wake
        > list limit=500
        > state stale
        ",
    );
}

/// C11: a proxy that ends watches regularly and keeps back what they should bring is noticed by a relist.
#[test]
fn c11_quiet_watches_that_end_early_are_followed_by_a_relist_after_three_minutes() {
    check(
        "
        live v=9 a/x@5
        > state live
        during 170s 15..45 list: list v=9 a/x@5; watch: 200 / after 5s / end
        > state backing off: the watch ended early
        count full_lists
        > full_lists 1
        during 30s 1..12 list: list v=9 a/x@5; watch: 200 / after 5s / end
        count full_lists
        > full_lists 2
        ",
    );
}
