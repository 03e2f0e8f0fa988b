//! Which scenarios run, with which parameters and how often.

use crate::Options;
use crate::failure::Failure;
use crate::scenario::Scenario;
use crate::wire::Encoding;

/// Rates of changes per second beside which reads are measured.
const RATES: [u32; 3] = [0, 1000, 5000];

/// Scenarios and their numbers of rounds.
pub(super) struct Plan(pub(super) Vec<(Scenario, usize)>);

impl Plan {
    pub(super) fn new(options: &Options) -> Result<Self, Failure> {
        let mut all = if options.quick { Self::quick() } else { Self::full() };
        if options.control_plane.is_none() {
            all.retain(|(scenario, _)| scenario.control_plane_pods().is_none());
        }
        let filter = options.filter.as_deref().unwrap_or_default();
        let names: Vec<String> = all.iter().map(|(scenario, _)| scenario.name()).collect();
        all.retain(|(scenario, _)| scenario.name().contains(filter));
        if let Some(count) = options.times {
            for (_, times) in &mut all {
                *times = count;
            }
        }
        if all.is_empty() {
            let hint = format!("no scenario matches `{filter}` (known: {})", names.join(", "));
            return Err(Failure::Usage(hint));
        }
        Ok(Self(all))
    }

    fn full() -> Vec<(Scenario, usize)> {
        let sizes = [(1000, 5), (10_000, 5), (50_000, 3)];
        let sync = |encoding| sizes.map(|(pods, times)| (Scenario::Sync { encoding, pods }, times));
        let mut all = sync(Encoding::Json).to_vec();
        all.extend(["list", "watch-list"].map(|strategy| (Scenario::By { pods: 10_000, strategy }, 5)));
        all.extend(sync(Encoding::Protobuf));
        all.push((Scenario::Stripped { pods: 50_000 }, 3));
        all.push((Scenario::Compressed { pods: 50_000 }, 3));
        all.push((Scenario::Projected { pods: 50_000 }, 3));
        all.push((Scenario::Huge { pods: 1_000_000 }, 1));
        all.extend(sizes.map(|(pods, times)| (Scenario::ControlPlane { pods }, times)));
        all.extend(Self::saved(50_000, 20, 3));
        all.push((Scenario::WarmSmall { pods: 1_000_000 }, 1));
        all.push((Scenario::WarmControlPlane { pods: 50_000 }, 3));
        all.push((Scenario::ShardedControlPlane { pods: 50_000 }, 3));
        all.extend([4, 100].map(|members| (Scenario::ShardedAtRest { members }, 1)));
        all.extend(Self::with_changes(10_000, 50_000, 10, 3.0, 3));
        all.extend(RATES.map(|rate| (Scenario::ReadAt { rate, pods: 50_000, seconds: 3.0 }, 3)));
        all.extend(sizes.map(|(pods, _)| (Scenario::Growth { pods, frames: 50_000 }, 3)));
        all.extend(
            [1000, 10_000, 50_000, 1_000_000].map(|pods| (Scenario::Small { pods, frames: 100_000 }, 3)),
        );
        all.push((Scenario::Queue { keys: 1_000_000 }, 5));
        all
    }

    fn quick() -> Vec<(Scenario, usize)> {
        let sizes = [(1000, 3), (10_000, 3)];
        let sync = |encoding| sizes.map(|(pods, times)| (Scenario::Sync { encoding, pods }, times));
        let mut all = sync(Encoding::Json).to_vec();
        all.extend(["list", "watch-list"].map(|strategy| (Scenario::By { pods: 1000, strategy }, 3)));
        all.extend(sync(Encoding::Protobuf));
        all.push((Scenario::Stripped { pods: 10_000 }, 3));
        all.push((Scenario::Compressed { pods: 10_000 }, 3));
        all.push((Scenario::Projected { pods: 10_000 }, 3));
        all.push((Scenario::ControlPlane { pods: 1000 }, 3));
        all.extend(Self::saved(10_000, 3, 1));
        all.push((Scenario::WarmControlPlane { pods: 1000 }, 3));
        all.push((Scenario::ShardedControlPlane { pods: 1000 }, 1));
        all.push((Scenario::ShardedAtRest { members: 4 }, 1));
        all.extend(Self::with_changes(1000, 5000, 2, 1.0, 1));
        all.extend(RATES.map(|rate| (Scenario::ReadAt { rate, pods: 10_000, seconds: 1.0 }, 1)));
        all.extend(sizes.map(|(pods, _)| (Scenario::Growth { pods, frames: 5000 }, 1)));
        all.extend(sizes.map(|(pods, _)| (Scenario::Small { pods, frames: 20_000 }, 1)));
        all.push((Scenario::Queue { keys: 100_000 }, 1));
        all
    }

