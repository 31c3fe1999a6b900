//! `/-/metrics`: what `crate::metrics` lists, as [`Page`] formats it.

use crate::endpoint::status;
use crate::exchange::Exchange;
use stentor_order::Page;

/// `GET /-/metrics`
pub(crate) fn metrics(x: &mut Exchange<'_>) {
    let mut page = Page::default();
    crate::metrics::write(&mut page, &status::report(x));
    x.reply.fresh("text/plain; version=0.0.4; charset=utf-8", page.text().as_bytes());
}
