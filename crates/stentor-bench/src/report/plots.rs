//! Which charts a report has: for each, the data, what it is called, and what it says in a
//! sentence to somebody who cannot see it. A chart that would show nothing is left out.

use std::borrow::Cow;

use super::chart::{self, Axis, Bar, LineChart, NAMED_PERCENTILES, bars, escape, rarity};
use super::units::{bytes, compact, count, number, time_us};
use super::{Latency, Point, Report, facts};

/// All charts of a report, as figures of a page.
pub(super) fn plots(report: &Report) -> String {
    let mut figures = throughput(report);
    figures += &latency(report);
    figures += &messages(report);
    figures += &opening(report);
    figures += &connections(report);
    figures += &memory_each(report);
    figures += &memory_over_time(report);
    figures
}

/// A chart with its caption, or nothing without a chart. `names` explain the lines if there are
/// several.
pub(super) fn figure(title: &str, about: &str, names: &[&str], svg: &str) -> String {
    if svg.is_empty() {
        return String::new();
    }
    let mut legend = String::new();
    if names.len() > 1 {
        for (i, name) in names.iter().enumerate() {
            let swatch = format!(
                "<svg class=\"swatch\" viewBox=\"0 0 24 8\" aria-hidden=\"true\">\
                 <path class=\"line s{}\" d=\"M0 4H24\"/></svg>",
                chart::series(i)
            );
            legend += &format!("<li>{swatch}{}</li>", escape(name));
        }
        legend = format!("<ul class=\"legend\">{legend}</ul>\n");
    }
    format!(
        "<figure>\n<figcaption><b>{}</b> {}</figcaption>\n{svg}{legend}</figure>\n",
        escape(title),
        escape(about)
    )
}

fn throughput(report: &Report) -> String {
    let points = &report.timeline;
    let most = points.iter().map(|p| p.per_second).filter(|p| p.is_finite()).fold(0.0, f64::max);
    if points.len() < 2 || most <= 0.0 {
        return String::new();
    }
    let has_listeners = report.bystanders.as_ref().is_some_and(|all| all.listeners.is_some());
    let title = match report.delivery.is_some() {
        true => "Deliveries per second",
        // The bystanders' answers and their deliveries are counted together.
        false if has_listeners => "Answers and deliveries per second",
        false => "Answers per second",
    };
    let mut marks = Vec::new();
    let mut errors_before = 0;
    let mut notes = Vec::new();
    for p in points {
        let new = p.errors.saturating_sub(errors_before);
        let mut note = format!("{}: {}/s", seconds(p.at_s), number(p.per_second));
        if new > 0 {
            marks.push(p.at_s);
            note += &format!(", errors: {}", count(new));
        }
        notes.push((p.at_s, note));
        errors_before = p.errors;
    }
    let about = match marks.is_empty() {
        true => "over time",
        false => "over time; triangles mark errors",
    };
    let label = format!("{title} over {}: at most {}.", facts::duration(report), number(most));
    let lines = vec![points.iter().map(|p| (p.at_s, p.per_second)).collect()];
    let svg = LineChart {
        label: &label,
        x: time_axis(points),
        y: Axis::from_zero(most, compact),
        lines,
        goal: None,
        marks,
        notes,
    };
    figure(title, about, &[], &svg.svg())
}

fn connections(report: &Report) -> String {
    let points = &report.timeline;
    let most = points.iter().map(|p| p.connections).max().unwrap_or(0);
    let least = points.iter().map(|p| p.connections).min().unwrap_or(0);
    if most == least {
        return String::new();
    }
    let wanted = report.connections.wanted;
    // Beside bystanders, the connections asked for are not all there are.
    let goal = (report.bystanders.is_none() && wanted >= most).then_some(wanted as f64);
    let about = if goal.is_some() { "over time; dashed: asked for" } else { "over time" };
    let label = format!("Open connections over time: at most {}.", count(most));
    let svg = LineChart {
        label: &label,
        x: time_axis(points),
        y: Axis::from_zero(goal.unwrap_or(most as f64), compact),
        lines: vec![points.iter().map(|p| (p.at_s, p.connections as f64)).collect()],
        goal,
        marks: Vec::new(),
        notes: notes(points, |p| format!("{} open", count(p.connections))),
    };
    figure("Open connections", about, &[], &svg.svg())
}

