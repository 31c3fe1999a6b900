//! What the command says on standard error besides the log, in the style of clap: `error: …`, and
//! below it `tip: …`.

use std::fmt::Display;
use std::io::stderr;

use clap::builder::styling::{AnsiColor, Style, Styles};
use stentor_server::event_log;

use crate::{Failure, has_colours};

/// Says why the command has failed, and what helps.
pub(crate) fn failure(failure: &Failure) {
    let (reason, tip) = failure.reason_and_tip();
    let mut text = format!("{} {reason}", label("error:", *Styles::styled().get_error()));
    if let Some(tip) = tip {
        text += &format!("\n\n  {} {tip}", label("tip:", *Styles::styled().get_valid()));
    }
    event_log::say(&text);
}

/// Says what is wrong, where the command goes on.
pub(crate) fn error(reason: impl Display) {
    event_log::say(&format!("{} {reason}", label("error:", *Styles::styled().get_error())));
}

/// Says what may not be meant so.
pub(crate) fn warning(reason: impl Display) {
    event_log::warn(&format!(
        "{} {reason}",
        label("warning:", AnsiColor::Yellow.on_default().bold())
    ));
}

/// Says what is good to know.
pub(crate) fn note(text: impl Display) {
    event_log::warn(&format!("{} {text}", label("note:", Style::new().bold())));
}

fn label(text: &str, style: Style) -> String {
    // A journal has a level for each line instead, and shows escapes as they are.
    match has_colours(&stderr()) && !event_log::is_journal() {
        true => format!("{style}{text}{style:#}"),
        false => text.to_owned(),
    }
}
