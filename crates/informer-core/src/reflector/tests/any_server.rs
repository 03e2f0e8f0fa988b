//! A server that answers anything to anything: nothing it does makes a hot loop, a dead end or a panic (C9, C11).

use super::script::Run;
use crate::random::Random;
use std::collections::VecDeque;
use std::time::Duration;

/// What any request may be answered with. Each is a line of a script; several belong together behind `/`.
const ANSWERS: &[&str] = &[
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
    "refuse 400",
    "refuse 401",
    "refuse 403 Forbidden",
    "refuse 404",
    "refuse 410 Expired",
    "refuse 422 Invalid",
    "refuse 429",
    "refuse 500",
    "refuse 503 retry-after=1",
    "refuse 504 TooLarge",
    "410",
    "500 / bytes x",
    "error refused",
    "error broken",
    "end",
];

/// So many requests at most, in any second. A round may drop its version, the watch-list and the pages, one after the other.
const MOST_A_SECOND: usize = 12;

#[test]
fn no_server_makes_a_hot_loop_or_a_dead_end() {
    for seed in 0..400 {
        let mut random = Random::new(seed);
        // Few kinds of answers make a server that insists; many make one that is out of its mind.
        let kinds = 1 + random.below(6);
        let kinds: Vec<&str> = (0..kinds).map(|_| pick(ANSWERS, &mut random)).collect();
        let mut run = Run::quiet(seed);
        let (mut recent, mut requests) = (VecDeque::new(), 0);
        while run.now().since_origin() < Duration::from_mins(20) {
            if run.is_asked() {
                requests += 1;
                recent.push_back(run.now());
                while recent.front().is_some_and(|sent| run.now() - *sent >= Duration::from_secs(1)) {
                    recent.pop_front();
                }
                assert!(recent.len() <= MOST_A_SECOND, "seed {seed}: a hot loop with {kinds:?}");
                run.answer_with(pick(&kinds, &mut random));
                continue;
            }
            // What is still open may go on, end, or fall silent.
            match random.below(4) {
                0 => run.answer_with("MODIFIED a/x@20"),
                1 => run.answer_with("end"),
                _ => run.sleep(),
            }
        }
        assert!(requests < 20 * 60 / 2, "seed {seed}: {requests} requests with {kinds:?}");
    }
}

fn pick<'a>(from: &[&'a str], random: &mut Random) -> &'a str {
    from[usize::try_from(random.below(from.len() as u64)).unwrap()]
}
