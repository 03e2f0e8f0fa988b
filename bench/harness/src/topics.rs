//! The plots of the documents: which rows of the results each of them shows. Pure: results to text; `plot`
//! draws the bars.
//!
//! A plot of a topic shows values of one unit. The summary shows rows with different units, as ratios to
//! client-go. Rows that informer loses belong to the plots like all others.

use super::plot::{Bar, Group, Plot, Scale};
use super::program::Client;
use super::report::{Row, Rows, SUMMARY, shown};
use super::scenario::Better;

/// Folder of the plots. It belongs to the book, whose pages contain only files of its own.
const FOLDER: &str = "docs/book/src/images";

/// The clients with a bar. The baseline is no alternative to them and therefore only in the table.
const CLIENTS: [Client; 3] = [Client::Informer, Client::Go, Client::KubeRs];

/// Rows with the same unit in one plot.
struct Topic {
    /// Name of the file without its extension.
    file: &'static str,
    title: &'static str,
    explanation: &'static str,
    /// Linear where all values have a similar size, because then the lengths of the bars are proportional.
    scale: Scale,
    rows: &'static [&'static str],
}

const TOPICS: [Topic; 8] = [
    Topic {
        file: "bench-sync",
        title: "Initial sync",
        explanation: "Seconds until the cache is complete and the handler has received every object; pods of 10 KB",
        scale: Scale::Logarithmic,
        rows: &[
            "initial sync, 1k pods",
            "initial sync, 10k pods",
            "initial sync, 50k pods",
            "initial sync, protobuf, 1k pods",
            "initial sync, protobuf, 10k pods",
            "initial sync, protobuf, 50k pods",
            "initial sync from kube-apiserver, 50k pods",
            "initial sync from kube-apiserver, protobuf, 50k pods",
        ],
    },
    Topic {
        file: "bench-memory",
        title: "Memory",
        explanation: "RSS of the program in MB; pods of 10 KB",
        scale: Scale::Logarithmic,
        rows: &[
            "memory, settled, 1k pods",
            "memory, settled, 10k pods",
            "memory, settled, 50k pods",
            "memory, settled without managedFields, 50k pods",
            "memory, settled, protobuf, 50k pods",
            "memory, settled, compressed, 50k pods",
            "memory, peak of the sync, 50k pods",
            "memory, peak of a relist, 50k pods",
        ],
    },
    Topic {
        file: "bench-throughput",
        title: "Watch throughput",
        explanation: "Changes per second that a client applies, sent as fast as it reads",
        scale: Scale::Logarithmic,
        rows: &[
            "watch throughput, JSON",
            "watch throughput, protobuf",
            "watch throughput, JSON, with a projection",
            "watch throughput, protobuf, with a projection",
            "watch throughput, 1 handler",
            "watch throughput, 10 handlers",
            "watch throughput, 100 handlers",
        ],
    },
    Topic {
        file: "bench-latency",
        title: "Latency",
        explanation: "Milliseconds from sending a change to the call of the handler, at a fixed rate",
        scale: Scale::Logarithmic,
        rows: &[
            "latency at 1000 events/s, p50",
            "latency at 1000 events/s, p99",
            "latency at 5000 events/s, p50",
            "latency at 5000 events/s, p99",
            "latency at 1000 events/s, protobuf, p50",
            "latency at 1000 events/s, protobuf, p99",
            "latency at 5000 events/s, protobuf, p50",
            "latency at 5000 events/s, protobuf, p99",
        ],
    },
    Topic {
        file: "bench-reads",
        title: "Reads at a fixed rate of changes",
        explanation: "Thousand reads per second of one thread",
        scale: Scale::Linear,
        rows: &[
            "get through a snapshot, no changes",
            "get through a snapshot, 1000 changes/s",
            "get through a snapshot, 5000 changes/s",
            "get through the lister, no changes",
            "get through the lister, 1000 changes/s",
            "get through the lister, 5000 changes/s",
            "typed get through a projection, no changes",
            "typed get through a projection, 1000 changes/s",
            "typed get through a projection, 5000 changes/s",
            "typed get, decoded retention, no changes",
            "typed get, decoded retention, 1000 changes/s",
            "typed get, decoded retention, 5000 changes/s",
        ],
    },
    Topic {
        file: "bench-reads-during-writes",
        title: "Reads during writes at full speed",
        explanation: "Thousand reads per second of one thread; the clients apply different numbers of changes",
        scale: Scale::Logarithmic,
        rows: &[
            "get during writes",
            "get during writes, typed",
            "get during writes, typed, decoded",
            "look-up by node during writes",
        ],
    },
    Topic {
        file: "bench-lookups",
        title: "Look-ups by index",
        explanation: "Nanoseconds per look-up; pods of 1 KB, without changes",
        scale: Scale::Logarithmic,
        rows: &[
            "look-up through the lister, 2 results, 10k pods of 1 KB",
            "look-up through a snapshot, 2 results, 10k pods of 1 KB",
            "look-up through the lister, 100 results, 10k pods of 1 KB",
            "look-up through a snapshot, 100 results, 10k pods of 1 KB",
            "look-up through the lister, 2 results, 1M pods of 1 KB",
            "look-up through a snapshot, 2 results, 1M pods of 1 KB",
            "look-up through the lister, 100 results, 1M pods of 1 KB",
            "look-up through a snapshot, 100 results, 1M pods of 1 KB",
        ],
    },
    Topic {
        file: "bench-queue",
        title: "Work queue",
        explanation: "Nanoseconds per key: add, get, done",
        scale: Scale::Linear,
        rows: &[
            "work queue with metrics, one thread",
            "work queue with metrics, 1 worker",
            "work queue with metrics, 4 workers",
            "work queue with metrics, 16 workers",
            "work queue, one thread",
            "work queue, 1 worker",
            "work queue, 4 workers",
            "work queue, 16 workers",
        ],
    },
];

