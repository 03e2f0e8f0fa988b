//! C11: requests are rare, whatever the server does, and `Retry-After` is respected.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::log::SentRequest;

/// Upper bound on the requests of one reflector per minute, without pages of lists: two watches per second,
/// each after a probe.
const MAX_REQUESTS_PER_MINUTE: usize = 240;
/// Upper bound on full lists and watch-lists of one reflector per minute, without their pages.
const MAX_FULL_LISTS_PER_MINUTE: usize = 30;
const MINUTE: Duration = Duration::from_secs(60);

/// Checks the request rate of each reflector and returns the highest one.
pub(crate) fn request_rate(requests: &[SentRequest]) -> usize {
    let first_pages = || requests.iter().filter(|one| !one.page);
    max_per_minute(first_pages().filter(|one| one.full), "full lists", MAX_FULL_LISTS_PER_MINUTE);
    max_per_minute(first_pages(), "requests", MAX_REQUESTS_PER_MINUTE)
}

/// Returns the highest number of requests in a minute, which must be at most `max`.
fn max_per_minute<'a>(requests: impl Iterator<Item = &'a SentRequest>, kind: &str, max: usize) -> usize {
    let mut by_client: BTreeMap<&str, Vec<Duration>> = BTreeMap::new();
    for one in requests {
        by_client.entry(&one.client).or_default().push(one.at);
    }
    let mut busiest = 0;
    for (client, times) in by_client {
        let mut first = 0;
        for (index, at) in times.iter().enumerate() {
            while *at > times[first] + MINUTE {
                first += 1;
            }
            let count = index - first + 1;
            assert!(count <= max, "C11: {client} sent {count} {kind} in the minute before {at:?}");
            busiest = busiest.max(count);
        }
    }
    busiest
}

/// Checks that no request is sent before its `Retry-After` has passed.
pub(crate) fn retry_after(requests: &[SentRequest]) {
    let mut until: BTreeMap<&str, Duration> = BTreeMap::new();
    for one in requests {
        if let Some(until) = until.get(&*one.client) {
            assert!(one.at >= *until, "C11: {} sent a request at {:?}, before {until:?}", one.client, one.at);
        }
        if let Some((at, 429 | 503, Some(seconds))) = one.answer {
            until.insert(&one.client, at + Duration::from_secs(seconds));
        }
    }
}
