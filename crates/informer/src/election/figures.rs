//! The figures of elections as text for Prometheus, under client-go's names (LE-19).

use super::Leadership;
use crate::metrics::{Text, Value};

/// The figures of several elections as Prometheus reads them, each with its name.
pub fn elections_prometheus(elections: &[(&str, &Leadership)]) -> String {
    let mut text = Text::default();
    let leads = "Whether this process leads.";
    text.family("leader_election_master_status", "gauge", leads, |out| {
        for (name, leadership) in elections {
            out.sample(&[("name", name)], &Value::Count(u64::from(leadership.is_leader())));
        }
    });
    let slow = "How often a leader had to look at its lease again before it could renew it.";
    text.family("leader_election_slowpath_total", "counter", slow, |out| {
        for (name, leadership) in elections {
            out.sample(&[("name", name)], &Value::Count(leadership.slow_paths()));
        }
    });
    text.0
}
