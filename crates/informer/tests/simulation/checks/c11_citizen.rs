//! C11: a good citizen asks seldom, whatever the server does, and waits when it is asked to.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::log::Asked;

/// The most requests of one reflector in any minute, pages of lists aside.
const MOST: usize = 30;
const MINUTE: Duration = Duration::from_mins(1);

/// Nobody asks too often; returns how often the busiest did.
pub(crate) fn pace(asked: &[Asked]) -> usize {
    let mut of_each: BTreeMap<&str, Vec<Duration>> = BTreeMap::new();
    for one in asked.iter().filter(|one| !one.page) {
        of_each.entry(&one.who).or_default().push(one.at);
    }
    let mut busiest = 0;
    for (who, times) in of_each {
        let mut first = 0;
        for (place, at) in times.iter().enumerate() {
            while *at > times[first] + MINUTE {
                first += 1;
            }
            let many = place - first + 1;
            assert!(many <= MOST, "C11: {who} asked {many} times in the minute before {at:?}");
            busiest = busiest.max(many);
        }
    }
    busiest
}

/// Who is told to wait does.
pub(crate) fn retry_after(asked: &[Asked]) {
    let mut until: BTreeMap<&str, Duration> = BTreeMap::new();
    for one in asked {
        if let Some(until) = until.get(&*one.who) {
            assert!(one.at >= *until, "C11: {} asked at {:?}, before {until:?}", one.who, one.at);
        }
        if let Some((at, 429 | 503, Some(seconds))) = one.answer {
            until.insert(&one.who, at + Duration::from_secs(seconds));
        }
    }
}
