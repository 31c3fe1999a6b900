//! Charts as inline SVG: lines over an axis, and horizontal bars. That is all a report needs.
//!
//! A chart is text. Its colours and type come from the style sheet of the page by the names of
//! classes, so that it follows light, dark and paper; what a pointer rests on is explained by
//! `<title>`, without a script. All text is escaped here. Values that are no numbers are left out,
//! and a chart without a value is no chart: the empty string.
//!
//! No library draws for a page without scripts whose colours follow its style sheet: plotters has
//! its own, and charming draws by script.

use super::units;

/// An axis: what it reaches from and to, and where its labels stand.
pub(super) struct Axis {
    low: f64,
    high: f64,
    log: bool,
    ticks: Vec<(f64, String)>,
}

impl Axis {
    /// From 0 to the next round number from `max`.
    pub(super) fn from_zero(max: f64, show: fn(f64) -> String) -> Axis {
        let max = if max.is_finite() && max > 0.0 { max } else { 1.0 };
        let step = round_up(max / INTERVALS);
        let steps = (max / step - 1e-9).ceil().max(1.0);
        let ticks = (0..=steps as u32).map(|i| f64::from(i) * step);
        let ticks = ticks.map(|value| (value, units::plain(&show(value)))).collect();
        Axis { low: 0.0, high: step * steps, log: false, ticks }
    }

    /// Whole things that are numbered from 1.
    pub(super) fn numbers(max: u32) -> Axis {
        let max = f64::from(max.max(2));
        let step = round_up(max / INTERVALS).max(1.0);
        let mut ticks = vec![(1.0, "1".to_owned())];
        let more = (1..=INTERVALS as u32).map(|i| f64::from(i) * step);
        let more = more.filter(|value| *value > 1.0 && *value <= max);
        ticks.extend(more.map(|value| (value, units::compact(value))));
        Axis { low: 1.0, high: max, log: false, ticks }
    }

    /// From the start of a run to its end, in seconds.
    pub(super) fn seconds(max: f64) -> Axis {
        let max = if max.is_finite() && max > 0.0 { max } else { 1.0 };
        let least = max / SECONDS_INTERVALS;
        let step = match CLOCK_STEPS.iter().find(|step| **step >= least) {
            Some(step) if least > 1.0 => *step,
            Some(_) => round_up(least),
            None => round_up(least / 3600.0) * 3600.0,
        };
        let (factor, unit) = match step {
            _ if step >= 3600.0 => (3600.0, "h"),
            _ if step >= 60.0 => (60.0, "min"),
            _ => (1.0, "s"),
        };
        let values = (0..=SECONDS_INTERVALS as u32).map(|i| f64::from(i) * step);
        let values = values.filter(|value| *value <= max * (1.0 + 1e-9));
        let ticks = values.map(|value| {
            (value, format!("{} {unit}", units::plain(&units::number(value / factor))))
        });
        Axis { low: 0.0, high: max, log: false, ticks: ticks.collect() }
    }

