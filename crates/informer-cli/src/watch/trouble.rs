//! When an informer is in trouble, and when that ends: one line for each reason, however often it tries again meanwhile.
//!
//! Time is a parameter. A connection that is made anew at once is no trouble; only one that stays behind for a while is told.

use crate::failure::{has_answered, hint};
use informer::State;
use std::time::Duration;

/// How long a cache may be behind before that is told.
const PATIENCE: Duration = Duration::from_secs(3);
/// So many reasons are told of one trouble.
const MOST_REASONS: usize = 5;

/// What was told about one informer.
#[derive(Debug, Default)]
pub(crate) struct Trouble {
    told: Option<(Kind, Duration)>,
    /// The reasons that were told since it was well.
    reasons: Vec<String>,
    /// Since when it has not been well.
    since: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Forbidden,
    NotServed,
    Failing,
    Behind,
}

/// Something to tell.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum News {
    Begins(String),
    Ends(String),
}

impl Trouble {
    /// Looks at a state; `now` counts from any beginning, `synced` says whether there is a cache to be behind.
    pub(crate) fn look(&mut self, now: Duration, state: &State, synced: bool) -> Option<News> {
        let (kind, because) = match state {
            State::Live => return self.well(now),
            State::Forbidden { because } => (Kind::Forbidden, because.to_string()),
            State::NotServed { because } => (Kind::NotServed, because.to_string()),
            State::BackingOff { because, .. } => (Kind::Failing, because.to_string()),
            _ => (Kind::Behind, String::new()),
        };
        let since = *self.since.get_or_insert(now);
        // Trying again is no news, and behind is what everything else is too.
        let known = self.told.map(|(told, _)| told);
        if (known == Some(kind) && !self.is_new(&because))
            || (kind == Kind::Behind && (known.is_some() || !synced || now < since + PATIENCE))
        {
            return None;
        }
        let begun = self.told.map_or(since, |(_, begun)| begun);
        self.told = Some((kind, begun));
        self.reasons.push(because.clone());
        let what = match kind {
            Kind::Forbidden => format!("forbidden: {because}"),
            Kind::NotServed => format!("not served: {because}"),
            Kind::Failing if has_answered(&because) => format!("the server fails: {because}"),
            Kind::Failing => format!("not reached: {because}"),
            Kind::Behind => "the connection is lost; what is shown may be old".to_owned(),
        };
        // The reason may say already what to look at.
        let hint = if because.contains('?') { "" } else { hint(state) };
        Some(News::Begins(if hint.is_empty() { what } else { format!("{what} ({hint})") }))
    }

    /// Whether a reason was not told yet; after a few it changes with every attempt, and says nothing new.
    fn is_new(&self, because: &str) -> bool {
        self.reasons.len() < MOST_REASONS && !self.reasons.iter().any(|told| told == because)
    }

    fn well(&mut self, now: Duration) -> Option<News> {
        self.since = None;
        self.reasons.clear();
        let (_, begun) = self.told.take()?;
        Some(News::Ends(format!("live again after {}", super::span(now.saturating_sub(begun)))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use informer::Moment;

    fn forbidden() -> State {
        State::Forbidden { because: "no".into() }
    }

    fn failing(because: &str) -> State {
        State::BackingOff { until: Moment::default(), because: because.into() }
    }

    #[track_caller]
    fn check(script: &[(u64, State, &str)]) {
        let mut trouble = Trouble::default();
        for (second, state, expected) in script {
            let told = match trouble.look(Duration::from_secs(*second), state, true) {
                Some(News::Begins(text)) => format!("! {text}"),
                Some(News::Ends(text)) => text,
                None => String::new(),
            };
            assert!(told.starts_with(expected) && told.is_empty() == expected.is_empty(), "{second}: {told}");
        }
    }

    #[test]
    fn trouble_is_told_once_when_it_begins_and_once_when_it_ends() {
        check(&[
            (0, State::Connecting, ""),
            (1, failing("refused"), "! not reached: refused (is the server up"),
            (2, State::Connecting, ""),
            (3, failing("refused"), ""),
            (4, forbidden(), "! forbidden: no (the user needs the verbs list and watch"),
            (5, forbidden(), ""),
            (10, State::Live, "live again after 10s"),
            (11, State::Live, ""),
        ]);
    }

    /// A refused connection was told, and the credentials that had expired meanwhile were not.
    #[test]
    fn a_new_reason_is_news() {
        check(&[
            (1, failing("refused"), "! not reached: refused"),
            (2, failing("401 Unauthorized: no"), "! the server fails: 401 Unauthorized: no"),
            (3, failing("refused"), ""),
            (4, failing("401 Unauthorized: no"), ""),
            (5, State::Live, "live again"),
            (6, failing("refused"), "! not reached: refused"),
        ]);
        let mut trouble = Trouble::default();
        let told = (0..100).filter(|second| {
            let state = failing(&format!("from port {second}"));
            trouble.look(Duration::from_secs(*second), &state, true).is_some()
        });
        assert_eq!(told.count(), MOST_REASONS);
    }

    #[test]
    fn a_server_that_answers_is_reached() {
        check(&[(0, failing("500 InternalError: no"), "! the server fails: 500 InternalError: no")]);
    }

    #[test]
    fn a_short_gap_is_no_news() {
        let stale = || State::Stale { since: Moment::default() };
        check(&[
            (0, State::Live, ""),
            (1, stale(), ""),
            (2, State::Live, ""),
            (10, stale(), ""),
            (14, stale(), "! the connection is lost"),
            (15, State::Live, "live again after 5s"),
        ]);
    }
}
