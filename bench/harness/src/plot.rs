//! Plots of figures as SVG: groups of horizontal bars on one axis. Pure: figures to text.
//!
//! Equal figures give equal texts, so that a test can compare a file with the results. A plot contains no
//! script, font or link. Its colors follow the reader's colour scheme, and its own background keeps them legible
//! on every page. The rows of the results are not known here: `topics` chooses them.

use std::fmt::Write as _;

use super::program::Client;
use super::report::shown;

const WIDTH: f64 = 880.0;
const PADDING: f64 = 20.0;
/// Height of title, explanation, legend and the labels of the axis.
const HEAD_HEIGHT: f64 = 122.0;
const NAME_WIDTH: f64 = 245.0;
const MAX_NAME_CHARS: usize = 38;
/// Estimated width of a character. A wide font needs this much; others leave a gap.
const CHAR_WIDTH: f64 = 6.6;
const LINE_HEIGHT: f64 = 15.0;
const BAR_HEIGHT: f64 = 14.0;
/// Distance between the upper edges of two bars of a group.
const BAR_STEP: f64 = 16.0;
const GROUP_GAP: f64 = 14.0;
/// Upper bound on the labels of an axis with steps of 1, 2 and 5; with more, only powers of ten are labelled.
const MAX_TICKS: usize = 7;

