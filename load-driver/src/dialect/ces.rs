//! Google CES over gRPC.

use std::{borrow::Cow, sync::Arc};

use proto::frame::{ClientEvent, ErrorCode, SessionError};

use super::{Dialect, Exchange, Wire};
use crate::plan::Service;

/// One session.
#[derive(Debug)]
pub(super) struct Ces {}

impl Ces {
    /// As the service wants it.
    pub(super) fn new(_service: &Arc<Service>) -> Self {
        Self {}
    }
}

impl Dialect for Ces {
    fn path(&self) -> Cow<'static, str> {
        "/google.cloud.ces.v1.SessionService/BidiRunSession".into()
    }

    fn encode(&mut self, _event: ClientEvent, _to: &mut Exchange) {}

    fn decode(&mut self, _message: Wire, to: &mut Exchange) {
        to.malformed(SessionError::fatal(ErrorCode::Internal, "this dialect is not spoken yet"));
    }
}
