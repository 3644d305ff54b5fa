//! ORCA: what backends tell balancers of their load. The names on the wire, and the text forms of a report.
//!
//! | header | value |
//! |---|---|
//! | `endpoint-load-metrics` | `TEXT cpu_utilization=0.3,named_metrics.queue=4` |
//! | | `JSON {"cpu_utilization": 0.3, "named_metrics": {"queue": 4}}` |
//! | | `BIN base64` of the protobuf message |
//! | `endpoint-load-metrics-bin` | base64 of the protobuf message, in gRPC headers and trailers |
//!
//! Out of band the message itself travels: [`checked`] is for that.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::LazyLock,
};

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};
use serde_json::Value;

pub use crate::xds::data::orca::v3::OrcaLoadReport;

/// Header and trailer of a gRPC call: a report in protobuf (base64, as every `-bin` entry is).
pub const BINARY_HEADER: &str = "endpoint-load-metrics-bin";
/// Header of an HTTP response: `TEXT k=v,...`, `JSON {...}` or `BIN base64`.
pub const TEXT_HEADER: &str = "endpoint-load-metrics";

/// Names of this product's named metrics.
pub mod metric {
    /// Live sessions by the backend's own counter, now.
    pub const ACTIVE_SESSIONS: &str = "active_sessions";
    /// Of those: user or agent speaks.
    pub const SPEAKING_SESSIONS: &str = "speaking_sessions";
    /// `active_sessions` over the hard cap; 0 without a cap.
    pub const SESSIONS_UTIL: &str = "sessions_util";
    /// Mean sessions of the window over its length, 1/s.
    pub const VIRTUAL_QPS: &str = "virtual_qps";
    /// Sessions per second that the backend can take beside those it has.
    pub const ADDITIONAL_SESSION_RATE: &str = "additional_session_rate";
    /// Sessions that it can hold at the end of the next window.
    pub const EFFECTIVE_CAPACITY: &str = "effective_capacity";
    /// The hard cap; absent without one.
    pub const MAX_SESSIONS: &str = "max_sessions";
    /// 1 while no new session is taken, else 0.
    pub const DRAINING: &str = "draining";
}

/// Longest name of a named metric that every reader takes.
const NAME_MAX: usize = 64;
/// Before a named metric in the text form.
const NAMED: &str = "named_metrics.";

/// Written with padding, read with and without. gRPC would rather have none, but must take both; Envoy reads an unpadded value as an empty report.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_encode_padding(true).with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A header that is no load report.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OrcaError {
    /// Another header.
    #[error("header `{0}` holds no load report: {TEXT_HEADER} and {BINARY_HEADER} do")]
    Header(String),
    /// No known form.
    #[error("{TEXT_HEADER} must begin with `TEXT `, `JSON ` or `BIN `")]
    Form,
    /// Of a list of `name=value`.
    #[error("load report in text: {0}")]
    Text(String),
    /// Of protobuf-JSON.
    #[error("load report in JSON: {0}")]
    Json(String),
    /// Of base64, or of protobuf.
    #[error("load report in protobuf: {0}")]
    Binary(String),
    /// Infinite or not a number.
    #[error("load report: `{0}` is not a finite number")]
    NotFinite(String),
}

/// Google Cloud's rule for names: 1 to 64 of `[a-z]([-_.a-z0-9]*[a-z0-9])?`.
pub fn is_portable_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else { return false };
    let alphanumeric = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    bytes.len() <= NAME_MAX
        && first.is_ascii_lowercase()
        && alphanumeric(last)
        && bytes.iter().all(|b| alphanumeric(b) || matches!(b, b'-' | b'_' | b'.'))
}

/// For [`BINARY_HEADER`].
pub fn encode_binary(report: &OrcaLoadReport) -> String {
    BASE64.encode(report.encode_to_vec())
}

/// For [`TEXT_HEADER`]: `BIN base64`.
pub fn encode_bin(report: &OrcaLoadReport) -> String {
    format!("BIN {}", encode_binary(report))
}

