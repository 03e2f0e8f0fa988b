//! The replaced functions, called as C programs call them.

#![expect(unsafe_code, reason = "calls functions of the C library")]

use std::collections::HashSet;
use std::ffi::{c_int, c_void};
use std::io::Error;
use std::ptr;

use informer_virtual::{Misuse, jump_wall_clock, set_elapsed, take_misuse};
use libc::{clockid_t, size_t, timespec, timeval};

use crate::{HOUR, WALL, on_new_thread, simulate};

const MONOTONIC: [clockid_t; 5] = [
    libc::CLOCK_MONOTONIC,
    libc::CLOCK_MONOTONIC_RAW,
    libc::CLOCK_MONOTONIC_COARSE,
    libc::CLOCK_BOOTTIME,
    libc::CLOCK_BOOTTIME_ALARM,
];
const WALL_CLOCKS: [clockid_t; 4] =
    [libc::CLOCK_REALTIME, libc::CLOCK_REALTIME_COARSE, libc::CLOCK_REALTIME_ALARM, libc::CLOCK_TAI];
const CPU: [clockid_t; 2] = [libc::CLOCK_PROCESS_CPUTIME_ID, libc::CLOCK_THREAD_CPUTIME_ID];
const UNKNOWN: clockid_t = 1000;

// Not in the crate `libc` for musl.
// SAFETY: the signature of the function in the C library.
unsafe extern "C" {
    fn getentropy(buffer: *mut c_void, length: size_t) -> c_int;
}

fn read(id: clockid_t) -> Result<(i64, i64), i32> {
    let mut time = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid for a write.
    let result = unsafe { libc::clock_gettime(id, &raw mut time) };
    if result == 0 { Ok((time.tv_sec, time.tv_nsec)) } else { Err(errno()) }
}

fn errno() -> i32 {
    Error::last_os_error().raw_os_error().unwrap_or_default()
}

fn seconds() -> i64 {
    WALL.as_secs().cast_signed()
}

#[test]
fn clocks_belong_to_one_of_two_virtual_times() {
    simulate(0, || {
        let start = read(libc::CLOCK_MONOTONIC).unwrap();
        set_elapsed(HOUR);
        jump_wall_clock(5);
        for id in MONOTONIC {
            assert_eq!(read(id), Ok((start.0 + 3600, start.1)), "clock {id}");
        }
        for id in WALL_CLOCKS {
            assert_eq!(read(id), Ok((seconds() + 3600, 5)), "clock {id}");
        }
    });
}

#[test]
fn cpu_time_is_real() {
    simulate(0, || {
        for id in CPU {
            let start = read(id).unwrap();
            while read(id) == Ok(start) {}
            assert!(read(id).unwrap().0 < 3600, "clock {id}");
        }
    });
}

#[test]
fn unknown_clock_is_an_error_on_every_thread() {
    assert_eq!(read(UNKNOWN), Err(libc::EINVAL));
    assert_eq!(simulate(0, || read(UNKNOWN)), Err(libc::EINVAL));
}

#[test]
fn gettimeofday_and_time_read_the_wall_clock() {
    let check = |expected: &dyn Fn(i64) -> bool| {
        let (mut time, mut copy) = (timeval { tv_sec: 0, tv_usec: 0 }, 0);
        // SAFETY: the pointers are valid for writes.
        let (result, now) =
            unsafe { (libc::gettimeofday(&raw mut time, ptr::null_mut()), libc::time(&raw mut copy)) };
        assert_eq!((result, now), (0, copy));
        assert!(expected(time.tv_sec) && expected(now), "{} {now}", time.tv_sec);
        time.tv_usec
    };
    let micros = simulate(0, || {
        jump_wall_clock(123_456_789);
        check(&|now| now == seconds())
    });
    assert_eq!(micros, 123_456);
    check(&|now| now > seconds() + 3_600_000);
}

#[test]
fn getentropy_and_getrandom_follow_the_seed() {
    let draw = || {
        let mut bytes = [[0_u8; 40]; 2];
        // SAFETY: the pointers are valid for writes of the length.
        let results = unsafe {
            let [first, second] = &mut bytes;
            (getentropy(first.as_mut_ptr().cast(), 40), libc::getrandom(second.as_mut_ptr().cast(), 40, 0))
        };
        assert_eq!(results, (0, 40));
        bytes
    };
    assert_eq!(simulate(1, draw), simulate(1, draw));
    let draws: HashSet<_> =
        [simulate(1, draw), simulate(2, draw), on_new_thread(draw), draw()].into_iter().flatten().collect();
    assert_eq!(draws.len(), 8);
}

#[test]
fn getentropy_refuses_long_buffers() {
    let check = || {
        let mut bytes = [0_u8; 257];
        // SAFETY: the pointer is valid for writes of the length.
        assert_eq!(unsafe { getentropy(bytes.as_mut_ptr().cast(), bytes.len()) }, -1);
        assert_eq!((errno(), bytes), (libc::EIO, [0; 257]));
    };
    check();
    simulate(0, check);
}

#[test]
fn sleeps_are_recorded() {
    simulate(0, || {
        let hour = timespec { tv_sec: 3600, tv_nsec: 0 };
        let (now, _) = read(libc::CLOCK_MONOTONIC).unwrap();
        let deadline = timespec { tv_sec: now + 7200, tv_nsec: 0 };
        let sleep = |id, flags, time: &timespec| {
            // SAFETY: the pointer is valid for a read, and null is allowed.
            unsafe { libc::clock_nanosleep(id, flags, time, ptr::null_mut()) }
        };
        // SAFETY: the pointer is valid for a read, and null is allowed.
        assert_eq!(unsafe { libc::nanosleep(&raw const hour, ptr::null_mut()) }, 0);
        assert_eq!(sleep(libc::CLOCK_REALTIME, 0, &hour), 0);
        assert_eq!(sleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &deadline), 0);
        assert_eq!(take_misuse(), [Misuse::Slept(HOUR), Misuse::Slept(HOUR), Misuse::Slept(2 * HOUR)]);
        let invalid = timespec { tv_sec: 0, tv_nsec: 1_000_000_000 };
        assert_eq!(sleep(libc::CLOCK_MONOTONIC, 0, &invalid), libc::EINVAL);
        assert_eq!(sleep(UNKNOWN, 0, &hour), libc::EINVAL);
        assert_eq!(take_misuse(), []);
    });
}

#[test]
fn sleeps_of_real_threads_return_the_errors_of_the_system() {
    let invalid = timespec { tv_sec: 0, tv_nsec: 1_000_000_000 };
    // SAFETY: the pointers are valid for reads, and null is allowed.
    unsafe {
        assert_eq!(libc::nanosleep(&raw const invalid, ptr::null_mut()), -1);
        assert_eq!(errno(), libc::EINVAL);
        let result = libc::clock_nanosleep(libc::CLOCK_MONOTONIC, 0, &raw const invalid, ptr::null_mut());
        assert_eq!(result, libc::EINVAL);
    }
}
