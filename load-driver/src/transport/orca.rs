//! Load reports in the heads and trailers of sessions.

use http::HeaderMap;
use proto::orca::{self, BINARY_HEADER, OrcaLoadReport, TEXT_HEADER};

/// The report in a head or in trailers, if there is one. One that cannot be read is as good as none.
pub(super) fn report(headers: &HeaderMap) -> Option<Box<OrcaLoadReport>> {
    [BINARY_HEADER, TEXT_HEADER].into_iter().find_map(|name| {
        let report = orca::decode_header(name, headers.get(name)?);
        report.map(Box::new).inspect_err(|error| tracing::debug!(name, %error, "bad load report")).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_in_either_form_and_a_bad_one_is_none() {
        let report = OrcaLoadReport { cpu_utilization: 0.5, ..OrcaLoadReport::default() };
        let read = |name: &'static str, value: &str| {
            let value = http::HeaderValue::from_str(value).expect("a value");
            super::report(&HeaderMap::from_iter([(http::HeaderName::from_static(name), value)])).map(|report| *report)
        };
        assert_eq!(read(BINARY_HEADER, &orca::encode_binary(&report)), Some(report.clone()));
        assert_eq!(read(TEXT_HEADER, &orca::encode_text(&report)), Some(report));
        for bad in ["!", "TEXT", "TEXT cpu_utilization=much", "BIN ////", "////"] {
            assert_eq!(read(BINARY_HEADER, bad), None, "{bad}");
            assert_eq!(read(TEXT_HEADER, bad), None, "{bad}");
        }
        assert_eq!(super::report(&HeaderMap::new()), None);
    }
}