/// Blue, orange and grey differ also for colour-blind readers; bars have the order of the legend.
const STYLE: &str = "<style>
:root { --back: #ffffff; --edge: #d0d7de; --text: #1f2328; --soft: #59636e; --grid: #d8dee4;
  --informer: #0b5cad; --client-go: #bc5a00; --kube-rs: #8c959f; --baseline: #59636e; }
@media (prefers-color-scheme: dark) {
  :root { --back: #161b22; --edge: #30363d; --text: #e6edf3; --soft: #9da7b3; --grid: #30363d;
    --informer: #58a6ff; --client-go: #e3a03c; --kube-rs: #8b949e; --baseline: #9da7b3; } }
text { font: 12px system-ui, -apple-system, 'Segoe UI', Roboto, Arial, sans-serif; fill: var(--text); }
.title { font-size: 16px; font-weight: 600; }
.soft { fill: var(--soft); }
.end { text-anchor: end; }
.middle { text-anchor: middle; }
.value { stroke: var(--back); stroke-width: 4; stroke-linejoin: round; paint-order: stroke; }
.back { fill: var(--back); stroke: var(--edge); }
.grid { stroke: var(--grid); }
.informer { fill: var(--informer); }
.client-go { fill: var(--client-go); }
.kube-rs { fill: var(--kube-rs); }
.baseline { fill: var(--baseline); }
</style>
";

/// Groups of bars on one axis.
#[derive(Debug)]
pub(super) struct Plot {
    pub(super) title: String,
    /// What the bars mean, and how the axis is divided.
    pub(super) explanation: String,
    pub(super) scale: Scale,
    pub(super) groups: Vec<Group>,
}

/// Bars that are compared with each other.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) name: String,
    /// A line below the name; may be empty.
    pub(super) note: String,
    pub(super) bars: Vec<Bar>,
}

/// The value of a client.
#[derive(Debug)]
pub(super) struct Bar {
    pub(super) client: Client,
    pub(super) value: f64,
    /// The value as text, with its unit.
    pub(super) label: String,
}

/// How an axis is divided, and where its bars start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scale {
    /// From zero in equal steps.
    Linear,
    /// Logarithmic. Bars start at the left end.
    Logarithmic,
    /// Logarithmic, of ratios to this client. Bars start at 1 and end on the right if they are larger.
    RatioTo(Client),
}

impl Plot {
    /// Returns the text of the SVG file.
    pub(super) fn svg(&self) -> String {
        let bars = || self.groups.iter().flat_map(|group| &group.bars);
        let label_width = bars().map(|bar| text_width(&bar.label)).fold(0.0, f64::max);
        let sides = (PADDING + NAME_WIDTH, WIDTH - PADDING - label_width);
        let values: Vec<f64> = bars().map(|bar| bar.value).collect();
        let axis = Axis::new(self.scale, sides, &values);
        let bottom = HEAD_HEIGHT + self.groups.iter().map(Group::height).sum::<f64>();
        let mut svg = self.head(bottom + LINE_HEIGHT + PADDING);
        self.draw_legend(&mut svg);
        axis.draw(&mut svg, bottom);
        let mut top = HEAD_HEIGHT;
        for group in &self.groups {
            group.draw(&mut svg, &axis, top);
            top += group.height();
        }
        axis.draw_origin(&mut svg, bottom);
        svg.push_str("</svg>\n");
        svg
    }

    /// Returns everything above the legend. Writing to a String cannot fail, here and below.
    fn head(&self, height: f64) -> String {
        let (title, explanation) = (escape(&self.title), escape(&self.explanation));
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
             height=\"{height}\" role=\"img\" aria-labelledby=\"title values\">\n\
             <!-- Written by `cargo xtask bench`. -->\n<title id=\"title\">{title}</title>\n"
        );
        let _ = writeln!(svg, "<desc id=\"values\">{explanation}. {}</desc>", escape(&self.values_as_text()));
        svg.push_str(STYLE);
        let (width, height) = (WIDTH - 1.0, height - 1.0);
        let _ = writeln!(
            svg,
            "<rect class=\"back\" x=\"0.5\" y=\"0.5\" width=\"{width}\" height=\"{height}\" rx=\"8\"/>"
        );
        draw_text(&mut svg, "title", (PADDING, 32.0), &self.title);
        draw_text(&mut svg, "soft", (PADDING, 53.0), &self.explanation);
        svg
    }

    /// Returns the values as sentences, for readers who do not see the bars.
    fn values_as_text(&self) -> String {
        let mut sentences = Vec::new();
        for Group { name, note, bars } in &self.groups {
            let values = bars.iter().map(|bar| format!("{} {}", bar.client.title(), bar.label));
            let note = Some(note.clone()).filter(|note| !note.is_empty());
            sentences.push(format!("{name}: {}.", values.chain(note).collect::<Vec<_>>().join(", ")));
        }
        sentences.join(" ")
    }

    /// Draws a mark and the name of each client that has a bar, or with which the others are compared.
    fn draw_legend(&self, svg: &mut String) {
        let mut x = PADDING;
        for client in Client::ALL {
            let is_reference = self.scale == Scale::RatioTo(client);
            let has_bar = self.groups.iter().flat_map(|group| &group.bars).any(|bar| bar.client == client);
            if !has_bar && !is_reference {
                continue;
            }
            let (class, width) = (client.title(), if is_reference { 3.0 } else { 12.0 });
            let _ = writeln!(
                svg,
                "<rect class=\"{class}\" x=\"{x:.1}\" y=\"67\" width=\"{width}\" height=\"12\"/>"
            );
            let name = if is_reference { format!("{class} = 1") } else { class.to_owned() };
            draw_text(svg, "", (x + width + 6.0, 77.0), &name);
            x += width + 6.0 + text_width(&name) + 16.0;
        }
    }
}

impl Group {
    fn lines(&self) -> Vec<String> {
        wrap(&self.name)
    }

    fn height(&self) -> f64 {
        let note = if self.note.is_empty() { 0.0 } else { LINE_HEIGHT };
        let text = self.lines().iter().fold(note, |height, _| height + LINE_HEIGHT);
        let bars = self.bars.iter().fold(0.0, |height, _| height + BAR_STEP);
        f64::max(text, bars) + GROUP_GAP
    }

