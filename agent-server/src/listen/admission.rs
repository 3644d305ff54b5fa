//! How many connections may be open at once, in all and from one address.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

use parking_lot::Mutex;

/// Fewest connections that are taken, however few files may be open.
const LEAST: usize = 16;

/// Counts the connections that are open, on all session ports together.
#[derive(Debug)]
pub struct Admission {
    most: usize,
    most_of_one: Option<usize>,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    all: usize,
    /// Only where one address is limited; as many as there are connections at most.
    of: HashMap<IpAddr, usize>,
    refused: u64,
}

impl Admission {
    /// With these limits; without one in all, `files` is what the process may have open beside what it needs itself.
    pub fn new(most: Option<usize>, most_of_one: Option<usize>, files: Option<u64>) -> Arc<Self> {
        let by_files = || files.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX).max(LEAST));
        Arc::new(Self { most: most.unwrap_or_else(by_files), most_of_one, open: Mutex::default() })
    }

    /// A place for a connection from there, held until it is dropped; none where there is none.
    pub fn admit(self: &Arc<Self>, from: IpAddr) -> Option<Admitted> {
        let from = self.most_of_one.map(|most| (of_one(from), most));
        let mut open = self.open.lock();
        let fits = open.all < self.most && from.is_none_or(|(one, most)| open.of.get(&one).is_none_or(|n| *n < most));
        if !fits {
            open.refused += 1;
            return None;
        }
        open.all += 1;
        if let Some((one, _)) = from {
            *open.of.entry(one).or_default() += 1;
        }
        Some(Admitted { admission: Arc::clone(self), one: from.map(|(one, _)| one) })
    }

    /// Connections that were refused since the start.
    pub fn refused(&self) -> u64 {
        self.open.lock().refused
    }

    /// Connections that are open now.
    pub fn open(&self) -> usize {
        self.open.lock().all
    }
}

/// A connection's place.
#[derive(Debug)]
pub struct Admitted {
    admission: Arc<Admission>,
    one: Option<IpAddr>,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut open = self.admission.open.lock();
        open.all -= 1;
        let Some(one) = self.one else { return };
        if let Some(n) = open.of.get_mut(&one) {
            *n -= 1;
            if *n == 0 {
                open.of.remove(&one);
            }
        }
    }
}

/// Who counts as one: an IPv4 address, however it is written, or the /64 that a single IPv6 host has to itself.
fn of_one(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) if !v6.is_loopback() => {
            let [a, b, c, d, ..] = v6.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn places_are_given_back_and_what_is_counted_is_forgotten() {
        let admission = Admission::new(Some(3), Some(2), None);
        let (a, b) = (ip("192.0.2.1"), ip("192.0.2.2"));
        let held: Vec<_> = [a, a].map(|from| admission.admit(from).unwrap()).into();
        assert!(admission.admit(a).is_none(), "two of one address");
        assert!(admission.admit(ip("::ffff:192.0.2.1")).is_none(), "the same address in other clothes");
        let other = admission.admit(b).unwrap();
        assert!(admission.admit(b).is_none(), "three in all");
        drop(held);
        drop(other);
        assert_eq!((admission.open(), admission.refused()), (0, 3));
        assert!(admission.open.lock().of.is_empty());
        assert!(admission.admit(a).is_some());
    }

    #[test]
    fn hosts_of_ipv6_are_one_by_their_network() {
        let admission = Admission::new(None, Some(1), None);
        let _held = admission.admit(ip("2001:db8::1")).unwrap();
        assert!(admission.admit(ip("2001:db8::2")).is_none());
        assert!(admission.admit(ip("2001:db8:0:1::1")).is_some());
    }

    #[test]
    fn without_a_limit_it_follows_from_the_open_files() {
        assert_eq!(Admission::new(None, None, Some(1_000)).most, 1_000);
        assert_eq!(Admission::new(None, None, Some(0)).most, LEAST);
        assert_eq!(Admission::new(None, None, None).most, usize::MAX);
    }
}
