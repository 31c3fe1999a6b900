//! A service that makes the order or keeps it, as the server sees it.
//!
//! A store, a leader and a cluster have crates of their own. To a server each of them is a
//! [`Report`]. `/-/status` shows only the name of a service that is not there.

use crate::exposition::Page;
use crate::sequencer::{OrderKind, Sequencer};
use serde_json::Value;
use std::sync::Arc;
use stentor_hub::Hub;
use stentor_wire::error::Rejection;

/// A service that makes the order or keeps it.
pub trait Report: Send + Sync {
    /// How it keeps the order, and what gives changes their places in it.
    fn order(&self) -> (OrderKind, Arc<dyn Sequencer>);

    /// The key of its figures in `/-/status`.
    fn name(&self) -> &'static str;

    /// Its figures, with their keys in `/-/status`.
    fn figures(&self, hub: &Hub) -> Vec<(&'static str, Value)>;

    /// Writes its metrics to the page. [`metrics!`](crate::metrics) makes this method.
    fn write_metrics(&self, hub: &Hub, page: &mut Page);

    /// Whether requests can be answered yet. Every request asks.
    ///
    /// # Errors
    /// What clients are answered meanwhile.
    fn may_answer(&self) -> Result<(), Rejection>;

    /// Why this server is not ready to serve readers on its account, if so.
    fn complaint(&self) -> Option<Rejection>;

    /// Why this server is not ready to publish on its account, beside [`Report::complaint`]: a
    /// sentence for each reason. Empty: it is ready.
    fn publish_complaints(&self) -> Vec<Rejection> {
        Vec::new()
    }

    /// For how many seconds the local state may be outdated; `None`: it is current.
    fn stale_s(&self) -> Option<u64> {
        None
    }

    /// How many milliseconds old the local state may be, for servers that follow this one.
    fn age_ms(&self) -> u64 {
        0
    }

    /// The `Stentor-Via` field for followers: the servers between them and the origin of the order.
    fn via(&self) -> Option<String> {
        None
    }
}

/// Makes [`Report::write_metrics`]: a row for each metric. A row has the type of the metric, its
/// name without `stentor_`, and an expression; its help is the comment before it. A method that
/// is named behind the hub is called once for all rows.
#[macro_export]
macro_rules! metrics {
    (|$self:ident, $hub:ident $(, $once:ident)?| $(
        $(#[doc = $help:literal])+
        $kind:ident $name:ident [=> $shown:expr];
    )+) => {
        fn write_metrics(&$self, $hub: &stentor_hub::Hub, page: &mut $crate::Page) {
            $(let $once = $self.$once();)?
            $(
                page.begin($crate::Kind::$kind, stringify!($name), concat!($($help),+));
                page.show("", $shown);
            )+
        }
    };
}
