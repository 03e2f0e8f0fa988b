//! Random sequences of faults.
//!
//! For given settings, the seed determines each fault, its start and its duration. `Schedule::run`, which
//! applies a sequence to a server, is in `server/schedule.rs`.

use std::time::Duration;

use super::{FaultRule, library};
use crate::log::Verb;
use crate::random::Random;

/// One fault of a schedule.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ScheduledFault {
    /// The start, relative to the start of the schedule.
    pub start: Duration,
    /// The rule.
    pub rule: FaultRule,
    /// The time for which the rule is active.
    pub duration: Duration,
}

/// An endless random sequence of faults, which may overlap.
///
/// Schedules with equal seeds and settings produce equal sequences. Use a schedule as an iterator, or let
/// [`Schedule::run`] apply it to a server.
///
/// ```
/// use std::time::Duration;
///
/// use informer_apiserver::{ApiServer, faults::Schedule};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let starts = |seed| Schedule::seeded(seed).take(10).map(|fault| fault.start).collect::<Vec<_>>();
/// assert_eq!(starts(7), starts(7));
/// assert_ne!(starts(7), starts(8));
///
/// let server = ApiServer::new();
/// let faults = Schedule::seeded(7).for_resource("pods").run(&server, Duration::from_secs(120));
/// let client = async { /* the client under test */ };
/// tokio::join!(faults, client);
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Schedule {
    rng: Random,
    /// Plural name of the resource to which the rules are restricted; `None` for all resources.
    plural: Option<String>,
    /// Upper bound on the time between the starts of two consecutive faults.
    max_gap: Duration,
    /// Start of the fault that was returned last.
    last_start: Duration,
}

impl Schedule {
    /// Creates the sequence that `seed` determines.
    pub fn seeded(seed: u64) -> Self {
        Schedule {
            rng: Random::new(seed),
            plural: None,
            max_gap: Duration::from_secs(20),
            last_start: Duration::ZERO,
        }
    }

    /// Restricts all rules to one resource, given by its plural name.
    #[must_use]
    pub fn for_resource(self, plural: &str) -> Self {
        Schedule { plural: Some(plural.to_owned()), ..self }
    }

    /// Sets the upper bound on the time between the starts of two consecutive faults. Defaults to 20 s.
    #[must_use]
    pub fn max_gap(self, max_gap: Duration) -> Self {
        Schedule { max_gap, ..self }
    }

    fn random_rule(&mut self) -> FaultRule {
        let millis = |rng: &mut Random, max: u64| Duration::from_millis(rng.below(max));
        let rng = &mut self.rng;
        // Has no effect on rules that act on requests.
        let after_frames = usize::try_from(rng.below(6)).unwrap_or(0);
        let rule = match rng.below(22) {
            0 => library::respond(500),
            1 => library::respond(503).retry_after(1 + u32::try_from(rng.below(4)).unwrap_or(0)),
            2 => library::respond(504),
            3 => library::too_many_requests(1 + u32::try_from(rng.below(5)).unwrap_or(0)),
            4 => library::gone(),
            5 => library::gone().for_verb(Verb::List),
            6 => library::respond(403),
            7 => library::respond_with(200, "<html>please log in</html>"),
            8 => library::delay(millis(rng, 20_000)),
            9 => library::delay(millis(rng, 5_000)).for_verb(Verb::List),
            10 => library::stall_request(),
            11 => library::drop_connection(),
            12 => {
                let rule = library::truncate(usize::try_from(rng.below(3_000)).unwrap_or(0));
                [rule.clone(), rule.clone().with_clean_end(), rule.without_end()][rng.index_below(3)].clone()
            }
            13 => library::stale_read().lag_writes(1 + rng.below(20)),
            14 => library::malformed_object(),
            15 => library::frame_without_object(),
            16 => {
                [library::break_watch(), library::break_watch().with_clean_end()][rng.index_below(2)].clone()
            }
            17 => library::break_mid_frame(),
            18 => library::half_open(),
            19 => [library::stall_watch(), library::error_frame(500)][rng.index_below(2)].clone(),
            20 => [library::refuse_watch_list(), library::endless_watch_list()][rng.index_below(2)].clone(),
            // `after_frames` serves as a random number here.
            _ => library::duplicate_frame().frames(1 + after_frames),
        };
        let rule = rule.after_frames(after_frames);
        // Always drawn, even if unused: drawing it only when needed would change the sequences that existing
        // seeds produce.
        let seed = rng.below(u64::MAX);
        let rule = match rng.below(4) {
            0 => rule.max_hits(1 + rng.below(3)),
            1 => rule.probability_percent(20 + u8::try_from(rng.below(60)).unwrap_or(0), seed),
            2 => rule.skip_first(rng.below(3)),
            _ => rule,
        };
        match &self.plural {
            Some(plural) => rule.for_resource(plural),
            None => rule,
        }
    }
}

impl Iterator for Schedule {
    type Item = ScheduledFault;

    fn next(&mut self) -> Option<ScheduledFault> {
        let max_gap = u64::try_from(self.max_gap.as_millis()).unwrap_or(u64::MAX);
        self.last_start += Duration::from_millis(1 + self.rng.below(max_gap));
        let rule = self.random_rule();
        let duration = Duration::from_millis(100 + self.rng.below(30_000));
        Some(ScheduledFault { start: self.last_start, rule, duration })
    }
}