    fn draw(&self, svg: &mut String, axis: &Axis, top: f64) {
        let mut y = top + 11.0;
        let x = PADDING + NAME_WIDTH - 10.0;
        for line in self.lines() {
            draw_text(svg, "end", (x, y), line.trim_end());
            y += LINE_HEIGHT;
        }
        if !self.note.is_empty() {
            draw_text(svg, "end soft", (x, y), &self.note);
        }
        let mut y = top;
        for Bar { client, value, label } in &self.bars {
            let (origin, end) = (axis.x(axis.origin), axis.x(*value));
            let (left, width) = (f64::min(origin, end), (end - origin).abs());
            let _ = writeln!(
                svg,
                "<rect class=\"bar {}\" x=\"{left:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{BAR_HEIGHT}\"/>",
                client.title()
            );
            // The label of a bar that ends on the left is on the right of the origin, where space is free.
            draw_text(svg, "value", (f64::max(origin, end) + 6.0, y + 11.0), label);
            y += BAR_STEP;
        }
    }
}

/// The horizontal axis: which value is where.
#[derive(Debug)]
struct Axis {
    scale: Scale,
    /// Left and right end on the page.
    sides: (f64, f64),
    /// Values of the left and of the right end.
    ends: (f64, f64),
    /// The value at which bars start.
    origin: f64,
    ticks: Vec<f64>,
}

impl Axis {
    fn new(scale: Scale, sides: (f64, f64), values: &[f64]) -> Self {
        // A logarithmic axis has no place for zero; `x` puts such a value at the left end.
        let positive = values.iter().copied().filter(|value| *value > 0.0);
        let reference = matches!(scale, Scale::RatioTo(_)).then_some(1.0);
        let all = || positive.clone().chain(reference);
        let (min, max) = (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
        let (ticks, high) =
            if scale == Scale::Linear { linear_ticks(max) } else { logarithmic_ticks(min, max) };
        let ends = (ticks.first().copied().unwrap_or(high / 10.0), high);
        Self { scale, sides, ends, origin: reference.unwrap_or(ends.0), ticks }
    }

    /// Returns the place of a value on the page.
    fn x(&self, value: f64) -> f64 {
        let ((left, right), (low, high)) = (self.sides, self.ends);
        let share = match self.scale {
            Scale::Linear => (value - low) / (high - low),
            Scale::Logarithmic | Scale::RatioTo(_) => (value.max(low) / low).log10() / (high / low).log10(),
        };
        left + share * (right - left)
    }

    /// Draws a line for each tick, and its label above and below the bars.
    fn draw(&self, svg: &mut String, bottom: f64) {
        let sign = if matches!(self.scale, Scale::RatioTo(_)) { " ×" } else { "" };
        let (top, bottom) = (HEAD_HEIGHT - 8.0, bottom - GROUP_GAP + 8.0);
        for tick in &self.ticks {
            let (x, label) = (self.x(*tick), format!("{}{sign}", tick_label(*tick)));
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{x:.1}\" y1=\"{top:.1}\" x2=\"{x:.1}\" y2=\"{bottom:.1}\"/>"
            );
            draw_text(svg, "soft middle", (x, top - 5.0), &label);
            draw_text(svg, "soft middle", (x, bottom + 14.0), &label);
        }
    }

    /// Draws the line of the client that has the ratio 1.
    fn draw_origin(&self, svg: &mut String, bottom: f64) {
        if let Scale::RatioTo(client) = self.scale {
            let (x, y) = (self.x(1.0) - 1.5, HEAD_HEIGHT - 8.0);
            let (class, height) = (client.title(), bottom - GROUP_GAP + 8.0 - y);
            let _ = writeln!(
                svg,
                "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"3\" height=\"{height:.1}\"/>"
            );
        }
    }
}

/// Returns the values of the series with these factors in each power of ten, in ascending order.
fn series(factors: &[f64]) -> impl Iterator<Item = f64> {
    (-9..=12).flat_map(move |power| factors.iter().map(move |factor| factor * 10_f64.powi(power)))
}

/// Returns zero and equal steps up to the first that is not below `max`, where the axis ends.
fn linear_ticks(max: f64) -> (Vec<f64>, f64) {
    let step = series(&[1.0, 2.0, 5.0]).find(|step| max / step <= 6.0).unwrap_or(max);
    let mut ticks = vec![0.0, step];
    let mut last = step;
    while last < max {
        last += step;
        ticks.push(last);
    }
    (ticks, last)
}

