//! The functions of the C library that a simulation replaces.
//!
//! Each function reads the state of the thread and makes the system call if the thread is not simulated. Signatures and
//! results are those of the C library. The functions neither allocate nor panic: a panic would abort the process.
//! What a simulated thread sees is decided in `state`.

#![expect(unsafe_code, reason = "replaces functions of the C library")]

use std::ffi::{c_int, c_uint, c_void};
use std::time::Duration;

use libc::{clockid_t, size_t, ssize_t, timespec, timeval};

use crate::Misuse;
use crate::state::{Clock, STATE, State, Time};

/// Upper bound on the bytes of a call of `getentropy`, from its manual page.
const MAX_ENTROPY_BYTES: usize = 256;

/// Reads a clock.
///
/// # Safety
///
/// `time` is null or valid for a write.
// SAFETY: the name and the signature are those of the function of the C library that it replaces.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn clock_gettime(id: clockid_t, time: *mut timespec) -> c_int {
    let Some(now) = replaced(id).and_then(simulated_time) else {
        // SAFETY: the system call has the parameters of this function.
        return to_int(unsafe { libc::syscall(libc::SYS_clock_gettime, id, time) });
    };
    if time.is_null() {
        return fail(libc::EFAULT);
    }
    // SAFETY: not null, so valid for a write according to the contract of this function.
    unsafe { time.write(timespec { tv_sec: now.seconds, tv_nsec: now.nanoseconds }) };
    0
}

/// Reads the wall clock in microseconds.
///
/// # Safety
///
/// `time` and `zone` are null or valid for writes.
// SAFETY: the name and the signature are those of the function of the C library that it replaces.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn gettimeofday(time: *mut timeval, zone: *mut c_void) -> c_int {
    let Some(now) = simulated_time(Clock::Wall) else {
        // SAFETY: the system call has the parameters of this function.
        return to_int(unsafe { libc::syscall(libc::SYS_gettimeofday, time, zone) });
    };
    if !time.is_null() {
        // SAFETY: not null, so valid for a write according to the contract of this function.
        unsafe { time.write(timeval { tv_sec: now.seconds, tv_usec: now.nanoseconds / 1000 }) };
    }
    0
}

/// Reads the wall clock in seconds.
///
/// # Safety
///
/// `time` is null or valid for a write.
// SAFETY: the name and the signature are those of the function of the C library that it replaces. `time_t` has 64 bits.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn time(time: *mut i64) -> i64 {
    let seconds = simulated_time(Clock::Wall).map_or_else(real_seconds, |now| now.seconds);
    if !time.is_null() {
        // SAFETY: not null, so valid for a write according to the contract of this function.
        unsafe { time.write(seconds) };
    }
    seconds
}

/// Fills a buffer with random bytes.
///
/// # Safety
///
/// `buffer` is valid for writes of `length` bytes.
// SAFETY: the name and the signature are those of the function of the C library that it replaces.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn getrandom(buffer: *mut c_void, length: size_t, flags: c_uint) -> ssize_t {
    if !STATE.with(State::is_simulated) {
        // SAFETY: the system call has the parameters of this function.
        let result = unsafe { libc::syscall(libc::SYS_getrandom, buffer, length, flags) };
        return ssize_t::try_from(result).unwrap_or(-1);
    }
    let Ok(filled) = ssize_t::try_from(length) else { return fail(libc::EFAULT) };
    if length == 0 {
        return 0;
    }
    if buffer.is_null() {
        return fail(libc::EFAULT);
    }
    // SAFETY: not null, not longer than `isize::MAX`, and valid for writes according to the contract of this function.
    // Its bytes may be uninitialized, so they are set before there is a reference to them.
    let buffer = unsafe {
        buffer.cast::<u8>().write_bytes(0, length);
        std::slice::from_raw_parts_mut(buffer.cast::<u8>(), length)
    };
    STATE.with(|state| state.fill(buffer));
    filled
}

/// Fills a buffer of at most 256 bytes with random bytes.
///
/// # Safety
///
/// `buffer` is valid for writes of `length` bytes.
// SAFETY: the name and the signature are those of the function of the C library that it replaces.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn getentropy(buffer: *mut c_void, length: size_t) -> c_int {
    if length > MAX_ENTROPY_BYTES {
        return fail(libc::EIO);
    }
    let mut filled = 0;
    while filled < length {
        // SAFETY: the rest of the buffer is valid for writes according to the contract of this function.
        let result = unsafe { getrandom(buffer.wrapping_byte_add(filled), length.wrapping_sub(filled), 0) };
        match usize::try_from(result) {
            Ok(0) => return fail(libc::EIO),
            Ok(count) => filled = filled.saturating_add(count),
            Err(_) if errno() == libc::EINTR => {}
            Err(_) => return -1,
        }
    }
    0
}

