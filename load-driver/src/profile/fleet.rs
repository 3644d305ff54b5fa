//! `backends`: what stands behind the target, and the fleet that follows from both.
//!
//! | `target` | `backends` | fleet |
//! |---|---|---|
//! | `embedded` (or absent) | absent, or entries without `address` | processes that the run starts |
//! | absent | addresses, or `{dns: host:port}` | those, directly |
//! | list of addresses | absent | those, directly |
//! | one address | entries with `address` | a balancer in front of those: sessions go to it, counters are read from them |

use std::{collections::BTreeMap, time::Duration};

use proto::time::Micros;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Address, Profile, Span, Target};

/// How long a killed backend stays dead unless the profile says: as long as a supervisor might need.
pub const DEAD_FOR: Duration = Duration::from_millis(500);

/// Backends that `run` and `simulate` know one by one, or a name that gives them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Backends {
    /// One by one.
    Listed(Vec<BackendEntry>),
    /// By a name.
    Discovered(Discovery),
}

/// Backends that a name's addresses give.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Discovery {
    /// `host:port`; every address of the host is a backend.
    pub dns: String,
    /// Port of their counters; absent: the sessions' port + 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin_port: Option<u16>,
}

/// One backend, or several that are alike.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BackendEntry {
    /// `host:port` of its sessions, of one that runs already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// `host:port` of its counters; absent: the sessions' port + 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin: Option<String>,
    /// So many alike, of those that the run starts; absent: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// Settings of these, over `server`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub server: BTreeMap<String, serde_json::Value>,
    /// Run time from which balancers know of it: a scale-up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub joins: Option<Span>,
    /// Run time at which it is killed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub killed: Option<Span>,
    /// How long it stays dead then; absent: 500 ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_for: Option<Span>,
}

/// How sessions reach the backends.
#[derive(Debug, Clone, PartialEq)]
pub enum Reach {
    /// The run starts them.
    Embedded,
    /// They run, and sessions go to them.
    Direct,
    /// They are the addresses of a name.
    Discovered(Discovery),
    /// They run behind a balancer, and sessions go to it.
    Front(Address),
}

/// One backend of the fleet.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    /// Of one that runs already.
    pub address: Option<Address>,
    /// Settings, `server` and its own.
    pub server: BTreeMap<String, serde_json::Value>,
    /// From then on balancers know of it.
    pub joins: Micros,
    /// When it is killed, and for how long.
    pub killed: Option<(Micros, Duration)>,
}

/// Every backend, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Fleet {
    /// How sessions reach them.
    pub reach: Reach,
    /// Empty when they are yet to be discovered.
    pub members: Vec<Member>,
}

impl Profile {
    /// What `target` and `backends` come to.
    pub fn fleet(&self) -> Fleet {
        let plain = |address: Option<Address>| Member { address, server: self.server.clone(), joins: Micros::ZERO, killed: None };
        let listed = |entries: &[BackendEntry]| -> Vec<Member> {
            let each = |entry: &BackendEntry| {
                let mut server = self.server.clone();
                server.extend(entry.server.clone());
                let member = Member {
                    address: entry.address.clone().map(|address| Address { address, admin: entry.admin.clone() }),
                    server,
                    joins: Micros(entry.joins.map_or(0, Span::micros)),
                    killed: entry.killed.map(|at| (Micros(at.micros()), entry.dead_for.map_or(DEAD_FOR, |span| span.0))),
                };
                vec![member; entry.count.unwrap_or(1) as usize]
            };
            entries.iter().flat_map(each).collect()
        };
        match (&self.target, &self.backends) {
            (_, Some(Backends::Discovered(discovery))) => Fleet { reach: Reach::Discovered(discovery.clone()), members: Vec::new() },
            (Target::Addresses(front), Some(Backends::Listed(entries))) if !front.is_empty() => {
                Fleet { reach: Reach::Front(front[0].clone()), members: listed(entries) }
            }
            (_, Some(Backends::Listed(entries))) => {
                let reach = if entries.iter().any(|e| e.address.is_some()) { Reach::Direct } else { Reach::Embedded };
                Fleet { reach, members: listed(entries) }
            }
            (Target::Embedded { backends }, None) => Fleet { reach: Reach::Embedded, members: vec![plain(None); *backends as usize] },
            (Target::Addresses(all), None) => {
                Fleet { reach: Reach::Direct, members: all.iter().map(|address| plain(Some(address.clone()))).collect() }
            }
        }
    }
}