/// Returns steps from the last below `min`, so that the smallest bar is visible, and the end of the axis: the
/// first step that is not below `max`.
fn logarithmic_ticks(min: f64, max: f64) -> (Vec<f64>, f64) {
    let high = series(&[1.0, 2.0, 5.0]).find(|step| *step >= max).unwrap_or(max);
    let ticks = |factors: &'static [f64]| -> Vec<f64> {
        let low = series(factors).take_while(|step| *step < min / 1.05).last().unwrap_or(min);
        series(factors).filter(|step| (low..=high).contains(step)).collect()
    };
    let fine = ticks(&[1.0, 2.0, 5.0]);
    (if fine.len() <= MAX_TICKS { fine } else { ticks(&[1.0]) }, high)
}

fn tick_label(value: f64) -> String {
    if value >= 1000.0 {
        return shown(value);
    }
    format!("{value:.6}").trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Splits a name after commas into lines that fit beside the bars.
fn wrap(name: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in name.split_inclusive(", ") {
        match lines.last_mut() {
            Some(line) if line.chars().count() + part.trim_end().chars().count() <= MAX_NAME_CHARS => {
                line.push_str(part);
            }
            _ => lines.push(part.to_owned()),
        }
    }
    lines
}

fn text_width(text: &str) -> f64 {
    text.chars().fold(0.0, |width, _| width + CHAR_WIDTH)
}

fn draw_text(svg: &mut String, class: &str, (x, y): (f64, f64), text: &str) {
    let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
    let _ = writeln!(svg, "<text{class} x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escape(text));
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(client: Client, value: f64) -> Bar {
        Bar { client, value, label: format!("{value} s") }
    }

    fn plot(scale: Scale, bars: Vec<Bar>) -> Plot {
        let group = Group { name: "sync".to_owned(), note: String::new(), bars };
        Plot { title: "Sync".to_owned(), explanation: "Seconds".to_owned(), scale, groups: vec![group] }
    }

    /// Returns the left ends and the widths of the bars of a client.
    fn bars(svg: &str, client: Client) -> Vec<(f64, f64)> {
        let start = format!("<rect class=\"bar {}\"", client.title());
        let number = |line: &str, name: &str| -> f64 {
            let rest = line.split_once(&format!(" {name}=\"")).unwrap().1;
            rest.split_once('"').unwrap().0.parse().unwrap()
        };
        let lines = svg.lines().filter(|line| line.starts_with(&start));
        lines.map(|line| (number(line, "x"), number(line, "width"))).collect()
    }

    #[test]
    fn ticks_are_round_values_around_the_figures() {
        let check = |scale: Scale, values: &[f64], expected: &[&str]| {
            let labels: Vec<String> =
                Axis::new(scale, (0.0, 1.0), values).ticks.iter().map(|tick| tick_label(*tick)).collect();
            assert_eq!(labels, expected, "{values:?}");
        };
        check(Scale::Linear, &[205.0, 2311.0], &["0", "500", "1,000", "1,500", "2,000", "2,500"]);
        check(Scale::Logarithmic, &[0.3, 4.0], &["0.2", "0.5", "1", "2", "5"]);
        check(Scale::Logarithmic, &[1.0, 1.0], &["0.5", "1"]);
        check(Scale::Logarithmic, &[0.03, 2000.0], &["0.01", "0.1", "1", "10", "100", "1,000"]);
        check(Scale::RatioTo(Client::Go), &[3.0, 7.0], &["0.5", "1", "2", "5", "10"]);
    }

    #[test]
    fn bars_on_a_logarithmic_axis_grow_by_the_same_length_for_the_same_factor() {
        let values = [2.0, 20.0, 200.0].map(|value| bar(Client::Informer, value));
        let svg = plot(Scale::Logarithmic, values.into()).svg();
        let [(_, first), (_, second), (_, third)] = bars(&svg, Client::Informer)[..] else { panic!("{svg}") };
        assert!(first > 0.0 && ((second - first) - (third - second)).abs() < 0.2, "{svg}");
    }

    #[test]
    fn bars_on_a_linear_axis_are_proportional() {
        let svg = plot(Scale::Linear, vec![bar(Client::Informer, 2.0), bar(Client::Go, 6.0)]).svg();
        let (informer, go) = (bars(&svg, Client::Informer)[0].1, bars(&svg, Client::Go)[0].1);
        assert!((go - 3.0 * informer).abs() < 0.3, "{svg}");
    }

    #[test]
    fn ratio_below_one_ends_on_the_left_of_the_reference() {
        let scale = Scale::RatioTo(Client::Go);
        let svg = plot(scale, vec![bar(Client::Informer, 4.0), bar(Client::KubeRs, 0.25)]).svg();
        let (better, worse) = (bars(&svg, Client::Informer)[0], bars(&svg, Client::KubeRs)[0]);
        assert!((better.0 - (worse.0 + worse.1)).abs() < 0.2 && (better.1 - worse.1).abs() < 0.2, "{svg}");
        assert!(svg.contains(">client-go = 1</text>"), "{svg}");
    }

    #[test]
    fn missing_client_has_no_bar_and_no_legend() {
        let svg = plot(Scale::Logarithmic, vec![bar(Client::Informer, 4.0), bar(Client::Go, 5.0)]).svg();
        assert!(bars(&svg, Client::KubeRs).is_empty(), "{svg}");
        assert!(svg.contains(">client-go</text>") && !svg.contains(">kube-rs</text>"), "{svg}");
    }

    #[test]
    fn zero_and_no_figures_are_drawn() {
        let svg = plot(Scale::Logarithmic, vec![bar(Client::Informer, 0.0), bar(Client::Go, 5.0)]).svg();
        assert!(bars(&svg, Client::Informer)[0].1 < 0.1, "{svg}");
        for scale in [Scale::Linear, Scale::Logarithmic] {
            let svg = plot(scale, Vec::new()).svg();
            assert!(!svg.contains("NaN") && !svg.contains("inf\""), "{svg}");
        }
    }

    #[test]
    fn text_is_escaped() {
        let mut plot = plot(Scale::Linear, vec![bar(Client::Informer, 1.0)]);
        (plot.title, plot.groups[0].name) = ("a < \"b\"".to_owned(), "c & d".to_owned());
        let svg = plot.svg();
        assert!(svg.contains(">a &lt; &quot;b&quot;</title>"), "{svg}");
        assert!(svg.contains(">c &amp; d</text>") && !svg.contains("c & d"), "{svg}");
    }

    #[test]
    fn description_has_all_values() {
        let svg = plot(Scale::Linear, vec![bar(Client::Informer, 1.0), bar(Client::Go, 2.5)]).svg();
        assert!(svg.contains(">Seconds. sync: informer 1 s, client-go 2.5 s.</desc>"), "{svg}");
    }

    #[test]
    fn long_name_is_wrapped_and_needs_space() {
        let lines = wrap("initial sync from kube-apiserver, protobuf, 50k pods");
        assert_eq!(lines, ["initial sync from kube-apiserver, ", "protobuf, 50k pods"]);
        let height =
            |name: &str| Group { name: name.to_owned(), note: String::new(), bars: Vec::new() }.height();
        let two_lines = "typed get through a projection, 5000 changes/s";
        assert!((height(two_lines) - height("get") - LINE_HEIGHT).abs() < 0.1);
    }

    #[test]
    fn equal_plots_have_equal_text() {
        let svg = || plot(Scale::Linear, vec![bar(Client::Go, 2.0)]).svg();
        assert_eq!(svg(), svg());
        let expected = "<rect class=\"bar client-go\" x=\"265.0\" y=\"122.0\" width=\"";
        assert!(svg().contains(expected), "{}", svg());
    }
}