/// For [`TEXT_HEADER`]: `TEXT k=v,...`. What that form cannot say is left out: figures that are not finite, names that are not portable,
/// and the fields that Envoy refuses there (`rps`, `request_cost`, `utilization`).
pub fn encode_text(report: &OrcaLoadReport) -> String {
    let mut text = "TEXT ".to_owned();
    let mut put = |prefix: &str, name: &str, value: f64| {
        if value.is_finite() {
            let comma = if text.ends_with(' ') { "" } else { "," };
            // The shortest digits that read back the same, with an exponent where that is shorter. Writing to a string does not fail.
            let digits = format!("{value:?}");
            let _ = write!(text, "{comma}{prefix}{name}={}", digits.strip_suffix(".0").unwrap_or(&digits));
        }
    };
    put("", "cpu_utilization", report.cpu_utilization);
    put("", "mem_utilization", report.mem_utilization);
    put("", "application_utilization", report.application_utilization);
    put("", "rps_fractional", report.rps_fractional);
    put("", "eps", report.eps);
    for (name, value) in report.named_metrics.iter().filter(|(name, _)| is_portable_name(name)) {
        put(NAMED, name, *value);
    }
    text
}

/// For [`TEXT_HEADER`]: `JSON {...}`, fields by the names of the schema, in its order. What is 0 or not finite is left out.
pub fn encode_json(report: &OrcaLoadReport) -> String {
    let number = |value: f64| serde_json::Number::from_f64(value).map(Value::Number);
    let plain = [
        ("cpu_utilization", report.cpu_utilization),
        ("mem_utilization", report.mem_utilization),
        ("rps_fractional", report.rps_fractional),
        ("eps", report.eps),
        ("application_utilization", report.application_utilization),
    ];
    let maps = [("request_cost", &report.request_cost), ("utilization", &report.utilization), ("named_metrics", &report.named_metrics)];
    let plain = plain.into_iter().filter(|(_, value)| *value != 0.0).filter_map(|(name, value)| Some((name.to_owned(), number(value)?)));
    let maps = maps.into_iter().filter(|(_, map)| !map.is_empty()).map(|(name, map)| {
        let entries = map.iter().filter_map(|(name, value)| Some((name.clone(), number(*value)?)));
        (name.to_owned(), Value::Object(entries.collect()))
    });
    format!("JSON {}", Value::Object(plain.chain(maps).collect()))
}

/// Reads a header of an answer, or a trailer, in any of the forms. The name's case does not matter.
///
/// # Errors
/// When it is another header, or no report. A value that is not finite is no report: nothing could be computed with it.
pub fn decode_header(name: &str, value: impl AsRef<[u8]>) -> Result<OrcaLoadReport, OrcaError> {
    let value = value.as_ref().trim_ascii();
    if name.eq_ignore_ascii_case(BINARY_HEADER) {
        return decode_binary(value);
    }
    if !name.eq_ignore_ascii_case(TEXT_HEADER) {
        return Err(OrcaError::Header(name.to_owned()));
    }
    let text = |rest| std::str::from_utf8(rest).map_err(|e| OrcaError::Text(e.to_string()));
    if let Some(rest) = value.strip_prefix(b"TEXT ") {
        decode_text(text(rest)?)
    } else if let Some(rest) = value.strip_prefix(b"JSON ") {
        decode_json(text(rest)?)
    } else if let Some(rest) = value.strip_prefix(b"BIN ") {
        decode_binary(rest.trim_ascii())
    } else {
        Err(OrcaError::Form)
    }
}