    /// Returns the scenarios of saved caches.
    fn saved(pods: usize, seconds: u32, times: usize) -> Vec<(Scenario, usize)> {
        let encodings = [Encoding::Json, Encoding::Protobuf];
        let saving = |encoding| Scenario::Saving { encoding, rate: 1000, pods, seconds };
        let warm = encodings.map(|encoding| Scenario::Warm { encoding, pods });
        warm.into_iter().chain(encodings.map(saving)).map(|scenario| (scenario, times)).collect()
    }

    /// Returns the scenarios in which pods change.
    fn with_changes(
        pods: usize,
        frames: usize,
        seconds: u32,
        read: f64,
        times: usize,
    ) -> Vec<(Scenario, usize)> {
        let watch = |encoding| Scenario::Watch { encoding, pods, frames };
        let projected = |encoding| Scenario::ProjectedWatch { encoding, pods, frames };
        let mut all = vec![watch(Encoding::Json), watch(Encoding::Protobuf)];
        all.extend([Encoding::Json, Encoding::Protobuf].map(projected));
        for encoding in [Encoding::Json, Encoding::Protobuf] {
            all.extend([1000, 5000].map(|rate| Scenario::Latency { encoding, rate, pods, seconds }));
        }
        all.push(Scenario::Read { pods, seconds: read });
        all.extend([1, 10, 100].map(|handlers| Scenario::Fan { handlers, pods: 1000, frames: frames / 5 }));
        all.into_iter().map(|scenario| (scenario, times)).collect()
    }

    /// Returns the number of pods of 10 KB that the scenarios need.
    pub(super) fn prepared_pods(&self) -> usize {
        self.0.iter().map(|(scenario, _)| pods_of(scenario)).max().unwrap_or(1)
    }
}

/// Returns the number of prepared pods that a scenario needs.
fn pods_of(scenario: &Scenario) -> usize {
    match *scenario {
        Scenario::Sync { pods, .. }
        | Scenario::By { pods, .. }
        | Scenario::Stripped { pods }
        | Scenario::Compressed { pods }
        | Scenario::Projected { pods }
        | Scenario::Warm { pods, .. }
        | Scenario::Saving { pods, .. }
        | Scenario::Watch { pods, .. }
        | Scenario::ProjectedWatch { pods, .. }
        | Scenario::Growth { pods, .. }
        | Scenario::Latency { pods, .. }
        | Scenario::Read { pods, .. }
        | Scenario::ReadAt { pods, .. }
        | Scenario::Fan { pods, .. } => pods,
        // The server copies the others when it sends them.
        Scenario::Huge { pods } => pods.min(50_000),
        // Pods of 1 KB are always prepared.
        Scenario::ControlPlane { .. }
        | Scenario::WarmControlPlane { .. }
        | Scenario::ShardedControlPlane { .. }
        | Scenario::ShardedAtRest { .. }
        | Scenario::WarmSmall { .. }
        | Scenario::Small { .. }
        | Scenario::Queue { .. } => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Client;

    fn options(filter: &str) -> Options {
        Options { filter: Some(filter.to_owned()), ..Options::default() }
    }

    #[test]
    fn filter_without_match_lists_the_scenarios() {
        let Err(Failure::Usage(reason)) = Plan::new(&options("unknown")) else { panic!("it matches") };
        assert!(reason.contains("sync 50k") && reason.contains("latency 5000"), "{reason}");
        assert!(!reason.contains("control-plane"), "no control plane is given: {reason}");
    }

    #[test]
    fn scenario_names_are_unique() {
        for all in [Plan::full(), Plan::quick()] {
            let mut names: Vec<String> = all.iter().map(|(scenario, _)| scenario.name()).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), all.len());
        }
    }

    #[test]
    fn informer_runs_in_all_scenarios_but_one() {
        for (scenario, _) in Plan::full() {
            // Informer never stores `managedFields`, so its values come from other rows.
            let is_stripped = scenario.name().contains("stripped");
            assert_eq!(scenario.clients().contains(&Client::Informer), !is_stripped, "{}", scenario.name());
        }
    }
}