    /// Times in microseconds, by their logarithm, over all of `values`.
    pub(super) fn log_us(values: impl Iterator<Item = f64>) -> Axis {
        let (mut low, mut high) = (f64::INFINITY, 0.0_f64);
        for value in values.filter(|value| value.is_finite()) {
            low = low.min(value.max(LOG_LEAST));
            high = high.max(value.max(LOG_LEAST));
        }
        if high == 0.0 {
            (low, high) = (1.0, 10.0);
        }
        let fine = high / low < 50.0;
        let factors: &[f64] = if fine { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let first = low.log10().floor() as i32;
        let last = high.log10().ceil().max(f64::from(first) + 1.0) as i32;
        let every = (last - first).div_euclid(7) + 1;
        let round =
            (first..=last).flat_map(|e| factors.iter().map(move |f| (e, f * 10f64.powi(e))));
        let round: Vec<_> = round.collect();
        // The axis ends at the round numbers just beyond the values.
        let low = round.iter().rev().find(|(_, v)| *v <= low * 1.000_001).map_or(low, |(_, v)| *v);
        let high = round.iter().find(|(_, v)| *v >= high.max(low * 2.0) * 0.999_999);
        let high = high.map_or(10f64.powi(last), |(_, value)| *value);
        let ticks = round.into_iter().filter(|(e, value)| {
            (e - first) % every == 0 && *value >= low * 0.999 && *value <= high * 1.001
        });
        let ticks = ticks.map(|(_, value)| (value, units::plain(&units::time_us(value)))).collect();
        Axis { low, high, log: true, ticks }
    }

    /// Percentiles, by how rare what lies beyond is: see [`rarity`]. The worst of `count` is at
    /// the end.
    pub(super) fn percentiles(count: u64) -> Axis {
        let high = (count as f64).log10().clamp(1.0, RARITY_MAX);
        let mut ticks: Vec<_> = NAMED_PERCENTILES
            .iter()
            .map(|percentile| (rarity(*percentile, u64::MAX), percentile.to_string()))
            .filter(|(at, _)| (high - at) / high * PLOT_WIDTH > LABEL_WIDTH)
            .collect();
        ticks.push((high, "100 %".to_owned()));
        Axis { low: 0.0, high, log: false, ticks }
    }

    /// Where a value stands, from 0 to 1.
    fn share(&self, value: f64) -> f64 {
        let share = match self.log {
            true => (value.max(LOG_LEAST) / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        };
        share.clamp(0.0, 1.0)
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + self.share(value) * PLOT_WIDTH
    }

    fn y(&self, value: f64) -> f64 {
        TOP + (1.0 - self.share(value)) * PLOT_HEIGHT
    }
}

/// Where a percentile stands on a logarithmic axis: 1 for 90 %, 2 for 99 %. With `count` values
/// nothing can be rarer than one of them.
pub(super) fn rarity(percentile: f64, count: u64) -> f64 {
    let beyond = (1.0 - percentile / 100.0).max(1.0 / count.max(1) as f64);
    (-beyond.log10()).clamp(0.0, RARITY_MAX)
}

/// The percentiles that have a name on the axis.
pub(super) const NAMED_PERCENTILES: [f64; 6] = [50.0, 90.0, 99.0, 99.9, 99.99, 99.999];

/// Lines over an axis.
pub(super) struct LineChart<'a> {
    /// What there is to see, for who cannot see it.
    pub(super) label: &'a str,
    pub(super) x: Axis,
    pub(super) y: Axis,
    /// One or a few lines. The first is filled to the ground if it is alone.
    pub(super) lines: Vec<Vec<(f64, f64)>>,
    /// A value to be reached.
    pub(super) goal: Option<f64>,
    /// Where something went wrong.
    pub(super) marks: Vec<f64>,
    /// What is told of the place under the pointer, from left to right.
    pub(super) notes: Vec<(f64, String)>,
}

impl LineChart<'_> {
    /// The chart, or nothing if there is no point in it.
    pub(super) fn svg(mut self) -> String {
        for line in &mut self.lines {
            line.retain(|(x, y)| x.is_finite() && y.is_finite());
        }
        self.notes.retain(|(x, _)| x.is_finite());
        if self.lines.iter().all(Vec::is_empty) {
            return String::new();
        }
        let mut svg = open(self.label, TOP + PLOT_HEIGHT + BOTTOM);
        self.grid(&mut svg);
        for (i, points) in self.lines.iter().enumerate() {
            self.line(&mut svg, i, points);
        }
        let ground = TOP + PLOT_HEIGHT;
        for at in self.marks.iter().filter(|at| at.is_finite()) {
            let x = self.x.x(*at);
            svg += &format!("<path class=\"mark\" d=\"M{:.1} {:.1}l4 7h-8z\"/>", x, ground - 8.0);
        }
        self.pointer(&mut svg);
        svg + "</svg>\n"
    }

    fn grid(&self, svg: &mut String) {
        let (right, ground) = (LEFT + PLOT_WIDTH, TOP + PLOT_HEIGHT);
        for (value, label) in &self.y.ticks {
            let y = self.y.y(*value);
            *svg += &format!("<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/>");
            *svg += &words("y", LEFT - 8.0, y + 4.0, label);
        }
        *svg += &format!("<path class=\"ground\" d=\"M{LEFT} {ground}H{right}\"/>");
        for (value, label) in &self.x.ticks {
            let x = self.x.x(*value);
            *svg += &format!("<path class=\"ground\" d=\"M{x:.1} {ground}v4\"/>");
            // A label at the very end would stand out of the picture if it were centred.
            let class = if x > right - 12.0 { "x end" } else { "x" };
            let x = if x > right - 12.0 { right + RIGHT - 2.0 } else { x };
            *svg += &words(class, x, ground + 18.0, label);
        }
        if let Some(goal) = self.goal.filter(|goal| goal.is_finite()) {
            let y = self.y.y(goal);
            *svg += &format!("<path class=\"goal\" d=\"M{LEFT} {y:.1}H{right}\"/>");
        }
    }

