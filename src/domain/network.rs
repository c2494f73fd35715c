//! The network of a client's address: what one client cannot change at will.

use std::net::IpAddr;

/// An IPv4 address, or the leading bits of an IPv6 one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Network(u128);

/// Set in the networks of IPv4 addresses, which keeps them apart from every prefix of an IPv6 address.
const IPV4: u128 = 1 << 127 | 1 << 64;

/// How many times the limit of a /64 the /56 and the /48 around it get. A subscriber may hold either with all its /64
/// networks, and a provider may hand the /64 networks of one /48 to many subscribers.
const TIMES_56: u32 = 8;
const TIMES_48: u32 = 32;

impl Network {
    /// The network of one client: IPv6 by /64, which one client controls entirely.
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(IPV4 | u128::from(u32::from(address))),
            IpAddr::V6(address) => Self(u128::from(address) >> 64),
        }
    }

    /// The /48 of an IPv6 address, which one subscriber may hold with all its /64 networks.
    pub fn site(address: IpAddr) -> Option<Self> {
        match address.to_canonical() {
            IpAddr::V4(_) => None,
            IpAddr::V6(_) => Some(Self::of(address).widened()),
        }
    }

    /// The /48 around the /64 of an IPv6 address; an IPv4 address has nothing around it.
    pub fn widened(self) -> Self {
        // Bit 126 keeps it apart from every /64.
        if self.0 >> 64 == 0 { Self(1 << 126 | self.0 >> 16) } else { self }
    }

    /// The networks that a rate is counted by, narrowest first, each with its multiple of the limit: this one, and the
    /// /56 and the /48 around that of an IPv6 address.
    pub fn levels(self) -> impl Iterator<Item = (Self, u32)> {
        let is_ipv6 = self.0 >> 64 == 0;
        // Bit 125 keeps the /56 apart from every /64 and /48.
        let levels = [(self, 1), (Self(1 << 125 | self.0 >> 8), TIMES_56), (self.widened(), TIMES_48)];
        levels.into_iter().take(if is_ipv6 { 3 } else { 1 })
    }

    /// The network of an address in text; text that is no address is one network of its own.
    pub fn of_text(address: &str) -> Self {
        address.parse().map_or(Self(u128::MAX), Self::of)
    }

    /// A number that identifies the network.
    pub fn number(self) -> u128 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_client_share_a_network() {
        let of = |text: &str| Network::of(text.parse().expect("an address"));
        let site = |text: &str| Network::site(text.parse().expect("an address"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:ffff:ffff:ffff"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(site("2001:db8::1"), site("2001:db8:0:ffff::1"));
        assert_ne!(site("2001:db8::1"), site("2001:db8:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_eq!(site("192.0.2.1"), None);
        assert_eq!(Some(of("2001:db8:0:ffff::1").widened()), site("2001:db8::1"));
        assert_eq!(of("192.0.2.1").widened(), of("192.0.2.1"));
        assert_eq!(Network::of_text("?").widened(), Network::of_text("?"));
        assert_ne!(Some(of("::")), site("::"));
        assert_ne!(Network::of_text("192.0.2.1"), Network::of_text("?"));
    }
    #[test]
    fn ipv6_has_wider_levels_that_are_told_apart() {
        let levels = |text: &str| Network::of(text.parse().expect("an address")).levels().collect::<Vec<_>>();
        let times = |text: &str| levels(text).into_iter().map(|(_, times)| times).collect::<Vec<_>>();
        assert_eq!(times("2001:db8::1"), [1, 8, 32]);
        assert_eq!(times("192.0.2.1"), [1]);
        assert_eq!(times("::ffff:192.0.2.1"), [1]);
        assert_eq!(Network::of_text("?").levels().count(), 1);
        // Each pair shares what contains both and nothing else.
        for (one, other, shared) in [
            ("2001:db8:1:2::1", "2001:db8:1:2::2", [true, true, true]),
            ("2001:db8:1:2::1", "2001:db8:1:ff::1", [false, true, true]),
            ("2001:db8:1:2::1", "2001:db8:1:102::1", [false, false, true]),
            ("2001:db8:1:2::1", "2001:db8:2:2::1", [false, false, false]),
        ] {
            let same: Vec<bool> = levels(one).iter().zip(&levels(other)).map(|(one, other)| one == other).collect();
            assert_eq!(same, shared, "{one} and {other}");
        }
        let of_zero: Vec<Network> = levels("::").into_iter().map(|(network, _)| network).collect();
        assert!(of_zero[0] != of_zero[1] && of_zero[1] != of_zero[2] && of_zero[0] != of_zero[2]);
    }
}
