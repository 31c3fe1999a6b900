//! The service that makes the order, or keeps it.

use super::store_path;
use std::io;
use std::sync::Arc;
use stentor_cluster::{ClusterState, ClusterThread};
use stentor_config::Settings;
use stentor_hub::Hub;
use stentor_io::HostDisk;
use stentor_order::{Applier, Report};
use stentor_replication::{FollowState, FollowThread};
use stentor_store::StoreState;

/// The service that is configured: there is one at most.
pub(super) enum Service {
    None,
    Store(Arc<StoreState>),
    /// A leader, and the thread that follows it once the server serves.
    Leader(Arc<FollowState>, Option<FollowThread>),
    /// A cluster, the disk that the node saves values to, until its threads begin, and these
    /// threads once the server serves.
    Cluster(Arc<ClusterState>, Option<HostDisk>, Option<ClusterThread>),
}

impl Service {
    /// The service, before it begins. If a leader or a broker makes the order, the hub follows that
    /// from now on.
    ///
    /// # Errors
    /// The system has no file for the waker of a node.
    pub(super) fn of(
        settings: &Settings,
        hub: &Hub,
        disk: Option<HostDisk>,
    ) -> io::Result<Service> {
        let service = if settings.follow.is_on() {
            Service::Leader(Arc::new(FollowState::new(&settings.follow)), None)
        } else if settings.cluster.is_on() {
            Service::Cluster(Arc::new(ClusterState::new(&settings.cluster)?), disk, None)
        } else if store_path(settings).is_some() {
            let state = StoreState::new(hub.stored().max, settings.store.wait_max_ms);
            return Ok(Service::Store(Arc::new(state)));
        } else {
            return Ok(Service::None);
        };
        hub.begin_following();
        Ok(service)
    }

    /// The service as the workers see it.
    pub(super) fn report(&self) -> Option<Arc<dyn Report>> {
        match self {
            Service::None => None,
            Service::Store(store) => Some(Arc::clone(store) as _),
            Service::Leader(follow, _) => Some(Arc::clone(follow) as _),
            Service::Cluster(node, ..) => Some(Arc::clone(node) as _),
        }
    }

    /// Starts the threads of a node, or the thread that follows a leader once the server begins. A
    /// store has its own.
    pub(super) fn start(&mut self, applier: &Applier) -> io::Result<()> {
        match self {
            Service::None | Service::Store(_) => {}
            Service::Leader(follow, thread) => {
                *thread = Some(FollowThread::start(follow, applier)?);
            }
            Service::Cluster(node, disk, thread) => {
                *thread = Some(ClusterThread::start(node, applier, disk.take())?);
            }
        }
        Ok(())
    }

    /// Follows the leader, if there is one.
    pub(super) fn begin(&self) {
        if let Service::Leader(_, Some(thread)) = self {
            thread.begin();
        }
    }

    pub(super) fn store(&self) -> Option<&Arc<StoreState>> {
        if let Service::Store(store) = self { Some(store) } else { None }
    }

    pub(super) fn follow(&self) -> Option<&Arc<FollowState>> {
        if let Service::Leader(follow, _) = self { Some(follow) } else { None }
    }
}
