//! The example of `docs/dialects/custom.md` as it stands there, against a tiny server of the backend that it invents.

mod run_support;

use std::{
    net::{SocketAddr, TcpListener, TcpStream},
    sync::mpsc::{Receiver, channel},
};

use proto::{audio::AudioFormat, base64};
use run_support::Run;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{
    self, Message, WebSocket, accept_hdr,
    handshake::server::{Request, Response},
};

const FORMAT: AudioFormat = AudioFormat::Pcm16k;
/// RMS of speech.
const LOUD: f32 = 500.0;
/// Frames of silence that end a turn, and of an answer.
const PAUSE: u32 = 20;
const ANSWER: u32 = 60;

/// The first example of the page.
fn example() -> &'static str {
    let page = include_str!("../../docs/dialects/custom.md");
    page.split_once("```yaml\n").and_then(|(_, rest)| rest.split_once("```")).expect("an example").0
}

/// What a session of the invented backend saw.
#[derive(Debug, Default)]
struct Seen {
    path: String,
    hello: Value,
    turns: u32,
    results: Vec<Value>,
    pongs: u32,
    hushes: u32,
    bye: Value,
}

/// Serves for as long as the test lives; tells what each session was.
fn serve() -> (SocketAddr, Receiver<Seen>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("an address");
    let (tell, told) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let tell = tell.clone();
            std::thread::spawn(move || {
                let mut path = String::new();
                #[expect(clippy::result_large_err, reason = "as the callback has it")]
                let noted = |request: &Request, response: Response| {
                    path = request.uri().to_string();
                    Ok(response)
                };
                // Whoever only looks whether somebody listens upgrades nothing.
                let Ok(socket) = accept_hdr(stream, noted) else { return };
                tell.send(Session { socket, seen: Seen { path, ..Seen::default() }, loud: 0, still: 0, left: 0, next: 0 }.run()).ok();
            });
        }
    });
    (address, told)
}

struct Session {
    socket: WebSocket<TcpStream>,
    seen: Seen,
    /// Frames of the user's speech, and of silence after it.
    loud: u32,
    still: u32,
    /// Frames of the answer that are left.
    left: u32,
    next: u64,
}

impl Session {
    fn say(&mut self, message: &Value) {
        self.socket.send(Message::text(message.to_string())).ok();
    }

    /// To the end of the connection. The user's frames are the clock: for each of them one of the agent's may go.
    fn run(mut self) -> Seen {
        loop {
            match self.socket.read() {
                Ok(Message::Text(text)) => {
                    let message: Value = serde_json::from_str(&text).expect("a template that was filled in is JSON");
                    self.hear(&message);
                }
                Ok(_) => {}
                Err(tungstenite::Error::ConnectionClosed) => return self.seen,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn hear(&mut self, message: &Value) {
        match message["op"].as_str().expect("an op") {
            "hello" => {
                self.seen.hello = message.clone();
                self.say(&json!({"op": "welcome", "session": "s \"1\""}));
                self.say(&json!({"op": "ping", "n": 5}));
            }
            "mic" => self.mic(message),
            "result" => {
                self.seen.results.push(message.clone());
                self.left = ANSWER;
            }
            "pong" => {
                assert_eq!(message["n"], 5);
                self.seen.pongs += 1;
            }
            "bye" => self.seen.bye = message.clone(),
            other => panic!("{other}"),
        }
    }

    fn mic(&mut self, message: &Value) {
        assert_eq!(message["n"], self.next, "frames come in order");
        self.next += 1;
        let pcm = base64::decode(message["pcm"].as_str().expect("text")).expect("base64");
        if FORMAT.rms(&pcm) > LOUD {
            self.loud += 1;
            self.still = 0;
            // Two frames in a row are no click.
            if self.loud == 2 && self.left > 0 {
                self.left = 0;
                self.seen.hushes += 1;
                self.say(&json!({"op": "hush"}));
            }
        } else {
            self.still += 1;
        }
        if self.still == PAUSE && self.loud > 0 {
            self.loud = 0;
            self.turn();
        }
        if self.left > 0 {
            self.left -= 1;
            let samples: Vec<i16> = (0..FORMAT.frame_samples()).map(|n| if n / 8 % 2 == 0 { 6_000 } else { -6_000 }).collect();
            let frame = base64::encode(&FORMAT.encode(&samples));
            self.say(&json!({"op": "speak", "pcm": frame}));
            if self.left == 0 {
                self.say(&json!({"op": "spoken"}));
            }
        }
    }

    fn turn(&mut self) {
        self.seen.turns += 1;
        self.say(&json!({"op": "heard", "text": "so", "done": false}));
        self.say(&json!({"op": "heard", "text": "so much", "done": true}));
        if self.seen.turns == 2 {
            self.say(&json!({"op": "call", "id": "c-1", "tool": "weather", "with": {"where": "here"}}));
        } else {
            self.left = ANSWER;
        }
    }
}

#[test]
fn the_example_of_the_documentation_runs() {
    let (address, told) = serve();
    let done = Run::of(example()).with("--target").with(&address.to_string()).finish().exits(0);
    let sessions = done.count("/funnel/completed");
    assert!(sessions >= 2 && sessions == done.count("/funnel/requested"), "{}", done.shown());
    for metric in
        ["connect", "session_startup", "time_to_first_stream", "transcript_final", "turn_response", "tool_round_trip", "barge_in_stop"]
    {
        assert!(done.latency(metric, "response", "count") > 0.0, "no {metric}:\n{}", done.shown());
    }
    for _ in 0..sessions {
        let seen = told.recv().expect("a session");
        assert_eq!(seen.path, "/talk?version=1");
        let hello = json!({"op": "hello", "client": seen.hello["client"], "voice": "anna", "rate": 16_000, "tools": ["weather"]});
        assert_eq!(seen.hello, hello);
        assert!(!seen.hello["client"].as_str().expect("text").is_empty());
        // Three turns, and the one that interrupts the third.
        assert_eq!((seen.turns, seen.hushes, seen.pongs), (4, 1, 1), "{seen:?}");
        assert_eq!(seen.results, [json!({"op": "result", "call": "c-1", "value": "{\"ok\":true}"})]);
        assert_eq!(seen.bye, json!({"op": "bye", "session": "s \"1\""}));
    }
}
