//! The screen of `--live`: a status and a table for each kind, cut to the size of the terminal.

use super::listing::{KindObjects, Listing, redact_secrets};
use super::{Screen, escape};
use anstyle::{AnsiColor, Style};
use jiff::Timestamp;

/// The objects of one kind that may be visible.
pub(crate) struct LiveKind {
    /// The first objects; at least as many as the screen has rows, if there are so many.
    pub(crate) first: KindObjects,
    /// Number of all objects.
    pub(crate) total: usize,
}

/// The lines above the tables.
#[derive(Debug, Default)]
pub(crate) struct LiveStatus {
    pub(crate) summary: String,
    pub(crate) warnings: Vec<String>,
}

/// Number of lines below which a table is not worth its titles.
const MIN_TABLE_LINES: usize = 3;

impl Listing {
    /// Returns the lines of a screen: at most as many as it has rows, none wider than its columns.
    pub(crate) fn live(
        &self,
        status: &LiveStatus,
        mut kinds: Vec<LiveKind>,
        now: Timestamp,
        screen: Screen,
    ) -> Vec<String> {
        let dimmed = Style::new().dimmed();
        let warning = AnsiColor::Yellow.on_default().bold();
        let mut lines = vec![format!("{dimmed}{}{dimmed:#}", escape::escape(&status.summary))];
        lines.extend(
            status
                .warnings
                .iter()
                .map(|text| format!("{warning}warning:{warning:#} {}", escape::escape(text))),
        );
        let with_prefix = kinds.len() > 1;
        kinds.retain(|kind| kind.total > 0);
        // An empty line precedes each table, and each has titles.
        let needed: Vec<usize> = kinds.iter().map(|kind| kind.total.saturating_add(2)).collect();
        let shares = shares(&needed, screen.rows.saturating_sub(lines.len()));
        for (mut kind, share) in kinds.into_iter().zip(shares) {
            let share = share.saturating_sub(1);
            if share == 0 {
                continue;
            }
            lines.push(String::new());
            let rows = match share {
                share if share > kind.total => kind.total,
                share if share < MIN_TABLE_LINES => 0,
                share => share - 2,
            };
            redact_secrets(&mut kind.first);
            kind.first.objects.truncate(rows);
            lines.extend(self.table(&kind.first, with_prefix, now, Some(screen)).lines().map(str::to_owned));
            if rows < kind.total {
                let more = if rows == 0 { "" } else { "more " };
                let more = format!("… {} {more}{}", kind.total - rows, kind.first.shown.resource);
                lines.push(format!("{dimmed}{}{dimmed:#}", escape::escape(&more)));
            }
        }
        lines.truncate(screen.rows);
        // Not all formats are fitted to the screen.
        lines.iter().map(|line| console::truncate_str(line, screen.columns, "…").into_owned()).collect()
    }
}

/// Distributes lines among tables. A table that needs less than an equal share leaves the rest to the others.
fn shares(needed: &[usize], available: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..needed.len()).collect();
    order.sort_by_key(|index| needed.get(*index));
    let mut shares = vec![0; needed.len()];
    let (mut rest, mut waiting) = (available, needed.len());
    for index in order {
        if let (Some(share), Some(needed)) = (shares.get_mut(index), needed.get(index)) {
            // The last table takes what the division leaves over.
            *share = (*needed).min(rest / waiting.max(1));
            rest -= *share;
            waiting = waiting.saturating_sub(1);
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::super::{Format, Headers, Namespaces, ShownKind};
    use super::*;
    use console::measure_text_width;
    use serde_json::{Value, json};

    fn kind(name: &str, count: usize) -> LiveKind {
        let object = |index: usize| -> Value {
            json!({
                "metadata": {"name": format!("{}-{index}", name.to_lowercase()),
                    "creationTimestamp": "2024-01-01T11:58:00Z"},
                "spec": {"nodeName": "node-1", "containers": [{"name": "app"}]},
                "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
            })
        };
        let shown = ShownKind {
            group: String::new(),
            kind: name.to_owned(),
            resource: format!("{}s", name.to_lowercase()),
            singular: name.to_lowercase(),
        };
        LiveKind {
            first: KindObjects { shown, objects: (0..count.min(60)).map(object).collect() },
            total: count,
        }
    }

    fn lines(
        format: Format,
        warnings: &[&str],
        kinds: Vec<LiveKind>,
        columns: usize,
        rows: usize,
    ) -> Vec<String> {
        let listing = Listing {
            format,
            namespaces: Namespaces::One,
            is_single: false,
            live: true,
            headers: Headers::Shown,
        };
        let status = LiveStatus {
            summary: "40 pods in namespace shop".to_owned(),
            warnings: warnings.iter().map(|text| (*text).to_owned()).collect(),
        };
        let lines =
            listing.live(&status, kinds, "2024-01-01T12:00:00Z".parse().unwrap(), Screen { columns, rows });
        lines.iter().map(|line| anstream::adapter::strip_str(line).to_string()).collect()
    }

    #[test]
    fn tables_share_the_screen() {
        let kinds = vec![kind("Pod", 40), kind("Node", 2)];
        assert_eq!(
            lines(Format::Table, &["pods: connection lost"], kinds, 60, 13).join("\n"),
            "\
40 pods in namespace shop
warning: pods: connection lost

NAME       STATUS             READY  RESTARTS  AGE  NODE
pod/pod-0  Running            0/1    0         2m   node-1
pod/pod-1  Running            0/1    0         2m   node-1
pod/pod-2  Running            0/1    0         2m   node-1
pod/pod-3  Running            0/1    0         2m   node-1
… 36 more pods

NAME          STATUS                     AGE
node/node-0   Ready                      2m
node/node-1   Ready                      2m"
        );
    }

    #[test]
    fn every_screen_is_filled_and_never_exceeded() {
        for format in [Format::Table, Format::Wide] {
            for rows in 1..60 {
                for columns in [1, 5, 20, 80, 200] {
                    let kinds = vec![kind("Pod", 40), kind("Node", 3), kind("Widget", 0), kind("Job", 2000)];
                    let lines = lines(format, &["lost"], kinds, columns, rows);
                    assert!(lines.len() <= rows, "{rows}: {lines:#?}");
                    assert!(rows < 14 || lines.len() == rows, "{rows}: {lines:#?}");
                    let widest = lines.iter().map(|line| measure_text_width(line)).max();
                    assert!(widest <= Some(columns), "{columns}: {lines:#?}");
                }
            }
        }
    }

    #[test]
    fn small_tables_leave_lines_to_large_ones() {
        assert_eq!(shares(&[40, 4], 22), [18, 4]);
        assert_eq!(shares(&[40, 40, 4], 21), [8, 9, 4]);
        assert_eq!(shares(&[3, 4], 22), [3, 4]);
        assert!(shares(&[], 22).is_empty());
        assert_eq!(shares(&[9, 9], 1), [0, 1]);
    }
}
