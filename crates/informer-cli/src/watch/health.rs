//! Reports failures of an informer and its recovery: one line for each reason, however often the informer
//! retries.
//!
//! Time is a parameter. A connection that is restored quickly is not reported.

use crate::cli_error::hint;
use informer::status::InformerState;
use std::time::Duration;

/// Time for which a cache may be stale before that is reported.
const STALE_TIMEOUT: Duration = Duration::from_secs(3);
/// Upper bound on reported reasons until recovery.
const MAX_REASONS: usize = 5;

/// The failures that have been reported about one informer.
#[derive(Debug, Default)]
pub(crate) struct HealthReporter {
    /// The kind of the last reported failure, and when the failures began.
    reported: Option<(Kind, Duration)>,
    /// Reasons reported since the informer was last healthy.
    reasons: Vec<String>,
    /// Time since which the informer has not been healthy.
    since: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Forbidden,
    NotServed,
    Failing,
    Stale,
}

/// A change to report.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HealthChange {
    Started(String),
    Ended(String),
}

impl HealthReporter {
    /// Processes a state. `now` counts from an arbitrary start; `staleness` is the time since the cache was last
    /// up to date, `None` while there is no cache that could be stale.
    pub(crate) fn observe(
        &mut self,
        now: Duration,
        state: &InformerState,
        staleness: Option<Duration>,
    ) -> Option<HealthChange> {
        let (kind, reason) = match state {
            InformerState::Live => return self.recovered(now),
            InformerState::Forbidden { failure } => (Kind::Forbidden, failure.message()),
            InformerState::NotServed { failure } => (Kind::NotServed, failure.message()),
            InformerState::BackingOff { failure, .. } => (Kind::Failing, failure.message()),
            _ => (Kind::Stale, ""),
        };
        let since = *self.since.get_or_insert(now);
        // Retries for the same reason are not reported, nor staleness that another failure explains.
        let known = self.reported.map(|(kind, _)| kind);
        if (known == Some(kind) && !self.is_new(reason))
            || (kind == Kind::Stale
                && (known.is_some() || staleness.is_none() || now < since + STALE_TIMEOUT))
        {
            return None;
        }
        // A dead connection is noticed late: the outage began when the cache was last up to date.
        let began = staleness.map_or(since, |staleness| now.saturating_sub(staleness).min(since));
        let started = self.reported.map_or(began, |(_, started)| started);
        self.reported = Some((kind, started));
        self.reasons.push(reason.to_owned());
        let message = match kind {
            Kind::Forbidden => format!("forbidden: {reason}"),
            Kind::NotServed => format!("not served: {reason}"),
            Kind::Failing if has_response(state) => format!("request failed: {reason}"),
            Kind::Failing => format!("unreachable: {reason}"),
            Kind::Stale => "connection lost; printed objects may be stale".to_owned(),
        };
        let hint = hint(state);
        Some(HealthChange::Started(if hint.is_empty() { message } else { format!("{message} ({hint})") }))
    }

    /// Whether a reason should be reported. A reason may differ with every attempt, so that only the first
    /// [`MAX_REASONS`] are reported.
    fn is_new(&self, reason: &str) -> bool {
        self.reasons.len() < MAX_REASONS && !self.reasons.iter().any(|reported| reported == reason)
    }

    fn recovered(&mut self, now: Duration) -> Option<HealthChange> {
        self.since = None;
        self.reasons.clear();
        let (_, started) = self.reported.take()?;
        Some(HealthChange::Ended(format!("live again after {}", super::span(now.saturating_sub(started)))))
    }
}

/// Whether the server responded to the failed request.
fn has_response(state: &InformerState) -> bool {
    matches!(state, InformerState::BackingOff { failure, .. } if failure.status_code().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use informer::source::classify;
    use informer::status::{Failure, FailureKind, Moment};

    fn forbidden() -> InformerState {
        InformerState::Forbidden { failure: Failure::new(FailureKind::Forbidden, "no") }
    }

    fn failing(message: &str) -> InformerState {
        let failure = Failure::new(FailureKind::Connect, message);
        InformerState::BackingOff { until: Moment::default(), failure }
    }

    fn rejected(code: u16, reason: &str) -> InformerState {
        let status = kube::core::Status::failure("no", reason).with_code(code);
        let failure = classify(&kube::Error::Api(Box::new(status)));
        InformerState::BackingOff { until: Moment::default(), failure }
    }

    #[track_caller]
    fn check(script: &[(u64, InformerState, &str)]) {
        let mut reporter = HealthReporter::default();
        for (second, state, expected) in script {
            let text = match reporter.observe(Duration::from_secs(*second), state, Some(Duration::ZERO)) {
                Some(HealthChange::Started(text)) => format!("! {text}"),
                Some(HealthChange::Ended(text)) => text,
                None => String::new(),
            };
            assert!(text.starts_with(expected) && text.is_empty() == expected.is_empty(), "{second}: {text}");
        }
    }

    #[test]
    fn failure_is_reported_at_start_and_end() {
        check(&[
            (0, InformerState::Connecting, ""),
            (1, failing("refused"), "! unreachable: refused"),
            (2, InformerState::Connecting, ""),
            (3, failing("refused"), ""),
            (4, forbidden(), "! forbidden: no (the user needs permission to list and watch"),
            (5, forbidden(), ""),
            (10, InformerState::Live, "live again after 10s"),
            (11, InformerState::Live, ""),
        ]);
    }

    /// Regression: after a refused connection, credentials that had expired in the meantime were not reported.
    #[test]
    fn new_reason_is_reported() {
        check(&[
            (1, failing("refused"), "! unreachable: refused"),
            (2, rejected(401, "Unauthorized"), "! request failed: 401 Unauthorized: no"),
            (3, failing("refused"), ""),
            (4, rejected(401, "Unauthorized"), ""),
            (5, InformerState::Live, "live again"),
            (6, failing("refused"), "! unreachable: refused"),
        ]);
        let mut reporter = HealthReporter::default();
        let lines = (0..100).filter(|second| {
            let state = failing(&format!("from port {second}"));
            reporter.observe(Duration::from_secs(*second), &state, Some(Duration::ZERO)).is_some()
        });
        assert_eq!(lines.count(), MAX_REASONS);
    }

    #[test]
    fn response_with_error_is_not_unreachable() {
        check(&[(0, rejected(500, "InternalError"), "! request failed: 500 InternalError: no")]);
    }

    #[test]
    fn short_interruption_is_not_reported() {
        let stale = || InformerState::Stale { since: Moment::default() };
        check(&[
            (0, InformerState::Live, ""),
            (1, stale(), ""),
            (2, InformerState::Live, ""),
            (10, stale(), ""),
            (14, stale(), "! connection lost"),
            (15, InformerState::Live, "live again after 5s"),
        ]);
    }

    /// Regression: a server that had stopped responding was noticed after minutes, and the outage was reported
    /// as "live again after 15s".
    #[test]
    fn outage_begins_when_the_cache_was_last_up_to_date() {
        let mut reporter = HealthReporter::default();
        let second = Duration::from_secs;
        reporter.observe(second(100), &failing("no response"), Some(second(65)));
        let change = reporter.observe(second(115), &InformerState::Live, Some(Duration::ZERO));
        assert_eq!(change, Some(HealthChange::Ended("live again after 80s".to_owned())));
    }
}
