//! A run that goes wrong says why: in the words of the other side, and by the cause that the user can do something about.

mod run_support;

use std::{
    net::{SocketAddr, TcpListener},
    time::Duration,
};

use run_support::{Done, Run};
use tokio_tungstenite::tungstenite::{
    Message, accept,
    protocol::{CloseFrame, frame::coding::CloseCode},
};

/// How the server goes on when its words are said.
#[derive(Clone, Copy)]
enum Then {
    /// It reads, and answers a close.
    Listen,
    /// It reads no more, and holds the connection.
    Hold,
    /// It closes with this code.
    Close(u16),
}

/// Says this to every session.
fn serve(words: &'static [&'static str], then: Then) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                // Whoever only looks whether somebody listens upgrades nothing.
                let Ok(mut socket) = accept(stream) else { return };
                for word in words {
                    socket.send(Message::text(*word)).ok();
                }
                match then {
                    Then::Listen => while socket.read().is_ok() {},
                    Then::Hold => std::thread::sleep(Duration::from_mins(1)),
                    Then::Close(code) => {
                        socket.close(Some(CloseFrame { code: CloseCode::from(code), reason: "".into() })).ok();
                        while socket.read().is_ok() {}
                    }
                }
            });
        }
    });
    address
}

const SCENARIO: &str = "
    executor: constant-sessions
    sessions: 1
    duration: 300ms
    gracefulStop: 1s
    start_timeout: 1s
    conversations: [{turns: [{wait: 200ms}]}]
";

const CUSTOM: &str = "
    dialect: custom
    custom:
      send: {start: ['{\"op\": \"hello\"}'], audio: binary}
      receive:
        - {kind: ready, when: {/op: welcome}}
        - {kind: audio, when: {/op: speak}, data: /chunkk}
        - {kind: error, when: {/op: oops}, message: /why}
        - {kind: error, when: {/op: fatal}, message: /why, fatal: true}
";

fn run(dialect: &str, address: SocketAddr) -> Done {
    let profile = format!("name: explained\ndriver: {{shards: 1, max_schedule_lag: 2s}}\nscenarios:\n  talk:{dialect}{SCENARIO}");
    Run::of(&profile).with("--target").with(&address.to_string()).finish()
}

/// The only cause, and what was said with it.
#[track_caller]
fn told(done: &Done, cause: &str) -> String {
    let errors = done.at("/errors").as_object().expect("a map");
    assert_eq!(errors.keys().collect::<Vec<_>>(), [cause], "{}", done.shown());
    done.summary()["error_messages"][cause].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_broken_protocol_is_told_by_rule_and_place() {
    let done = run(CUSTOM, serve(&[r#"{"op":"welcome"}"#, r#"{"op":"speak","chunk":"AAAA"}"#], Then::Listen));
    assert_eq!(told(&done, "protocol"), r#"the audio rule found no /chunkk in {"op":"speak","chunk":"AAAA"}"#);
}

#[test]
fn what_is_no_message_is_shown() {
    let done = run(CUSTOM, serve(&["hello"], Then::Listen));
    let said = told(&done, "protocol");
    assert!(said.starts_with("a message is not JSON") && said.ends_with(": hello"), "{said}");
}

#[test]
fn a_session_that_never_began_shows_what_was_not_understood() {
    let done = run(CUSTOM, serve(&[r#"{"op":"hallo"}"#, r#"{"op":"more"}"#], Then::Listen)).exits(106);
    assert_eq!(told(&done, "start_timeout"), r#"what begins no session here: {"op":"hallo"}"#);
    let done = done.says("target unusable: no session began, most for start_timeout");
    assert!(!done.shown().contains("nobody listens"), "{}", done.shown());
}

#[test]
fn the_servers_own_complaint_comes_before_what_was_not_understood() {
    let words = &[r#"{"op":"hallo"}"#, r#"{"op":"oops","why":"there is no message hello"}"#];
    let done = run(CUSTOM, serve(words, Then::Listen)).exits(106);
    assert_eq!(told(&done, "start_timeout"), "there is no message hello");
}

#[test]
fn errors_that_end_nothing_are_quoted() {
    let words = &[r#"{"op":"welcome"}"#, r#"{"op":"oops","why":"slow model"}"#, r#"{"op":"oops","why":"again"}"#];
    let done = run(CUSTOM, serve(words, Then::Listen)).exits(0);
    assert_eq!(done.at("/error_messages/server_errors"), "slow model");
    done.says("errors of the backends that ended no session").says("first said: slow model");
}

#[test]
fn a_goodbye_without_an_answer_has_a_cause_of_its_own() {
    let done = run(CUSTOM, serve(&[r#"{"op":"welcome"}"#], Then::Hold));
    told(&done, "goodbye_timeout");
    done.says("kept the connection open");
}

#[test]
fn the_code_of_a_close_says_more_than_the_error_before_it() {
    let words = &[r#"{"op":"welcome"}"#, r#"{"op":"fatal","why":"go away"}"#];
    let done = run(CUSTOM, serve(words, Then::Close(4401)));
    assert_eq!(told(&done, "unauthorized"), "go away; closed with 4401");
}

#[test]
fn a_wrong_key_is_no_bad_argument() {
    let words =
        &[r#"{"type":"error","error":{"type":"invalid_request_error","code":"invalid_api_key","message":"Incorrect key: see xyz"}}"#];
    let done = run("\n    dialect: openai_realtime", serve(words, Then::Listen)).exits(106);
    let said = told(&done, "unauthorized");
    assert!(said.starts_with("Incorrect key: see xyz"), "{said}");
}
