//! The addresses of a server, and the listeners of its workers there.

use super::handover::{Address, ServerState, is_of_both};
use super::life::Post;
use crate::start_error::StartError;
use std::net::SocketAddr;
use std::path::PathBuf;
use stentor_config::{ControlAddress, ListenAddress, Settings};
use stentor_io::{
    BindError, Inherited, LAYERED, Listener, PROXIED, Reservation, Role, SocketName, listener_of,
};
use stentor_server::{CONTROL, MONITOR, PUBLIC, PUBLIC_ROLES, REDIRECT};

/// Where the listeners of the workers go.
#[derive(Debug)]
pub(super) struct Addresses(Vec<(Place, Role)>);

/// A listener of a server, as it was bound.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BoundListener {
    /// Its kind, and what its connections speak.
    pub(super) role: Role,
    /// Where it listens.
    pub address: ControlAddress,
}

impl BoundListener {
    /// Public, control, monitor or redirect.
    #[must_use]
    pub fn kind(&self) -> Role {
        listener_of(self.role)
    }

    /// Whether its connections speak TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.role & LAYERED != 0
    }

    /// The URL of a public listener, or of one that redirects.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.is_tls() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }
}

#[derive(Debug)]
enum Place {
    Tcp(Reservation),
    Unix(PathBuf),
    Inherited(Inherited),
    /// Another process hands its listeners there over.
    HandedOver(ControlAddress),
}

impl Addresses {
    /// Makes sure of every address. One that the process was started with a socket for is taken
    /// from there, one that another process hands over from that.
    pub(super) fn reserve(
        settings: &Settings,
        mut inherited: Vec<Inherited>,
        hello: Option<&ServerState>,
    ) -> Result<Addresses, StartError> {
        let public = settings
            .listen
            .iter()
            .map(|one| (ControlAddress::Tcp(one.address), public_role(settings, one)));
        let control = settings.control.iter();
        let control = control.map(|one| (one.address.clone(), layered(CONTROL, one.tls)));
        let monitor = settings.monitor.iter().map(|address| (address.clone(), MONITOR));
        let redirect = settings.redirect.iter().map(|&tcp| (ControlAddress::Tcp(tcp), REDIRECT));
        let mut places = Vec::new();
        for (address, role) in public.chain(redirect).chain(control).chain(monitor) {
            let is_it = |other: &Inherited| ControlAddress::from(other.name()) == address;
            let serves_it = |other: &Inherited| is_of_both(&other.name().into(), &address);
            let handed_over = hello.iter().flat_map(|hello| &hello.addresses);
            let same = [Address::is_same, Address::is_same_at, Address::serves].into_iter();
            let find = |is_it: fn(&Address, Role, &ControlAddress) -> bool| {
                handed_over.clone().find(|other| is_it(other, role, &address))
            };
            let same = same.filter_map(find).next();
            if let Some(Ok(bound)) = same.map(|other| other.at.parse()) {
                places.push((Place::HandedOver(bound), role));
                continue;
            }
            let given = inherited.iter().position(is_it);
            let place = match given.or_else(|| inherited.iter().position(serves_it)) {
                Some(at) => Place::Inherited(inherited.swap_remove(at)),
                None => match address {
                    ControlAddress::Tcp(tcp) => Place::Tcp(stentor_io::reserve(tcp)?),
                    ControlAddress::Unix(path) => Place::Unix(path),
                },
            };
            places.push((place, role));
        }
        match inherited.first() {
            Some(unknown) => Err(StartError(format!(
                "the process was given a socket that listens on {} (LISTEN_FDS), which is none of \
                 the addresses it is to listen on: name it in listen, control, monitor.listen or \
                 redirect",
                unknown.name()
            ))),
            None => Ok(Addresses(places)),
        }
    }

    /// The listeners, as they were really bound.
    pub(super) fn bound(&self) -> Vec<BoundListener> {
        let bound =
            |(place, role): &(Place, Role)| BoundListener { role: *role, address: place.address() };
        self.0.iter().map(bound).collect()
    }

    /// The role of the one of this name, which may speak TLS by now, or not any more. `None`: there
    /// is none.
    pub(super) fn role_at(&self, name: &SocketName, role: Role) -> Option<Role> {
        let address = ControlAddress::from(name);
        let mut same = self.0.iter().filter(|(_, other)| listener_of(*other) == listener_of(role));
        // mutation: new-tls-role
        same.find(|(place, _)| place.address() == address).map(|(_, role)| *role)
    }

    /// One worker's listeners: those on socket files, or all others.
    pub(super) fn listen(
        &self,
        post: Post,
        on_files: bool,
    ) -> Result<Vec<(Listener, Role)>, BindError> {
        let is_public = matches!(post, Post::Public(_));
        let places = self.0.iter().filter(|(place, role)| {
            PUBLIC_ROLES.contains(&listener_of(*role)) == is_public
                && matches!(place, Place::Unix(_)) == on_files
        });
        let listeners = places.filter_map(|(place, role)| {
            let listener = match place {
                Place::Tcp(reserved) => reserved.listen(),
                Place::Unix(path) => stentor_io::listen_unix(path),
                Place::Inherited(inherited) => inherited.listen(),
                Place::HandedOver(_) => return None,
            };
            Some(listener.map(|listener| (listener, *role)))
        });
        listeners.collect()
    }
}

/// The role of a public address.
pub(super) fn public_role(settings: &Settings, address: &ListenAddress<SocketAddr>) -> Role {
    let proxied = if address.proxy { PROXIED } else { 0 };
    layered(PUBLIC, settings.is_tls(address)) | proxied
}

/// A listener's role, and whether its connections speak TLS.
pub(super) fn layered(role: Role, is_tls: bool) -> Role {
    if is_tls { role | LAYERED } else { role }
}

impl Place {
    /// As it was really bound.
    fn address(&self) -> ControlAddress {
        match self {
            Place::Tcp(reserved) => ControlAddress::Tcp(reserved.address()),
            Place::Unix(path) => ControlAddress::Unix(path.clone()),
            Place::Inherited(inherited) => ControlAddress::from(inherited.name()),
            Place::HandedOver(address) => address.clone(),
        }
    }
}