/// A report that came as a message.
///
/// # Errors
/// When a figure is not finite.
pub fn checked(report: OrcaLoadReport) -> Result<OrcaLoadReport, OrcaError> {
    let plain = [
        ("cpu_utilization", report.cpu_utilization),
        ("mem_utilization", report.mem_utilization),
        ("rps_fractional", report.rps_fractional),
        ("eps", report.eps),
        ("application_utilization", report.application_utilization),
    ];
    let maps = [&report.request_cost, &report.utilization, &report.named_metrics];
    let mut all = plain.into_iter().chain(maps.into_iter().flatten().map(|(name, value)| (name.as_str(), *value)));
    let wrong = all.find(|(_, value)| !value.is_finite()).map(|(name, _)| OrcaError::NotFinite(name.to_owned()));
    drop(all);
    wrong.map_or(Ok(report), Err)
}

static DESCRIPTOR: LazyLock<MessageDescriptor> = LazyLock::new(|| {
    let pool = DescriptorPool::decode(crate::DESCRIPTORS).expect("the committed descriptors are those of the schema");
    pool.get_message_by_name("xds.data.orca.v3.OrcaLoadReport").expect("the schema declares it")
});

fn decode_binary(value: &[u8]) -> Result<OrcaLoadReport, OrcaError> {
    let bytes = BASE64.decode(value).map_err(|e| OrcaError::Binary(e.to_string()))?;
    checked(OrcaLoadReport::decode(bytes.as_slice()).map_err(|e| OrcaError::Binary(e.to_string()))?)
}

fn decode_json(text: &str) -> Result<OrcaLoadReport, OrcaError> {
    let error = |e: &dyn std::fmt::Display| OrcaError::Json(e.to_string());
    let mut json = serde_json::Deserializer::from_str(text);
    let message = DynamicMessage::deserialize(DESCRIPTOR.clone(), &mut json).map_err(|e| error(&e))?;
    json.end().map_err(|e| error(&e))?;
    checked(message.transcode_to().map_err(|e| error(&e))?)
}

/// A list of `name=value`; `name:value` was written once, and is read.
fn decode_text(text: &str) -> Result<OrcaLoadReport, OrcaError> {
    let mut report = OrcaLoadReport::default();
    let mut seen = BTreeSet::new();
    for part in text.split(',').map(str::trim) {
        let pair = part.split_once(['=', ':']).map(|(name, value)| (name.trim(), value.trim()));
        let (name, digits) = pair.ok_or_else(|| OrcaError::Text(format!("`{part}` is not name=value")))?;
        if !seen.insert(name) {
            return Err(OrcaError::Text(format!("`{name}` is there twice")));
        }
        let value: f64 = digits.parse().map_err(|_| OrcaError::Text(format!("`{digits}` of `{name}` is no number")))?;
        if !value.is_finite() {
            return Err(OrcaError::NotFinite(name.to_owned()));
        }
        put(&mut report, name, value)?;
    }
    Ok(report)
}