/// Returns the paths and the texts of all plots. A plot without rows in the results is left out.
pub(super) fn files(rows: &Rows) -> Vec<(String, String)> {
    let topics = TOPICS.iter().map(|topic| (topic.file, topic.plot(rows)));
    let plots = [("bench-summary", Some(summary(rows)))].into_iter().chain(topics);
    let plots = plots.filter_map(|(file, plot)| Some((file, plot?)));
    let plots = plots.filter(|(_, plot)| !plot.groups.is_empty());
    plots.map(|(file, plot)| (format!("{FOLDER}/{file}.svg"), plot.svg())).collect()
}

impl Topic {
    fn plot(&self, rows: &Rows) -> Option<Plot> {
        let found = || self.rows.iter().filter_map(|name| rows.find(name));
        let better = match found().next()?.better {
            Better::Less => "shorter is better",
            Better::More => "longer is better",
        };
        let axis = match self.scale {
            Scale::Linear => "axis from zero",
            Scale::Logarithmic | Scale::RatioTo(_) => "logarithmic axis",
        };
        Some(Plot {
            title: format!("{}: {better}", self.title),
            explanation: format!("{}; {axis}", self.explanation),
            scale: self.scale,
            groups: found().map(values).collect(),
        })
    }
}

/// Returns the values of a row.
fn values(row: &Row) -> Group {
    let bar = |client| {
        let value = row.median(client)?;
        Some(Bar { client, value, label: with_unit(row, client, value) })
    };
    let bars = CLIENTS.into_iter().filter_map(bar).collect();
    Group { name: row.name.clone(), note: String::new(), bars }
}

/// Returns the plot of the rows in the README. Values of client-go are not bars, but the line that the bars of
/// the others start from.
fn summary(rows: &Rows) -> Plot {
    let rows = SUMMARY.iter().filter_map(|name| rows.find(name));
    Plot {
        title: "Compared with client-go: longer to the right is better, to the left is worse".to_owned(),
        explanation:
            "How many times better than client-go a client is; logarithmic axis; no bar: not measured"
                .to_owned(),
        scale: Scale::RatioTo(Client::Go),
        groups: rows.filter_map(ratios).collect(),
    }
}