fn memory_over_time(report: &Report) -> String {
    let points: Vec<_> =
        report.timeline.iter().filter(|p| p.process_bytes.is_some()).copied().collect();
    let resident = |p: &Point| p.process_bytes.unwrap_or(0) as f64;
    let most = points.iter().map(resident).fold(0.0, f64::max);
    let least = points.iter().map(resident).fold(f64::INFINITY, f64::min);
    if points.len() < 2 || most - least < most * GROWTH_MIN {
        return String::new();
    }
    let svg = LineChart {
        label: &format!("Resident memory of the process over time: at most {}.", bytes(most)),
        x: time_axis(&points),
        y: Axis::from_zero(most, bytes),
        lines: vec![points.iter().map(|p| (p.at_s, resident(p))).collect()],
        goal: None,
        marks: Vec::new(),
        notes: notes(&points, |p| bytes(resident(p))),
    };
    figure("Memory of the process", "resident, over time", &[], &svg.svg())
}

/// What the run is about.
fn latency(report: &Report) -> String {
    let title = match (&report.delivery, &report.bystanders) {
        (Some(_), _) => "Delivery",
        (None, Some(_)) => "What the bystanders waited",
        (None, None) => "Latency",
    };
    let mut latencies = facts::latencies(report);
    latencies.retain(|(name, _)| !OPENING.contains(&&**name));
    percentiles(title, &latencies)
}

/// How the connections came to be, unless the run is about requests on a few of them.
fn opening(report: &Report) -> String {
    let mut latencies = facts::latencies(report);
    latencies.retain(|(name, _)| OPENING.contains(&&**name) && report.requests.is_none());
    percentiles("Opening a connection", &latencies)
}

