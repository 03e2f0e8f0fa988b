//! The state of a thread: whether it is simulated, its clocks, its random generator, and its misuses.
//!
//! The functions of `symbols` call this code anywhere, also in signal handlers and while a thread ends. So it neither
//! allocates nor panics, and the state needs no initialization and no destructor. It must not know the C library.

use std::cell::Cell;
use std::time::Duration;

use crate::{MAX_MISUSES, Misuse};

/// The time of the monotonic clock at the start of a simulation.
///
/// It is fixed, so that all runs see equal `Instant`s, and large enough for programs that subtract days from it. It is
/// later than the real clock of any machine, so that the deadline of a blocking wait, which the kernel compares with the
/// real clock, does not depend on how long the machine has been running: the wait never times out.
const MONOTONIC_START: Duration = Duration::from_secs(1_000_000_000);

const NANOSECONDS_PER_SECOND: i128 = 1_000_000_000;

thread_local! {
    pub(crate) static STATE: State = const { State::new() };
}

/// A clock that a simulation replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clock {
    Monotonic,
    Wall,
}

/// The time of a clock, as the C library represents it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Time {
    pub(crate) seconds: i64,
    /// At least 0 and less than a second, also in times before the epoch.
    pub(crate) nanoseconds: i64,
}

impl Time {
    fn from_nanoseconds(nanoseconds: i128) -> Self {
        let seconds = nanoseconds.div_euclid(NANOSECONDS_PER_SECOND);
        let limit = if seconds < 0 { i64::MIN } else { i64::MAX };
        let rest = nanoseconds.rem_euclid(NANOSECONDS_PER_SECOND);
        Self {
            seconds: i64::try_from(seconds).unwrap_or(limit),
            nanoseconds: i64::try_from(rest).unwrap_or_default(),
        }
    }

    /// Returns the time from another time to this one, or zero if this one is earlier.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        let nanoseconds = |time: Self| {
            i128::from(time.seconds)
                .wrapping_mul(NANOSECONDS_PER_SECOND)
                .wrapping_add(i128::from(time.nanoseconds))
        };
        let since = nanoseconds(self).wrapping_sub(nanoseconds(earlier)).max(0);
        let seconds = u64::try_from(since / NANOSECONDS_PER_SECOND).unwrap_or(u64::MAX);
        Duration::new(seconds, u32::try_from(since % NANOSECONDS_PER_SECOND).unwrap_or_default())
    }
}

pub(crate) struct State {
    is_simulated: Cell<bool>,
    wall: Cell<Duration>,
    elapsed: Cell<Duration>,
    jump_nanoseconds: Cell<i128>,
    /// The state of the generator, `SplitMix64`.
    random: Cell<u64>,
    has_drawn: Cell<bool>,
    /// The earliest misuses, without gaps.
    misuses: Cell<[Option<Misuse>; MAX_MISUSES]>,
}

impl State {
    const fn new() -> Self {
        Self {
            is_simulated: Cell::new(false),
            wall: Cell::new(Duration::ZERO),
            elapsed: Cell::new(Duration::ZERO),
            jump_nanoseconds: Cell::new(0),
            random: Cell::new(0),
            has_drawn: Cell::new(false),
            misuses: Cell::new([None; MAX_MISUSES]),
        }
    }

    pub(crate) fn start(&self, seed: u64, wall: Duration) {
        self.wall.set(wall);
        self.elapsed.set(Duration::ZERO);
        self.jump_nanoseconds.set(0);
        self.random.set(seed);
        self.has_drawn.set(false);
        self.misuses.set([None; MAX_MISUSES]);
        self.is_simulated.set(true);
    }

    pub(crate) fn stop(&self) {
        self.is_simulated.set(false);
    }

    pub(crate) fn is_simulated(&self) -> bool {
        self.is_simulated.get()
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.elapsed.get()
    }

    pub(crate) fn set_elapsed(&self, elapsed: Duration) {
        self.elapsed.set(elapsed);
    }

    pub(crate) fn jump(&self, nanoseconds: i64) {
        self.jump_nanoseconds.set(self.jump_nanoseconds.get().saturating_add(i128::from(nanoseconds)));
    }

    /// Returns whether random bytes were drawn in the simulation.
    pub(crate) fn has_drawn(&self) -> bool {
        self.has_drawn.get()
    }

