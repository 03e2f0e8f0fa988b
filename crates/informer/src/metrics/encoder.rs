//! The text format of Prometheus: [`Collect`], [`Encoder`] and [`encode`].
//!
//! A family is all series of one metric name; a series is a name with its labels. Invariant: however many
//! collectors contribute to a family, its `HELP` and `TYPE` lines are written once, and no series is written
//! twice. Nothing here knows which metrics exist.

use informer_core::workqueue::Histogram;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::time::Duration;

/// A source of metrics: a factory, an informer, a controller, a recorder, or a type of the application.
///
/// ```
/// use informer::metrics::{self, Collect, Encoder};
///
/// struct Uptime(u64);
///
/// impl Collect for Uptime {
///     fn collect(&self, encoder: &mut Encoder) {
///         encoder.counter("shop_uptime_seconds_total", "Seconds since the start.", &[("shop", "main")], self.0);
///     }
/// }
///
/// let text = metrics::encode([&Uptime(7) as &dyn Collect]);
/// assert!(text.ends_with("shop_uptime_seconds_total{shop=\"main\"} 7\n"));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no metrics of its own",
    label = "does not implement `Collect`",
    note = "a work queue or a leadership needs a name: `metrics::named(\"name\", &queue)`"
)]
pub trait Collect {
    /// Adds the current values to `encoder`.
    fn collect(&self, encoder: &mut Encoder);
}

/// A source of metrics without a name of its own: a work queue, a leadership.
///
/// Give it a name with [`named`].
pub trait CollectNamed {
    /// Adds the current values to `encoder`, labelled with `name`.
    fn collect(&self, name: &str, encoder: &mut Encoder);
}

/// Returns the metrics of all collectors in the text format of Prometheus.
///
/// Pass everything that one response contains to one call: two results joined into one text repeat the `HELP`
/// and `TYPE` lines of the families that both contain, and Prometheus rejects the text. A
/// [`Manager`](crate::manager::Manager) makes this call for `/metrics`.
///
/// ```
/// use informer::metrics::{self, Collect};
///
/// let (pods, nodes) = (informer::workqueue::WorkQueue::new(), informer::workqueue::WorkQueue::new());
/// pods.add("default/web");
/// nodes.add("node-1");
/// let text = metrics::encode([&metrics::named("pods", &pods) as &dyn Collect, &metrics::named("nodes", &nodes)]);
/// assert!(text.contains("workqueue_adds_total{name=\"pods\"} 1"));
/// assert_eq!(text.matches("# TYPE workqueue_adds_total counter").count(), 1);
/// ```
pub fn encode<'a>(collectors: impl IntoIterator<Item = &'a dyn Collect>) -> String {
    let mut encoder = Encoder::default();
    for collector in collectors {
        collector.collect(&mut encoder);
    }
    encoder.finish()
}

/// Gives a collector its name; takes the collector by value or by reference.
pub fn named<C: CollectNamed>(name: impl Into<String>, collector: C) -> Named<C> {
    Named { name: name.into(), collector }
}

/// A collector with the name that [`named`] gave it.
#[derive(Debug, Clone)]
pub struct Named<C> {
    name: String,
    collector: C,
}

impl<C: CollectNamed> Collect for Named<C> {
    fn collect(&self, encoder: &mut Encoder) {
        self.collector.collect(&self.name, encoder);
    }
}

impl<C: CollectNamed> CollectNamed for &C {
    fn collect(&self, name: &str, encoder: &mut Encoder) {
        (**self).collect(name, encoder);
    }
}

/// Samples grouped by family, ready to be written as text.
///
/// The text stays valid whatever collectors add. If two of them add the same series (the same family and
/// labels), the later one gets a label `duplicate` that counts up. Characters that a name may not contain
/// become `_`. If a sample has two labels of the same name, the first counts. A family keeps the type and help
/// text that it was first added with; samples of another type are left out, and so are families whose name
/// belongs to a series of a histogram (`…_bucket`, `…_sum`, `…_count`).
#[derive(Debug, Default)]
pub struct Encoder {
    /// The families, in the order in which they were first added.
    families: Vec<Family>,
    /// The position in `families` of each family name.
    positions: BTreeMap<Box<str>, usize>,
    /// Number of collectors that took each pair of label and value as their identity.
    identities: BTreeMap<(Box<str>, Box<str>), usize>,
}

#[derive(Debug)]
struct Family {
    name: Box<str>,
    kind: &'static str,
    help: Box<str>,
    lines: String,
    /// The keys of the series in `lines`.
    series: BTreeSet<Box<str>>,
}

impl Encoder {
    /// Adds a sample of a counter, whose name should end in `_total`.
    pub fn counter(&mut self, name: &str, help: &str, labels: &[(&str, &str)], value: u64) {
        if let Some(family) = self.family(name, "counter", help) {
            family.sample("", labels, &value);
        }
    }

    /// Adds a sample of a gauge.
    pub fn gauge(&mut self, name: &str, help: &str, labels: &[(&str, &str)], value: f64) {
        if let Some(family) = self.family(name, "gauge", help) {
            family.sample("", labels, &Number(value));
        }
    }

