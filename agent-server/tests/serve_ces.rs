//! Google CES sessions against a real server process, by a stock gRPC client.

mod common;

use common::{
    Server,
    foreign::{silence, speech},
    within,
};
use proto::{
    audio::AudioFormat,
    google::cloud::ces::v1::{
        self, bidi_session_client_message::MessageType as In, bidi_session_server_message::MessageType as Out,
        session_input::InputType as Input, session_output::OutputType as Output, session_service_client::SessionServiceClient,
    },
    structs,
};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Code, Request, Status, Streaming, metadata::MetadataMap, transport::Channel};

const SESSION: &str = "projects/p/locations/l/apps/a/sessions/mine";

/// A session under way.
struct Client {
    say: Option<mpsc::UnboundedSender<v1::BidiSessionClientMessage>>,
    hear: Streaming<v1::BidiSessionServerMessage>,
    head: MetadataMap,
}

fn config(encoding: v1::AudioEncoding, rate: i32) -> In {
    In::Config(v1::SessionConfig {
        session: SESSION.to_owned(),
        input_audio_config: Some(v1::InputAudioConfig {
            audio_encoding: encoding.into(),
            sample_rate_hertz: rate,
            ..v1::InputAudioConfig::default()
        }),
        output_audio_config: Some(v1::OutputAudioConfig { audio_encoding: encoding.into(), sample_rate_hertz: rate }),
        ..v1::SessionConfig::default()
    })
}

fn input(input: Input) -> In {
    In::RealtimeInput(v1::SessionInput { input_type: Some(input), will_continue: false })
}

fn audio(format: AudioFormat) -> In {
    input(Input::Audio([speech(format, 600), silence(format, 1_000)].concat().concat().into()))
}

impl Client {
    async fn open(server: &Server, first: In) -> Result<Self, Status> {
        let channel = Channel::from_shared(format!("http://{}", server.address)).unwrap().connect().await.unwrap();
        let (say, said) = mpsc::unbounded_channel();
        say.send(v1::BidiSessionClientMessage { message_type: Some(first) }).unwrap();
        let mut request = Request::new(UnboundedReceiverStream::new(said));
        request.metadata_mut().insert("x-client-ref", "me".parse().unwrap());
        let response = within("an answer", SessionServiceClient::new(channel).bidi_run_session(request)).await?;
        let head = response.metadata().clone();
        Ok(Self { say: Some(say), hear: response.into_inner(), head })
    }

    fn say(&self, message: In) {
        self.say.as_ref().expect("open").send(v1::BidiSessionClientMessage { message_type: Some(message) }).unwrap();
    }

    async fn next(&mut self) -> Result<Option<Out>, Status> {
        let message = within("a message", self.hear.message()).await?;
        Ok(message.map(|message| message.message_type.expect("a message")))
    }

