//! The network interfaces of this machine, as the kernel lists them.

use std::collections::BTreeMap;
use std::io;

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;

/// One network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// It is up and has a carrier.
    pub up: bool,
    /// Its addresses, IPv4 and IPv6.
    pub addresses: Vec<String>,
}

/// All of them, by name.
///
/// # Errors
/// What the kernel says.
pub fn all() -> io::Result<Vec<Interface>> {
    let mut found: BTreeMap<String, Interface> = BTreeMap::new();
    for entry in getifaddrs()? {
        let up = entry.flags.contains(InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING);
        let name = entry.interface_name.clone();
        let interface =
            found.entry(name.clone()).or_insert_with(|| Interface { name, up: false, addresses: Vec::new() });
        interface.up |= up;
        if let Some(address) = entry.address {
            let shown = address
                .as_sockaddr_in()
                .map(|address| address.ip().to_string())
                .or_else(|| address.as_sockaddr_in6().map(|address| address.ip().to_string()));
            interface.addresses.extend(shown);
        }
    }
    Ok(found.into_values().collect())
}