    /// Adds a sample of a gauge in seconds; `None` is written as `NaN`.
    pub fn seconds(&mut self, name: &str, help: &str, labels: &[(&str, &str)], value: Option<Duration>) {
        if let Some(family) = self.family(name, "gauge", help) {
            family.sample("", labels, &Seconds(value));
        }
    }

    /// Adds a histogram of durations, in seconds.
    pub fn histogram(&mut self, name: &str, help: &str, labels: &[(&str, &str)], histogram: &Histogram) {
        let Some(family) = self.family(name, "histogram", help) else { return };
        // All lines of a histogram have the labels of its `_count` series; `le` is the label of its buckets.
        let labels: Vec<(&str, &str)> = labels.iter().copied().filter(|(name, _)| *name != "le").collect();
        let labels = family.unique_labels("_count", &labels);
        let bucket =
            |bound: &str| format!("{labels}{}le=\"{bound}\"", if labels.is_empty() { "" } else { "," });
        for (bound, count) in histogram.buckets() {
            family.line("_bucket", &bucket(&Seconds(Some(bound)).to_string()), &count);
        }
        family.line("_bucket", &bucket("+Inf"), &histogram.count());
        family.line("_sum", &labels, &Seconds(Some(histogram.sum())));
        family.line("_count", &labels, &histogram.count());
    }

    /// Returns `value`, or `value #2`, `value #3` and so on if earlier collectors took it as their identity
    /// under the same label.
    ///
    /// A collector that adds several families calls this once, so that all of its series carry the same
    /// value.
    pub fn identity(&mut self, label: &str, value: &str) -> String {
        match self.count_identity(label, value) {
            1 => value.to_owned(),
            times => format!("{value} #{times}"),
        }
    }

    /// Counts a collector with this identity; returns how many there are by now.
    pub(super) fn count_identity(&mut self, label: &str, value: &str) -> usize {
        let times = self.identities.entry((label.into(), value.into())).or_insert(0);
        *times += 1;
        *times
    }

    /// Returns the family of this name, adding it if necessary; `None` if it has another type or is part of
    /// a histogram.
    fn family(&mut self, name: &str, kind: &'static str, help: &str) -> Option<&mut Family> {
        let name = valid_name(name);
        if !self.positions.contains_key(&*name) && self.overlaps_histogram(&name, kind) {
            return None;
        }
        let position = *self.positions.entry(name.clone().into()).or_insert(self.families.len());
        if position == self.families.len() {
            let help = help.replace('\\', "\\\\").replace('\n', "\\n").into();
            let (lines, series) = (String::new(), BTreeSet::new());
            self.families.push(Family { name: name.into(), kind, help, lines, series });
        }
        self.families.get_mut(position).filter(|family| family.kind == kind)
    }

    /// Returns whether a new family would contain a series of a histogram, or the reverse.
    fn overlaps_histogram(&self, name: &str, kind: &str) -> bool {
        ["_bucket", "_sum", "_count"].into_iter().any(|suffix| {
            let base = name.strip_suffix(suffix).and_then(|base| self.positions.get(base));
            let family = base.and_then(|position| self.families.get(*position));
            let is_part = family.is_some_and(|family| family.kind == "histogram");
            is_part || (kind == "histogram" && self.positions.contains_key(&*format!("{name}{suffix}")))
        })
    }

    fn finish(self) -> String {
        let mut text = String::new();
        for Family { name, kind, help, lines, .. } in self.families {
            // Writing to a String cannot fail.
            let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{lines}");
        }
        text
    }
}

impl Family {
    fn sample(&mut self, suffix: &str, labels: &[(&str, &str)], value: &dyn fmt::Display) {
        let labels = self.unique_labels(suffix, labels);
        self.line(suffix, &labels, value);
    }

    fn line(&mut self, suffix: &str, labels: &str, value: &dyn fmt::Display) {
        let labels = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        let _ = writeln!(self.lines, "{}{suffix}{labels} {value}", self.name);
    }

    /// Formats labels, with a label `duplicate` added if the series exists already.
    fn unique_labels(&mut self, suffix: &str, labels: &[(&str, &str)]) -> String {
        let mut names = BTreeSet::new();
        let mut labels: Vec<String> = labels
            .iter()
            .map(|(name, value)| (valid_name(name), value))
            .filter(|(name, _)| names.insert(name.clone()))
            .map(|(name, value)| format!("{name}=\"{}\"", Escaped(value)))
            .collect();
        let (base, mut copy) = (labels.len(), 1);
        while !self.series.insert(series_key(suffix, &labels)) {
            copy += 1;
            labels.truncate(base);
            // The label replaces one of the same name, which the collector may have set.
            labels.retain(|label| !label.starts_with("duplicate="));
            labels.push(format!("duplicate=\"{copy}\""));
        }
        labels.join(",")
    }
}