    pub(crate) fn now(&self, clock: Clock) -> Time {
        let start = match clock {
            Clock::Monotonic => nanoseconds(MONOTONIC_START),
            Clock::Wall => nanoseconds(self.wall.get()).saturating_add(self.jump_nanoseconds.get()),
        };
        Time::from_nanoseconds(start.saturating_add(nanoseconds(self.elapsed.get())))
    }

    /// Fills a buffer with random bytes. The bytes depend on the seed and on the lengths of the calls before.
    pub(crate) fn fill(&self, buffer: &mut [u8]) {
        self.has_drawn.set(true);
        for chunk in buffer.chunks_mut(size_of::<u64>()) {
            for (target, byte) in chunk.iter_mut().zip(self.draw().to_le_bytes()) {
                *target = byte;
            }
        }
    }

    /// Returns the next number of `SplitMix64`.
    fn draw(&self) -> u64 {
        let state = self.random.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.random.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Records a misuse, unless there are [`MAX_MISUSES`] already.
    pub(crate) fn record(&self, misuse: Misuse) {
        let mut misuses = self.misuses.get();
        if let Some(free) = misuses.iter_mut().find(|slot| slot.is_none()) {
            *free = Some(misuse);
        }
        self.misuses.set(misuses);
    }

    pub(crate) fn take_misuses(&self) -> [Option<Misuse>; MAX_MISUSES] {
        self.misuses.replace([None; MAX_MISUSES])
    }
}

fn nanoseconds(duration: Duration) -> i128 {
    i128::try_from(duration.as_nanos()).unwrap_or(i128::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_wall(wall: Duration, elapsed: Duration, jump: i64, expected: (i64, i64)) {
        let state = State::new();
        state.start(0, wall);
        state.set_elapsed(elapsed);
        state.jump(jump);
        let (seconds, nanoseconds) = expected;
        assert_eq!(state.now(Clock::Wall), Time { seconds, nanoseconds });
    }

    #[test]
    fn wall_clock_is_exact_and_saturates() {
        let nanosecond = Duration::from_nanos(1);
        check_wall(Duration::ZERO, Duration::ZERO, 0, (0, 0));
        check_wall(Duration::new(5, 999_999_999), nanosecond, 0, (6, 0));
        check_wall(Duration::new(5, 0), Duration::new(1, 7), -2_000_000_000, (4, 7));
        check_wall(Duration::ZERO, Duration::ZERO, -1, (-1, 999_999_999));
        check_wall(Duration::ZERO, Duration::ZERO, i64::MIN, (-9_223_372_037, 145_224_192));
        check_wall(Duration::MAX, Duration::MAX, i64::MAX, (i64::MAX, 854_775_805));
    }

    #[test]
    fn time_since_later_time_is_zero() {
        let time = |seconds, nanoseconds| Time { seconds, nanoseconds };
        assert_eq!(time(3, 1).since(time(1, 2)), Duration::new(1, 999_999_999));
        assert_eq!(time(1, 2).since(time(3, 1)), Duration::ZERO);
        assert_eq!(time(i64::MAX, 0).since(time(i64::MIN, 0)), Duration::from_secs(u64::MAX));
    }

    /// Compares with the numbers of the reference implementation for seed 0. Each call starts with a new number.
    #[test]
    fn random_bytes_are_those_of_splitmix64() {
        let state = State::new();
        state.start(0, Duration::ZERO);
        assert!(!state.has_drawn());
        let mut buffer = [0; 18];
        state.fill(&mut buffer);
        assert!(state.has_drawn());
        assert_eq!(buffer[..8], 0xe220_a839_7b1d_cdaf_u64.to_le_bytes());
        assert_eq!(buffer[8..16], 0x6e78_9e6a_a1b9_65f4_u64.to_le_bytes());
        assert_eq!(buffer[16..], 0x06c4_5d18_8009_454f_u64.to_le_bytes()[..2]);
        state.fill(&mut buffer[..1]);
        assert_eq!(buffer[0], 0xf88b_b8a8_724c_81ec_u64.to_le_bytes()[0]);
    }

    #[test]
    fn earliest_misuses_are_kept() {
        let state = State::new();
        let slept = |count: usize| Misuse::Slept(Duration::from_secs(count as u64));
        (0..=MAX_MISUSES).for_each(|count| state.record(slept(count)));
        assert_eq!(state.take_misuses(), std::array::from_fn(|count| Some(slept(count))));
        assert_eq!(state.take_misuses(), [None; MAX_MISUSES]);
    }
}
