//! What a frame of audio costs in a dialect, beside its session and its socket: read, and written.

use std::hint::black_box;

use agent_server::dialect::{Exchange, Frame, Socket, Upgrade, WEBSOCKET};
use bytes::Bytes;
use criterion::{Criterion, criterion_group, criterion_main};
use http::HeaderMap;
use proto::{
    audio::AudioFormat,
    base64,
    frame::{AgentAudio, ServerEvent, SessionAccepted},
    ids::{ResponseId, TurnId},
};

/// The dialect that is served at a path.
fn open(path: &str) -> Socket {
    let headers = HeaderMap::new();
    let dialect = WEBSOCKET.iter().find(|dialect| (dialect.serves)(path)).unwrap();
    (dialect.open)(&Upgrade { path, query: "", headers: &headers }).unwrap().dialect
}

fn encode(dialect: &mut Socket, event: ServerEvent) {
    let nothing = &mut |event| drop(black_box(event));
    dialect.encode(event, &mut Exchange::new(nothing, &mut |frame: Frame| drop(black_box(frame))));
}

fn openai(c: &mut Criterion) {
    let format = AudioFormat::Pcm24k;
    let mut dialect = open("/v1/realtime");
    encode(
        &mut dialect,
        ServerEvent::Accepted(SessionAccepted {
            session_id: "1".to_owned(),
            backend_id: String::new(),
            boot_id: String::new(),
            input: format,
            output: format,
            max_duration_ms: 1_000,
            idle_timeout_ms: 1_000,
        }),
    );
    encode(&mut dialect, ServerEvent::Answering { turn: TurnId(1) });
    encode(&mut dialect, ServerEvent::ResponseStart { response: ResponseId(1), turn: TurnId(1), text: "word ".repeat(20) });
    let payload = Bytes::from(vec![7; format.frame_bytes()]);
    let audio = AgentAudio { sequence: 0, timestamp_us: 0, payload: payload.clone(), response: ResponseId(1) };
    c.bench_function("openai/write", |b| b.iter(|| encode(&mut dialect, ServerEvent::Audio(audio.clone()))));
    let text = format!("{{\"event_id\":\"event_1\",\"type\":\"input_audio_buffer.append\",\"audio\":\"{}\"}}", base64::encode(&payload));
    let frame = Frame::Text(text.into());
    c.bench_function("openai/read", |b| {
        b.iter(|| {
            let nothing = &mut |event| drop(black_box(event));
            dialect.decode(frame.clone(), &mut Exchange::new(nothing, &mut |frame: Frame| drop(black_box(frame))));
        });
    });
    c.bench_function("base64/write", |b| b.iter(|| base64::encode(black_box(&payload))));
    let encoded = base64::encode(&payload);
    c.bench_function("base64/read", |b| b.iter(|| base64::decode(black_box(&encoded))));
}

criterion_group!(benches, openai);
criterion_main!(benches);
