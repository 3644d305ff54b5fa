//! Load reports over gRPC: out of band for who subscribes, and in the headers and trailers of every session.

use std::{pin::Pin, sync::Arc, time::Duration};

use futures_util::stream::unfold;
use http::{HeaderMap, HeaderName};
use proto::{
    orca::{BINARY_HEADER, OrcaLoadReport},
    xds::service::orca::v3::{OrcaLoadReportRequest, open_rca_service_server::OpenRcaService},
};
use tokio::time::{Interval, MissedTickBehavior, interval};
use tokio_stream::Stream;
use tonic::{Request, Response, Status, async_trait, metadata::MetadataMap};

use crate::shard::Shared;

/// Longest interval: who asks for more hears this often.
const INTERVAL_MAX: Duration = Duration::from_hours(24);

/// The latest report as metadata of a call. Ready-made: tonic would write it without the padding that Envoy wants.
pub(super) fn metadata(shared: &Shared) -> MetadataMap {
    let mut headers = HeaderMap::with_capacity(1);
    headers.insert(HeaderName::from_static(BINARY_HEADER), shared.board.latest().binary.clone());
    MetadataMap::from_headers(headers)
}

/// `xds.service.orca.v3.OpenRcaService`. A subscription is no session: it is not counted, goes on while the server drains, holds no drain up, and
/// ends with the server.
#[derive(Debug)]
pub(super) struct CoreMetrics(pub(super) Arc<Shared>);

#[async_trait]
impl OpenRcaService for CoreMetrics {
    type StreamCoreMetricsStream = Pin<Box<dyn Stream<Item = Result<OrcaLoadReport, Status>> + Send>>;

    /// The first report at once, then one each interval, as of the moment at which it is sent.
    async fn stream_core_metrics(
        &self,
        request: Request<OrcaLoadReportRequest>,
    ) -> Result<Response<Self::StreamCoreMetricsStream>, Status> {
        let mut ticks = interval(report_interval(request.get_ref(), self.0.config.report.min_interval));
        // Who reads slowly gets fewer reports, not old ones, and no burst of them.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Response::new(Box::pin(unfold(Some((Arc::clone(&self.0), ticks)), next))))
    }
}

/// What a stream holds until its last word.
type Subscription = (Arc<Shared>, Interval);

async fn next(subscription: Option<Subscription>) -> Option<(Result<OrcaLoadReport, Status>, Option<Subscription>)> {
    let (shared, mut ticks) = subscription?;
    tokio::select! {
        biased;
        () = shared.stop.cancelled() => Some((Err(Status::unavailable("the server stops")), None)),
        _ = ticks.tick() => {
            let report = shared.board.latest().report.clone();
            Some((Ok(report), Some((shared, ticks))))
        }
    }
}

/// What is asked for, raised to the server's own minimum. Nothing asked for is the minimum, as in gRPC's own servers; so are zero and less.
fn report_interval(request: &OrcaLoadReportRequest, min: Duration) -> Duration {
    // By hand: the library's conversion panics on what a client can send.
    let asked = request.report_interval.map_or(Duration::ZERO, |interval| match u64::try_from(interval.seconds) {
        Ok(seconds) => Duration::from_secs(seconds).saturating_add(Duration::from_nanos(u64::try_from(interval.nanos).unwrap_or(0))),
        Err(_) => Duration::ZERO,
    });
    asked.min(INTERVAL_MAX).max(min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_raised_to_the_minimum_and_none_is_the_minimum() {
        let min = Duration::from_millis(100);
        let of = |interval: Option<(i64, i32)>| {
            let report_interval = interval.map(|(seconds, nanos)| prost_types::Duration { seconds, nanos });
            report_interval.map_or_else(OrcaLoadReportRequest::default, |i| OrcaLoadReportRequest {
                report_interval: Some(i),
                ..OrcaLoadReportRequest::default()
            })
        };
        for (asked, want) in [
            (None, min),
            (Some((0, 0)), min),
            (Some((0, 1)), min),
            (Some((-5, 0)), min),
            (Some((i64::MIN, i32::MIN)), min),
            (Some((0, 250_000_000)), Duration::from_millis(250)),
            (Some((30, 0)), Duration::from_secs(30)),
            (Some((i64::MAX, i32::MAX)), INTERVAL_MAX),
        ] {
            assert_eq!(report_interval(&of(asked), min), want, "{asked:?}");
        }
    }
}