/// Percentiles on two logarithmic axes.
fn percentiles(title: &str, latencies: &[(Cow<'_, str>, &Latency)]) -> String {
    let most = latencies.iter().map(|(_, latency)| latency.count).max().unwrap_or(0);
    // Of fewer values there is no tenth to be rarer than.
    if most < VALUES_MIN {
        return String::new();
    }
    let end = rarity(100.0, most);
    let curves: Vec<_> = latencies.iter().map(|(_, latency)| curve(latency)).collect();
    let mut lines = Vec::new();
    for ((_, latency), curve) in latencies.iter().zip(&curves) {
        let place = |(percentile, us): &(f64, f64)| (rarity(*percentile, latency.count), *us);
        let mut line: Vec<_> = curve.iter().map(place).collect();
        // Beyond one in all of them there is nothing but the worst.
        line.push((end, latency.max_us));
        lines.push(line);
    }
    let mut told: Vec<_> =
        NAMED_PERCENTILES.into_iter().filter(|p| rarity(*p, most) < end).collect();
    told.push(100.0);
    let notes = told.into_iter().map(|percentile| {
        let values = latencies.iter().zip(&curves).map(|((name, latency), curve)| {
            let us = curve.iter().find(|(p, _)| *p >= percentile - 1e-9);
            format!("{name} {}", time_us(us.map_or(latency.max_us, |(_, us)| *us)))
        });
        let values = values.collect::<Vec<_>>().join(", ");
        (rarity(percentile, most), format!("{percentile} %: {values}"))
    });
    let worst = latencies.iter().map(|(name, l)| {
        format!(
            "{name}: median {}, p99 {}, worst {}",
            time_us(l.p50_us),
            time_us(l.p99_us),
            time_us(l.max_us)
        )
    });
    let label = format!("{title} by percentile. {}.", worst.collect::<Vec<_>>().join("; "));
    let values = curves.iter().flatten().map(|(_, us)| *us);
    let svg = LineChart {
        label: &label,
        x: Axis::percentiles(most),
        y: Axis::log_us(values),
        notes: notes.collect(),
        lines,
        goal: None,
        marks: Vec::new(),
    };
    let names: Vec<_> = latencies.iter().map(|(name, _)| &**name).collect();
    figure(title, "by percentile, both axes logarithmic", &names, &svg.svg())
}

/// The curve of a distribution, or what can be drawn from its named percentiles.
fn curve(latency: &Latency) -> Vec<(f64, f64)> {
    let l = latency;
    let mut curve = l.curve.clone();
    if curve.is_empty() {
        curve = vec![(50.0, l.p50_us), (90.0, l.p90_us), (99.0, l.p99_us), (99.9, l.p999_us)];
    }
    curve.push((100.0, l.max_us));
    curve.retain(|(percentile, us)| percentile.is_finite() && us.is_finite());
    curve
}

fn messages(report: &Report) -> String {
    let Some(delivery) = &report.delivery else { return String::new() };
    let messages = &delivery.messages;
    if messages.len() < 2 {
        return String::new();
    }
    let last = messages.iter().map(|m| m.number).max().unwrap_or(0);
    let most = messages.iter().map(|m| m.last_us).filter(|us| us.is_finite()).fold(0.0, f64::max);
    let marks: Vec<_> = messages
        .iter()
        .filter(|m| m.readers < delivery.readers)
        .map(|m| f64::from(m.number))
        .collect();
    let notes = messages.iter().map(|m| {
        let note = format!(
            "Message {}: first reader {}, last reader {}, {} of {} readers",
            m.number,
            time_us(m.first_us),
            time_us(m.last_us),
            count(m.readers),
            count(delivery.readers),
        );
        (f64::from(m.number), note)
    });
    let svg = LineChart {
        label: &format!("Until the last reader had each message: at most {}.", time_us(most)),
        x: Axis::numbers(last),
        y: Axis::from_zero(most, time_us),
        lines: vec![
            messages.iter().map(|m| (f64::from(m.number), m.last_us)).collect(),
            messages.iter().map(|m| (f64::from(m.number), m.first_us)).collect(),
        ],
        goal: None,
        notes: notes.collect(),
        marks: marks.clone(),
    };
    let about = match marks.is_empty() {
        true => "for each message in turn",
        false => "for each message in turn; triangles: not all readers have it",
    };
    let names = ["until the last reader has it", "until the first has it"];
    figure("From publishing to the readers", about, &names, &svg.svg())
}

fn memory_each(report: &Report) -> String {
    let Some(memory) = &report.memory else { return String::new() };
    let bar = |(name, value): (&str, Option<f64>)| {
        let value = value?;
        Some(Bar { name: name.to_owned(), value, shown: bytes(value), range: None })
    };
    let (each, kernel) = match memory.both_ends {
        true => (memory.each(), "kernel, both ends"),
        false => (memory.each(), "kernel, this end"),
    };
    let all =
        [("server process", each.process), (kernel, each.kernel), ("load generator", each.own)];
    let all: Vec<_> = all.into_iter().filter_map(bar).collect();
    if all.is_empty() {
        return String::new();
    }
    let label = all.iter().map(|bar| format!("{} {}", bar.name, bar.shown));
    let label = format!("Memory per connection: {}.", label.collect::<Vec<_>>().join(", "));
    let about = format!("shared by {} connections", count(memory.connections));
    figure("Memory per connection", &about, &[], &bars(&label, &all))
}

fn time_axis(points: &[Point]) -> Axis {
    Axis::seconds(points.iter().map(|p| p.at_s).filter(|at| at.is_finite()).fold(0.0, f64::max))
}

fn notes(points: &[Point], shown: impl Fn(&Point) -> String) -> Vec<(f64, String)> {
    points.iter().map(|p| (p.at_s, format!("{}: {}", seconds(p.at_s), shown(p)))).collect()
}

fn seconds(at_s: f64) -> String {
    time_us(at_s * 1e6)
}

/// Share by which memory has to change for a line that is not just level.
const GROWTH_MIN: f64 = 0.05;
/// Values it takes to draw their percentiles.
const VALUES_MIN: u64 = 10;
/// Distributions of what comes before the work.
const OPENING: [&str; 2] = ["connect", "first answer"];
