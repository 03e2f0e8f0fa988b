//! Metrics of leader elections, under client-go's names (LE-19 of the rules of client-go in the book).

use super::Leadership;
use crate::metrics::{CollectNamed, Encoder};

impl CollectNamed for Leadership {
    fn collect(&self, name: &str, encoder: &mut Encoder) {
        let identity = encoder.identity("election", name);
        let name = ("name", &*identity);
        let is_leader = f64::from(u8::from(self.is_leader()));
        encoder.gauge(
            "leader_election_master_status",
            "Whether this process is the leader.",
            &[name],
            is_leader,
        );
        let help = "Renewals for which the leader had to read the lease first.";
        encoder.counter("leader_election_slowpath_total", help, &[name], self.slow_paths());
    }
}
