//! The network of the simulation: requests and responses that are late or lost.
//!
//! It does not know what they contain, and it does not know whether their sender is paused.

use crate::random::Random;

/// The faults of the network, which are the same for all processes.
pub(super) struct Network {
    pub(super) random: Random,
    pub(super) is_faulty: bool,
}

impl Network {
    pub(super) fn delay(&mut self) -> u64 {
        match self.random.below(if self.is_faulty { 20 } else { 1_000_000 }) {
            0 => self.random.below(20_000),
            1 | 2 => self.random.below(3_000),
            _ => self.random.below(100),
        }
    }

    fn fate(&mut self) -> Fate {
        match if self.is_faulty { self.random.below(40) } else { u64::MAX } {
            0 | 1 => Fate::Lost,
            2 | 3 => Fate::Failed,
            _ => Fate::Delivered,
        }
    }
}

#[derive(PartialEq, Eq)]
enum Fate {
    Delivered,
    /// The sender waits until its deadline.
    Lost,
    /// The sender learns that the request has failed.
    Failed,
}

/// A request on its way to the server, or a response on its way back, and when it arrives.
pub(super) struct Lane<Q, R> {
    in_transit: Option<(u64, Message<Q, R>)>,
}

enum Message<Q, R> {
    Request(Q),
    /// `None` if the request has failed.
    Response(Q, Option<R>),
}

impl<Q: Clone, R> Lane<Q, R> {
    pub(super) const IDLE: Self = Self { in_transit: None };

    pub(super) fn is_idle(&self) -> bool {
        self.in_transit.is_none()
    }

    pub(super) fn send(&mut self, now: u64, network: &mut Network, request: Q) {
        let at = if network.fate() == Fate::Lost { u64::MAX } else { now + network.delay() };
        self.in_transit = Some((at, Message::Request(request)));
    }

    /// Lets the server handle a request that has arrived. A response of `None` is a failure without an effect.
    pub(super) fn deliver(&mut self, now: u64, network: &mut Network, serve: impl FnOnce(Q) -> Option<R>) {
        if let Some((at, Message::Request(request))) = &self.in_transit
            && *at <= now
        {
            let request = request.clone();
            let response = serve(request.clone());
            let (at, response) = match network.fate() {
                Fate::Delivered => (now + network.delay(), response),
                Fate::Lost => (u64::MAX, None),
                Fate::Failed => (now + network.delay(), None),
            };
            self.in_transit = Some((at, Message::Response(request, response)));
        }
    }

    /// Returns when a response arrives.
    pub(super) fn responds_at(&self) -> Option<u64> {
        match &self.in_transit {
            Some((at, Message::Response(..))) => Some(*at),
            _ => None,
        }
    }

    /// Returns a response that has arrived, with its request.
    pub(super) fn receive(&mut self, now: u64) -> Option<(Q, Option<R>)> {
        match self.in_transit.take_if(|(at, message)| *at <= now && matches!(message, Message::Response(..)))
        {
            Some((_, Message::Response(request, response))) => Some((request, response)),
            _ => None,
        }
    }

    /// Ends to wait for a response. Returns the request, and when it arrives unless it has arrived already.
    pub(super) fn give_up(&mut self) -> Option<(Q, Option<u64>)> {
        self.in_transit.take().map(|(at, message)| match message {
            Message::Request(request) => (request, (at != u64::MAX).then_some(at)),
            Message::Response(request, _) => (request, None),
        })
    }
}
