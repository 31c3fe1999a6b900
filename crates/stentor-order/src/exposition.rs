//! The Prometheus text format (version 0.0.4).
//!
//! The format is written by hand. The library for it, prometheus-client, collects from metrics of
//! its own, whose counters all threads share; these counters belong to one worker each.

use std::fmt::{Display, Write};
use stentor_io::{BOUNDS_US, Times};

/// The type of a metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Kind {
    /// It only grows.
    #[default]
    Counter,
    /// It is zero once its worker has ended.
    Gauge,
    /// It stays when its worker has ended.
    LastingGauge,
    /// How long things took, counted by buckets.
    Histogram,
}

/// The page so far.
#[derive(Debug, Default)]
pub struct Page {
    text: String,
    /// The metric that is being written. Its first lines are written with its first sample.
    kind: Kind,
    name: &'static str,
    help: Option<&'static str>,
}

impl Page {
    /// All that was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The samples of another metric follow.
    pub fn begin(&mut self, kind: Kind, name: &'static str, help: &'static str) {
        (self.kind, self.name, self.help) = (kind, name, Some(help.trim_start()));
    }

    /// Writes samples of it with these labels.
    pub fn show(&mut self, labels: &str, shown: impl Shown) {
        shown.show(self, labels);
    }

    fn sample(&mut self, suffix: &str, labels: &str, value: impl Display) {
        let Page { text, kind, name, help } = self;
        let prefix = if name.starts_with("process_") { "" } else { "stentor_" };
        // Writing to a string does not fail.
        if let Some(help) = help.take() {
            let kind = match kind {
                Kind::Counter => "counter",
                Kind::Gauge | Kind::LastingGauge => "gauge",
                Kind::Histogram => "histogram",
            };
            let _ = writeln!(text, "# HELP {prefix}{name} {help}\n# TYPE {prefix}{name} {kind}");
        }
        let _ = writeln!(text, "{prefix}{name}{suffix}{labels} {value}");
    }
}

/// The values of a metric's samples.
pub trait Shown {
    /// Writes them with these labels.
    fn show(self, page: &mut Page, labels: &str);
}

macro_rules! numbers {
    ($($number:ty)+) => {
        $(impl Shown for $number {
            fn show(self, page: &mut Page, labels: &str) {
                page.sample("", labels, self);
            }
        })+
    };
}

numbers! { u64 usize i64 f64 }

impl Shown for bool {
    fn show(self, page: &mut Page, labels: &str) {
        u64::from(self).show(page, labels);
    }
}

/// A metric that not every server has.
impl<T: Shown> Shown for Option<T> {
    fn show(self, page: &mut Page, labels: &str) {
        if let Some(shown) = self {
            shown.show(page, labels);
        }
    }
}

/// Samples with labels of their own.
impl<T: Shown> Shown for Vec<(String, T)> {
    fn show(self, page: &mut Page, _: &str) {
        self.into_iter().for_each(|(labels, shown)| shown.show(page, &labels));
    }
}

/// A histogram: cumulative buckets, sum and count.
impl Shown for &Times {
    fn show(self, page: &mut Page, labels: &str) {
        let others = labels.strip_suffix('}').map_or("{".to_owned(), |labels| format!("{labels},"));
        let mut count = 0;
        let bounds = BOUNDS_US.map(|us| (us as f64 / 1e6).to_string());
        let bounds = bounds.iter().map(String::as_str).chain(["+Inf"]);
        for (bucket, bound) in self.buckets.iter().zip(bounds) {
            count += bucket;
            page.sample("_bucket", &format!("{others}le=\"{bound}\"}}"), count);
        }
        page.sample("_sum", labels, self.sum_us as f64 / 1e6);
        page.sample("_count", labels, count);
    }
}

/// Labels in braces.
pub fn label<const N: usize>(labels: [(&str, &str); N]) -> String {
    let labels = labels.map(|(key, value)| format!("{key}=\"{}\"", escaped(value)));
    format!("{{{}}}", labels.join(","))
}

/// A sample for each value of a label.
pub fn labels<'a>(
    key: &str,
    samples: impl Iterator<Item = (&'static str, &'a u64)>,
) -> Vec<(String, u64)> {
    samples.map(|(value, count)| (label([(key, value)]), *count)).collect()
}

/// A path as the value of a label. The name of a file may have a line feed in it, which would end
/// the sample's line.
fn escaped(path: &str) -> String {
    path.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        for (text, value) in [
            ("/etc/a.pem", "/etc/a.pem"),
            ("C:\\\"a\"", "C:\\\\\\\"a\\\""),
            ("a\nb", "a\\nb"),
            ("a\r\tb", "a\r\tb"),
        ] {
            assert_eq!(escaped(text), value, "{text:?}");
        }
    }
}