fn put(report: &mut OrcaLoadReport, name: &str, value: f64) -> Result<(), OrcaError> {
    let maps: [(&str, &mut BTreeMap<String, f64>); 3] =
        [(NAMED, &mut report.named_metrics), ("utilization.", &mut report.utilization), ("request_cost.", &mut report.request_cost)];
    for (prefix, map) in maps {
        if let Some(name) = name.strip_prefix(prefix).filter(|name| !name.is_empty()) {
            map.insert(name.to_owned(), value);
            return Ok(());
        }
    }
    *match name {
        "cpu_utilization" => &mut report.cpu_utilization,
        "mem_utilization" => &mut report.mem_utilization,
        "application_utilization" => &mut report.application_utilization,
        "rps_fractional" => &mut report.rps_fractional,
        "eps" => &mut report.eps,
        _ => return Err(OrcaError::Text(format!("`{name}` is no field of a load report"))),
    } = value;
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::{collection::btree_map, prelude::*};

    use super::{
        metric::{
            ACTIVE_SESSIONS, ADDITIONAL_SESSION_RATE, DRAINING, EFFECTIVE_CAPACITY, MAX_SESSIONS, SESSIONS_UTIL, SPEAKING_SESSIONS,
            VIRTUAL_QPS,
        },
        *,
    };

    fn report() -> OrcaLoadReport {
        OrcaLoadReport {
            cpu_utilization: 0.3,
            rps_fractional: 9.0,
            named_metrics: BTreeMap::from([("queue".to_owned(), 4.0), ("share".to_owned(), 0.4)]),
            ..OrcaLoadReport::default()
        }
    }

    #[test]
    fn the_forms_are_those_of_the_wire() {
        assert_eq!(
            encode_text(&report()),
            "TEXT cpu_utilization=0.3,mem_utilization=0,application_utilization=0,rps_fractional=9,eps=0,named_metrics.queue=4,\
             named_metrics.share=0.4"
        );
        assert_eq!(
            encode_json(&report()),
            r#"JSON {"cpu_utilization":0.3,"rps_fractional":9.0,"named_metrics":{"queue":4.0,"share":0.4}}"#
        );
        assert!(encode_binary(&report()).len().is_multiple_of(4), "padded: Envoy takes no other");
    }

    #[test]
    fn what_other_backends_write_is_read() {
        let padded = encode_binary(&report());
        for (name, value) in [
            (TEXT_HEADER, "TEXT cpu_utilization=0.3, rps_fractional = 9,named_metrics.queue=4,named_metrics.share=4e-1"),
            (TEXT_HEADER, "TEXT cpu_utilization:0.3,rps_fractional:9.0,named_metrics.queue:4,named_metrics.share:0.4"),
            (TEXT_HEADER, r#" JSON {"cpuUtilization": 0.3, "rps_fractional": 9, "named_metrics": {"queue": 4, "share": "0.4"}} "#),
            ("Endpoint-Load-Metrics", encode_bin(&report()).as_str()),
            (BINARY_HEADER, padded.trim_end_matches('=')),
            (BINARY_HEADER, &padded),
        ] {
            assert_eq!(decode_header(name, value), Ok(report()), "{name}: {value}");
        }
        let rest = decode_header(TEXT_HEADER, "TEXT utilization.gpu=0.5,request_cost.tokens=7").unwrap();
        assert_eq!((rest.utilization["gpu"], rest.request_cost["tokens"]), (0.5, 7.0));
    }

    #[test]
    fn what_is_no_report_is_refused_with_its_reason() {
        for (name, value, why) in [
            ("content-type", "TEXT eps=1", "content-type"),
            (TEXT_HEADER, "eps=1", "TEXT"),
            (TEXT_HEADER, "TEXT ", "begin with"),
            (TEXT_HEADER, "TEXT eps", "name=value"),
            (TEXT_HEADER, "TEXT eps=1,", "name=value"),
            (TEXT_HEADER, "TEXT eps=many", "many"),
            (TEXT_HEADER, "TEXT eps=NaN", "finite"),
            (TEXT_HEADER, "TEXT named_metrics.x=1e999", "finite"),
            (TEXT_HEADER, "TEXT named_metrics.=1", "no field"),
            (TEXT_HEADER, "TEXT eps=1,eps=2", "twice"),
            (TEXT_HEADER, "TEXT cpu=1", "no field"),
            (TEXT_HEADER, "JSON {\"eps\": 1", "JSON"),
            (TEXT_HEADER, "JSON {\"eps\": 1} {}", "JSON"),
            (TEXT_HEADER, "JSON {\"eps\": \"Infinity\"}", "finite"),
            (TEXT_HEADER, "BIN !!", "protobuf"),
            (BINARY_HEADER, "/////w==", "protobuf"),
        ] {
            let error = decode_header(name, value).unwrap_err().to_string();
            assert!(error.contains(why), "{name}: {value}: {error}");
        }
        let infinite = OrcaLoadReport { eps: f64::INFINITY, ..report() };
        assert_eq!(decode_header(BINARY_HEADER, encode_binary(&infinite)), Err(OrcaError::NotFinite("eps".to_owned())));
        assert!(!encode_text(&infinite).contains("eps"));
    }

    #[test]
    fn names_are_those_that_every_reader_takes() {
        let longest = "a".repeat(NAME_MAX);
        for name in ["a", "a1", "queue.depth", "a-_.b", longest.as_str()] {
            assert!(is_portable_name(name), "{name}");
        }
        let too_long = "a".repeat(NAME_MAX + 1);
        for name in ["", "1a", "A", "aB", "a.", "-a", "a b", "a=b", "a,b", "\u{e9}", too_long.as_str()] {
            assert!(!is_portable_name(name), "{name}");
        }
        let odd = OrcaLoadReport { named_metrics: BTreeMap::from([("a=1,eps".to_owned(), 2.0)]), ..OrcaLoadReport::default() };
        assert_eq!(decode_header(TEXT_HEADER, encode_text(&odd)), Ok(OrcaLoadReport::default()));
        let ours = [
            ACTIVE_SESSIONS,
            ADDITIONAL_SESSION_RATE,
            DRAINING,
            EFFECTIVE_CAPACITY,
            MAX_SESSIONS,
            SESSIONS_UTIL,
            SPEAKING_SESSIONS,
            VIRTUAL_QPS,
        ];
        assert!(ours.into_iter().all(is_portable_name));
    }

    fn finite() -> impl Strategy<Value = f64> {
        prop_oneof![any::<f64>().prop_filter("finite", |x| x.is_finite()), 0.0..2.0]
    }

    fn any_report() -> impl Strategy<Value = OrcaLoadReport> {
        (finite(), finite(), finite(), finite(), finite(), btree_map("[a-z]([-_.a-z0-9]{0,20}[a-z0-9])?", finite(), 0..8)).prop_map(
            |(cpu_utilization, mem_utilization, application_utilization, rps_fractional, eps, named_metrics)| OrcaLoadReport {
                cpu_utilization,
                mem_utilization,
                application_utilization,
                rps_fractional,
                eps,
                named_metrics,
                ..OrcaLoadReport::default()
            },
        )
    }

    /// As figures of one report in one order; the JSON reader may be off in the last digit.
    fn figures(report: &OrcaLoadReport) -> Vec<f64> {
        let plain = [report.cpu_utilization, report.mem_utilization, report.application_utilization, report.rps_fractional, report.eps];
        plain.into_iter().chain(report.named_metrics.values().copied()).collect()
    }

    proptest! {
        #[test]
        fn every_form_reads_back(report in any_report()) {
            for (name, value) in [
                (TEXT_HEADER, encode_text(&report)),
                (TEXT_HEADER, encode_bin(&report)),
                (BINARY_HEADER, encode_binary(&report)),
            ] {
                prop_assert_eq!(decode_header(name, &value), Ok(report.clone()), "{}", value);
            }
            let json = decode_header(TEXT_HEADER, encode_json(&report)).unwrap();
            prop_assert!(json.named_metrics.keys().eq(report.named_metrics.keys()));
            for (got, want) in figures(&json).into_iter().zip(figures(&report)) {
                prop_assert!((got - want).abs() <= want.abs() * 1e-12, "{} {}", got, want);
            }
        }

        #[test]
        fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), form in 0..4usize) {
            let mut value = [&b"TEXT "[..], b"JSON ", b"BIN ", b""][form].to_vec();
            value.extend_from_slice(&bytes);
            let _ = decode_header(TEXT_HEADER, &value);
            let _ = decode_header(BINARY_HEADER, &value);
            let _ = decode_header(BINARY_HEADER, BASE64.encode(&bytes));
        }

        #[test]
        fn near_misses_never_panic(text in "(TEXT |JSON |BIN )?[ -~]{0,80}", list in "TEXT ([a-z_.]{0,18}[=:,]-?[0-9.eE]{0,6},?){0,6}") {
            for value in [&text, &list] {
                if let Ok(report) = decode_header(TEXT_HEADER, value) {
                    prop_assert!(checked(report).is_ok());
                }
            }
        }
    }
}
