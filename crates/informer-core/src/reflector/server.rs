//! What was learnt about this server: which requests it can serve, and in which forms its answers are read.
//!
//! Data only; the states of the machine decide what follows from it.

/// What is known about this server's watch-lists.
#[derive(Debug, Default)]
pub(super) struct Capability {
    /// They are not used any more.
    pub(super) abandoned: bool,
    /// It was refused in this round, for this reason; if the list then works, it is the watch-list that cannot be had.
    pub(super) refused_this_round: Option<Box<str>>,
    /// Streams in a row that did not come to the end of the initial events, though nothing was wrong with the request.
    pub(super) unfinished: u32,
}

/// What became of the last bodies in protobuf.
#[derive(Debug, Default)]
pub(super) struct Forms {
    /// How many in a row did not read.
    pub(super) broken: u32,
    pub(super) json_only: bool,
}

impl Forms {
    /// Whether nothing but JSON is to be asked for.
    pub(super) fn json_only(&self) -> bool {
        self.json_only
    }
}

/// What became of the last probes.
#[derive(Debug, Default)]
pub(super) struct Probes {
    /// The server had not come as far. Once may be a server that lags behind another; twice is one that was restored.
    pub(super) behind: bool,
    /// How many failed in a row.
    pub(super) failed: u32,
}
