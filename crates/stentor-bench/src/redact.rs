//! Leaves credentials out of what is shared: pages and the messages of errors.
//!
//! Any server can be measured, so this code cannot know which value is a credential. It therefore
//! hides every value of a query, every published body, and every header field except some that
//! are known to hold none. Names stay, so that a reader sees which values to fill in.

use std::iter;

use crate::report::{Comparison, Report};

/// The URL with `…` for each value of its query. A parameter without a name is a value, too.
pub(crate) fn url(url: &str) -> String {
    let Some((path, query)) = url.split_once('?') else { return url.to_owned() };
    let parameters = query.split('&').map(|parameter| match parameter.split_once('=') {
        Some((name, _)) => format!("{name}={HIDDEN}"),
        None if parameter.is_empty() => String::new(),
        None => HIDDEN.to_owned(),
    });
    format!("{path}?{}", parameters.collect::<Vec<_>>().join("&"))
}

/// The arguments of `stentor bench` without credentials.
pub(crate) fn arguments(arguments: impl Iterator<Item = String>) -> impl Iterator<Item = String> {
    let mut arguments = arguments;
    let mut flag = None;
    iter::from_fn(move || {
        let argument = arguments.next()?;
        // The value of a flag is the next argument, or stands behind `=` in the same one.
        if let Some(flag) = flag.take() {
            return Some(value(flag, &argument));
        }
        let Some(secret) = secret_flag(&argument) else { return Some(url(&argument)) };
        let Some((name, text)) = argument.split_once('=') else {
            flag = Some(secret);
            return Some(argument);
        };
        Some(format!("{name}={}", value(secret, text)))
    })
}

impl Report {
    /// The same report, to be shared: without values of queries.
    pub(crate) fn redacted(&self) -> Report {
        let mut report = self.clone();
        report.url = url(&report.url);
        report.settings.iter_mut().for_each(|(_, value)| *value = url(value));
        let servers = report.delivery.iter_mut().flat_map(|delivery| &mut delivery.servers);
        servers.for_each(|server| server.url = url(&server.url));
        report
    }
}

impl Comparison {
    /// The same comparison, to be shared: without values of queries.
    pub(crate) fn redacted(&self) -> Comparison {
        let mut comparison = self.clone();
        for subject in &mut comparison.subjects {
            subject.url = url(&subject.url);
            subject.reports = subject.reports.iter().map(Report::redacted).collect();
        }
        comparison
    }
}

/// A flag whose value can be a credential.
#[derive(Clone, Copy)]
enum SecretFlag {
    Header,
    Body,
}

fn secret_flag(argument: &str) -> Option<SecretFlag> {
    match argument.split_once('=').map_or(argument, |(name, _)| name) {
        "--header" | "--publish-header" => Some(SecretFlag::Header),
        "--publish-body" => Some(SecretFlag::Body),
        _ => None,
    }
}

fn value(flag: SecretFlag, text: &str) -> String {
    match (flag, text.split_once(':')) {
        (SecretFlag::Header, Some((name, _))) if is_harmless(name) => text.to_owned(),
        (SecretFlag::Header, Some((name, _))) => format!("{name}: {HIDDEN}"),
        // The command's default holds no more than the message.
        (SecretFlag::Body, _) if text == "{message}" => text.to_owned(),
        _ => HIDDEN.to_owned(),
    }
}

fn is_harmless(name: &str) -> bool {
    HARMLESS_FIELDS.iter().any(|harmless| harmless.eq_ignore_ascii_case(name))
}

/// Header fields that hold no credential.
const HARMLESS_FIELDS: [&str; 13] = [
    "Accept",
    "Accept-Encoding",
    "Accept-Language",
    "Cache-Control",
    "Content-Type",
    "Host",
    "If-Match",
    "If-Modified-Since",
    "If-None-Match",
    "Last-Event-ID",
    "Origin",
    "Range",
    "User-Agent",
];

/// Stands for a value that is hidden.
const HIDDEN: &str = "…";
