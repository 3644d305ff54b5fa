//! `routing`: which backend gets a session.

use std::{borrow::Cow, fmt};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, SeqAccess, Visitor},
};

use super::{Span, error::nearest, validate::Checker};
use crate::routing::{self, Made};

/// Which backend gets a session, and from what it is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a map of routing settings")]
pub struct Routing {
    /// What picks; of several, each has a run of its own, one after the other.
    pub policy: Policies,
    /// Where reports come from.
    pub reports: ReportSource,
    /// Between two reports of a backend, out of band.
    pub report_interval: Span,
    /// Reports are heard so much later than they came.
    pub report_lag: Span,
    /// A report older than this says nothing any more.
    pub staleness: Span,
    /// Balancers that know nothing of each other's grants; sessions are dealt over them. The worker process of a scenario that ends by
    /// `kill_worker` is one more.
    #[schemars(range(min = 1, max = 1000))]
    pub balancers: u32,
    /// They divide what a backend can take by their number.
    pub share: bool,
    /// Other backends that a refused session tries.
    #[schemars(range(max = 10))]
    pub retries: u32,
    /// Weighted round robin: what errors cost, as a multiple of their share of requests.
    #[schemars(range(min = 0))]
    pub error_penalty: f64,
}

impl Default for Routing {
    fn default() -> Self {
        Self {
            policy: Policies::default(),
            reports: ReportSource::OutOfBand,
            report_interval: Span::seconds(1),
            report_lag: Span::default(),
            staleness: Span::seconds(30),
            balancers: 1,
            share: false,
            retries: 0,
            error_penalty: 1.0,
        }
    }
}

impl Routing {
    /// True when every policy is known.
    pub(super) fn check(&self, c: &mut Checker<'_>) -> bool {
        c.positive("report_interval", self.report_interval);
        if self.staleness < self.report_interval {
            let message = "a report would be stale before the next one comes";
            c.error("staleness", message, format!("write at least the interval of reports, {}", self.report_interval));
        } else if self.report_lag >= self.staleness {
            let message = "every report would be stale when it is heard";
            c.error("report_lag", message, format!("write less than the staleness, {}", self.staleness));
        }
        if !(1..=1_000).contains(&self.balancers) {
            c.error("balancers", "the number of balancers is out of range", "write 1 to 1000");
        }
        if self.retries > 10 {
            c.error("retries", format!("{} retries are too many", self.retries), "write 0 to 10");
        }
        if !self.error_penalty.is_finite() || self.error_penalty < 0.0 {
            c.error("error_penalty", format!("the penalty {} is not 0 or more", self.error_penalty), "write a factor; 1 is the default");
        }
        c.within("policy", |c| self.policy.check(c, routing::ALL))
    }
}

/// Where a balancer hears of a backend's load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReportSource {
    /// A stream of ORCA reports from each backend.
    #[default]
    OutOfBand,
    /// The headers and trailers of the sessions themselves.
    InBand,
}

/// Names of policies: one, or several in a list. `all` is read as the list of all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Policies {
    /// One.
    One(String),
    /// Several.
    Several(Vec<String>),
}

/// Stands for every policy.
const ALL: &str = "all";

impl Default for Policies {
    fn default() -> Self {
        Self::One("round_robin".to_owned())
    }
}

impl Policies {
    /// All of them, in order.
    pub fn names(&self) -> &[String] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::Several(names) => names,
        }
    }

    /// True when every one is known.
    fn check(&self, c: &mut Checker<'_>, policies: &[Made]) -> bool {
        let names = self.names();
        if names.is_empty() {
            c.here("the list of policies is empty", "name one, or write `all`");
        }
        let mut known = !names.is_empty();
        for (at, name) in names.iter().enumerate() {
            c.within(at, |c| {
                if policies.iter().all(|policy| policy.name != name) {
                    known = false;
                    c.here(format!("there is no policy `{name}`"), advice(name, policies));
                } else if names[..at].contains(name) {
                    c.here(format!("`{name}` is there twice"), "drop one of both");
                }
            });
        }
        known
    }
}

fn advice(name: &str, policies: &[Made]) -> String {
    if name == ALL {
        return "`all` stands alone: write `policy: all`".to_owned();
    }
    let names = || policies.iter().map(|policy| policy.name);
    let meant = nearest(name, names()).map(|meant| format!("did you mean `{meant}`? ")).unwrap_or_default();
    format!("{meant}there are {}, and `all`", names().collect::<Vec<_>>().join(", "))
}

impl<'de> Deserialize<'de> for Policies {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PoliciesVisitor)
    }
}

struct PoliciesVisitor;

impl<'de> Visitor<'de> for PoliciesVisitor {
    type Value = Policies;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a policy, a list of names, or `all`")
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Policies, E> {
        Ok(if value == ALL {
            Policies::Several(routing::ALL.iter().map(|policy| policy.name.to_owned()).collect())
        } else {
            Policies::One(value.to_owned())
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Policies, A::Error> {
        let mut names = Vec::new();
        while let Some(name) = items.next_element()? {
            names.push(name);
        }
        Ok(Policies::Several(names))
    }
}

impl JsonSchema for Policies {
    fn schema_name() -> Cow<'static, str> {
        "Policies".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let each = || routing::ALL.iter().map(|policy| serde_json::json!({ "const": policy.name, "description": policy.about }));
        let all = serde_json::json!({ "const": ALL, "description": "Each of them, one after the other." });
        let (one, of_several): (Vec<_>, Vec<_>) = (each().chain([all]).collect(), each().collect());
        json_schema!({
            "description": "What picks: a policy, a list of policies, or `all`. Of several, each has a run of its own.",
            "anyOf": [{ "oneOf": one }, { "type": "array", "minItems": 1, "uniqueItems": true, "items": { "oneOf": of_several } }]
        })
    }
}

impl fmt::Display for Routing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.policy.names().join(", ");
        match self.policy.names().len() {
            1 => write!(f, "{names}")?,
            many => write!(f, "{many} policies, a run for each: {names}")?,
        }
        match self.reports {
            ReportSource::OutOfBand => write!(f, "; reports every {}", self.report_interval)?,
            ReportSource::InBand => write!(f, "; reports with the sessions")?,
        }
        if self.report_lag != Span::default() {
            write!(f, ", heard {} later", self.report_lag)?;
        }
        match self.balancers {
            1 => Ok(()),
            many => write!(f, "; {many} balancers{}", if self.share { " that share" } else { "" }),
        }
    }
}
