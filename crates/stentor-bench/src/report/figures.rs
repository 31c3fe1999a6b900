//! The figures of a report as one flat list, the weightiest first. A comparison sets them beside
//! each other, and a page shows the first of them as its headline.

use serde::Serialize;

use super::{Latency, Memory, Report, units};

/// One number that can be compared from run to run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Figure {
    /// The same in every report: "requests_per_second".
    pub key: &'static str,
    /// For people: "requests per second".
    pub label: &'static str,
    /// What `value` counts.
    pub unit: Unit,
    /// The number itself.
    pub value: f64,
    /// Which of two is preferred.
    pub better: Better,
}

/// What a figure counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Things.
    Count,
    /// Things per second.
    PerSecond,
    /// Time in microseconds.
    Microseconds,
    /// Bytes.
    Bytes,
    /// A share, from 0 to 1.
    Share,
}

/// Which of two figures is preferred.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// The smaller one.
    Lower,
    /// The larger one.
    Higher,
}

impl Unit {
    /// A value with its unit, for people.
    #[must_use]
    pub fn show(self, value: f64) -> String {
        match self {
            Unit::Count if value.fract() == 0.0 && (0.0..1e15).contains(&value) => {
                units::count(value as u64)
            }
            Unit::Count => units::number(value),
            Unit::PerSecond => format!("{}/s", units::number(value)),
            Unit::Microseconds => units::time_us(value),
            Unit::Bytes => units::bytes(value),
            Unit::Share => units::percent(value),
        }
    }
}

impl Report {
    /// What there is to compare, the weightiest first. What a run does not measure is left out.
    #[must_use]
    pub fn figures(&self) -> Vec<Figure> {
        let mut figures = Vec::new();
        self.figures_of_work(&mut figures);
        let held = self.requests.is_none() && self.delivery.is_none();
        if held {
            let opened = self.connections.opened as f64;
            figures.push(higher("connections_opened", "connections opened", Unit::Count, opened));
        }
        self.figures_of_bystanders(&mut figures);
        self.figures_of_memory(&mut figures);
        if held {
            let c = &self.connections;
            figures.extend(time("first_answer_p50", "first answer, p50", &c.first_answer, P50));
            figures.extend(time("first_answer_p99", "first answer, p99", &c.first_answer, P99));
            let rate = c.per_second;
            figures.push(higher("opened_per_second", "opened per second", Unit::PerSecond, rate));
            figures.extend(time("connect_p99", "connect, p99", &c.connect, P99));
        }
        self.figures_of_processor(&mut figures);
        let errors = self.errors.iter().fold(0, |sum: u64, e| sum.saturating_add(e.count));
        figures.push(lower("errors", "errors", Unit::Count, errors as f64));
        figures
    }

    /// Requests answered and messages delivered.
    fn figures_of_work(&self, figures: &mut Vec<Figure>) {
        if let Some(r) = &self.requests {
            let rate = r.per_second;
            figures.push(higher("requests_per_second", "requests", Unit::PerSecond, rate));
            figures.extend(time("latency_p50", "latency, p50", &r.latency, P50));
            figures.extend(time("latency_p99", "latency, p99", &r.latency, P99));
            figures.extend(time("latency_p999", "latency, p99.9", &r.latency, |l| l.p999_us));
            figures.extend(time("latency_max", "latency, max", &r.latency, |l| l.max_us));
        }
        if let Some(d) = &self.delivery {
            let share = d.delivered as f64 / d.expected as f64;
            if d.expected > 0 {
                figures.push(higher("delivered", "delivered", Unit::Share, share));
            }
            let rate = d.delivered_per_second;
            figures.push(higher("delivered_per_second", "deliveries", Unit::PerSecond, rate));
            figures.extend(time("delivery_p50", "delivery, p50", &d.latency, P50));
            figures.extend(time("delivery_p99", "delivery, p99", &d.latency, P99));
            figures.extend(time("delivery_max", "delivery, max", &d.latency, |l| l.max_us));
        }
    }

    fn figures_of_bystanders(&self, figures: &mut Vec<Figure>) {
        if let Some(b) = &self.bystanders {
            let label = "bystanders’ p99 before";
            figures.extend(time("bystanders_before_p99", label, &b.before, P99));
            let label = "bystanders’ p99 during";
            figures.extend(time("bystanders_during_p99", label, &b.during, P99));
            let label = "bystanders’ p99 after";
            figures.extend(time("bystanders_after_p99", label, &b.after, P99));
            if let Some(l) = &b.listeners {
                let label = "readers’ p99 before";
                figures.extend(time("listeners_before_p99", label, &l.before, P99));
                let label = "readers’ p99 during";
                figures.extend(time("listeners_during_p99", label, &l.during, P99));
            }
        }
    }

    /// Memory for each connection: the kernel's and the server's, not that of the load generator.
    fn figures_of_memory(&self, figures: &mut Vec<Figure>) {
        let each = self.memory.as_ref().map(Memory::each).unwrap_or_default();
        let figure = |key, label, bytes| lower(key, label, Unit::Bytes, bytes);
        let process = |bytes| figure("process_bytes_each", "process, per connection", bytes);
        let kernel = |bytes| figure("kernel_bytes_each", "kernel, per connection", bytes);
        figures.extend(each.process.map(process));
        figures.extend(each.kernel.map(kernel));
    }

    fn figures_of_processor(&self, figures: &mut Vec<Figure>) {
        let Some(processor) = &self.processor else { return };
        let (key, label) = match processor.each {
            "request" => ("processor_us_per_request", "CPU per request"),
            "delivery" => ("processor_us_per_delivery", "CPU per delivery"),
            _ => ("processor_us_per_connection", "CPU per connection"),
        };
        let each = |us| lower(key, label, Unit::Microseconds, us);
        figures.extend(processor.each_us().map(each));
        if let Some(share) = processor.idle_share {
            figures.push(lower("idle_share", "CPU while idle", Unit::Share, share));
        }
    }
}

/// One time of a distribution, unless nothing was measured.
fn time(
    key: &'static str,
    label: &'static str,
    latency: &Latency,
    pick: fn(&Latency) -> f64,
) -> Option<Figure> {
    (latency.count > 0).then(|| lower(key, label, Unit::Microseconds, pick(latency)))
}

fn lower(key: &'static str, label: &'static str, unit: Unit, value: f64) -> Figure {
    Figure { key, label, unit, value, better: Better::Lower }
}

fn higher(key: &'static str, label: &'static str, unit: Unit, value: f64) -> Figure {
    Figure { key, label, unit, value, better: Better::Higher }
}

const P50: fn(&Latency) -> f64 = |latency| latency.p50_us;
const P99: fn(&Latency) -> f64 = |latency| latency.p99_us;