/// Sleeps, except on a simulated thread.
///
/// # Safety
///
/// `duration` is null or valid for a read, `remaining` null or valid for a write.
// SAFETY: the name and the signature are those of the function of the C library that it replaces.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nanosleep(duration: *const timespec, remaining: *mut timespec) -> c_int {
    if !STATE.with(State::is_simulated) {
        // SAFETY: the system call has the parameters of this function.
        return to_int(unsafe { libc::syscall(libc::SYS_nanosleep, duration, remaining) });
    }
    // SAFETY: null or valid according to the contract of this function.
    match unsafe { read(duration) } {
        Ok(duration) => {
            record_sleep(duration.since(Time { seconds: 0, nanoseconds: 0 }));
            0
        }
        Err(code) => fail(code),
    }
}

/// Sleeps for a time or until a time, except on a simulated thread. Returns the code of an error.
///
/// # Safety
///
/// `time` is null or valid for a read, `remaining` null or valid for a write.
// SAFETY: the name and the signature are those of the function of the C library that it replaces.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn clock_nanosleep(
    id: clockid_t,
    flags: c_int,
    time: *const timespec,
    remaining: *mut timespec,
) -> c_int {
    let Some(now) = replaced(id).and_then(simulated_time) else {
        // SAFETY: the system call has the parameters of this function.
        let result = unsafe { libc::syscall(libc::SYS_clock_nanosleep, id, flags, time, remaining) };
        return if result == 0 { 0 } else { errno() };
    };
    let is_absolute = flags & libc::TIMER_ABSTIME != 0;
    let start = if is_absolute { now } else { Time { seconds: 0, nanoseconds: 0 } };
    // SAFETY: null or valid according to the contract of this function.
    match unsafe { read(time) } {
        Ok(time) => {
            record_sleep(time.since(start));
            0
        }
        Err(code) => code,
    }
}

/// Returns the clock that replaces a clock of the system, or none for clocks of CPU time and unknown clocks.
fn replaced(id: clockid_t) -> Option<Clock> {
    match id {
        libc::CLOCK_MONOTONIC
        | libc::CLOCK_MONOTONIC_RAW
        | libc::CLOCK_MONOTONIC_COARSE
        | libc::CLOCK_BOOTTIME
        | libc::CLOCK_BOOTTIME_ALARM => Some(Clock::Monotonic),
        libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE | libc::CLOCK_REALTIME_ALARM | libc::CLOCK_TAI => {
            Some(Clock::Wall)
        }
        _ => None,
    }
}

/// Returns the virtual time, or none if the thread is not simulated.
fn simulated_time(clock: Clock) -> Option<Time> {
    STATE.with(|state| state.is_simulated().then(|| state.now(clock)))
}

/// Returns the real time of the wall clock in seconds, or -1 if the system does not reveal it.
fn real_seconds() -> i64 {
    let mut now = timespec { tv_sec: -1, tv_nsec: 0 };
    // SAFETY: the pointer is valid for a write during the call. A call that fails writes nothing.
    unsafe { libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_REALTIME, &raw mut now) };
    now.tv_sec
}

fn record_sleep(duration: Duration) {
    STATE.with(|state| state.record(Misuse::Slept(duration)));
}

/// Reads a parameter of a sleep, or returns the code of an error.
///
/// # Safety
///
/// `time` is null or valid for a read.
unsafe fn read(time: *const timespec) -> Result<Time, c_int> {
    if time.is_null() {
        return Err(libc::EFAULT);
    }
    // SAFETY: not null, so valid for a read according to the contract of this function.
    let timespec { tv_sec: seconds, tv_nsec: nanoseconds } = unsafe { time.read() };
    let is_valid = seconds >= 0 && (0..1_000_000_000).contains(&nanoseconds);
    if is_valid { Ok(Time { seconds, nanoseconds }) } else { Err(libc::EINVAL) }
}

/// Sets `errno` and returns -1.
fn fail<T: From<i8>>(code: c_int) -> T {
    // SAFETY: the C library returns a pointer to the `errno` of this thread, which is always valid.
    unsafe { libc::__errno_location().write(code) };
    T::from(-1)
}

fn errno() -> c_int {
    // SAFETY: the C library returns a pointer to the `errno` of this thread, which is always valid.
    unsafe { libc::__errno_location().read() }
}

/// Returns the result of a system call that is 0 or -1.
fn to_int(result: libc::c_long) -> c_int {
    c_int::try_from(result).unwrap_or(-1)
}
