//! The messages of the variants, and what tells one from another.

use std::borrow::Cow;

use proto::{
    audio::AudioFormat,
    base64,
    frame::{ErrorCode, MAX_NAME_BYTES, SessionError},
};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{fatal, missing, shorten};

/// Whose words are spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Variant {
    /// `streamSid`.
    Twilio,
    /// `stream_id`, and `start.call_control_id`.
    Telnyx,
    /// `start.streamId`, and `start.callId`.
    Plivo,
    /// `stream_sid`, with `start.call_sid`.
    Exotel,
}

/// Any message of a network. What nobody here reads (numbers of messages and chunks, times, the sum of it) is left out.
#[derive(Debug, Deserialize)]
pub(super) struct Message<'a> {
    #[serde(borrow)]
    pub(super) event: Cow<'a, str>,
    #[serde(borrow, rename = "streamSid", alias = "stream_id", alias = "streamId", alias = "stream_sid")]
    stream: Option<Cow<'a, str>>,
    start: Option<Value>,
    #[serde(borrow)]
    pub(super) media: Option<Media<'a>>,
    #[serde(borrow)]
    pub(super) dtmf: Option<Dtmf<'a>>,
    #[serde(borrow)]
    pub(super) mark: Option<Mark<'a>>,
    /// Of a checkpoint that was played.
    #[serde(borrow)]
    pub(super) name: Option<Cow<'a, str>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Media<'a> {
    #[serde(borrow)]
    pub(super) track: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) payload: Option<Cow<'a, str>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Dtmf<'a> {
    #[serde(borrow)]
    pub(super) digit: Option<Cow<'a, str>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Mark<'a> {
    #[serde(borrow)]
    pub(super) name: Option<Cow<'a, str>>,
}

impl<'a> Message<'a> {
    pub(super) fn parse(text: &'a str) -> Result<Self, SessionError> {
        // What is wrong comes first: a close frame has little room.
        serde_json::from_str(text)
            .map_err(|error| fatal(ErrorCode::MalformedMessage, format!("{error}; every message is {{\"event\": ..}}")))
    }
}

/// What a `start` says.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) variant: Variant,
    pub(super) format: AudioFormat,
    /// The parameter `client_ref`: the caller's name for the session.
    pub(super) client_ref: Option<String>,
    /// The parameter `voice`.
    pub(super) voice: Option<String>,
    stream: String,
    /// Everything of a `media` before its payload, and after it.
    media: (String, &'static str),
}

impl Call {
    pub(super) fn of(message: &Message<'_>) -> Result<Self, SessionError> {
        let Some(Value::Object(start)) = &message.start else { return Err(missing("start", "start")) };
        let inner = ["streamSid", "stream_sid", "streamId"].into_iter().find_map(|key| text(start, key));
        let stream = message.stream.as_deref().or(inner).unwrap_or_default();
        if stream.is_empty() || stream.len() > MAX_NAME_BYTES {
            let message =
                format!("`start` must name its stream in streamSid, stream_id, streamId or stream_sid, in 1 to {MAX_NAME_BYTES} bytes");
            return Err(fatal(ErrorCode::MalformedMessage, message));
        }
        let has = |key| start.contains_key(key);
        let variant = match () {
            () if has("call_control_id") => Variant::Telnyx,
            () if has("callId") => Variant::Plivo,
            () if has("call_sid") => Variant::Exotel,
            () => Variant::Twilio,
        };
        let parameters = ["customParameters", "custom_parameters"].into_iter().find_map(|key| start.get(key)?.as_object());
        let parameter = |key| parameters.and_then(|all| text(all, key)).map(str::to_owned);
        let format = variant.format(start)?;
        let media = variant.media(&quoted(stream), format);
        Ok(Self { variant, format, client_ref: parameter("client_ref"), voice: parameter("voice"), stream: stream.to_owned(), media })
    }

    /// One connection carries one stream.
    pub(super) fn check_stream(&self, message: &Message<'_>) -> Result<(), SessionError> {
        match message.stream.as_deref() {
            Some(other) if other != self.stream => {
                let message =
                    format!("`{}` of stream `{}`, which is not the one that started here", shorten(&message.event), shorten(other));
                Err(fatal(ErrorCode::InvalidArgument, message))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn media(&self, payload: &[u8]) -> String {
        let (before, after) = &self.media;
        let mut text = String::with_capacity(before.len() + payload.len().div_ceil(3) * 4 + after.len());
        text.push_str(before);
        base64::encode_into(payload, &mut text);
        text.push_str(after);
        text
    }

    pub(super) fn mark(&self, name: &str) -> String {
        let (stream, name) = (quoted(&self.stream), quoted(name));
        match self.variant {
            Variant::Twilio => format!(r#"{{"event":"mark","streamSid":{stream},"mark":{{"name":{name}}}}}"#),
            Variant::Telnyx => format!(r#"{{"event":"mark","stream_id":{stream},"mark":{{"name":{name}}}}}"#),
            Variant::Exotel => format!(r#"{{"event":"mark","stream_sid":{stream},"mark":{{"name":{name}}}}}"#),
            Variant::Plivo => format!(r#"{{"event":"checkpoint","streamId":{stream},"name":{name}}}"#),
        }
    }

    pub(super) fn clear(&self) -> String {
        let stream = quoted(&self.stream);
        match self.variant {
            Variant::Twilio => format!(r#"{{"event":"clear","streamSid":{stream}}}"#),
            Variant::Telnyx => format!(r#"{{"event":"clear","stream_id":{stream}}}"#),
            Variant::Exotel => format!(r#"{{"event":"clear","stream_sid":{stream}}}"#),
            Variant::Plivo => format!(r#"{{"event":"clearAudio","streamId":{stream}}}"#),
        }
    }
}

impl Variant {
    /// The format that a `start` announces; the variant's usual one where it announces none.
    fn format(self, start: &Map<String, Value>) -> Result<AudioFormat, SessionError> {
        let (usual, key) = match self {
            Self::Twilio | Self::Plivo => (AudioFormat::Mulaw8k, "mediaFormat"),
            Self::Telnyx => (AudioFormat::Mulaw8k, "media_format"),
            Self::Exotel => (AudioFormat::Pcm8k, "media_format"),
        };
        let Some(Value::Object(media)) = start.get(key) else { return Ok(usual) };
        let rate = ["sampleRate", "sample_rate"].into_iter().find_map(|key| number(media.get(key)?)).unwrap_or(8_000);
        let channels = media.get("channels").and_then(number).unwrap_or(1);
        let encoding = text(media, "encoding").unwrap_or_default();
        let format = match (self, encoding, rate) {
            // Exotel names the transport encoding there.
            (Self::Exotel, "" | "base64" | "audio/x-l16" | "L16", rate) => AudioFormat::pcm(rate),
            (Self::Telnyx, "PCMU", 8_000) | (Self::Twilio | Self::Plivo, "audio/x-mulaw", 8_000) => Some(AudioFormat::Mulaw8k),
            (Self::Telnyx, "PCMA", 8_000) => Some(AudioFormat::Alaw8k),
            (Self::Plivo, l16, 8_000 | 16_000) if l16.eq_ignore_ascii_case("audio/x-l16") => AudioFormat::pcm(rate),
            _ => None,
        };
        format.filter(|_| channels == 1).ok_or_else(|| {
            let served = match self {
                Self::Twilio => "audio/x-mulaw at 8000 Hz",
                Self::Telnyx => "PCMU or PCMA at 8000 Hz",
                Self::Plivo => "audio/x-mulaw at 8000 Hz, audio/x-l16 at 8000 or 16000 Hz",
                Self::Exotel => "16-bit PCM at 8000, 16000, 24000 or 48000 Hz",
            };
            let message = format!("`{}` at {rate} Hz, {channels} channel(s) is not served: use {served}, mono", shorten(encoding));
            fatal(ErrorCode::UnsupportedFormat, message)
        })
    }

    /// A `media` around its payload.
    fn media(self, stream: &str, format: AudioFormat) -> (String, &'static str) {
        let before = match self {
            Self::Twilio => format!(r#"{{"event":"media","streamSid":{stream},"media":{{"payload":""#),
            Self::Telnyx => format!(r#"{{"event":"media","stream_id":{stream},"media":{{"payload":""#),
            Self::Exotel => format!(r#"{{"event":"media","stream_sid":{stream},"media":{{"payload":""#),
            Self::Plivo => {
                let content = if format == AudioFormat::Mulaw8k { "audio/x-mulaw" } else { "audio/x-l16" };
                let rate = format.sample_rate();
                format!(r#"{{"event":"playAudio","streamId":{stream},"media":{{"contentType":"{content}","sampleRate":{rate},"payload":""#)
            }
        };
        (before, r#""}}"#)
    }
}

fn text<'a>(map: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    map.get(key)?.as_str()
}

/// Some networks write their numbers as text.
fn number(value: &Value) -> Option<u32> {
    match value {
        Value::String(text) => text.parse().ok(),
        other => u32::try_from(other.as_u64()?).ok(),
    }
}

/// As a JSON string.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}