    fn line(&self, svg: &mut String, i: usize, points: &[(f64, f64)]) {
        let place = |(x, y): &(f64, f64)| format!("{:.1} {:.1}", self.x.x(*x), self.y.y(*y));
        let path = points.iter().map(place).collect::<Vec<_>>().join("L");
        let series = series(i);
        match points {
            [] => {}
            [(x, y)] => {
                let (x, y) = (self.x.x(*x), self.y.y(*y));
                *svg +=
                    &format!("<circle class=\"s{series}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>");
            }
            [(first, _), .., (last, _)] => {
                if self.lines.len() == 1 && !self.y.log {
                    let (first, last) = (self.x.x(*first), self.x.x(*last));
                    let ground = TOP + PLOT_HEIGHT;
                    *svg += &format!(
                        "<path class=\"area s{series}\" \
                         d=\"M{first:.1} {ground}L{path}L{last:.1} {ground}z\"/>"
                    );
                }
                *svg += &format!("<path class=\"line s{series}\" d=\"M{path}\"/>");
            }
        }
    }

    /// A column for each note, from midway to its neighbours: it shows where the pointer is, and
    /// the browser shows the note.
    fn pointer(&self, svg: &mut String) {
        let at: Vec<f64> = self.notes.iter().map(|(x, _)| self.x.x(*x)).collect();
        for (i, (_, note)) in self.notes.iter().enumerate() {
            let left = if i == 0 { LEFT } else { f64::midpoint(at[i - 1], at[i]) };
            let right = at.get(i + 1).map_or(LEFT + PLOT_WIDTH, |next| f64::midpoint(at[i], *next));
            *svg += &format!(
                "<g class=\"note\"><title>{}</title><rect x=\"{left:.1}\" y=\"{TOP}\" \
                 width=\"{:.1}\" height=\"{PLOT_HEIGHT}\"/>\
                 <path d=\"M{:.1} {TOP}v{PLOT_HEIGHT}\"/></g>",
                escape(note),
                (right - left).max(0.0),
                at[i],
            );
        }
    }
}

/// One bar: a name, a value, how it is shown, and within what it varied.
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) value: f64,
    pub(super) shown: String,
    pub(super) range: Option<(f64, f64)>,
}

/// Horizontal bars below each other, each with its name and value above it. What is below 0 has
/// no length.
pub(super) fn bars(label: &str, bars: &[Bar]) -> String {
    let far = |bar: &Bar| bar.range.map_or(bar.value, |(_, high)| high.max(bar.value));
    let bars: Vec<_> = bars.iter().filter(|bar| bar.value.is_finite()).collect();
    if bars.is_empty() {
        return String::new();
    }
    let longest = bars.iter().map(|bar| far(bar)).filter(|far| far.is_finite()).fold(0.0, f64::max);
    let length = |value: f64| match longest > 0.0 {
        true => (value / longest).clamp(0.0, 1.0) * WIDTH,
        false => 0.0,
    };
    let mut svg = open(label, bars.len() as f64 * BAR_PITCH);
    for (i, bar) in bars.iter().enumerate() {
        let text = i as f64 * BAR_PITCH + 16.0;
        let top = text + 8.0;
        let full = length(bar.value);
        svg += &words("name", 0.0, text, &units::shortened(&bar.name, NAME_CHARS));
        svg += &words("value", WIDTH, text, &bar.shown);
        svg += &format!(
            "<g><title>{}: {}</title><rect class=\"track\" y=\"{top}\" width=\"{WIDTH}\" \
             height=\"{BAR_HEIGHT}\" rx=\"3\"/><rect class=\"bar s{}\" y=\"{top}\" \
             width=\"{full:.1}\" height=\"{BAR_HEIGHT}\" rx=\"3\"/>",
            escape(&bar.name),
            escape(&bar.shown),
            series(i),
        );
        if let Some((low, high)) = bar.range.filter(|(low, high)| low < high && high.is_finite()) {
            let (low, high, middle) = (length(low), length(high), top + BAR_HEIGHT / 2.0);
            svg += &format!(
                "<path class=\"range\" \
                 d=\"M{low:.1} {middle}H{high:.1}M{low:.1} {0}v8M{high:.1} {0}v8\"/>",
                middle - 4.0
            );
        }
        svg += "</g>";
    }
    svg + "</svg>\n"
}

/// The number of a line's or a bar's colour in the style sheet.
pub(super) fn series(i: usize) -> usize {
    i % SERIES + 1
}

/// Text for HTML, in elements and in quoted attributes, without control characters.
pub(super) fn escape(text: &str) -> String {
    html_escape::encode_quoted_attribute(&units::printable(text)).into_owned()
}

fn open(label: &str, height: f64) -> String {
    format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">", escape(label))
}

fn words(class: &str, x: f64, y: f64, text: &str) -> String {
    format!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escape(text))
}

