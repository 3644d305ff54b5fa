//! Load reports in the heads and trailers of sessions.

use http::HeaderMap;
use prost::Message;
use proto::orca::{BINARY_HEADER, OrcaLoadReport, TEXT_HEADER};

/// The report in a head or in trailers, if there is one. One that cannot be read is as good as none.
pub(super) fn report(headers: &HeaderMap) -> Option<Box<OrcaLoadReport>> {
    [BINARY_HEADER, TEXT_HEADER].into_iter().find_map(|name| {
        let value = headers.get(name)?;
        let report = decode(name, value);
        report.map(Box::new).inspect_err(|error| tracing::debug!(name, %error, "bad load report")).ok()
    })
}

fn decode(name: &str, value: &http::HeaderValue) -> Result<OrcaLoadReport, String> {
    if name != BINARY_HEADER {
        return Err("the text forms are not read yet".to_owned());
    }
    let value =
        tonic::metadata::MetadataMap::from_headers(HeaderMap::from_iter([(http::HeaderName::from_static(BINARY_HEADER), value.clone())]));
    let bytes = value.get_bin(BINARY_HEADER).map(tonic::metadata::MetadataValue::to_bytes);
    let bytes = bytes.and_then(Result::ok).ok_or("not base64")?;
    OrcaLoadReport::decode(bytes).map_err(|e| e.to_string())
}
