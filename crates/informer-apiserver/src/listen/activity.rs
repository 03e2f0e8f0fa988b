//! Which requests of a connection are open, and since when it has none: connections without requests are
//! closed.
//!
//! A request is open from its complete head to the end of its response, so a watch keeps its connection open
//! however long it is silent, whereas a client that connects and sends nothing, or a request head byte by
//! byte, does not.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// The requests of one connection.
#[derive(Debug, Clone)]
pub(super) struct Activity(watch::Sender<State>);

#[derive(Debug, Clone, Copy)]
struct State {
    open_requests: usize,
    /// Whether there was a request.
    had_request: bool,
    /// The start of the connection, or the end of the last request.
    since: Instant,
}

/// An open request; dropping it ends the request.
#[derive(Debug)]
pub(super) struct OpenRequest(watch::Sender<State>);

impl Activity {
    /// Creates the state of a new connection.
    pub(super) fn new() -> Self {
        Activity(watch::Sender::new(State { open_requests: 0, had_request: false, since: Instant::now() }))
    }

    /// Counts a new request.
    pub(super) fn open_request(&self) -> OpenRequest {
        self.0.send_modify(|state| {
            state.open_requests += 1;
            state.had_request = true;
        });
        OpenRequest(self.0.clone())
    }

    /// Waits until the connection had no open request for too long: `first` before its first request, `idle`
    /// after a request.
    pub(super) async fn wait_until_idle(&self, first: Duration, idle: Duration) {
        let mut states = self.0.subscribe();
        loop {
            let state = *states.borrow_and_update();
            let deadline = state.since + if state.had_request { idle } else { first };
            tokio::select! {
                // Cannot fail: `self` is a sender.
                _changed = states.changed() => {}
                () = tokio::time::sleep_until(deadline), if state.open_requests == 0 => return,
            }
        }
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.send_modify(|state| {
            state.open_requests -= 1;
            state.since = Instant::now();
        });
    }
}
