//! One step in a session's life as the driver saw it.

use proto::{
    frame::{ErrorCode, Outcome, SessionError},
    ids::{PlanIndex, SessionId},
};
use serde::{Deserialize, Serialize};

use crate::plan::{EndKind, Protocol};

/// A step of one session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerEntry {
    /// Whose.
    pub index: PlanIndex,
    /// Unix time, microseconds.
    pub at_us: u64,
    /// What happened.
    pub event: LedgerEvent,
}

/// What happened. A session goes `Scheduled`, `Attempted` (again after each `Retried`), then (`Accepted`, at most one `Forced`, `Ended`) or `Failed`.
/// `Deaf` may come at any time in between, `Raced` before `Forced`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LedgerEvent {
    /// Its time has come.
    Scheduled {
        /// Index into the plan's scenarios.
        scenario: u16,
        /// Transport.
        protocol: Protocol,
        /// How the plan ends it.
        end: EndKind,
        /// As sent to the backend.
        client_ref: String,
    },
    /// The driver dials; from here on the backend may count it.
    Attempted {
        /// Index into the fleet; none behind a balancer, which picks.
        backend: Option<usize>,
        /// Age of the load report that the choice rests on, microseconds; none without one.
        report_age_us: Option<u64>,
    },
    /// The dial came to nothing, as with `Failed`, and the session is to be dialled again, with a further `Attempted`. The cause says whether
    /// the backend may have counted it all the same.
    Retried {
        /// Why.
        cause: FailureCause,
    },
    /// The backend said that it counts it.
    Accepted {
        /// The backend's name of it.
        session_id: SessionId,
        /// Whose.
        backend_id: String,
        /// Which process of it.
        boot_id: String,
    },
    /// The driver hears nothing of the session for a while, by its own will: what the backend does meanwhile comes to its ears later.
    Deaf {
        /// Unix time, microseconds.
        until_us: u64,
    },
    /// The backend's deadline for the session, asked for by the driver, falls on the moment at which the driver forces its end.
    Raced,
    /// The driver forces the end now.
    Forced {
        /// How.
        kind: EndKind,
    },
    /// Over, after acceptance.
    Ended {
        /// How the driver saw it end.
        finish: Finish,
    },
    /// Over, never accepted. The backend may have counted it unless the cause is a refusal or comes before the dial succeeded.
    Failed {
        /// Why.
        cause: FailureCause,
    },
}

/// How an accepted session ended, as the driver saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// Both said goodbye; the server named this outcome.
    Goodbye(Outcome),
    /// The driver cut it.
    Forced(EndKind),
    /// The server ended it on its own, in order, with this outcome.
    ByServer(Outcome),
    /// It broke.
    Lost(FailureCause),
}

/// Why a session failed or broke: a closed list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureCause {
    /// Nobody listens there.
    ConnectionRefused,
    /// No route, no such host.
    Unreachable,
    /// The dial or the handshake took too long.
    ConnectTimeout,
    /// The process has no file descriptor left.
    TooManyFiles,
    /// The TLS handshake failed: a certificate, of one side or the other, or a port that does not speak TLS.
    Tls,
    /// What answers does not speak the protocol.
    NotAnAgent,
    /// The peer wants to be shown who asks, or does not let them: 401, 403, UNAUTHENTICATED, `PERMISSION_DENIED`, close codes 3000, 3003, 4401, 4403.
    Unauthorized,
    /// Nothing is served at this path: 404, UNIMPLEMENTED, close code 4404.
    NotFound,
    /// Admission refused: `RESOURCE_EXHAUSTED`, close code 1013, 429, 503 with `Retry-After`.
    Rejected,
    /// The backend drains: UNAVAILABLE, close code 1001, 503.
    Draining,
    /// The driver's own balancer had no backend that may be picked. In a funnel that is a refusal, like [`Self::Rejected`].
    NoBackend,
    /// Connected, but no acceptance in time.
    StartTimeout,
    /// The connection was reset.
    Reset,
    /// The stream ended without goodbye.
    Eof,
    /// The peer did not answer the driver's goodbye in time.
    GoodbyeTimeout,
    /// The peer closed for a rule of its own: close code 1008, or one of 3000 to 4999 that says no more.
    Policy,
    /// The peer broke the protocol.
    Protocol,
    /// The peer ended the session with this error.
    ServerError(ErrorCode),
    /// The backend did not take up the conversation of a session that it gave up: it knows no such handle, or gave none.
    NotResumed,
    /// The run was stopped before the session could begin or end.
    Aborted,
    /// The worker process that held it is gone.
    WorkerLost,
}

impl FailureCause {
    /// Of a session that the peer ended with an error.
    pub const fn of_error(code: ErrorCode) -> Self {
        match code {
            ErrorCode::Overloaded => Self::Rejected,
            ErrorCode::Draining => Self::Draining,
            code => Self::ServerError(code),
        }
    }

    /// Of a session that the peer did not accept although it was to go on from another: services say in many ways that a handle is none.
    pub(crate) const fn of_resumption(self) -> Self {
        match self {
            Self::ServerError(_) | Self::Policy | Self::Eof => Self::NotResumed,
            other => other,
        }
    }

    /// Of a session that the peer refused to begin with this error.
    pub fn of_refusal(error: &SessionError) -> Self {
        match Self::of_error(error.code) {
            Self::ServerError(_) if is_about_credentials(&error.message) => Self::Unauthorized,
            cause => cause,
        }
    }

    /// What of two is the reason: an error, or the close that followed it.
    #[must_use]
    pub const fn or_closed_for(self, close: Self) -> Self {
        match (self, close) {
            (Self::ServerError(_), Self::Unauthorized | Self::NotFound | Self::Rejected)
            | (Self::ServerError(ErrorCode::Internal), Self::Policy | Self::ServerError(_)) => close,
            _ => self,
        }
    }
}

/// Services that have no code for it say in words only that the key is missing or wrong.
pub(crate) fn is_about_credentials(words: &str) -> bool {
    let words = words.to_ascii_lowercase();
    let about = ["unauthorized", "unauthenticated", "api key", "api_key", "apikey", "authenticat", "credential", "forbidden", "permission"];
    about.iter().any(|word| words.contains(word))
}