/// Returns the key of a series, which does not depend on the order of the labels.
fn series_key(suffix: &str, labels: &[String]) -> Box<str> {
    let mut labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    labels.sort_unstable();
    format!("{suffix}{{{}}}", labels.join(",")).into()
}

/// Replaces every character that the format does not allow in names by `_`.
fn valid_name(name: &str) -> String {
    let replace = |(position, c): (usize, char)| {
        let allowed = c.is_ascii_alphabetic() || c == '_' || (position > 0 && c.is_ascii_digit());
        if allowed { c } else { '_' }
    };
    if name.is_empty() { "_".to_owned() } else { name.chars().enumerate().map(replace).collect() }
}

/// Displays a floating-point number as the format spells it: the shortest digits that parse to the same
/// number, without an exponent.
struct Number(f64);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            f64::INFINITY => f.write_str("+Inf"),
            f64::NEG_INFINITY => f.write_str("-Inf"),
            number => number.fmt(f),
        }
    }
}

/// Displays a duration in seconds; `None` as `NaN`.
struct Seconds(Option<Duration>);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(time) => Number(time.as_secs_f64()).fmt(f),
            None => Number(f64::NAN).fmt(f),
        }
    }
}

/// The value of a label, escaped as the format requires.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str("\\n")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct One<'a>(&'a str);

    impl Collect for One<'_> {
        fn collect(&self, encoder: &mut Encoder) {
            let name = encoder.identity("name", self.0);
            encoder.counter("a_total", "First.", &[("name", &name)], 1);
            encoder.gauge("b", "Second.", &[], 0.5);
        }
    }

    #[test]
    fn family_of_several_collectors_is_written_once() {
        let text = encode([&One("x") as &dyn Collect, &One("y"), &One("x")]);
        let expected = "# HELP a_total First.\n# TYPE a_total counter\na_total{name=\"x\"} 1\na_total{name=\"y\"} 1\n\
                        a_total{name=\"x #2\"} 1\n# HELP b Second.\n# TYPE b gauge\nb 0.5\nb{duplicate=\"2\"} 0.5\n\
                        b{duplicate=\"3\"} 0.5\n";
        assert_eq!(text, expected);
    }

    /// Regression: a help text with a line break, or a name with a dash, made Prometheus reject all metrics.
    #[test]
    fn text_stays_valid_whatever_a_collector_adds() {
        struct Foreign;
        impl Collect for Foreign {
            fn collect(&self, encoder: &mut Encoder) {
                encoder.counter("shop-uptime", "Seconds\nsince the \\ start.", &[("a", "1"), ("b", "2")], 1);
                encoder.counter("shop-uptime", "", &[("b", "2"), ("a", "1")], 2);
                encoder.gauge("shop-uptime", "Another type.", &[], 3.0);
            }
        }
        let expected = "# HELP shop_uptime Seconds\\nsince the \\\\ start.\n# TYPE shop_uptime counter\n\
                        shop_uptime{a=\"1\",b=\"2\"} 1\nshop_uptime{b=\"2\",a=\"1\",duplicate=\"2\"} 2\n";
        assert_eq!(encode([&Foreign as &dyn Collect]), expected);
    }

    /// Regression: durations had three decimals, so the sum of ten fast durations was `0.000`, and the average
    /// of every queue faster than a millisecond was zero. Tests compared only counts, and sums of whole
    /// seconds.
    #[test]
    fn durations_keep_their_nanoseconds() {
        let seconds = |time: Duration| Seconds(Some(time)).to_string();
        assert_eq!(seconds(Duration::ZERO), "0");
        assert_eq!(seconds(Duration::from_nanos(1)), "0.000000001");
        assert_eq!(seconds(Duration::from_nanos(10)), "0.00000001");
        assert_eq!(seconds(Duration::from_micros(2_500)), "0.0025");
        assert_eq!(seconds(Duration::new(86_400, 123)), "86400.000000123");
        assert_eq!(seconds(Duration::from_secs(u64::MAX)), "18446744073709552000");
        let mut histogram = Histogram::default();
        (0..10).for_each(|_| histogram.observe(Duration::from_nanos(700)));
        let mut encoder = Encoder::default();
        encoder.histogram("h_seconds", "Durations.", &[], &histogram);
        let text = encoder.finish();
        assert!(text.contains("\nh_seconds_sum 0.000007\n"), "{text}");
    }

    #[test]
    fn equal_histograms_are_two_series() {
        struct Two;
        impl Collect for Two {
            fn collect(&self, encoder: &mut Encoder) {
                for _ in 0..2 {
                    encoder.histogram("h_seconds", "Durations.", &[("name", "q")], &Histogram::default());
                }
            }
        }
        let text = encode([&Two as &dyn Collect]);
        assert_eq!(text.matches("# TYPE h_seconds histogram").count(), 1);
        assert!(text.contains("h_seconds_count{name=\"q\"} 0\n"), "{text}");
        assert!(text.contains("h_seconds_bucket{name=\"q\",duplicate=\"2\",le=\"+Inf\"} 0\n"), "{text}");
    }
}
