//! A server that sends random responses: none of them causes a hot loop, a dead end or a panic (C9, C11).

use super::script::Run;
use crate::random::Random;
use std::collections::VecDeque;
use std::time::Duration;

/// The possible responses to any request. Each consists of script inputs separated by ` / `.
const RESPONSES: &[&str] = &[
    "list v=9",
    "list v=7 a/x@5",
    "list v=12 a/x@5 a/no-version @6 =17",
    "list v=zz a/x@yy",
    "list v=9 continue=t1 a/x@5",
    "list v=9 continue=t2 remaining=4 a/y@5",
    "200 / ADDED a/x@5 / BOOKMARK @9 end",
    "200 / BOOKMARK @5 end / MODIFIED a/x@6 + ERROR 410 Expired",
    "200 / BOOKMARK @12 end / end",
    "200 / BOOKMARK @13",
    "200 / ADDED a/x@14",
    "200 / DELETED @15",
    "200 / MODIFIED a/x@70;kind=Node / PING a/x@5",
    "200 / ERROR 410 Expired",
    "200 / ERROR 500 InternalError",
    "200 / ERROR 429 TooManyRequests retry-after=1",
    "200 / ERROR 504 TooLarge",
    "200 / ERROR",
    "200 / end",
    "200 / bytes ]",
    "200 / bytes {",
    "200 type=text/html / bytes <html> / end",
    "200",
    "reject 400",
    "reject 401",
    "reject 403 Forbidden",
    "reject 404",
    "reject 410 Expired",
    "reject 422 Invalid",
    "reject 429",
    "reject 500",
    "reject 503 retry-after=1",
    "reject 504 TooLarge",
    "410",
    "500 / bytes x",
    "error refused",
    "error reset",
    "end",
];

/// Upper bound on the requests in any second.
///
/// A relist may drop its version, the watch-list and the pages, one after the other; each time it sends
/// another request without a delay.
const MAX_REQUESTS_PER_SECOND: usize = 12;

#[test]
fn no_server_causes_a_hot_loop_or_a_dead_end() {
    for seed in 0..400 {
        let mut random = Random::new(seed);
        // With few different responses the server persists in a failure; with many it is erratic.
        let count = 1 + random.below(6);
        let responses: Vec<&str> = (0..count).map(|_| pick(RESPONSES, &mut random)).collect();
        let mut run = Run::quiet(seed);
        let (mut recent, mut requests) = (VecDeque::new(), 0);
        while run.now().since_origin() < Duration::from_secs(1200) {
            if run.has_new_request() {
                requests += 1;
                recent.push_back(run.now());
                while recent.front().is_some_and(|sent| run.now() - *sent >= Duration::from_secs(1)) {
                    recent.pop_front();
                }
                assert!(
                    recent.len() <= MAX_REQUESTS_PER_SECOND,
                    "seed {seed}: a hot loop with {responses:?}"
                );
                run.respond_with(pick(&responses, &mut random));
                continue;
            }
            // An open response continues, ends, or stays silent.
            match random.below(4) {
                0 => run.respond_with("MODIFIED a/x@20"),
                1 => run.respond_with("end"),
                _ => run.wake_at_deadline(),
            }
        }
        assert!(requests < 20 * 60 * 4, "seed {seed}: {requests} requests with {responses:?}");
    }
}

fn pick<'a>(from: &[&'a str], random: &mut Random) -> &'a str {
    from[usize::try_from(random.below(from.len() as u64)).unwrap()]
}
