//! The pipe from a worker process: any bytes give an event or an error, and take no more memory than they are worth.
#![no_main]

use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};
use load_driver::engine::{EngineEvent, wire};

#[derive(Debug, Arbitrary)]
enum Input<'a> {
    /// As it comes.
    Raw(&'a [u8]),
    /// Framed as it should be, so that what is inside is looked at.
    Framed { head: &'a str, rest: &'a [u8] },
    /// An interval with one histogram, framed as it should be; its bytes are what they are.
    Histogram { digits: u8, low: u64, high: u64, claimed: Option<u32>, counts: &'a [u8] },
}

fn framed(head: &str, rest: &[u8]) -> Vec<u8> {
    let mut bytes = ((4 + head.len() + rest.len()) as u32).to_be_bytes().to_vec();
    bytes.extend((head.len() as u32).to_be_bytes());
    bytes.extend(head.as_bytes());
    bytes.extend(rest);
    bytes
}

/// `HdrHistogram`'s V2 form.
fn histogram(digits: u8, low: u64, high: u64, claimed: Option<u32>, counts: &[u8]) -> Vec<u8> {
    let mut bytes = 0x1c84_9313_u32.to_be_bytes().to_vec();
    bytes.extend(claimed.unwrap_or(counts.len() as u32).to_be_bytes());
    bytes.extend(0_u32.to_be_bytes());
    bytes.extend(u32::from(digits).to_be_bytes());
    bytes.extend(low.to_be_bytes());
    bytes.extend(high.to_be_bytes());
    bytes.extend(1_f64.to_be_bytes());
    bytes.extend(counts);
    bytes
}

fuzz_target!(|input: Input<'_>| {
    let bytes = match input {
        Input::Raw(bytes) => bytes.to_vec(),
        Input::Framed { head, rest } => framed(head, rest),
        Input::Histogram { digits, low, high, claimed, counts } => {
            let one = histogram(digits, low, high, claimed, counts);
            let head = format!(
                r#"{{"interval":{{"shard":0,"from_us":0,"to_us":1,"active":0,"speaking":0,"warmup":false,"scenarios":[{{"number":0,"latencies":[["connect",{0},{0}]],"counts":[],"clamped":0}}]}}}}"#,
                one.len()
            );
            framed(&head, &[one.clone(), one].concat())
        }
    };
    let mut rest = bytes.as_slice();
    while let Ok(Some(event)) = wire::read_event(&mut rest) {
        // What was read can be merged, and sent on.
        if let EngineEvent::Interval(report) = &event {
            for (_, a, b) in report.scenarios.iter().flat_map(|scenario| &scenario.latencies) {
                let mut sum = load_driver::record::histogram::empty();
                load_driver::record::histogram::merge(&mut sum, a);
                load_driver::record::histogram::merge(&mut sum, b);
            }
        }
        wire::write_event(&mut Vec::new(), event).expect("an event that was read can be written");
    }
});