    /// The outputs of the next turn, with what was understood before it.
    async fn turn(&mut self) -> (String, Vec<v1::SessionOutput>) {
        let (mut understood, mut outputs) = (String::new(), Vec::new());
        loop {
            match self.next().await.unwrap() {
                Some(Out::RecognitionResult(result)) => understood = result.transcript,
                Some(Out::SessionOutput(output)) => {
                    let last = output.turn_completed;
                    outputs.push(output);
                    if last {
                        return (understood, outputs);
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// The server ends the session: the word, how it was counted, and the status.
    async fn is_ended(&mut self, outcome: &str, code: Code) {
        let Some(Out::EndSession(end)) = self.next().await.unwrap() else { panic!("end_session is due") };
        assert_eq!(Value::from(structs::to_json(end.metadata.expect("metadata"))), json!({ "outcome": outcome }));
        assert_eq!(self.next().await.expect_err("a status").code(), code);
    }

    /// Half-closes, and hears the end.
    async fn leave(mut self) {
        self.say = None;
        while self.next().await.expect("OK").is_some() {}
    }
}

fn bytes(outputs: &[v1::SessionOutput]) -> usize {
    let audio = |output: &v1::SessionOutput| match &output.output_type {
        Some(Output::Audio(audio)) => audio.len(),
        _ => 0,
    };
    outputs.iter().map(audio).sum()
}

#[tokio::test]
async fn audio_is_understood_and_answered_in_every_format() {
    let server = Server::start(&["--response=constant(900ms)"]);
    let formats = [
        (v1::AudioEncoding::Linear16, AudioFormat::Pcm16k),
        (v1::AudioEncoding::Linear16, AudioFormat::Pcm8k),
        (v1::AudioEncoding::Linear16, AudioFormat::Pcm24k),
        (v1::AudioEncoding::Linear16, AudioFormat::Pcm48k),
        (v1::AudioEncoding::Mulaw, AudioFormat::Mulaw8k),
        (v1::AudioEncoding::Alaw, AudioFormat::Alaw8k),
    ];
    for (encoding, format) in formats {
        let mut client = Client::open(&server, config(encoding, format.sample_rate() as i32)).await.unwrap();
        for name in ["x-backend-id", "x-boot-id"] {
            assert!(client.head.get(name).is_some_and(|value| !value.is_empty()), "{name}");
        }
        for index in [1, 2] {
            client.say(audio(format));
            let (understood, outputs) = client.turn().await;
            assert!(!understood.is_empty());
            assert!(matches!(&outputs[0].output_type, Some(Output::Text(text)) if text.split(' ').count() == 2), "{format}");
            assert!(outputs.iter().all(|output| output.turn_index == index), "{format}");
            assert_eq!(bytes(&outputs), 45 * format.frame_bytes(), "{format}");
        }
        client.leave().await;
    }
    server.expect_ends(&[("completed", formats.len() as u64)]).await;
    assert_eq!(server.ends("").ends[0].client_ref, "me");
}

#[tokio::test]
async fn a_tool_is_called_by_text_and_its_response_resumes_the_agent() {
    let server = Server::start(&["--response=constant(200ms)"]);
    let mut client = Client::open(&server, config(v1::AudioEncoding::Linear16, 16_000)).await.unwrap();
    let object = |value: Value| structs::from_json(value.as_object().expect("an object").clone());
    client.say(input(Input::Variables(object(json!({ "tools": ["lookup"] })))));
    client.say(input(Input::Text("please call lookup".to_owned())));
    let Some(Out::SessionOutput(v1::SessionOutput { output_type: Some(Output::ToolCalls(calls)), turn_index: 1, .. })) =
        client.next().await.unwrap()
    else {
        panic!("a tool call is due");
    };
    let call = calls.tool_calls[0].clone();
    assert_eq!(call.display_name, "lookup");
    assert_eq!(structs::to_json(call.args.unwrap())["query"], "please call lookup");
    let response = v1::ToolResponse { id: call.id, response: Some(object(json!({ "ok": true }))), ..v1::ToolResponse::default() };
    client.say(input(Input::ToolResponses(v1::ToolResponses { tool_responses: vec![response.clone()] })));
    let (_, outputs) = client.turn().await;
    assert_eq!((bytes(&outputs), outputs[0].turn_index), (6_400, 1));
    // A response that comes twice is let go; keys and events are answered too.
    client.say(input(Input::ToolResponses(v1::ToolResponses { tool_responses: vec![response] })));
    client.say(input(Input::Dtmf("1".to_owned())));
    assert_eq!(client.turn().await.1[0].turn_index, 2);
    client.leave().await;
    server.expect_ends(&[("completed", 1)]).await;
}

#[tokio::test]
async fn an_answer_is_interrupted_by_speech_and_by_text() {
    let server = Server::start(&["--response=constant(20s)"]);
    for interrupt in [audio(AudioFormat::Pcm16k), input(Input::Text("stop".to_owned()))] {
        let mut client = Client::open(&server, config(v1::AudioEncoding::Linear16, 16_000)).await.unwrap();
        client.say(input(Input::Event(v1::Event { event: "welcome".to_owned() })));
        let is_audio =
            |out: &Option<Out>| matches!(out, Some(Out::SessionOutput(v1::SessionOutput { output_type: Some(Output::Audio(_)), .. })));
        while !is_audio(&client.next().await.unwrap()) {}
        client.say(interrupt);
        loop {
            match client.next().await.unwrap() {
                Some(Out::InterruptionSignal(signal)) => break assert!(signal.barge_in),
                Some(Out::SessionOutput(output)) => assert!(!output.turn_completed),
                other => panic!("{other:?}"),
            }
        }
        client.leave().await;
    }
    server.expect_ends(&[("completed", 2)]).await;
}

#[tokio::test]
async fn what_is_wrong_is_told_by_the_status_and_counted() {
    let server = Server::start(&[]);
    let good = || config(v1::AudioEncoding::Linear16, 16_000);
    // Never a session: refused before any head.
    for (first, code, told) in [
        (input(Input::Text("hi".to_owned())), Code::FailedPrecondition, "first message must be `config`"),
        (config(v1::AudioEncoding::Linear16, 44_100), Code::InvalidArgument, "LINEAR16 at 44100 Hz"),
        (config(v1::AudioEncoding::Unspecified, 0), Code::InvalidArgument, "AUDIO_ENCODING_UNSPECIFIED"),
        (In::Config(v1::SessionConfig::default()), Code::InvalidArgument, "config.session must be"),
    ] {
        let status = Client::open(&server, first).await.err().expect("a refusal");
        assert!(status.code() == code && status.message().contains(told), "{status:?}");
    }
    let unknown = v1::ToolResponses { tool_responses: vec![v1::ToolResponse { id: "x".to_owned(), ..v1::ToolResponse::default() }] };
    let wrong = [
        (good(), Code::FailedPrecondition, "config came twice"),
        (input(Input::Audio(vec![1].into())), Code::InvalidArgument, "no whole samples"),
        (input(Input::Dtmf("x".to_owned())), Code::InvalidArgument, "dtmf holds"),
        (input(Input::ToolResponses(unknown)), Code::InvalidArgument, "no tool call"),
        (In::RealtimeInput(v1::SessionInput::default()), Code::InvalidArgument, "holds no input"),
    ];
    let count = wrong.len() as u64;
    for (message, code, told) in wrong {
        let mut client = Client::open(&server, good()).await.unwrap();
        client.say(message);
        let status = client.next().await.expect_err("an error");
        assert!(status.code() == code && status.message().contains(told), "{status:?}");
    }
    // A call that is dropped is cancelled, which is no half-close.
    drop(Client::open(&server, good()).await.unwrap());
    server.expect_ends(&[("failed", count), ("cancelled", 1)]).await;
}

#[tokio::test]
async fn who_is_full_says_so_and_who_lived_long_is_warned() {
    let server = Server::start(&["--max-sessions=1", "--max-duration=2s"]);
    let good = || config(v1::AudioEncoding::Linear16, 16_000);
    let mut client = Client::open(&server, good()).await.unwrap();
    assert_eq!(Client::open(&server, good()).await.err().expect("a refusal").code(), Code::ResourceExhausted);
    assert_eq!(client.next().await.unwrap(), Some(Out::GoAway(v1::GoAway {})));
    client.is_ended("timed_out", Code::DeadlineExceeded).await;
    server.expect_ends(&[("timed_out", 1)]).await;
}

#[tokio::test]
async fn a_session_that_the_server_ends_is_told_so_before_the_status() {
    let server = Server::start(&["--idle-timeout=300ms", "--drain-timeout=200ms"]);
    let good = || config(v1::AudioEncoding::Linear16, 16_000);
    let mut client = Client::open(&server, good()).await.unwrap();
    client.is_ended("timed_out", Code::DeadlineExceeded).await;
    server.expect_ends(&[("timed_out", 1)]).await;
    let server = Server::start(&["--drain-timeout=200ms"]);
    let mut client = Client::open(&server, good()).await.unwrap();
    assert_eq!(server.request("POST", "/drain").0, 202);
    assert_eq!(client.next().await.unwrap(), Some(Out::GoAway(v1::GoAway {})));
    client.is_ended("drained", Code::Unavailable).await;
}