/// The next of 1, 2, 5, 10, 20, …
fn round_up(value: f64) -> f64 {
    let decade = 10f64.powf(value.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|f| f * decade >= value * (1.0 - 1e-9));
    factor.unwrap_or(10.0) * decade
}

/// Colours of the style sheet.
const SERIES: usize = 3;

/// Everything below is in the units of the picture, which is scaled to its place on the page.
const WIDTH: f64 = 460.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 26.0;
const PLOT_WIDTH: f64 = WIDTH - LEFT - RIGHT;
const PLOT_HEIGHT: f64 = 184.0;
const BAR_PITCH: f64 = 48.0;
const BAR_HEIGHT: f64 = 14.0;
/// Characters of a bar's name that leave room for its value.
const NAME_CHARS: usize = 28;
/// What a label on the x axis takes, with some air.
const LABEL_WIDTH: f64 = 48.0;

/// An axis has at most so many intervals.
const INTERVALS: f64 = 5.0;
/// One of seconds, whose labels are short and which does not end with a round number.
const SECONDS_INTERVALS: f64 = 6.0;
/// Steps that a clock has, in seconds.
const CLOCK_STEPS: [f64; 13] =
    [1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0, 21600.0];
/// One in ten million is rare enough.
const RARITY_MAX: f64 = 7.0;
/// The least time in microseconds that a logarithmic axis tells from 0.
const LOG_LEAST: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn axes_have_a_few_round_labels() {
        let axis = Axis::from_zero(123_456.0, units::compact);
        assert_eq!(labels(&axis), ["0", "50 k", "100 k", "150 k"]);
        let axis = Axis::from_zero(f64::NAN, units::compact);
        assert_eq!(axis.high, 1.0);
        assert_eq!(labels(&Axis::seconds(10.0)), ["0 s", "2 s", "4 s", "6 s", "8 s", "10 s"]);
        assert_eq!(
            labels(&Axis::seconds(600.0)),
            ["0 min", "2 min", "4 min", "6 min", "8 min", "10 min"]
        );
        assert_eq!(labels(&Axis::numbers(100)), ["1", "20", "40", "60", "80", "100"]);
        assert_eq!(labels(&Axis::numbers(3)), ["1", "2", "3"]);
        let axis = Axis::log_us([3.0, 90_000.0].into_iter());
        assert_eq!(labels(&axis), ["1 µs", "10 µs", "100 µs", "1 ms", "10 ms", "100 ms"]);
        let axis = Axis::log_us([210.0, 900.0].into_iter());
        assert_eq!(labels(&axis), ["200 µs", "500 µs", "1 ms"]);
        assert_eq!(labels(&Axis::percentiles(20_000)), ["50", "90", "99", "99.9", "100 %"]);
        assert_eq!(labels(&Axis::percentiles(1)), ["50", "100 %"]);
    }

    #[test]
    fn every_axis_takes_every_value() {
        for max in [0.0, 1e-9, 0.3, 1.0, 7.0, 59.0, 61.0, 3601.0, 1e6, 1e12, 1e300, f64::NAN] {
            for axis in [Axis::from_zero(max, units::compact), Axis::seconds(max)] {
                assert!(axis.high > axis.low, "{max}");
                let n = axis.ticks.len();
                assert!((1..=7).contains(&n), "{max}: {n} labels");
                assert!((0.0..=1.0).contains(&axis.share(max)) || max.is_nan(), "{max}");
            }
            let axis = Axis::log_us([max, 5.0].into_iter());
            let n = axis.ticks.len();
            assert!((2..=9).contains(&n), "{max}: {n} labels");
        }
    }

    #[test]
    fn rarity_ends_with_the_number_of_values() {
        assert!((rarity(90.0, 1000) - 1.0).abs() < 1e-9);
        assert!((rarity(99.9999, 1000) - 3.0).abs() < 1e-9);
        assert!((rarity(100.0, 1000) - 3.0).abs() < 1e-9);
        assert_eq!(rarity(0.0, 0), 0.0);
    }

    #[test]
    fn no_value_is_no_chart() {
        let lines = |points| LineChart {
            label: "",
            x: Axis::seconds(1.0),
            y: Axis::from_zero(1.0, units::compact),
            lines: vec![points],
            goal: None,
            marks: Vec::new(),
            notes: Vec::new(),
        };
        assert_eq!(lines(Vec::new()).svg(), "");
        assert_eq!(lines(vec![(f64::NAN, 1.0)]).svg(), "");
        assert!(lines(vec![(0.5, 1.0)]).svg().contains("<circle"));
        assert_eq!(bars("", &[]), "");
    }
}