/// Returns the ratios of a row to client-go, with the values behind them.
fn ratios(row: &Row) -> Option<Group> {
    let note = format!("client-go {}", with_unit(row, Client::Go, row.median(Client::Go)?));
    let bar = |client| {
        let (value, ratio) = (row.median(client)?, row.times(client, Client::Go)?);
        let label = format!("{} × ({})", two_decimals(ratio), with_unit(row, client, value));
        Some(Bar { client, value: ratio, label })
    };
    let bars = CLIENTS.into_iter().filter(|client| *client != Client::Go).filter_map(bar).collect();
    Some(Group { name: row.name.clone(), note, bars })
}

fn with_unit(row: &Row, client: Client, value: f64) -> String {
    format!("{} {}{}", shown(value), row.unit, row.remark(client))
}

fn two_decimals(ratio: f64) -> String {
    if ratio < 10.0 { format!("{ratio:.2}") } else { shown(ratio) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Figure;

    fn add(rows: &mut Rows, name: &str, better: Better, figures: &[(Client, f64)]) {
        for (client, value) in figures {
            let (row, delivered) = (name.to_owned(), Some(0.25).filter(|_| *client == Client::Informer));
            let figure = Figure { row, unit: "s", better, value: *value, delivered, applied: None };
            rows.add(*client, figure);
        }
    }

    #[test]
    fn summary_has_ratios_to_client_go_in_both_directions() {
        let mut rows = Rows::default();
        add(&mut rows, SUMMARY[0], Better::Less, &[(Client::Informer, 2.0), (Client::Go, 8.0)]);
        add(&mut rows, SUMMARY[6], Better::More, &[(Client::Go, 8.0), (Client::KubeRs, 2.0)]);
        let plot = summary(&rows);
        let labels: Vec<(&str, &str)> =
            plot.groups.iter().map(|group| (group.note.as_str(), group.bars[0].label.as_str())).collect();
        let expected = [
            ("client-go 8.00 s", "4.00 × (2.00 s (delivered 25 %))"),
            ("client-go 8.00 s", "0.25 × (2.00 s)"),
        ];
        assert_eq!(labels, expected);
    }

    #[test]
    fn topic_has_a_bar_for_each_measured_client_but_not_for_the_baseline() {
        let mut rows = Rows::default();
        let figures = [(Client::Informer, 2.0), (Client::KubeRs, 3.0), (Client::Baseline, 1.0)];
        add(&mut rows, TOPICS[2].rows[0], Better::More, &figures);
        let plot = TOPICS[2].plot(&rows).unwrap();
        let bars: Vec<(Client, &str)> =
            plot.groups[0].bars.iter().map(|bar| (bar.client, bar.label.as_str())).collect();
        assert_eq!(bars, [(Client::Informer, "2.00 s (delivered 25 %)"), (Client::KubeRs, "3.00 s")]);
        assert_eq!(plot.title, "Watch throughput: longer is better");
    }

    #[test]
    fn plot_without_rows_is_left_out() {
        let mut rows = Rows::default();
        assert!(files(&rows).is_empty());
        add(&mut rows, TOPICS[0].rows[0], Better::Less, &[(Client::Informer, 2.0)]);
        let paths: Vec<String> = files(&rows).into_iter().map(|(path, _)| path).collect();
        assert_eq!(paths, ["docs/book/src/images/bench-sync.svg"]);
    }

    #[test]
    fn rows_of_a_topic_are_in_the_results_with_one_unit() {
        let results = include_str!("../../results/latest.json");
        let (rows, _) = Rows::parse(results).unwrap();
        for topic in &TOPICS {
            let mut kinds = Vec::new();
            for name in topic.rows {
                let row = rows.find(name).unwrap_or_else(|| panic!("no row is called {name}"));
                kinds.push((row.unit.as_str(), row.better));
            }
            kinds.dedup();
            assert_eq!(kinds.len(), 1, "{}: {kinds:?}", topic.title);
        }
    }
}
